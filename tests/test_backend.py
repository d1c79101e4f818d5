"""The choice of a backend: fixed order, named or refused, always with the reason."""

import warnings
from collections.abc import Iterator

import pytest
import torch

from glmv import backend, ops
from glmv.backend import BackendError, Options, always

CPU, CUDA, F32 = torch.device("cpu"), torch.device("cuda", 0), torch.float32


def never(device: torch.device, dtype: torch.dtype, options: Options) -> str:
    return "it is switched off"


def only_small(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    size = options.get("size", 0)
    assert isinstance(size, int)
    return None if size <= 8 else f"size {size} is over 8"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, backend.WhyNot]]:
    """A table of one op "toy", and no variable that chooses."""
    monkeypatch.delenv("GLMV_BACKEND", raising=False)
    monkeypatch.setattr(backend, "_tables", {})
    monkeypatch.setattr(backend, "_last", {})
    monkeypatch.setattr(backend, "_noted", set())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Toy 9000")
    backend.register("toy", {"native": only_small, "triton": always, "ref": always})
    return backend._tables["toy"]


@pytest.mark.usefixtures("table")
def test_auto_takes_the_first_that_can_run() -> None:
    assert backend.resolve("toy", "auto", CPU, F32) == "native"
    assert backend.resolve("toy", "auto", CPU, F32, size=9) == "ref"
    assert backend.last_backend("toy") == "ref"


@pytest.mark.filterwarnings("ignore:glmv")
def test_the_reference_is_never_automatic_on_cuda(table: dict[str, backend.WhyNot]) -> None:
    assert backend.resolve("toy", "auto", CUDA, F32, size=9) == "triton"
    table["triton"] = never
    with pytest.raises(BackendError) as caught:
        backend.resolve("toy", "auto", CUDA, F32, size=9)
    assert str(caught.value) == (
        "toy: no backend can run on cuda:0: native: size 9 is over 8; flash: toy has no flash backend; "
        "torch_varlen: toy has no torch_varlen backend; triton: it is switched off. "
        "backend='ref' runs anywhere."
    )
    assert backend.resolve("toy", "ref", CUDA, F32) == "ref"
    assert backend.last_backend("toy") == "ref"


@pytest.mark.usefixtures("table")
def test_a_gpu_without_a_record_is_noted_once() -> None:
    with pytest.warns(RuntimeWarning, match="have not been run on Toy 9000"):
        backend.resolve("toy", "auto", CUDA, F32, size=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.resolve("toy", "auto", CUDA, F32, size=9)
        backend.resolve("toy", "auto", CPU, F32)


@pytest.mark.usefixtures("table")
def test_a_named_backend_runs_or_says_why_not() -> None:
    assert backend.resolve("toy", "triton", CPU, F32) == "triton"
    with pytest.raises(BackendError) as caught:
        backend.resolve("toy", "native", CPU, F32, size=9)
    assert str(caught.value) == "toy: backend 'native' cannot run this call: size 9 is over 8"
    with pytest.raises(BackendError, match="toy has no flash backend"):
        backend.resolve("toy", "flash", CPU, F32)


@pytest.mark.usefixtures("table")
def test_names_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    known = "'auto' or one of native, triton, flash, torch_varlen, ref"
    with pytest.raises(ValueError, match=f"backend must be {known}, got 'cuda'"):
        backend.resolve("toy", "cuda", CPU, F32)
    monkeypatch.setenv("GLMV_BACKEND", "fast")
    with pytest.raises(ValueError, match="got 'fast'"):
        backend.resolve("toy", "auto", CPU, F32)
    with pytest.raises(ValueError, match=r"backends of toy must be among .*, got \['cutlass'\]"):
        backend.register("toy", {"cutlass": always})
    with pytest.raises(ValueError, match="last_backend: op must be one of toy, got 'top'"):
        backend.last_backend("top")


@pytest.mark.usefixtures("table")
def test_argument_before_block_before_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(name: str = "auto") -> str:
        return backend.resolve("toy", name, CPU, F32)

    monkeypatch.setenv("GLMV_BACKEND", "ref")
    assert chosen() == "ref"
    with backend.use_backend("triton"):
        assert chosen() == "triton"
        assert chosen("native") == "native"
        with backend.use_backend("native"):
            assert chosen() == "native"
        assert chosen() == "triton"
    assert chosen() == "ref"
    with pytest.raises(RuntimeError, match="inside"), backend.use_backend("triton"):
        raise RuntimeError("inside")
    assert chosen() == "ref"
    monkeypatch.setenv("GLMV_BACKEND", "")
    assert chosen() == "native"


@pytest.mark.usefixtures("table")
def test_a_variable_that_names_what_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLMV_BACKEND", "native")
    with pytest.raises(BackendError, match="size 9 is over 8"):
        backend.resolve("toy", "auto", CPU, F32, size=9)


def test_table_of_the_real_ops() -> None:
    table = ops.backends()
    assert set(table) >= {"rope", "pos_embed", "router", "experts", "attention", "token_loss"}
    assert all(answers["ref"] == "yes" for answers in table.values())
    assert table["rope"]["triton"] == "needs a CUDA device, got cpu"


def test_compiled_code_follows_the_block() -> None:
    x, pos = torch.ones(2, 1, 4), torch.arange(2)[None]
    lanes = torch.ones(2), torch.zeros(2, dtype=torch.int64)

    def turn(x: torch.Tensor) -> torch.Tensor:
        return ops.rope(x, None, pos, *lanes)[0]

    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    seen = []
    for name in ("ref", "auto", "ref"):
        with ops.use_backend(name):
            backend._last.clear()
            compiled(x)
            seen.append(ops.last_backend("rope"))
    assert seen[0] == seen[2] == "ref"
    assert seen[1] == backend.resolve("rope", "auto", CPU, F32)
