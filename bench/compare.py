"""Compare two results of one machine."""

import json
from pathlib import Path
from typing import Any

NOISE_MADS = 3  # a loss must also exceed so many median absolute deviations of both results together

Row = dict[str, Any]


def compare(a: str, b: str, fail_over: float = 10.0) -> int:
    """Print where the result in file `b` is slower than in file `a`, or wrong; returns an exit code.

    0: no implementation lost more than `fail_over` percent of its speed relative to eager PyTorch.
    1: one did (beyond the noise), or is wrong in `b`, or is gone from a case that both have.
    2: the files cannot be compared: another schema, another machine or thread count, or no common case.
    """
    base, new = (json.loads(Path(path).read_text()) for path in (a, b))
    reason = _incomparable(base, new)
    if reason:
        print(f"not comparable: {reason}")
        return 2
    old_rows, new_rows = _rows(base), _rows(new)
    both = {case for case, _ in old_rows} & {case for case, _ in new_rows}
    if not both:
        print("not comparable: no case is in both")
        return 2
    faults = [f"{case}  {impl}: wrong, error {row['max_rel_err']:.1e}"
              for (case, impl), row in new_rows.items() if not row["ok"]]  # fmt: skip
    for (case, impl), row in old_rows.items():
        if case in both and impl != "eager":
            fault = _fault(row, new_rows.get((case, impl)), fail_over)
            faults += [f"{case}  {impl}: {fault}"] if fault else []
    for fault in faults:
        print(fault)
    print(f"{len(both)} cases compared, {len(faults)} faults")
    return 1 if faults else 0


def _incomparable(base: dict[str, Any], new: dict[str, Any]) -> str | None:
    if base.get("schema") != new.get("schema"):
        return f"schema {base.get('schema')} and {new.get('schema')}"
    hosts = [r["host"]["fingerprint"] for r in (base, new)]
    return f"host {hosts[0]} and {hosts[1]}" if hosts[0] != hosts[1] else None


def _rows(result: dict[str, Any]) -> dict[tuple[str, str], Row]:
    return {(row["id"], row["impl"]): row for row in result["cases"]}


def _fault(old: Row, new: Row | None, fail_over: float) -> str | None:
    if new is None:
        return "gone"
    before, after = old["ratio"]["eager"], new["ratio"]["eager"]
    lost = before["p50"] - after["p50"]
    noise = NOISE_MADS * (before["mad"] + after["mad"])
    if lost > fail_over / 100 * before["p50"] and lost > noise:
        return f"{before['p50']:.2f} -> {after['p50']:.2f} times the speed of eager"
    return None
