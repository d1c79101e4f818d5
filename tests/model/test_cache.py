"""Decoding with a cache against one full pass over the same tokens."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Glm4vForConditionalGeneration as HF

from glmv import ops
from glmv.data.types import PackedBatch
from glmv.model import Cache, Glm4v
from tests.model.cases import Example, Part, batch_of, bounds, example, text_batch
from tests.numeric import MODEL_CACHE_ATOL, MODEL_LOGITS_ATOL

PROMPTS: list[list[Part]] = [[5, (4, 6), 3], [2], [(2, 2), 7]]
ANSWERS = [[11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def prompts() -> list[Example]:
    return [example(parts, seed=i) for i, parts in enumerate(PROMPTS)]


def full_pass(model: Glm4v, hf: HF, prompts: list[Example], answers: list[list[int]]) -> list[Tensor]:
    """Hidden states of each answer's tokens, prompt and answer in one pass."""
    whole = [
        replace(
            p,
            tokens=torch.cat((p.tokens, torch.tensor(a))),
            modality=torch.cat((p.modality, torch.zeros(len(a), dtype=torch.int8))),
        )
        for p, a in zip(prompts, answers, strict=True)
    ]
    batch = batch_of(whole, hf)
    hidden = model(batch).hidden.split(batch.cu_seqlens.diff().tolist())
    return [h[len(p.tokens) :] for h, p in zip(hidden, prompts, strict=True)]


def next_positions(prompts: list[Example], hf: HF) -> list[int]:
    return [int(p.positions(hf).max()) + 1 for p in prompts]


def prefill(model: Glm4v, hf: HF, prompts: list[Example], max_len: int = 40) -> Cache:
    cache = Cache.empty(model.config, len(prompts), max_len, torch.float32, "cpu")
    model(batch_of(prompts, hf), cache)
    return cache


def decode(model: Glm4v, cache: Cache, answers: list[list[int]], start: list[int]) -> list[Tensor]:
    """Feed the answers one token a step; hidden states of each row."""
    steps = []
    for t in range(len(answers[0])):
        batch = text_batch([[a[t]] for a in answers], [[s + t] for s in start])
        steps.append(model(batch, cache).hidden)
    return list(torch.stack(steps, 1))


def close(got: list[Tensor], want: list[Tensor]) -> None:
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, atol=MODEL_CACHE_ATOL, rtol=0)


# ---- decoding ------------------------------------------------------------------------------------------


def test_prefill_gives_the_hidden_states_of_a_plain_pass(
    hf: HF, model: Glm4v, prompts: list[Example]
) -> None:
    cache = Cache.empty(model.config, 3, 40, torch.float32, "cpu")
    batch = batch_of(prompts, hf)
    assert torch.equal(model(batch, cache).hidden, model(batch).hidden)
    assert cache.used.tolist() == [len(p.tokens) for p in prompts]


def test_ragged_prefill_and_decoding_equal_one_full_pass(
    hf: HF, model: Glm4v, prompts: list[Example]
) -> None:
    cache = prefill(model, hf, prompts)
    got = decode(model, cache, ANSWERS, next_positions(prompts, hf))
    close(got, full_pass(model, hf, prompts, ANSWERS))
    assert cache.used.tolist() == [len(p.tokens) + 4 for p in prompts]


def test_decoded_logits_equal_transformers(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    sample, answer = prompts[0], ANSWERS[0]
    tokens = torch.cat((sample.tokens, torch.tensor(answer)))
    types = torch.cat((sample.modality, torch.zeros(len(answer), dtype=torch.int8)))
    want = hf(**replace(sample, tokens=tokens, modality=types).hf_inputs()).logits[0, -len(answer) :]
    hidden = decode(model, prefill(model, hf, [sample]), [answer], next_positions([sample], hf))[0]
    torch.testing.assert_close(hidden @ model.lm_head_weight.T, want, atol=MODEL_LOGITS_ATOL, rtol=0)


def test_several_tokens_at_once_ragged_and_none(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    """On a filled cache: as many tokens as rows, but one row gets two and one none; then a block for all."""
    start = next_positions(prompts, hf)
    cache = prefill(model, hf, prompts)
    blocks = [[ANSWERS[0][:2], [], ANSWERS[2][:1]], [ANSWERS[0][2:], ANSWERS[1], ANSWERS[2][1:]]]
    got: list[list[Tensor]] = [[], [], []]
    for block in blocks:
        done = [sum(len(x) for x in g) for g in got]
        pos = [[s + d + i for i in range(len(b))] for s, d, b in zip(start, done, block, strict=True)]
        batch = text_batch(block, pos)
        hidden = model(batch, cache).hidden.split([len(b) for b in block])
        for g, h in zip(got, hidden, strict=True):
            g.append(h)
    close([torch.cat(g) for g in got], full_pass(model, hf, prompts, ANSWERS))


def test_prompt_in_two_pieces_with_an_image_in_the_second(hf: HF, model: Glm4v) -> None:
    sample = example([6, (4, 6), 5], seed=3)
    batch = batch_of([sample], hf)
    whole = model(batch).hidden
    cache = Cache.empty(model.config, 1, len(batch.tokens), torch.float32, "cpu")
    model(text_batch([sample.tokens[:4].tolist()], [[0, 1, 2, 3]]), cache)
    rest = replace(batch, tokens=batch.tokens[4:], pos=batch.pos[:, 4:], modality=batch.modality[4:])
    rest = replace(rest, cu_seqlens=bounds(torch.tensor([len(rest.tokens)])), max_seqlen=len(rest.tokens))
    close([model(rest, cache).hidden], [whole[4:]])


def test_what_lies_beyond_used_is_never_read(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    cache = prefill(model, hf, prompts)
    for row, used in enumerate(cache.used.tolist()):
        cache.k[:, row, used:] = cache.v[:, row, used:] = float("nan")
    close(decode(model, cache, ANSWERS, next_positions(prompts, hf)), full_pass(model, hf, prompts, ANSWERS))


def test_attention_reads_the_cache_where_it_lies(
    hf: HF, model: Glm4v, prompts: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = prefill(model, hf, prompts)
    attention, seen = ops.attention, []

    def record(q: Tensor, k: Tensor, v: Tensor, *args: object, **options: object) -> Tensor:
        seen.append((k.data_ptr(), v.data_ptr()))
        return attention(q, k, v, *args, **options)

    monkeypatch.setattr(ops, "attention", record)
    decode(model, cache, [a[:1] for a in ANSWERS], next_positions(prompts, hf))
    assert seen == [(k.data_ptr(), v.data_ptr()) for k, v in zip(cache.k, cache.v, strict=True)]


# ---- repeat and select ---------------------------------------------------------------------------------


def test_repeat_gives_each_copy_its_own_row(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    once = prefill(model, hf, prompts, max_len=16)
    cache = once.repeat(2, max_len=20)
    assert (cache.batch_size, cache.max_len) == (6, 20)
    answers = [a if copy == 0 else a[::-1] for a in ANSWERS for copy in range(2)]
    doubled = [p for p in prompts for _ in range(2)]
    got = decode(model, cache, answers, next_positions(doubled, hf))
    close(got, full_pass(model, hf, doubled, answers))
    assert once.used.tolist() == [len(p.tokens) for p in prompts]  # the original is untouched
    close(
        decode(model, once.repeat(1, 20), ANSWERS, next_positions(prompts, hf)),
        full_pass(model, hf, prompts, ANSWERS),
    )


@pytest.mark.parametrize(
    "index", [torch.tensor([2, 0]), torch.tensor([True, False, True])], ids=["index", "mask"]
)
def test_select_keeps_rows(hf: HF, model: Glm4v, prompts: list[Example], index: Tensor) -> None:
    cache = prefill(model, hf, prompts).select(index)
    order = [2, 0] if index.dtype == torch.int64 else [0, 2]
    chosen, answers = [prompts[i] for i in order], [ANSWERS[i] for i in order]
    got = decode(model, cache, answers, next_positions(chosen, hf))
    close(got, full_pass(model, hf, chosen, answers))


def test_select_of_nothing(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    cache = prefill(model, hf, prompts).select(torch.zeros(3, dtype=torch.bool))
    assert cache.batch_size == 0
    assert cache.used.tolist() == []


# ---- room ----------------------------------------------------------------------------------------------


def test_overflow_raises_and_changes_nothing(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    longest = max(len(p.tokens) for p in prompts)
    cache = prefill(model, hf, prompts, max_len=longest + 1)
    start = next_positions(prompts, hf)
    decode(model, cache, [a[:1] for a in ANSWERS], start)
    used, keys = cache.used.clone(), cache.k.clone()
    with pytest.raises(ValueError, match=rf"max_len must be at least {longest + 2} for the longest row, got"):
        decode(model, cache, [a[1:2] for a in ANSWERS], [s + 1 for s in start])
    assert torch.equal(cache.used, used)
    assert torch.equal(cache.k, keys)


def test_room_is_counted_by_row(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    """The longest row gets nothing, a short one much: fits, though longest + most does not."""
    longest = max(len(p.tokens) for p in prompts)
    cache = prefill(model, hf, prompts, max_len=longest)
    model(text_batch([[], [1] * 5, []], [[], list(range(5)), []]), cache)
    assert cache.used.tolist() == [len(prompts[0].tokens), 7, len(prompts[2].tokens)]
    with pytest.raises(ValueError, match="max_len"):
        cache.repeat(2, longest - 1)


def test_a_failed_pass_leaves_the_count(hf: HF, model: Glm4v, prompts: list[Example]) -> None:
    cache = prefill(model, hf, prompts)
    used = cache.used.clone()
    with pytest.raises(ValueError, match=r"cu_seqlens must be \[4\]: one segment for each row"):
        model(text_batch([[1]], [[0]]), cache)
    with pytest.raises(TypeError, match=r"cache.k must be .* float64"):
        model.double()(text_batch([[1]] * 3, [[0]] * 3), cache)
    assert torch.equal(cache.used, used)


def test_a_cache_is_for_inference(model: Glm4v) -> None:
    cache = Cache.empty(model.config, 1, 4, torch.float32, "cpu")
    batch: PackedBatch = text_batch([[1]], [[0]])
    with torch.enable_grad(), pytest.raises(ValueError, match=r"cache must be used under torch.no_grad"):
        model(batch, cache)


def test_tables_made_in_inference_mode_serve_training(hf_dir: Path) -> None:
    """A rollout in inference mode may come before the first training step on a device."""
    with torch.inference_mode():
        model = Glm4v.from_pretrained(hf_dir)
        rope = model.model.language_model.rope
        tables = [*rope.tables(torch.device("cpu")), *rope.tables(torch.device("meta"))]
    assert not any(t.is_inference() for t in tables)
