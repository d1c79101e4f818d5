"""The gradient of a step does not depend on its packing; denominators by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glmv.data import pack_rows, row
from glmv.data.process import Processor
from glmv.data.types import PackedBatch, Prompt, Row
from glmv.model import Glm4v
from glmv.train.config import LossConfig, OptimConfig
from glmv.train.optim import Optimizer, lr_factor
from glmv.train.rollout import logit_bias
from glmv.train.step import loss_denominator, micro_steps, policy_loss, supervised_loss, train_step
from tests.numeric import LOSS_RTOL, PACKING_GRAD_RTOL

Tiny = tuple[Glm4v, Processor]


def answers(prompts: list[Prompt], n: int) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for p in prompts:
        for _ in range(n):
            length = int(torch.randint(1, 9, (), generator=generator))
            tokens = torch.randint(15, 60, (length,), generator=generator)
            keep = torch.rand(length, generator=generator) > 0.2
            logp_old = -3 * torch.rand(int(keep.sum()), generator=generator)
            rows.append(row(p, tokens, keep, logp_old, float(torch.randn((), generator=generator))))
    return rows


def gradients(tiny: Tiny, rows: list[Row], loss: object, capacity: int) -> dict[str, torch.Tensor]:
    """Gradients of one step at an unclipped, zero-size update."""
    model, _ = tiny
    caught: dict[str, torch.Tensor] = {}

    class Catch(Optimizer):
        def step(self, step: int) -> dict[str, float]:
            caught.update({n: p.grad.clone() for n, p in model.named_parameters()})  # type: ignore[union-attr]
            model.zero_grad()
            return {"grad_norm": 0.0, "lr": 0.0}

    report = train_step(model, Catch(model, OptimConfig(), 1), rows, loss, capacity, 0)  # type: ignore[arg-type]
    assert report.micro_steps == len(micro_steps(rows, capacity))
    return caught


@pytest.mark.parametrize("agg", ["sample", "token", "constant"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_policy_gradient_does_not_depend_on_packing(
    tiny: Tiny, prompts: list[Prompt], agg: str, level: str
) -> None:
    model, processor = tiny
    rows = answers(prompts[:4], 3)
    config = LossConfig(agg=agg, level=level)  # type: ignore[arg-type]
    bias = logit_bias(processor, model.lm_head_weight.shape[0])
    loss = policy_loss(model, config, loss_denominator(config, rows), 1.0, bias)
    whole = gradients(tiny, rows, loss, 100_000)
    for capacity in (80, 200):
        packed = gradients(tiny, rows, loss, capacity)
        for name, grad in whole.items():
            error = (packed[name] - grad).norm() / grad.norm().clamp_min(1e-12)
            assert error < PACKING_GRAD_RTOL, name


def test_supervised_gradient_does_not_depend_on_packing(tiny: Tiny, prompts: list[Prompt]) -> None:
    rows = [replace(r, logp_old=None) for r in answers(prompts[:4], 2)]
    loss = supervised_loss(tiny[0], sum(int(r.keep.sum()) for r in rows))
    whole, packed = gradients(tiny, rows, loss, 100_000), gradients(tiny, rows, loss, 80)
    for name, grad in whole.items():
        assert (packed[name] - grad).norm() < PACKING_GRAD_RTOL * grad.norm().clamp_min(1e-12), name


def test_supervised_loss_is_the_mean_over_all_targets(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, _ = tiny
    rows = [replace(r, logp_old=None) for r in answers(prompts[:3], 1)]
    losses = []
    for r in rows:
        hidden = model(pack_rows([r])).hidden
        logits, targets = (hidden @ model.lm_head_weight.T)[:-1], r.tokens[1:]
        losses.append(
            torch.nn.functional.cross_entropy(logits[r.keep[1:]], targets[r.keep[1:]], reduction="none")
        )
    optimizer = Optimizer(model, OptimConfig(), 1)
    loss = supervised_loss(model, denom=sum(len(x) for x in losses))
    report = train_step(model, optimizer, rows, loss, 60, 0)
    assert report.micro_steps > 1
    assert report.loss == pytest.approx(float(torch.cat(losses).detach().mean()), rel=LOSS_RTOL)


def test_the_learning_rate_warms_up_and_decays() -> None:
    config = OptimConfig(warmup_steps=4, final_lr_ratio=0.5)
    # (step + 1) / 4 up to 1, times 1 - 0.5 step / 8
    want = [0.25, 0.5 * 15 / 16, 0.75 * 14 / 16, 13 / 16, 12 / 16, 11 / 16, 10 / 16, 9 / 16]
    assert [lr_factor(step, 8, config) for step in range(8)] == want


def test_metrics_of_micro_steps_add_up_and_maxima_do_not(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, _ = tiny

    def loss(hidden: torch.Tensor, batch: PackedBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        size = torch.tensor(float(batch.tokens.numel()))
        return hidden.sum() * 0, {"tokens": size, "tokens_max": size}

    rows = answers(prompts[:4], 1)
    micro = [sum(rows[i].num_tokens for i in members) for members in micro_steps(rows, 60)]
    assert len(micro) > 1
    report = train_step(model, Optimizer(model, OptimConfig(), 1), rows, loss, 60, 0)
    assert report.sums == {"tokens": sum(micro), "tokens_max": max(micro)}
    assert report.bin_fill == sum(micro) / (60 * len(micro))


def test_denominators_by_hand(prompts: list[Prompt]) -> None:
    p = prompts[0]
    keeps = ([True, True, False], [False, False, False], [False, False, True])
    rows = [row(p, torch.tensor([20, 21, 22]), torch.tensor(keep)) for keep in keeps]
    assert loss_denominator(LossConfig(agg="sample"), rows) == 2
    assert loss_denominator(LossConfig(agg="token"), rows) == 3
    assert loss_denominator(LossConfig(agg="constant", constant_length=10), rows) == 20


def test_no_rows_is_an_error(tiny: Tiny) -> None:
    model, _ = tiny
    with pytest.raises(ValueError, match="at least one sequence"):
        train_step(model, Optimizer(model, OptimConfig(), 1), [], supervised_loss(model, 1), 100, 0)


def test_a_row_over_the_capacity_is_an_error(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, _ = tiny
    with pytest.raises(ValueError, match=r"row train-\d+: \d+ tokens exceed capacity_tokens=9"):
        train_step(
            model, Optimizer(model, OptimConfig(), 1), answers(prompts, 1), supervised_loss(model, 1), 9, 0
        )


def test_a_gradient_that_is_not_finite_leaves_the_weights(tiny: Tiny, prompts: list[Prompt]) -> None:
    model, _ = tiny
    before = model.lm_head_weight.detach().clone()
    rows = answers(prompts, 1)
    with pytest.raises(ValueError, match="gradient of optimizer step 3 is not finite"):
        train_step(model, Optimizer(model, OptimConfig(), 1), rows, broken_loss, 1000, 3)
    assert torch.equal(model.lm_head_weight, before)


def broken_loss(hidden: torch.Tensor, batch: PackedBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return hidden.sum() * float("inf"), {}


def fake_rows(lengths: list[int], images: list[int]) -> list[Row]:
    shown = {i: torch.zeros(0, 1176) for i in set(images)}
    empty = torch.zeros(0, 3, dtype=torch.int64)
    return [
        Row(
            sample_id=str(i),
            tokens=torch.zeros(n, dtype=torch.int64),
            pos=torch.zeros(3, n, dtype=torch.int32),
            modality=torch.zeros(n, dtype=torch.int8),
            patches=shown[image],
            grid=empty,
            keep=torch.zeros(n, dtype=torch.bool),
        )
        for i, (n, image) in enumerate(zip(lengths, images, strict=True))
    ]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), min_size=1, max_size=40))
def test_micro_steps_are_a_partition_under_the_capacity(items: list[tuple[int, int]]) -> None:
    lengths = [n for n, _ in items]
    rows = fake_rows(lengths, sorted(i for _, i in items))
    steps = micro_steps(rows, 64)
    assert sorted(i for members in steps for i in members) == list(range(len(rows)))
    assert all(sum(lengths[i] for i in members) <= 64 for members in steps)


def test_answers_to_one_image_share_a_micro_step_while_they_fit() -> None:
    rows = fake_rows([10] * 12, [0] * 4 + [1] * 4 + [2] * 4)
    assert sorted(micro_steps(rows, 40)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_muon_takes_hidden_matrices_alone(tiny: Tiny, tmp_path: Path) -> None:
    model, _ = tiny
    muon, adamw = Optimizer(model, OptimConfig("muon"), 1).parts
    names = {id(p): n for n, p in model.named_parameters()}
    inside = {names[id(p)] for g in muon.param_groups for p in g["params"]}
    outside = {names[id(p)] for g in adamw.param_groups for p in g["params"]}
    assert inside | outside == set(names.values())
    assert "model.language_model.layers.0.mlp.down_proj.weight" in inside
    assert {"lm_head.weight", "model.language_model.embed_tokens.weight"} <= outside
