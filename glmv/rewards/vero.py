"""Vero's reward types and the verifiers that they are routed to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glmv.rewards.types import Judge, Score, graded
from glmv.rewards.verify import OPEN_KINDS, verify

# The share of the constraints and the judge weigh the same in instruction_following_llm_judge.
_JUDGE_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Route:
    """One reward type: our kind, whether its answer stands in a box, and options it sets unless given."""

    kind: str
    boxed: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)
    judged: bool = False  # the judge's score is averaged in

    def run(self, answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
        options = {**self.defaults, **options}
        verdict = verify(self.kind, answer, reference, options, judge)
        if not self.judged:
            return verdict
        opinion = verify("llm_judge", answer, reference, options, judge)
        if verdict.value is None or opinion.value is None:
            return opinion
        value = (1 - _JUDGE_WEIGHT) * verdict.value + _JUDGE_WEIGHT * opinion.value
        return graded(value, answer, {**verdict.details, "judge": opinion.value}, opinion.reason)


_JUDGE_SCALE = {"judge_scale": "vero_1_10"}
ROUTES = {
    "string_match": Route("list"),
    "multiple_choice": Route("mcq"),
    "number_list": Route("ordering"),
    "web_action": Route("webaction", boxed=False),
    "numeric": Route("math"),
    "list_string_match": Route("list"),
    "counting": Route("math", defaults={"exact_int": True}),
    "search": Route("list"),
    "grounding": Route("grounding", boxed=False, defaults={"scheme": "f1"}),
    "clicking": Route("click", boxed=False),
    "instruction_following": Route("ifollow", boxed=False),
    "instruction_following_llm_judge": Route("ifollow", boxed=False, defaults=_JUDGE_SCALE, judged=True),
    "llm_judge": Route("llm_judge", boxed=False, defaults=_JUDGE_SCALE),
}
_UNBOXED = OPEN_KINDS | {"grounding", "click", "gui", "webaction"}


def route(kind: str) -> Route:
    """The route of a reward type; one of our own kinds stands for itself."""
    return ROUTES.get(kind) or Route(kind, boxed=kind not in _UNBOXED)
