"""What a token at the head of a primary starts: brackets, sets, fractions, roots, functions, matrices."""

from fractions import Fraction

from glmv.rewards.math_lex import Node, Unreadable, tokenize
from glmv.rewards.math_parse import FRACTIONS, Parser, Rule, product_of

FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "ln", "lg", "exp")
CONSTANTS = {"e": "e", "pi": "pi", "\\pi": "pi", "\\infty": "inf"}
FENCES = {
    "\\lfloor": ("\\rfloor", "floor"),
    "\\lceil": ("\\rceil", "ceil"),
    "\\lvert": ("\\rvert", "abs"),
    "|": ("|", "abs"),
}


_GREEK_NAMES = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi
varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell
"""
GREEK = tuple("\\" + name for name in _GREEK_NAMES.split())
_SYMBOLS = frozenset(GREEK) | frozenset(CONSTANTS)


def parse(text: str) -> tuple[Node, Node | None]:
    """The tree of an answer and the name it is assigned to. Raises Unreadable."""
    return Parser(tokenize(text), RULES).answer()


def bracket(parser: Parser, begin: str) -> Node:
    items, end = parser.items(")", "]")
    if len(items) == 1 and begin + end == "()":
        return items[0]
    return Node("tuple", items, begin + end)


def braces(parser: Parser) -> Node:
    r"""`{...}`: a group, or a set written without backslashes."""
    items, _ = parser.items("}")
    return items[0] if len(items) == 1 else Node("set", items)


def braced_set(parser: Parser) -> Node:
    return Node("set") if parser.accept("\\}") else Node("set", parser.items("\\}")[0])


def fence(parser: Parser, end: str, name: str) -> Node:
    items, _ = parser.items(end)
    if len(items) != 1:
        raise Unreadable
    return Node("call", items, name)


def function(parser: Parser, name: str) -> Node:
    power = parser.exponent() if parser.accept("^", "**") else None
    call = Node("call", (operand(parser),), name)
    if power is None:
        return call
    if power == Node("neg", (Node("num", value=Fraction(1)),)) and "arc" + name in FUNCTIONS:
        return Node("call", call.args, "arc" + name)  # sin^{-1} is the inverse, not a power
    if power.kind != "num":
        raise Unreadable
    return Node("pow", (call, power))


def operand(parser: Parser) -> Node:
    """`(...)`, `{...}`, or a power with the symbols that follow it, as in sin 2 pi."""
    if parser.next.text in ("(", "{"):
        return parser.primary()
    factors = [parser.power()]
    while (
        parser.next.text in CONSTANTS
        or parser.next.text in GREEK
        or (parser.next.kind == "word" and len(parser.next.text) == 1)
    ):
        factors.append(parser.power())
    return product_of(factors)


def quotient(parser: Parser) -> Node:
    return Node("div", (parser.argument(), parser.argument()))


def binomial(parser: Parser) -> Node:
    return Node("call", (parser.argument(), parser.argument()), "binom")


def logarithm(parser: Parser) -> Node:
    if not parser.accept("_"):  # 10 to some and e to others: a base without a value
        return Node("div", (Node("call", (operand(parser),), "ln"), Node("sym", name="log")))
    return Node("call", (parser.argument(), operand(parser)), "log")


def root(parser: Parser) -> Node:
    if parser.accept("["):
        degree, _ = parser.items("]")
        return Node("call", (parser.argument(), *degree), "root")
    if parser.next.kind == "num" and len(parser.next.text) > 1:
        raise Unreadable
    return Node("call", (parser.argument(),), "sqrt")


def matrix(parser: Parser) -> Node:
    rows = [row(parser)]
    while parser.accept("\\\\"):
        if parser.next.text == "\\endmatrix":
            break
        rows.append(row(parser))
    parser.expect("\\endmatrix")
    return Node("matrix", tuple(rows))


def row(parser: Parser) -> Node:
    cells = [parser.sum()]
    while parser.accept("&"):
        cells.append(parser.sum())
    return Node("row", tuple(cells))


def _constant(name: str) -> Rule:
    return lambda parser: Node("const", name=name)


def _symbol(name: str) -> Rule:
    return lambda parser: parser.symbol(name)


def _function(name: str) -> Rule:
    return lambda parser: function(parser, name)


def _fence(end: str, name: str) -> Rule:
    return lambda parser: fence(parser, end, name)


RULES: dict[str, Rule] = {
    "(": lambda parser: bracket(parser, "("),
    "[": lambda parser: bracket(parser, "["),
    "{": braces,
    "\\{": braced_set,
    "\\emptyset": lambda parser: Node("set"),
    "\\varnothing": lambda parser: Node("set"),
    "\\sqrt": root,
    "sqrt": root,
    "\\log": logarithm,
    "log": logarithm,
    **dict.fromkeys(("\\binom", "\\dbinom", "\\tbinom"), binomial),
    "\\beginmatrix": matrix,
    **{text: _symbol(text) for text in GREEK},
    **{text: _constant(name) for text, name in CONSTANTS.items()},
    **dict.fromkeys(FRACTIONS, quotient),
    **{text: _fence(end, name) for text, (end, name) in FENCES.items()},
    **{prefix + name: _function(name) for name in FUNCTIONS for prefix in ("", "\\")},
}
