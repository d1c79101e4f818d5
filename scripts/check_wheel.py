"""Check a built wheel: python scripts/check_wheel.py WHEEL [--archs LIST] [--python PYTHON ...]

Names of symbols and libraries are on allow-lists, the platform tag is honest, the GPU binaries are those
asked for, the size is within its budget, and the package runs under the torch of each PYTHON: with its
extension and with GLMV_DISABLE_EXT=1, without a CUDA driver being needed. Exit code 1 if anything is not so.
Needs binutils; cuobjdump (of CUDA or of Triton's wheel) for the GPU binaries.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
BUDGET_MIB = {"cpu": 2.0, "cuda": 25.0}
SYSTEM = r"lib(stdc\+\+|gcc_s|c|m|dl|rt|pthread)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+"
# Library -> what it may need beside the C and C++ libraries of the system.
NEEDED = {
    "libglmv.so": r"(?!)",
    "_torch.so": r"libglmv\.so|libtorch(_cpu)?\.so|libc10\.so",
    "_C": r"libglmv\.so",
}
# Library -> undefined symbols it may have beside those with a version (GLIBC_, GLIBCXX_, ...).
RUNTIME = r"_ITM_\w+|__gmon_start__|__cxa_finalize|__tls_get_addr"
SYMBOLS = {
    "libglmv.so": r"(?!)",
    "_torch.so": r"glmv_\w+|aoti_torch_\w+|torch_\w+",
    "_C": r"glmv_\w+|_?Py\w+",
}
STREAM = "aoti_torch_get_current_cuda_stream"

# Run in a fresh process, from the unpacked wheel: prints one line.
PROBE = """
import ctypes, importlib.machinery, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("error", RuntimeWarning)
import torch, glmv.ops
from glmv import _native
files = [getattr(m, "__file__", None) or "" for n, m in sys.modules.items() if n.split(".")[0] == "glmv"]
strange = [file for file in files if not file.startswith(sys.argv[1])]
assert not strange, f"not of this wheel: {strange[0]}"  # an editable install fills what a wheel lacks
off, reason = sys.argv[2] == "off", _native.load()
assert (reason is None) != off, reason
x = torch.ones(3, 2, 4)
args = (x, None, torch.zeros(1, 3, dtype=torch.int64), torch.ones(2), torch.zeros(2, dtype=torch.int64))
assert torch.equal(glmv.ops.rope(*args)[0], x)
assert glmv.ops.last_backend("rope") == ("ref" if off else "native")
own = _native.LIBRARY.parent.glob("_C*" + importlib.machinery.EXTENSION_SUFFIXES[0])
text = f"torch {torch.__version__}, Python {sys.version.split()[0]}"
if off:
    text += ", extension off"
elif any(own):
    import numpy, glmv._C
    y = numpy.full((3, 2, 4), 7, dtype=numpy.float32)
    glmv._C.rope(x.numpy(), *(None if a is None else a.numpy() for a in args[1:]), y, None)
    assert (y == x.numpy()).all()
    text += ", _C on NumPy"
if not off and hasattr(torch.ops.glmv_native, "scale_add"):
    has = bool(ctypes.CDLL(str(_native.LIBRARY)).glmv_torch_has_streams())
    assert has == (torch.version.cuda is not None), "the stream symbol is not resolved as it should be"
    text += f", stream symbol {'found' if has else 'null'}"
try:
    ctypes.CDLL("libcuda.so.1")
    text += ", a CUDA driver is here"
except OSError:
    text += ", no CUDA driver"
print(text)
"""

Result = tuple[bool, str, str]  # whether it is so, what was checked, what was found


def check(wheel: Path, archs: str | None, pythons: list[str]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        root = Path(folder)
        libraries = sorted(root.rglob("*.so*"))
        names = [path.name for path in libraries]
        yield any("_torch.so" in name for name in names), "holds the extension", " ".join(names)
        extra = [str(path.relative_to(root)) for path in libraries if path.parent != root / "glmv"]
        yield not extra, "no library of others inside, no second OpenMP", " ".join(extra) or "none"
        for path in libraries:
            yield from _links(path)
        yield _tag(wheel, root, libraries)
        cuda, recorded = _cuda(root / "glmv/libglmv.so")
        yield _size(wheel, "cuda" if cuda else "cpu")
        if cuda or archs:
            yield from _binaries(root / "glmv/libglmv.so", archs or recorded, recorded)
            yield _stream(root / "glmv/_torch.so")
        for python in pythons:
            for mode in ("on", "off"):
                yield _imports(python, root, mode)


def _output(*command: object, **env: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=os.environ | env
    )
    return done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def _kind(path: Path) -> str:
    return "_C" if path.name.startswith("_C.") else path.name


def _links(path: Path) -> Iterator[Result]:
    kind = _kind(path)
    needed = re.findall(r"NEEDED.*\[(.+)\]", _output("readelf", "-d", path))
    bad = [n for n in needed if not re.fullmatch(f"{SYSTEM}|{NEEDED.get(kind, '(?!)')}", n)]
    yield not bad, f"{path.name} needs", " ".join(bad or needed)
    undefined = _undefined(path)
    allowed = f"{RUNTIME}|{SYMBOLS.get(kind, '(?!)')}|\\w+@+(GLIBC|GLIBCXX|CXXABI|GCC)_[\\w.]+"
    bad = [name for name in undefined if not re.fullmatch(allowed, name)]
    yield (
        bool(undefined) and not bad,
        f"{path.name} takes symbols",
        " ".join(bad) or f"{len(undefined)}, all allowed",
    )


def _undefined(path: Path) -> list[str]:
    return [line.split()[-1] for line in _output("nm", "-D", "--undefined-only", path).splitlines()]


def _tag(wheel: Path, root: Path, libraries: list[Path]) -> Result:
    """The platform in the file's name is the one inside, and promises no older glibc than symbols need."""
    (metadata,) = root.glob("*.dist-info/WHEEL")
    inside = re.findall(r"^Tag: (.+)$", metadata.read_text(), re.MULTILINE)
    platforms = wheel.stem.split("-")[-1]
    same = {tag.split("-")[-1] for tag in inside} == set(platforms.split("."))
    used = [v for path in libraries for v in re.findall(r"@GLIBC_([\d.]+)", "\n".join(_undefined(path)))]
    most = max((tuple(map(int, v.split("."))) for v in used), default=(0, 0))
    promised = [(int(a), int(b)) for a, b in re.findall(r"manylinux_(\d+)_(\d+)", platforms)]
    honest = all(most <= glibc for glibc in promised)
    return same and honest, "platform tag", f"{platforms}, symbols up to glibc {'.'.join(map(str, most))}"


def _size(wheel: Path, kind: str) -> Result:
    size = wheel.stat().st_size
    return (
        size < BUDGET_MIB[kind] * MIB,
        "size",
        f"{size / MIB:.3f} MiB of {BUDGET_MIB[kind]:g} MiB for a {kind} wheel",
    )


def _cuda(library: Path) -> tuple[str, str]:
    """What the library says of itself: (version of nvcc, arch list), both empty without CUDA."""
    code = "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1])\nfor name in ('version', 'archs'):\n"
    code += " f = getattr(lib, 'glmv_cuda_' + name); f.restype = ctypes.c_char_p; print(f().decode())"
    version, archs, *_ = [*_output(sys.executable, "-c", code, library).splitlines(), "", ""]
    return version, archs


def cuobjdump() -> str | None:
    triton = importlib.util.find_spec("triton")
    folders = list(triton.submodule_search_locations or ()) if triton else []
    packaged = [str(Path(folder, "backends/nvidia/bin/cuobjdump")) for folder in folders]
    return next(filter(os.path.exists, packaged), shutil.which("cuobjdump"))


def _binaries(library: Path, wanted: str, recorded: str) -> Iterator[Result]:
    yield wanted == recorded, "GPU targets recorded", f"{recorded or 'none'}, asked for {wanted}"
    tool = cuobjdump()
    if tool is None:
        yield False, "GPU binaries", "no cuobjdump to look with: pip install triton, or the CUDA toolkit"
        return
    listed = re.findall(r"(\S+)\.sm_(\d+)[af]?\.(cubin|ptx)", _output(tool, "-lelf", "-lptx", library))
    expected = set()
    for arch in wanted.split(";"):
        number = arch.removesuffix("+PTX")
        expected |= {f"sm_{number}"} | ({f"ptx_{number}"} if arch.endswith("+PTX") else set())
    for source in sorted({name for name, _, _ in listed}) or ["none"]:
        got = {("ptx_" if kind == "ptx" else "sm_") + n for name, n, kind in listed if name == source}
        yield got == expected, f"GPU binaries of {source}", " ".join(sorted(got))


def _stream(library: Path) -> Result:
    weak = re.search(rf"\sw {STREAM}$", _output("nm", "-D", library), re.MULTILINE) is not None
    kept = "[libtorch.so]" in _output("readelf", "-d", library)
    return weak and kept, "stream symbol", f"{'weak' if weak else 'not weak'}, libtorch.so needed: {kept}"


def _imports(python: str, root: Path, mode: str) -> Result:
    env = {"GLMV_DISABLE_EXT": "1" if mode == "off" else "0", "PYTHONPATH": "", "GLMV_BACKEND": ""}
    done = subprocess.run(
        [python, "-c", PROBE, str(root), mode],
        cwd=root,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.strip() if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
    return done.returncode == 0, "runs", said


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--archs", help="the GLMV_CUDA_ARCHS it was built with; default: what it records")
    parser.add_argument("--python", action="append", help="an interpreter with torch; default: this one")
    args = parser.parse_args()
    results = list(check(args.wheel, args.archs, args.python or [sys.executable]))
    print(args.wheel.name)
    for good, what, found in results:
        print(f"  {'ok  ' if good else 'FAIL'}  {what}: {found}")
    return 0 if all(good for good, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
