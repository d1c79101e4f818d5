"""Where judges are, and how patiently they are asked."""

import os
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the base (".../v1") or the full address (".../chat/completions", ".../pooling").

    `key` is `$NAME` of an environment variable, or the key itself. Prices: dollars per million tokens.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    price_in: float = 0.0
    price_out: float = 0.0

    @property
    def address(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith(("/completions", "/pooling")) else base + "/chat/completions"

    def headers(self) -> dict[str, str]:
        key = os.environ.get(self.key[1:], "") if self.key.startswith("$") else self.key
        fixed = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        return fixed | ({"Authorization": f"Bearer {key}"} if key else {})


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """Times in seconds. `quorum`: endpoints that must answer, 0 = all; with fewer the score is masked."""

    endpoints: tuple[Endpoint, ...]
    concurrency: int = 32  # requests in flight, per endpoint
    timeout: float = 60.0  # one request, from the connection to the last byte
    attempts: int = 5
    backoff: float = 0.5  # the longest first pause; doubles with each attempt
    max_backoff: float = 20.0
    breaker_failures: int = 10
    breaker_seconds: float = 30.0
    max_tokens: int = 512
    temperature: float = 0.0
    max_reply_bytes: int = 1 << 20
    quorum: int = 0
    cache: str = ""  # file; empty: in memory

    def __post_init__(self) -> None:
        n = len(self.endpoints)
        if n == 0 or not 0 <= self.quorum <= n:
            raise ValueError(f"JudgeConfig: needs endpoints, and a quorum in 0..{n}, got {self.quorum}")
        for name in (
            "concurrency",
            "timeout",
            "attempts",
            "breaker_failures",
            "max_tokens",
            "max_reply_bytes",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"JudgeConfig: {name} must be positive, got {getattr(self, name)}")
