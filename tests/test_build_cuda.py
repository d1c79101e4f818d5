"""The build with CUDA, on a machine that needs neither a GPU nor a torch with CUDA."""

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from build_tools import cuda, toolchain
from glmv import _native
from tests.tree import ROOT, copy_to

PACKAGE = ROOT / "glmv"
ARCHS = "80+PTX;90;100;120"


def build(tree: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tree,
        env=os.environ | {"GLMV_CUDA": "1", "GLMV_CUDA_ARCHS": ARCHS} | env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(code: str, tree: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def hashes(tree: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tree.glob("glmv/*.so")}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if toolchain.compiler() is None or cuda.toolkit() is None:
        pytest.skip("needs g++ and nvcc; what a build says without them is tested in test_build_traps.py")
    tree = copy_to(tmp_path_factory.mktemp("cuda"))
    build(tree)
    return tree


@pytest.mark.full
def test_loads_without_a_driver_and_under_any_torch(tree: Path) -> None:
    """The CUDA op is there; under a torch without CUDA the stream symbol is null and a call says why."""
    code = """
import ctypes, torch
from glmv import _native, _C
print(_native.load(), hasattr(torch.ops.glmv_native, "scale_add"))
print(ctypes.CDLL(str(_native.LIBRARY)).glmv_torch_has_streams() == (torch.version.cuda is not None))
print(_C.build_info()["cuda_archs"])
maps = open("/proc/self/maps").read()
print("libcudart" in maps if torch.version.cuda is None else False)
"""
    assert run(code, tree) == ["None True", "True", ARCHS, "False"]


@pytest.mark.full
@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a CUDA device")
def test_kernel_without_a_device_returns_what_cuda_says(tree: Path) -> None:
    class Args(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in ("x", "y", "out")] + [
            ("count", ctypes.c_int64),
            ("scale", ctypes.c_float),
            ("device", ctypes.c_int32),
        ]

    launch = ctypes.CDLL(str(tree / "glmv/libglmv.so")).glmv_scale_add_cuda
    launch.restype = ctypes.c_char_p
    assert launch(ctypes.byref(Args(count=0)), None) is None
    said = launch(ctypes.byref(Args(count=5, scale=1.0)), None)
    assert re.search(rb"driver|no CUDA-capable device", said)


@pytest.mark.full
def test_binaries_are_those_asked_for(tree: Path) -> None:
    cuobjdump = pytest.importorskip("triton").__path__[0] + "/backends/nvidia/bin/cuobjdump"
    listed = subprocess.run(
        [cuobjdump, "-lelf", "-lptx", tree / "glmv/libglmv.so"], capture_output=True, text=True, check=True
    ).stdout
    found = sorted(re.findall(r"\.sm_(\d+)\.(cubin|ptx)", listed))
    wanted = [("80", "cubin"), ("80", "ptx"), ("90", "cubin"), ("100", "cubin"), ("120", "cubin")]
    assert found == sorted(wanted)


@pytest.mark.full
def test_stream_symbol_is_weak_and_its_library_is_kept(tree: Path) -> None:
    """Without libtorch.so among the needed files the symbol would stay null under a torch with CUDA too."""
    library = str(tree / "glmv/_torch.so")
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    assert re.search(r" w aoti_torch_get_current_cuda_stream$", symbols, re.MULTILINE)
    assert not re.search(r"\bcuda[A-Z]|\bcu[A-Z]", symbols)
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "[libtorch.so]" in needed
    assert not re.search(r"\[lib(cuda|cudart|torch_cuda)", needed)


@pytest.mark.full
def test_incremental_and_same_bytes(tree: Path) -> None:
    before = hashes(tree)
    assert "no work to do" in build(tree)
    (object_file,) = tree.glob("build/native/*/cuda/scale_add.cu.o")
    object_file.unlink()
    steps = re.findall(r"^\[.*\] (\S+) csrc/(\S+)", build(tree), re.MULTILINE)
    assert steps == [("nvcc", "cuda/scale_add.cu")]
    assert hashes(tree) == before


@pytest.mark.gpu
@pytest.mark.parametrize("count", [0, 1, 257, 1 << 20])
def test_scale_add_on_every_gpu_and_a_stream_of_its_own(count: int) -> None:
    """Whole numbers: the result is exact. Work queued before it on the same stream must be seen."""
    assert _native.load() is None
    assert hasattr(torch.ops.glmv_native, "scale_add"), "built without CUDA: GLMV_CUDA=1"
    for index in range(torch.cuda.device_count()):
        with torch.cuda.stream(torch.cuda.Stream(index)):
            x = torch.arange(count, device=f"cuda:{index}", dtype=torch.float32) % 1000
            torch.cuda._sleep(10_000_000)
            y = x + 1
            out = torch.ops.glmv_native.scale_add(x, y, 3.0)
            assert torch.equal(out, 4 * x + 1)


@pytest.mark.gpu
def test_scale_add_names_what_is_wrong() -> None:
    x = torch.zeros(4, device="cuda")
    for bad in (x[:3], x.double(), torch.zeros(4)):
        with pytest.raises(ValueError, match="scale_add: y must be float32, contiguous"):
            torch.ops.glmv_native.scale_add(x, bad, 1.0)
