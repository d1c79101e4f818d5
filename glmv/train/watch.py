"""The watch over the verifiers during RL: strict checks on held-out rows, and signs of a hacked verifier.

Every few iterations the policy answers held-out prompts; the same answers get the verifier's reward and a
strict score that has no tolerance, normalisation or judge to exploit. Both fall alike where the policy fails
to generalise; the reward alone stays up where the verifier is hacked. The signs: `glmv.rewards.monitor`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from glmv.data.process import Processor
from glmv.data.types import Sample
from glmv.model import Glm4v
from glmv.rewards import extract, monitor, verify
from glmv.train.config import RlConfig
from glmv.train.loading import read_prompts
from glmv.train.rollout import generate
from glmv.train.score import Scored, score_group

# A little above what the reward asks for: an honest policy has no reason to be more exact than its reward,
# and would show a gap that is no hack. Boxes or points that are paid for another reason fail here too.
STRICT_IOU = 0.6
STRICT_CLICK = 0.9  # the part of a target box around its middle


@dataclass(frozen=True)
class HeldOut:
    """The held-out rows of the strict check."""

    samples: Sequence[Sample]
    root: Path

    @classmethod
    def read(cls, config: RlConfig) -> "HeldOut | None":
        """`check_prompts` rows of `check_data`, the domains in turn; None where the config names none."""
        if config.check_data is None:
            return None
        by_domain: dict[str, list[Sample]] = {}
        for sample in read_prompts(config.check_data):
            by_domain.setdefault(sample.domain, []).append(sample)
        turns = [sample for turn in zip_longest(*by_domain.values()) for sample in turn if sample]
        return cls(turns[: config.check_prompts], Path(config.check_data).parent)

    def measure(self, model: Glm4v, processor: Processor, config: RlConfig, step: int) -> dict[str, float]:
        """`checked/<domain>`, the verifier's mean reward, and `strict/<domain>`, the strict one, of one
        sampled answer a prompt."""
        prompts = [processor.prompt(sample, self.root) for sample in self.samples]
        seed = config.seed * 1_000_003 + 700_001 + step
        answers = generate(model, processor, prompts, 1, config.sampling, seed)
        scores: dict[str, list[tuple[float, float]]] = {}
        for prompt, answer in zip(prompts, answers, strict=True):
            scored = score_group(prompt, answer, processor)[0]
            pair = scored.reward, strict(scored, prompt.sample)
            scores.setdefault(prompt.sample.domain, []).append(pair)
        out: dict[str, float] = {}
        for domain, pairs in sorted(scores.items()):
            out[f"checked/{domain}"] = sum(reward for reward, _ in pairs) / len(pairs)
            out[f"strict/{domain}"] = sum(exact for _, exact in pairs) / len(pairs)
        return out


def strict(scored: Scored, sample: Sample) -> float:
    """A score in [0, 1] without leniency: the very text, boxes at IoU 0.6, a click off the edge."""
    spec = sample.reward_model
    answer = extract(str(spec.get("scheme", "glm")), scored.text).answer
    if answer is None:
        return 0.0
    kind, reference, options = str(spec["kind"]), spec["ground_truth"], dict(spec.get("options") or {})
    if kind == "grounding":
        return verify(kind, answer, reference, {**options, "iou_threshold": STRICT_IOU}).value or 0.0
    if kind == "click":
        return verify(kind, answer, _middle(reference), options).value or 0.0
    text = answer.strip()
    if kind == "ocr":  # characters in their places: as graded as the edit distance, and never above it
        target = str(reference)
        return sum(a == b for a, b in zip(text, target)) / max(len(text), len(target), 1)
    wanted = reference if isinstance(reference, list) else [reference]
    return float(text in [str(value).strip() for value in wanted])


def _middle(box: Sequence[float]) -> list[float]:
    x1, y1, x2, y2 = box
    dx, dy = (x2 - x1) * (1 - STRICT_CLICK) / 2, (y2 - y1) * (1 - STRICT_CLICK) / 2
    return [x1 + dx, y1 + dy, x2 - dx, y2 - dy]


def records(metrics: Iterable[Mapping[str, Any]], held_out: bool) -> list[monitor.Record]:
    """What the monitor reads, from the lines of a run's metrics.jsonl: one record a step and domain.

    With `held_out` the reward is that of the held-out check alone, so that a gap to the strict score is the
    verifier's and not one between the prompts of training and held-out ones.
    """
    source = "checked" if held_out else "reward"
    return [
        _record(line, key.removeprefix("reasons/"), source)
        for line in metrics
        for key in line
        if key.startswith("reasons/")
    ]


def _record(line: Mapping[str, Any], domain: str, source: str) -> monitor.Record:
    reasons = line[f"reasons/{domain}"]
    total = sum(reasons.values())
    return monitor.Record(
        step=int(line["step"]),
        domain=domain,
        reward=line.get(f"{source}/{domain}", math.nan),
        strict=line.get(f"strict/{domain}", math.nan),
        length=line.get(f"response_length/{domain}", math.nan),
        markers=line.get(f"markers/{domain}", math.nan),
        reasons={reason: count / total for reason, count in reasons.items()},
    )
