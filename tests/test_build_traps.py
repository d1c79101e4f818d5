"""Whatever the build lacks, it says so in one line with the remedy."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from build_tools import cuda, ninja_file, toolchain
from tests.tree import ROOT, copy_to

VARIABLES = (
    "GLMV_CUDA",
    "GLMV_CUDA_ARCHS",
    "GLMV_NVCC_JOBS",
    "GLMV_TORCH_DIR",
    "CUDA_HOME",
    "MAX_JOBS",
    "CXX",
    "GLMV_LOCAL_VERSION",
)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of the build is set, nvcc is nowhere."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [str(ROOT)])
    return monkeypatch


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def toolkit_at(folder: Path, version: str = "13.0.88", codes: str = "sm_80 sm_90 sm_100 sm_120") -> Path:
    """A folder that looks like a CUDA toolkit."""
    script(
        folder / "bin/nvcc",
        f'case "$*" in *--version*) echo "release x, V{version}";; *--list-gpu-code*) echo "{codes}";; '
        f'*--dryrun*) echo "#$ TOP={folder}" >&2;; esac',
    )
    for name in ("include/cuda_runtime.h", "lib64/libcudart_static.a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


# ---- the whole build: exit code, one line, no traceback --------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("tree"))


def old_torch(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "include/torch/csrc/stable").mkdir(parents=True)
    (tmp_path / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
    return {"GLMV_TORCH_DIR": str(tmp_path), "GLMV_CUDA": "0", "CXX": sys.executable}


def killed_compiler(tmp_path: Path) -> dict[str, str]:
    """As the kernel does it when memory runs out."""
    cxx = script(tmp_path / "c++", 'case "$*" in *--version*) echo fake;; *) kill -9 $$;; esac')
    return {"CXX": str(cxx), "GLMV_CUDA": "0"}


def old_compiler(tmp_path: Path) -> dict[str, str]:
    says = "g++: error: unrecognized command-line option '-std=c++20'"
    return {"CXX": str(script(tmp_path / "c++", f'echo "{says}"; [ "$1" = --version ]')), "GLMV_CUDA": "0"}


CUDA_1 = {"GLMV_CUDA": "1", "CXX": sys.executable}
TRAPS: dict[str, tuple[Callable[[Path], dict[str, str]], str, str]] = {
    "no compiler": (
        lambda _: {"CXX": "no-such-compiler", "GLMV_CUDA": "1"},
        "GLMV_CUDA=1, but there is no C++ compiler (looked for no-such-compiler)",
        "install g++, or set CXX",
    ),
    "no nvcc": (
        lambda path: CUDA_1 | {"CUDA_HOME": str(path)},
        "has no bin/nvcc",
        "set it to the folder of a CUDA toolkit, or unset it",
    ),
    "nvcc too old": (
        lambda path: CUDA_1 | {"CUDA_HOME": str(toolkit_at(path, "11.8.89"))},
        "bin/nvcc is of CUDA 11.8, 12.8 or later is needed",
        "install the CUDA toolkit",
    ),
    "torch too old": (old_torch, "torch 2.10 or later is needed to build, found 2.9.1+cpu", "GLMV_TORCH_DIR"),
    "no torch": (
        lambda _: {"GLMV_TORCH_DIR": "nowhere", "CXX": sys.executable, "GLMV_CUDA": "0"},
        "torch 2.10 or later is needed to build, found none in nowhere",
        "pip install 'torch>=2.10'",
    ),
    "arch list": (
        lambda path: CUDA_1 | {"CUDA_HOME": str(toolkit_at(path)), "GLMV_CUDA_ARCHS": "12.0"},
        "GLMV_CUDA_ARCHS='12.0': '12.0' is not how it is written",
        "write 120",
    ),
    "arch that nvcc lacks": (
        lambda path: CUDA_1 | {"CUDA_HOME": str(toolkit_at(path)), "GLMV_CUDA_ARCHS": "90;130"},
        "GLMV_CUDA_ARCHS asks for 130, which nvcc 13.0.88 does not know",
        "it knows 80;90;100;120",
    ),
    "out of memory": (killed_compiler, "a compiler was killed, most likely for lack of memory", "MAX_JOBS=1"),
    "compiler too old": (old_compiler, "the C++ compiler is too old", "g++ 11 or clang 14 or later"),
    "local version": (
        lambda _: {"GLMV_LOCAL_VERSION": "+cu 130"},
        "GLMV_LOCAL_VERSION='+cu 130' is no part of a version",
        "write it like cu130",
    ),
    "jobs": (
        lambda _: {"MAX_JOBS": "many", "GLMV_CUDA": "0"},
        "MAX_JOBS must be a number of 1 or more, got 'many'",
        "MAX_JOBS=1, or unset it",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_one_line_with_the_remedy(trap: str, tree: Path, tmp_path: Path) -> None:
    make, problem, remedy = TRAPS[trap]
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES} | make(tmp_path)
    done = subprocess.run(
        [sys.executable, "setup.py", "egg_info", "build_ext"],
        cwd=tree,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert [line for line in lines if line.startswith("glmv: ")] == lines[-1:]
    said, _, cure = lines[-1].partition("Remedy: ")
    assert problem in said
    assert remedy in cure
    assert list(tree.rglob("_torch.so")) == []


def documented() -> list[str]:
    """The messages of the first two tables of docs/install.md."""
    text = (ROOT / "docs/install.md").read_text().partition("## Troubleshooting")[2]
    rows = re.findall(r"^\| (`.*?`) \|", text.partition("### From others")[0], re.MULTILINE)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


def test_documented_messages_exist() -> None:
    sources = [ROOT / "setup.py", *ROOT.glob("build_tools/*.py"), *ROOT.glob("glmv/_*.py")]
    code = "".join(path.read_text() for path in [*sources, *ROOT.glob("csrc/torch/*.cpp")])
    code = re.sub(r'"\s+f?"', "", code)  # a message of several lines is one
    assert len(documented()) > 20
    assert [message for message in documented() if message not in code] == []


# ---- parts -----------------------------------------------------------------------------------------------


def stops(call: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as stopped:
        call()
    said = str(stopped.value)
    assert said.startswith("glmv: ")
    assert "Remedy: " in said
    return said


def test_nvcc_is_nowhere(clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cuda.toolkit() is None
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "no nvcc was found" in said
    assert "building for the CPU alone. Remedy, if CUDA is wanted: install the CUDA toolkit" in said
    clean.setenv("GLMV_CUDA", "1")
    assert "GLMV_CUDA=1, but no nvcc was found" in stops(cuda.toolkit)
    clean.setenv("GLMV_CUDA", "yes")
    assert "GLMV_CUDA must be auto, 0 or 1, got 'yes'" in stops(cuda.toolkit)


def test_nvcc_too_old_is_passed_over_unless_asked_for(
    clean: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean.setenv("CUDA_HOME", str(toolkit_at(tmp_path, "12.6.20")))
    assert cuda.toolkit() is None
    assert "is of CUDA 12.6, 12.8 or later is needed: building for the CPU alone" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["CUDA_HOME", "PATH", "PyPI"])
def test_toolkit_is_found(place: str, clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where nvcc on PATH is a script that stands elsewhere than its toolkit."""
    root = toolkit_at(tmp_path / ("nvidia/cu13" if place == "PyPI" else "toolkit"))
    if place == "CUDA_HOME":
        clean.setenv("CUDA_HOME", str(root))
    elif place == "PATH":
        outside = script(tmp_path / "bin/nvcc", f'exec {root}/bin/nvcc "$@"')
        clean.setenv("PATH", f"{outside.parent}:/usr/bin:/bin")
    else:
        clean.setattr(sys, "path", ["", str(tmp_path)])
    found = cuda.toolkit()
    assert found == cuda.Toolkit(root / "bin/nvcc", (13, 0, 88), root / "lib64")
    clean.setenv("GLMV_CUDA", "0")
    assert cuda.toolkit() is None


def test_toolkit_without_headers(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (toolkit_at(tmp_path) / "include/cuda_runtime.h").unlink()
    clean.setenv("CUDA_HOME", str(tmp_path))
    clean.setenv("GLMV_CUDA", "1")
    assert "has no cuda_runtime.h" in stops(cuda.toolkit)


def test_arch_list(clean: pytest.MonkeyPatch) -> None:
    assert list(map(str, cuda.archs())) == ["80+PTX", "90", "100", "120"]
    clean.setenv("GLMV_CUDA_ARCHS", "120, 80+PTX")
    assert cuda.archs() == [cuda.Arch(80, ptx=True), cuda.Arch(120)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hopper", "'hopper' is not a compute capability"),
        ("80;;90+ptx", "Remedy: write 90+PTX"),
        ("80;sm_90", "Remedy: write 90"),
        ("8.0+PTX", "Remedy: write 80+PTX"),
        ("90a", "'90a' is a target for single files. Remedy: write 90"),
        ("100f", "Remedy: write 100: files that need such a target choose it themselves"),
        ("75", "75 is older than 80"),
        ("90;80;90", "names 90 twice"),
        (";", "'' is not a compute capability"),
    ],
)
def test_wrong_arch_list(text: str, message: str) -> None:
    assert message in stops(lambda: cuda.archs(text))


def test_gencode() -> None:
    """A file's own targets take the place of the plain ones of the list, and never add to it."""
    wanted = tuple(cuda.archs("80+PTX;90"))
    assert cuda.gencode(wanted) == (
        "-gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=sm_90"
    )
    assert cuda.gencode(wanted, ("90a", "100f")) == (
        "-gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a"
    )


def test_host_compiler_of_nvcc() -> None:
    assert ninja_file.host_compiler(["ccache", "g++-13", "-m64"]) == "g++-13"
    assert ninja_file.host_compiler(["c++"]) == "c++"


def test_nvcc_jobs_follow_cores_and_memory(clean: pytest.MonkeyPatch) -> None:
    clean.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for gib, expected in ((100, 28), (10, 2), (1, 1)):
        clean.setattr(cuda, "available_memory", lambda gib=gib: gib * cuda.GIB)
        assert cuda.nvcc_jobs() == expected
    clean.setenv("MAX_JOBS", "3")
    assert cuda.nvcc_jobs() == 3
    clean.setenv("GLMV_NVCC_JOBS", "5")
    assert cuda.nvcc_jobs() == 5
    clean.setenv("GLMV_NVCC_JOBS", "0")
    assert "GLMV_NVCC_JOBS must be a number of 1 or more, got '0'" in stops(cuda.nvcc_jobs)


@pytest.mark.parametrize(
    ("limit", "current", "limit_gib"),
    [(None, None, 20), ("memory.max", "memory.current", 3), ("memory/memory.limit_in_bytes",) * 2 + (0,)],
)
def test_memory_of_a_container(
    limit: str | None, current: str | None, limit_gib: int, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {20 * (1 << 20)} kB\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    (group / "memory.usage_in_bytes").write_text(str(cuda.GIB))
    if limit and current:
        (group.parent / current).write_text(str(cuda.GIB))
        (group.parent / limit).write_text(f"{4 * cuda.GIB if limit != current else cuda.GIB}\n")
        if limit == current:
            (group / "memory.usage_in_bytes").write_text(str(2 * cuda.GIB))
    assert cuda.available_memory(tmp_path) == limit_gib * cuda.GIB


def test_no_ninja(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "ninja", None)
    assert "ninja is missing" in stops(toolchain.ninja)


def test_tree_that_cannot_be_written() -> None:
    assert "the source tree /proc cannot be written" in stops(lambda: toolchain.check_writable(Path("/proc")))


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("g++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=1"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "GLMV_NVCC_JOBS=1"),
        ("virtual memory exhausted: Cannot allocate memory", "for lack of memory"),
        ("ld: final link failed: No space left on device", "the disk is full"),
        ("#error -- unsupported GNU version! gcc versions later than 15", "CXX=g++-13"),
        ("isa.cpp:3:1: error: expected ';'", "the message of the compiler is above"),
    ],
)
def test_failures_are_explained(output: str, meaning: str) -> None:
    assert meaning in toolchain.explain(output)
