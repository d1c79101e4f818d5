"""`glmv bench`: run the cases of a suite and write the result."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glmv import backend as backends
from glmv import check, env
from glmv.bench import measure
from glmv.bench.measure import Build, Case, Run
from glmv.bench.table import show

SCHEMA = "glmv.bench/1"
OPS = ("rope", "pos_embed", "router", "experts", "attention", "token_loss")
SUITES = ("smoke", "full")
# Rounds at least, and seconds of rounds per case: smoke is a first impression, full is for claims.
EFFORT = {"smoke": (5, 0.4), "full": (15, 2.0)}


@dataclass(frozen=True)
class Result:
    """A result as it is written to JSON: `data["cases"]` has one row per case and implementation."""

    data: dict[str, Any]

    @property
    def wrong(self) -> list[str]:
        """Implementations whose error is too large: `id implementation`."""
        return [f"{row['id']} {row['impl']}" for row in self.data["cases"] if not row["ok"]]

    @property
    def ok(self) -> bool:
        return not self.wrong


def run(
    suite: str = "smoke",
    op: str | None = None,
    backend: str | None = None,
    device: str = "cpu",
    output: str | None = None,
) -> Result:
    """Time the ops against eager PyTorch, print a table, and write the result as JSON.

    Args:
        suite: "smoke" (all families, under a minute on two cores) or "full" (model sizes, torch.compile).
        op: one family; None for all.
        backend: one backend, which raises BackendError where it cannot run; None for all that can.
        device: "cpu" or "cuda".
        output: path of the JSON file; None writes none.
    """
    check.choice("bench", "suite", suite, SUITES)
    if op is not None:
        check.choice("bench", "op", op, OPS)
    where = torch.device(device)
    builds = [build for name in ([op] if op else OPS) for build in cases_of(name, suite, where)]
    result = measure_all(builds, suite, where, backend)
    show(result.data)
    if output is not None:
        Path(output).write_text(json.dumps(result.data, indent=1) + "\n")
    return result


def cases_of(op: str, suite: str, device: torch.device) -> Iterator[Build]:
    """The cases of one family."""
    cases: Iterator[Build] = importlib.import_module(f"glmv.bench.{op}").cases(suite, device)
    return cases


def measure_all(
    builds: Sequence[Build], suite: str, device: torch.device, backend: str | None = None
) -> Result:
    """Build and run the cases one after the other and gather the result."""
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    with _progress(len(builds)) as tell:
        for i, build in enumerate(builds):
            case = build()
            tell(i, case.id)
            runs, why_not = implementations(case, suite, backend)
            skipped += why_not
            rows += measure_case(case, runs, suite, device)
        tell(len(builds), "")
    return Result({"schema": SCHEMA, "suite": suite, **_host(device), "cases": rows, "skipped": skipped})


def implementations(
    case: Case, suite: str, backend: str | None
) -> tuple[dict[str, Run], list[dict[str, str]]]:
    """What to run for a case, and what is left out and why."""
    runs: dict[str, Run] = {"eager": measure.runner(case, case.eager)}
    skipped = []
    if suite == "full":
        runs |= {name: measure.runner(case, peer) for name, peer in case.peers.items()}
        torch.compiler.reset()  # past some variants of one function it would fall back to eager
        compiled = measure.runner(case, torch.compile(case.eager, dynamic=False))
        try:
            compiled()
            runs["torch.compile"] = compiled
        except RuntimeError as error:  # what its compiler raises, where none is installed for example
            reason = str(error).strip().splitlines()[0]
            skipped.append({"id": case.id, "impl": "torch.compile", "reason": reason})
    first = case.inputs[0]
    for name in (backend,) if backend else backends.BACKENDS:
        lack = backends.why_not(case.op, name, first.device, first.dtype)
        if lack is None:
            runs[name] = measure.runner(case, lambda *x, name=name: case.ours(*x, backend=name))
        elif backend:
            raise backends.BackendError(f"bench: backend {name!r} cannot run {case.id}: {lack}")
        elif not lack.startswith(f"{case.op} has no"):
            skipped.append({"id": case.id, "impl": name, "reason": lack})
    return runs, skipped


def measure_case(case: Case, runs: dict[str, Run], suite: str, device: torch.device) -> list[dict[str, Any]]:
    """One row per implementation: error against fp64 first, then time."""
    truth = measure.runner(case, case.eager, double=True)()
    error = {name: measure.errors(call(), truth) for name, call in runs.items()}
    del truth
    allowed = 2 * error["eager"][1] + measure.SLACK[case.inputs[0].dtype]
    machine, probe, factor = measure.probe(case)
    times = measure.rounds({machine: probe, **runs}, device, *EFFORT[suite])
    floor = machine, [t * factor for t in times[machine]]
    return [
        {
            "id": case.id, "op": case.op, "impl": name, "device": device.type,
            "bytes": case.bytes, "flops": case.flops,
            **measure.summary(case, times[name], times["eager"], floor),
            "peak_bytes": measure.peak_bytes(call, device),
            "max_abs_err": error[name][0], "max_rel_err": error[name][1], "ok": error[name][1] <= allowed,
        }
        for name, call in runs.items()
    ]  # fmt: skip


def _host(device: torch.device) -> dict[str, Any]:
    """glmv, environment and host of the result. Results compare where the fingerprints are equal."""
    info = env.collect()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    host = {"cpu": info["cpu"], "gpu": gpu, "threads": torch.get_num_threads()}
    digest = hashlib.sha256(json.dumps(host, sort_keys=True).encode()).hexdigest()[:12]
    # No paths: results are kept in the repository.
    glmv = {
        "version": info["glmv"]["version"],
        "commit": info["glmv"]["commit"],
        "extension": info["extension"],
    }
    python, libraries = info["python"]["version"], info["torch"] | {"openmp": len(info["torch"]["openmp"])}
    return {
        "glmv": glmv,
        "env": {
            "python": python,
            "torch": libraries,
            "packages": info["packages"],
            "variables": info["variables"],
        },
        "host": {"fingerprint": digest, **host},
    }


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, label: None
        return

    def tell(done: int, label: str) -> None:
        bar = "#" * (24 * done // max(total, 1))
        end = "\n" if done == total else ""
        print(f"\r\033[K  bench [{bar:<24}] {done}/{total} {label}", end=end, file=sys.stderr, flush=True)

    yield tell
