"""The Triton rope without a GPU: every op test under the interpreter, and the machine code of four GPUs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from triton import knobs  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from glmv.kernels.rope import Config, constants, pick_config, rope_kernel  # noqa: E402

HERE = Path(__file__).parent
compiled = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)


def test_under_the_interpreter() -> None:
    """The tests of the op with backend "triton", in a process of their own: Triton reads the switch early."""
    files = [str(HERE / "test_rope.py"), str(HERE / "test_rope_bugs.py")]
    choice = ["-k", "triton and not compiles and not opcheck", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *files, *choice],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    dots = run.stdout.partition("[100%]")[0]
    assert dots.count(".") >= 40, run.stdout
    assert "s" not in dots, "a skipped test"


@pytest.mark.parametrize(
    ("heads", "rotary", "want"),
    [
        (32, 64, Config(4, 16, 4)),
        (12, 128, Config(2, 16, 4)),
        (4, 16, Config(64, 4, 4)),
        (1, 64, Config(64, 1, 4)),
        (96, 8192, Config(1, 16, 4)),
    ],
)
def test_config(heads: int, rotary: int, want: Config) -> None:
    assert pick_config(heads, rotary) == want


@compiled
def test_lengths_are_no_constants() -> None:
    """Liger 146: a kernel compiled anew for each length stalls training."""
    names = {p.name: p for p in rope_kernel.params}
    assert set(constants(8, 2, True, True, False, Config(1, 1, 1))) == {
        n for n, p in names.items() if p.is_constexpr
    }
    assert names["num_tokens"].do_not_specialize
    assert names["stride_pa"].do_not_specialize


def compile_for(cc: int, dtype: str, adjacent: bool, in_place: bool) -> "triton.compiler.CompiledKernel":
    """The kernel as GLM-4.1V launches it on contiguous q and k: pointers and strides divisible by 16."""
    config = pick_config(32, 64)
    fixed: dict[str, int] = constants(128, 32, adjacent, False, in_place, config)
    fixed |= {"stride_pt": 1, "stride_f": 1, "stride_a": 1}
    pointers = dict.fromkeys(("Q", "K", "Y_Q", "Y_K"), f"*{dtype}") | {
        "POS": "*i32",
        "INV_FREQ": "*fp32",
        "AXIS": "*i32",
    }
    signature, attributes = {}, {}
    for i, name in enumerate(rope_kernel.arg_names):
        signature[name] = "constexpr" if name in fixed else pointers.get(name, "i32")
        if name in pointers or (name.startswith("stride") and name not in ("stride_pa", *fixed)):
            attributes[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(rope_kernel, signature, constexprs=fixed, attrs=attributes)
    return triton.compile(source, GPUTarget("cuda", cc, 32), {"num_warps": config.num_warps})


@compiled
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("cc", [80, 90, 100, 120])
@pytest.mark.parametrize(("adjacent", "in_place"), [(True, False), (False, True)])
def test_machine_code(cc: int, adjacent: bool, in_place: bool, tmp_path: Path) -> None:
    kernel = compile_for(cc, "bf16", adjacent, in_place)
    cubin = tmp_path / "rope.cubin"
    cubin.write_bytes(kernel.asm["cubin"])
    usage = subprocess.run(
        [knobs.nvidia.cuobjdump.path, "-res-usage", cubin], capture_output=True, text=True, check=True
    ).stdout
    registers, stack, local = (
        int(x) for x in re.search(r"REG:(\d+) STACK:(\d+).*LOCAL:(\d+)", usage).groups()
    )
    assert registers <= 80, "more would leave fewer than 6 blocks of 128 threads on a multiprocessor"
    assert stack == local == 0, "registers were spilled"
    moves = re.findall(r"(ld|st)\.global\S*?(\.v4)?\.b(?:32|16)\b", kernel.asm["ptx"])
    narrow = [kind for kind, wide in moves if not wide]
    # All of q and k moves in 16-byte runs; the three narrow loads are pos, inv_freq and axis_of_lane.
    assert narrow == ["ld"] * 3
    assert (
        sum(kind == "ld" for kind, wide in moves if wide)
        == sum(kind == "st" for kind, wide in moves if wide)
        > 0
    )
