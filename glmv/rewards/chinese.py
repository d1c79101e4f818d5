"""Chinese numerals: 二十九, 三点五, 二〇二四, 负三, 百分之二十五, 三分之二, 一又二分之一, 3万.

Colloquial short forms, whose last unit is left out (一百五 for 150), are ambiguous in writing and not read.
"""

import re
from fractions import Fraction

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")}
_DIGITS |= {c: i for i, c in enumerate("零壹贰叁肆伍陆柒捌玖")} | {"〇": 0, "两": 2}
_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_GROUPS = (("亿", 10**8), ("万", 10**4))
_MAX_CHARS = 40
_ARABIC = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,12}))?([万亿])")
SIGNS = frozenset(_DIGITS) | frozenset(_UNITS) | frozenset("万亿负点分之又百")


def read(text: str) -> Fraction | None:
    """The value of a numeral, or None if this is not one."""
    if not text or len(text) > _MAX_CHARS:
        return None
    if text[0] == "负":
        value = read(text[1:]) if text[1:2] != "负" else None
        return None if value is None else -value
    arabic = _ARABIC.fullmatch(text)
    if arabic:
        whole, decimals, group = arabic.groups()
        return Fraction(f"{whole}.{decimals or '0'}") * dict(_GROUPS)[group]
    if text.startswith("百分之"):
        return _divide(_decimal(text[3:]), 100)
    whole, mixed, rest = text.rpartition("又")
    below, fraction, above = rest.partition("分之")
    if not fraction:
        return None if mixed else _decimal(text)
    denominator = _integer(below)
    value = _divide(_integer(above), denominator) if denominator else None
    if value is None or not mixed:
        return value
    base = _integer(whole)
    return base + value if base is not None and value < 1 else None


def _divide(value: Fraction | int | None, by: int) -> Fraction | None:
    return None if value is None else Fraction(value) / by


def _decimal(text: str) -> Fraction | None:
    whole, point, decimals = text.partition("点")
    base = _integer(whole)
    if base is None or not point:
        return None if base is None else Fraction(base)
    if not decimals or any(c not in _DIGITS for c in decimals):
        return None
    return base + Fraction(int("".join(str(_DIGITS[c]) for c in decimals)), 10 ** len(decimals))


def _integer(text: str) -> int | None:
    if not text:
        return None
    if all(c in _DIGITS for c in text):
        # A row of digits, as years are written; a single digit is the common case.
        return int("".join(str(_DIGITS[c]) for c in text))
    for sign, size in _GROUPS:
        high, found, low = text.partition(sign)
        if found:
            return _group(high, low, size)
    return _below_ten_thousand(text)


def _group(high: str, low: str, size: int) -> int | None:
    base = _integer(high)
    if base is None or not low:
        return None if base is None else base * size
    rest = _integer(low)
    # After 万 or 亿 a lone digit would be the colloquial form; with 零 before it, it is plain.
    if rest is None or rest >= size or (rest < size // 10 and low[0] not in "零〇"):
        return None
    return base * size + rest


def _below_ten_thousand(text: str) -> int | None:
    total, last_unit, at, zero = 0, 10_000, 0, False
    while at < len(text):
        if text[at] in "零〇":
            if zero or at in (0, len(text) - 1):
                return None
            zero, at = True, at + 1
            continue
        digit = _DIGITS.get(text[at])
        unit = _UNITS.get(text[at + 1 : at + 2] if digit is not None else text[at], 1)
        if digit is None and (unit != 10 or at != 0):
            return None  # only 十 may stand without a digit before it
        skipped = unit * 10 < last_unit
        if unit >= last_unit or (skipped and not zero and total):
            return None
        total += (1 if digit is None else digit) * unit
        last_unit, zero = unit, False
        at += 1 if digit is None or unit == 1 else 2
    return total
