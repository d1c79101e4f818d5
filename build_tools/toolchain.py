"""What the build needs of the machine: compiler, torch, ninja, Python's headers, a tree that can be written.

Whatever is missing ends the build with one message: what is wrong, and the remedy.
"""

import importlib.util
import os
import re
import shlex
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import NoReturn

TORCH_TARGET = (2, 10)  # the oldest torch that the extension is built with and loads under

# What a failed compile says -> what it means. The first that is found is told.
FAILURES = (
    (
        r"Killed|signal 9|code=137|std::bad_alloc|out of memory|virtual memory|Cannot allocate memory",
        "a compiler was killed, most likely for lack of memory. Remedy: MAX_JOBS=1 (for nvcc alone "
        "GLMV_NVCC_JOBS=1), or more memory",
    ),
    (
        r"No space left on device",
        "the disk is full. Remedy: make room in the source tree and in the folder that TMPDIR names",
    ),
    (
        r"unsupported GNU version|unsupported clang version",
        "this nvcc does not take this C++ compiler. Remedy: CXX=g++-13, or another that its message allows; "
        "or GLMV_CUDA=0",
    ),
    (
        r"unrecognized command[- ]line option .-std=c\+\+20|invalid value 'c\+\+20'",
        "the C++ compiler is too old. Remedy: g++ 11 or clang 14 or later, named by CXX",
    ),
)


def stop(problem: str, remedy: str) -> NoReturn:
    """End the build with one line."""
    raise SystemExit(f"glmv: {problem}. Remedy: {remedy}.")


def explain(output: str) -> str:
    """The message for a build that failed with this output."""
    meaning = next((text for pattern, text in FAILURES if re.search(pattern, output)), None)
    return f"glmv: the extension did not compile: {meaning or 'the message of the compiler is above'}."


def compiler() -> list[str] | None:
    """The C++ compiler command: CXX, else the first on PATH; None if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    candidates = [named] if named else [["c++"], ["g++"], ["clang++"]]
    return next((command for command in candidates if shutil.which(command[0])), None)


def torch_version(folder: Path) -> str:
    """The version of the torch package in `folder`, "unknown" if it does not say."""
    file = folder / "version.py"
    text = file.read_text() if file.is_file() else ""
    found = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    return found[1] if found else "unknown"


def torch_dir() -> Path:
    """The torch package to build with, found without importing it."""
    named = os.environ.get("GLMV_TORCH_DIR")
    spec = None if named else importlib.util.find_spec("torch")
    folders = [named] if named else list(spec.submodule_search_locations or ()) if spec else []
    found = "found none"
    for folder in map(Path, folders):
        version = torch_version(folder)
        found = f"found {'none' if version == 'unknown' else version} in {folder}"
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if numbers >= TORCH_TARGET and (folder / "include/torch/csrc/stable").is_dir():
            return folder
    oldest = ".".join(map(str, TORCH_TARGET))
    stop(
        f"torch {oldest} or later is needed to build, {found}",
        f"pip install 'torch>={oldest}', or set GLMV_TORCH_DIR to the folder of such a torch package",
    )


def ninja() -> str:
    """The ninja program: of the package, else on PATH."""
    spec = importlib.util.find_spec("ninja")
    if spec is not None:
        import ninja

        packaged = Path(ninja.BIN_DIR, "ninja")
        if packaged.exists():
            return str(packaged)
    return shutil.which("ninja") or stop(
        "ninja is missing", "pip install ninja, or build without --no-build-isolation"
    )


def python_flags() -> str | None:
    """Include flags of glmv._C, None if Python's headers are not installed: then that library is left out."""
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        print(
            "glmv: Python.h is missing: glmv._C (kernels on NumPy and DLPack arrays) is not built; the "
            "PyTorch ops do not need it. Remedy: install python3-dev and reinstall."
        )
        return None
    if importlib.util.find_spec("pybind11") is None:
        stop("pybind11 is missing", "pip install pybind11, or build without --no-build-isolation")
    import pybind11

    return f"-isystem {shlex.quote(str(include))} -isystem {shlex.quote(pybind11.get_include())}"


def check_writable(folder: Path) -> None:
    """Objects are kept in the source tree, so that a second build is incremental."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        stop(
            f"the source tree {folder} cannot be written ({error.strerror})",
            "copy it to a folder of your own and build there",
        )
