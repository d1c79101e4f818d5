"""Checkpoints: transformers' files in, our files into transformers, and what a broken checkpoint says."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Glm4vForConditionalGeneration as HF

from glmv.model import Glm4v, load
from tests.model.cases import batch_of, example
from tests.numeric import MODEL_LOGITS_ATOL

LAYER = "model.language_model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def copy(hf_dir: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may break."""
    return Path(shutil.copytree(hf_dir, tmp_path / "copy"))


def edit(directory: Path, **changes: Tensor | None) -> None:
    """Set (or, None, drop) tensors of model.safetensors; `__` in a name stands for a dot."""
    tensors = load_file(directory / "model.safetensors")
    for name, tensor in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def same_state(model: Glm4v, hf: HF) -> None:
    state = model.state_dict()
    want = hf.state_dict()
    assert state.keys() == want.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in want.items())


# ---- there and back ------------------------------------------------------------------------------------


def test_state_dict_has_the_names_shapes_and_values_of_transformers(hf: HF, model: Glm4v) -> None:
    same_state(model, hf)


def test_load_state_dict_takes_a_transformers_state(hf: HF, model: Glm4v) -> None:
    other = Glm4v(model.config)
    other.load_state_dict(hf.state_dict())
    same_state(other, hf)


@torch.no_grad()
def test_our_files_load_in_transformers(hf: HF, model: Glm4v, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    loaded, info = HF.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    sample = example([5, (4, 6), 3, (8, 4), 4], seed=1)
    want = hf(**sample.hf_inputs()).logits
    torch.testing.assert_close(loaded(**sample.hf_inputs()).logits, want, atol=MODEL_LOGITS_ATOL, rtol=0)
    ours = Glm4v.from_pretrained(tmp_path)
    got = ours(batch_of([sample], hf)).hidden @ ours.lm_head_weight.T
    torch.testing.assert_close(got, want[0], atol=MODEL_LOGITS_ATOL, rtol=0)
    assert ours.config == model.config


def test_shards_both_ways(hf: HF, model: Glm4v, tmp_path: Path) -> None:
    hf.save_pretrained(tmp_path / "theirs", max_shard_size="500KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    same_state(Glm4v.from_pretrained(tmp_path / "theirs"), hf)
    model.save_pretrained(tmp_path / "ours", max_shard_bytes=500_000)
    shards = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert shards[0].name == f"model-00001-of-{len(shards):05d}.safetensors"
    assert max(sum(t.nbytes for t in load_file(s).values()) for s in shards) <= 500_000
    same_state(Glm4v.from_pretrained(tmp_path / "ours"), hf)
    loaded, info = HF.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    same_state(model, loaded)


def test_dtype_is_kept_or_cast_and_written(model: Glm4v, hf_dir: Path, tmp_path: Path) -> None:
    low = Glm4v.from_pretrained(hf_dir, dtype=torch.bfloat16)
    assert {p.dtype for p in low.parameters()} == {torch.bfloat16}
    low.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert {p.dtype for p in Glm4v.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
    assert {p.dtype for p in HF.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
    assert all(p.requires_grad for p in low.parameters())
    wide = Glm4v.from_pretrained(tmp_path, dtype=torch.float32)
    for (name, p), q in zip(model.named_parameters(), wide.parameters(), strict=True):
        assert torch.equal(p.bfloat16().float(), q), name


def test_the_loaded_model_does_not_depend_on_the_file(copy: Path, hf: HF) -> None:
    """Weights are memory of their own: another writer of the same file does not change a live model."""
    model = Glm4v.from_pretrained(copy)
    path = copy / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(path.stat().st_size // 2))
    same_state(model, hf)


# ---- what is skipped, what is refused ------------------------------------------------------------------


def test_layers_past_the_last_are_skipped(copy: Path, hf: HF) -> None:
    edit(copy, model__language_model__layers__2__eh_proj__weight=torch.zeros(3))
    same_state(Glm4v.from_pretrained(copy), hf)


def test_one_error_lists_everything_that_does_not_fit(copy: Path) -> None:
    edit(
        copy,
        lm_head__weight=None,
        model__language_model__norm__weight=None,
        model__visual__downsample__weight=torch.zeros(128, 64, 4),
        model__visual__blocks__0__attn__qkv__bias=torch.zeros(192),
        **{LAYER.replace(".", "__"): torch.zeros(128, 161)},
    )
    with pytest.raises(ValueError, match="do not fit the config") as caught:
        Glm4v.from_pretrained(copy)
    message = str(caught.value)
    assert str(copy) in message
    assert "2 missing: model.language_model.norm.weight; lm_head.weight" in message
    assert "1 unexpected: model.visual.blocks.0.attn.qkv.bias" in message
    assert "2 wrong shape: " in message
    assert "model.visual.downsample.weight must be [128, 64, 2, 2], got [128, 64, 4]" in message
    assert f"{LAYER} must be [128, 160], got [128, 161]" in message


def test_missing_files_are_named(copy: Path, model: Glm4v, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"must hold model.safetensors or model.safetensors.index.json"
    ):
        Glm4v.from_pretrained(copy)
    (copy / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config.json is not there"):
        Glm4v.from_pretrained(copy)
    model.save_pretrained(tmp_path / "shards", max_shard_bytes=500_000)
    sorted((tmp_path / "shards").glob("*.safetensors"))[0].unlink()
    with pytest.raises(FileNotFoundError, match=r"not there: model-00001-of-"):
        Glm4v.from_pretrained(tmp_path / "shards")


def test_a_broken_config_names_its_file(copy: Path) -> None:
    hf = json.loads((copy / "config.json").read_text())
    hf["text_config"]["hidden_act"] = "gelu"
    (copy / "config.json").write_text(json.dumps(hf))
    with pytest.raises(ValueError, match=r"copy/config.json: config: text_config.hidden_act must be 'silu'"):
        Glm4v.from_pretrained(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is not JSON"):
        Glm4v.from_pretrained(copy)


# ---- saving over an older save -------------------------------------------------------------------------


def test_an_older_save_leaves_no_trace(model: Glm4v, hf: HF, tmp_path: Path) -> None:
    """A stale model.safetensors beside new shards would win when the directory is read."""
    (tmp_path / "tokenizer.json").write_text("{}")
    for limit in (10**9, 500_000, 900_000, 10**9):
        with torch.no_grad():
            model.lm_head.weight.add_(1)
        model.save_pretrained(tmp_path, max_shard_bytes=limit)
        loaded = Glm4v.from_pretrained(tmp_path)
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


def test_a_save_that_fails_keeps_the_old_file(
    model: Glm4v, hf: HF, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(load, "save_file", half)
    before = {path.name for path in copy.iterdir()}
    with pytest.raises(OSError, match="disk full"):
        load.save_weights(model, copy, 10**9)
    assert {path.name for path in copy.iterdir()} == before
    same_state(Glm4v.from_pretrained(copy), hf)
