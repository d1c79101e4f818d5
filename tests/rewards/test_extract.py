"""Extraction by the rules of the GLM layouts."""

import pytest

from glmv.rewards import extract

BOX = "<|begin_of_box|>{}<|end_of_box|>"
TAGGED = "<think>t</think><answer>{}</answer>"
GOOD = TAGGED.format(BOX.format("7"))


def test_parts() -> None:
    found = extract("glm", "<think>\n I see 7 </think>\n<answer>It is " + BOX.format(" 7\n") + ".</answer>\n")
    assert (found.thinking, found.answer, found.reason) == ("\n I see 7 ", "7", "ok")
    assert found.body == "It is " + BOX.format(" 7\n") + "."


@pytest.mark.parametrize(
    ("scheme", "tagged", "bare"),
    [("glm", "ok", "ok"), ("glm-4.1v", "ok", "malformed"), ("glm-4.5v", "malformed", "ok")],
)
def test_schemes_differ_in_the_answer_tags(scheme: str, tagged: str, bare: str) -> None:
    assert extract(scheme, GOOD).reason == tagged
    assert extract(scheme, "<think></think>" + BOX.format("7")).reason == bare


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "empty"),
        ("7", "malformed"),
        (BOX.format("7"), "malformed"),
        ("<answer>" + BOX.format("7") + "</answer>", "malformed"),
        ("hello " + GOOD, "malformed"),
        (GOOD + " bye", "malformed"),
        (GOOD + "<|user|>", "malformed"),
        (GOOD + GOOD, "malformed"),
        ("<think>t<answer>" + BOX.format("7") + "</answer></think>", "malformed"),
        ("<think>a<think>b</think></think><answer>" + BOX.format("7") + "</answer>", "malformed"),
        ("<think>a</think>b</think><answer>" + BOX.format("7") + "</answer>", "malformed"),
        ("<think>t</think>so <answer>" + BOX.format("7") + "</answer>", "malformed"),
        ("<think>t</think><answer>" + BOX.format("7"), "malformed"),
        ("<think>t</think>" + BOX.format("7") + "</answer>", "malformed"),
        ("<think>t</think><answer><answer>" + BOX.format("7") + "</answer></answer>", "malformed"),
        (TAGGED.format("7"), "no_box"),
        (TAGGED.format("\\boxed{7}"), "no_box"),
        (TAGGED.format(BOX.format("")), "empty"),
        (TAGGED.format(BOX.format(" \n")), "empty"),
        (TAGGED.format(BOX.format("7") + BOX.format("8")), "multi_box"),
        (TAGGED.format("<|begin_of_box|>" + BOX.format("7")), "multi_box"),
        (TAGGED.format(BOX.format("\\boxed{7}")), "multi_box"),
        (TAGGED.format(BOX.format("7") + " or \\boxed{8}"), "multi_box"),
        (TAGGED.format("<|begin_of_box|>7"), "malformed"),
        (TAGGED.format("7<|end_of_box|>"), "malformed"),
        (TAGGED.format("<|end_of_box|>7<|begin_of_box|>"), "malformed"),
        ("x" * ((1 << 20) + 1), "too_long"),
    ],
)
def test_fails_closed(response: str, reason: str) -> None:
    found = extract("glm", response)
    assert (found.answer, found.reason) == (None, reason)


def test_the_thinking_part_is_not_scanned_for_boxes() -> None:
    thinking = BOX.format("6") + BOX.format("8") + "\\boxed{9}"
    assert extract("glm", f"<think>{thinking}</think><answer>{BOX.format('7')}</answer>").answer == "7"
    assert extract("glm", f"<think>{BOX.format('7')}</think><answer>7</answer>").reason == "no_box"


def test_unknown_scheme() -> None:
    with pytest.raises(ValueError, match=r"extract: scheme must be one of 'glm', 'glm-4.1v'.*got 'vero9'"):
        extract("vero9", GOOD)
