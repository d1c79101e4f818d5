"""Rollouts: log-probs are the trainer's own; budgets, inserted tokens, allowed tokens, determinism."""

import pytest
import torch

from glmv import ops
from glmv.data import pack_rows, row
from glmv.data.process import Processor
from glmv.data.types import Completion, Prompt
from glmv.model import Glm4v
from glmv.train.config import SamplingConfig
from glmv.train.rollout import FORBIDDEN_LOGIT, generate, logit_bias, sample
from tests.numeric import ROLLOUT_LOGP_ATOL, five_sigma

Tiny = tuple[Glm4v, Processor]


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [c for group in groups for c in group]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rollout_logp_is_what_the_trainer_computes(
    tiny: Tiny, prompts: list[Prompt], temperature: float
) -> None:
    model, processor = tiny
    sampling = SamplingConfig(temperature=temperature, think_tokens=5, answer_tokens=6)
    groups = generate(model, processor, prompts, 3, sampling, seed=1)
    rows = [row(p, c.tokens, ~c.forced) for p, group in zip(prompts, groups, strict=True) for c in group]
    batch = pack_rows(rows)
    bias = logit_bias(processor, model.lm_head_weight.shape[0])
    logp, _ = ops.linear_logp(
        model(batch).hidden[batch.rows],
        model.lm_head_weight,
        batch.labels,
        temperature=temperature,
        logit_bias=bias,
    )
    rollout = torch.cat([c.logp[~c.forced] for c in flat(groups)])
    assert (logp - rollout).abs().max() < ROLLOUT_LOGP_ATOL


def test_a_thinking_part_over_its_budget_gets_its_end_inserted(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, processor = tiny
    think_end = processor.tokenizer.id("</think>")
    groups = generate(model, processor, prompts, 4, SamplingConfig(think_tokens=2, answer_tokens=3), seed=5)
    forced = [c for c in flat(groups) if bool(c.forced.any())]
    assert forced  # a random model hardly ever ends its thinking within two tokens
    for c in forced:
        assert c.forced.nonzero().tolist() == [[2]]
        assert int(c.tokens[2]) == think_end
        assert float(c.logp[2]) == 0.0
        assert think_end not in c.tokens[:2].tolist()
        assert c.finish in ("forced", "length")
        assert c.tokens.numel() <= 2 + 1 + 3


def test_finish_says_how_an_answer_ended(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, processor = tiny
    groups = generate(model, processor, prompts, 8, SamplingConfig(think_tokens=4, answer_tokens=4), seed=2)
    for c in flat(groups):
        ended = int(c.tokens[-1]) in processor.stop_ids
        assert ended == (c.finish != "length")
        assert (c.finish == "forced") == (ended and bool(c.forced.any()))
        assert not any(int(t) in processor.stop_ids for t in c.tokens[:-1])


def test_only_answer_tokens_are_sampled(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, processor = tiny
    vocab = model.lm_head_weight.shape[0]
    bias = logit_bias(processor, vocab)
    for name in ("<|image|>", "<|video|>", "<|assistant|>", "<|begin_of_image|>", "[gMASK]"):
        assert bias[processor.tokenizer.id(name)] == FORBIDDEN_LOGIT
    for name in ("<think>", "</think>", "<|begin_of_box|>", "<|user|>", "7", "red"):
        assert bias[processor.tokenizer.id(name)] == 0
    model.lm_head.weight.data.zero_()  # every allowed token alike
    groups = generate(model, processor, prompts, 8, SamplingConfig(think_tokens=8, answer_tokens=8), seed=3)
    seen = torch.cat([c.tokens for c in flat(groups)])
    assert (bias[seen] == 0).all()


def test_same_seed_same_answers_other_seed_others(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, processor = tiny
    sampling = SamplingConfig(think_tokens=6, answer_tokens=6)
    a, b, c = (flat(generate(model, processor, prompts, 2, sampling, seed=s)) for s in (1, 1, 2))
    assert all(torch.equal(x.tokens, y.tokens) and torch.equal(x.logp, y.logp) for x, y in zip(a, b))
    assert not all(torch.equal(x.tokens, y.tokens) for x, y in zip(a, c))


def test_greedy_does_not_depend_on_the_company(tiny: Tiny, prompts: list[Prompt]) -> None:
    # also: rows that leave the batch early do not disturb the others
    model, processor = tiny
    greedy = SamplingConfig(temperature=0.0, think_tokens=6, answer_tokens=6)
    together = flat(generate(model, processor, prompts, 1, greedy, seed=0))
    alone = [generate(model, processor, [p], 1, greedy, seed=0)[0][0] for p in prompts]
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(together, alone, strict=True))


def test_no_prompts_no_answers(tiny: Tiny) -> None:
    assert generate(*tiny, [], 4, SamplingConfig(), seed=0) == []


def test_sample_draws_from_the_softmax() -> None:
    n = 40_000
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    generator = torch.Generator().manual_seed(0)
    tokens, logp = sample(p.log().expand(n, 4), SamplingConfig(), generator)
    assert torch.allclose(logp, p.log()[tokens])
    counts = torch.bincount(tokens, minlength=4)
    assert all(abs(int(counts[i]) - n * float(p[i])) < five_sigma(n, float(p[i])) for i in range(4))


def test_temperature_flattens() -> None:
    n = 40_000
    p = torch.tensor([0.8, 0.2])  # at temperature 2: sqrt(.8) : sqrt(.2) = 2 : 1
    tokens, _ = sample(
        p.log().expand(n, 2), SamplingConfig(temperature=2.0), torch.Generator().manual_seed(0)
    )
    assert abs(int((tokens == 0).sum()) - n * 2 / 3) < five_sigma(n, 2 / 3)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    n = 20_000
    p = torch.tensor([0.15, 0.5, 0.05, 0.3])  # 0.5 + 0.3 reaches 0.8; renormalised to 5/8, 3/8
    tokens, logp = sample(p.log().expand(n, 4), SamplingConfig(top_p=0.8), torch.Generator().manual_seed(0))
    assert set(tokens.tolist()) == {1, 3}
    assert abs(int((tokens == 1).sum()) - n * 5 / 8) < five_sigma(n, 5 / 8)
    assert torch.allclose(logp, p.log()[tokens])  # under the full distribution


def test_temperature_zero_is_the_argmax() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    tokens, _ = sample(logits, SamplingConfig(temperature=0.0), torch.Generator())
    assert tokens.tolist() == [1, 0]
