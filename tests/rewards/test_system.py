"""RewardSystem: configs, batches, and the call shapes of other trainers."""

import math
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glmv.rewards import JudgeError, Reward
from glmv.rewards.call_shapes import TrlReward, compute_score
from glmv.rewards.judge import blocks, with_question
from glmv.rewards.system import RewardSystem
from glmv.rewards.system_config import Rule, load, parse
from glmv.rewards.system_worker import Item, reference_of
from tests.rewards.judge_server import serving

BOXED = "<think>I look.</think><answer><|begin_of_box|>{}<|end_of_box|></answer>"
OURS = """
workers: 2
judge: rule
verifiers:
  exact: {kind: math, options: {exact_int: true}}
sources:
  geo3k: exact
  glmv/ocr*: ocr
  boxes: {kind: grounding, options: {scheme: f1}}
  read: {kind: vqa}
default: exact
"""
GLMV = """
reward_log_dir: logs/reward_judge
enable_mix_verifier: true
datasource_reward_config_mapping:
  default: math_verifier_config
  read: ocr_config
  look: vqa_config
reward_configs:
  math_verifier_config:
    verifier_type: math
    sympy_tolerance: 1.0e-2
    strict_boxed_extraction: true
    enable_llm_judge_fallback: false
  ocr_config: {verifier_type: ocr, ignore_case: true}
  vqa_config:
    verifier_type: vqa
    llm_api_key: [KEY]
    llm_judge_url: [URL]
    llm_model: [glm-4-flash]
    llm_temperature: 0.01
    llm_judge_prompt_template: "{question} {predict} {label}"
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardSystem]:
    path = tmp_path_factory.mktemp("config") / "rewards.yaml"
    path.write_text(OURS)
    with RewardSystem(path) as made:
        yield made


def test_get_reward_of_mixed_sources(system: RewardSystem) -> None:
    answers = ["7", "8", "lanturn", "[[100, 100, 300, 300]]", "the red kettle"]
    truths = ["7", "7", "lantern", "[[100, 100, 300, 300], [500, 500, 700, 800]]", "a red kettle"]
    sources = ["geo3k", "elsewhere", "glmv/ocr-en", "boxes", "read"]
    rewards = system.get_reward([""] * 5, [BOXED.format(a) for a in answers], truths, sources)
    assert rewards == pytest.approx([1, 0, 6 / 7, 2 / 3, 1])


def test_a_ground_truth_in_a_box_as_glmv_writes_it(system: RewardSystem) -> None:
    assert system.get_reward("q", BOXED.format("7"), BOXED.format("7"), datasources="geo3k") == [1.0]
    assert reference_of("math", "no box: <|begin_of_box|>") == "no box: <|begin_of_box|>"
    assert reference_of("click", "[1, 2, 3, 4]") == [1, 2, 3, 4]
    assert reference_of("click", "[1, 2") == "[1, 2"


def test_lengths_must_agree(system: RewardSystem) -> None:
    with pytest.raises(ValueError, match="2 answers, 1 gt_answers"):
        system.get_reward(["q", "q"], ["a", "b"], ["a"])


def test_the_rule_judge_is_named_in_the_score(system: RewardSystem) -> None:
    reward = system.rewards([system.item(BOXED.format("the red kettle"), "a red kettle", "read")])[0]
    assert reward.parts["accuracy"].details["judge"] == "rule"


def test_results_do_not_depend_on_the_pool(system: RewardSystem) -> None:
    items = [
        system.item(BOXED.format(f"{n} red kettles"), f"{n % 7} red kettles", source)
        for n in range(100)
        for source in ("read", "geo3k", "glmv/ocr")
    ]
    with RewardSystem({"sources": {}, "workers": 1, "judge": "rule"}) as alone:
        assert alone.rewards(items) == system.rewards(items)


def test_a_verifier_that_hangs_or_grows_costs_its_own_score_only(system: RewardSystem) -> None:
    with RewardSystem({"sources": {"s": "math"}, "seconds": 0.5}) as small:
        rule = Rule("math")
        hostile: Any = Item(_Slow(), "7", rule)
        rewards = small.rewards([small.item(BOXED.format("7"), "7", "s"), hostile])
    assert [reward.total for reward in rewards] == [1.0, 0.0]
    assert rewards[1].reason == "timeout"


class _Slow(str):
    """Stands for a response whose scoring never ends."""

    def strip(self, chars: str | None = None) -> str:
        time.sleep(3600)
        return ""


def test_trl(system: RewardSystem) -> None:
    function = TrlReward(system)
    columns = {"data_source": ["geo3k", "read"], "ground_truth": ["7", "blue"], "completion_ids": [[1], [2]]}
    completions = [[{"role": "assistant", "content": BOXED.format("7")}], BOXED.format("red")]
    assert function(prompts=["p", "p"], completions=completions, trainer_state=None, **columns) == [1.0, 0.0]
    assert function.__name__ == "glmv_reward"
    decoded = TrlReward(system, decode=lambda ids: BOXED.format(ids[0]))
    columns["completion_ids"] = [[7], [0]]
    assert decoded(["p", "p"], ["7", "0"], **columns) == [1.0, 0.0]  # the texts have lost their markers
    with pytest.raises(ValueError, match="ground_truth or solution"):
        function(["p"], ["c"], data_source=["geo3k"])
    verl = {"data_source": ["geo3k"], "reward_model": [{"style": "rule", "ground_truth": "7"}]}
    assert function(["p"], [BOXED.format("7")], **verl) == [1.0]


def test_verl(tmp_path: Path) -> None:
    path = tmp_path / "rewards.yaml"
    path.write_text(OURS)
    for answer, score in (("7", 1.0), ("8", 0.0)):
        found = compute_score("geo3k", BOXED.format(answer), "7", {"index": 0}, config=str(path))
        assert (found["score"], found["acc"], found["format"], found["masked"]) == (score, score, 1.0, 0.0)
    assert compute_score("geo3k", "no box", "7", config=str(path))["reason"] == "malformed"


def test_a_system_can_be_pickled(system: RewardSystem) -> None:
    with pickle.loads(pickle.dumps(TrlReward(system))).system as copy:
        assert copy.config == system.config or math.isnan(copy.config.masked)
        assert copy.get_reward([""], [BOXED.format("7")], ["7"]) == [1.0]


def down(prompt: str) -> str:
    raise JudgeError("no route")


def test_a_judge_that_is_down_gives_no_score() -> None:
    config = {"sources": {"read": "vqa"}}
    with RewardSystem(config, judge=down) as judged:
        assert math.isnan(judged.get_reward([""], [BOXED.format("red")], ["blue"], ["read"])[0])
        columns = {"data_source": ["read"] * 2, "ground_truth": ["blue", "red"]}
        assert TrlReward(judged)([""] * 2, [BOXED.format("red")] * 2, **columns) == [None, 1.0]
        assert judged.compute_score("read", BOXED.format("red"), "blue")["masked"] == 1
    with RewardSystem(config | {"masked": -1.0}, judge=down) as judged:
        assert judged.get_reward([""], [BOXED.format("red")], ["blue"], ["read"]) == [-1.0]


def test_no_judge_at_all_fails_closed() -> None:
    with RewardSystem({"sources": {"read": "vqa"}}) as plain:
        reward = plain.rewards([plain.item(BOXED.format("red"), "blue", "read")])[0]
    assert (reward.total, reward.reason) == (0.0, "judge_unavailable")


def test_a_batch_asks_its_judge_at_once() -> None:
    def plan(number: int, prompt: str) -> str:
        return "late:1" if "\ngood 1\n" in prompt else "late:0"

    with serving(plan) as server:
        judge = {"endpoints": [{"url": server.url, "model": "m"}], "concurrency": 16, "timeout": 10}
        with RewardSystem({"sources": {"read": "vqa"}, "judge": judge}) as judged:
            answers = [BOXED.format(f"good {n % 3}") for n in range(30)]
            rewards = judged.get_reward([""] * 30, answers, ["fine"] * 30, "read")
    assert rewards == [float(n % 3 == 1) for n in range(30)]
    assert len(server.prompts) == 3  # equal questions are asked once


def test_a_config_of_glmv(tmp_path: Path) -> None:
    with serving(lambda number, prompt: "text:1") as server:
        path = tmp_path / "glmv.yaml"
        path.write_text(GLMV.replace("URL", server.url + "/chat/completions"))
        with RewardSystem.from_yaml(path) as glmv:
            answers = [BOXED.format(a) for a in ("100.5", "LANTERN", "crimson")]
            truths = [BOXED.format(a) for a in ("100", "lantern", "red")]
            rewards = glmv.get_reward(["q"] * 3, answers, truths, datasources=["default", "read", "look"])
    assert rewards == [1.0, 1.0, 1.0]
    assert server.bodies[0]["model"] == "glm-4-flash"
    assert server.headers[0]["Authorization"] == "Bearer KEY"
    assert glmv.config.rule("default") == Rule("math", {"rel_tol": 0.01, "judge": False}, "glm-4.1v")


def test_glmv_without_its_check_for_mixed_languages() -> None:
    config = {
        "enable_mix_verifier": False,
        "reward_configs": {"m": {"verifier_type": "counting"}},
        "datasource_reward_config_mapping": {"default": "m"},
    }
    assert parse(config).rule("default") == Rule("vqa", {"style_penalty": 0.0}, "glm-4.1v")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sourcess": {}}, "no key 'sourcess'"),
        ({"sources": {"a": "maths"}}, "kind must be one of"),
        ({"sources": {"a": {"options": {}}}}, "has a `kind`"),
        ({"sources": {"a": {"kind": "math", "scheme": "x"}}}, "scheme must be one of"),
        ({"judge": "llm"}, "`judge` is rule"),
        ({"judge": {"endpoints": []}}, "needs endpoints"),
        ({"judge": {"endpoints": [{"url": "u", "modell": "m"}]}}, "no key 'modell'"),
        ({"reward_configs": {"a": {"verifier_type": "x"}}}, "verifier_type must be one of"),
        ({"reward_configs": {}, "datasource_reward_config_mapping": {"a": "b"}}, "unknown reward config 'b'"),
        ([], "is a mapping"),
    ],
)
def test_a_wrong_config_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(config)


def test_errors_of_a_file_name_it(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("sources: {a: maths}")
    with pytest.raises(ValueError, match=r"r\.yaml: kind must be one of"):
        load(tmp_path / "r.yaml")
    with pytest.raises(ValueError, match="no verifier for data source 'b'"):
        parse({"sources": {"a": "math"}}).rule("b")


def test_vero_with_its_overlong_penalty() -> None:
    vero = "<think>I add.</think><answer>\\boxed{7}</answer>"
    rule = {"kind": "numeric", "scheme": "vero", "options": {"max_len": 100, "buffer": 20}}
    with RewardSystem({"sources": {"s": rule}}) as system:
        rewards = system.get_reward([""] * 2, [vero] * 2, ["7"] * 2, "s", answer_lengths=[10, 90])
        assert rewards == pytest.approx([1.0, 0.5])
        columns = {"data_source": ["s"], "solution": ["7"], "completion_ids": [[0] * 90]}
        assert TrlReward(system)(["p"], [vero], **columns) == pytest.approx([0.5])
        missing = system.rewards([system.item(vero, "7", "s")])[0]
    assert (missing.total, missing.reason) == (0.0, "unsupported")
    assert "length" in missing.parts["accuracy"].details["error"]


def test_the_judge_is_told_the_question() -> None:
    prompts: list[str] = []

    def judge(prompt: str) -> str:
        prompts.append(prompt)
        return "1"

    with RewardSystem({"sources": {"s": "vqa"}}, judge=judge) as system:
        assert system.get_reward(["What colour is it?"], [BOXED.format("crimson")], ["red"], "s") == [1.0]
    found = blocks(prompts[0])
    assert found is not None
    assert (found.candidate, found.reference) == ("crimson", "red")
    assert "\nQuestion:\nWhat colour is it?\n" in prompts[0]
    assert with_question("no prompt of ours", "q") == "no prompt of ours"


def test_options_of_one_row(system: RewardSystem) -> None:
    row = {"ground_truth": "LANTERN", "options": {"ignore_case": True}}
    assert system.compute_score("glmv/ocr", BOXED.format("lantern"), row)["score"] == 1.0
    assert system.compute_score("glmv/ocr", BOXED.format("lantern"), "LANTERN")["score"] == 0.0


def test_rewards_of_nothing(system: RewardSystem) -> None:
    nothing: list[Reward] = system.rewards([])
    assert nothing == []
