"""The three libraries, their loader, and what the built packages hold."""

import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.torch_version import TorchVersion

from glmv import _native
from tests.numeric import ROPE_ABS, ROPE_INVERSE_ABS, ROPE_SINCOS_ABS
from tests.tree import ROOT, copy_to, files

PACKAGE = ROOT / "glmv"
built = pytest.mark.skipif(
    not _native.LIBRARY.exists(), reason=f"the extension was not built: {_native.REMEDY}"
)


def run(*command: object, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=300
    )


def python(code: str, **env: str) -> str:
    """Standard output of a fresh interpreter."""
    done = run(sys.executable, "-c", code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- libraries -----------------------------------------------------------------------------------------


def symbols(library: str, which: str) -> list[str]:
    listed = run("nm", "-D", which, PACKAGE / library).stdout.splitlines()
    return [line.split()[-1] for line in listed]


def needed(library: str) -> list[str]:
    return re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-d", PACKAGE / library).stdout)


@built
def test_torch_library_keeps_to_the_stable_abi() -> None:
    """Only C symbols of torch: a C++ one would bind the file to one torch version."""
    undefined = symbols("_torch.so", "--undefined-only")
    assert [s for s in undefined if re.search(r"_Z\w*(2at|3c10|5torch|5caffe)", s)] == []
    assert any(s.startswith("aoti_torch_") for s in undefined)


@built
def test_kernels_need_neither_torch_nor_python() -> None:
    assert [n for n in needed("libglmv.so") if re.search(r"torch|c10|python|gomp|omp", n)] == []
    assert [n for n in needed("_torch.so") if "python" in n] == []
    assert "libglmv.so" in needed("_torch.so")


@built
def test_kernels_show_their_c_functions_alone() -> None:
    shown = symbols("libglmv.so", "--defined-only")
    assert shown
    assert [s for s in shown if not s.startswith("glmv_")] == []


# ---- loader --------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The loader as in a new process."""
    monkeypatch.setattr(_native, "_done", False)
    monkeypatch.setattr(_native, "_reason", None)
    monkeypatch.delenv("GLMV_DISABLE_EXT", raising=False)
    return monkeypatch


@built
def test_loads_once_from_many_threads(fresh: pytest.MonkeyPatch) -> None:
    calls, load = [], _native._try_load
    fresh.setattr(_native, "_try_load", lambda: calls.append(1) or load())
    answers: list[str | None] = []
    threads = [threading.Thread(target=lambda: answers.append(_native.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [None] * 8
    assert len(calls) == 1
    assert _native.why_not("rope") is None
    assert _native.why_not("no_such_op") == "the extension has no no_such_op"


def test_switched_off() -> None:
    code = "from glmv import _native; print(_native.why_not('rope'))"
    assert python(code, GLMV_DISABLE_EXT="1").strip() == "the extension is switched off by GLMV_DISABLE_EXT=1"


def test_missing_file_names_the_remedy(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh.setattr(_native, "LIBRARY", tmp_path / "_torch.so")
    assert (
        _native.load()
        == "the extension was not built: install a C++ compiler (g++) and reinstall glmv from source"
    )


def test_broken_file_warns_once_and_quotes_the_loader(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "_torch.so"
    broken.write_bytes(b"not a library" * 100)
    fresh.setattr(_native, "LIBRARY", broken)
    with pytest.warns(RuntimeWarning, match="invalid ELF header") as warned:
        reasons = {_native.load(), _native.load(), _native.why_not("rope")}
    assert len(warned) == 1
    assert len(reasons) == 1
    assert "did not load under torch" in str(reasons)


@built
def test_old_torch_is_named(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(torch, "__version__", TorchVersion("2.9.1"))
    assert _native.load() == "the extension needs torch 2.10 or later, this is torch 2.9.1"


@built
def test_one_thread_pool_that_torch_sets() -> None:
    """The op runs in torch's pool: set_num_threads makes it wider, a torch op after it adds no thread."""
    code = """
import os, re, torch
from glmv import _native
assert _native.load() is None
q = torch.zeros(4096, 8, 64)
args = (q[:, :0], torch.zeros(1, 4096, dtype=torch.int64), torch.ones(32), torch.zeros(32, dtype=torch.int64))
def threads():
    torch.ops.glmv_native.rope_(q, *args, False, False)
    return len(os.listdir("/proc/self/task"))
torch.set_num_threads(1)
one = threads()
torch.set_num_threads(3)
three = threads()
q.add_(1)
after = len(os.listdir("/proc/self/task"))
maps = open("/proc/self/maps").read()
print(three - one, after - three, len(set(re.findall(r"/\\S*/lib(?:gomp|omp|iomp5)\\S*", maps))))
"""
    assert python(code, OMP_NUM_THREADS="1").split() == ["2", "0", "1"]


# ---- glmv._C -------------------------------------------------------------------------------------------


def rope_case(tokens: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((tokens, heads, 12)).astype(np.float32) for heads in (3, 1))
    return {
        "q": q,
        "k": k,
        "pos": rng.integers(0, 5000, (2, tokens)),
        "inv_freq": (100.0 ** (-np.arange(4) / 4)).astype(np.float32),
        "axis_of_lane": np.array([0, 1, 1, 0], dtype=np.int32),
        "q_out": np.full_like(q, np.nan),
        "k_out": np.full_like(k, np.nan),
    }


def rotated(x: np.ndarray, case: dict[str, np.ndarray], pairing: str) -> np.ndarray:
    """The formula in float64, from the fp32 angle."""
    angle = (case["pos"][case["axis_of_lane"]].T.astype(np.float32) * case["inv_freq"]).astype(np.float64)
    turn = np.exp(1j * angle)[:, None]
    a, b = (slice(0, 4), slice(4, 8)) if pairing == "half" else (slice(0, 8, 2), slice(1, 8, 2))
    y = x.astype(np.float64)
    z = (x[..., a] + 1j * x[..., b].astype(np.float64)) * turn
    y[..., a], y[..., b] = z.real, z.imag
    return y


@pytest.mark.parametrize("pairing", ["half", "adjacent"])
@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_c_rope_is_the_formula(pairing: str, tokens: int) -> None:
    _C = pytest.importorskip("glmv._C")
    case = rope_case(tokens)
    _C.rope(**case, pairing=pairing)
    for x, out in (("q", "q_out"), ("k", "k_out")):
        np.testing.assert_allclose(case[out], rotated(case[x], case, pairing), rtol=0, atol=ROPE_ABS)
        assert np.array_equal(case[out][..., 8:], case[x][..., 8:])


def test_c_rope_in_place_on_threads_and_back() -> None:
    _C = pytest.importorskip("glmv._C")
    case = rope_case(4000) | {"k": None, "k_out": None}  # long enough for three threads
    x = case["q"].copy()
    _C.rope(**case | {"q": x, "q_out": x}, num_threads=3)
    _C.rope(**case)
    assert np.array_equal(x, case["q_out"])
    _C.rope(**case | {"q": x, "q_out": x}, conjugate=True)
    np.testing.assert_allclose(x, case["q"], rtol=0, atol=ROPE_INVERSE_ABS)


def test_c_sine_and_cosine_at_every_position() -> None:
    """Position p turns (1, 0) to (cos p, sin p): every p up to 2**20, and some far beyond."""
    _C = pytest.importorskip("glmv._C")
    pos = np.concatenate([np.arange(2**20 + 1), 2 ** np.arange(21, 30)])[None]
    x = np.zeros((pos.size, 1, 2), dtype=np.float32)
    x[..., 0] = 1
    _C.rope(x, None, pos, np.ones(1, np.float32), np.zeros(1, np.int64), x, None)
    angle = pos[0].astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(
        x[:, 0], np.stack((np.cos(angle), np.sin(angle)), -1), rtol=0, atol=ROPE_SINCOS_ABS
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_c_results_do_not_depend_on_the_instruction_set(dtype: torch.dtype, pairing: str) -> None:
    _C = pytest.importorskip("glmv._C")
    case = {name: torch.from_numpy(x) for name, x in rope_case().items()}
    case = {name: x.to(dtype) if name in ("q", "k", "q_out", "k_out") else x for name, x in case.items()}
    outputs = []
    for isa in ("portable", "auto"):
        _C.use_isa(isa)
        _C.rope(**case, pairing=pairing)
        outputs.append((case["q_out"].clone(), case["k_out"].clone()))
    assert _C.isa() in ("portable", "avx2")
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda c: {"pos": c["pos"][:, 1:]},
            ValueError,
            r"pos must be \[A, T=7\] int32|int64 on cpu, got \[2, 6\]",
        ),
        (lambda c: {"pos": c["pos"].astype(np.float32)}, TypeError, r"pos must be .* got \[2, 7\] float32"),
        (lambda c: {"q": c["q"].astype(np.float64)}, TypeError, r"q must be .* got \[7, 3, 12\] float64"),
        (lambda c: {"q": c["q"][0]}, ValueError, r"q must be \[T, H, D\]"),
        (lambda c: {"q": [1.0]}, TypeError, "incompatible function arguments"),
        (
            lambda c: {"inv_freq": np.ones(7, np.float32)},
            ValueError,
            r"inv_freq must be \[R/2\] with R <= D=12",
        ),
        (
            lambda c: {"axis_of_lane": np.array([0, 1, 2, 0])},
            ValueError,
            "axis_of_lane must be .* = 1, got 2",
        ),
        (lambda c: {"axis_of_lane": np.array([0, -1, 1, 0])}, ValueError, "axis_of_lane must be .* got -1"),
        (lambda c: {"q": c["q"][..., ::2], "q_out": c["q_out"][..., ::2]}, ValueError, r"k must be .* D=6"),
        (
            lambda c: {"q": np.zeros((7, 3, 24), np.float32)[..., ::2]},
            ValueError,
            "stride 1 in the last dimension",
        ),
        (lambda c: {"q_out": read_only(c["q_out"])}, ValueError, "q_out must be writable"),
        (lambda c: {"q_out": c["q"][::-1]}, ValueError, "q_out must be the input itself or apart from it"),
        (lambda c: {"k_out": None}, ValueError, "k_out must be given if and only if k is"),
        (lambda c: {"pairing": "both"}, ValueError, "pairing must be 'half' or 'adjacent', got 'both'"),
        (lambda c: {"num_threads": 0}, ValueError, "num_threads must be at least 1, got 0"),
        (lambda c: {"q_out": torch.empty(7, 3, 12, device="meta")}, (BufferError, ValueError), None),
        (
            lambda c: {"q_out": torch.zeros(7, 1, 12).expand(7, 3, 12)},
            ValueError,
            "without overlap in its own memory",
        ),
    ],
)
def test_c_rope_names_what_is_wrong(change, error, message) -> None:
    _C = pytest.importorskip("glmv._C")
    case = rope_case()
    with pytest.raises(error, match=message):
        _C.rope(**case | change(case))


@built
@pytest.mark.parametrize(("axis", "message"), [(2, "got 2"), (-1, "got -1")])
def test_torch_op_checks_what_it_would_read(axis: int, message: str) -> None:
    assert _native.load() is None
    q = torch.zeros(3, 2, 8)
    axes = torch.tensor([0, axis])
    pos, inv_freq = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2)
    with pytest.raises(ValueError, match=f"axis_of_lane must be rows of pos, 0 to A - 1 = 1, {message}"):
        torch.ops.glmv_native.rope(q, q[:, :0], pos, inv_freq, axes, False, False)
    with pytest.raises(ValueError, match="without overlap in its own memory"):
        torch.ops.glmv_native.rope_(
            q[:, :1].expand(3, 2, 8), q[:, :0], pos, inv_freq, axes.clamp(0, 1), False, False
        )


# ---- packages ------------------------------------------------------------------------------------------

NO_COMPILER = {"CXX": "no-such-compiler"}
BUILD = "import sys; sys.path.insert(0, 'build_tools'); import backend; print(backend.build_{}('dist'))"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("tree"))


def package_files() -> set[str]:
    """The files under glmv/ that must be installed."""
    linked = re.compile(r"^(kernels|bench|recipes)/")
    names = {linked.sub(r"glmv/\1/", name) for name in files()}
    return {name for name in names if name.startswith("glmv/") and "/results/" not in name}


def test_sdist_and_pure_wheel_hold_each_file_once(tree: Path) -> None:
    """Also: without a compiler the package installs, and one line says what is missing and the remedy."""
    made = run(sys.executable, "-c", BUILD.format("sdist"), cwd=tree, **NO_COMPILER)
    assert made.returncode == 0, made.stderr
    (archive,) = (tree / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = [m.name.partition("/")[2] for m in tar.getmembers() if m.isfile()]
        tar.extractall(tree / "unpacked", filter="data")
    assert [name for name, n in Counter(names).items() if n > 1] == []
    assert package_files() <= set(names)
    assert {
        name for name in files() if name.startswith(("csrc/", "build_tools/", "scripts/", "tests/"))
    } <= set(names)
    assert [name for name in names if name.startswith(("kernels/", "bench/", "recipes/"))] == []

    (source,) = (tree / "unpacked").iterdir()
    made = run(sys.executable, "-c", BUILD.format("wheel"), cwd=source, **NO_COMPILER)
    assert made.returncode == 0, made.stderr
    assert len(re.findall("no C\\+\\+ compiler .*Remedy: install g\\+\\+", made.stdout)) == 1
    (wheel,) = (source / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert [name for name, n in Counter(names).items() if n > 1] == []
    assert set(names) == package_files()


def test_torch_is_a_build_requirement_where_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "build_tools")
    import backend

    monkeypatch.setenv("CXX", sys.executable)  # any command that exists
    monkeypatch.delenv("GLMV_TORCH_DIR", raising=False)
    assert backend._torch() == ["torch>=2.10"]
    monkeypatch.setenv("GLMV_TORCH_DIR", "elsewhere")
    assert backend._torch() == []
    monkeypatch.delenv("GLMV_TORCH_DIR")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert backend._torch() == []


@built
def test_code_that_does_not_compile_is_an_error(tree: Path) -> None:
    source = tree / "csrc" / "common" / "isa.cpp"
    good = source.read_text()
    source.write_text("this is no C++\n")
    done = run(sys.executable, "setup.py", "build_ext", cwd=tree, MAX_JOBS="1")
    source.write_text(good)
    assert done.returncode != 0
    assert "the extension did not compile" in done.stderr
    assert list(tree.rglob("_torch.so")) == []


@built
@pytest.mark.full
def test_compiled_wheel_runs_where_it_is_installed(tree: Path, tmp_path: Path) -> None:
    """The libraries find each other by $ORIGIN, and nothing of the source tree is needed."""
    made = run(sys.executable, "-c", BUILD.format("wheel"), cwd=tree)
    assert made.returncode == 0, made.stderr
    (wheel,) = (tree / "dist").glob("*linux*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + (
        "import torch, glmv.ops, glmv._C, glmv.kernels\nfrom pathlib import Path\n"
        "x = torch.randn(5, 2, 8)\npos = torch.arange(5)[None]\n"
        "glmv.ops.rope(x, None, pos, torch.ones(4), torch.zeros(4, dtype=torch.int64), backend='native')\n"
        "print(Path(glmv._C.__file__).parent, glmv._C.build_info()['version'])"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.stdout.split() == [str(tmp_path / "glmv"), "0.1.0"], done.stderr
