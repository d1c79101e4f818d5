"""From what people and models write to plain LaTeX-like text: symbols, wrappers, currency and units.

Nothing here reads a number; it only rewrites by closed lists, and leaves what it does not know in place.
"""

import re
from fractions import Fraction

from glmv.rewards import chinese
from glmv.rewards.normal import fold

MAX_CHARS = 512

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUBSCRIPT = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_ROOT = re.compile(r"√\s*([0-9]+)")
_SYMBOLS = str.maketrans(
    {
        "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
        "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "°": r"^\circ ", "±": r"\pm ", "∓": r"\mp ",
        "∪": r"\cup ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "⩽": r"\le ", "⩾": r"\ge ", "∈": r"\in ",
        "∅": r"\emptyset ", "、": ",", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "α": r"\alpha ", "β": r"\beta ",
        "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ", "φ": r"\phi ", "ω": r"\omega ",
        "⌈": r"\lceil ", "⌉": r"\rceil ", "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}",
        "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}",
        "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}",
        "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
        "⅐": r"\frac{1}{7}", "⅑": r"\frac{1}{9}", "⅒": r"\frac{1}{10}",
    }
)  # fmt: skip

_DROPPED = re.compile(r"\\(?:left|right|displaystyle|big|Big|bigl|bigr)(?![A-Za-z])|\\!")
_JOINED = re.compile(r"(?<=[0-9])(?:\{,\}|\\,|\\ |\\thinspace(?![A-Za-z])|~)(?=[0-9]{3}(?![0-9]))")
_SPACING = re.compile(r"\\(?:quad|qquad|thinspace)(?![A-Za-z])|(?<!\\)\\[,;: ]|~")
_DOTTED = re.compile(r"\.([0-9]*)\\dot\s*\{?([0-9])\}?(?:([0-9]*)\\dot\s*\{?([0-9])\}?)?")
_BRACKETED_NUMERAL = re.compile(r"\(\s*([0-9A-F]+)\s*\)\s*_")
_TIMES = re.compile(r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^)")
_PAIRS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))
_GROUP_COMMANDS = re.compile(r"\\(?:boxed|text|textbf|mathbf|mathrm|textrm|mbox)\s*\{")

# Unit -> the form in which two units are compared. Conversion between units is not done here.
_ALIASES = {
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km",
    "kilometre": "km", "millimeter": "mm", "millimetre": "mm", "inch": "in", "inche": "in", "foot": "ft",
    "feet": "ft", "mile": "mi", "yard": "yd", "gram": "g", "kilogram": "kg", "pound": "lb", "ounce": "oz",
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "day": "day", "week": "week",
    "month": "month", "year": "year", "dollar": "$", "USD": "$", "cent": "cent", "euro": "€",
    "degree": "deg", "deg": "deg", "unit": "unit", "liter": "L", "litre": "L", "milliliter": "mL",
    "newton": "N", "joule": "J", "watt": "W", "volt": "V", "person": "person", "people": "person",
    "厘米": "cm", "毫米": "mm", "千米": "km", "公里": "km", "米": "m", "千克": "kg", "公斤": "kg",
    "克": "g", "秒": "s", "分钟": "min", "小时": "h", "天": "day", "元": "¥", "美元": "$", "度": "deg",
    "个": "", "人": "person",
}  # fmt: skip
_SYMBOL_UNITS = frozenset({
    "m", "s", "g", "h", "L", "N", "J", "W", "V", "A", "K", "C", "F", "Hz", "Pa", "cm", "mm", "km", "kg", "mg",
    "mL", "ft", "in", "mi", "yd", "lb", "oz", "min", "kWh", "kPa", "mol", "rad", "m/s", "km/h", "mph", "cm/s",
    "g/mL", "m/s^2", "kHz", "MHz", "kN", "kJ", "kW", "mA", "kV",
})  # fmt: skip
_CURRENCY = {"$": "$", "€": "€", "£": "£", "¥": "¥", "US$": "$"}
_LEADING_CURRENCY = re.compile(r"([+-]?)\s*(US\$|[$€£¥])\s*(?=[0-9.])")
_POWER = r"(?:\s*\^\s*\{?([23])\}?)?$"
_TRAILING_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{\s*([^{}]{1,24}?)\s*\}" + _POWER)
_TRAILING_WORD = re.compile(r"(?<=[0-9)}!])\s*([A-Za-z]{2,12}(?:/[a-z]{1,3})?)" + _POWER)
_TRAILING_CHINESE = re.compile(r"(?:厘米|毫米|千米|公里|千克|公斤|分钟|小时|美元|[米克秒天元度个人])$")
_PERCENT_WORD = re.compile(r"(?<=[0-9])\s*(?:percent|per cent)$")


def clean(text: str) -> tuple[str, str | None]:
    """`(text, unit)`: rewritten text of at most a few times MAX_CHARS, and the unit at its end, if any.

    `text` must not be longer than MAX_CHARS. The unit is in canonical form ("cm", "cm^2", "deg", "$").
    """
    text = plain(text)
    if not text.isascii():
        text, unit = _chinese(text)
        if unit is not None:
            return text, unit or None
    return _split_unit(_PERCENT_WORD.sub("%", text))


def plain(text: str) -> str:
    """Symbols as LaTeX commands, white space commands as spaces, and nothing around the whole."""
    text = _BRACKETED_NUMERAL.sub(r"\1_", _DOTTED.sub(r".\1\\overline{\2\3\4}", _symbols(text)))
    text = _DROPPED.sub("", text).replace("\\%", "%").replace("\\$", "$").replace("\\degree", "^\\circ")
    return _unwrap(_SPACING.sub(" ", _JOINED.sub("", _TIMES.sub(r"\\times ", text))).strip())


def _symbols(text: str) -> str:
    if text.isascii():
        return text
    text = _RAISED.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPT) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPT) + "}", text)
    return fold(_ROOT.sub(r"\\sqrt{\1}", text).translate(_SYMBOLS))


def _unwrap(text: str) -> str:
    """Math delimiters, bold marks and text commands that enclose the whole, and a final full stop."""
    for _ in range(8):
        before = text
        for begin, end in _PAIRS:
            inner = text[len(begin) : -len(end)]
            if text.startswith(begin) and text.endswith(end) and inner and begin not in inner:
                text = inner.strip()
        command = _GROUP_COMMANDS.match(text)
        if command and _closing(text, command.end()) == len(text) - 1:
            text = text[command.end() : -1].strip()
        if len(text) > 1 and text[-1] in ".。" and text[-2] not in ".。":
            text = text[:-1].strip()
        if text == before:
            break
    return text


def _closing(text: str, start: int) -> int:
    """The index of the brace that closes a group whose content begins at `start`, or -1."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return -1


def _chinese(text: str) -> tuple[str, str | None]:
    """A Chinese numeral as an exact fraction, with its unit; unit None if there was neither."""
    found = _TRAILING_CHINESE.search(text)
    bare = text[: found.start()].strip() if found else text
    unit = _ALIASES[found[0]] if found else ""
    if any(char in chinese.SIGNS for char in bare):
        value = chinese.read(bare.replace(" ", ""))
        if value is None:
            return text, None
        return _fraction(value), unit
    return (bare, unit) if found else (text, None)


def _fraction(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _split_unit(text: str) -> tuple[str, str | None]:
    currency = _LEADING_CURRENCY.match(text)
    if currency:
        return currency[1] + text[currency.end() :], _CURRENCY[currency[2]]
    for pattern, single_letters in ((_TRAILING_TEXT, True), (_TRAILING_WORD, False)):
        found = pattern.search(text)
        unit = canonical_unit(found[1], single_letters) if found and found.start() else None
        if found and unit is not None:
            return text[: found.start()].strip(), unit + ("^" + found[2] if found[2] else "")
    return text, None


def canonical_unit(name: str, single_letters: bool) -> str | None:
    """The canonical form of a unit of the closed lists; None for any other text.

    A single letter is a unit only inside a text command: in plain text "12m" may be twelve times m.
    """
    name = " ".join(name.split())
    power = ""
    for word, suffix in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3")):
        if name.startswith(word):
            name, power = name.removeprefix(word), suffix
    if name in _SYMBOL_UNITS:
        return name + power if single_letters or len(name) > 1 else None
    stem = name if name in _ALIASES else name.removesuffix("s")
    return _ALIASES[stem] + power if stem in _ALIASES else None
