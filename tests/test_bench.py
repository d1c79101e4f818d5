"""The benchmark: its arithmetic, that it sees wrong kernels, its exit codes. Nothing depends on a time."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import bench
from glmv.backend import BackendError
from glmv.bench import attention, measure
from glmv.bench import rope as rope_bench
from glmv.bench.run import EFFORT, OPS, SCHEMA, cases_of, measure_all
from glmv.bench.table import render

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORT, "smoke", (3, 0.0))
    monkeypatch.setattr(measure, "SHORTEST_TIMING_S", 0.0)


def tiny(backward: bool = True) -> measure.Case:
    return rope_bench._case("tiny text", 8, torch.float32, CPU, backward)


def planted(call: Any, backward: bool = True) -> measure.Case:
    """Cubes, with `call` as the implementation on trial."""
    x = torch.linspace(-2, 2, 9)
    return measure.Case(
        op="rope", name="cube", inputs=(x,), eager=lambda x: (x**3,), ours=lambda x, backend: (call(x),),
        bytes=72, flops=18, backward=backward,
    )  # fmt: skip


# ---- a run ---------------------------------------------------------------------------------------------


def test_a_run_writes_what_compare_and_table_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rope_bench, "cases", lambda suite, device: iter([tiny]))
    path = str(tmp_path / "a.json")
    result = bench.run(op="rope", output=path)
    data = json.loads(Path(path).read_text())
    assert data == result.data
    assert data["schema"] == SCHEMA
    assert {"fingerprint", "cpu", "gpu", "threads"} <= set(data["host"])
    assert {"version", "commit", "extension"} <= set(data["glmv"])
    rows = {row["impl"]: row for row in data["cases"]}
    assert {"eager", "ref"} <= set(rows)
    assert {row["id"] for row in rows.values()} == {"rope/tiny text T=8/float32/forward+backward"}
    assert rows["eager"]["ratio"]["eager"] == {"p50": 1.0, "mad": 0.0}
    assert set(rows["ref"]["ratio"]) == {"eager", "copy"}
    assert result.ok
    assert {"id": rows["ref"]["id"], "impl": "triton", "reason": "needs a CUDA device, got cpu"} in data[
        "skipped"
    ]
    printed = capsys.readouterr().out
    bench.table(path)
    assert capsys.readouterr().out == printed
    assert bench.compare(path, path) == 0


def test_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rope_bench, "cases", lambda suite, device: iter([tiny]))
    assert {row["impl"] for row in bench.run(op="rope", backend="ref").data["cases"]} == {"eager", "ref"}
    with pytest.raises(BackendError, match=r"'triton' cannot run rope/tiny text T=8/.*: needs a CUDA device"):
        bench.run(op="rope", backend="triton")


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="suite must be one of 'smoke', 'full', got 'quick'"):
        bench.run(suite="quick")
    with pytest.raises(ValueError, match=r"op must be one of 'rope', .*, got 'ropes'"):
        bench.run(op="ropes")


@pytest.mark.parametrize("op", OPS)
def test_every_family_is_right_in_its_first_case(op: str) -> None:
    """Eager in fp64 is the truth of the benchmark; the reference of the op, written by others, agrees."""
    case = next(cases_of(op, "smoke", CPU))()
    truth = measure.runner(case, case.eager, double=True)()
    got = measure.runner(case, lambda *x: case.ours(*x, backend="ref"))()
    assert measure.errors(got, truth)[1] < 10 * measure.SLACK[torch.float32]
    assert len(list(cases_of(op, "full", CPU))) >= 1


def test_transformers_as_a_peer_agrees() -> None:
    pytest.importorskip("transformers")
    for name in ("glm-4.1v text", "glm-4.5v text", "glm-v vision"):
        case = rope_bench._case(name, 16, torch.float32, CPU, backward=False, with_peers=True)
        got, want = (measure.runner(case, call)() for call in (case.peers["transformers"], case.eager))
        assert measure.errors(got, want)[1] < measure.SLACK[torch.float32]


# ---- wrong results -------------------------------------------------------------------------------------


def right_value_wrong_slope(x: Tensor) -> Tensor:
    return x**3 + 0.01 * (x - x.detach())


WRONG = {
    "value": lambda x: 1.001 * x**3,
    "slope": right_value_wrong_slope,
    "nan": lambda x: x**3 + 0 * torch.where(x > 1.9, torch.nan, x),
    "one element": lambda x: x**3 + 0.01 * (torch.arange(9) == 4),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_kernel_is_reported(call: Any, tmp_path: Path) -> None:
    result = measure_all([lambda: planted(call)], "smoke", CPU, "ref")
    assert result.wrong == ["rope/cube/float32/forward+backward ref"]
    assert not result.ok
    assert "WRONG" in render(result.data)
    good = measure_all([lambda: planted(lambda x: x * x * x)], "smoke", CPU, "ref")
    assert good.ok
    assert "WRONG" not in render(good.data)
    paths = [tmp_path / "good.json", tmp_path / "wrong.json"]
    for path, r in zip(paths, (good, result), strict=True):
        path.write_text(json.dumps(r.data))
    assert bench.compare(str(paths[0]), str(paths[1]), fail_over=1e9) == 1


def test_a_wrong_shape_is_an_infinite_error() -> None:
    assert measure.errors([torch.zeros(3)], [torch.zeros(4)]) == (float("inf"), float("inf"))
    assert measure.errors([torch.tensor([1.0, 4.5])], [torch.tensor([1.0, 5.0])]) == (0.5, 0.1)


# ---- numbers -------------------------------------------------------------------------------------------


def test_rounds_interleave_and_rotate(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(measure, "_seconds", lambda run, repeats, device: calls.append(run()[0]) or 2.0)
    times = measure.rounds({n: lambda n=n: (n,) for n in "abc"}, CPU, 3, 0.0)
    assert "".join(calls) == "aabbcc" + "abc" + "bca" + "cab"  # two warm-ups each, then the rounds
    assert times == {n: [2.0] * 3 for n in "abc"}


def test_summary_by_hand() -> None:
    case = planted(lambda x: x**3)
    row = measure.summary(case, [1e-6, 2e-6, 4e-6], [4e-6, 4e-6, 4e-6], ("copy", [1e-6, 1e-6, 1e-6]))
    assert row["ms"]["p50"] == 2e-3
    assert row["ms"]["min"] == 1e-3
    assert row["gb_per_s"] == pytest.approx(72 / 2e-6 / 1e9)
    assert row["gflop_per_s"] == pytest.approx(18 / 2e-6 / 1e9)
    assert row["ratio"]["eager"] == {"p50": 2.0, "mad": 1.0}  # ratios 4, 2, 1
    assert row["ratio"]["copy"] == {"p50": 0.5, "mad": 0.25}


def test_declared_work() -> None:
    """Against figures worked out by hand for GLM-4.1V at 512 tokens."""
    case = rope_bench._case("glm-4.1v text", 512, torch.bfloat16, CPU, backward=False)
    assert case.bytes == 2 * 512 * (32 + 2) * 128 * 2 + 3 * 512 * 4
    assert case.flops == 3 * 512 * (32 + 2) * 64
    causal = attention._case("glm-4.1v text", [512], torch.float32, CPU, backward=False)
    assert causal.flops == 4 * (512 * 513 // 2) * 32 * 128
    assert causal.bytes == 4 * 512 * 128 * (2 * 32 + 2 * 2)
    full = attention._case("glm-v vision", [256, 256], torch.float32, CPU, backward=True)
    assert full.flops == 3.5 * 4 * 2 * 256**2 * 12 * 128


# ---- compare -------------------------------------------------------------------------------------------


def result(
    speed: float, mad: float = 0.01, *, host: str = "h", schema: str = SCHEMA, case: str = "c"
) -> dict[str, Any]:
    rows = [("eager", 1.0, 0.0), ("native", speed, mad)]
    return {
        "schema": schema,
        "host": {"fingerprint": host},
        "cases": [
            {"id": case, "impl": n, "ok": True, "max_rel_err": 0.0, "ratio": {"eager": {"p50": s, "mad": m}}}
            for n, s, m in rows
        ],
    }


@pytest.mark.parametrize(
    ("base", "new", "code", "message"),
    [
        (result(4.0), result(3.7), 0, "1 cases compared, 0 faults"),
        (result(4.0), result(5.0), 0, "0 faults"),
        (result(4.0), result(3.5), 1, "c  native: 4.00 -> 3.50 times the speed of eager"),
        (result(4.0, mad=0.2), result(3.5), 0, "0 faults"),
        (result(4.0), {**result(4.0), "cases": result(4.0)["cases"][:1]}, 1, "c  native: gone"),
        (result(4.0), result(4.0, host="other"), 2, "not comparable: host h and other"),
        (result(4.0), result(4.0, schema="glmv.bench/2"), 2, "not comparable: schema"),
        (result(4.0), result(4.0, case="d"), 2, "no case is in both"),
    ],
    ids=[
        "small loss",
        "faster",
        "slower",
        "slower within noise",
        "gone",
        "other host",
        "other schema",
        "other case",
    ],
)
def test_compare(
    base: dict[str, Any],
    new: dict[str, Any],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = [tmp_path / "base.json", tmp_path / "new.json"]
    for path, data in zip(paths, (base, new), strict=True):
        path.write_text(json.dumps(data))
    assert bench.compare(str(paths[0]), str(paths[1])) == code
    assert message in capsys.readouterr().out
