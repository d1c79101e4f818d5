"""A closed table of units, and a small reader of products and quotients of them.

A unit is a dimension and a factor to SI base units, exact where the definition is. What is ambiguous in print
(`J/kg K`) and what the table does not hold is refused. Angles are a dimension of their own, so that a
frequency is no angular speed.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

# Exponents of m, kg, s, A, K, mol, cd, rad.
Dimension = tuple[int, int, int, int, int, int, int, int]
NONE: Dimension = (0,) * 8
MAX_CHARS, MAX_EXPONENT = 48, 12


@dataclass(frozen=True, slots=True)
class Unit:
    """value in SI = factor * value + offset; the offset is that of a temperature scale."""

    dimension: Dimension
    factor: Fraction
    offset: Fraction = Fraction(0)


def _unit(base: str, factor: str | Fraction = "1", offset: str = "0") -> Unit:
    """`base` like "kg m s-2"; `factor` a number, or a fraction like "5/9"."""
    exponents = dict.fromkeys(("m", "kg", "s", "A", "K", "mol", "cd", "rad"), 0)
    for part in base.split():
        found = re.fullmatch(r"([A-Za-z]+)(-?[0-9]*)", part)
        assert found is not None
        exponents[found[1]] = int(found[2] or 1)
    m, kg, s, a, k, mol, cd, rad = exponents.values()
    return Unit((m, kg, s, a, k, mol, cd, rad), Fraction(factor), Fraction(offset))


PI = Fraction("3.14159265358979323846264338327950288419716939937510")
_E = Fraction("1.602176634e-19")
_PREFIXES = {
    "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "da": 1, "d": -1, "c": -2, "m": -3, "u": -6, "n": -9, "p": -12,
    "f": -15,
}  # fmt: skip
_LONG_PREFIXES = {
    "tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3,
    "micro": -6, "nano": -9, "pico": -12, "femto": -15,
}  # fmt: skip
# Take a prefix: symbol -> (long name, definition).
_PREFIXED: dict[str, tuple[str, Unit]] = {
    "m": ("meter", _unit("m")),
    "g": ("gram", _unit("kg", "1/1000")),
    "s": ("second", _unit("s")),
    "A": ("ampere", _unit("A")),
    "K": ("kelvin", _unit("K")),
    "mol": ("mole", _unit("mol")),
    "cd": ("candela", _unit("cd")),
    "rad": ("radian", _unit("rad")),
    "Hz": ("hertz", _unit("s-1")),
    "N": ("newton", _unit("kg m s-2")),
    "Pa": ("pascal", _unit("kg m-1 s-2")),
    "J": ("joule", _unit("kg m2 s-2")),
    "W": ("watt", _unit("kg m2 s-3")),
    "C": ("coulomb", _unit("A s")),
    "V": ("volt", _unit("kg m2 s-3 A-1")),
    "F": ("farad", _unit("kg-1 m-2 s4 A2")),
    "ohm": ("ohm", _unit("kg m2 s-3 A-2")),
    "S": ("siemens", _unit("kg-1 m-2 s3 A2")),
    "Wb": ("weber", _unit("kg m2 s-2 A-1")),
    "T": ("tesla", _unit("kg s-2 A-1")),
    "H": ("henry", _unit("kg m2 s-2 A-2")),
    "Bq": ("becquerel", _unit("s-1")),
    "Gy": ("gray", _unit("m2 s-2")),
    "Sv": ("sievert", _unit("m2 s-2")),
    "L": ("liter", _unit("m3", "1/1000")),
    "M": ("molar", _unit("mol m-3", "1000")),
    "eV": ("electronvolt", _unit("kg m2 s-2", _E)),
    "Wh": ("watthour", _unit("kg m2 s-2", "3600")),
    "cal": ("calorie", _unit("kg m2 s-2", "4.184")),
    "bar": ("bar", _unit("kg m-1 s-2", "1e5")),
    "pc": ("parsec", _unit("m", "3.0856775814913673e16")),
}
_PLAIN: dict[str, Unit] = {
    "min": _unit("s", "60"), "h": _unit("s", "3600"), "d": _unit("s", "86400"),
    "week": _unit("s", "604800"), "yr": _unit("s", "31557600"), "deg": _unit("rad", PI / 180),
    "rev": _unit("rad", 2 * PI), "rpm": _unit("rad s-1", PI / 30), "degC": _unit("K", "1", "273.15"),
    "degF": _unit("K", "5/9", str(Fraction("459.67") * 5 / 9)), "angstrom": _unit("m", "1e-10"),
    "in": _unit("m", "0.0254"), "ft": _unit("m", "0.3048"), "yd": _unit("m", "0.9144"),
    "mi": _unit("m", "1609.344"), "AU": _unit("m", "149597870700"), "ly": _unit("m", "9460730472580800"),
    "lb": _unit("kg", "0.45359237"), "oz": _unit("kg", "0.028349523125"), "t": _unit("kg", "1000"),
    "u": _unit("kg", "1.66053906892e-27"), "mph": _unit("m s-1", "0.44704"), "kph": _unit("m s-1", "5/18"),
    "knot": _unit("m s-1", "463/900"), "atm": _unit("kg m-1 s-2", "101325"),
    "mmHg": _unit("kg m-1 s-2", "133.322387415"), "Torr": _unit("kg m-1 s-2", str(Fraction(101325, 760))),
    "psi": _unit("kg m-1 s-2", "6894.757293168"), "hp": _unit("kg m2 s-3", "745.69987158227022"),
    "Nm": _unit("kg m2 s-2"), "ha": _unit("m2", "10000"), "cc": _unit("m3", "1e-6"), "lm": _unit("cd"),
    "lx": _unit("cd m-2"), "gauss": _unit("kg s-2 A-1", "1e-4"), "dyn": _unit("kg m s-2", "1e-5"),
    "erg": _unit("kg m2 s-2", "1e-7"), "gal": _unit("m3", "0.003785411784"),
    "Da": _unit("kg", "1.66053906892e-27"),
}  # fmt: skip
_NAMES = {
    "sec": "s", "hr": "h", "hour": "h", "minute": "min", "day": "d", "year": "yr", "degree": "deg",
    "rads": "rad", "°": "deg", "°C": "degC", "°F": "degF", "℃": "degC", "℉": "degF", "celsius": "degC",
    "fahrenheit": "degF", "Å": "angstrom", "inch": "in", "foot": "ft", "feet": "ft", "yard": "yd",
    "mile": "mi", "pound": "lb", "ounce": "oz", "tonne": "t", "amu": "u", "au": "AU", "lightyear": "ly",
    "revolution": "rev", "torr": "Torr", "metre": "m", "litre": "L", "l": "L", "amp": "A", "kmh": "kph",
    "kmph": "kph", "weeks": "week", "gram": "g", "米": "m", "厘米": "cm", "毫米": "mm", "千米": "km",
    "公里": "km", "秒": "s", "分钟": "min", "小时": "h", "千克": "kg", "公斤": "kg", "克": "g", "牛": "N",
    "牛顿": "N", "焦": "J", "焦耳": "J", "瓦": "W", "伏": "V", "安": "A", "安培": "A", "欧": "ohm",
    "欧姆": "ohm", "赫兹": "Hz", "帕": "Pa", "摩尔": "mol", "升": "L", "毫升": "mL", "度": "deg",
    "摄氏度": "degC", "开尔文": "K", "吨": "t", "库仑": "C", "特斯拉": "T",
}  # fmt: skip


def _table() -> dict[str, Unit]:
    table = dict(_PLAIN)
    for symbol, (name, unit) in _PREFIXED.items():
        spellings = {name, name.replace("meter", "metre").replace("liter", "litre")}
        for prefix, power in {**_PREFIXES, "": 0}.items():
            table.setdefault(prefix + symbol, Unit(unit.dimension, unit.factor * Fraction(10) ** power))
        for prefix, power in {**_LONG_PREFIXES, "": 0}.items():
            for spelling in spellings:
                table[prefix + spelling] = Unit(unit.dimension, unit.factor * Fraction(10) ** power)
    table["1"] = Unit(NONE, Fraction(1))
    table |= {name: table[symbol] for name, symbol in _NAMES.items()}
    return table


TABLE = _table()
_TOKEN = re.compile(
    r"\s*(?:(?P<op>per(?![A-Za-z])|\*(?!\*)|[/()])"
    r"|(?P<power>(?:\^|\*\*)\s*[({]?\s*(?P<raised>[+-]?[0-9]{1,2})\s*[})]?)"
    r"|(?P<word>square|cubic|sq)(?![A-Za-z])"
    r"|(?P<name>1(?=\s*/)|°[CF]?|[℃℉Å]|[A-Za-z]+|[\u4e00-\u9fff]+)(?P<digits>-?[0-9]{1,2})?)"
)
_RAISED_WORDS = {"square": 2, "sq": 2, "cubic": 3}


def find(name: str) -> Unit | None:
    """A unit by its symbol or name; names of four letters or more may be capitalised or plural."""
    unit = TABLE.get(name)
    if unit is None and len(name) > 3:
        unit = TABLE.get(name.lower()) or TABLE.get(name.lower().removesuffix("s"))
    return unit


def read_unit(text: str) -> Unit | None:
    """The unit that a text names, or None. `text` has plain `*`, `/`, `^` and no LaTeX."""
    text = text.strip()
    if text == "1" or not 0 < len(text) <= MAX_CHARS:
        return None
    alone = find(text)
    if alone is not None:
        return alone
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        kind = token.lastgroup if token.lastgroup in ("op", "word", "power") else "name"
        tokens.append((kind, token["raised"] or token["op"] or token["word"] or token["name"]))
        if token["digits"]:
            tokens.append(("power", token["digits"]))
    return _Reader([*tokens, ("end", "")]).quotient()


class _Reader:
    """quotient = product { "/" factor }; product = factor { ["*"] factor }; factor = name [power] | group."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.at = tokens, 0

    def accept(self, *texts: str) -> bool:
        kind, text = self.tokens[self.at]
        found = kind == "op" and text in texts
        self.at += found
        return found

    def quotient(self) -> Unit | None:
        """The whole text. What follows a denominator without a slash is refused: J/kg K."""
        unit = self.product()
        while unit is not None and self.accept("/", "per"):
            unit = _times(unit, self.factor(), -1)
        return unit if self.tokens[self.at][0] == "end" else None

    def product(self) -> Unit | None:
        unit = self.factor()
        while unit is not None and (self.accept("*") or self.tokens[self.at][0] in ("name", "word")):
            unit = _times(unit, self.factor(), 1)
        return unit

    def factor(self) -> Unit | None:
        if self.accept("("):
            unit = self.product()
            return unit if self.accept(")") else None
        kind, text = self.tokens[self.at]
        power = _RAISED_WORDS.get(text, 1) if kind == "word" else 1
        self.at += kind == "word"
        kind, text = self.tokens[self.at]
        unit = find(text) if kind == "name" else None
        if unit is None:
            return None
        self.at += 1
        kind, text = self.tokens[self.at]
        if kind == "power":
            self.at += 1
            power *= int(text)
        return _times(Unit(NONE, Fraction(1)), unit, power)


def _times(a: Unit, b: Unit | None, power: int) -> Unit | None:
    """a * b^power. A temperature scale in a product is a difference: its offset is dropped."""
    if b is None or abs(power) > MAX_EXPONENT:
        return None
    m, kg, s, amp, k, mol, cd, rad = (x + y * power for x, y in zip(a.dimension, b.dimension, strict=True))
    return Unit((m, kg, s, amp, k, mol, cd, rad), a.factor * b.factor**power)
