"""Multiple choice: one option letter, alone or with the text of its own option."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glmv.rewards.normal import canonical, fold
from glmv.rewards.types import Judge, Score, SpecError

OPTIONS = frozenset({"choices"})
MAX_CHARS = 2_048

_LEAD = re.compile(
    r"(?:the\s+)?(?:(?:correct|final|right|best)\s+)?(?:answer|option|choice)\s*(?:is\s*:?|:|=)?\s*"
    r"(?:option\s+|choice\s+)?|(?:正确)?(?:答案|选项)\s*(?:是|为|:)?\s*|(?:我?选择?)\s*:?\s*",
    re.IGNORECASE,
)
_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*\{([^{}]*)\}|\$([^$]*)\$|\*\*([^*]*)\*\*")
_LETTER = re.compile(r"(?P<open>[(\[]?)\s*(?P<letter>[A-Za-z0-9])(?P<close>\s*[)\]])?(?P<rest>.*)", re.DOTALL)
# "A" before a word is an article and "I" a pronoun: as second letters they name no option.
_STANDALONE = re.compile(r"(?<![A-Za-z0-9'])([A-Za-z0-9])(?![A-Za-z0-9'])(?!\s+[a-z])")
_JOINED = re.compile(r"(?<![A-Za-z0-9'])([A-Za-z0-9])(?=\s+(?:or|and|nor|but)\b)")
_DOUBT = re.compile(
    r"\b(?:not|never|neither|nor|wrong|incorrect|false|maybe|perhaps|isn't|cannot)\b|n't\b|^\s*or\b|不|错|或",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\s*\(([^()]*)\)\.?")
_DELIMITERS = ".:,;-)、"
_BRACKETS = {"": "", "(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class Choice:
    """What an answer says: a letter in the case of the options, and the text after it."""

    letter: str
    text: str
    separated: bool  # a bracket or a delimiter stands between letter and text
    small: bool  # the letter was written in lower case


def verify_mcq(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """`choices` maps letters to texts, or is the list of texts of A, B, ...; it may be left out.

    "B", "(b)", "**B.**", "Answer: B" and "B. a red kite" choose B. Several letters, a letter with the text of
    another option, a negated or rejected letter, and text without a letter are wrong.
    """
    texts, letter = _spec(reference, options)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    found = parse(answer)
    right = found is not None and found.letter == letter and _consistent(found, texts)
    return Score(1.0, "ok", answer) if right else Score(0.0, "wrong", answer)


def parse(answer: str) -> Choice | None:
    """The letter at the head of an answer and what follows it, or None."""
    text = fold(answer).strip()
    for _ in range(4):
        text = _WRAPPER.sub(lambda found: "".join(filter(None, found.groups())), text).strip().strip("\"'`*")
    lead = _LEAD.match(text)
    body = text[lead.end() :].lstrip() if lead else text
    found = _LETTER.fullmatch(body)
    if found is None:
        return None
    begin, letter, end, rest = found["open"], found["letter"], (found["close"] or "").strip(), found["rest"]
    if begin and end != _BRACKETS[begin]:
        return None
    aside = _ASIDE.fullmatch(rest)
    rest = f": {aside[1]}" if aside else rest
    separated = bool(end) or rest.lstrip()[:1] in tuple(_DELIMITERS)
    if rest and not separated and not rest[0].isspace():
        return None  # the first letter of a word
    after = (rest.lstrip(_DELIMITERS + " \t\n") if separated else rest.strip()).rstrip(" .。!\n\t")
    return Choice(letter.upper(), after, separated, letter.islower())


def _consistent(found: Choice, texts: Mapping[str, str]) -> bool:
    """Whether the text after the letter leaves the choice as it is."""
    if not found.text:
        return True
    said, own = canonical(found.text), texts.get(found.letter, "")
    if own and said == own:
        return True
    if not found.separated or _DOUBT.search(found.text):
        return False
    known = texts or dict.fromkeys("ABCDEFGHIJ", "")
    others = {key: text for key, text in known.items() if key != found.letter}
    letters = _STANDALONE.findall(found.text) + _JOINED.findall(found.text)
    named = {letter.upper() for letter in letters if found.small or not letter.islower()}
    return not named & set(others) and not any(
        text and text in said and text not in own for text in others.values()
    )


def _spec(reference: object, options: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Letter -> canonical text, and the right letter."""
    choices = options.get("choices") or {}
    if isinstance(choices, list) and len(choices) <= 26:
        choices = {chr(ord("A") + at): text for at, text in enumerate(choices)}
    if not isinstance(choices, dict) or not all(isinstance(k, str) and len(k) == 1 for k in choices):
        raise SpecError(f"options.choices must map letters to texts, or be a list of texts, got {choices!r}")
    texts = {key.upper(): canonical(str(text)) for key, text in choices.items()}
    letter = check_reference(reference)
    if texts and letter not in texts:
        raise SpecError(f"mcq: the reference must be one of {', '.join(texts)}, got {reference!r}")
    return texts, letter


def check_reference(reference: object) -> str:
    """The right letter in upper case."""
    letter = reference.strip().strip("()") if isinstance(reference, str) else ""
    if len(letter) != 1 or not letter.isascii() or not letter.isalnum():
        raise SpecError(f"mcq: the reference must be one option letter, got {reference!r}")
    return letter.upper()
