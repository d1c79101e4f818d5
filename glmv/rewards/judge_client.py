"""A judge behind one or several OpenAI-compatible endpoints.

`JudgeClient(config)` is a `Judge`: called with a prompt it returns one reply per endpoint, of which the
majority decides, or raises JudgeError, which masks the score. It may be called from any thread; the
requests run on an event loop of its own. `ask_many` asks many at once. Nothing is asked twice: replies
that hold a score are kept on disk, and equal prompts in flight share one request.
"""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from glmv.rewards.judge import SCALES, parse_reply
from glmv.rewards.judge_cache import ReplyCache, key
from glmv.rewards.judge_config import Endpoint, JudgeConfig
from glmv.rewards.judge_http import Answer, Breaker, RequestFailed, chat_request, post, read_answer
from glmv.rewards.types import JudgeError

T = TypeVar("T")
# What is sent (endpoint, prompt, max_tokens, temperature), and how its reply is read; raises RequestFailed.
Request = Callable[[Endpoint, str, int, float], dict[str, Any]]
Read = Callable[[bytes], Answer]


@dataclass
class JudgeMetrics:
    """Counts since the client was made; `failures` by kind of failed request."""

    asked: int = 0
    unavailable: int = 0
    requests: int = 0
    cache_hits: int = 0
    shared: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    seconds: float = 0.0  # summed over requests
    failures: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, float]:
        """Flat, for a metrics file."""
        flat = {f"judge/{name}": float(value) for name, value in vars(self).items() if name != "failures"}
        return flat | {f"judge/failed_{kind}": float(count) for kind, count in sorted(self.failures.items())}


class JudgeClient:
    """See the module. `close` ends the thread; a client that is called again starts anew."""

    name = "llm"

    def __init__(
        self, config: JudgeConfig, request: Request = chat_request, read: Read = read_answer
    ) -> None:
        self.config, self._build, self._read = config, request, read
        self.metrics = JudgeMetrics()
        self._start = threading.Lock()
        self._owner = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[type["JudgeClient"], tuple[JudgeConfig, Request, Read]]:
        return JudgeClient, (self.config, self._build, self._read)

    def __call__(self, prompt: str) -> list[str]:
        return self._wait(self._ask(prompt))

    def ask_many(self, prompts: Sequence[str]) -> list[list[str] | JudgeError]:
        """The replies to each prompt, in order; a JudgeError stands where no quorum answered."""
        return self._wait(self._ask_all(prompts))

    @property
    def trips(self) -> int:
        """How often an endpoint was given up for a while."""
        return sum(breaker.trips for breaker in self._breakers) if self._loop else 0

    def close(self) -> None:
        with self._start:
            if self._loop is None or self._thread is None or self._owner != os.getpid():
                return
            asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop).result()
            self._loop.call_soon_threadsafe(self._cache.close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._start:
            if self._loop is None or self._owner != os.getpid():  # a thread does not survive a fork
                self._owner = os.getpid()
                loop = self._loop = asyncio.new_event_loop()
                ready = threading.Event()
                self._thread = threading.Thread(target=self._serve, args=(loop, ready), daemon=True)
                self._thread.start()
                ready.wait()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def _serve(self, loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
        """The body of the thread: everything that belongs to its loop is made here."""
        asyncio.set_event_loop(loop)
        config, n = self.config, len(self.config.endpoints)
        limits = httpx.Limits(
            max_connections=config.concurrency * n, max_keepalive_connections=config.concurrency * n
        )
        self._http = httpx.AsyncClient(timeout=config.timeout, limits=limits)
        self._cache = ReplyCache(config.cache)
        self._breakers = [Breaker(config.breaker_failures, config.breaker_seconds) for _ in range(n)]
        self._slots = [asyncio.Semaphore(config.concurrency) for _ in range(n)]
        self._in_flight: dict[str, asyncio.Task[str]] = {}
        ready.set()
        loop.run_forever()
        loop.close()

    async def _ask_all(self, prompts: Sequence[str]) -> list[list[str] | JudgeError]:
        async def one(prompt: str) -> list[str] | JudgeError:
            try:
                return await self._ask(prompt)
            except JudgeError as error:
                return error

        return list(await asyncio.gather(*(one(prompt) for prompt in prompts)))

    async def _ask(self, prompt: str) -> list[str]:
        self.metrics.asked += 1
        n = len(self.config.endpoints)
        found = await asyncio.gather(*(self._share(i, prompt) for i in range(n)), return_exceptions=True)
        replies = [reply for reply in found if isinstance(reply, str)]
        errors = [error for error in found if isinstance(error, BaseException)]
        for error in errors:
            if not isinstance(error, JudgeError):
                raise error
        if len(replies) < (self.config.quorum or n):
            self.metrics.unavailable += 1
            raise JudgeError("; ".join(sorted({str(error) for error in errors})))
        return replies

    async def _share(self, index: int, prompt: str) -> str:
        """From the cache, from an equal request in flight, or by a new one."""
        endpoint, config = self.config.endpoints[index], self.config
        name = key(prompt, endpoint.address, endpoint.model, config.temperature, config.max_tokens)
        running = self._in_flight.get(name)
        if running is not None:
            self.metrics.shared += 1
            return await asyncio.shield(running)
        cached = self._cache.get(name)
        if cached is not None:
            self.metrics.cache_hits += 1
            return cached
        task = asyncio.ensure_future(self._try(index, prompt))
        self._in_flight[name] = task
        try:
            reply = await task
        finally:
            del self._in_flight[name]
        if any(parse_reply(reply, scale) is not None for scale in SCALES):
            self._cache.put(name, reply)  # what cannot be read may be an accident: it is asked again
        return reply

    async def _try(self, index: int, prompt: str) -> str:
        """One endpoint, several attempts. Raises JudgeError."""
        breaker, config = self._breakers[index], self.config
        failure = RequestFailed("open", retry=False)
        for attempt in range(config.attempts):
            if attempt:
                self.metrics.retries += 1
                await asyncio.sleep(self._pause(attempt, failure.after))
            async with self._slots[index]:
                if not breaker.allow():
                    failure = RequestFailed("open", retry=False)
                    break
                try:
                    answer = await self._request(index, prompt)
                except RequestFailed as error:
                    failure = error
                    self.metrics.failures[error.kind] += 1
                    if error.outage:
                        breaker.failed()
                else:
                    breaker.succeeded()
                    return answer.text
            if not failure.retry:
                break
        raise JudgeError(f"{config.endpoints[index].model}: {failure.kind}")

    async def _request(self, index: int, prompt: str) -> Answer:
        config, endpoint, metrics = self.config, self.config.endpoints[index], self.metrics
        body = self._build(endpoint, prompt, config.max_tokens, config.temperature)
        metrics.requests += 1
        start = time.monotonic()
        try:
            received = await asyncio.wait_for(
                post(self._http, endpoint, body, config.max_reply_bytes), config.timeout
            )
        except asyncio.TimeoutError:
            raise RequestFailed("timeout") from None
        finally:
            metrics.seconds += time.monotonic() - start
        answer = self._read(received)
        metrics.tokens_in += answer.tokens_in
        metrics.tokens_out += answer.tokens_out
        dollars = answer.tokens_in * endpoint.price_in + answer.tokens_out * endpoint.price_out
        metrics.dollars += dollars / 1e6
        return answer

    def _pause(self, attempt: int, after: float) -> float:
        """Full jitter: clients that failed together do not come back together. The server's wish counts."""
        longest = min(self.config.max_backoff, self.config.backoff * 2 ** (attempt - 1))
        return min(self.config.max_backoff, after) + random.uniform(0, longest)
