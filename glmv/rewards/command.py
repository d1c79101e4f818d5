"""`glmv verify`."""

import argparse
import json
from pathlib import Path
from typing import Any

from glmv.rewards import audit, case_report, cases, compare
from glmv.rewards.verify import KINDS


def main(argv: list[str]) -> int:
    """Exit code 1 if a case fails, or if an attack is accepted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.cases is None and not args.audit:
        parser.error("give --cases FILE, --audit, or both")
    if args.compare and args.cases is None:
        parser.error("--compare needs --cases FILE")
    found: dict[str, Any] = {}
    texts: list[str] = []
    ok = True
    if args.cases is not None:
        read = cases.read_cases(args.cases)
        if not read:
            raise ValueError(f"{args.cases} holds no case")
        results = case_report.run_cases(read)
        ok = all(result.ok for result in results)
        found |= case_report.as_json(results)
        texts.append(case_report.as_text(results))
        if args.output:
            Path(args.output).write_text(case_report.as_jsonl(results), encoding="utf-8")
        if args.compare:
            pairs = compare.compare(read)
            found["compare"] = compare.as_json(pairs)
            texts.append(compare.as_text(pairs))
    if args.audit:
        findings = audit.audit(args.kind or KINDS)
        ok = ok and audit.holds(findings)
        found["audit"] = audit.as_json(findings)
        texts.append(audit.as_text(findings))
    print(json.dumps(found) if args.json else "\n\n".join(texts))
    return 0 if ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "glmv verify",
        description="Run the verifiers on a case file, or on a JSONL of (response, reference, kind), with a "
        "table per kind. Exit code 1 if a case fails or an attack is accepted.",
    )
    parser.add_argument("--cases", help="JSONL, one case a line; its form is in docs/rewards.md")
    parser.add_argument("--audit", action="store_true", help="attack the verifiers with a built-in list")
    parser.add_argument("--kind", nargs="+", choices=KINDS, help="attack only these")
    parser.add_argument("--compare", choices=compare.NAMES, help="the math cases with another verifier too")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("-o", "--output", help="write one JSON line per case")
    return parser
