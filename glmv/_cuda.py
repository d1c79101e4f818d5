"""What `glmv env` finds out about CUDA: the driver, which code of the build a GPU would run, a self-test.

Works without torch, but for the self-test.
"""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

# What a failing driver, build or kernel raises; AssertionError is what torch.cuda says without CUDA.
FAILURES = (RuntimeError, OSError, AssertionError)


def output(*command: str) -> str:
    """Standard output of a command, empty if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def gpus() -> list[str]:
    """`name, compute capability, driver, memory` of each GPU, as the driver tells; needs no CUDA torch."""
    query = "--query-gpu=name,compute_cap,driver_version,memory.total"
    return output("nvidia-smi", query, "--format=csv,noheader").splitlines()


def capability(gpu: str) -> tuple[int, int] | None:
    """(9, 0) of a line of `gpus()`."""
    found = re.search(r",\s*(\d+)\.(\d+)\s*,", gpu)
    return (int(found[1]), int(found[2])) if found else None


def driver() -> dict[str, str]:
    """Version of the driver, and the latest CUDA it runs; "none" where there is none."""
    version = Path("/proc/driver/nvidia/version")
    found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", version.read_text()) if version.exists() else None
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"version": found[0] if found else "none", "cuda": "none: no libcuda.so.1"}
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return {"version": found[0] if found else "unknown", "cuda": "none: the driver does not answer"}
    cuda = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return {"version": found[0] if found else "unknown", "cuda": cuda}


def code_for(archs: str, gpu: tuple[int, int]) -> str | None:
    """What a GPU of this compute capability runs of a build for `archs` ("80+PTX;90"), None if nothing.

    A binary serves its own major version from its minor version on; PTX serves every later GPU: the driver
    compiles it on first use.
    """
    entries = [entry for entry in archs.split(";") if entry]
    numbers = {divmod(int(entry.removesuffix("+PTX")), 10): entry.endswith("+PTX") for entry in entries}
    binaries = [n for n in numbers if n[0] == gpu[0] and n[1] <= gpu[1]]
    if binaries:
        return "binary for {}.{}".format(*max(binaries))
    ptx = [n for n, kept in numbers.items() if kept and n <= gpu]
    return "PTX for {}.{}, compiled on first use".format(*max(ptx)) if ptx else None


def hints(gpus: list[str], driver_cuda: str, built_cuda: str, archs: str) -> list[str]:
    """What to do where GPUs, driver and build do not fit. Versions as "13.0", or "none..."."""
    found = []
    if gpus and built_cuda == "none":
        found.append(
            "a GPU is here, but the extension was built without CUDA: GPU ops take Triton. Install a +cuXYZ "
            "wheel, or reinstall from source with GLMV_CUDA=1"
        )
    major, driver_major = (re.match(r"\d+", text) for text in (built_cuda, driver_cuda))
    if major and driver_major and int(major[0]) > int(driver_major[0]):
        found.append(
            f"the extension was built with CUDA {built_cuda}, this driver runs up to {driver_cuda}: update "
            f"it, or reinstall from source with a toolkit of CUDA {driver_major[0]}"
        )
    for gpu in gpus:
        cc = capability(gpu)
        if major and cc and code_for(archs, cc) is None:
            found.append(
                f"{gpu.partition(',')[0]} has compute capability {cc[0]}.{cc[1]}, the extension has code for "
                f"{archs}: reinstall from source with GLMV_CUDA_ARCHS='{archs};{cc[0]}{cc[1]}'"
            )
    return found


def self_test() -> dict[str, str]:
    """Run the scale-add kernel on every visible GPU: device -> "ok", or what went wrong."""
    import torch

    if not torch.cuda.is_available():
        return {"not run": "torch sees no CUDA device"}
    if not hasattr(torch.ops.glmv_native, "scale_add"):
        return {"not run": "the extension was built without CUDA, or did not load"}
    return {f"cuda:{index}": _scale_add(index) for index in range(torch.cuda.device_count())}


def _scale_add(index: int) -> str:
    """On a stream of its own, after work on that stream; with whole numbers the result is exact."""
    import torch

    try:
        stream = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
        with torch.cuda.device(index), torch.cuda.stream(stream):
            x = torch.arange(100_003, device=f"cuda:{index}", dtype=torch.float32)
            out = torch.ops.glmv_native.scale_add(x, x + 1, 3.0)
            wrong = int((out != 4 * x + 1).sum())
    except FAILURES as error:
        return f"failed: {str(error).splitlines()[0]}"
    return f"failed: {wrong} of {x.numel()} results are wrong" if wrong else "ok"
