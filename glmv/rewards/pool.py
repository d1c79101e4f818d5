"""Worker processes with a time and a memory limit: one that breaks a limit is killed and replaced.

A worker is a fresh interpreter (not a fork, and it does not import the caller's main module), so a pool can
be made and used from any thread of any program. Functions must be importable by name; they and their
arguments are pickled. Nobody waits for a task beyond its deadline: the process is killed from outside, which
also stops C code that no signal handler or thread could interrupt.
"""

import json
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

DEFAULT_SECONDS = 2.0
DEFAULT_MEMORY_MB = 512
START_SECONDS = 120.0  # for an interpreter and its imports on a loaded machine
ORPHAN_FACTOR = 2.0
CHUNK = 64  # tasks that are sent to a worker at once

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from glmv.rewards.pool import serve; serve()"
)
# What a task may raise without being a defect of the worker; it is reported, and the worker goes on.
_TASK_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class TaskError(Exception):
    """A task without a result."""


class TaskTimeout(TaskError):
    """It took longer than its limit; its worker was killed."""


class TaskMemory(TaskError):
    """It asked for more memory than its limit."""


class TaskDied(TaskError):
    """Its worker process ended."""


class TaskFailed(TaskError):
    """It raised; the message holds the type and the text."""


class Pool:
    """`workers` processes, started when first needed; usable from several threads at once.

    `seconds` is the wall time of one task. `memory_mb` is what a worker may add to the address space that it
    has after its imports. A worker cannot write to files.
    """

    def __init__(
        self, workers: int = 1, seconds: float = DEFAULT_SECONDS, memory_mb: int = DEFAULT_MEMORY_MB
    ) -> None:
        if workers < 1 or seconds <= 0 or memory_mb < 1:
            raise ValueError(
                "Pool: workers, seconds and memory_mb must be positive, "
                f"got {workers}, {seconds}, {memory_mb}"
            )
        self.workers, self.seconds, self.memory_mb = workers, seconds, memory_mb
        self.replaced = 0  # workers killed or lost so far
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(_Worker(seconds, memory_mb))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one task. Raises TaskError."""
        result = self.map(function, [arguments])[0]
        if isinstance(result, TaskError):
            raise result
        return result

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """`function(*task)` of every task, in order; a task without a result has its TaskError there."""
        results: list[Any] = [None] * len(tasks)
        # Small chunks towards the end would not pay: a chunk is lost only with its own worker.
        size = max(1, min(CHUNK, -(-len(tasks) // self.workers)))
        starts = iter(range(0, len(tasks), size))
        lock = threading.Lock()

        def drive() -> None:
            while True:
                with lock:
                    start = next(starts, None)
                if start is None:
                    return
                for at, result in self._run(function, tasks[start : start + size]):
                    results[start + at] = result

        others = min(self.workers, len(tasks)) - 1
        with ThreadPoolExecutor(max(1, others)) as threads:  # one thread per worker, this one among them
            running = [threads.submit(drive) for _ in range(others)]
            drive()
            for thread in running:
                thread.result()
        return results

    def _run(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Runs a chunk on one worker; after a kill the rest goes to its replacement."""
        worker = self._idle.get()
        try:
            done = 0
            while done < len(tasks):
                for result in worker.run(function, tasks[done:]):
                    yield done, result
                    done += 1
                    if worker.process is None:
                        self.replaced += 1
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Kill the idle workers. The pool can be used again: they start anew."""
        workers = []
        while not self._idle.empty():
            workers.append(self._idle.get())
        for worker in workers:
            worker.kill()
            self._idle.put(worker)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """One process and the socket to it. `process` is None when it must be started."""

    def __init__(self, seconds: float, memory_mb: int) -> None:
        self.seconds, self.memory_mb = seconds, memory_mb
        self.owner = os.getpid()
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection[Any, Any] | None = None

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results in order. After a broken limit the last one is a TaskError and the worker is gone."""
        connection = self._ready()
        try:
            connection.send((function, tasks))
            for _ in tasks:
                if not connection.poll(self.seconds):
                    self.kill()
                    yield TaskTimeout(f"over {self.seconds:g} s")
                    return
                result = connection.recv()
                if isinstance(result, TaskMemory):
                    self.kill()  # what is left of its heap is not worth keeping
                    yield result
                    return
                yield result
        except (EOFError, OSError) as error:
            self.kill()
            yield TaskDied(str(error) or "the worker ended")

    def _ready(self) -> "Connection[Any, Any]":
        if self.owner != os.getpid():
            self._forget()
        elif self.process is not None and self.process.poll() is not None:
            self.kill()  # it ended while idle
        if self.connection is None:
            ours, theirs = socket.socketpair()
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            limits = [str(self.seconds), str(self.memory_mb)]
            argv = [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno()), *limits]
            with theirs:
                self.process = subprocess.Popen(
                    argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
                )
            self.connection = Connection(ours.detach())
            try:
                started = self.connection.poll(START_SECONDS) and self.connection.recv() == "ready"
            except (EOFError, OSError):
                started = False
            if not started:
                self.kill()
                raise RuntimeError("a reward worker did not start; its error is above")
        return self.connection

    def _forget(self) -> None:
        """After a fork the process and its socket belong to the parent."""
        if self.connection is not None:
            self.connection.close()
        self.owner, self.process, self.connection = os.getpid(), None, None

    def kill(self) -> None:
        if self.owner != os.getpid():
            self._forget()
        if self.connection is not None:
            self.connection.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()  # killed: this only collects its exit code
        self.process = self.connection = None


def serve() -> None:
    """The loop of a worker process; ends when the other side of its socket is closed."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[2]))
    # Kept by the kernel, so that a task does not outlive a parent that was killed and cannot kill it.
    alarm = ORPHAN_FACTOR * float(sys.argv[3])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the socket
    _limit(int(sys.argv[4]))
    connection.send("ready")
    while True:
        try:
            function, tasks = connection.recv()
            for task in tasks:
                signal.setitimer(signal.ITIMER_REAL, alarm)
                connection.send(_attempt(function, task))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (EOFError, OSError):
            return


def _attempt(function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    try:
        return function(*task)
    except MemoryError:
        return TaskMemory("out of its memory limit")
    except _TASK_ERRORS as error:
        return TaskFailed(f"{type(error).__name__}: {error}")


def _limit(memory_mb: int) -> None:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # in a worker of a worker: what the outer one left
    limit = used + memory_mb * 2**20
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
