"""Replies of judges on disk, by hash of what was asked: a SQLite file that several processes may share."""

import hashlib
import json
import re
import sqlite3
from pathlib import Path

_FENCE = re.compile(r"={5}[0-9a-f]{32}")
_SCHEMA = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"


def key(prompt: str, *asked: object) -> str:
    """A hash of the prompt and of whatever else shapes the reply (endpoint, model, temperature).

    The nonce of a prompt differs at every rendering. The first fence of a prompt is the true one (our own
    text names it before any text of others), and what stands between the fences is hashed in its place.
    """
    fence = _FENCE.search(prompt)
    parts = prompt.split(fence.group()) if fence else [prompt]
    return hashlib.sha256(json.dumps([parts, *asked]).encode()).hexdigest()


class ReplyCache:
    """`get` and `put`; an unusable file counts as a miss and in `errors`, it does not stop the scoring.

    An empty path keeps the replies of this process in memory. Belongs to the thread that makes it.
    """

    def __init__(self, path: str) -> None:
        self.errors = 0
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path or ":memory:", timeout=5.0, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(_SCHEMA)
        except sqlite3.Error:
            self.errors += 1

    def get(self, name: str) -> str | None:
        try:
            row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (name,)).fetchone()
        except sqlite3.Error:
            self.errors += 1
            return None
        return None if row is None else str(row[0])

    def put(self, name: str, reply: str) -> None:
        try:
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (name, reply))
        except (sqlite3.Error, UnicodeEncodeError):  # a lone surrogate has no UTF-8
            self.errors += 1

    def close(self) -> None:
        self._database.close()
