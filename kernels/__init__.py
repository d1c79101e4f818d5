"""Triton kernels, one file per op, each with `launch(...)`. Importing this package does not import Triton."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

_HAS_TRITON = find_spec("triton") is not None


def why_not(device: torch.device) -> str | None:
    """Why Triton cannot run on `device`, or None if it can (CPU: through its interpreter, for tests)."""
    if not _HAS_TRITON:
        return "Triton is not installed (pip install 'glmv[triton]')"
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"needs a CUDA device, got {device.type}"


def launch(op: str, *args: Any) -> None:
    """Run the kernel of `op`: `launch` of its file."""
    import_module(f"{__name__}.{op}").launch(*args)
