"""The verifiers by kind."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glmv.rewards import (
    chart,
    click,
    compose,
    grounding,
    gui,
    ifollow,
    math,
    mcq,
    ocr,
    ordering,
    quantity,
    synonyms,
    text,
    webaction,
)  # fmt: skip
from glmv.rewards import judge as judging
from glmv.rewards.types import Judge, Score, SpecError


@dataclass(frozen=True, slots=True)
class Verifier:
    run: Callable[[str, object, Mapping[str, Any], Judge | None], Score]
    check_reference: Callable[[object], object]  # raises SpecError
    options: frozenset[str]


VERIFIERS: dict[str, Verifier] = {
    "math": Verifier(math.verify_math, math.check_reference, math.OPTIONS),
    "ocr": Verifier(ocr.verify_ocr, ocr.check_reference, ocr.OPTIONS),
    "vqa": Verifier(text.verify_text, text.check_reference, text.OPTIONS),
    "spatial": Verifier(text.verify_text, text.check_reference, text.OPTIONS),
    "document": Verifier(text.verify_text, text.check_reference, text.OPTIONS),
    "video": Verifier(text.verify_text, text.check_reference, text.OPTIONS),
    "chart": Verifier(chart.verify_chart, text.check_reference, chart.OPTIONS),
    "grounding": Verifier(grounding.verify_grounding, grounding.check_reference, grounding.OPTIONS),
    "click": Verifier(click.verify_click, click.check_reference, click.OPTIONS),
    "physics": Verifier(quantity.verify_physics, text.check_reference, quantity.OPTIONS),
    "chemistry": Verifier(quantity.verify_chemistry, text.check_reference, quantity.OPTIONS),
    "gui": Verifier(gui.verify_gui, gui.check_reference, gui.OPTIONS),
    "webaction": Verifier(webaction.verify_webaction, webaction.check_reference, webaction.OPTIONS),
    "mcq": Verifier(mcq.verify_mcq, mcq.check_reference, mcq.OPTIONS),
    "list": Verifier(synonyms.verify_list, synonyms.check_reference, synonyms.OPTIONS),
    "ordering": Verifier(ordering.verify_ordering, ordering.check_reference, ordering.OPTIONS),
    "ifollow": Verifier(ifollow.verify_ifollow, ifollow.check_reference, ifollow.OPTIONS),
    "llm_judge": Verifier(text.verify_judged, text.check_reference, judging.OPTIONS),
}
KINDS = tuple(VERIFIERS)
# Their answer is the whole text for the reader; no box marks a part of it.
OPEN_KINDS = frozenset({"ifollow", "llm_judge"})
# Read by `score` for every kind.
COMMON_OPTIONS = compose.OPTIONS | {"verifiable"}
_PROBE = "0"


def verify(
    kind: str,
    answer: str,
    reference: object,
    options: Mapping[str, Any] | None = None,
    judge: Judge | None = None,
) -> Score:
    """Score an extracted answer against a reference (any JSON value that the kind understands).

    Model text is data: it is never evaluated, its size and depth are bounded before any work, and whatever
    it holds the result is a Score. Options that a kind does not know are ignored here and refused by
    `check_spec`. An unusable reference or option gives 0 with reason "unsupported" and the message in
    `details["spec"]`; an unknown kind gives 0 with reason "unknown_kind".
    """
    verifier = VERIFIERS.get(kind)
    if verifier is None:
        return Score(0.0, "unknown_kind", answer)
    try:
        return verifier.run(answer, reference, options or {}, judge)
    except SpecError as error:
        return Score(0.0, "unsupported", answer, {"spec": str(error)})


def check_spec(kind: str, reference: object, options: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError if a sample with this kind, reference and options could never be scored.

    Meant for the time when a dataset is loaded: unknown kinds and misspelt options name their nearest match.
    """
    verifier = VERIFIERS.get(kind) if isinstance(kind, str) else None
    if verifier is None:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}{_nearest(kind, KINDS)}")
    for name in options or {}:
        known = sorted(verifier.options | COMMON_OPTIONS)
        if name not in known:
            raise ValueError(f"{kind} has no option {name!r}{_nearest(name, known)}")
    verifier.check_reference(reference)
    compose.totals_of(options or {})
    verifier.run(_PROBE, reference, options or {}, None)


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    match = difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {match[0]!r}?" if match else ""
