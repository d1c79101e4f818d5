"""Hostile text for every parser: it ends in time, raises nothing, says the same twice, and touches nothing.

The tests try some dozens of inputs for each target; `make fuzz` tries 100,000.
"""

import contextlib
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glmv.data.types import Sample
from glmv.rewards import KINDS, extract, score, verify
from glmv.rewards.attacks import TARGETS
from glmv.rewards.audit import parrot
from glmv.rewards.extract import SCHEMES
from glmv.rewards.judge import SCALES, blocks, parse_reply, render
from glmv.rewards.judge_http import RequestFailed, read_answer
from glmv.rewards.judge_rule import RuleJudge
from glmv.rewards.strict_json import JsonError, loads
from glmv.rewards.style import style
from glmv.rewards.types import Reason
from tests.rewards.conftest import FUZZ_EXAMPLES

REASONS = frozenset(get_args(Reason))
TIME = 2000  # milliseconds that an input and its variants may take
MAX_GROWTH_KB = 512 * 1024
SMALL_RUN = 20
FUZZ_TOTAL = 100_000
tried: Counter[str] = Counter()

MATH = [
    "\\frac", "\\sqrt", "\\left(", "\\right)", "\\text{", "\\pi", "\\pm", "\\cdot", "\\times", "\\le",
    "\\in", "\\cup", "\\infty", "\\circ", "\\%", "\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "&", "{",
    "}", "(", ")", "[", "]", "^", "_", "+", "-", "*", "/", "=", "<", ">", ",", ";", ":", "!", "|", "1",
    "2", "9", "0", ".", "1e9", "e", "i", "x", "y", "n", "\\boxed{", "$", "\\(", "\\)", "or", "and", "sin",
    "log_2", "\\binom", "1/2", "2\\frac12", "9^9^9", "\\{", "\\}", "km/h", "cm", "%", "°", "½", "⅔", "²",
    "三", "百", "分之", "１", "，", "x=", "\\neq", "\\overline", "\\lim", "\\int", "\\sum",
]  # fmt: skip
JSON = [
    "[", "]", "{", "}", ",", ":", '"', "\\", '"', "true", "null", "NaN", "Infinity", "-1", "1e308",
    "1e999", "500", "450", '"bbox_2d"', '"point_2d"', '"ACTION"', '"MARK"', '"action_type"', '"click"',
    '"CLICK"', "[100,100,300,300]", "[[500,450]]", "```json", "```", "\\u0000", "\\ud800", "//", "/**/",
]  # fmt: skip
TAGS = [
    "<think>", "</think>", "<answer>", "</answer>", "<judge>", "</judge>", "think", "direct",
    "<|begin_of_box|>", "<|end_of_box|>", "\\boxed{", "}", "29", "red", "\n",
]  # fmt: skip
WORDS = [
    "A", "B.", "(C)", "1.", "2)", "first", ">", "→", "-", "NYC", "red", "kettle", ",", ";", "or", "and",
    "the", "not", "*", "#", "\n", "P.S.", "<<title>>", "[x]", "00:01:05", "2010", "42.5",
]  # fmt: skip
REPLY = [
    "SCORE:", '{"SCORE":', "1}", '{"SCORE":', "10}", '{"REASONING":', '"', '"', ",", "0", "1.0", "21.0",
    "NaN", "}", "{", "```", "```json", "score",
]  # fmt: skip
FRAGMENTS = {"math": MATH, "json": JSON, "tags": TAGS, "words": WORDS, "reply": REPLY}


def hostile(*names: str) -> st.SearchStrategy[str]:
    """Fragments of grammars and any characters in any order, a part of it repeated many times."""
    fragments = [fragment for name in names for fragment in FRAGMENTS[name]]
    piece = st.one_of(st.sampled_from(fragments), st.sampled_from(fragments), st.text(max_size=6))
    run = st.tuples(piece, st.integers(1, 3000)).map(lambda pair: pair[0] * pair[1])
    return st.lists(st.one_of(piece, piece, piece, run), max_size=24).map("".join)


def variants(text: str) -> tuple[str, ...]:
    """A generated text, and what cutting, turning and doubling make of it: these cost next to nothing."""
    half = len(text) // 2
    return text, text[:half], text[half:], text[::-1], text * 2


def fuzz(test: Callable[..., None]) -> Callable[..., None]:
    """The number of inputs of `make fuzz`, or the small one of the tests."""
    chosen = settings.get_current_profile_name() == "fuzz"
    return settings(max_examples=FUZZ_EXAMPLES if chosen else SMALL_RUN, deadline=TIME)(test)


def check(name: str, value: float | None, reason: str) -> None:
    tried[name] += 1
    assert value is None or 0 <= value <= 1
    assert reason in REASONS


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing is written, and memory does not grow beyond the limit of a worker."""
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert list(tmp_path.iterdir()) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KB


TARGET_OF = {target.kind: target for target in TARGETS}
GRAMMAR = {
    **dict.fromkeys(KINDS, ("words", "math", "json")),
    **dict.fromkeys(("math", "physics", "chemistry", "chart", "ordering"), ("math",)),
    **dict.fromkeys(("grounding", "click", "gui", "webaction"), ("json",)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_verify(kind: str) -> None:
    target = TARGET_OF[kind]

    @fuzz
    @given(hostile(*GRAMMAR[kind]))
    def run(text: str) -> None:
        for answer in variants(text):
            first = verify(kind, answer, target.reference, target.options, parrot)
            check(kind, first.value, first.reason)
            again = verify(kind, answer, target.reference, target.options, parrot)
            assert (first.value, first.reason) == (again.value, again.reason)

    run()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_extract_and_score(scheme: str) -> None:
    spec = {"kind": "math", "ground_truth": "29", "scheme": scheme, "options": {"label": "think"}}
    sample = Sample("id", "source", (), reward_model=spec)

    @fuzz
    @given(hostile("tags"))
    def run(text: str) -> None:
        for response in variants(text):
            found = extract(scheme, response)
            assert (found.answer is None) == (found.reason != "ok")
            parts = score(response, sample, parrot).parts
            assert all(part.reason in REASONS for part in parts.values())
            check(scheme, parts["accuracy"].value, parts["accuracy"].reason)

    run()


def test_the_reference_is_read_with_the_same_care() -> None:
    @fuzz
    @given(hostile("math"), hostile("math"))
    def run(answer: str, reference: str) -> None:
        for text in variants(reference):
            verdict = verify("math", answer, text)
            check("reference", verdict.value, verdict.reason)

    run()


def test_strict_json() -> None:
    @fuzz
    @given(hostile("json"))
    def run(generated: str) -> None:
        for text in variants(generated):
            try:
                loads(text)
                check("json", None, "ok")
            except JsonError as error:
                check("json", None, error.reason)

    run()


@pytest.mark.parametrize("scale", SCALES)
def test_judge_replies(scale: str) -> None:
    @fuzz
    @given(hostile("reply"))
    def run(text: str) -> None:
        for reply in variants(text):
            check(scale, parse_reply(reply, scale), "ok")

    run()


def test_what_is_put_into_a_prompt_comes_out_of_it() -> None:
    fence = "=====" + "0123456789abcdef" * 2

    @fuzz
    @given(hostile("reply", "words"))
    def run(candidate: str) -> None:
        tried["prompt"] += 1
        found = blocks(render(candidate, "the reference", "binary", fence))
        assert found is not None
        assert (found.candidate, found.reference) == (candidate, "the reference")
        assert RuleJudge()(render(candidate, "kettle 17", "binary", fence)) in ("0", "1")

    run()


def test_what_a_server_sends() -> None:
    @fuzz
    @given(hostile("json", "reply").map(lambda text: text.encode("utf-8", "surrogatepass")))
    def run(received: bytes) -> None:
        tried["http"] += 1
        with contextlib.suppress(RequestFailed):  # nothing else may be raised
            assert isinstance(read_answer(received).text, str)

    run()


def test_style_of_any_text() -> None:
    @fuzz
    @given(hostile("words"), hostile("math"))
    def run(thinking: str, answer: str) -> None:
        for text in variants(thinking):
            found = style(text, answer)
            check("style", found.value, found.reason)

    run()


def test_how_much_was_tried() -> None:
    """Runs last. In `make fuzz` the total is what the target promises."""
    if settings.get_current_profile_name() == "fuzz":
        assert tried.total() >= FUZZ_TOTAL
        print(f"\n{tried.total():,} inputs over {len(tried)} targets")
