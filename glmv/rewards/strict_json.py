"""JSON as models write it, without repair: one code fence may surround it, nothing else is forgiven."""

import json
import math
import re
from typing import Any

from glmv.rewards.types import Reason

MAX_CHARS = 65_536
MAX_DEPTH = 16
_MAX_INT_DIGITS = 20  # a longer integer reads as infinite, which no verifier accepts
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*)\n?[ \t]*```", re.DOTALL)


class JsonError(Exception):
    """`reason` is bad_json, too_long or too_deep."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


def loads(text: str) -> Any:
    """Parse `text`. NaN and Infinity come back as floats; a repeated key is an error. Raises JsonError."""
    if len(text) > MAX_CHARS:
        raise JsonError("too_long")
    text = text.strip()
    fence = _FENCE.fullmatch(text)
    if fence:
        text = fence.group(1)
    # The depth is looked at first: the parser of the standard library recurses.
    if _depth(text) > MAX_DEPTH:
        raise JsonError("too_deep")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except ValueError:
        raise JsonError("bad_json") from None


def _depth(text: str) -> int:
    """The greatest number of brackets that are open at once, outside strings."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for char in _STRING.sub("", text):
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeated key")
    return found


def _integer(digits: str) -> int | float:
    if len(digits) <= _MAX_INT_DIGITS:
        return int(digits)
    return -math.inf if digits[0] == "-" else math.inf
