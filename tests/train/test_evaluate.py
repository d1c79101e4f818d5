"""Held-out figures against hand numbers, from answers written by hand."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from glmv.data.process import Processor
from glmv.data.types import Completion, Prompt, Sample
from glmv.model import Glm4v
from glmv.train import evaluate as evaluate_module
from glmv.train.config import EvalConfig, SamplingConfig
from glmv.train.evaluate import evaluate
from glmv.train.score import score_group

Tiny = tuple[Glm4v, Processor]


def answer(text: str, processor: Processor) -> Completion:
    """A sampled answer with its end token."""
    tokens = processor.response_tokens(text)
    nothing = torch.zeros(len(tokens))
    return Completion("", 0, tokens, nothing, nothing.bool(), "stop")


def boxed(value: str, thinking: str = "4") -> str:
    return f"<think>{thinking}</think><answer><|begin_of_box|>{value}<|end_of_box|></answer>"


@pytest.fixture
def sums(samples: list[Sample]) -> list[Sample]:
    return [s for s in samples if s.domain == "math"][:2]


def truth(sample: Sample) -> str:
    return str(sample.reward_model["ground_truth"])


def test_figures_by_hand(
    tiny: Tiny, sums: list[Sample], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, processor = tiny
    first, second = sums
    right, wrong, bare = boxed(truth(first)), boxed("99"), "<think>4</think><answer>4</answer>"

    def generate(
        model: Glm4v,
        processor: Processor,
        prompts: Sequence[Prompt],
        n: int,
        sampling: SamplingConfig,
        seed: int,
    ) -> list[list[Completion]]:
        if sampling.temperature == 0:
            texts = {first.id: [right], second.id: [wrong]}
        else:
            texts = {first.id: [wrong, right, bare, right], second.id: [wrong] * 4}
        return [[answer(t, processor) for t in texts[p.sample.id]] for p in prompts]

    monkeypatch.setattr(evaluate_module, "generate", generate)
    row, examples = evaluate(model, processor, sums, data_dir, EvalConfig(group_size=4, batch_prompts=1), "x")
    f = row.overall
    assert (f.n, f.mean, f.greedy, f.best, f.format) == (2, 2 / 8, 1 / 2, 1 / 2, 7 / 8)
    lengths = [answer(t, processor).tokens.numel() for t in (right, wrong, bare)]
    assert f.length == (2 * lengths[0] + 5 * lengths[1] + lengths[2]) / 8
    assert f.chance == pytest.approx(sum(s.extra_info["chance"] for s in sums) / 2)
    assert row.domains == {"math": f}
    assert [(e["reward"], e["reason"], e["reference"]) for e in examples] == [
        (0.0, "wrong", truth(first)),
        (0.0, "wrong", truth(second)),
    ]


def test_a_score_reads_the_answer_without_its_end_token(
    tiny: Tiny, sums: list[Sample], prompts: list[Prompt], data_dir: Path
) -> None:
    processor = tiny[1]
    prompt = processor.prompt(sums[0], data_dir)
    texts = [boxed(truth(sums[0])), boxed(truth(sums[0]), thinking=""), "<think>4</think><answer>4</answer>"]
    ok, silent, bare = score_group(prompt, [answer(t, processor) for t in texts], processor)
    assert "<|user|>" not in ok.text
    assert (ok.reward, ok.reason, ok.format_ok, ok.thinking) == (1.0, "ok", True, True)
    assert (silent.reward, silent.thinking) == (1.0, False)
    assert (bare.reward, bare.reason, bare.format_ok) == (0.0, "no_box", False)


def test_an_image_in_the_row_stays_there(tiny: Tiny, sums: list[Sample], data_dir: Path) -> None:
    assert evaluate_module._located("data:image;base64,AA/B", data_dir) == "data:image;base64,AA/B"
    assert evaluate_module._located("images/1.png", data_dir) == str((data_dir / "images/1.png").resolve())
