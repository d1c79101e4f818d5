"""Which runs of letters are products of variables, and which are words."""

import re

# Functions, constants and joiners that may stand without a backslash.
KNOWN_WORDS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "ln", "lg", "log", "exp", "sqrt",
    "pi", "or", "and",
})  # fmt: skip
# Words of two or three letters that are no product, and below words that sound like one.
_SHORT = """
am an as at be by do go he if in is it me my no of oh ok on so to up us we all any are ask eye ace add age
ago air arm art ate odd off old one our out own the two use was who why yes ten ton try fly dry sky end ice
ill its ink oil eat ear few new now how see sea tea bee tie toe pie die day boy buy key low raw saw way too
zoo she shy sun non null nan inf
"""
_SHORT_WORDS = frozenset(_SHORT.split())
_SYLLABLE = re.compile("[^aeiou][aeiou][^aeiou]")


def letters(word: str) -> list[str]:
    """`ab` is a times b and `sinx` the sine of x; a word of a language stays whole, and is not readable."""
    if len(word) == 1 or word in KNOWN_WORDS:
        return [word]
    name = next((name for name in KNOWN_WORDS if word.startswith(name) and len(word) == len(name) + 1), "")
    if len(name) > 2 or name == "ln":
        return [name, word[-1]]
    if len(word) > 3 or word.lower() in _SHORT_WORDS or _SYLLABLE.fullmatch(word.lower()):
        return [word]
    return [word] if len(word) == 3 and word.isupper() else list(word)
