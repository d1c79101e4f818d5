"""One request to an OpenAI-compatible endpoint (`/chat/completions`): bounded in time and size."""

import json
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx

from glmv.rewards.judge_config import Endpoint

MAX_RETRY_AFTER_DIGITS = 4
RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
RATE_LIMITS = frozenset({429, 529})


class RequestFailed(Exception):
    """`kind` is counted in the metrics; `retry` says whether another try makes sense, `after` when (s)."""

    def __init__(self, kind: str, retry: bool = True, after: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.retry, self.after = kind, retry, after

    @property
    def outage(self) -> bool:
        """A rate limit says that the endpoint is alive."""
        return self.kind not in {f"http_{status}" for status in RATE_LIMITS}


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    tokens_in: int
    tokens_out: int


class Breaker:
    """Lets nothing through for `seconds` after `failures` in a row; then one probe decides."""

    def __init__(self, failures: int, seconds: float) -> None:
        self.failures, self.seconds = failures, seconds
        self.trips = 0
        self._in_a_row = 0
        self._until = 0.0

    def allow(self) -> bool:
        if self._in_a_row < self.failures:
            return True
        now = time.monotonic()
        if now < self._until:
            return False
        self._until = now + self.seconds  # this request is the probe; others wait for its outcome
        return True

    def succeeded(self) -> None:
        self._in_a_row = 0

    def failed(self) -> None:
        self._in_a_row += 1
        if self._in_a_row >= self.failures:
            self.trips += self._in_a_row == self.failures
            self._until = time.monotonic() + self.seconds


async def post(client: httpx.AsyncClient, endpoint: Endpoint, body: dict[str, Any], max_bytes: int) -> bytes:
    """The reply, undecoded. Raises RequestFailed. The caller bounds the time: a slow drip has no end."""
    content = json.dumps(body).encode()  # in ASCII: a lone surrogate has no UTF-8
    try:
        async with client.stream(
            "POST", endpoint.address, content=content, headers=endpoint.headers()
        ) as response:
            if response.status_code != 200:
                raise RequestFailed(
                    f"http_{response.status_code}",
                    retry=response.status_code in RETRY_STATUS,
                    after=_retry_after(response.headers.get("retry-after", "")),
                )
            # Not decoded: a small compressed reply could grow without bound.
            if response.headers.get("content-encoding", "identity") != "identity":
                raise RequestFailed("encoded", retry=False)
            received = bytearray()
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > max_bytes:
                    raise RequestFailed("too_large", retry=False)
    except httpx.TimeoutException:
        raise RequestFailed("timeout") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError):
        raise RequestFailed("connection") from None
    return bytes(received)


def read_answer(received: bytes) -> Answer:
    try:
        found = json.loads(received)
        text, usage = found["choices"][0]["message"]["content"], found.get("usage") or {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise RequestFailed("bad_json") from None
    if not isinstance(text, str):
        raise RequestFailed("bad_json")
    return Answer(text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def chat_request(endpoint: Endpoint, prompt: str, max_tokens: int, temperature: float) -> dict[str, Any]:
    return {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": temperature,
        "max_tokens": max_tokens,
    }


def pooling_request(endpoint: Endpoint, pair: str, max_tokens: int, temperature: float) -> dict[str, Any]:
    """For a server of reward models; `pair` is JSON of [question, answer]."""
    question, answer = json.loads(pair)
    chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"model": endpoint.model, "messages": chat}


def read_score(received: bytes) -> Answer:
    """The number in a reply of a reward model: `data[0].score`, or the last one of `data[0].data`."""
    try:
        entry = json.loads(received)["data"][0]
        found = entry["score"] if "score" in entry else entry["data"]
        while isinstance(found, list):
            found = found[-1]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise RequestFailed("bad_json") from None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise RequestFailed("bad_json")
    return Answer(repr(float(found)), 0, 0)


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def _retry_after(text: str) -> float:
    """The form in seconds; a date or nonsense counts as not given."""
    return float(text) if re.fullmatch(rf"[0-9]{{1,{MAX_RETRY_AFTER_DIGITS}}}", text) else 0.0
