r"""A parser of our own for answers: a closed LaTeX subset and plain arithmetic, to a small tree.

    answer  = item { ("," | ";" | "or" | "and") item }
    item    = union [ relation union [ relation union ] ]
    union   = sum { \cup sum }
    sum     = product { ("+" | "-" | \pm | \mp) product }
    product = unary { ("*" | "/" | nothing) unary }
    unary   = { "+" | "-" } power
    power   = postfix [ "^" exponent ]
    postfix = primary [ "!" | "%" ]

What is ambiguous is refused, not guessed: two numbers side by side, a/b/c, 1/2x, 5 9/4, chains of "=".
"""

from collections.abc import Callable, Mapping
from fractions import Fraction

from glmv.rewards.math_lex import MAX_DEPTH, Node, Token, Unreadable, in_base, mixed

FRACTIONS = ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac")
RELATIONS = {
    "=": "=", "\\in": "in", "<": "<", "\\lt": "<", "<=": "<=", "\\le": "<=", "\\leq": "<=",
    "\\leqslant": "<=", ">": ">", "\\gt": ">", ">=": ">=", "\\ge": ">=", "\\geq": ">=", "\\geqslant": ">=",
    "!=": "!=", "\\ne": "!=", "\\neq": "!=",
}  # fmt: skip
JOINERS = ("or", "and", "\\lor", "\\land")

# What a token at the head of a primary starts, after that token was taken.
Rule = Callable[["Parser"], Node]


class Parser:
    """Recursive descent over `tokens`; `rules` maps the head of a primary to its rule."""

    def __init__(self, tokens: list[Token], rules: Mapping[str, Rule]) -> None:
        self.tokens = tokens
        self.rules = rules
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *texts: str) -> str:
        return self.take().text if self.next.text in texts and self.next.kind != "end" else ""

    def expect(self, *texts: str) -> str:
        found = self.accept(*texts)
        if not found:
            raise Unreadable
        return found

    # -- lists ---------------------------------------------------------------------------------------

    def answer(self) -> tuple[Node, Node | None]:
        """The value, and the name it is given. Items of different names are equations."""
        items = [self.relation()]
        while self.separator():
            items.append(self.relation())
        if self.next.kind != "end":
            raise Unreadable
        names = {name for _, name in items if name is not None}
        if len(names) > 1:
            items = [(equation(value, name), None) for value, name in items]
        values = tuple(value for value, _ in items)
        node = values[0] if len(values) == 1 else Node("list", values)
        return node, names.pop() if len(names) == 1 else None

    def relation(self) -> tuple[Node, Node | None]:
        """`x = value` is a value with a name; any other relation is a node of its own."""
        texts = self.tokens[self.at : self.at + 2]
        if len(texts[0].text) > 1 and texts[0].kind == "word" and texts[1].text == "=":
            left = Node("sym", name=self.take().text)
        else:
            left = self.union()
        sides, signs = [left], []
        while self.next.text in RELATIONS and self.next.kind != "end":
            signs.append(RELATIONS[self.take().text])
            sides.append(self.union())
        if not signs:
            return left, None
        if signs in (["="], ["in"]) and is_name(left):
            return sides[1], left
        return relation_of(sides, signs), None

    def separator(self) -> bool:
        comma = self.accept(",", ";")
        return bool(self.accept(*JOINERS) or comma)

    def items(self, *closing: str) -> tuple[tuple[Node, ...], str]:
        """Comma-separated sums up to a closing token, and that token."""
        found = [self.sum()]
        while self.accept(",", ";"):
            found.append(self.sum())
        return tuple(found), self.expect(*closing)

    def union(self) -> Node:
        parts = [self.sum()]
        while self.accept("\\cup"):
            parts.append(self.sum())
        return parts[0] if len(parts) == 1 else Node("union", tuple(parts))

    # -- arithmetic ----------------------------------------------------------------------------------

    def sum(self) -> Node:
        sign = self.accept("\\pm", "\\mp")
        terms = [self.signed(sign, self.product())]
        while sign := self.accept("+", "-", "\\pm", "\\mp"):
            terms.append(self.signed(sign, self.product()))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    @staticmethod
    def signed(sign: str, term: Node) -> Node:
        kind = {"-": "neg", "\\pm": "pm", "\\mp": "mp"}.get(sign)
        return Node(kind, (term,)) if kind else term

    def product(self) -> Node:
        factors = [self.unary()]
        divided = False
        while True:
            if self.accept("*", "\\cdot", "\\times"):
                factors.append(self.unary())
            elif self.accept("/", "\\div"):
                if divided or self.next.kind == "mixed":
                    raise Unreadable  # a/b/c, or a / 2 1/2
                factors, divided = [Node("div", (product_of(factors), self.unary()))], True
            elif self.starts_factor():
                if divided:
                    raise Unreadable  # 1/2x
                factors.append(self.power())
            else:
                return product_of(factors)

    def starts_factor(self) -> bool:
        """True if the next token multiplies without a sign; a number never does."""
        kind, text = self.next.kind, self.next.text
        if kind == "word":
            return text not in JOINERS
        return text == "(" or (kind == "cmd" and text in self.rules and text != "\\{")

    def unary(self) -> Node:
        negative = False
        while sign := self.accept("+", "-"):
            negative ^= sign == "-"
        node = self.power()
        return Node("neg", (node,)) if negative else node

    def power(self) -> Node:
        node = self.postfix()
        if not self.accept("^", "**"):
            return node
        texts = [token.text for token in self.tokens[self.at : self.at + 3]]
        if texts[:1] == ["\\circ"] or texts == ["{", "\\circ", "}"]:
            self.at += 1 if texts[0] == "\\circ" else 3
            return Node("deg", (node,))
        node = Node("pow", (node, self.exponent()))
        if self.next.text in ("^", "**", "!", "%"):
            raise Unreadable
        return node

    def exponent(self) -> Node:
        if self.next.text == "{":
            return self.nested(Parser.group)
        return Node("neg", (self.primary(),)) if self.accept("-") else self.primary()

    def group(self) -> Node:
        self.expect("{")
        node = self.sum()
        self.expect("}")
        return node

    def postfix(self) -> Node:
        node = self.primary()
        sign = self.accept("!", "%")
        if sign and self.next.text in ("!", "%"):
            raise Unreadable  # 5!! is not (5!)!
        return Node("fact" if sign == "!" else "pct", (node,)) if sign else node

    # -- primaries -----------------------------------------------------------------------------------

    def nested(self, rule: Rule) -> Node:
        """Apply `rule` one level down. Every recursion of the grammar passes here."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too_deep")
        node = rule(self)
        self.depth -= 1
        return node

    def primary(self) -> Node:
        token = self.take()
        value = token.value
        if value is not None:
            return self.nested(lambda parser: parser.number(token.text, value, token.kind))
        if token.text in self.rules:
            return self.nested(self.rules[token.text])
        if token.kind == "word" and len(token.text) == 1:
            return self.symbol(token.text)
        raise Unreadable

    def symbol(self, name: str) -> Node:
        """A letter and its index: x_1, a_n, x_{12}."""
        if not self.accept("_"):
            return Node("sym", name=name)
        braced = self.accept("{")
        index = self.take()
        if index.kind not in ("num", "word") or (braced and not self.accept("}")):
            raise Unreadable
        return Node("sym", name=f"{name}_{index.text}")

    def number(self, text: str, value: Fraction, kind: str) -> Node:
        """A numeral; an integer may be followed by its base, or by a fraction to make a mixed number."""
        node = Node("num", value=value)
        if kind != "num" or not text.isdigit():
            return node
        if self.accept("_"):
            base = self.group() if self.next.text == "{" else self.primary()
            if base.kind != "num" or base.value.denominator != 1:
                raise Unreadable
            return Node("num", value=in_base(text, int(base.value)))
        if self.next.text not in FRACTIONS:
            return node
        fraction = self.primary()
        if any(part.kind != "num" for part in fraction.args):
            return Node("mul", (node, fraction))
        above, below = (part.value for part in fraction.args)
        if above.denominator != 1 or below.denominator != 1:
            raise Unreadable
        return Node("num", value=mixed(int(value), int(above), int(below)))

    def argument(self) -> Node:
        r"""`{...}`, or what LaTeX takes without braces: one digit of a number (\frac12), one symbol."""
        token = self.next
        if token.text == "{":
            return self.group()
        if token.kind != "num" or not token.text.isdigit() or len(token.text) == 1:
            return self.primary()
        digit, rest = token.text[0], token.text[1:]
        self.tokens[self.at] = Token("num", rest, Fraction(int(rest)))
        return Node("num", value=Fraction(int(digit)))


def product_of(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))


def is_name(node: Node) -> bool:
    """True for a letter, for AB and f(x), and for a tuple of letters."""
    return node.kind == "sym" or (
        node.kind in ("mul", "tuple") and all(factor.kind == "sym" for factor in node.args)
    )


def equation(value: Node, name: Node | None) -> Node:
    """`name = value`, or the value alone if it has no name; (x, y) = (1, 2) are two equations."""
    if name is None:
        return value
    if name.kind == "tuple" and value.kind == "tuple" and len(name.args) == len(value.args):
        pairs = zip(value.args, name.args, strict=True)
        return Node("list", tuple(equation(part, letter) for part, letter in pairs))
    return Node("rel", (name, value), "=")


def relation_of(sides: list[Node], signs: list[str]) -> Node:
    """One relation, or a chain of two inequalities in the same direction; > is turned around."""
    directions = {sign[0] for sign in signs}
    if len(signs) > 2 or "i" in directions or (len(signs) == 2 and directions not in ({"<"}, {">"})):
        raise Unreadable
    if directions == {">"}:
        sides, signs = sides[::-1], [sign.replace(">", "<") for sign in signs[::-1]]
    return Node("rel", tuple(sides), " ".join(signs))
