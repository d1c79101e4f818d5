"""The files of the source tree, from git or, in an unpacked sdist, by walking."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCE = {".git", ".venv", "build", "dist", "runs", "data", "__pycache__"}


def files() -> list[str]:
    """Regular files, tracked or not yet, that git does not ignore; relative to the root, sorted."""
    names = _from_git() if (ROOT / ".git").exists() else _by_walking()
    return sorted(name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink())


def copy_to(folder: Path) -> Path:
    """A copy of the source tree as git would give it: links kept, nothing that was built."""
    for name in files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    for link in (path for path in (ROOT / "glmv").iterdir() if path.is_symlink()):
        (folder / "glmv" / link.name).symlink_to(os.readlink(link))
    return folder


def _from_git() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split("\0")


def _by_walking() -> list[str]:
    names = []
    for folder, folders, found in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        hidden = NOT_SOURCE if here == Path() else {"__pycache__"}
        folders[:] = [f for f in folders if f not in hidden and not f.endswith((".egg-info", "_cache"))]
        names += [str(here / name) for name in found if not name.endswith((".so", ".pyc"))]
    return names
