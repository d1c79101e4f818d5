"""pos_embed: the position table resampled and added to the patches."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from glmv import ops
from glmv.bench.cases import TABLE_SIDE, VISION_WIDTH
from glmv.bench.measure import Build, Case

MERGE = 2


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    if suite == "smoke":
        yield partial(_case, [(1, 16, 16), (1, 16, 24)], torch.float32, device, backward=False)
        yield partial(_case, [(1, 16, 16), (1, 16, 24)], torch.float32, device, backward=True)
        return
    packs = ([(1, 64, 64)], [(1, 16, 16)] * 16, [(8, 16, 24), (1, 46, 62)])
    for images in packs:
        for dtype in (torch.float32, torch.bfloat16):
            for backward in (False, True):
                yield partial(_case, images, dtype, device, backward)


def _case(
    images: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: torch.device, backward: bool
) -> Case:
    grid = torch.tensor(images)
    patches = int(grid.prod(1).sum())
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(TABLE_SIDE**2, VISION_WIDTH, generator=generator).to(device, dtype)
    add_to = torch.randn(patches, VISION_WIDTH, generator=generator).to(device, dtype)
    size = table.element_size()
    moved = 2 * add_to.nbytes + table.nbytes
    if backward:
        moved += add_to.nbytes + table.nbytes  # the gradient of add_to is that of the output itself
    return Case(
        op="pos_embed",
        name=f"{'+'.join('x'.join(map(str, g)) for g in images)}"
        if len(images) < 4
        else f"{len(images)} images",
        inputs=(table, add_to),
        eager=lambda table, add_to: (eager_pos_embed(table, images, add_to),),
        ours=lambda table, add_to, backend: (
            ops.pos_embed(table, grid, add_to, merge=MERGE, backend=backend),
        ),
        bytes=moved,
        flops=(2 if backward else 1) * 33 * moved // size,
        backward=backward,
    )


def eager_pos_embed(table: Tensor, images: Sequence[tuple[int, int, int]], add_to: Tensor) -> Tensor:
    """As transformers does it: one bicubic grid_sample in fp32 at a point per patch, cast, then added."""
    wide = torch.promote_types(table.dtype, torch.float32)
    points = torch.cat([_points(*image) for image in images]).to(table.device, wide)
    picture = table.view(TABLE_SIDE, TABLE_SIDE, -1).permute(2, 0, 1)[None].to(wide)
    sampled = torch.nn.functional.grid_sample(
        picture, points[None, :, None], mode="bicubic", padding_mode="border", align_corners=False
    )
    return add_to + sampled[0, :, :, 0].T.to(table.dtype)


def _points(frames: int, height: int, width: int) -> Tensor:
    """[P, 2] (x, y) in [-1, 1], rows in merge-block order."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    blocks = [
        v.view(height // MERGE, MERGE, width // MERGE, MERGE).transpose(1, 2).flatten().double()
        for v in (x, y)
    ]
    xy = torch.stack(((blocks[0] + 0.5) / width, (blocks[1] + 0.5) / height), -1) * 2 - 1
    return xy.repeat(frames, 1)
