# mypy: disable-error-code="no-untyped-call"
"""Times the implementations of one case against each other, in one process, round by round.

Absolute times swing by half between processes on a shared machine; the ratio of two implementations that ran
in the same round swings by a few percent. So every round runs all of them, in an order that rotates, and what
counts is the median over rounds of the ratio to eager PyTorch. A probe of the machine (a copy of as many
bytes, or a matrix product of known work) runs in the same rounds.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

Outputs = tuple[Tensor, ...]
Run = Callable[[], Outputs]

SHORTEST_TIMING_S = 1e-3  # faster calls are repeated within a timing: timer and cache noise is some 10 us
FLUSH_BYTES = 256 << 20  # larger than the L2 cache of any GPU
# Error beyond twice that of eager PyTorch, relative to the largest true value.
SLACK = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@dataclass(frozen=True)
class Case:
    """One op at one shape. The callables take `inputs`, then keywords, and return float tensors.

    `eager` is plain PyTorch as people write it; run in fp64 it is the truth. With `backward` the gradients of
    all inputs are part of the outputs and of the time. `bytes`, `flops`: the least an implementation must
    move and compute. `work_bound`: the machine's limit is its arithmetic, not its memory.
    """

    op: str
    name: str
    inputs: tuple[Tensor, ...]
    eager: Callable[..., Outputs]
    ours: Callable[..., Outputs]  # takes backend=
    bytes: int
    flops: int
    backward: bool = False
    work_bound: bool = False
    peers: Mapping[str, Callable[..., Outputs]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        dtype = str(self.inputs[0].dtype).removeprefix("torch.")
        return f"{self.op}/{self.name}/{dtype}/{'forward+backward' if self.backward else 'forward'}"


Build = Callable[[], Case]  # a case takes up to gigabytes: one is built at a time


def runner(case: Case, call: Callable[..., Outputs], double: bool = False) -> Run:
    """`call` on the case's inputs, with their gradients if the case asks for them."""
    inputs = [x.double() if double else x for x in case.inputs]
    if not case.backward:

        def forward() -> Outputs:
            with torch.no_grad():
                return call(*inputs)

        return forward
    leaves = [x.detach().requires_grad_() for x in inputs]
    generator = torch.Generator().manual_seed(1)
    shapes = [(y.shape, y.dtype, y.device) for y in call(*leaves)]
    cotangents = [torch.randn(s, generator=generator).to(case.inputs[0].dtype).to(d, t) for s, t, d in shapes]

    def forward_backward() -> Outputs:
        y = call(*leaves)
        return *(t.detach() for t in y), *torch.autograd.grad(y, leaves, cotangents)

    return forward_backward


def probe(case: Case) -> tuple[str, Run, float]:
    """The machine's own speed: name, what to run, and the factor from its time to that of the case's work."""
    device, dtype = case.inputs[0].device, case.inputs[0].dtype
    if case.work_bound:
        a = torch.randn(512, 512, device=device).to(dtype)
        return "matmul", lambda: (a @ a,), case.flops / (2 * 512**3)
    # In pieces as large as the op's tensors: the allocator maps larger ones anew each time, which costs more
    # than the copy.
    source = torch.ones(max(case.bytes // 2, 1), dtype=torch.uint8, device=device)
    pieces = source.split(max(x.nbytes for x in case.inputs))
    return "copy", lambda: tuple(piece.clone() for piece in pieces), 1.0


def errors(got: Sequence[Tensor], want: Sequence[Tensor]) -> tuple[float, float]:
    """Largest absolute error, and largest error relative to the largest true value of its tensor.

    Both are infinite where a shape differs or a value is not finite.
    """
    worst_abs = worst_rel = 0.0
    for x, y in zip(got, want, strict=True):
        if x.shape != y.shape or not bool(x.isfinite().all()):
            return float("inf"), float("inf")
        if y.numel():
            error = float((x.double() - y).abs().max())
            worst_abs = max(worst_abs, error)
            worst_rel = max(worst_rel, error / max(float(y.abs().max()), 1e-30))
    return worst_abs, worst_rel


def rounds(
    runs: Mapping[str, Run], device: torch.device, min_rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds per call of each implementation, one a round; `min_rounds`, and more while time is left."""
    repeats = {}
    for name, run in runs.items():
        _seconds(run, 1, device)  # warms up
        repeats[name] = max(1, round(SHORTEST_TIMING_S / max(_seconds(run, 1, device), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    start = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in count():
            if turn >= min_rounds and time.perf_counter() - start > seconds:
                return times
            for i in range(len(names)):
                name = names[(i + turn) % len(names)]
                times[name].append(_seconds(runs[name], repeats[name], device))
    finally:
        if collecting:
            gc.enable()
    raise AssertionError("count() does not end")


def _seconds(run: Run, repeats: int, device: torch.device) -> float:
    """Mean seconds of `repeats` calls; on CUDA by events, with a cold L2 cache."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        return (time.perf_counter() - start) / repeats
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    total = 0.0
    for _ in range(repeats):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        total += begin.elapsed_time(end) / 1e3
    return total / repeats


def peak_bytes(run: Run, device: torch.device) -> int | None:
    """Memory one call allocates at its peak, on CUDA."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def quantile(values: Sequence[float], q: float) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(q))


def median_and_mad(values: Sequence[float]) -> dict[str, float]:
    """Median, and median absolute deviation from it."""
    middle = quantile(values, 0.5)
    return {"p50": middle, "mad": quantile([abs(v - middle) for v in values], 0.5)}


def summary(
    case: Case, times: Sequence[float], eager: Sequence[float], machine: tuple[str, list[float]]
) -> Any:
    """The timing part of a row of the result."""
    name, floor = machine
    middle = quantile(times, 0.5)
    return {
        "rounds": len(times),
        "ms": {"p20": quantile(times, 0.2) * 1e3, "p50": middle * 1e3, "p80": quantile(times, 0.8) * 1e3,
               "min": min(times) * 1e3},
        "gb_per_s": case.bytes / middle / 1e9,
        "gflop_per_s": case.flops / middle / 1e9,
        "ratio": {
            "eager": median_and_mad([e / t for e, t in zip(eager, times, strict=True)]),
            name: median_and_mad([f / t for f, t in zip(floor, times, strict=True)]),
        },
    }  # fmt: skip
