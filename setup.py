"""Builds the extension: three libraries by one ninja file. Everything else is in pyproject.toml.

    glmv/libglmv.so           the kernels, C ABI; needs libstdc++ alone
    glmv/_torch.so            torch.ops.glmv_native, LibTorch stable ABI: serves torch 2.10 and later
    glmv/_C.cpython-*.so      the kernels on DLPack arrays, pybind11: the only file per Python version

Without a C++ compiler the package installs without them and says so; a compiler that fails is an error.
Environment: CXX, CXXFLAGS, LDFLAGS, MAX_JOBS; GLMV_TORCH_DIR = the folder of the torch package to build with.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
BUILD = f"build/native/{sysconfig.get_config_var('SOABI')}"  # kept between builds: ninja is incremental
TORCH_TARGET = "2.10"  # the oldest torch that the extension loads under
MODULE = f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"

# Loops are vectorised by `omp simd` alone: no OpenMP runtime, the caller brings the threads. Without
# contraction to fma the results are the same bits on every CPU.
FLAGS = (
    "-O3 -std=c++20 -g0 -fPIC -fvisibility=hidden -Wall -Wextra "
    "-fopenmp-simd -ffp-contract=off -fno-math-errno -fno-trapping-math"
)
LINK_FLAGS = "-shared -Wl,-s -Wl,--exclude-libs,ALL -Wl,-rpath,'$$ORIGIN'"

KERNELS = ("common/isa.cpp", "cpu/rope.cpp")
CHECKS = ("common/view.cpp", "common/rope_args.cpp")  # linked into both front ends
TORCH = ("torch/register.cpp", "torch/adapt.cpp", "torch/rope.cpp")
PYTHON = ("python.cpp",)


def compiler() -> list[str] | None:
    """The C++ compiler command: CXX, else the first on PATH; None if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    candidates = [named] if named else [["c++"], ["g++"], ["clang++"]]
    return next((command for command in candidates if shutil.which(command[0])), None)


def torch_dir() -> Path:
    """The torch package to build with, found without importing it."""
    named = os.environ.get("GLMV_TORCH_DIR")
    spec = None if named else importlib.util.find_spec("torch")
    folders = [named] if named else list(spec.submodule_search_locations or ()) if spec else []
    for folder in map(Path, folders):
        if (folder / "include" / "torch" / "csrc" / "stable").is_dir():
            return folder
    found = f"found {folders[0]}" if folders else "found none"
    sys.exit(
        f"glmv: torch {TORCH_TARGET} or later is needed to build, {found}. Remedy: pip install "
        f"'torch>={TORCH_TARGET}', or set GLMV_TORCH_DIR to the folder of the torch package."
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
    import pybind11

    return f"-isystem {shlex.quote(str(include))} -isystem {shlex.quote(pybind11.get_include())}"


def build_info(cxx: list[str], torch: Path, version: str) -> str:
    """The defines that glmv._C.build_info() reports."""
    torch_version = re.search(r"^__version__ = '([^']+)'", (torch / "version.py").read_text(), re.MULTILINE)
    info = {
        "VERSION": version,
        "COMPILER": subprocess.check_output([*cxx, "--version"], text=True).splitlines()[0],
        "FLAGS": FLAGS,
        "TORCH_VERSION": torch_version[1] if torch_version else "unknown",
        "TORCH_TARGET": TORCH_TARGET,
    }
    return " ".join(shlex.quote(f'-DGLMV_{key}="{value}"') for key, value in info.items())


def ninja_file(cxx: list[str], torch: Path, version: str) -> str:
    """The build as ninja reads it, with paths relative to the repository root."""
    command = shlex.join(cxx)
    lines = [
        f"builddir = {BUILD}",
        "rule cxx",
        f"  command = {command} {FLAGS} {os.environ.get('CXXFLAGS', '')} -Icsrc $more "
        "-MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = c++ $in",
        "rule link",
        f"  command = {command} {LINK_FLAGS} {os.environ.get('LDFLAGS', '')} $in $more -o $out",
        "  description = link $out",
    ]

    def compile_all(sources: tuple[str, ...], more: str) -> list[str]:
        for source in sources:
            lines.extend((f"build {BUILD}/{source}.o: cxx csrc/{source}", f"  more = {more}"))
        return [f"{BUILD}/{source}.o" for source in sources]

    def link(library: str, objects: list[str], more: str, needs: str = "") -> None:
        lines.extend((f"build {BUILD}/{library}: link {' '.join(objects)} | {needs}", f"  more = {more}"))

    major, minor = map(int, TORCH_TARGET.split("."))
    include, lib = (shlex.quote(str(torch / folder)) for folder in ("include", "lib"))
    torch_flags = f"-isystem {include} -DTORCH_TARGET_VERSION=0x{major:02x}{minor:02x}000000000000"
    kernels, checks = compile_all(KERNELS, ""), compile_all(CHECKS, "")
    front, core = f"-L{BUILD} -lglmv", f"{BUILD}/libglmv.so"
    link("libglmv.so", kernels, "-Wl,-soname,libglmv.so -Wl,-z,defs")
    objects = compile_all(TORCH, torch_flags) + checks
    link("_torch.so", objects, f"{front} -L{lib} -ltorch_cpu -Wl,-z,defs", core)
    flags = python_flags()
    if flags is not None:
        objects = compile_all(PYTHON, f"{flags} {build_info(cxx, torch, version)}") + checks
        link(MODULE, objects, front, core)
    return "\n".join(lines) + "\n"


class NinjaBuild(build_ext):
    """build_ext that runs ninja once and puts the libraries into the package."""

    def run(self) -> None:
        import ninja

        cxx = compiler()
        assert cxx is not None
        file = ROOT / BUILD / "build.ninja"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ninja_file(cxx, torch_dir(), self.distribution.get_version()))
        jobs = ["-j", os.environ["MAX_JOBS"]] if os.environ.get("MAX_JOBS") else []
        command = [str(Path(ninja.BIN_DIR, "ninja")), "-f", str(file), *jobs]
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit("glmv: the extension did not compile; the compiler's message is above")
        for built, wanted in self._placed(self.inplace).items():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            # By rename: a process that has the old library mapped keeps it.
            fresh = wanted.with_name(wanted.name + ".new")
            shutil.copy2(built, fresh)
            fresh.replace(wanted)

    def _placed(self, inplace: bool) -> dict[Path, Path]:
        """Built library -> its place in the source tree or in the build folder."""
        package = ROOT / "glmv" if inplace else Path(self.build_lib, "glmv")
        built = [ROOT / BUILD / name for name in ("libglmv.so", "_torch.so", MODULE)]
        return {path: package / path.name for path in built if path.exists()}

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self._placed(inplace=False).values()]

    def get_output_mapping(self) -> dict[str, str]:
        """For an editable install: file of the wheel -> file of the source tree that stands for it."""
        if not self.inplace:
            return {}
        there = self._placed(inplace=True)
        return {str(path): str(there[built]) for built, path in self._placed(inplace=False).items()}


def main() -> None:
    cxx = compiler()
    if cxx is None and {"build_ext", "build", "install", "bdist_wheel", "editable_wheel"} & set(sys.argv):
        print(
            f"glmv: no C++ compiler (looked for {os.environ.get('CXX') or 'c++, g++, clang++'}): installing "
            "without the compiled extension; ops take their other backends. "
            "Remedy: install g++ and reinstall."
        )
    extensions = [Extension("glmv._C", sources=[])] if cxx else []
    setup(ext_modules=extensions, cmdclass={"build_ext": NinjaBuild})


main()
