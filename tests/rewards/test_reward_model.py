"""Reward models: a tiny checkpoint made here, and an endpoint on a loopback port."""

import math

import pytest
import torch

from glmv.rewards import JudgeError
from glmv.rewards.judge_http import RequestFailed, read_score
from glmv.rewards.reward_model import CheckpointReward, EndpointReward, Normalisation, reward_model
from glmv.rewards.system import RewardSystem
from tests.numeric import REWARD_MODEL_ABS
from tests.rewards.judge_server import serving

WORDS = ["[PAD]", "[UNK]", "[EOS]", "what", "is", "it", "a", "red", "kettle", "blue", "</s>"]
OPEN = "<think>I look.</think><answer>{}</answer>"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama of two layers with one label, and a tokenizer of words."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    folder = str(tmp_path_factory.mktemp("rm"))
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
        num_labels=1, pad_token_id=0,
    )  # fmt: skip
    transformers.LlamaForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_checkpoint_against_the_model_itself(checkpoint: str) -> None:
    transformers = pytest.importorskip("transformers")
    answers = ["a red kettle", "blue", "it is a blue kettle"]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    with torch.no_grad():
        raw = [
            float(model(torch.tensor([tokenizer("what is it", answer)["input_ids"]])).logits)
            for answer in answers
        ]
    got = CheckpointReward(checkpoint, Normalisation("sigmoid", center=0.1, width=0.5), batch=2)(
        ["what is it"] * 3, answers
    )
    want = [1 / (1 + math.exp(-(value - 0.1) / 0.5)) for value in raw]
    assert got == pytest.approx(want, abs=REWARD_MODEL_ABS)
    assert len({round(value, 6) for value in want}) == 3


def test_an_answer_that_does_not_fit_gets_nothing(checkpoint: str) -> None:
    model = CheckpointReward(checkpoint, Normalisation())
    assert model(["what"] * 2, ["kettle " * 100, "a"])[0] == 0.0


@pytest.mark.parametrize(
    ("raw", "value"),
    [(0.0, 0.5), (1000.0, 1.0), (-1000.0, 0.0), (math.log(3), 0.75), (math.nan, None), (math.inf, None)],
)
def test_sigmoid(raw: float, value: float | None) -> None:
    got = Normalisation()(raw)
    assert isinstance(got, JudgeError) if value is None else got == pytest.approx(value)


def test_linear() -> None:
    scale = Normalisation("linear", low=-2, high=2)
    assert [scale(raw) for raw in (-3, -2, 0, 1, 9)] == [0, 0, 0.5, 0.75, 1]
    for wrong in ({"kind": "softmax"}, {"width": 0}, {"low": 1.0, "high": 1.0}):
        with pytest.raises(ValueError, match="normalisation"):
            Normalisation(**wrong)


@pytest.mark.parametrize(
    ("reply", "raw"),
    [
        ('{"data": [{"score": 2}]}', 2.0),
        ('{"data": [{"data": [0.5]}]}', 0.5),
        ('{"data": [{"data": [[1, 3]]}]}', 3.0),
    ],
)
def test_replies_of_servers(reply: str, raw: float) -> None:
    assert float(read_score(reply.encode()).text) == raw


@pytest.mark.parametrize(
    "reply", ["", "{}", '{"data": []}', '{"data": [{"score": "1"}]}', '{"data": [{"score": true}]}']
)
def test_replies_without_a_score(reply: str) -> None:
    with pytest.raises(RequestFailed):
        read_score(reply.encode())


def test_an_endpoint_and_the_system_around_it() -> None:
    def plan(number: int, prompt: str) -> str:
        return 'raw:{"data": [{"score": -1.0986122886681098}]}' if number == 0 else "status:500"

    with serving(plan) as server:
        config = {
            "sources": {"chat": {"kind": "vqa", "options": {"verifiable": False}}, "read": "vqa"},
            "judge": "rule",
            "reward_model": {"url": server.url + "/pooling", "model": "rm", "attempts": 1, "concurrency": 1},
        }
        with RewardSystem(config) as system:
            items = [
                system.item(OPEN.format("A red kettle."), "", "chat", "What is it?"),
                system.item(OPEN.format("<|begin_of_box|>red<|end_of_box|>"), "", "chat", "What is it?"),
                system.item(OPEN.format("<|begin_of_box|>the kettle<|end_of_box|>"), "a kettle", "read"),
            ]
            first, boxed, judged = system.rewards(items)
            down = system.rewards([system.item(OPEN.format("Blue."), "", "chat", "What is it?")])[0]
    assert first.total == pytest.approx(0.25, abs=REWARD_MODEL_ABS)
    assert first.parts["accuracy"].details["judge"] == "reward_model"
    assert server.bodies[0]["messages"][0]["content"] == "What is it?"
    assert server.bodies[0]["messages"][1]["content"] == "A red kettle."
    assert (boxed.total, judged.total) == (0.0, 1.0)
    assert down.masked
    assert len(server.bodies) == 2


def test_from_a_config(checkpoint: str) -> None:
    assert isinstance(
        reward_model({"checkpoint": checkpoint, "normalise": {"center": 1.0}}), CheckpointReward
    )
    made = reward_model({"url": "http://127.0.0.1:9/pooling", "model": "m", "timeout": 1.0})
    assert isinstance(made, EndpointReward)
    made.close()
