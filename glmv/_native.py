"""Loads the compiled PyTorch extension, once, when an op first asks for it.

The library uses LibTorch's stable ABI, so one file serves every torch from 2.10 on. If it is not there, the
reason is kept as a sentence for error messages and `glmv env`.
"""

import os
import threading
import warnings
from pathlib import Path

import torch

OLDEST_TORCH = "2.10"
LIBRARY = Path(__file__).with_name("_torch.so")
REMEDY = "install a C++ compiler (g++) and reinstall glmv from source"

_lock = threading.Lock()
_done = False
_reason: str | None = None


def load() -> str | None:
    """Load `torch.ops.glmv_native`; None if it is there, else the reason why not.

    The first call decides for the process. Warns once if the library exists but does not load.
    """
    global _done, _reason
    with _lock:
        if not _done:
            _reason = _try_load()
            _done = True
    return _reason


def why_not(op: str) -> str | None:
    """The reason why `torch.ops.glmv_native.<op>` is not there, or None if it is."""
    reason = load()
    if reason is None and not hasattr(torch.ops.glmv_native, op):
        return f"the extension has no {op}"
    return reason


def _try_load() -> str | None:
    if os.environ.get("GLMV_DISABLE_EXT") == "1":
        return "the extension is switched off by GLMV_DISABLE_EXT=1"
    if not LIBRARY.exists():
        return f"the extension was not built: {REMEDY}"
    if torch.__version__ < OLDEST_TORCH:  # a TorchVersion: compares as a version, not as text
        return f"the extension needs torch {OLDEST_TORCH} or later, this is torch {torch.__version__}"
    try:
        torch.ops.load_library(LIBRARY)  # type: ignore[no-untyped-call]
    except OSError as error:
        said = error.__cause__ or error  # torch wraps what the loader said
        reason = f"the extension did not load under torch {torch.__version__}: {said}"
        warnings.warn(f"glmv: {reason}; ops take their other backends", RuntimeWarning, stacklevel=2)
        return reason
    return None


# torch.compile takes the answer as a constant instead of tracing the loader. This is what
# torch.compiler.assume_constant_result sets; called here it would import the compiler, most of a second.
load._dynamo_marked_constant = True  # type: ignore[attr-defined]
why_not._dynamo_marked_constant = True  # type: ignore[attr-defined]
