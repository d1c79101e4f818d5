"""Builds the extension: three libraries by one ninja file. Everything else is in pyproject.toml.

    glmv/libglmv.so           the kernels, C ABI; needs libstdc++ alone
    glmv/_torch.so            torch.ops.glmv_native, LibTorch stable ABI: serves torch 2.10 and later
    glmv/_C.cpython-*.so      the kernels on DLPack arrays, pybind11: the only file per Python version

CUDA kernels, where they are built, are in the same files. Without a C++ compiler the package installs without
the extension and says so; a compiler that fails is an error.
Environment: CXX, CXXFLAGS, LDFLAGS, MAX_JOBS; GLMV_TORCH_DIR = the folder of the torch package to build with;
GLMV_CUDA, GLMV_CUDA_ARCHS, GLMV_NVCC_JOBS, CUDA_HOME (build_tools/cuda.py); GLMV_LOCAL_VERSION = the part of
the version after "+", for wheels of an own index.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT))

from build_tools import cuda, ninja_file, toolchain  # noqa: E402  (the root is not on the path of a build)


class NinjaBuild(build_ext):
    """build_ext that runs ninja once and puts the libraries into the package."""

    def run(self) -> None:
        file = ROOT / ninja_file.BUILD / "build.ninja"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ninja_file.write(self._config()))
        jobs = ["-j", str(cuda.jobs("MAX_JOBS"))] if os.environ.get("MAX_JOBS") else []
        code, output = _run([toolchain.ninja(), "-f", str(file), *jobs])
        if code:
            raise SystemExit(toolchain.explain(output))
        for built, wanted in self._placed(self.inplace).items():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            # By rename: a process that has the old library mapped keeps it.
            fresh = wanted.with_name(wanted.name + ".new")
            shutil.copy2(built, fresh)
            fresh.replace(wanted)

    def _config(self) -> ninja_file.Config:
        cxx, kit = toolchain.compiler(), cuda.toolkit()
        archs = cuda.archs() if kit else []
        if kit:
            cuda.check_known(archs, kit)
        assert cxx is not None
        return ninja_file.Config(
            cxx=cxx,
            torch=toolchain.torch_dir(),
            version=self.distribution.get_version().partition("+")[0],
            cxxflags=os.environ.get("CXXFLAGS", ""),
            ldflags=os.environ.get("LDFLAGS", ""),
            toolkit=kit,
            archs=tuple(archs),
            nvcc_jobs=cuda.nvcc_jobs() if kit else 1,
        )

    def _placed(self, inplace: bool) -> dict[Path, Path]:
        """Built library -> its place in the source tree or in the build folder."""
        package = ROOT / "glmv" if inplace else Path(self.build_lib, "glmv")
        built = [ROOT / ninja_file.BUILD / name for name in ninja_file.LIBRARIES]
        return {path: package / path.name for path in built if path.exists()}

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self._placed(inplace=False).values()]

    def get_output_mapping(self) -> dict[str, str]:
        """For an editable install: file of the wheel -> file of the source tree that stands for it."""
        if not self.inplace:
            return {}
        there = self._placed(inplace=True)
        return {str(path): str(there[built]) for built, path in self._placed(inplace=False).items()}


class LocalVersion(egg_info):
    """egg_info that adds GLMV_LOCAL_VERSION: 0.1.0+cu130."""

    def finalize_options(self) -> None:
        local = os.environ.get("GLMV_LOCAL_VERSION")
        if local and not re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", local):
            toolchain.stop(f"GLMV_LOCAL_VERSION={local!r} is no part of a version", "write it like cu130")
        if local:
            self.tag_build = f"+{local}"
        super().finalize_options()


def _run(command: list[str]) -> tuple[int, str]:
    """Exit code and output, which is shown as it comes."""
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def main() -> None:
    cxx = toolchain.compiler()
    if any(not word.startswith("-") for word in sys.argv[1:]):  # a command that writes, not a question
        toolchain.check_writable(ROOT)
    if cxx is None and {"build_ext", "build", "install", "bdist_wheel", "editable_wheel"} & set(sys.argv):
        no_compiler(os.environ.get("CXX") or "c++, g++, clang++")
    extensions = [Extension("glmv._C", sources=[])] if cxx else []
    setup(ext_modules=extensions, cmdclass={"build_ext": NinjaBuild, "egg_info": LocalVersion})


def no_compiler(looked: str) -> None:
    if os.environ.get("GLMV_CUDA") == "1":
        toolchain.stop(
            f"GLMV_CUDA=1, but there is no C++ compiler (looked for {looked})", "install g++, or set CXX"
        )
    print(
        f"glmv: no C++ compiler (looked for {looked}): installing without the compiled extension; ops take "
        "their other backends. Remedy: install g++ and reinstall."
    )


main()
