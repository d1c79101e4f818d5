"""Images and clips to patches, against transformers' image processor and hand numbers."""

import base64
import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.glm4v import image_processing_pil_glm4v as hf_image
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.video_utils import VideoMetadata

from glmv.data.image import TINY_IMAGE, ImageConfig, image_patches, open_image, patchify, smart_resize
from glmv.data.video import VideoConfig, clip_patches, pair_seconds, sample_frames
from tests.numeric import PATCH_ATOL

CONFIG = ImageConfig()
PUBLISHED = ImageConfig(max_pixels=11_760_000)


def picture(height, width, mode="RGB", seed=0):
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    values = np.random.default_rng(seed).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    return Image.fromarray(values)


# 28 * round(480 / 28), ... by the rule; the last two are cut and raised by the budget.
@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((480, 640), (476, 644)),
        ((1080, 1920), (1092, 1932)),
        ((4000, 6000), (1960, 2968)),
        ((28, 28), (84, 84)),
    ],
)
def test_resize_of_common_sizes(size, resized):
    assert smart_resize(2, *size, PUBLISHED, PUBLISHED.min_pixels, PUBLISHED.max_pixels) == resized


@given(st.integers(2, 40), st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([12544, 1568]))
def test_resize_equals_transformers(frames, height, width, least):
    def theirs():
        return hf_image.smart_resize(frames, height, width, 2, 28, least, CONFIG.max_pixels)

    try:
        expected = theirs()
    except ValueError:
        with pytest.raises(ValueError, match="200 times"):
            smart_resize(frames, height, width, CONFIG, least, CONFIG.max_pixels)
    else:
        assert smart_resize(frames, height, width, CONFIG, least, CONFIG.max_pixels) == expected


@pytest.mark.parametrize("size", [(84, 84), (100, 60), (13, 40), (333, 517)])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_patches_equal_transformers(size, mode, tmp_path):
    picture(*size, mode).save(tmp_path / "x.png")
    patches, grid = image_patches(open_image("x.png", tmp_path), CONFIG)
    theirs = hf_image.Glm4vImageProcessorPil(
        size={"shortest_edge": CONFIG.min_pixels, "longest_edge": CONFIG.max_pixels}
    )(Image.open(tmp_path / "x.png"), return_tensors="pt")
    assert theirs["image_grid_thw"].tolist() == [list(grid)]
    torch.testing.assert_close(torch.from_numpy(patches), theirs["pixel_values"], rtol=0, atol=PATCH_ATOL)


def test_row_and_column_order_by_hand():
    """A pixel's value tells where it is: channel, frame, block, patch in the block, place in the patch."""
    height, width = 56, 84
    frames = np.zeros((4, height, width, 3), np.uint8)
    frames[3, 29, 43, 2] = 255  # pair 1 frame 1; block (1, 1), patch (0, 1) in it, pixel (1, 1); blue
    patches, grid = patchify(frames, ImageConfig(mean=(0, 0, 0), std=(1, 1, 1)))
    assert grid == (2, 4, 6)
    row = 24 + (1 * 3 + 1) * 4 + 1
    column = 2 * 392 + 1 * 196 + 1 * 14 + 1
    assert np.argwhere(patches).tolist() == [[row, column]]
    assert patches[row, column] == 1.0


def test_tiny_image_keeps_its_size_and_white_is_zero():
    patches, grid = image_patches(Image.new("RGB", (84, 84), "white"), TINY_IMAGE)
    assert (grid, patches.shape, patches.dtype) == ((1, 6, 6), (36, 1176), np.float32)
    assert not patches.any()
    black, _ = image_patches(Image.new("RGB", (84, 84), "black"), TINY_IMAGE)
    assert (black == np.float32(-255 / 64)).all()


def test_too_long_and_empty_images():
    with pytest.raises(ValueError, match="200 times its width, got 28 x 5628"):
        smart_resize(2, 28, 5628, CONFIG, CONFIG.min_pixels, CONFIG.max_pixels)
    with pytest.raises(ValueError, match="at least one pixel, got 0 x 5"):
        smart_resize(2, 0, 5, CONFIG, CONFIG.min_pixels, CONFIG.max_pixels)


def test_transparency_goes_onto_white(tmp_path):
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert open_image("clear.png", tmp_path).getpixel((3, 3)) == (255, 255, 255)
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([9, 9, 9])
    palette.save(tmp_path / "palette.png", transparency=0)
    assert open_image("palette.png", tmp_path).getpixel((3, 3)) == (255, 255, 255)


def test_photo_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the camera was turned by 90 degrees
    Image.new("RGB", (40, 20)).save(tmp_path / "x.jpg", exif=exif)
    assert open_image("x.jpg", tmp_path).size == (20, 40)


def test_forms_of_a_reference(tmp_path):
    image = picture(8, 9)
    image.save(tmp_path / "x.png")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    uri = "data:image;base64," + base64.b64encode(buffer.getvalue()).decode()
    elsewhere = Path("/")
    for reference, root in [
        ("x.png", tmp_path),
        (str(tmp_path / "x.png"), elsewhere),
        (f"file://{tmp_path}/x.png", elsewhere),
        (uri, elsewhere),
    ]:
        assert np.array_equal(np.asarray(open_image(reference, root)), np.asarray(image))


@pytest.mark.parametrize("content", [b"no image", None])
def test_unreadable_image(tmp_path, content):
    if content is not None:
        (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"image x\.png cannot be read"):
        open_image("x.png", tmp_path)


def test_truncated_image(tmp_path):
    picture(84, 84).save(tmp_path / "x.png")
    (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"image x\.png cannot be read"):
        open_image("x.png", tmp_path)


@given(st.integers(1, 2000), st.sampled_from([0.5, 1.0, 2.0, 3.0, 23.976, 30.0]))
def test_sampled_frames_equal_transformers(total, fps):
    settings = SimpleNamespace(fps=2, max_duration=300)
    theirs = Glm4vVideoProcessor.sample_frames(settings, VideoMetadata(total_num_frames=total, fps=fps))
    assert sample_frames(total, fps, VideoConfig()) == theirs.tolist()


def test_sampled_frames_by_hand():
    assert sample_frames(8, 2.0, VideoConfig()) == [0, 1, 2, 3, 4, 5, 6, 7]  # two a second: all of them
    assert sample_frames(5, 2.0, VideoConfig()) == [0, 1, 2, 3, 4, 4]  # made even
    assert sample_frames(12, 8.0, VideoConfig()) == [0, 4, 8, 11]  # every fourth
    assert pair_seconds([0, 15, 30, 45], 30.0, 2) == (0.0, 1.0)
    for total, fps in ((0, 2.0), (5, 0.0), (5, float("inf"))):
        with pytest.raises(ValueError, match="a clip must have frames and a positive rate"):
            sample_frames(total, fps, VideoConfig())


def test_clip_patches_equal_transformers():
    frames = [picture(112, 84, seed=i) for i in range(3)]
    patches, grid = clip_patches(frames, CONFIG, VideoConfig())
    table = np.stack([np.asarray(f) for f in frames]) / 255
    table = (table - np.array(CONFIG.mean)) / np.array(CONFIG.std)
    clip = torch.from_numpy(table).permute(0, 3, 1, 2)[None]
    theirs, *their_grid = Glm4vVideoProcessor.patchify(None, clip, 14, 2, 2)
    assert list(grid) == their_grid == [2, 8, 6]
    torch.testing.assert_close(torch.from_numpy(patches).double(), theirs[0], rtol=0, atol=PATCH_ATOL)


def test_clip_is_resized_as_a_whole():
    frames = [picture(100, 100, seed=i) for i in range(6)]
    patches, grid = clip_patches(frames, CONFIG, VideoConfig())
    assert grid == (3, 8, 8)  # 100 -> 112
    assert patches.shape == (3 * 64, 1176)
    assert clip_patches(frames, CONFIG, VideoConfig(max_pixels=6 * 56 * 56))[1] == (3, 4, 4)


def test_bad_clips():
    with pytest.raises(ValueError, match="must have one size"):
        clip_patches([picture(56, 56), picture(56, 84)], CONFIG, VideoConfig())
    with pytest.raises(ValueError, match="at least 2 frames, got 1"):
        clip_patches([picture(56, 56)], CONFIG, VideoConfig())


def test_config_in_transformers_format(tmp_path):
    import json

    (tmp_path / "preprocessor_config.json").write_text(json.dumps(TINY_IMAGE.to_hf()))
    assert ImageConfig.load(tmp_path) == TINY_IMAGE
    theirs = hf_image.Glm4vImageProcessorPil.from_pretrained(tmp_path)
    image = picture(84, 84)
    patches, _ = image_patches(image, TINY_IMAGE)
    pixel_values = theirs(image, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(torch.from_numpy(patches), pixel_values, rtol=0, atol=PATCH_ATOL)
    # transformers 5 writes both into one file
    both = {"image_processor": theirs.to_dict(), "video_processor": {"fps": 1, "max_duration": 60}}
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps(both))
    assert ImageConfig.load(tmp_path) == TINY_IMAGE
    assert VideoConfig.load(tmp_path) == VideoConfig(fps=1, max_duration_s=60)


def test_config_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"has neither preprocessor_config\.json"):
        ImageConfig.load(tmp_path)
    assert VideoConfig.load(tmp_path) == VideoConfig()
