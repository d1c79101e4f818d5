"""Running many cases, and what is shown of them: a table per kind, failures, the slowest; JSON and JSONL."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from glmv.rewards.cases import MAX_SECONDS, Case, CaseResult, run_case
from glmv.rewards.pool import Pool, TaskError

KILL_SECONDS = 2 * MAX_SECONDS  # a case that takes longer is killed; over MAX_SECONDS it has failed anyway
SLOWEST = 5


def run_cases(cases: Sequence[Case], seconds: float = KILL_SECONDS) -> list[CaseResult]:
    """Run every case in a worker with a time and a memory limit; one that breaks a limit has failed."""
    with Pool(1, seconds=seconds) as pool:
        results = pool.map(run_case, [(case,) for case in cases])
    return [
        CaseResult(case, None, "timeout", seconds, 0, f"killed: {result}")
        if isinstance(result, TaskError)
        else result
        for case, result in zip(cases, results, strict=True)
    ]


def summary(results: Sequence[CaseResult]) -> dict[str, Any]:
    """The figures of one kind, or of all."""
    problems = Counter(result.problem for result in results)
    slowest = max(results, key=lambda result: result.seconds)
    accepts, rejects = problems["false accept"], problems["false reject"]
    return {
        "cases": len(results),
        "passed": problems[""],
        "pass_rate": problems[""] / len(results),
        "false_accepts": accepts,
        "false_rejects": rejects,
        "other_failures": len(results) - problems[""] - accepts - rejects,
        "mean_score": statistics.fmean(result.value or 0.0 for result in results),
        "median_ms": 1e3 * statistics.median(result.seconds for result in results),
        "slowest_ms": 1e3 * slowest.seconds,
        "slowest": slowest.case.id,
        "reasons": dict(Counter(result.reason for result in results).most_common()),
    }


def by_kind(results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    kinds: dict[str, list[CaseResult]] = {}
    for result in results:
        kinds.setdefault(result.case.kind, []).append(result)
    return dict(sorted(kinds.items()))


def as_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    return {
        "total": summary(results),
        "kinds": {kind: summary(some) for kind, some in by_kind(results).items()},
        "results": [row(result) for result in results],
    }


def row(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "id": case.id,
        "kind": case.kind,
        "value": result.value,
        "reason": result.reason,
        "expected": case.expected,
        "ok": result.ok,
        "problem": result.problem,
        "seconds": result.seconds,
        "judge_calls": result.judge_calls,
    }


def as_jsonl(results: Sequence[CaseResult]) -> str:
    return "".join(json.dumps(row(result)) + "\n" for result in results)


def as_text(results: Sequence[CaseResult]) -> str:
    """The table per kind, then the cases that failed and the slowest."""
    header = (
        "kind",
        "cases",
        "pass",
        "false acc.",
        "false rej.",
        "other",
        "mean",
        "median ms",
        "max ms",
        "reasons",
    )
    lines = [_line(kind, summary(some)) for kind, some in by_kind(results).items()]
    parts = [table([header, *lines, _line("all", summary(results))])]
    failed = [result for result in results if not result.ok]
    if failed:
        parts.append("failed:\n" + table([_failure(result) for result in failed]))
    slowest = sorted(results, key=lambda result: -result.seconds)[:SLOWEST]
    parts.append(
        "slowest: " + ", ".join(f"{result.case.id} {1e3 * result.seconds:.1f} ms" for result in slowest)
    )
    return "\n\n".join(parts)


def _line(kind: str, figures: dict[str, Any]) -> tuple[str, ...]:
    reasons = " ".join(f"{name}={count}" for name, count in figures["reasons"].items())
    return (
        kind,
        str(figures["cases"]),
        f"{100 * figures['pass_rate']:.1f} %",
        str(figures["false_accepts"]),
        str(figures["false_rejects"]),
        str(figures["other_failures"]),
        f"{figures['mean_score']:.3f}",
        f"{figures['median_ms']:.2f}",
        f"{figures['slowest_ms']:.1f}",
        reasons,
    )


def _failure(result: CaseResult) -> tuple[str, ...]:
    case = result.case
    low, high = case.expected or (0.0, 1.0)
    wanted = f"{low:g}" if low == high else f"{low:g}..{high:g}"
    shown = case.response if case.answer is None else case.answer
    value = "none" if result.value is None else f"{result.value:g}"
    return case.id, result.problem, f"{value} ({result.reason}), expected {wanted}", ascii(shown)[:60]


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Left-aligned columns, two spaces apart."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
