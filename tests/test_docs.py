"""What the documents say is true: Python blocks run, commands run (smaller), links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# The same commands at a size for tests; the last value of a flag counts.
SMALLER = {
    "glmv sft": "--steps 2 --batch_size 2 --threads 1",
    "glmv rl": "--steps 1 --prompts 7 --group_size 2 --offline_samples 0 --threads 1"
    " --sampling.think_tokens 3 --sampling.answer_tokens 3",
    "glmv eval": "--eval.group_size 1 --threads 1 --eval.sampling.think_tokens 3"
    " --eval.sampling.answer_tokens 3",
    "glmv data make": "--n 42",
    "glmv bench": "--op rope",
}
# Run by continuous integration itself, or would install into the environment that runs the tests.
NOT_HERE = ("make ", "pip install", "git clone", "cd ")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands(path: Path) -> list[str]:
    lines = [line for block in blocks(path, "console") for line in block.splitlines()]
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [t for t in targets if not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_python_blocks_run(path: Path) -> None:
    for block in blocks(path, "python"):
        exec(compile(block, path.name, "exec"), {"__name__": "document"})


def test_readme_names_its_two_commands_first() -> None:
    assert commands(ROOT / "README.md")[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    wanted = {shlex.split(c)[1] for c in commands(path) if c.startswith("make ")}
    assert [t for t in wanted if not re.search(rf"^{re.escape(t)}\b.*:", makefile, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_commands_run_in_order(path: Path, tmp_path: Path) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for command in commands(path):
        if command.startswith(NOT_HERE):
            continue
        assert command.startswith("glmv "), f"the test does not know how to run {command!r}"
        extra = next((flags for name, flags in SMALLER.items() if command.startswith(name)), "")
        argv = [sys.executable, "-m", *shlex.split(command), *shlex.split(extra)]
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
