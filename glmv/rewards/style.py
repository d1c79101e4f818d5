"""Style: no paragraphs of mixed Chinese and English, and no large blocks that repeat themselves.

The rules are those of GLM-V's published reward code for mixed languages, by sentence instead of by paragraph,
so that no paragraph break can hide the mixture. What stands in quotation marks is not counted: it is quoted.
"""

import re
from collections import Counter

from glmv.rewards.types import Score

MIN_CHINESE_CHARS, MIN_ENGLISH_WORDS = 50, 150
CHINESE_SHARE, ENGLISH_SHARE = 0.8, 0.7
# A block repeats itself if windows of this length occur three times or more, and cover this much.
WINDOW, OCCURRENCES, MIN_COVER_CHARS, MIN_COVER_SHARE = 100, 3, 300, 0.2
MAX_CHARS = 65_536  # of each part; a loop shows at the end

_QUOTED = re.compile(r"\u201c[^\u201d]{0,600}\u201d|\u300c[^\u300d]{0,600}\u300d|\"[^\"]{0,600}\"")
_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_ENGLISH = re.compile("[A-Za-z]+")
_SPACES = re.compile(r"\s+")


def style(*parts: str) -> Score:
    """1 if every part (thinking, answer) is in order, else 0 with reason "style"; details name the fault.

    Languages are counted over all parts together, repetition within each: an answer may say again what the
    thinking part said.
    """
    parts = tuple(part[-MAX_CHARS:] for part in parts)
    if mixed("\n".join(parts)):
        return Score(0.0, "style", details={"style": "mixed languages"})
    if any(map(repeats, parts)):
        return Score(0.0, "style", details={"style": "repetition"})
    return Score(1.0, "ok")


def mixed(text: str) -> bool:
    """True if whole sentences of both languages add up to a paragraph each."""
    if not _CHINESE.search(text):
        return False
    chinese = english = 0
    for sentence in _SENTENCE.findall(_QUOTED.sub(" ", text)):
        signs, words = len(_CHINESE.findall(sentence)), _ENGLISH.findall(sentence)
        letters = signs + sum(map(len, words))
        if signs > CHINESE_SHARE * letters:
            chinese += signs
        elif letters - signs > ENGLISH_SHARE * letters:
            english += len(words)
    return chinese >= MIN_CHINESE_CHARS and english >= MIN_ENGLISH_WORDS


def repeats(text: str) -> bool:
    """True if a large part of the text is blocks that stand there three times or more."""
    text = _SPACES.sub(" ", text)
    starts = len(text) - WINDOW + 1
    if starts < MIN_COVER_CHARS - WINDOW:
        return False
    windows = Counter(text[at : at + WINDOW] for at in range(starts))
    covered = sum(count for count in windows.values() if count >= OCCURRENCES)
    return covered + WINDOW >= MIN_COVER_CHARS and covered >= MIN_COVER_SHARE * starts
