"""Samples to prompts: tokens, modality, positions and patches of whole chats."""

import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Glm4vProcessor
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.video_utils import VideoMetadata

from glmv.data import template
from glmv.data.image import TINY_IMAGE, ImageConfig, image_patches, open_image
from glmv.data.process import Processor, tiny_processor
from glmv.data.tokenizer import tiny_tokenizer
from glmv.data.types import Sample
from glmv.data.video import VideoConfig

TINY = tiny_processor()
ENCODE = TINY.tokenizer.encode
IMAGES = {"a.png": (84, 84), "b.png": (56, 112), "c.png": (28, 28)}
FRAMES = [f"f{i}.png" for i in range(4)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for name, size in (IMAGES | dict.fromkeys(FRAMES, (56, 56))).items():
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path / name)
    return path


def sample(content, images=(), videos=(), **extra):
    return Sample(
        "s1", "test", ({"role": "user", "content": content},), tuple(images), tuple(videos), **extra
    )


def clip(*frames, fps=2.0):
    return {"frames": list(frames), "fps": fps}


def test_one_image(root):
    p = TINY.prompt(sample("<image>read", ["a.png"]), root)
    text = (
        "[gMASK]<sop><|user|>\n<|begin_of_image|>" + "<|image|>" * 9 + "<|end_of_image|>read<|assistant|>\n"
    )
    assert p.tokens.tolist() == ENCODE(text)
    assert p.modality.tolist() == [0] * 5 + [1] * 9 + [0] * 4
    assert p.pos[:, 5:14].tolist() == [
        [5, 5, 5, 5, 5, 5, 5, 5, 5],
        [5, 5, 5, 6, 6, 6, 7, 7, 7],
        [5, 6, 7, 5, 6, 7, 5, 6, 7],
    ]
    assert p.next_pos == 5 + 3 + 4
    assert p.grid.tolist() == [[1, 6, 6]]
    expected, _ = image_patches(open_image("a.png", root), TINY_IMAGE)
    assert np.array_equal(p.patches.numpy(), expected)
    dtypes = [p.tokens.dtype, p.pos.dtype, p.modality.dtype, p.patches.dtype, p.grid.dtype]
    assert dtypes == [torch.int64, torch.int32, torch.int8, torch.float32, torch.int64]


def test_text_only(root):
    p = TINY.prompt(sample("7 + 8"), root)
    assert p.patches.shape == (0, 1176)
    assert p.grid.shape == (0, 3)
    assert p.next_pos == len(p.tokens) == 9
    assert not p.modality.any()


def test_images_and_clips_in_order_of_appearance(root):
    s = sample("<image>read<video>when<image>sum", ["b.png", "c.png"], [clip(*FRAMES)])
    p = TINY.prompt(s, root)
    assert p.grid.tolist() == [[1, 4, 8], [2, 4, 4], [1, 2, 2]]
    parts = [image_patches(open_image(name, root), TINY_IMAGE)[0] for name in ("b.png", "c.png")]
    assert np.array_equal(p.patches[:32].numpy(), parts[0])
    assert np.array_equal(p.patches[64:].numpy(), parts[1])
    kinds = "".join(map(str, p.modality.tolist()))
    assert re.fullmatch(r"0+1{8}0+2{4}0+2{4}0+10+", kinds)
    assert p.tokens.tolist() == ENCODE(
        "[gMASK]<sop><|user|>\n<|begin_of_image|>"
        + "<|image|>" * 8
        + "<|end_of_image|>read<|begin_of_video|>"
        "<|begin_of_image|><|image|><|image|><|image|><|image|><|end_of_image|>0"
        "<|begin_of_image|><|image|><|image|><|image|><|image|><|end_of_image|>1"
        "<|end_of_video|>when<|begin_of_image|><|image|><|end_of_image|>sum<|assistant|>\n"
    )


def test_video_text_and_modality_equal_transformers(root):
    """The methods of transformers' processor, without the torchvision that building one needs."""
    p = TINY.prompt(sample("<image>read<video>", ["a.png"], [clip(*FRAMES, "f0.png")]), root)
    ids = TINY.tokenizer.id
    metadata = VideoMetadata(5, fps=2.0, frames_indices=[0, 1, 2, 3, 4, 4])
    theirs = SimpleNamespace(
        image_token="<|image|>",
        image_token_id=ids("<|image|>"),
        video_start_id=ids("<|begin_of_video|>"),
        video_end_id=ids("<|end_of_video|>"),
        video_processor=SimpleNamespace(merge_size=2),
    )
    theirs.replace_frame_token_id = lambda *a, **k: Glm4vProcessor.replace_frame_token_id(theirs, *a, **k)
    inputs = {"video_grid_thw": p.grid[1:], "video_metadata": [metadata]}
    text = "<|begin_of_video|>" + Glm4vProcessor.replace_video_token(theirs, inputs, 0) + "<|end_of_video|>"
    assert text in TINY.tokenizer.decode(p.tokens.tolist())
    (types,) = Glm4vProcessor.create_mm_token_type_ids(theirs, [p.tokens.tolist()])
    assert p.modality.tolist() == types


def test_system_message_and_earlier_turns(root):
    chat = [("system", "count"), ("user", "<image>read"), ("assistant", "7"), ("user", "<image>sum")]
    messages = tuple({"role": role, "content": content} for role, content in chat)
    p = TINY.prompt(Sample("s", "test", messages, ("c.png", "c.png")), root)
    picture = "<|begin_of_image|><|image|><|end_of_image|>"
    assert p.tokens.tolist() == ENCODE(
        f"[gMASK]<sop><|system|>\ncount<|user|>\n{picture}read<|assistant|>\n7<|user|>\n{picture}sum<|assistant|>\n"
    )


def test_full_size_image(tmp_path):
    Image.new("RGB", (640, 480)).save(tmp_path / "x.png")
    p = Processor(tiny_tokenizer(), ImageConfig()).prompt(sample("<image>read", ["x.png"]), tmp_path)
    assert p.grid.tolist() == [[1, 34, 46]]
    assert int(p.modality.sum()) == 391


def test_response_ends_with_the_end_token():
    text = "<think>at 3</think><answer><|begin_of_box|>7<|end_of_box|></answer>"
    tokens = TINY.response_tokens(text)
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [*ENCODE(text), TINY.tokenizer.id("<|user|>")]
    assert tokens[-1] in TINY.stop_ids
    assert TINY.stop_ids == tuple(TINY.tokenizer.id(t) for t in template.STOP_TOKENS)


@pytest.mark.parametrize("token", ["<|image|>", "<|user|>", "<|assistant|>", "<|endoftext|>"])
def test_control_tokens_in_a_text(root, token):
    with pytest.raises(ValueError, match=re.escape(f"response holds the control token {token!r}")):
        TINY.response_tokens(f"read {token}")
    with pytest.raises(
        ValueError, match=re.escape(f"sample s1: the user message holds the control token {token!r}")
    ):
        TINY.prompt(sample(f"read {token}"), root)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (sample("<image>read", ["none.png"]), r"image none\.png cannot be read"),
        (sample("<image>zebra", ["a.png"]), "does not know 'zebra'"),
        (sample("read", ["a.png"]), "the prompt has 0 <image> but 1 images are given"),
        (sample("<video>read"), "the prompt has 1 <video> but 0 videos are given"),
        (sample("<video>", videos=[clip("f0.png", "a.png")]), "frames of a clip must have one size"),
    ],
)
def test_bad_samples_are_named(root, bad, message):
    with pytest.raises(ValueError, match=f"sample s1: .*{message}"):
        TINY.prompt(bad, root)


def test_unknown_format_and_foreign_tokenizer(tmp_path):
    with pytest.raises(ValueError, match=r"format must be one of 'glm-4\.1v', got 'chatml'"):
        Processor(tiny_tokenizer(), TINY_IMAGE, format="chatml")
    import tokenizers

    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no token '<\|endoftext\|>'"):
        Processor.load(tmp_path)


def test_save_and_load(root, tmp_path):
    TINY.save(tmp_path)
    again = Processor.load(tmp_path)
    assert (again.image, again.video, again.stop_ids) == (TINY.image, TINY.video, TINY.stop_ids)
    s = sample("<image>read", ["a.png"])
    p, q = TINY.prompt(s, root), again.prompt(s, root)
    assert torch.equal(p.tokens, q.tokens)
    assert torch.equal(p.patches, q.patches)
    assert VideoConfig.load(tmp_path) == TINY.video
    theirs = Glm4vImageProcessorPil.from_pretrained(tmp_path)
    assert theirs(Image.open(root / "a.png"))["image_grid_thw"].tolist() == p.grid.tolist()


def test_threads_share_a_processor(root):
    samples = [sample("<image>read", [name]) for name in IMAGES] * 20
    alone = [TINY.prompt(s, root) for s in samples]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda s: TINY.prompt(s, root), samples))
    for p, q in zip(alone, together, strict=True):
        assert torch.equal(p.tokens, q.tokens)
        assert torch.equal(p.patches, q.patches)
