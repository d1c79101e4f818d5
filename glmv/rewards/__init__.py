"""Rule-based rewards: `extract` an answer, `verify` it against a reference, or `score` a whole response."""

from glmv.rewards.extract import extract
from glmv.rewards.score import score
from glmv.rewards.types import Extraction, Judge, JudgeError, Reason, Reward, Score, SpecError
from glmv.rewards.verify import KINDS, check_spec, verify

__all__ = [
    "KINDS", "Extraction", "Judge", "JudgeError", "Reason", "Reward", "Score", "SpecError", "check_spec",
    "extract", "score", "verify",
]  # fmt: skip
