"""Argument checks whose messages name the argument, what was expected and what came.

rope: pos must be [A, T=8192] int32|int64 on cuda:0, got [3, 8191] int64 on cuda:0
"""

from collections.abc import Sequence

import torch
from torch import Tensor

INDEX = (torch.int32, torch.int64)
FLOAT = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# A dimension of an expected shape: a size, or a name with an optional required size ("T", "T=8192").
Dim = int | str


def describe(value: object) -> str:
    """`[3, 8191] int64 on cuda:0` for a tensor, `3 (int)` for anything else."""
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
    return f"{value!r} ({type(value).__name__})"


def tensor(
    op: str,
    name: str,
    value: object,
    shape: Sequence[Dim],
    dtypes: Sequence[torch.dtype],
    device: torch.device | None = None,
) -> None:
    """Raise unless `value` is a tensor of that shape, one of those dtypes and that device.

    A dimension is an int or `"T=8192"` (must be that size), or `"T"` (any size; the name is for the message).
    Raises TypeError for a non-tensor, a wrong dtype or device, ValueError for a wrong shape.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor, got {describe(value)}")
    sizes = [_size(d) for d in shape]
    right_shape = value.dim() == len(sizes) and all(
        want is None or want == got for want, got in zip(sizes, value.shape, strict=True)
    )
    right_type = value.dtype in dtypes and (device is None or value.device == device)
    if right_shape and right_type:
        return
    dims = ", ".join(str(d) for d in shape)
    kinds = "|".join(str(d).removeprefix("torch.") for d in dtypes)
    where = "" if device is None else f" on {device}"
    message = f"{op}: {name} must be [{dims}] {kinds}{where}, got {describe(value)}"
    raise (TypeError if right_shape else ValueError)(message)


def that(op: str, name: str, ok: bool, expected: str, got: object) -> None:
    """Raise ValueError `op: name must be <expected>, got <got>` unless `ok`."""
    if not ok:
        raise ValueError(f"{op}: {name} must be {expected}, got {describe(got)}")


def choice(op: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of the allowed strings."""
    if value not in allowed:
        raise ValueError(f"{op}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def cu_seqlens(op: str, name: str, value: object, total: int, device: torch.device) -> None:
    """Raise unless `value` is [S+1] int32 segment bounds on `device`.

    On the CPU the values are checked too (start at 0, never fall, end at most at `total`); on CUDA that
    would cost a host sync, so there the kernels treat rows beyond the last bound as padding.
    """
    tensor(op, name, value, ("S+1",), (torch.int32,), device)
    assert isinstance(value, Tensor)
    that(op, name, value.numel() >= 1, "[S+1] with at least one bound", value)
    if value.device.type != "cpu":
        return
    bounds = value.tolist()
    that(op, name, bounds[0] == 0, "bounds that start at 0", bounds[0])
    falls = [i for i in range(len(bounds) - 1) if bounds[i] > bounds[i + 1]]
    that(op, name, not falls, "bounds that never fall", bounds[falls[0] : falls[0] + 2] if falls else None)
    that(op, name, bounds[-1] <= total, f"bounds that end at most at {total}", bounds[-1])


def _size(dim: Dim) -> int | None:
    if isinstance(dim, int):
        return dim
    _, eq, size = dim.partition("=")
    return int(size) if eq else None
