"""What `glmv env` makes of drivers, GPUs and builds with CUDA, also those that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from build_tools import toolchain
from glmv import _cuda, _native, env
from tests.tree import ROOT

H200, B300 = "NVIDIA H200, 9.0, 580.65.06, 143771 MiB", "NVIDIA B300, 10.3, 580.65.06, 275040 MiB"


@pytest.mark.parametrize(
    ("archs", "gpu", "code"),
    [
        ("80+PTX;90;100;120", (8, 0), "binary for 8.0"),
        ("80+PTX;90;100;120", (8, 9), "binary for 8.0"),
        ("80+PTX;90;100;120", (9, 0), "binary for 9.0"),
        ("80+PTX;90;100;120", (10, 3), "binary for 10.0"),
        ("80+PTX;90;100;120", (11, 0), "PTX for 8.0, compiled on first use"),
        ("80+PTX;90;100;120", (7, 5), None),
        ("90;120", (10, 0), None),  # a binary does not serve another major version
        ("86", (8, 0), None),  # nor an earlier minor one
        ("80+PTX;90+PTX", (12, 0), "PTX for 9.0, compiled on first use"),
        ("", (9, 0), None),
    ],
)
def test_code_for(archs: str, gpu: tuple[int, int], code: str | None) -> None:
    assert _cuda.code_for(archs, gpu) == code


def test_capability() -> None:
    assert [_cuda.capability(gpu) for gpu in (H200, B300, "NVIDIA X, [N/A]")] == [(9, 0), (10, 3), None]


@pytest.mark.parametrize(
    ("driver", "built", "archs", "hint"),
    [
        ("13.0", "none", "none", "built without CUDA: GPU ops take Triton"),
        ("12.4", "13.0.88", "90", "built with CUDA 13.0.88, this driver runs up to 12.4: update it"),
        ("13.0", "13.0.88", "80;100", "GLMV_CUDA_ARCHS='80;100;90'"),
        ("13.0", "13.0.88", "90", None),
        ("13.2", "12.9.41", "80+PTX", None),
        ("none: no libcuda.so.1", "13.0.88", "90", None),
    ],
)
def test_hints(driver: str, built: str, archs: str, hint: str | None) -> None:
    found = _cuda.hints([H200], driver, built, archs)
    assert len(found) == (hint is not None)
    assert hint is None or hint in found[0]
    assert _cuda.hints([], driver, "none", "none") == []


def test_a_machine_with_a_gpu(tmp_path: Path) -> None:
    """A driver library and an nvidia-smi that answer; torch is the one that is here."""
    if toolchain.compiler() is None:
        pytest.skip("the driver library of this test needs a C++ compiler")
    code = 'extern "C" int cuDriverGetVersion(int* v) { *v = 12040; return 0; }'
    command = [*(toolchain.compiler() or []), "-shared", "-fPIC", "-x", "c++", "-"]
    subprocess.run([*command, "-o", str(tmp_path / "libcuda.so.1")], input=code, text=True, check=True)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho '{H200}'\n")
    smi.chmod(0o755)
    there = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "glmv.env", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | there, capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert said["driver"]["cuda"] == "12.4"
    assert said["gpus"] == [H200]
    built = said["extension"].get("cuda_version", "none")
    expected = "this driver runs up to 12.4" if built != "none" else "built without CUDA"
    assert any(expected in hint for hint in said["hints"])


def test_self_test_says_why_it_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _cuda.self_test() == {"not run": "torch sees no CUDA device"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    said = _cuda.self_test()
    if _native.load() is None and hasattr(torch.ops.glmv_native, "scale_add"):
        assert said["cuda:0"].startswith("failed: ") or said["cuda:0"] == "ok"
    else:
        assert said == {"not run": "the extension was built without CUDA, or did not load"}


def test_a_failed_self_test_is_a_problem() -> None:
    info = env.collect() | {"self-test": {"cuda:0": "ok", "cuda:1": "failed: no kernel image"}}
    assert "self-test on cuda:1: failed: no kernel image" in env._problems(info)


def test_a_kernel_library_that_does_not_load_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "libglmv.so"
    broken.write_bytes(b"not a library" * 100)
    assert "invalid ELF header" in env._build_info(broken)["libglmv.so"]


@pytest.mark.gpu
def test_self_test_on_every_gpu() -> None:
    assert _native.load() is None
    assert set(_cuda.self_test().values()) == {"ok"}
