"""What verifies which data: our YAML, or a reward config of GLM-V (`glmv_reward`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from glmv.rewards.extract import SCHEMES
from glmv.rewards.judge_config import Endpoint, JudgeConfig
from glmv.rewards.verify import KINDS
from glmv.rewards.vero import ROUTES

# verifier_type of GLM-V -> our kind. Those without a rule of their own there compare text, then ask a judge.
GLMV_KINDS = {
    "math": "math", "geoquest": "math", "mmsi": "math", "chart": "chart", "ocr": "ocr", "physics": "physics",
    "chemistry": "chemistry", "counting": "vqa", "vqa": "vqa", "general": "vqa", "biology": "vqa",
    "geography": "vqa", "liberal_arts": "vqa", "multi_image": "vqa", "long_doc": "vqa",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """How the answers of one data source are scored; the fields are those of a sample's `reward_model`."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    scheme: str = "glm"

    def __post_init__(self) -> None:
        known = [*KINDS, *ROUTES] if self.scheme == "vero" else KINDS
        if self.kind not in known:
            raise ValueError(f"kind must be one of {', '.join(known)}, got {self.kind!r}")
        if self.scheme not in SCHEMES:
            raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {self.scheme!r}")


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """`sources` maps a data source or task (also with `*`) to a rule; `default` is for all others.

    `judge` is "" (none), "rule" or a JudgeConfig. `masked` is the number that stands for "no score" in the
    call shapes that know only numbers. `reward_model` scores the answers to data that is not verifiable
    (options.verifiable = false), in place of the judge; its keys are those of `reward_model.reward_model`.
    """

    sources: Mapping[str, Rule]
    default: Rule | None = None
    judge: JudgeConfig | str = ""
    reward_model: Mapping[str, Any] | None = None
    workers: int = 1
    seconds: float = 2.0
    memory_mb: int = 512
    masked: float = float("nan")

    def rule(self, source: str) -> Rule:
        """An exact name first, then the first pattern that fits. Raises ValueError for an unknown source."""
        found = self.sources.get(source) or next(
            (rule for pattern, rule in self.sources.items() if fnmatchcase(source, pattern)), self.default
        )
        if found is None:
            raise ValueError(f"no verifier for data source {source!r}; known: {', '.join(self.sources)}")
        return found


def load(path: str | Path) -> SystemConfig:
    """Raises ValueError, with the path, for what is not understood."""
    found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    try:
        return parse(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse(found: Any) -> SystemConfig:
    if not isinstance(found, Mapping):
        raise ValueError(f"a reward config is a mapping, got {type(found).__name__}")
    if "reward_configs" in found:
        return _from_glmv(found)
    _only(found, [*(f.name for f in fields(SystemConfig)), "verifiers"], "the reward config")
    named = {name: _rule(entry, {}) for name, entry in _mapping(found, "verifiers").items()}
    sources = {name: _rule(entry, named) for name, entry in _mapping(found, "sources").items()}
    plain = ("reward_model", "workers", "seconds", "memory_mb", "masked")
    rest = {key: found[key] for key in plain if key in found}
    default = _rule(found["default"], named) if found.get("default") is not None else None
    return SystemConfig(sources, default, _judge(found.get("judge", "")), **rest)


def _rule(entry: Any, named: Mapping[str, Rule]) -> Rule:
    """The name of a verifier, the name of a kind, or kind, options and scheme."""
    if isinstance(entry, str):
        return named[entry] if entry in named else Rule(entry)
    if not isinstance(entry, Mapping) or "kind" not in entry:
        raise ValueError(f"a verifier is a name or has a `kind`, got {entry!r}")
    _only(entry, [f.name for f in fields(Rule)], "a verifier")
    return Rule(**{str(key): value for key, value in entry.items()})


def _judge(entry: Any) -> JudgeConfig | str:
    if entry in ("", None, "rule"):
        return str(entry or "")
    if not isinstance(entry, Mapping) or not isinstance(entry.get("endpoints"), list):
        raise ValueError(f"`judge` is rule, or has a list of `endpoints`, got {entry!r}")
    _only(entry, [f.name for f in fields(JudgeConfig)], "the judge")
    for endpoint in entry["endpoints"]:
        _only(endpoint, [f.name for f in fields(Endpoint)], "an endpoint")
    endpoints = tuple(Endpoint(**endpoint) for endpoint in entry["endpoints"])
    return JudgeConfig(**{**entry, "endpoints": endpoints})


def _from_glmv(found: Mapping[str, Any]) -> SystemConfig:
    """The structure of GLM-V's `RewardSystemConfig`. Its prompt templates are not used: ours are.

    All verifiers share one judge: the endpoints that they name together, each asked once per answer.
    """
    configs = _mapping(found, "reward_configs")
    manner = {} if found.get("enable_mix_verifier", True) else {"style_penalty": 0.0}
    rules = {name: _glmv_rule(name, entry, manner) for name, entry in configs.items()}
    sources = {}
    for source, name in _mapping(found, "datasource_reward_config_mapping").items():
        if name not in rules:
            raise ValueError(f"data source {source!r} names the unknown reward config {name!r}")
        sources[source] = rules[name]
    judges = {endpoint: entry for entry in configs.values() for endpoint in _glmv_endpoints(entry)}
    if not judges:
        return SystemConfig(sources)
    first = next(iter(judges.values()))
    # GLM-V asks for 10 tokens, which no reason fits into; ours come with one sentence.
    config = JudgeConfig(tuple(judges), temperature=float(first.get("llm_temperature", 0.0)))
    return SystemConfig(sources, judge=config)


def _glmv_rule(name: str, entry: Any, common: Mapping[str, Any]) -> Rule:
    kind = GLMV_KINDS.get(entry.get("verifier_type", "")) if isinstance(entry, Mapping) else None
    if kind is None:
        raise ValueError(f"reward config {name!r}: verifier_type must be one of {', '.join(GLMV_KINDS)}")
    options = dict(common)
    if kind != "ocr" and "sympy_tolerance" in entry:
        options["rel_tol"] = float(entry["sympy_tolerance"])
    if kind == "ocr" and "ignore_case" in entry:
        options["ignore_case"] = bool(entry["ignore_case"])
    if kind != "ocr" and not entry.get("enable_llm_judge_fallback", True):
        options["judge"] = False
    return Rule(kind, options, "glm-4.1v")


def _glmv_endpoints(entry: Mapping[str, Any]) -> list[Endpoint]:
    urls, keys, models = (_listed(entry.get(f"llm_{part}")) for part in ("judge_url", "api_key", "model"))
    if not entry.get("enable_llm_judge_fallback", True) or not urls:
        return []
    return [Endpoint(url, _at(models, i) or "glm-4-flash", _at(keys, i) or "") for i, url in enumerate(urls)]


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _at(values: Sequence[str], index: int) -> str | None:
    return values[min(index, len(values) - 1)] if values else None


def _mapping(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"`{name}` must be a mapping, got {value!r}")
    return value


def _only(found: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [key for key in found if key not in known]
    if unknown:
        raise ValueError(f"{where} has no key {unknown[0]!r}; known: {', '.join(known)}")
