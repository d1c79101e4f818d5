"""The gradient of a step does not depend on its packing; denominators by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glmv.data import row
from glmv.data.process import Processor
from glmv.data.types import Prompt, Row
from glmv.model import Glm4v
from glmv.train.config import LossConfig, OptimConfig
from glmv.train.optim import Optimizer
from glmv.train.rollout import logit_bias
from glmv.train.step import loss_denominator, micro_steps, policy_loss, supervised_loss, train_step
from tests.numeric import PACKING_GRAD_RTOL

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
    with pytest.raises(ValueError, match="capacity"):
        train_step(
            model, Optimizer(model, OptimConfig(), 1), answers(prompts, 1), supervised_loss(model, 1), 9, 0
        )


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
