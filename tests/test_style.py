"""Limits that keep the code readable, over every file of the tree. An exception needs its reason."""

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.tree import ROOT, files

# File -> its own line limit and why. Keep this short.
LONGER: dict[str, tuple[int, str]] = {}
# "file::function" -> its own line limit and why.
LONGER_FUNCTIONS: dict[str, tuple[int, str]] = {}

FUNCTION_LINES, TRITON_KERNEL_LINES = 50, 120
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~$})/-])/(?:work|tmp|root|home)(?:/|\b)")
TEXT = (
    ".py",
    ".pyi",
    ".cpp",
    ".h",
    ".cu",
    ".cuh",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".sh",
    ".in",
    "run",
    "Makefile",
)

SOURCES = [name for name in files() if name.endswith(TEXT)]
PYTHON = [name for name in SOURCES if name.endswith(".py")]
ALL_BUT_THIS = [name for name in SOURCES if name != "tests/test_style.py"]


def usual_limit(name: str) -> int | None:
    """The most lines a file may have; None where nothing is said (texts, configuration)."""
    name = re.sub(r"^glmv/(kernels|bench)/", r"\1/", name)  # in an sdist these are no links
    if name.startswith("glmv/ops/"):
        return 220
    if re.match(r"(kernels|csrc/cpu|csrc/cuda)/(attention|token_loss)", name):
        return 500
    if name.startswith("tests/"):
        return 400
    return 300 if name.endswith((".py", ".cpp", ".h", ".cu", ".cuh")) else None


def lines_matching(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if pattern.search(line)
    ]


def functions(name: str) -> Iterator[tuple[str, int, bool]]:
    """(name, lines from def to end, whether it is a Triton kernel) of each function of a Python file."""
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kernel = any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            yield node.name, (node.end_lineno or 0) - node.lineno + 1, kernel


def long_functions(name: str) -> Iterator[tuple[str, int, int]]:
    """(file::function, lines, usual limit) of those over the usual limit."""
    for function, lines, kernel in functions(name):
        limit = TRITON_KERNEL_LINES if kernel else FUNCTION_LINES
        if lines > limit:
            yield f"{name}::{function}", lines, limit


def broad_handlers(name: str) -> list[str]:
    """`except:` and `except Exception` would hide errors that nobody expected."""
    handlers = [n for n in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(n, ast.ExceptHandler)]
    caught = [(h.lineno, "" if h.type is None else ast.unparse(h.type)) for h in handlers]
    broad = re.compile(r"^$|\b(Base)?Exception\b")
    return [f"{name}:{number}: except {what}" for number, what in caught if broad.search(what)]


def over_limit(found: Iterable[tuple[str, int, int]], allowed: dict[str, tuple[int, str]]) -> list[str]:
    """What is longer than it may be, and entries of `allowed` that are no longer needed."""
    found = list(found)
    long = [(name, n, allowed.get(name, (limit, ""))[0]) for name, n, limit in found]
    unused = sorted(set(allowed) - {name for name, _, _ in found})
    return [f"{name} has {n} lines, limit {limit}" for name, n, limit in long if n > limit] + [
        f"{name} keeps the usual limit: remove its exception" for name in unused
    ]


def report(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


def test_files_are_short() -> None:
    sizes = [(name, len((ROOT / name).read_text().splitlines()), usual_limit(name)) for name in SOURCES]
    report(over_limit([(name, n, limit) for name, n, limit in sizes if limit and n > limit], LONGER))


def test_functions_are_short() -> None:
    report(over_limit((item for name in PYTHON for item in long_functions(name)), LONGER_FUNCTIONS))


def test_no_broad_handlers() -> None:
    report([problem for name in PYTHON for problem in broad_handlers(name)])


def test_nothing_unfinished() -> None:
    report(lines_matching(UNFINISHED, ALL_BUT_THIS))


def test_no_paths_of_one_machine() -> None:
    report(lines_matching(MACHINE_PATH, ALL_BUT_THIS))


def test_assembly_is_in_one_file() -> None:
    native = [n for n in SOURCES if n.startswith("csrc/") and n != "csrc/common/mma.cuh"]
    report(lines_matching(re.compile(r"\b(?:__)?asm\b"), native))


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (UNFINISHED, "# TODO: later", True),
        (UNFINISHED, "raise NotImplementedError", True),
        (UNFINISHED, "XXXL = 3", False),
        (MACHINE_PATH, "open('/tmp/x')", True),
        (MACHINE_PATH, "-C /work", True),
        (MACHINE_PATH, "docs/home/index.md", False),
        (MACHINE_PATH, "$(DIR)/tmp", False),
    ],
)
def test_patterns_find_what_they_should(pattern: re.Pattern[str], line: str, found: bool) -> None:
    assert bool(pattern.search(line)) is found
