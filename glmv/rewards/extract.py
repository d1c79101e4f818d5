r"""Splitting a response into thinking and answer, by rule only: there is no second guess.

GLM-4.1V writes `<think>..</think><answer>..</answer>`, GLM-4.5V and later drop the answer tags; in both,
the final result stands in exactly one `<|begin_of_box|>..<|end_of_box|>` span of the answer part
(arXiv 2507.01006). Vero writes `<think>..</think><answer>..</answer>` with one `\boxed{}`, SAIL-RL
`<judge>..</judge><think>..</think>` and one `\boxed{}` (arXiv 2511.02280). The thinking part is not scanned.
"""

import re
from collections.abc import Callable

from glmv import check
from glmv.rewards.types import Extraction, Reason

BEGIN, END = "<|begin_of_box|>", "<|end_of_box|>"
LATEX_BOX = "\\boxed{"
MAX_CHARS = 1 << 20


def extract(scheme: str, response: str) -> Extraction:
    """Split `response` by the rules of `scheme`.

    "glm" takes both layouts, "glm-4.1v" asks for the answer tags, "glm-4.5v" allows none; "vero" and "sail"
    are the layouts of those recipes. `body` is empty if the tags are not in order, so a task that needs no
    box reads `body`. The response is text decoded with its special tokens, without the end token. Raises
    ValueError for an unknown scheme.
    """
    check.choice("extract", "scheme", scheme, tuple(SCHEMES))
    if len(response) > MAX_CHARS:
        return Extraction("", None, "too_long")
    return SCHEMES[scheme](response.strip())


def split_glm(text: str, tags: bool | None) -> Extraction:
    """`tags`: answer tags required (True), not allowed (False), or either (None)."""
    if not text:
        return Extraction("", None, "empty")
    thinking, close, rest = text.rpartition("</think>")
    if not close or not thinking.startswith("<think>") or text.count("<think>") != 1:
        return Extraction("", None, "malformed")
    thinking, body = thinking.removeprefix("<think>"), rest.strip()
    if "</think>" in thinking:
        return Extraction(thinking, None, "malformed")
    tagged = "<answer>" in text or "</answer>" in text
    if tagged:
        if text.count("<answer>") != 1 or text.count("</answer>") != 1:
            return Extraction(thinking, None, "malformed", body)
        if not body.startswith("<answer>") or not body.endswith("</answer>"):
            return Extraction(thinking, None, "malformed", body)
        body = body.removeprefix("<answer>").removesuffix("</answer>")
    if tags is not None and tags != tagged:
        return Extraction(thinking, None, "malformed", body)
    answer, reason = boxed(body)
    return Extraction(thinking, answer, reason, body)


def boxed(body: str) -> tuple[str | None, Reason]:
    """The content of the one box span in an answer part, or the reason why there is none."""
    begins, ends = body.count(BEGIN), body.count(END)
    if begins == 0 and ends == 0:
        return None, "no_box"
    if begins > 1 or ends > 1 or LATEX_BOX in body:
        return None, "multi_box"
    start, stop = body.find(BEGIN), body.find(END)
    if start < 0 or stop < start:
        return None, "malformed"
    answer = body[start + len(BEGIN) : stop].strip()
    return (answer, "ok") if answer else (None, "empty")


_VERO = re.compile(r"<think>(.*?)</think>\s*<answer>(.*?)</answer>", re.DOTALL)
_SAIL = re.compile(r"<judge>(.*?)</judge>\s*(?:<think>(.*?)</think>)?(.*)", re.DOTALL)
VERO_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
DECISIONS = ("think", "direct")


def split_vero(text: str) -> Extraction:
    """Each tag once, nothing around them, thinking and answer not blank."""
    if not text:
        return Extraction("", None, "empty")
    found = _VERO.fullmatch(text) if all(text.count(tag) == 1 for tag in VERO_TAGS) else None
    if found is None or not found[1].strip():
        return Extraction("", None, "malformed")
    body = found[2].strip()
    if not body:
        return Extraction(found[1], None, "empty")
    answer, reason = latex_boxed(body)
    return Extraction(found[1], answer, reason, body)


def split_sail(text: str) -> Extraction:
    """A decision, then thinking (which may be left out after "direct"), then an answer with its box."""
    if not text:
        return Extraction("", None, "empty")
    once = text.count("<judge>") == text.count("</judge>") == 1
    paired = text.count("<think>") == text.count("</think>") <= 1
    found = _SAIL.fullmatch(text) if once and paired else None
    decision = found[1].strip() if found else ""
    if found is None or decision not in DECISIONS or "<think>" in found[3]:
        return Extraction("", None, "malformed")
    thinking, body = found[2] or "", found[3].strip()
    if decision == "think" and not thinking.strip():
        return Extraction("", None, "malformed", decision=decision)
    answer, reason = latex_boxed(body)
    return Extraction(thinking, answer, reason, body, decision)


def latex_boxed(body: str) -> tuple[str | None, Reason]:
    r"""The content of the one `\boxed{}` of an answer part, or the reason why there is none."""
    count = body.count(LATEX_BOX)
    if count != 1:
        return None, "multi_box" if count else "no_box"
    start = body.index(LATEX_BOX) + len(LATEX_BOX)
    depth = 1
    for brace in re.finditer(r"(?<!\\)(?:\\\\)*([{}])", body[start:]):
        depth += 1 if brace[1] == "{" else -1
        if depth == 0:
            answer = body[start : start + brace.start(1)].strip()
            return (answer, "ok") if answer else (None, "empty")
    return None, "malformed"


SCHEMES: dict[str, Callable[[str], Extraction]] = {
    "glm": lambda text: split_glm(text, tags=None),
    "glm-4.1v": lambda text: split_glm(text, tags=True),
    "glm-4.5v": lambda text: split_glm(text, tags=False),
    "vero": split_vero,
    "sail": split_sail,
}
