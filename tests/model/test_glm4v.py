"""The forward and backward pass against transformers, packing, precision and the errors of a bad batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Glm4vForConditionalGeneration as HF

from glmv import ops
from glmv.data.types import IMAGE, VIDEO, PackedBatch
from glmv.model import Glm4v
from glmv.model.vision import VisionTower, WindowLinear
from tests.model.cases import Part, batch_of, example, text_batch
from tests.numeric import MODEL_BF16_RATIO, MODEL_GRAD_RTOL, MODEL_LOGITS_ATOL

SAMPLES: dict[str, list[Part]] = {
    "text": [23],
    "two sizes of image": [5, (4, 6), 3, (8, 4), 4],
    "image at both ends": [(2, 2), 1, (6, 6)],
    "video": [3, (3, 4, 4), 6],
    "two videos": [2, (2, 4, 2), 3, (1, 2, 8), 2],
}


def logits(model: Glm4v, batch: PackedBatch) -> Tensor:
    return model(batch).hidden @ model.lm_head_weight.T


def split(x: Tensor, batch: PackedBatch) -> list[Tensor]:
    return list(x.split(batch.cu_seqlens.diff().tolist()))


# ---- against transformers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
@torch.no_grad()
def test_logits_equal_transformers(hf: HF, model: Glm4v, name: str) -> None:
    sample = example(SAMPLES[name], seed=1)
    want = hf(**sample.hf_inputs()).logits[0]
    torch.testing.assert_close(logits(model, batch_of([sample], hf)), want, atol=MODEL_LOGITS_ATOL, rtol=0)


@torch.no_grad()
def test_packed_logits_equal_transformers_one_by_one(hf: HF, model: Glm4v) -> None:
    samples = [example(parts, seed=i) for i, parts in enumerate(SAMPLES.values())]
    batch = batch_of(samples, hf)
    for got, sample in zip(split(logits(model, batch), batch), samples, strict=True):
        want = hf(**sample.hf_inputs()).logits[0]
        torch.testing.assert_close(got, want, atol=MODEL_LOGITS_ATOL, rtol=0)


@torch.no_grad()
def test_packed_logits_equal_transformers_with_left_padding(hf: HF, model: Glm4v) -> None:
    samples = [example([5, (4, 6), 9], seed=1), example([(2, 4), 4], seed=2)]
    batch = batch_of(samples, hf)
    longest = batch.max_seqlen
    inputs = [s.hf_inputs() for s in samples]
    padded = {
        name: torch.cat([torch.nn.functional.pad(x[name], (longest - x[name].shape[1], 0)) for x in inputs])
        for name in ("input_ids", "mm_token_type_ids")
    }
    mask = torch.arange(longest) >= longest - batch.cu_seqlens.diff()[:, None]
    images = {"pixel_values": batch.patches, "image_grid_thw": batch.grid}
    want = hf(**padded, **images, attention_mask=mask.int()).logits[mask]
    torch.testing.assert_close(logits(model, batch), want, atol=MODEL_LOGITS_ATOL, rtol=0)


@torch.no_grad()
def test_images_and_video_in_one_sample(hf: HF, model: Glm4v) -> None:
    """transformers' own forward refuses the mixture, so its towers are fed by hand."""
    sample = example([3, (4, 4), 2, (2, 4, 2), 3, (2, 6), 4], seed=4)
    parts = sample.patches.split(sample.grid.prod(1).tolist())
    x = hf.model.language_model.embed_tokens(sample.tokens)
    for kind, features in ((IMAGE, hf.model.get_image_features), (VIDEO, hf.model.get_video_features)):
        patches = torch.cat([p for p, k in zip(parts, sample.kind, strict=True) if k == kind])
        x[sample.modality == kind] = torch.cat(
            features(patches, sample.grid[sample.kind == kind]).pooler_output
        )
    pos = sample.positions(hf).long()[:, None]
    want = hf(inputs_embeds=x[None], position_ids=pos).logits[0]
    torch.testing.assert_close(logits(model, batch_of([sample], hf)), want, atol=MODEL_LOGITS_ATOL, rtol=0)


def test_gradients_equal_transformers(hf: HF, model: Glm4v) -> None:
    samples = [example(SAMPLES["two sizes of image"], seed=1), example(SAMPLES["video"], seed=2)]
    batch = batch_of(samples, hf)
    direction = torch.randn(len(batch.tokens), 512, generator=torch.Generator().manual_seed(0))
    hf.zero_grad()
    for sample, d in zip(samples, split(direction, batch), strict=True):
        (hf(**sample.hf_inputs()).logits[0] * d).sum().backward()
    (logits(model, batch) * direction).sum().backward()
    want = {name: p.grad for name, p in hf.named_parameters()}
    got = gradients(model)
    assert got.keys() == want.keys()
    for name, grad in got.items():
        assert (grad - want[name]).norm() <= MODEL_GRAD_RTOL * want[name].norm(), name


def gradients(model: Glm4v) -> dict[str, Tensor]:
    """Gradients with the shapes of transformers' parameters."""
    grads = {name: p.grad for name, p in model.named_parameters()}
    for name, module in model.named_modules():
        if isinstance(module, WindowLinear):
            out, channels, *window = module.conv_shape
            grad = grads[f"{name}.weight"]
            first = module.channels_first
            conv = grad.view(module.conv_shape) if first else grad.view(out, *window, channels).movedim(-1, 1)
            grads[f"{name}.weight"] = conv
    return grads


# ---- packing -------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_sample_cannot_see_its_neighbours(hf: HF, model: Glm4v) -> None:
    """Bit for bit: other tokens, other pixels in one sample leave the hidden states of the others alone."""
    samples = [example([4, (4, 6), 5], seed=1), example([6, (4, 4), 3], seed=2), example([9], seed=3)]
    other = example([6, (4, 4), 3], seed=9)
    before = batch_of(samples, hf)
    after = batch_of([samples[0], other, samples[2]], hf)
    first, second = split(model(before).hidden, before), split(model(after).hidden, after)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[2], second[2])
    assert not torch.equal(first[1], second[1])


@torch.no_grad()
def test_rows_that_share_an_image_need_its_features_once(
    hf: HF, model: Glm4v, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [example([4, (4, 6), 5], seed=1)] * 2 + [example([2, (4, 4), 3], seed=2)]
    full = batch_of(samples, hf)
    keep = torch.cat((torch.arange(24), torch.arange(48, 64)))  # patches of the second copy dropped
    shared = replace(
        full,
        patches=full.patches[keep],
        grid=full.grid[[0, 2]],
        vis_cu_seqlens=torch.tensor([0, 24, 40], dtype=torch.int32),
        visual_index=torch.cat((torch.arange(6), torch.arange(6), torch.arange(6, 10))),
    )
    seen = []
    original = VisionTower.forward
    monkeypatch.setattr(VisionTower, "forward", lambda self, *a: seen.append(len(a[0])) or original(self, *a))
    got = model(shared).hidden
    assert seen == [40]
    torch.testing.assert_close(got, model(full).hidden, atol=MODEL_LOGITS_ATOL, rtol=0)


@torch.no_grad()
def test_kernels_are_told_the_longest_segment(hf: HF, model: Glm4v, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest frame of the images and videos (not of a video's patches together), the longest sample."""
    attention, seen = ops.attention, []

    def record(*args: Tensor, max_seqlen: int, **options: Any) -> Tensor:
        seen.append(max_seqlen)
        return attention(*args, max_seqlen=max_seqlen, **options)

    monkeypatch.setattr(ops, "attention", record)
    batch = batch_of([example([4, (4, 6), 5], seed=1), example([(3, 4, 4), 9], seed=2)], hf)
    model(batch)
    assert seen == [24, 24, batch.max_seqlen, batch.max_seqlen]


def test_gradients_of_a_shared_image_add_up(hf: HF, model: Glm4v) -> None:
    one = batch_of([example([4, (4, 6), 5], seed=1)], hf)
    two = batch_of([example([4, (4, 6), 5], seed=1)] * 2, hf)
    shared = replace(
        two,
        patches=one.patches,
        grid=one.grid,
        vis_cu_seqlens=one.vis_cu_seqlens,
        visual_index=one.visual_index.repeat(2),
    )
    grads = []
    for batch in (two, shared):
        model.zero_grad()
        logits(model, batch).square().sum().backward()
        grads.append(model.model.visual.patch_embed.proj.weight.grad.clone())
    assert (grads[1] - grads[0]).norm() <= MODEL_GRAD_RTOL * grads[0].norm()


# ---- precision -----------------------------------------------------------------------------------------


@torch.no_grad()
def test_bf16_is_not_worse_than_transformers(hf: HF, hf_dir: Path, model: Glm4v) -> None:
    """Mean error against fp32 logits, positions up to 3000. HF.from_pretrained keeps its frequencies fp32."""
    sample = example([40, (4, 6), 30, (8, 4), 20], seed=1)
    batch = batch_of([sample], hf)
    pos = batch.pos * 30  # far positions, where coarse angles would show
    truth = logits(model, replace(batch, pos=pos))
    low = HF.from_pretrained(hf_dir, dtype=torch.bfloat16, attn_implementation="eager")
    theirs = low(**sample.hf_inputs(), position_ids=pos.long()[:, None]).logits[0].float()
    ours = logits(Glm4v.from_pretrained(hf_dir, dtype=torch.bfloat16), replace(batch, pos=pos)).float()
    error, bound = (ours - truth).abs().mean(), (theirs - truth).abs().mean()
    assert error <= MODEL_BF16_RATIO * bound


@torch.no_grad()
def test_casting_the_module_leaves_the_rope_alone(hf: HF, hf_dir: Path, model: Glm4v) -> None:
    """transformers' frequencies are a buffer that `.to(bfloat16)` ruins: off by 0.7 at position 4096."""
    batch = batch_of([example([40, (4, 6), 30], seed=1)], hf)
    far = replace(batch, pos=batch.pos * 100)
    cast = model.to(torch.bfloat16)
    loaded = Glm4v.from_pretrained(hf_dir, dtype=torch.bfloat16)
    assert torch.equal(cast(far).hidden, loaded(far).hidden)
    back = cast.to(torch.float32)(far).hidden  # bf16 weights, exact angles
    for p in loaded.parameters():
        p.data = p.data.float()
    assert torch.equal(back, loaded(far).hidden)


@torch.no_grad()
def test_double_precision_agrees_with_single(hf: HF, model: Glm4v) -> None:
    batch = batch_of([example(SAMPLES["two sizes of image"], seed=1)], hf)
    single = logits(model, batch)
    double = logits(model.double(), batch)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, atol=MODEL_LOGITS_ATOL, rtol=0)


# ---- bad batches ---------------------------------------------------------------------------------------

INT = torch.int32
BAD: list[tuple[dict[str, Any], str]] = [
    ({"tokens": torch.zeros(17, dtype=INT)}, r"tokens must be \[T\] int64"),
    ({"pos": torch.zeros(2, 17, dtype=INT)}, r"pos must be \[3, T=17\] int32\|int64 on cpu, got \[2, 17\]"),
    ({"modality": torch.zeros(16, dtype=torch.int8)}, r"modality must be \[T=17\] int8 on cpu, got \[16\]"),
    ({"visual_index": torch.arange(7)}, r"visual_index must be \[6\]: one entry for each token with"),
    ({"patches": torch.zeros(23, 1176)}, r"patches must be \[patches of grid=24, 1176\].*got \[23, 1176\]"),
    ({"grid": torch.tensor([[1, 3, 8]])}, r"grid must be .* multiples of 2, got \[1, 3, 8\]"),
    ({"grid": torch.tensor([[2, 4, 6]])}, r"patches must be \[patches of grid=48, 1176\]"),
    ({"vis_cu_seqlens": torch.tensor([0, 12, 24], dtype=INT)}, r"vis_cu_seqlens must be \[frames of grid"),
    ({"cu_seqlens": torch.tensor([0, 18], dtype=INT)}, r"cu_seqlens must be bounds that end at most at 17"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m.split(" ")[0] for _, m in BAD])
def test_a_batch_that_does_not_fit_names_its_field(
    hf: HF, model: Glm4v, change: dict[str, Any], message: str
) -> None:
    batch = batch_of([example([4, (4, 6), 5], seed=1)], hf)
    assert len(batch.tokens) == 17
    with pytest.raises((ValueError, TypeError), match="Glm4v: " + message):
        model(replace(batch, **change))


def test_an_image_token_without_features_is_an_error(model: Glm4v) -> None:
    batch = text_batch([[1, 2, 3]], [[0, 1, 2]])
    marked = replace(batch, modality=torch.tensor([0, 1, 0], dtype=torch.int8))
    with pytest.raises(ValueError, match=r"visual_index must be \[1\]"):
        model(marked)


def test_a_dense_model_has_no_routing_to_replay(model: Glm4v) -> None:
    with pytest.raises(ValueError, match="replay must be None"):
        model(text_batch([[1]], [[0]]), replay=torch.zeros(1, 2, dtype=torch.int32))
