"""What is installed here, which backend each op will use, and why not the others: `glmv env`.

    python -m glmv.env [--json] [--check]

Works on a broken installation too: what cannot be found out is a sentence in the report, never an exception.
"""

import argparse
import ctypes
import importlib
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib import metadata
from json import dumps
from pathlib import Path
from typing import Any

from glmv import _cuda

Info = dict[str, Any]

PACKAGE = Path(__file__).resolve().parent
PACKAGES = (
    "numpy",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "flash-attn",
    "liger-kernel",
    "vllm",
)
VARIABLES = ("GLMV_", "OMP_", "MKL_", "CUDA_", "TORCH_", "TRITON_", "NVIDIA_")
CPU_FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
# What libglmv.so tells of itself: names of C functions without "glmv_".
BUILD_INFO = (
    "version",
    "compiler",
    "flags",
    "torch_built_with",
    "torch_target",
    "cuda_version",
    "cuda_archs",
)
# What a broken installation raises on import or first use.
BROKEN = (ImportError, OSError, RuntimeError, ValueError, AttributeError)


def collect() -> Info:
    """The report as plain data: sections of values, `problems` (what `--check` fails on) and `hints`."""
    info: Info = {
        "glmv": _glmv(),
        "extension": _guard(_extension),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "system": {"platform": platform.platform(), "libc": " ".join(platform.libc_ver())},
        "torch": _guard(_torch),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": _guard(_cpu),
        "driver": _guard(_cuda.driver),
        "gpus": _cuda.gpus(),
        "self-test": _guard(_cuda.self_test),
        "variables": {k: v for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)},
        "ops": _guard(_ops),
    }
    info["problems"] = _problems(info)
    info["hints"] = _hints(info)
    return info


def render(info: Info) -> str:
    """The report as text, one section a block."""
    blocks = []
    for title, section in info.items():
        if title == "ops" and "error" not in section:
            lines = _op_lines(section)
        elif isinstance(section, list):
            lines = [str(item) for item in section] or ["none"]
        else:
            lines = [f"{key:<17} {_text(value)}" for key, value in section.items()] or ["none"]
        blocks.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(blocks)


def report(json: bool = False, check: bool = False) -> int:
    """Print the report; 1 if `check` and something expected is missing, else 0."""
    info = collect()
    text = dumps(info, indent=2) if json else render(info)
    if json or not sys.stdout.isatty():
        print(text)
    else:
        _print_coloured(text)
    return 1 if check and info["problems"] else 0


def _print_coloured(text: str) -> None:
    """With rich, if it is installed: titles in bold, answers in colour."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(text)
        return
    styled = Text(text)
    styled.highlight_regex(r"(?m)^\S.*$", "bold cyan")
    styled.highlight_regex(r"(?m)\bauto -> \S+", "bold green")
    styled.highlight_regex(r"not installed|missing|not built|did not load|failed", "yellow")
    Console(highlight=False, soft_wrap=True).print(styled)


def _guard(section: Callable[[], Info]) -> Info:
    try:
        return section()
    except BROKEN as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _text(value: object) -> str:
    return (" ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


# ---- sections ------------------------------------------------------------------------------------------


def _glmv() -> Info:
    from glmv import __version__

    root = PACKAGE.parent
    commit = (
        _cuda.output("git", "-C", str(root), "describe", "--always", "--dirty")
        if (root / ".git").exists()
        else ""
    )
    return {"version": __version__, "commit": commit or "not a checkout", "location": str(PACKAGE)}


def _extension() -> Info:
    """Loads it, as the first op call would. What it is, the library itself tells."""
    from glmv import _native

    section: Info = {
        "state": _native.load() or "loaded",
        "file": str(_native.LIBRARY) if _native.LIBRARY.exists() else "none",
        "files": sorted(path.name for path in PACKAGE.glob("*.so")),
    }
    try:
        section["isa"] = importlib.import_module("glmv._C").isa()
    except ImportError as error:
        section["_C"] = f"missing: {error}"
    kernels = PACKAGE / "libglmv.so"
    return section | (_build_info(kernels) if kernels.exists() else {})


def _build_info(kernels: Path) -> Info:
    """Also where glmv._C is missing."""
    info: Info = {}
    try:
        library = ctypes.CDLL(str(kernels))
        for name in BUILD_INFO:
            tell = library[f"glmv_{name}"]
            tell.restype = ctypes.c_char_p
            info[name] = tell().decode() or "none"
    except (OSError, AttributeError) as error:  # a library that does not load, or of another version
        info[kernels.name] = str(error)
    return info


def _torch() -> Info:
    import torch

    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "none (CPU build)",
        "cuda available": torch.cuda.is_available(),
        "threads": torch.get_num_threads(),
        "openmp": _openmp(),
    }


def _openmp() -> list[str]:
    """The OpenMP libraries in this process. Two would be two thread pools."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    names = re.findall(r"/\S*/(?:libgomp|libomp|libiomp5)\S*\.so\S*", maps.read_text())
    return sorted(set(names))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> Info:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = {key.strip(): value for key, _, value in (line.partition(": ") for line in text.splitlines())}
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": cores,
        "features": [name for name in CPU_FEATURES if name in flags],
    }


def _ops() -> Info:
    """Device and, per op, what "auto" takes for a plain call and the reasons of the other backends."""
    import torch

    importlib.import_module("glmv.ops")
    from glmv import backend

    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    section: Info = {"device": device, "dtype": str(dtype).removeprefix("torch.")}
    for op, answers in backend.backends(device, dtype).items():
        usable = [name for name in backend.AUTO_ORDER[device] if answers.get(name) == "yes"]
        section[op] = {"auto": usable[0] if usable else "none", "backends": answers}
    return section


def _op_lines(section: Info) -> list[str]:
    lines = [f"for plain calls on {section['device']} in {section['dtype']}"]
    for op, answer in section.items():
        if not isinstance(answer, dict):
            continue
        lines.append(f"{op:<17} auto -> {answer['auto']}")
        lines += [f"  {name:<15} {why}" for name, why in answer["backends"].items() if name != answer["auto"]]
    return lines


# ---- conclusions ---------------------------------------------------------------------------------------


def _problems(info: Info) -> list[str]:
    """What is expected on every machine and is not there."""
    problems = [
        f"{title}: {info[title]['error']}"
        for title in ("extension", "torch", "cpu", "ops")
        if "error" in info[title]
    ]
    state = info["extension"].get("state", "loaded")
    if state != "loaded":
        problems.append(state)
    problems += [f"self-test on {at}: {said}" for at, said in info["self-test"].items() if "failed" in said]
    pools = info["torch"].get("openmp", [])
    if len(pools) > 1:
        problems.append(
            f"{len(pools)} OpenMP libraries are loaded, so two thread pools compete: {' '.join(pools)}"
        )
    idle = [op for op, answer in info["ops"].items() if isinstance(answer, dict) and answer["auto"] == "none"]
    return problems + [f"{op}: no backend is automatic on {info['ops']['device']}" for op in idle]


def _hints(info: Info) -> list[str]:
    hints = []
    built = info["extension"].get("version", info["glmv"]["version"])
    if built != info["glmv"]["version"]:
        hints.append(
            f"the extension is of version {built}: build it again (pip install, or make in a checkout)"
        )
    if info["gpus"] and not info["torch"].get("cuda available"):
        hints.append("a GPU is here, but this torch does not see it: install a CUDA build of torch")
    cuda, archs = (info["extension"].get(name, "none") for name in ("cuda_version", "cuda_archs"))
    hints += _cuda.hints(info["gpus"], info["driver"].get("cuda", "none"), cuda, archs)
    if not info["gpus"]:
        hints.append("no GPU: ops run on the CPU")
    threads, cores = info["torch"].get("threads"), info["cpu"].get("cores")
    if threads and cores and threads > cores:
        hints.append(f"torch uses {threads} threads on {cores} cores: set OMP_NUM_THREADS={cores}")
    if "GLMV_BACKEND" in info["variables"]:
        hints.append("GLMV_BACKEND names the backend of every op; unset it for the automatic choice")
    return hints


def main() -> int:
    parser = argparse.ArgumentParser("python -m glmv.env", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--check", action="store_true", help="exit 1 if something expected is missing")
    args = parser.parse_args()
    return report(json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
