"""Which implementation of an op runs, decided from static facts before anything runs.

Every op file registers a table `backend name -> WhyNot`: a function of (device, dtype, options) that returns
None when the backend can run the call, or the reason why not. `resolve()` picks one:

- a backend that was named (argument, `use_backend`, GLMV_BACKEND) runs or raises BackendError;
- "auto" takes the first that can run, in the order of the device. `ref` is never automatic on CUDA: a
  silent reference there would look like a working, slow kernel.

An exception of a kernel is the user's to see: nothing here catches it.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

BACKENDS = ("native", "triton", "flash", "torch_varlen", "ref")
# First that can run wins. On CUDA an op takes part in "auto" only with backends that were run and measured.
AUTO_ORDER: dict[str, tuple[str, ...]] = {
    "cpu": ("native", "ref"),
    "cuda": ("native", "flash", "torch_varlen", "triton"),
}

Options = Mapping[str, object]
WhyNot = Callable[[torch.device, torch.dtype, Options], str | None]


class BackendError(RuntimeError):
    """The backend that was asked for cannot run this call, or none can; the message says why."""


_tables: dict[str, dict[str, WhyNot]] = {}
_last: dict[str, str] = {}
_noted: set[str] = set()  # GPU types the user was told about
# A plain list, not a ContextVar: torch.compile can trace and guard it, so a compiled function follows
# `use_backend`. The block is process-wide: do not open it in two threads at once.
_forced: list[str] = []


def register(op: str, table: Mapping[str, WhyNot]) -> None:
    """Give `op` its backends. Called once by each op file."""
    unknown = set(table) - set(BACKENDS)
    if unknown:
        raise ValueError(f"register: backends of {op} must be among {BACKENDS}, got {sorted(unknown)}")
    _tables[op] = dict(table)


def always(device: torch.device, dtype: torch.dtype, options: Options) -> None:
    """The WhyNot of a backend without limits (the reference)."""


def why_not(op: str, backend: str, device: torch.device, dtype: torch.dtype, **options: object) -> str | None:
    """The reason why `backend` cannot run `op` for these facts, or None if it can."""
    table = _tables[op]
    if backend not in table:
        return f"{op} has no {backend} backend"
    return table[backend](device, dtype, options)


def resolve(op: str, backend: str, device: torch.device, dtype: torch.dtype, **options: object) -> str:
    """The backend that will run `op`; recorded for `last_backend(op)`.

    Raises ValueError for an unknown name, BackendError if the named backend (or, with "auto", every
    backend of the device) cannot run the call.
    """
    chosen = _choose(op, backend, device, dtype, options)
    _last[op] = chosen
    return chosen


def _choose(op: str, backend: str, device: torch.device, dtype: torch.dtype, options: Options) -> str:
    named = requested(backend)
    if named != "auto":
        reason = why_not(op, named, device, dtype, **options)
        if reason is not None:
            raise BackendError(f"{op}: backend {named!r} cannot run this call: {reason}")
        return named
    reasons = []
    for name in AUTO_ORDER.get(device.type, ()):
        reason = why_not(op, name, device, dtype, **options)
        if reason is None:
            if name == "triton" and not torch.compiler.is_compiling():
                _note_unproven(device)
            return name
        reasons.append(f"{name}: {reason}")
    detail = "; ".join(reasons) or f"no backend is automatic on {device.type}"
    raise BackendError(f"{op}: no backend can run on {device}: {detail}. backend='ref' runs anywhere.")


def _note_unproven(device: torch.device) -> None:
    """Say once that nobody has run the Triton kernels on this GPU type yet: there is no record of it."""
    gpu = torch.cuda.get_device_name(device)
    if gpu not in _noted:
        _noted.add(gpu)
        warnings.warn(
            f"glmv: its Triton kernels have not been run on {gpu} yet; check them here with "
            "`glmv bench --device cuda`, which shows their error beside their speed",
            RuntimeWarning,
            stacklevel=2,
        )


def requested(backend: str) -> str:
    """What was asked for: the argument, else `use_backend`, else GLMV_BACKEND, else "auto"."""
    name = backend
    if name == "auto":
        name = _forced[-1] if _forced else os.environ.get("GLMV_BACKEND") or "auto"
    if name != "auto" and name not in BACKENDS:
        raise ValueError(f"backend must be 'auto' or one of {', '.join(BACKENDS)}, got {name!r}")
    return name


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Name the backend of every op call inside the block: `with ops.use_backend("ref"): ...`"""
    _forced.append(requested(name))
    try:
        yield
    finally:
        _forced.pop()


def last_backend(op: str) -> str | None:
    """The backend of the last call of `op` in this process, None before the first."""
    if op not in _tables:
        raise ValueError(f"last_backend: op must be one of {', '.join(sorted(_tables))}, got {op!r}")
    return _last.get(op)


def backends(
    device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, dict[str, str]]:
    """Table op -> backend -> "yes" or the reason why not, for a plain call on `device` with `dtype`."""
    where = torch.device(device)
    return {
        op: {name: reason(where, dtype, {}) or "yes" for name, reason in table.items()}
        for op, table in sorted(_tables.items())
    }
