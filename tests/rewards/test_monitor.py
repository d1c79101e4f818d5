"""The monitor on histories made by hand: honest learning is silent, each kind of hacking is named."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from glmv.rewards.monitor import Limits, Record, metrics, record, warnings

Change = Callable[[int], dict[str, object]]


def history(change: Change = lambda late: {}, domain: str = "ocr", steps: int = 20) -> list[Record]:
    """Reward and strict check rise together; `change` gets 1 for the last ten steps, 0 before."""
    plain = [
        Record(n, domain, 0.3 + 0.02 * n, 0.28 + 0.02 * n, 100.0, 2.0, {"ok": 0.5, "wrong": 0.5})
        for n in range(steps)
    ]
    return [replace(item, **change(int(n >= steps - 10))) for n, item in enumerate(plain)]


def test_honest_learning_is_silent() -> None:
    assert warnings(history()) == []
    better = history(lambda late: {"reasons": {"ok": 0.2 + 0.7 * late, "wrong": 0.8 - 0.7 * late}})
    assert warnings(better) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda late: {"strict": 0.3}, "the reward rose by 0.20 and the strict check by 0.00"),
        (lambda late: {"strict": 0.4 - 0.2 * late}, "the reward rose by 0.20 and the strict check by -0.20"),
        (
            lambda late: {"strict": 0.4 - 0.2 * late},
            "the reward is 0.39 above the strict check (it",
        ),
        (lambda late: {"length": 100.0 + 200 * late}, "the length went from 100 to 300"),
        (lambda late: {"length": 100.0 - 90 * late}, "the length went from 100 to 10"),
        (lambda late: {"markers": 2.0 + 6 * late}, "the box markers of an answer went from 2.0 to 8.0"),
        (lambda late: {"reasons": {"judge_ok": 0.9 * late}}, "the share of judge_ok went from 0 % to 90 %"),
        (lambda late: {"reasons": {"multi_box": 0.5 * late}}, "the share of multi_box went from 0 % to 50 %"),
    ],
)
def test_each_sign(change: Change, sentence: str) -> None:
    found = warnings(history(change) + history(domain="math"))
    assert any(line.startswith(f"ocr, step 19: {sentence}") for line in found), found
    assert all(line.startswith("ocr") for line in found)


def test_what_was_not_measured_is_no_sign() -> None:
    unknown = history(lambda late: {"strict": math.nan, "length": math.nan, "markers": math.nan})
    assert warnings(unknown) == []
    once = [replace(item, strict=item.strict if item.step % 5 == 0 else math.nan) for item in history()]
    assert warnings(once) == []


def test_a_short_history_is_silent() -> None:
    assert warnings([]) == []
    assert warnings(history(lambda late: {"length": 10.0**late}, steps=10)) == []
    assert warnings(history(lambda late: {"length": 10.0**late}, steps=11), Limits(window=10)) != []


def test_metrics() -> None:
    found = metrics(history(lambda late: {"strict": 0.4 - 0.2 * late}))
    assert found["ocr/reward_gap"] == pytest.approx(0.39)
    assert found["ocr/verifier_warnings"] == 2


def test_a_record_of_answers() -> None:
    box = "<|begin_of_box|>7<|end_of_box|>"
    made = record(3, "math", [1.0, 0.0, math.nan], [box, box * 2, ""], ["ok", "multi_box", "ok"], strict=0.5)
    assert (made.reward, made.markers, made.strict) == (0.5, 2.0, 0.5)
    assert made.length == pytest.approx(len(box))
    assert made.reasons == {"ok": pytest.approx(2 / 3), "multi_box": pytest.approx(1 / 3)}
    assert math.isnan(record(0, "math", [], [], []).reward)
