"""The charts of a report, from the metrics of its phases."""

from collections import Counter
from collections.abc import Sequence

from glmv.train.report_data import Record, RunData, domains, is_number, points
from glmv.train.report_svg import COLORS, Series, area_chart, line_chart, smooth

TIERS = ("very_easy", "easy", "medium", "hard", "very_hard")
TIER_COLORS = ("#2166ac", "#67a9cf", "#d9d3c7", "#ef8a62", "#b2182b")
REASON_COLORS = ("#3a8f5c", "#cf5a47", "#dca53c", "#7468b0", "#56a3d9", "#8c8c88")
SFT_PHASES = ("sft", "control")


def learning_plots(run: RunData) -> list[str]:
    """What the policy learns: reward, accuracy, reasons, response length."""
    rl = run.phase("rl")
    return _present(
        line_chart("Mean reward of the rollouts", [_smoothed("reward", rl, "reward")], True, "RL iteration"),
        line_chart("Accuracy by domain", _by_domain(rl, "accuracy"), True, "RL iteration, smoothed"),
        line_chart("Share of valid groups", _with_domains(rl, "valid_share"), True, "smoothed"),
        _reasons(rl),
        line_chart("Response length", _with_domains(rl, "response_length"), note="tokens, smoothed"),
        line_chart("Thinking rate", _with_domains(rl, "thinking_rate"), True, "share with a thinking part"),
        line_chart("Reward less strict check", _gaps(rl), True, "held-out, smoothed: a verifier's leniency"),
    )


def _gaps(rl: Sequence[Record]) -> list[Series]:
    """Per domain, the verifier's reward less the strict score of the same held-out answers."""
    series = []
    for name in domains(rl, "strict"):
        gap = [(step, a - b) for (step, a), (_, b) in _pairs(rl, f"checked/{name}", f"strict/{name}")]
        series.append(Series(name, smooth(gap)))
    return series


def _pairs(
    rl: Sequence[Record], first: str, second: str
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return list(zip(points(rl, first), points(rl, second), strict=True))


def curriculum_plots(run: RunData) -> list[str]:
    """Difficulty of the prompts, and how many are drawn to fill a batch."""
    rl = run.phase("rl")
    expansion = [Series("ratio", points(rl, "expansion_ratio")), Series("EMA", points(rl, "expansion_ema"))]
    return _present(
        line_chart("Expansion ratio", expansion, note="prompts drawn for one that is kept"),
        _tiers("Tiers of all prompts", rl, "tiers"),
    )


def tier_plots(run: RunData) -> list[str]:
    rl = run.phase("rl")
    return _present(*(_tiers(domain, rl, f"tiers/{domain}") for domain in domains(rl, "tiers")))


def update_plots(run: RunData) -> list[str]:
    """The optimizer's side: clipping, entropy, distance to the sampling policy, losses."""
    rl = run.phase("rl")
    clips = [Series("low", smooth(points(rl, "clip_low"))), Series("high", smooth(points(rl, "clip_high")))]
    losses = [(phase, points(run.phase(phase), "loss")) for phase in SFT_PHASES]
    ratio = [Series("mean", points(rl, "ratio_mean")), Series("max", points(rl, "ratio_max"))]
    return _present(
        line_chart("Clip fractions", clips, True, "share of tokens, smoothed"),
        line_chart("Entropy", [_smoothed("entropy", rl, "entropy")], note="nats a token"),
        line_chart("Approximate KL", [_smoothed("kl", rl, "approx_kl")], note="to the sampling policy"),
        line_chart("Probability ratio", ratio, note="new over old policy"),
        line_chart("Gradient norm", [_smoothed("norm", rl, "grad_norm")], note="RL"),
        line_chart("Supervised loss", [Series(n, smooth(p), p) for n, p in losses], note="SFT step"),
    )


def speed_plots(run: RunData) -> list[str]:
    """Throughput, packing and where the time goes."""
    rl = run.phase("rl")
    speed = [
        Series("rollout", smooth(points(rl, "rollout_tokens_per_s"))),
        Series("train", smooth(points(rl, "train_tokens_per_s"))),
    ]
    fill = [Series(phase, smooth(points(run.phase(phase), "bin_fill"))) for phase in ("sft", "rl")]
    return _present(
        line_chart("Tokens per second", speed, note="RL, smoothed"),
        line_chart("Bin fill", fill, True, "share of the packed capacity"),
        _times(rl),
    )


def _present(*figures: str) -> list[str]:
    return [figure for figure in figures if figure]


def _smoothed(name: str, records: Sequence[Record], key: str) -> Series:
    raw = points(records, key)
    return Series(name, smooth(raw), raw)


def _by_domain(records: Sequence[Record], prefix: str) -> list[Series]:
    names = domains(records, prefix)
    return [Series(name, smooth(points(records, f"{prefix}/{name}"))) for name in names]


def _with_domains(records: Sequence[Record], key: str) -> list[Series]:
    return [*_by_domain(records, key), Series("all", smooth(points(records, key)), color="#111")]


def _tiers(title: str, records: Sequence[Record], key: str) -> str:
    return _shares(title, records, key, TIERS, TIER_COLORS, "share of the prompts")


def _reasons(records: Sequence[Record]) -> str:
    """The most frequent reasons, "ok" first, and the rest as one layer."""
    counts: list[Counter[str]] = [Counter(record.get("reasons", {})) for record in records]
    by_count = [name for name, _ in sum(counts, Counter()).most_common() if name != "ok"]
    names = ["ok", *by_count[: len(REASON_COLORS) - 2]]
    rest = by_count[len(names) - 1 :]
    layers = [
        {"step": record.get("step"), "reasons": {**count, "other": sum(count[name] for name in rest)}}
        for record, count in zip(records, counts, strict=True)
        if count
    ]
    names += ["other"] if rest else []
    return _shares("Reasons of the scores", layers, "reasons", names, REASON_COLORS, "share of the answers")


def _times(records: Sequence[Record]) -> str:
    phases = domains(records, "time")
    nested = [{"step": r.get("step"), "time": {p: r.get(f"time/{p}", 0.0) for p in phases}} for r in records]
    return _shares("Where the time goes", nested, "time", phases, COLORS, "share of an iteration")


def _shares(
    title: str, records: Sequence[Record], key: str, names: Sequence[str], colors: Sequence[str], note: str
) -> str:
    known = [record for record in records if record.get(key) and is_number(record.get("step"))]
    layers = {name.replace("_", " "): [float(r[key].get(name, 0)) for r in known] for name in names}
    return area_chart(title, [float(r["step"]) for r in known], layers, colors, note)
