"""The checks of the instruction-following constraints, by their IFEval ids (arXiv 2311.07911).

Each check takes the text and the constraint's arguments. Arguments are data too: a keyword is searched for as
text, never as a pattern. Where the published checks count words and sentences with trained splitters, plain
rules stand here: a word is a run of letters and digits, a sentence ends at . ! ? or their Chinese forms.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from glmv.rewards import strict_json
from glmv.rewards.language import detect
from glmv.rewards.types import SpecError

Kwargs = Mapping[str, Any]
Check = Callable[[str, Kwargs], bool]

_WORD = re.compile(r"\w+")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|No)\.")
_SENTENCE = re.compile(r"(?<![.!?])[.!?]+[\"'\u201d)]*(?=\s|$)|[。！？]+")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")
_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|[-\u2022])[ \t]*\S", re.MULTILINE)
_STARRED = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")
_TITLE = re.compile(r"<<([^<>\n]+)>>")
_DIVIDER = "***"
_SEPARATE_ANSWERS = "******"
_FIXED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_OUTER_MARKS = "\"'\u201c\u201d"


def number(kwargs: Kwargs, name: str, default: int | None = None) -> int:
    value = kwargs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise SpecError(f"constraint argument {name} must be a whole number, got {value!r}")
    return int(value)


def text_of(kwargs: Kwargs, name: str) -> str:
    value = kwargs.get(name)
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"constraint argument {name} must be a text, got {value!r}")
    return value.strip()


def texts_of(kwargs: Kwargs, name: str) -> list[str]:
    values = kwargs.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(v, str) and v for v in values):
        raise SpecError(f"constraint argument {name} must be a list of texts, got {values!r}")
    return values


def compare(count: int, kwargs: Kwargs, name: str, relation: str = "relation") -> bool:
    """Whether `count` stands in the asked relation to the argument `name`."""
    limit = number(kwargs, name)
    relations = {
        "at least": count >= limit,
        "less than": count < limit,
        "at most": count <= limit,
        "more than": count > limit,
        "exactly": count == limit,
    }
    asked = kwargs.get(relation, "at least")
    if asked not in relations:
        raise SpecError(
            f"constraint argument {relation} must be one of {', '.join(relations)}, got {asked!r}"
        )
    return relations[asked]


def count_sentences(text: str) -> int:
    text = _ABBREVIATION.sub(lambda found: found[0].replace(".", ""), text)
    return sum(bool(_WORD.search(part)) for part in _SENTENCE.split(text))


def _first_word(text: str, kwargs: Kwargs) -> bool:
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    at = number(kwargs, "nth_paragraph")
    if len(paragraphs) != number(kwargs, "num_paragraphs") or not 1 <= at <= len(paragraphs):
        return False
    word = _WORD.search(paragraphs[at - 1])
    return word is not None and word[0].casefold() == text_of(kwargs, "first_word").casefold()


def _paragraphs(text: str, kwargs: Kwargs) -> bool:
    parts = text.strip().split(_DIVIDER)
    return all(part.strip() for part in parts) and len(parts) == number(kwargs, "num_paragraphs")


def _keyword_count(text: str, keyword: str) -> int:
    return text.casefold().count(keyword.strip().casefold())


def _has_word(text: str, word: str) -> bool:
    pattern = rf"(?<!\w){re.escape(word.strip())}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _letters(text: str, kwargs: Kwargs) -> bool:
    letter = text_of(kwargs, "letter")
    return compare(text.casefold().count(letter.casefold()), kwargs, "let_frequency", "let_relation")


def _postscript(text: str, kwargs: Kwargs) -> bool:
    marker = text_of(kwargs, "postscript_marker")
    spaced = r"[ \t]?".join(map(re.escape, re.sub(r"\s", "", marker)))
    return re.search(rf"^[ \t]*{spaced}.*\S", text, re.IGNORECASE | re.MULTILINE) is not None


def _json(text: str, kwargs: Kwargs) -> bool:
    try:
        strict_json.loads(text)
    except strict_json.JsonError:
        return False
    return True


def _sections(text: str, kwargs: Kwargs) -> bool:
    splitter = re.escape(text_of(kwargs, "section_spliter"))
    found = re.findall(rf"^[ \t#*]*{splitter}[ \t]*[0-9]+", text, re.IGNORECASE | re.MULTILINE)
    return len(found) >= number(kwargs, "num_sections")


def _highlights(text: str, kwargs: Kwargs) -> bool:
    found = sum(bool((a or b).strip()) for a, b in _STARRED.findall(text))
    return found >= number(kwargs, "num_highlights")


def _two_answers(text: str, kwargs: Kwargs) -> bool:
    parts = [part.strip() for part in text.strip().split(_SEPARATE_ANSWERS)]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def _repeats_prompt(text: str, kwargs: Kwargs) -> bool:
    return text.strip().casefold().startswith(text_of(kwargs, "prompt_to_repeat").casefold())


def _ends_with(text: str, kwargs: Kwargs) -> bool:
    end = text_of(kwargs, "end_phrase").strip(_OUTER_MARKS).casefold()
    return text.strip().strip(_OUTER_MARKS).casefold().endswith(end)


def _quoted(text: str, kwargs: Kwargs) -> bool:
    text = text.strip()
    return len(text) > 2 and text[0] in '"\u201c' and text[-1] in '"\u201d'


def _capital_words(text: str, kwargs: Kwargs) -> bool:
    words = sum(word.isupper() for word in _WORD.findall(text))
    return compare(words, kwargs, "capital_frequency", "capital_relation")


CHECKS: dict[str, Check] = {
    "keywords:existence": lambda t, k: all(_keyword_count(t, word) for word in texts_of(k, "keywords")),
    "keywords:frequency": lambda t, k: compare(_keyword_count(t, text_of(k, "keyword")), k, "frequency"),
    "keywords:forbidden_words": lambda t, k: not any(_has_word(t, w) for w in texts_of(k, "forbidden_words")),
    "keywords:letter_frequency": _letters,
    "language:response_language": lambda t, k: detect(t) == text_of(k, "language").split("-")[0].lower(),
    "length_constraints:number_sentences": lambda t, k: compare(count_sentences(t), k, "num_sentences"),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda t, k: compare(len(_WORD.findall(t)), k, "num_words"),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda t, k: (
        len(_PLACEHOLDER.findall(t)) >= number(k, "num_placeholders")
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda t, k: len(_BULLET.findall(t)) == number(k, "num_bullets"),
    "detectable_format:constrained_response": lambda t, k: any(fixed in t for fixed in _FIXED_ANSWERS),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": lambda t, k: any(title.strip() for title in _TITLE.findall(t)),
    "combination:two_responses": _two_answers,
    "combination:repeat_prompt": _repeats_prompt,
    "startend:end_checker": _ends_with,
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda t, k: t.isupper() and detect(t.lower()) == "en",
    "change_case:english_lowercase": lambda t, k: t.islower() and detect(t) == "en",
    "punctuation:no_comma": lambda t, k: not any(comma in t for comma in ",，"),
}
