"""One self-contained HTML page about a run: verdict, tables, charts, rendered answers, configuration.

No script, no font and no image from elsewhere: the page can be mailed and read in ten years.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from glmv.train.report_data import RunData, read_run
from glmv.train.report_examples import example_sections
from glmv.train.report_plots import curriculum_plots, learning_plots, speed_plots, tier_plots, update_plots
from glmv.train.report_tables import (
    error_note,
    group_table,
    notes,
    overall_table,
    reason_table,
    verdict,
    verifier_signs,
)

FOLDED = "Tiers by domain"  # many charts of interest to few


def write_report(run_dir: str | Path) -> Path:
    """Write `run_dir/report.html` from what the run has written so far; returns its path.

    Reads metrics.jsonl, eval.json, samples.jsonl, config.yaml and env.json, each of which may be missing.
    Raises ValueError if `run_dir` is no directory or a line of a file is broken.
    """
    run = read_run(Path(run_dir))
    path = run.path / "report.html"
    temporary = path.with_suffix(".html.tmp")
    temporary.write_text(page(run), encoding="utf-8", errors="replace")  # a lone surrogate in an answer
    temporary.replace(path)
    return path


def page(run: RunData) -> str:
    """The whole document."""
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    title = f"glmv run: {escape(run.path.resolve().name)}"
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{style}</style></head>"
        f"<body><main><h1>{title}</h1>{verdict(run)}{notes(run)}"
        f"{_results(run)}{_watch(run)}{_charts(run)}{_examples(run)}{_failures(run)}{_setup(run)}</main></body></html>\n"
    )


def _results(run: RunData) -> str:
    if not run.rows:
        return ""
    cells = group_table(run, "cells", "domain / task / difficulty")
    return (
        f"<section><h2>Held-out results</h2>{overall_table(run)}{group_table(run, 'domains', 'domain')}"
        f"{error_note(run)}<details><summary>By task and difficulty</summary>{cells}</details></section>"
    )


def _watch(run: RunData) -> str:
    """The signs of a hacked verifier, each with the steps at which it stood."""
    rl = [record for record in run.phase("rl") if "warnings" in record]
    if not rl:
        return ""
    signs = verifier_signs(rl)
    items = "".join(f"<li>{escape(sign)}</li>" for sign in signs)
    body = f"<ul class='notes'>{items}</ul>" if signs else "<p class='hint'>No sign of a hacked verifier.</p>"
    return f"<section><h2>Verifiers</h2>{body}</section>"


def _charts(run: RunData) -> str:
    groups = (
        ("Learning", learning_plots(run)),
        ("Curriculum", curriculum_plots(run)),
        (FOLDED, tier_plots(run)),
        ("Updates", update_plots(run)),
        ("Speed", speed_plots(run)),
    )
    return "".join(_chart_group(title, figures) for title, figures in groups if figures)


def _chart_group(title: str, figures: Sequence[str]) -> str:
    charts = f"<div class='charts'>{''.join(figures)}</div>"
    if title == FOLDED:
        return f"<details><summary>{title}</summary>{charts}</details>"
    return f"<section><h2>{title}</h2>{charts}</section>"


def _examples(run: RunData) -> str:
    if not run.samples:
        return ""
    return (
        "<section><h2>Examples</h2><p class='hint'>Held-out questions, chosen to show all outcomes: "
        "improved, still wrong, right throughout, got worse. On images, dashed is the reference and solid "
        f"the last checkpoint's answer.</p>{example_sections(run.answers, run.path)}</section>"
    )


def _failures(run: RunData) -> str:
    table = reason_table(run.answers)
    if not table:
        return ""
    hint = (
        "One sampled answer of every held-out prompt. judge_unavailable: not equal, and no judge was asked."
    )
    return f"<section><h2>Failures by reason</h2><p class='hint'>{hint}</p>{table}</section>"


def _setup(run: RunData) -> str:
    parts = []
    if run.environment:
        text = json.dumps(run.environment, indent=1, ensure_ascii=False)
        parts.append(f"<details><summary>Environment</summary><pre>{escape(text)}</pre></details>")
    if run.config:
        parts.append(f"<details><summary>Configuration</summary><pre>{escape(run.config)}</pre></details>")
    return f"<section><h2>Set-up</h2>{''.join(parts)}</section>" if parts else ""
