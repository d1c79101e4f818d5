"""What actions on a screen share: one unambiguous JSON object, and fields that are compared as values."""

from collections.abc import Mapping
from typing import Any

from glmv.rewards import strict_json
from glmv.rewards.math import plain_number
from glmv.rewards.normal import canonical
from glmv.rewards.types import SpecError

MAX_FIELD_CHARS = 8_192
NOTHING = ("", "none", "null")


def read_action(answer: str) -> dict[str, Any]:
    """The one object of an answer, keys in lower case. Raises JsonError."""
    found = strict_json.loads(answer)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise strict_json.JsonError("bad_json" if not isinstance(found, list) else "malformed")
    return lower_keys(found)


def reference_action(reference: object, kind: str) -> dict[str, Any]:
    """A reference action: an object, or its JSON text. Raises SpecError."""
    found = reference
    if isinstance(reference, str):
        try:
            found = strict_json.loads(reference)
        except strict_json.JsonError:
            found = None
    if not isinstance(found, dict) or not found:
        raise SpecError(f"{kind}: the reference must be an object with fields, got {str(reference)[:80]!r}")
    try:
        return lower_keys(found)
    except strict_json.JsonError:
        raise SpecError(f"{kind}: two keys of the reference differ in case alone") from None


def lower_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    lowered = {str(key).strip().casefold(): value for key, value in fields.items()}
    if len(lowered) != len(fields):
        raise strict_json.JsonError("bad_json")
    return lowered


def same_value(got: object, want: object) -> bool:
    """Equal as numbers (7, 7.0 and "7"), as true or false, or as text after normalisation; lists in order."""
    if is_nothing(want):
        return is_nothing(got)
    if isinstance(want, bool) or isinstance(got, bool):
        return str(got).casefold() == str(want).casefold()
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return False
        return all(same_value(a, r) for a, r in zip(got, want, strict=True))
    if not isinstance(got, str | int | float) or not isinstance(want, str | int | float):
        return False
    a, r = canonical(str(got)[:MAX_FIELD_CHARS]), canonical(str(want)[:MAX_FIELD_CHARS])
    if a == r:
        return len(str(got)) <= MAX_FIELD_CHARS
    return _plain(got) and _plain(want) and plain_number(a) == plain_number(r) is not None


def is_nothing(value: object) -> bool:
    """True for null, the empty text and the word None, which the published sets write for "no value"."""
    return value is None or (isinstance(value, str) and value.strip().casefold() in NOTHING)


def _plain(value: object) -> bool:
    """True for a number, or a text of digits: "7 m" and "1/2" stay texts."""
    return isinstance(value, int | float) or (
        isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdecimal()
    )
