"""Learned position table, resampled bicubically to the patch grid of every image of a packed batch.

The table is a W x W picture of C channels. Patch (y, x) of an image of h x w patches reads it at row
(y + 0.5) W / h - 0.5 = f + u, f the floor, with

    taps f-1, f, f+1, f+2, each clamped to [0, W-1]; weights far(1+u), near(u), near(1-u), far(2-u);
    near(z) = ((A+2) z - (A+3)) z^2 + 1,   far(z) = ((A z - 5A) z + 8A) z - 4A,   A = -0.75 (Keys),

and at column (x + 0.5) W / w - 0.5 likewise; 16 cells in all. That is `grid_sample` with mode "bicubic",
padding "border", align_corners=False. For h = w = W it copies the table.

Rows come in merge-block order (t, block_y, block_x, in-block y, in-block x): `merge`^2 consecutive rows make
one visual token. Sums run in fp32 (fp64 for an fp64 table), are cast to the table's dtype, then added in the
dtype of `add_to`. Images and frames of one (h, w) are resampled once. The backward pass is deterministic; the
weights of a patch sum to 1, so the sum over dtable equals the sum over dout.
Limits: no antialiasing (GLM-V has none), no second derivative.
"""

import math
from typing import Any

import torch
from torch import Tensor

from glmv import check
from glmv.backend import always, register, resolve

KEYS_A = -0.75

# ---- reference -----------------------------------------------------------------------------------------


def reference(table: Tensor, grid: Tensor, add_to: Tensor | None = None, merge: int = 2) -> Tensor:
    """`pos_embed` without checks: any device, differentiable, fp64 tables compute in fp64."""
    side, wide = math.isqrt(table.shape[0]), torch.promote_types(table.dtype, torch.float32)
    shapes, source = _distinct_shapes(grid)
    cells, weights = (x.to(table.device) for x in _taps(shapes, side, merge))
    rows = torch.nn.functional.embedding_bag(
        cells, table.to(wide), mode="sum", per_sample_weights=weights.to(wide)
    )
    pos = rows.to(table.dtype)
    if len(rows) != len(source):  # else each shape is there once, in this order
        pos = pos.index_select(0, source.to(table.device))
    return pos if add_to is None else pos.to(add_to.dtype).add_(add_to)


def reference_bwd(dout: Tensor, grid: Tensor, side: int, merge: int, dtype: torch.dtype) -> Tensor:
    """dtable [W*W, C]: dout [P, C] is summed over images and frames of one shape, then spread on the taps."""
    shapes, source = _distinct_shapes(grid)
    cells, weights = (x.to(dout.device) for x in _taps(shapes, side, merge))
    dout = dout.to(torch.promote_types(dtype, torch.float32)).contiguous()
    if len(cells) != len(source):
        drows = dout.new_zeros(len(cells), dout.shape[1])
        dout = drows.index_add_(0, source.to(dout.device), dout)
    bag = torch.arange(len(cells), device=dout.device).repeat_interleave(16)
    none = bag.new_empty(0)  # bag sizes and arg-max: other modes of the bag
    dtable: Tensor = torch.ops.aten._embedding_bag_dense_backward(
        dout, cells.flatten(), bag, none, none, side * side, False, 0, weights.flatten().to(dout.dtype)
    )
    return dtable.to(dtype)


def _distinct_shapes(grid: Tensor) -> tuple[Tensor, Tensor]:
    """shapes [D, 2]: the distinct (h, w) by first appearance; source [P]: each patch's row among theirs."""
    images = [(t, (h, w)) for t, h, w in grid.tolist() if t * h * w > 0]
    number = {shape: i for i, shape in enumerate(dict.fromkeys(shape for _, shape in images))}
    shapes = torch.tensor(list(number), dtype=torch.int64).view(-1, 2)
    area = shapes.prod(1)
    shape_of_image = torch.tensor([number[shape] for _, shape in images], dtype=torch.int64)
    frames = torch.tensor([t for t, _ in images], dtype=torch.int64)
    image, patch = _ragged(frames * area[shape_of_image])
    shape = shape_of_image[image]
    return shapes, (area.cumsum(0) - area)[shape] + patch % area[shape]


def _taps(shapes: Tensor, side: int, merge: int) -> tuple[Tensor, Tensor]:
    """cells [U, 16] and weights [U, 16] float64 of the U patches of the shapes, in merge-block order."""
    shape, row = _ragged(shapes.prod(1))
    height, width = shapes[shape].unbind(1)
    block, inner = row // merge**2, row % merge**2
    y = block // (width // merge) * merge + inner // merge
    x = block % (width // merge) * merge + inner % merge
    (cell_y, weight_y), (cell_x, weight_x) = _axis_taps(y, height, side), _axis_taps(x, width, side)
    cells = side * cell_y.unsqueeze(2) + cell_x.unsqueeze(1)
    return cells.flatten(1), (weight_y.unsqueeze(2) * weight_x.unsqueeze(1)).flatten(1)


def _axis_taps(at: Tensor, size: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Cells [U, 4] int64 and Keys weights [U, 4] float64 along one axis for patches `at` of `size`."""
    center = (at.double() + 0.5) * side / size - 0.5
    cell = center.floor()
    u = center - cell
    weights = torch.stack((_far(1 + u), _near(u), _near(1 - u), _far(2 - u)), 1)
    return (cell.long().unsqueeze(1) + torch.arange(-1, 3)).clamp(0, side - 1), weights


def _near(z: Tensor) -> Tensor:
    return ((KEYS_A + 2) * z - (KEYS_A + 3)) * z * z + 1


def _far(z: Tensor) -> Tensor:
    return ((KEYS_A * z - 5 * KEYS_A) * z + 8 * KEYS_A) * z - 4 * KEYS_A


def _ragged(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """For runs of these lengths laid end to end: the run of each element and its place in the run."""
    run = torch.arange(len(lengths)).repeat_interleave(lengths)
    return run, torch.arange(len(run)) - (lengths.cumsum(0) - lengths)[run]


# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::pos_embed_fwd", mutates_args=())
def _fwd(
    table: Tensor, grid: Tensor, add_to: Tensor | None, merge: int, num_patches: int, backend: str
) -> Tensor:
    _check_values(grid, merge, num_patches)
    return reference(table, grid, add_to, merge)


@_fwd.register_fake
def _(
    table: Tensor, grid: Tensor, add_to: Tensor | None, merge: int, num_patches: int, backend: str
) -> Tensor:
    return (table if add_to is None else add_to).new_empty(num_patches, table.shape[1])


@torch.library.custom_op("glmv::pos_embed_bwd", mutates_args=())
def _bwd(dout: Tensor, grid: Tensor, side: int, merge: int, dtype: torch.dtype, backend: str) -> Tensor:
    return reference_bwd(dout, grid, side, merge, dtype)


@_bwd.register_fake
def _(dout: Tensor, grid: Tensor, side: int, merge: int, dtype: torch.dtype, backend: str) -> Tensor:
    return dout.new_empty(side * side, dout.shape[1], dtype=dtype)


# ---- autograd ------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    table, grid, _, ctx.merge, _, ctx.backend = inputs
    ctx.save_for_backward(grid)
    ctx.side, ctx.dtype = math.isqrt(table.shape[0]), table.dtype


def _backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
    (grid,) = ctx.saved_tensors
    dtable = None
    if ctx.needs_input_grad[0]:
        dtable = torch.ops.glmv.pos_embed_bwd(dout, grid, ctx.side, ctx.merge, ctx.dtype, ctx.backend)
    return dtable, None, dout if ctx.needs_input_grad[2] else None, None, None, None


_fwd.register_autograd(_backward, setup_context=_save)

# ---- backend table -------------------------------------------------------------------------------------

register("pos_embed", {"ref": always})

# ---- public function -----------------------------------------------------------------------------------


def pos_embed(
    table: Tensor,
    grid: Tensor,
    add_to: Tensor | None = None,
    *,
    merge: int = 2,
    num_patches: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """The position embedding of every patch, [P, C] in merge-block order; added to `add_to` where given.

    Args:
        table: [W*W, C] float, row y*W + x.
        grid: [N, 3] int32 | int64, (t, h, w) of each image in patches, h and w multiples of `merge`; all t
            frames get the same rows. On the CPU (its values are checked) or on the table's device.
        add_to: [P, C] float, the patch embeddings. The result has its dtype, without it the table's.
        merge: side of a merge block; 1 gives raster order.
        num_patches: P. Without `add_to` it must be given where the host does not read the grid: for a grid on
            CUDA (that would stop the host) and under torch.compile.

    Gradients go to `table` and `add_to`. Raises ValueError or TypeError for arguments that do not fit,
    BackendError if the backend cannot run them.
    Sources: Keys 1981 (cubic convolution interpolation); GLM-4.1V (arXiv 2507.01006).
    """
    check.tensor("pos_embed", "table", table, ("W*W", "C"), check.FLOAT)
    cells, channels = table.shape
    square = cells > 0 and math.isqrt(cells) ** 2 == cells
    check.that("pos_embed", "table", square, "[W*W, C], a square of at least one cell", table)
    on_host = isinstance(grid, Tensor) and grid.device.type == "cpu"
    check.tensor("pos_embed", "grid", grid, ("N", 3), check.INDEX, None if on_host else table.device)
    check.that("pos_embed", "merge", merge >= 1, "at least 1", merge)
    if add_to is not None:
        patches = "P" if num_patches is None else f"P={num_patches}"
        check.tensor("pos_embed", "add_to", add_to, (patches, f"C={channels}"), check.FLOAT, table.device)
        num_patches = add_to.shape[0]
    if num_patches is None:
        readable = grid.device.type == "cpu" and not torch.compiler.is_compiling()
        expected = "given for a grid on CUDA or under torch.compile"
        check.that("pos_embed", "num_patches", readable, expected, num_patches)
        num_patches = int(grid.prod(1).sum())
    chosen = resolve("pos_embed", backend, table.device, table.dtype)
    out: Tensor = torch.ops.glmv.pos_embed_fwd(table, grid, add_to, merge, num_patches, chosen)
    return out


def _check_values(grid: Tensor, merge: int, num_patches: int) -> None:
    """Runs inside the op, so that it also runs in compiled code."""
    if grid.device.type != "cpu":
        return
    images = grid.tolist()
    bad = [(t, h, w) for t, h, w in images if min(t, h, w) < 0 or h % merge or w % merge]
    expected = f"(t, h, w) of at least 0, h and w in multiples of merge={merge}"
    check.that("pos_embed", "grid", not bad, expected, bad[:1])
    total = sum(t * h * w for t, h, w in images)
    check.that("pos_embed", "grid", total == num_patches, f"of P={num_patches} patches in all", total)
