r"""A parser of our own for answers: a closed LaTeX subset and plain arithmetic, to a small tree.

    answer  = item { ("," | ";" | "or" | "and") item }
    item    = [ name "=" ] union
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

from glmv.rewards.math_lex import MAX_DEPTH, Node, Token, Unreadable, mixed

FRACTIONS = ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac")
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

    def answer(self) -> tuple[Node, str]:
        names = [self.assignment()]
        items = [self.union()]
        while self.separator():
            names.append(self.assignment())
            items.append(self.union())
        if self.next.kind != "end" or any(name not in ("", names[0]) for name in names):
            raise Unreadable
        return (items[0] if len(items) == 1 else Node("list", tuple(items))), names[0]

    def assignment(self) -> str:
        """`x =` or `x_1 =` in front of a value."""
        kinds = [(token.kind, token.text) for token in self.tokens[self.at : self.at + 4]]
        if [kind for kind, _ in kinds[:1]] != ["word"]:
            return ""
        length = 1 if kinds[1][1] == "=" else 3 if kinds[1][1] == "_" and kinds[3:4] == [("op", "=")] else 0
        if not length:
            return ""
        name = "".join(text for _, text in kinds[:length])
        self.at += length + 1
        return name

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
            return Node("sym", name=token.text)
        raise Unreadable

    def number(self, text: str, value: Fraction, kind: str) -> Node:
        """A numeral; an integer may be followed by its base, or by a fraction to make a mixed number."""
        node = Node("num", value=value)
        if kind != "num" or not text.isdigit():
            return node
        if self.accept("_"):
            return in_base(text, self.group() if self.next.text == "{" else self.primary())
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


def in_base(digits: str, base: Node) -> Node:
    if base.kind != "num" or base.value.denominator != 1 or not 2 <= base.value <= 10:
        raise Unreadable
    if any(int(digit) >= base.value for digit in digits):
        raise Unreadable
    return Node("num", value=Fraction(int(digits, int(base.value))))
