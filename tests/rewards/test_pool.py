"""Workers with limits: what breaks one costs its own task and nothing else."""

import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glmv.rewards.pool import Pool, TaskDied, TaskError, TaskFailed, TaskMemory, TaskTimeout

START_SECONDS = 30.0  # room for a loaded machine: only the order of magnitude matters


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, seconds=1.0, memory_mb=256) as made:
        yield made


def test_results_are_in_order(pool: Pool) -> None:
    assert pool.map(math.factorial, [(n % 10,) for n in range(300)]) == [
        math.factorial(n % 10) for n in range(300)
    ]


def test_a_hung_task_is_killed_and_the_others_are_not(pool: Pool) -> None:
    before = pool.replaced
    began = time.monotonic()
    results = pool.map(time.sleep, [(0,), (3600,), (0,)])
    assert time.monotonic() - began < START_SECONDS
    assert [type(result) for result in results] == [type(None), TaskTimeout, type(None)]
    assert pool.replaced == before + 1


def test_c_code_that_holds_the_lock_is_killed_too(pool: Pool) -> None:
    with pytest.raises(TaskTimeout):
        pool.call(pow, 7, 10**9)


def test_memory_is_bounded(pool: Pool) -> None:
    assert isinstance(pool.map(bytearray, [(1 << 30,)])[0], TaskMemory)
    assert pool.call(bytearray, 10) == bytearray(10)


def test_an_error_of_a_task_is_its_result(pool: Pool) -> None:
    result = pool.map(math.sqrt, [(-1,), (4,)])
    assert isinstance(result[0], TaskFailed)
    assert result[1] == 2
    with pytest.raises(TaskError, match="ValueError"):
        pool.call(math.sqrt, -1)


def test_a_worker_that_ends_is_replaced(pool: Pool) -> None:
    assert [type(result) for result in pool.map(os._exit, [(1,)])] == [TaskDied]
    assert pool.call(math.sqrt, 4) == 2


def test_a_worker_killed_while_idle_costs_no_task() -> None:
    with Pool(1) as small:
        pid = small.call(os.getpid)
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        assert small.call(os.getpid) != pid


def test_a_worker_cannot_write_files(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(TaskError):
        pool.call(Path.write_text, tmp_path / "canary", "x")
    assert not (tmp_path / "canary").exists() or (tmp_path / "canary").stat().st_size == 0
    assert pool.call(resource.getrlimit, resource.RLIMIT_CORE) == (0, 0)


def test_from_threads_that_are_not_the_main_one(pool: Pool) -> None:
    got: list[float] = []
    threads = [threading.Thread(target=lambda: got.append(pool.call(math.sqrt, 4))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(START_SECONDS)
    assert got == [2.0] * 6


def run(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_a_program_without_a_main_guard_is_not_run_again() -> None:
    assert run("from glmv.rewards.pool import Pool\nprint('once')\nprint(Pool(1).call(abs, -3))\n") == [
        "once",
        "3",
    ]


def test_after_a_fork_each_side_has_workers_of_its_own() -> None:
    program = """
import os
from glmv.rewards.pool import Pool
pool = Pool(1)
first = pool.call(os.getpid)
child = os.fork()
if child == 0:
    os._exit(pool.call(os.getpid) == first)
print(os.waitpid(child, 0)[1], pool.call(os.getpid) == first)
"""
    assert run(program) == ["0", "True"]


def test_a_hung_worker_does_not_outlive_its_parent() -> None:
    program = "import os, time\nfrom glmv.rewards.pool import Pool\npool = Pool(1, seconds=0.5)\n"
    program += "print(pool.call(os.getpid), flush=True)\npool.call(pow, 7, 10**9)\n"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    end = time.monotonic() + START_SECONDS
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glmv.rewards.pool._BOOT", "raise SystemExit(3)")
    with Pool(2) as broken, pytest.raises(RuntimeError, match="did not start"):
        broken.map(math.sqrt, [(n,) for n in range(4)])


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Pool(0)
