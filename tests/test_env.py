"""`glmv env` tells the truth on a good installation and does not fall over on a broken one."""

import json
import os
import subprocess
import sys

import pytest
import torch

from glmv import _native, backend, env
from tests.tree import ROOT


def run(*arguments: str, code: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m glmv.env` in a fresh process, or `code` first and then the same."""
    start = (
        ["-c", f"{code}\nfrom glmv.env import main\nraise SystemExit(main())"] if code else ["-m", "glmv.env"]
    )
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def info() -> env.Info:
    return env.collect()


def test_facts(info: env.Info) -> None:
    assert json.loads(json.dumps(info)) == info
    assert info["torch"]["version"] == str(torch.__version__)
    assert info["torch"]["threads"] == torch.get_num_threads()
    # scikit-learn brings an OpenMP of its own into a process; torch's must be there
    assert [p for p in info["torch"]["openmp"] if "/torch/" in p]
    assert info["extension"]["state"] == (_native.load() or "loaded")
    assert info["packages"]["triton"] != "not installed"


def test_every_op_shows_what_auto_takes(info: env.Info) -> None:
    device, dtype = info["ops"]["device"], getattr(torch, info["ops"]["dtype"])
    table = backend.backends(device, dtype)
    assert table
    for op, answers in table.items():
        assert info["ops"][op]["backends"] == answers
        assert backend.resolve(op, "auto", torch.device(device), dtype) == info["ops"][op]["auto"]


def test_text_holds_every_section_and_reason(info: env.Info) -> None:
    text = env.render(info)
    assert [line for line in text.splitlines() if not line.startswith(" ") and line] == list(info)
    assert "auto -> " in text
    for answer in (a for a in info["ops"].values() if isinstance(a, dict)):
        assert all(why in text for why in answer["backends"].values())


def test_check_passes_on_this_machine() -> None:
    done = run("--check")
    assert done.returncode == (0 if _native.load() is None else 1), done.stdout + done.stderr


def test_check_fails_with_the_reason_when_the_extension_is_off() -> None:
    done = run("--check", "--json", GLMV_DISABLE_EXT="1")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["problems"] == ["the extension is switched off by GLMV_DISABLE_EXT=1"]
    assert said["variables"]["GLMV_DISABLE_EXT"] == "1"
    assert said["gpus"] or said["ops"]["rope"]["auto"] == "ref"


@pytest.mark.parametrize("missing", ["torch", "rich", "glmv._C"])
def test_works_without(missing: str) -> None:
    done = run("--json", code=f"import sys; sys.modules[{missing!r}] = None")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if missing == "torch":
        assert "error" in said["torch"]
        assert [p.partition(":")[0] for p in said["problems"]] == ["extension", "torch", "ops"]
    if missing == "glmv._C":
        assert said["extension"]["_C"].startswith("missing: ")


def problems_and_hints(info: env.Info, **changes: object) -> tuple[list[str], list[str]]:
    changed = info | changes
    return env._problems(changed), env._hints(changed)


def test_conclusions(info: env.Info) -> None:
    """What the report makes of facts that this machine does not have."""
    two = info["torch"] | {"openmp": ["a/libgomp.so.1", "b/libomp.so"]}
    assert "2 OpenMP libraries" in problems_and_hints(info, torch=two)[0][-1]
    idle = info["ops"] | {"rope": {"auto": "none", "backends": {}}}
    assert any(p.startswith("rope: no backend is automatic") for p in problems_and_hints(info, ops=idle)[0])
    blind = problems_and_hints(info, gpus=["H200, 9.0"], torch=info["torch"] | {"cuda available": False})[1]
    assert any("install a CUDA build of torch" in hint for hint in blind)
    wide = problems_and_hints(info, torch=info["torch"] | {"threads": 64}, cpu=info["cpu"] | {"cores": 2})[1]
    assert any("OMP_NUM_THREADS=2" in hint for hint in wide)
    stale = problems_and_hints(info, extension=info["extension"] | {"version": "0.0.1"})[1]
    assert any("of version 0.0.1" in hint for hint in stale)
