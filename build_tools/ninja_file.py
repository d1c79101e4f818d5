"""The build as ninja reads it: which source goes into which library, with which flags.

Paths are relative to the repository root and every name that a compiler makes up is seeded, so the same
sources give the same bytes: for the CPU anywhere; nvcc writes folder and time of its source into the code.
"""

import shlex
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from build_tools import cuda, toolchain

BUILD = f"build/native/{sysconfig.get_config_var('SOABI')}"  # kept between builds: ninja is incremental
MODULE = f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
LIBRARIES = ("libglmv.so", "_torch.so", MODULE)

# Loops are vectorised by `omp simd` alone: no OpenMP runtime, the caller brings the threads. Without
# contraction to fma the results are the same bits on every CPU.
FLAGS = (
    "-O3 -std=c++20 -g0 -fPIC -fvisibility=hidden -Wall -Wextra "
    "-fopenmp-simd -ffp-contract=off -fno-math-errno -fno-trapping-math"
)
NVCC_FLAGS = "-O3 -std=c++20 -lineinfo --threads 1 -Xcompiler -g0,-fPIC,-fvisibility=hidden,-Wall,-Wextra"
LINK_FLAGS = "-shared -Wl,-s -Wl,--exclude-libs,ALL -Wl,-rpath,'$$ORIGIN'"

LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")

KERNELS = ("common/isa.cpp", "cpu/rope.cpp")
# Source -> targets that it needs in place of plain ones, "90a" say: the arch list names none of them.
CUDA_KERNELS: dict[str, tuple[str, ...]] = {"cuda/scale_add.cu": ()}
BUILD_INFO = "common/build_info.cpp"
CHECKS = ("common/view.cpp", "common/rope_args.cpp")  # linked into both front ends
TORCH = ("torch/register.cpp", "torch/adapt.cpp", "torch/rope.cpp")
CUDA_TORCH = ("torch/stream.cpp", "torch/scale_add.cpp")
PYTHON = ("python.cpp",)


@dataclass(frozen=True)
class Config:
    """What is built with what."""

    cxx: list[str]
    torch: Path
    version: str  # of glmv
    cxxflags: str = ""
    ldflags: str = ""
    toolkit: cuda.Toolkit | None = None
    archs: tuple[cuda.Arch, ...] = ()
    nvcc_jobs: int = 1


def write(config: Config) -> str:
    """The text of build.ninja."""
    major, minor = toolchain.TORCH_TARGET
    torch = f"-isystem {_quote(config.torch / 'include')} -ffile-prefix-map={_quote(config.torch)}=torch"
    torch += f" -DTORCH_TARGET_VERSION=0x{major:02x}{minor:02x}000000000000"
    lib = f"-L{_quote(config.torch / 'lib')}"
    kit = config.toolkit

    lines = _rules(config)
    kernels = _compile(lines, KERNELS) + _compile(lines, (BUILD_INFO,), _defines(_build_info(config)))
    checks = _compile(lines, CHECKS)
    front = f"-L{BUILD} -lglmv"
    core = "-Wl,-soname,libglmv.so -Wl,-z,defs"
    with_torch = f"{front} {lib} -ltorch_cpu"
    if kit:
        for source, own in CUDA_KERNELS.items():
            kernels += _compile(lines, (source,), cuda.gencode(config.archs, own), rule="nvcc")
        # Static, so that no CUDA library is needed to load the file; it opens the driver on first use.
        core += f" -L{_quote(kit.lib)} -lcudart_static -lrt -ldl -lpthread"
        torch += " -DGLMV_WITH_CUDA"
        # The stream symbol is weak and in a library that libtorch.so brings: keep that one, though nothing
        # else refers to it.
        with_torch = f"{front} {lib} -Wl,--no-as-needed -ltorch -Wl,--as-needed -ltorch_cpu"
    _link(lines, "libglmv.so", kernels, core)
    objects = _compile(lines, TORCH + (CUDA_TORCH if kit else ()), torch) + checks
    # torch's own libraries need others that are not beside them at build time; ours must miss nothing else.
    _link(lines, "_torch.so", objects, f"{with_torch} -Wl,-z,defs", f"{BUILD}/libglmv.so")
    python = toolchain.python_flags()
    if python is not None:
        objects = _compile(lines, PYTHON, python) + checks
        _link(lines, MODULE, objects, front, f"{BUILD}/libglmv.so")
    return "\n".join(lines) + "\n"


def _rules(config: Config) -> list[str]:
    command, deps = shlex.join(config.cxx), ["  depfile = $out.d", "  deps = gcc"]
    lines = [
        f"builddir = {BUILD}",
        "rule cxx",
        f"  command = {command} {FLAGS} {config.cxxflags} -Icsrc $more -MD -MF $out.d -c $in -o $out",
        *deps,
        "  description = c++ $in",
        "rule link",
        f"  command = {command} {LINK_FLAGS} {config.ldflags} $in $more -o $out",
        "  description = link $out",
    ]
    kit = config.toolkit
    if kit is None:
        return lines
    host = f"-ccbin {_quote(host_compiler(config.cxx))}"
    return lines + [
        "pool nvcc",
        f"  depth = {config.nvcc_jobs}",
        "rule nvcc",
        f"  command = {_quote(kit.nvcc)} {host} {NVCC_FLAGS} $more -frandom-seed $in -Icsrc "
        "-MD -MF $out.d -c $in -o $out",
        *deps,
        "  pool = nvcc",
        "  description = nvcc $in",
    ]


def host_compiler(cxx: list[str]) -> str:
    """The compiler itself of a command like `ccache g++`: nvcc takes one program."""
    return next((word for word in cxx if Path(word).name not in LAUNCHERS), cxx[0])


def _compile(lines: list[str], sources: tuple[str, ...], more: str = "", rule: str = "cxx") -> list[str]:
    """Adds the steps; returns the objects."""
    for source in sources:
        lines.extend((f"build {BUILD}/{source}.o: {rule} csrc/{source}", f"  more = {more}"))
    return [f"{BUILD}/{source}.o" for source in sources]


def _link(lines: list[str], library: str, objects: list[str], more: str, needs: str = "") -> None:
    lines.extend((f"build {BUILD}/{library}: link {' '.join(objects)} | {needs}", f"  more = {more}"))


def _build_info(config: Config) -> dict[str, str]:
    """What the built library tells of itself. Nothing of it names this machine or this moment."""
    compiler = subprocess.check_output([*config.cxx, "--version"], text=True).splitlines()[0]
    return {
        "VERSION": config.version,
        "COMPILER": compiler,
        "FLAGS": FLAGS,
        "TORCH_VERSION": toolchain.torch_version(config.torch),
        "TORCH_TARGET": ".".join(map(str, toolchain.TORCH_TARGET)),
        "CUDA_VERSION": config.toolkit.release if config.toolkit else "",
        "CUDA_ARCHS": ";".join(map(str, config.archs)) if config.toolkit else "",
    }


def _defines(info: dict[str, str]) -> str:
    return " ".join(shlex.quote(f'-DGLMV_{key}="{value}"') for key, value in info.items())


def _quote(path: object) -> str:
    return shlex.quote(str(path))
