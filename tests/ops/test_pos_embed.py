"""pos_embed against grid_sample in fp64, against transformers, and against its own invariants."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glmv import backend
from glmv.ops.pos_embed import pos_embed
from tests.numeric import POS_EMBED_FP32, POS_EMBED_FP64, POS_EMBED_GRAD_FP32, assert_error_relative


def table_of(side: int, channels: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(side * side, channels, generator=torch.Generator().manual_seed(seed)).to(dtype)


def patches_of(grid: list[tuple[int, int, int]], merge: int) -> list[tuple[int, int, int, int]]:
    """(h, w, y, x) of every patch, by the plain nested loops that define merge-block order."""
    return [
        (h, w, by * merge + iy, bx * merge + ix)
        for t, h, w in grid
        for _ in range(t)
        for by in range(h // merge)
        for bx in range(w // merge)
        for iy in range(merge)
        for ix in range(merge)
    ]


def truth(table: Tensor, grid: list[tuple[int, int, int]], merge: int) -> Tensor:
    """torch's grid_sample at every patch, in fp64 and differentiable."""
    side = round(len(table) ** 0.5)
    picture = table.double().view(side, side, -1).permute(2, 0, 1).unsqueeze(0)
    points = [(2 * (x + 0.5) / w - 1, 2 * (y + 0.5) / h - 1) for h, w, y, x in patches_of(grid, merge)]
    at = torch.tensor(points, dtype=torch.float64).view(1, -1, 1, 2)
    sampled = F.grid_sample(picture, at, mode="bicubic", padding_mode="border", align_corners=False)
    return sampled[0, :, :, 0].T


# ---- against independent truth -------------------------------------------------------------------------

# (grid, merge): thin and tiny images, sizes below, at and above the table, odd sizes, frames, packs.
GRIDS = {
    "1x1": ([(1, 1, 1)], 1),
    "1x24": ([(1, 1, 24)], 1),
    "24x1": ([(1, 24, 1)], 1),
    "2x2": ([(1, 2, 2)], 2),
    "24x24": ([(1, 24, 24)], 2),
    "16x16 twice": ([(1, 16, 16), (1, 16, 16)], 2),
    "23x25": ([(1, 23, 25)], 1),
    "7x97": ([(1, 7, 97)], 1),
    "48x48": ([(1, 48, 48)], 2),
    "64x36": ([(1, 64, 36)], 2),
    "128x2": ([(1, 128, 2)], 2),
    "336x4": ([(1, 336, 4)], 2),
    "merge 3": ([(1, 9, 6), (1, 3, 3)], 3),
    "2 frames": ([(2, 4, 6)], 2),
    "8 frames between images": ([(1, 4, 4), (8, 6, 2), (1, 4, 4)], 2),
    "an image without patches": ([(1, 4, 4), (1, 0, 8), (0, 4, 4), (1, 2, 4)], 2),
    "an unseen shape as large as a seen one": ([(0, 2, 8), (2, 4, 4), (1, 8, 2)], 2),
    "32 mixed": ([(1 + i % 2, 2 + 2 * (i % 5), 2 + 2 * (i % 7)) for i in range(32)], 2),
}


@pytest.mark.parametrize("side", [6, 24])
@pytest.mark.parametrize(("grid", "merge"), GRIDS.values(), ids=GRIDS)
def test_matches_grid_sample(grid: list[tuple[int, int, int]], merge: int, side: int) -> None:
    table = table_of(side, 5).requires_grad_()
    got, want = pos_embed(table, torch.tensor(grid), merge=merge), truth(table, grid, merge)
    torch.testing.assert_close(got, want, rtol=0, atol=POS_EMBED_FP64)
    dout = torch.randn(want.shape, dtype=torch.float64)
    (dgot,) = torch.autograd.grad(got, table, dout)
    (dwant,) = torch.autograd.grad(want, table, dout)
    torch.testing.assert_close(dgot, dwant, rtol=POS_EMBED_FP64, atol=POS_EMBED_FP64)


@pytest.mark.parametrize(("side", "channels"), [(8, 48), (24, 1152), (24, 1537), (48, 33)])
def test_float32_is_near_fp64(side: int, channels: int) -> None:
    table = table_of(side, channels, torch.float32)
    grid = [(1, 6, 10), (2, 4, 4)]
    got = pos_embed(table, torch.tensor(grid))
    torch.testing.assert_close(got.double(), truth(table, grid, 2), rtol=0, atol=POS_EMBED_FP32)


def test_hand_computed_weights() -> None:
    """W = 4, h = w = 8: patch 0 sits at -0.25, so cells 0 and 1 weigh 283/256 and -27/256 (by hand)."""
    table = torch.zeros(4, 4, 2)
    table[0, :, 0] = 1
    table[:, 1, 1] = 1
    first = pos_embed(table.view(16, 2), torch.tensor([[1, 8, 8]]))[0]
    assert first.tolist() == [283 / 256, -27 / 256]


@pytest.mark.parametrize("side", [1, 6, 7, 24])
def test_image_of_the_tables_size_copies_it(side: int) -> None:
    table = table_of(side, 9, torch.float32)
    got = pos_embed(table, torch.tensor([[1, side, side]] * 3), merge=1)
    assert torch.equal(got, table.repeat(3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_transformers(dtype: torch.dtype) -> None:
    modeling = pytest.importorskip("transformers.models.glm4v.modeling_glm4v")
    config = modeling.Glm4vVisionConfig(hidden_size=48, image_size=112, patch_size=14)
    theirs = modeling.Glm4vVisionEmbeddings(config).to(dtype)
    grid = [(1, 6, 4), (1, 10, 12), (1, 8, 8)]
    where = torch.tensor(patches_of(grid, 2))
    x = torch.randn(len(where), 48).to(dtype)
    shapes, lengths = torch.tensor(grid), [h * w for _, h, w in grid]
    want = theirs(x, lengths, shapes, where[:, 2], where[:, 3])
    table = theirs.position_embedding.weight
    got = pos_embed(table, shapes, x)
    dout = torch.randn(want.shape).to(dtype)
    ours, hf = (torch.autograd.grad(y, table, dout)[0] for y in (got, want))
    if dtype == torch.float32:
        torch.testing.assert_close(got, want, rtol=0, atol=POS_EMBED_FP32)
        torch.testing.assert_close(ours, hf, rtol=0, atol=POS_EMBED_GRAD_FP32)
    else:
        exact = truth(table, grid, 2)
        exact_grad = torch.autograd.grad(exact, table, dout.double())[0].double()
        exact = exact + x.double()
        assert_error_relative(got.detach(), exact.detach(), want.detach())
        assert_error_relative(ours, exact_grad, hf)


def test_gradcheck() -> None:
    table = table_of(3, 2).requires_grad_()
    grid = torch.tensor([[1, 2, 4], [2, 2, 2], [1, 2, 4]])
    x = torch.randn(24, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda table, x: pos_embed(table, grid, x), (table, x))


# ---- determinism ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [[(1, 32, 24)], [(1, 6, 6)] * 50, [(1, 2 * i, 4) for i in range(1, 20)]])
def test_deterministic_for_any_number_of_threads(grid: list[tuple[int, int, int]]) -> None:
    table = table_of(6, 97, torch.float32).requires_grad_()
    num_threads, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            out = pos_embed(table, torch.tensor(grid))
            dout = torch.linspace(-1, 1, out.numel()).view(out.shape)
            results.append((out, *torch.autograd.grad(out, table, dout)))
    finally:
        torch.set_num_threads(num_threads)
    assert all(torch.equal(a, b) for r in results[1:] for a, b in zip(results[0], r, strict=True))


# ---- dtypes, layouts, empty ----------------------------------------------------------------------------

LOW = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("add_dtype", LOW)
@pytest.mark.parametrize("table_dtype", LOW)
def test_mixed_dtypes(table_dtype: torch.dtype, add_dtype: torch.dtype) -> None:
    """fp32 sums, rounded to the table's dtype, then added in add_to's: these very steps, and no worse."""
    table = table_of(8, 16, table_dtype).requires_grad_()
    grid = [(1, 6, 10), (1, 4, 4)]
    exact = truth(table, grid, 2)
    x = torch.randn(exact.shape).to(add_dtype).requires_grad_()
    got = pos_embed(table, torch.tensor(grid), x)
    assert got.dtype == add_dtype
    plain = exact.to(table_dtype).to(add_dtype) + x
    want = exact + x.double()
    assert_error_relative(got.detach(), want.detach(), plain.detach())
    rounded = pos_embed(table.float(), torch.tensor(grid)).to(table_dtype)
    assert torch.equal(pos_embed(table, torch.tensor(grid)), rounded)
    assert torch.equal(got, rounded.to(add_dtype) + x)
    dtable, dx = torch.autograd.grad(got, (table, x), torch.ones_like(got))
    assert dtable.dtype == table_dtype
    assert torch.equal(dx, torch.ones_like(x))


def test_add_to_gradient_is_the_identity_without_table_gradient() -> None:
    x = torch.randn(8, 4, requires_grad=True)
    dout = torch.randn(8, 4)
    (dx,) = torch.autograd.grad(
        pos_embed(table_of(3, 4, torch.float32), torch.tensor([[2, 2, 2]]), x), x, dout
    )
    assert torch.equal(dx, dout)


def test_layouts() -> None:
    """Strided table, add_to and dout with an int32 grid: as contiguous with int64."""
    wide = torch.randn(36, 16)
    grid = torch.tensor([[1, 4, 8], [2, 2, 2], [1, 4, 8]])
    x = torch.randn(8, 72).T
    table = wide[:, ::2].requires_grad_()
    got = pos_embed(table, grid.int(), x)
    packed = table.detach().contiguous().requires_grad_()
    want = pos_embed(packed, grid, x.contiguous())
    torch.testing.assert_close(got, want, rtol=0, atol=POS_EMBED_FP32)
    (dgot,) = torch.autograd.grad(got.sum(), table)  # the gradient of a sum has stride 0
    (dwant,) = torch.autograd.grad(want, packed, torch.ones(72, 8))
    assert torch.equal(dgot, dwant)


@pytest.mark.parametrize("grid", [[], [(0, 2, 2)], [(1, 0, 2), (3, 2, 0)]])
def test_no_patches(grid: list[tuple[int, int, int]]) -> None:
    table = table_of(3, 4, torch.float32).requires_grad_()
    x = torch.zeros(0, 4)
    out = pos_embed(table, torch.tensor(grid, dtype=torch.int64).view(-1, 3), x)
    assert out.shape == (0, 4)
    assert torch.equal(torch.autograd.grad(out.sum(), table)[0], torch.zeros(9, 4))


# ---- errors --------------------------------------------------------------------------------------------

TABLE, GRID, X = torch.zeros(9, 4), torch.tensor([[1, 2, 4]]), torch.zeros(8, 4)
ERRORS = [
    ({"table": torch.zeros(8, 4)}, ValueError, "table must be [W*W, C], a square of at least one cell"),
    ({"table": torch.zeros(0, 4)}, ValueError, "table must be [W*W, C], a square of at least one cell"),
    ({"table": torch.zeros(9)}, ValueError, "table must be [W*W, C] float32|"),
    ({"table": TABLE.int()}, TypeError, "got [9, 4] int32 on cpu"),
    ({"table": [1.0]}, TypeError, "table must be a tensor, got [1.0] (list)"),
    ({"grid": torch.tensor([1, 2, 4])}, ValueError, "grid must be [N, 3] int32|int64"),
    ({"grid": GRID.float()}, TypeError, "grid must be [N, 3] int32|int64"),
    ({"grid": [[1, 2, 4]]}, TypeError, "grid must be a tensor"),
    ({"grid": torch.tensor([[1, 2, 3]])}, ValueError, "multiples of merge=2, got [(1, 2, 3)]"),
    ({"grid": torch.tensor([[1, 2, 2], [-1, -2, 2]])}, ValueError, "got [(-1, -2, 2)]"),
    ({"merge": 0}, ValueError, "merge must be at least 1, got 0 (int)"),
    ({"add_to": torch.zeros(7, 4)}, ValueError, "grid must be of P=7 patches in all, got 8 (int)"),
    ({"add_to": torch.zeros(8, 5)}, ValueError, "add_to must be [P, C=4]"),
    ({"add_to": X, "num_patches": 9}, ValueError, "add_to must be [P=9, C=4]"),
    ({"add_to": X.int()}, TypeError, "add_to must be [P, C=4]"),
    ({"num_patches": 9}, ValueError, "grid must be of P=9 patches in all, got 8 (int)"),
    ({"backend": "native"}, backend.BackendError, "pos_embed has no native backend"),
    ({"backend": "fast"}, ValueError, "backend must be 'auto' or one of"),
]


@pytest.mark.parametrize(("change", "kind", "message"), ERRORS, ids=[str(i) for i in range(len(ERRORS))])
def test_errors(change: dict[str, object], kind: type[Exception], message: str) -> None:
    arguments = {"table": TABLE, "grid": GRID} | change
    with pytest.raises(kind, match=re.escape(message)):
        pos_embed(arguments.pop("table"), arguments.pop("grid"), **arguments)  # type: ignore[arg-type]


# ---- registration, compile -----------------------------------------------------------------------------


@pytest.mark.parametrize("add", [False, True])
def test_opcheck(add: bool) -> None:
    table, grid = table_of(4, 6, torch.float32).requires_grad_(), torch.tensor([[2, 4, 2], [1, 2, 2]])
    x = torch.randn(20, 6, dtype=torch.float64, requires_grad=True) if add else None
    torch.library.opcheck(torch.ops.glmv.pos_embed_fwd.default, (table, grid, x, 2, 20, "ref"))
    dout = torch.randn(20, 6)
    torch.library.opcheck(torch.ops.glmv.pos_embed_bwd.default, (dout, grid, 4, 2, torch.bfloat16, "ref"))


def test_compiles_as_one_graph() -> None:
    table, grid = table_of(4, 6, torch.float32).requires_grad_(), torch.tensor([[2, 4, 2], [1, 2, 2]])
    x = torch.randn(20, 6, requires_grad=True)

    def loss(table: Tensor, x: Tensor) -> Tensor:
        return (pos_embed(table, grid, x) * pos_embed(table, grid, num_patches=20)).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    got, want = compiled(table, x), loss(table, x)
    assert torch.equal(got, want)
    for a, b in zip(torch.autograd.grad(got, (table, x)), torch.autograd.grad(want, (table, x)), strict=True):
        assert torch.equal(a, b)


def test_compiled_code_checks_the_grid_and_asks_for_num_patches() -> None:
    table, x = table_of(4, 6, torch.float32), torch.randn(8, 6)
    compiled = torch.compile(pos_embed, fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match=r"multiples of merge=2, got \[\(1, 8, 1\)\]"):
        compiled(table, torch.tensor([[1, 8, 1]]), x)
    with pytest.raises(Exception, match="num_patches must be given"):
        compiled(table, torch.tensor([[1, 4, 2]]))


def test_reports_its_backend() -> None:
    pos_embed(TABLE, GRID)
    assert backend.last_backend("pos_embed") == "ref"
