"""The CUDA half of the build: which toolkit, which GPUs, how many compilers at a time. Needs no GPU.

GLMV_CUDA        auto (with CUDA if there is an nvcc that will do), 1 (an error if not), 0 (CPU alone)
GLMV_CUDA_ARCHS  compute capabilities without the dot, "+PTX" adds code that later GPUs compile
CUDA_HOME        the toolkit, else nvcc on PATH, else PyPI's nvidia packages
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from build_tools.toolchain import stop

# One binary for each generation, and PTX of the oldest: a GPU with no binary here compiles that.
DEFAULT_ARCHS = "80+PTX;90;100;120"
OLDEST_NVCC = (12, 8)  # the first that knows compute capability 10.0 and 12.0
GIB = 1 << 30
NVCC_GIB = 2.5  # one nvcc at work on a large kernel file
PYPI = "pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' "
PYPI += "'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*'"
GET_NVCC = f"install the CUDA toolkit, set CUDA_HOME, or: {PYPI}"


@dataclass(frozen=True)
class Toolkit:
    """An nvcc that was found, and where its libraries are."""

    nvcc: Path
    version: tuple[int, int, int]
    lib: Path  # with libcudart_static.a

    @property
    def release(self) -> str:
        return ".".join(map(str, self.version))


@dataclass(frozen=True)
class Arch:
    """A compute capability, and whether its PTX is kept beside its binary."""

    number: int
    ptx: bool = False

    def __str__(self) -> str:
        return f"{self.number}+PTX" if self.ptx else str(self.number)


def toolkit() -> Toolkit | None:
    """The toolkit to build with, as GLMV_CUDA asks; None for a build without CUDA."""
    asked = os.environ.get("GLMV_CUDA") or "auto"
    if asked not in ("auto", "0", "1"):
        stop(f"GLMV_CUDA must be auto, 0 or 1, got {asked!r}", "GLMV_CUDA=auto, or unset it")
    if asked == "0":
        return None
    found = _find()
    if isinstance(found, Toolkit):
        return found
    problem, remedy = found
    if asked == "1":
        stop(f"GLMV_CUDA=1, but {problem}", remedy)
    print(f"glmv: {problem}: building for the CPU alone. Remedy, if CUDA is wanted: {remedy}.")
    return None


def _find() -> Toolkit | tuple[str, str]:
    """A toolkit that will do, or (problem, remedy) of the last one that will not."""
    problem = ("no nvcc was found (looked at CUDA_HOME, PATH, PyPI's nvidia packages)", GET_NVCC)
    home = os.environ.get("CUDA_HOME")
    if home and not Path(home, "bin/nvcc").is_file():
        return f"CUDA_HOME={home} has no bin/nvcc", "set it to the folder of a CUDA toolkit, or unset it"
    on_path = shutil.which("nvcc")
    candidates = [Path(home, "bin/nvcc")] if home else []
    if not home:
        candidates += [Path(on_path)] if on_path else []
        candidates += [Path(entry, "nvidia/cu13/bin/nvcc") for entry in sys.path if entry]
    for nvcc in candidates:
        if nvcc.is_file():
            found = _inspect(nvcc)
            if isinstance(found, Toolkit):
                return found
            problem = found
    return problem


def _inspect(nvcc: Path) -> Toolkit | tuple[str, str]:
    """What nvcc says of itself. On PATH it may be a script: the folder of its toolkit is the one it names."""
    version = re.search(r"V(\d+)\.(\d+)\.(\d+)", _output(nvcc, "--version"))
    if version is None:
        return f"{nvcc} does not tell its version", GET_NVCC
    numbers = (int(version[1]), int(version[2]), int(version[3]))
    if numbers < OLDEST_NVCC:
        wanted = ".".join(map(str, OLDEST_NVCC))
        return f"{nvcc} is of CUDA {version[1]}.{version[2]}, {wanted} or later is needed", GET_NVCC
    top = re.search(r"^#\$ TOP=(.+)$", _output(nvcc, "--dryrun", "-E", "-x", "cu", os.devnull), re.MULTILINE)
    root = Path(top[1].strip()).resolve() if top else nvcc.resolve().parent.parent
    tops = [root, *sorted(root.glob("targets/*-linux"))]
    libs = [top / name for top in tops for name in ("lib64", "lib")]
    lib = next((folder for folder in libs if (folder / "libcudart_static.a").is_file()), None)
    if lib is None or not any((top / "include/cuda_runtime.h").is_file() for top in tops):
        return (
            f"the toolkit of {nvcc} in {root} has no cuda_runtime.h or no libcudart_static.a",
            "install its runtime development files (nvidia-cuda-runtime on PyPI)",
        )
    own = root / "bin/nvcc"
    return Toolkit(own if own.is_file() else nvcc, numbers, lib)


def _output(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def archs(text: str | None = None) -> list[Arch]:
    """The list in GLMV_CUDA_ARCHS (or `text`); ends the build if it is not one."""
    asked = (os.environ.get("GLMV_CUDA_ARCHS") if text is None else text) or DEFAULT_ARCHS
    parsed = [_arch(entry.strip(), asked) for entry in re.split(r"[;, ]+", asked.strip())]
    twice = {arch.number for arch in parsed if [a.number for a in parsed].count(arch.number) > 1}
    if twice:
        stop(f"GLMV_CUDA_ARCHS={asked!r} names {twice.pop()} twice", "name each once, as 80+PTX;90")
    return sorted(parsed, key=lambda arch: arch.number)


def _arch(entry: str, asked: str) -> Arch:
    remedy = f"compute capabilities without the dot, for example GLMV_CUDA_ARCHS='{DEFAULT_ARCHS}'"
    found = re.fullmatch(r"(?:sm_|compute_)?(\d+)\.?(\d?)([af]?)(\+PTX)?", entry, re.IGNORECASE)
    if found is None:
        stop(f"GLMV_CUDA_ARCHS={asked!r}: {entry!r} is not a compute capability", remedy)
    number, ptx = int(found[1] + found[2]), bool(found[4])
    if found[3]:
        remedy = f"write {Arch(number, ptx)}: files that need such a target choose it themselves"
        stop(f"GLMV_CUDA_ARCHS={asked!r}: {entry!r} is a target for single files", remedy)
    if entry != str(Arch(number, ptx)):
        stop(f"GLMV_CUDA_ARCHS={asked!r}: {entry!r} is not how it is written", f"write {Arch(number, ptx)}")
    if number < 80:
        stop(f"GLMV_CUDA_ARCHS={asked!r}: {number} is older than 80, the oldest that is supported", remedy)
    return Arch(number, ptx)


def check_known(wanted: list[Arch], kit: Toolkit) -> None:
    """Ends the build if this nvcc does not know one of them."""
    known = {int(number) for number in re.findall(r"sm_(\d+)\b", _output(kit.nvcc, "--list-gpu-code"))}
    unknown = [str(arch.number) for arch in wanted if arch.number not in known]
    if unknown:
        stop(
            f"GLMV_CUDA_ARCHS asks for {';'.join(unknown)}, which nvcc {kit.release} does not know",
            f"leave it out, or take a later toolkit; it knows {';'.join(map(str, sorted(known)))}",
        )


def gencode(wanted: tuple[Arch, ...], own: tuple[str, ...] = ()) -> str:
    """nvcc's flags for these. `own`: targets of one file ("90a", "100f"), each in place of its plain one.

    So a file that uses what only one GPU or family has still holds code for the others.
    """
    suffix = {int(target[:-1]): target[-1] for target in own}
    flags = []
    for arch in wanted:
        name = f"{arch.number}{suffix.get(arch.number, '')}"
        code = f"[sm_{name},compute_{name}]" if arch.ptx else f"sm_{name}"
        flags.append(f"-gencode arch=compute_{name},code={code}")
    return " ".join(flags)


def nvcc_jobs() -> int:
    """How many nvcc run at a time: GLMV_NVCC_JOBS, else as many as cores and memory allow."""
    for name in ("GLMV_NVCC_JOBS", "MAX_JOBS"):
        if os.environ.get(name):
            return jobs(name)
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, int(0.7 * available_memory() / (NVCC_GIB * GIB))))


def jobs(variable: str) -> int:
    """The number in MAX_JOBS or GLMV_NVCC_JOBS."""
    text = os.environ[variable]
    if not text.isdigit() or int(text) < 1:
        stop(f"{variable} must be a number of 1 or more, got {text!r}", f"{variable}=1, or unset it")
    return int(text)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that a build may use: what the machine has free, or what the container still allows."""
    meminfo = (root / "proc/meminfo").read_text()
    found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo)
    free = int(found[1]) * 1024 if found else 4 * GIB
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        if (root / limit).is_file() and (text := (root / limit).read_text().strip()).isdigit():
            free = min(free, int(text) - int((root / used).read_text()))
    return max(free, 0)
