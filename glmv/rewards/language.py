"""Which language a text is written in: by script, and for Latin script by its most frequent short words.

Deterministic and conservative. A Latin text without any known word counts as English only if it is plain
ASCII, because that is all that can be said of a few names or numbers.
"""

import re
from collections import Counter

# Language -> the code points that only it uses here.
_SCRIPTS: dict[str, tuple[tuple[int, int], ...]] = {
    "ja": ((0x3040, 0x30FF),),
    "ko": ((0xAC00, 0xD7AF), (0x1100, 0x11FF)),
    "zh": ((0x4E00, 0x9FFF), (0x3400, 0x4DBF)),
    "ar": ((0x0600, 0x06FF),),
    "he": ((0x0590, 0x05FF),),
    "hi": ((0x0900, 0x097F),),
    "bn": ((0x0980, 0x09FF),),
    "pa": ((0x0A00, 0x0A7F),),
    "gu": ((0x0A80, 0x0AFF),),
    "ta": ((0x0B80, 0x0BFF),),
    "te": ((0x0C00, 0x0C7F),),
    "kn": ((0x0C80, 0x0CFF),),
    "th": ((0x0E00, 0x0E7F),),
    "el": ((0x0370, 0x03FF),),
    "ru": ((0x0400, 0x04FF),),
}
_FREQUENT = {
    "en": "the of and to in is that it was for on are with as this be at by not have from or an they",
    "de": "der die und das ist nicht ein eine den von mit sich auf dem für auch im es zu wird",
    "fr": "le la les des et est une un du dans que pour pas sur avec au qui ce il elle sont",
    "es": "el la los las de y que es en un una por con para no se del al como está",
    "it": "il lo gli di e che è un una per non con del della sono nel si ma anche le",
    "pt": "o os a as de e que é um uma para não com do da em no na por se mais",
    "nl": "de het een en van is dat niet op te zijn met voor aan er om ook als maar",
    "sv": "och att det som en är av för på med inte den till ett har om jag",
    "fi": "ja on ei se että hän oli ovat mutta kun myös tämä",
    "vi": "là và của có không một được cho trong những các với người này",
    "pl": "nie się na jest że do to w z i jak ale po co za",
    "tr": "ve bir bu için ile da de çok olarak ne gibi daha",
}
_WORDS = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}
_WORD = re.compile(r"[^\W\d_]+")
MAX_CHARS = 20_000


def detect(text: str) -> str | None:
    """The code (ISO 639-1) of the language of `text`, or None. Only the first 20,000 characters count."""
    text = text[:MAX_CHARS]
    scripts = Counter(map(_script, filter(str.isalpha, text)))
    if not scripts:
        return None
    if scripts["ja"] and scripts["ja"] + scripts["zh"] >= scripts.total() / 2:
        return "ja"
    script, count = scripts.most_common(1)[0]
    if count < scripts.total() / 2:
        return None
    return script if script != "latin" else _latin(text)


def _script(char: str) -> str:
    code = ord(char)
    if code < 0x250 or 0x1E00 <= code < 0x1F00:
        return "latin"
    for language, ranges in _SCRIPTS.items():
        if any(first <= code <= last for first, last in ranges):
            return language
    return "other"


def _latin(text: str) -> str | None:
    words = Counter(_WORD.findall(text.lower()))
    hits = {lang: sum(words[word] for word in known) for lang, known in _WORDS.items()}
    ranked = sorted(hits.items(), key=lambda item: -item[1])
    (best, most), (_, second) = ranked[:2]
    if most == 0:
        return "en" if text.isascii() else None
    return best if most > second else ("en" if hits["en"] == most and text.isascii() else None)
