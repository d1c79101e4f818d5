"""CPU kernels on any array with `__dlpack__` (NumPy, JAX, ...), without PyTorch. Built from python.cpp."""

from typing import Any, Protocol, TypedDict

class Array(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

class BuildInfo(TypedDict):
    version: str
    compiler: str
    flags: str
    torch_built_with: str
    torch_target: str
    cuda: str
    cuda_archs: str

def rope(
    q: Array,  # [T, H, D] float32 | bfloat16 | float16, stride 1 in D
    k: Array | None,  # [T, Hk, D] like q
    pos: Array,  # [A, T] int32 | int64
    inv_freq: Array,  # [R/2] float32, R <= D
    axis_of_lane: Array,  # [R/2] int32 | int64, rows of pos
    q_out: Array,  # [T, H, D] like q: q itself (in place), or apart from it in memory
    k_out: Array | None,  # [T, Hk, D] like k; None if and only if k is
    *,
    pairing: str = "half",  # "half" | "adjacent"
    conjugate: bool = False,  # turn by minus the angle: the inverse
    num_threads: int = 1,
) -> None:
    """`glmv.ops.rope` into given outputs. Raises ValueError or TypeError for arguments that do not fit."""

def build_info() -> BuildInfo:
    """What this build is: version, compiler, flags, torch of its headers, oldest torch it serves.

    `cuda` is the version of nvcc and `cuda_archs` its targets ("80+PTX;90;100;120"), both "" without CUDA.
    """

def isa() -> str:
    """The instruction set that the kernels use here: "avx2" or "portable"."""

def use_isa(name: str) -> None:
    """Choose it for the process: "auto", "avx2" or "portable"; results do not depend on it, bit for bit.

    Raises ValueError if this CPU or build does not have it.
    """
