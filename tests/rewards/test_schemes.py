"""Layouts, style and totals of the three recipes; the expected totals are worked out by hand."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glmv.data.types import Sample
from glmv.rewards import JudgeError, check_spec, compose, extract, score
from glmv.rewards.sail_checks import CHECKS
from glmv.rewards.spec import check_reward_model
from glmv.rewards.style import style
from glmv.rewards.vero import ROUTES, route

VERO = "<think>I add.</think><answer>{}</answer>"
SAIL = "<judge>{}</judge><think>{}</think>{}"
SENTENCE = "The narrow street runs past a bakery and a small clock tower in the evening rain. "
CHINESE = "这条狭窄的街道在傍晚的雨中经过一家面包店和一座小钟楼，然后向着河边慢慢地延伸过去。"
ENGLISH = " ".join(
    f"House {n} on the {colour} side of street {n * 7} has {n + 2} windows, {n % 3 + 1} doors, {colour} roof."
    for n, colour in enumerate(
        ["red", "blue", "green", "grey", "white", "black", "yellow", "brown", "pink"] * 2
    )
)


def sample(scheme: str, kind: str = "math", reference: Any = "20", **options: Any) -> Sample:
    spec = {"kind": kind, "ground_truth": reference, "options": options, "scheme": scheme}
    return Sample("id", "source", ({"role": "user", "content": "<image>How much?"},), reward_model=spec)


# -- Vero --------------------------------------------------------------------------------------------------

VERO_FORMATS = [
    (VERO.format("So \\boxed{7}"), 1, "ok"),
    ("\n" + VERO.format("\\boxed{\\frac{1}{2}}") + "\n", 1, "ok"),
    ("<think>a</think>\n\n<answer>\n\\boxed{7}\n</answer>", 1, "ok"),
    (VERO.format("7"), 0.5, "no_box"),
    (VERO.format("\\boxed[7]"), 0.5, "no_box"),
    (VERO.format("\\boxed{}"), 0.5, "empty"),
    (VERO.format("\\boxed{ }"), 0.5, "empty"),
    (VERO.format("\\boxed{7} \\boxed{7}"), 0.5, "multi_box"),
    (VERO.format("\\boxed{\\boxed{7}}"), 0.5, "multi_box"),
    (VERO.format("\\boxed{7"), 0.5, "malformed"),
    (VERO.format(""), 0, "empty"),
    (VERO.format("\\boxed{7}") + " bye", 0, "malformed"),
    ("Sure! " + VERO.format("\\boxed{7}"), 0, "malformed"),
    ("<think> \n</think><answer>\\boxed{7}</answer>", 0, "malformed"),
    ("<answer>\\boxed{7}</answer>", 0, "malformed"),
    ("<think>a</think>\\boxed{7}", 0, "malformed"),
    ("<think>a</think>so <answer>\\boxed{7}</answer>", 0, "malformed"),
    ("<answer>\\boxed{7}</answer><think>a</think>", 0, "malformed"),
    (VERO.format("\\boxed{7}") * 2, 0, "malformed"),
    ("<think>a<think>b</think></think><answer>\\boxed{7}</answer>", 0, "malformed"),
    ("", 0, "empty"),
]


@pytest.mark.parametrize(("response", "value", "reason"), VERO_FORMATS)
def test_vero_format(response: str, value: float, reason: str) -> None:
    part = score(response, sample("vero", "numeric", "7")).parts["format"]
    assert (part.value, part.reason) == (value, reason)


def test_vero_total() -> None:
    assert score(VERO.format("\\boxed{20}"), sample("vero", "numeric")).total == pytest.approx(1.0)
    assert score(VERO.format("\\boxed{21}"), sample("vero", "numeric")).total == pytest.approx(0.2)
    assert score(VERO.format("20"), sample("vero", "numeric")).total == pytest.approx(0.1)
    assert score("\\boxed{20}", sample("vero", "numeric")).total == 0.0
    assert score(VERO.format("\\boxed{20}"), sample("vero", alpha=0.5)).total == pytest.approx(1.0)
    assert score(VERO.format("\\boxed{21}"), sample("vero", alpha=0.5)).total == pytest.approx(0.5)


def test_vero_overlong() -> None:
    """From 16384 - 2048 = 14336 tokens on, one unit over the buffer."""
    task = sample("vero", "numeric", max_len=16384)
    right = VERO.format("\\boxed{20}")
    for length, total in ((100, 1.0), (14336, 1.0), (14848, 0.75), (15360, 0.5), (16384, 0.0)):
        assert score(right, task, length=length).total == pytest.approx(total)
    assert score(right, task, length=15360).parts["overlong"].reason == "too_long"
    assert score("", task, length=16384).total == pytest.approx(-1.0)
    halved = sample("vero", "numeric", max_len=1000, buffer=100, **{"lambda": 0.5})
    assert score(right, halved, length=950).total == pytest.approx(0.75)
    with pytest.raises(ValueError, match="length"):
        score(right, task)
    for buffer in (0, -5, 20000):
        with pytest.raises(ValueError, match="buffer"):
            check_spec("math", "20", {"max_len": 16384, "buffer": buffer})


ROUTED: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("string_match", "\\boxed{the Louvre}", "Louvre", {}),
    ("multiple_choice", "\\boxed{B}", "B", {}),
    ("number_list", "\\boxed{3, 1, 2}", [3, 1, 2], {}),
    ("web_action", '{"ACTION": "CLICK", "MARK": 7}', {"ACTION": "CLICK", "MARK": 7}, {}),
    ("numeric", "\\boxed{0.5}", "1/2", {}),
    ("list_string_match", "\\boxed{nyc}", ["NYC", "New York City"], {}),
    ("counting", "\\boxed{4}", "4", {}),
    ("search", "\\boxed{red}", ["red"], {}),
    ("grounding", "[[10, 10, 50, 50]]", [[10, 10, 50, 50]], {}),
    ("clicking", "[20, 20]", [10, 10, 50, 50], {}),
    ("instruction_following", "no commas", None, {"constraints": [{"id": "punctuation:no_comma"}]}),
]


@pytest.mark.parametrize(("kind", "answer", "reference", "options"), ROUTED)
def test_vero_routes(kind: str, answer: str, reference: Any, options: dict[str, Any]) -> None:
    reward = score(VERO.format(answer), sample("vero", kind, reference, **options))
    assert (reward.total, reward.reason) == (pytest.approx(1.0), "ok")
    assert (
        score(VERO.format("\\boxed{x}"), sample("vero", kind, reference, **options)).total < 1
        or not reference
    )


def test_reward_models_are_checked_when_data_is_loaded() -> None:
    for kind, _, reference, options in ROUTED:
        check_reward_model(sample("vero", kind, reference, **options).reward_model)
    rules = [{"id": "punctuation:no_comma"}]
    judged = sample("vero", "instruction_following_llm_judge", "blue", constraints=rules)
    check_reward_model(judged.reward_model)
    check_reward_model(sample("sail", label="think").reward_model)
    check_reward_model({"kind": "math", "ground_truth": "7"})
    for bad, message in (
        (sample("vero", "numerik"), "numerik"),
        (sample("glm", "numeric"), "kind must be one of"),
        (sample("vero", "grounding", "20"), "grounding: the reference"),
        (sample("sail"), r"options\.label or options\.direct_accuracy"),
        (sample("veroo"), "scheme must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            check_reward_model(bad.reward_model)


def test_vero_judged_types() -> None:
    task = sample("vero", "llm_judge", "The kettle is blue.")
    assert score(VERO.format("Blue."), task, lambda prompt: '{"SCORE": 10}').total == pytest.approx(1.0)
    assert score(VERO.format("Blue."), task, lambda prompt: '{"SCORE": 1}').total == pytest.approx(0.2)
    rules = [{"id": "punctuation:no_comma"}, {"id": "startend:quotation"}]
    mixed = sample("vero", "instruction_following_llm_judge", "blue", constraints=rules)
    # Half of the constraints, and (4 - 1) / 9 of the judge: accuracy (1/2 + 1/3) / 2.
    got = score(VERO.format("It is blue"), mixed, lambda prompt: "4").parts["accuracy"]
    assert got.value == pytest.approx(5 / 12)
    assert set(ROUTES) >= {kind for kind, *_ in ROUTED}
    assert route("click").boxed is False
    assert route("chart").boxed is True


# -- SAIL-RL -----------------------------------------------------------------------------------------------

SAIL_CASES = [
    ("think", "12 and 8.", "\\boxed{20}", "think", [1, 1, 1], 1.0),
    ("think", "12 and 8.", "It is \\boxed{20}.", "think", [1, 1, 0], 0.7),
    ("think", "12 and 8.", "\\boxed{20}", "think", [0, 0, 1], 0.4),
    ("think", "12 and 8.", "\\boxed{20}", "think", [0, 0, 0], 0.1),
    ("think", "12 and 8.", "\\boxed{21}", "think", [1, 1, 1], 0.1),
    ("think", "12 and 8.", "\\boxed{20}", "direct", [1, 1, 1], 0.1),
    ("direct", "", "\\boxed{20}", "direct", [1, 1, 1], 1.0),
    ("direct", "12 and 8.", "\\boxed{20}", "direct", [1, 1, 1], 0.1),
    ("direct", "", "\\boxed{20}", "think", [1, 1, 1], 0.1),
    ("direct", "", "\\boxed{21}", "direct", [1, 1, 1], 0.1),
    ("think", "", "\\boxed{20}", "think", [1, 1, 1], 0.0),
    ("think or direct", "12 and 8.", "\\boxed{20}", "think", [1, 1, 1], 0.0),
    ("", "12 and 8.", "\\boxed{20}", "think", [1, 1, 1], 0.0),
    ("THINK", "12 and 8.", "\\boxed{20}", "think", [1, 1, 1], 0.0),
    ("think", "12 and 8.", "20", "think", [1, 1, 1], 0.0),
    ("think", "12 and 8.", "\\boxed{20}\\boxed{20}", "think", [1, 1, 1], 0.0),
    ("think", "\\boxed{20}", "20", "think", [1, 1, 1], 0.0),
    ("think", "Maybe \\boxed{19}.", "\\boxed{20}", "think", [1, 1, 1], 1.0),
]


@pytest.mark.parametrize(("decision", "thinking", "answer", "label", "checks", "total"), SAIL_CASES)
def test_sail(decision: str, thinking: str, answer: str, label: str, checks: list[int], total: float) -> None:
    response = SAIL.format(decision, thinking, answer)
    assert score(response, sample("sail", label=label, checks=checks)).total == pytest.approx(total)


def test_sail_layouts() -> None:
    assert extract("sail", "<judge>direct</judge>\\boxed{7}").answer == "7"
    for response in (
        "\\boxed{7}",
        "so <judge>direct</judge>\\boxed{7}",
        "<judge>direct</judge><judge>think</judge>\\boxed{7}",
        "<judge>think</judge>\\boxed{7}",
        "<judge>think</judge><think>a\\boxed{7}",
        "<judge>think</judge>b<think>a</think>\\boxed{7}",
        "<judge>think</judge><think>a</think><think>b</think>\\boxed{7}",
    ):
        assert extract("sail", response).reason == "malformed"


def test_sail_checks_by_a_judge() -> None:
    prompts: list[str] = []

    def judge(prompt: str) -> str:
        prompts.append(prompt)
        return "0" if CHECKS["grounding"] in prompt else '{"REASONING": "fine", "SCORE": 1}'

    right = SAIL.format("think", "12 and 8. {label}", "\\boxed{20}")
    assert score(right, sample("sail", label="think"), judge).total == pytest.approx(0.1 + 0.9 * 2 / 3)
    assert len(prompts) == 3
    assert all("How much?" in prompt and "12 and 8. {label}" in prompt for prompt in prompts)
    wrong = SAIL.format("think", "12 and 8.", "\\boxed{21}")
    assert score(wrong, sample("sail", label="think"), judge).total == pytest.approx(0.1)
    assert len(prompts) == 3  # nobody was asked
    assert score(right, sample("sail", label="think")).parts["thinking"].reason == "judge_unavailable"

    def down(prompt: str) -> str:
        raise JudgeError("down")

    assert score(right, sample("sail", label="think"), down).masked
    assert score(right, sample("sail", label="think"), lambda prompt: "1.0 0.0").total == pytest.approx(0.1)


def test_sail_labels() -> None:
    assert [compose.sail_label(p) for p in (0.0, 0.49, 0.5, 1.0)] == ["think", "think", "direct", "direct"]
    direct = SAIL.format("direct", "", "\\boxed{20}")
    assert score(direct, sample("sail", direct_accuracy=0.9)).total == pytest.approx(1.0)
    assert score(direct, sample("sail", direct_accuracy=0.2)).total == pytest.approx(0.1)
    assert score(direct, sample("sail")).reason == "unsupported"
    for options in ({"label": "maybe"}, {"direct_accuracy": 2}, {"checks": [1, 1]}, {"checks": [0.5, 1, 1]}):
        with pytest.raises(ValueError, match=r"options\."):
            check_spec("math", "20", options)
        assert score(direct, sample("sail", **options)).reason == "unsupported"


# -- style and GLM-V ---------------------------------------------------------------------------------------

STYLES: list[tuple[str, str]] = [
    ("", "ok"),
    (SENTENCE, "ok"),
    (SENTENCE * 3, "ok"),
    (ENGLISH, "ok"),
    (CHINESE * 2, "ok"),
    (ENGLISH + " The sign reads “北门”.", "ok"),
    (CHINESE + "牌子上写着 OPEN。" + CHINESE, "ok"),
    (ENGLISH + "\n\n“" + CHINESE * 2 + "”", "ok"),
    ("\n".join(f"| {n} | {n * n} |" for n in range(80)), "ok"),
    ("x = 0.3333333333333333333333333333333333", "ok"),
    (SENTENCE * 60, "style"),
    (SENTENCE * 6, "style"),
    ("the " * 400, "style"),
    ("好的，" * 300, "style"),
    (CHINESE * 20, "style"),
    ("0" * 1000, "style"),
    ("\n\n".join([ENGLISH] * 4), "style"),
    (ENGLISH[:1500] + SENTENCE * 30, "style"),
    (CHINESE * 2 + "\n\n" + ENGLISH, "style"),
    (ENGLISH + "\n" + CHINESE * 2, "style"),
    (CHINESE * 2 + ENGLISH, "style"),
]


@pytest.mark.parametrize(("text", "reason"), STYLES)
def test_style(text: str, reason: str) -> None:
    assert style(text).reason == reason
    assert style(SENTENCE, text).reason == reason


def test_an_answer_may_repeat_the_thinking_part() -> None:
    assert style(ENGLISH, ENGLISH).reason == "ok"


def test_glm_total_has_a_style_penalty() -> None:
    task = sample("glm")
    box = "<think>{}</think><answer><|begin_of_box|>{}<|end_of_box|></answer>"
    assert score(box.format(SENTENCE * 60, "20"), task).total == 0.5
    assert score(box.format(SENTENCE * 60, "21"), task).total == -0.5
    assert score(box.format(SENTENCE * 60, "20"), task).reason == "style"
    assert score(box.format(SENTENCE * 60, "20"), sample("glm", style_penalty=0)).total == 1.0
    assert score(SENTENCE * 60, task).parts["format"].reason == "malformed"


def test_glm_open_kinds_need_no_box() -> None:
    task = sample("glm", "ifollow", None, constraints=[{"id": "punctuation:no_comma"}])
    assert score("<think>a</think><answer>no commas</answer>", task).total == 1.0
    boxed = "<think>a</think><answer><|begin_of_box|>no commas<|end_of_box|></answer>"
    assert score(boxed, task).reason == "format"


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "<answer>",
                "</answer>",
                "<judge>",
                "</judge>",
                "think",
                "direct",
                "20",
                " ",
            ]
            + ["\\boxed{", "}", "{", "\\", "<|begin_of_box|>", "<|end_of_box|>"]
        ),
        max_size=14,
    ),
    scheme=st.sampled_from(["glm", "vero", "sail"]),
)
def test_any_response_gets_a_total(parts: list[str], scheme: str) -> None:
    response = "".join(parts)
    reward = score(response, sample(scheme, label="direct"))
    assert math.isfinite(reward.total)
    assert reward.total <= 1.0
    assert reward == score(response, sample(scheme, label="direct"))
    found = extract(scheme, response)
    assert (found.answer is None) == (found.reason != "ok")
