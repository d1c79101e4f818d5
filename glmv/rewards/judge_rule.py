"""A judge without a model, for runs without a network. Its scores say so: `details["judge"]` is "rule"."""

import re
from collections import Counter

from glmv.rewards.judge import SCALES, blocks
from glmv.rewards.normal import canonical
from glmv.rewards.types import JudgeError

MIN_F1 = 0.8
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,:/-]\d+)*|[\u4e00-\u9fff]", re.UNICODE)
# Words that carry no content of their own; what denies or turns a statement round is not among them.
_FILLERS = frozenset(
    ("a", "an", "the", "is", "are", "was", "were", "be", "been", "it", "its", "this", "that", "of", "to",
     "in", "on", "at", "by", "for", "and", "there")
)  # fmt: skip
_DENIALS = frozenset(("no", "not", "never", "none", "neither", "nor", "without", "cannot"))


class RuleJudge:
    """Says yes if the candidate has the words of the reference and hardly others.

    Yes needs: F1 of the content words >= 0.8, the same numbers, and the same number of denials. It knows no
    synonyms, so it accepts far less than a model; a list of everything fails on its surplus words.
    """

    name = "rule"

    def __call__(self, prompt: str) -> str:
        """Raises JudgeError for a prompt that compares no candidate with a reference."""
        found = blocks(prompt)
        if found is None:
            raise JudgeError("the rule judge only compares a candidate with a reference")
        low, high, _ = SCALES[found.scale]
        return f"{high if agree(found.candidate, found.reference) else low:g}"


def agree(candidate: str, reference: str) -> bool:
    got, want = _tokens(candidate), _tokens(reference)
    if not want or _special(got) != _special(want):
        return False
    shared = (got & want).total()
    return 2 * shared >= MIN_F1 * (got.total() + want.total())


def _tokens(text: str) -> Counter[str]:
    words = _TOKEN.findall(canonical(text).replace("n't", " not "))
    return Counter(word for word in words if word not in _FILLERS)


def _special(tokens: Counter[str]) -> tuple[Counter[str], int]:
    """The numbers, and how many denials there are."""
    numbers = Counter({word: n for word, n in tokens.items() if word[0].isdigit()})
    return numbers, sum(n for word, n in tokens.items() if word in _DENIALS)
