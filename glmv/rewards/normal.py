"""Forms of one text that count as the same: width, digits of other scripts, case, white space, wrappers.

This is narrower than NFKC on purpose. NFKC turns a superscript two or a circled two into the digit 2, and
3 followed by a one-half sign into 31/2; here those characters stay what they are.
"""

import re
import unicodedata

_SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_DASHES = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
# Decompositions that change the drawing of a character and not its meaning.
_SAME = ("<wide>", "<narrow>", "<font>", "<initial>", "<medial>", "<final>", "<isolated>")

_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u300c": "\u300d"}
_SPACE_RUN = re.compile(r"\s+")


class _Folding(dict[int, str]):
    """Code point -> replacement, worked out on demand; nothing is stored, so hostile text costs no memory."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code < 128:
            return char
        digit = unicodedata.decimal(char, None)
        if digit is not None:
            return str(digit)
        tag, _, parts = unicodedata.decomposition(char).partition(" ")
        if tag in _SAME:
            return "".join(chr(int(part, 16)) for part in parts.split())
        return char


_FOLDING = _Folding(
    {
        **{ord(c): " " for c in _SPACES},
        **{ord(c): "" for c in _INVISIBLE},
        **{ord(c): "-" for c in _DASHES},
    }
)


def fold(text: str) -> str:
    """Width, font and script of digits removed; all spaces and dashes are the plain ones; then NFC."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text.translate(_FOLDING))


def canonical(text: str) -> str:
    """What two texts must share to count as the same answer: `fold`, case, white space, wrappers, full stop.

    Signs, `+`, `#` and inner punctuation are kept: "-5" is not "5", "C++" is not "C".
    """
    text = _SPACE_RUN.sub(" ", fold(text)).strip()
    while len(text) > 1:
        inner = _unwrap(text)
        if inner == text:
            break
        text = inner
    return text.casefold()


def _unwrap(text: str) -> str:
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return text[2:-2].strip()
    if _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    if text[-1] in ".\u3002" and text[-2] not in ".\u3002":
        return text[:-1].strip()
    return text
