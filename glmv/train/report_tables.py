"""The verdict and the tables of a report: held-out figures of every checkpoint, and failures by reason."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from html import escape

from glmv.train.report_data import Record, RunData, is_number

LARGE_FALL_POINTS = 5.0


def verdict(run: RunData) -> str:
    """One paragraph: what changed from the first checkpoint to the last, the ones between, and falls."""
    rows = run.rows
    if not rows:
        return (
            "<p class='verdict-line'>No held-out evaluation yet: the charts below are of the run so far.</p>"
        )
    first, last = rows[0], rows[-1]
    prompts, samples = (run.evaluation.get(key, "?") for key in ("prompts", "group_size"))
    size = f"{prompts} held-out prompts × {samples} samples"
    if len(rows) == 1:
        text = f"Mean reward {_name(first)}: <b>{_percent(first['overall'], 'mean')} %</b> on {size}."
        return f"<p class='verdict-line'>{text}</p>"
    before, after = (f"<b>{_percent(row['overall'], 'mean')} %</b> ({_name(row)})" for row in (first, last))
    change = _delta(first["overall"], last["overall"])
    text = f"Mean reward of sampled answers went from {before} to {after}: {change} points on {size}."
    for row in rows[1:-1]:
        text += f" For comparison, {_name(row)}: <b>{_percent(row['overall'], 'mean')} %</b>."
    return f"<p class='verdict-line'>{text} {_falls(first, last)} {_formats(first)}</p>"


def notes(run: RunData) -> str:
    items = "".join(f"<li>{escape(str(note))}</li>" for note in run.evaluation.get("notes", ()))
    return f"<ul class='notes'>{items}</ul>" if items else ""


def verifier_signs(rl: Sequence[Record]) -> list[str]:
    """The last warning of each domain and kind, with the number of steps that had one like it."""
    last: dict[tuple[str, ...], str] = {}
    count: Counter[tuple[str, ...]] = Counter()
    for record in rl:
        for text in record["warnings"]:
            domain = text.partition(",")[0]
            kind = (domain, *re.sub(r"[\d.%-]+", "", text.partition(": ")[2]).split())
            last[kind] = text
            count[kind] += 1
    return [f"{text} ({count[kind]} steps)" for kind, text in last.items()]


def overall_table(run: RunData) -> str:
    best = f"pass@{run.evaluation.get('group_size', 'k')}"
    columns = (("mean reward", "mean"), ("greedy", "greedy"), (best, "best"), ("format valid", "format"))
    head = "".join(f"<th>{escape(title)}</th>" for title, _ in columns) + "<th>tokens an answer</th>"
    body = ""
    for row in run.rows:
        cells = "".join(f"<td>{_percent(row['overall'], key)}</td>" for _, key in columns)
        body += f"<tr><th>{_name(row)}</th>{cells}<td>{_number(row['overall'].get('length'))}</td></tr>"
    return f"<table><thead><tr><th>checkpoint</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def group_table(run: RunData, key: str, title: str) -> str:
    """A row a domain (`key` domains) or a task and difficulty (`key` cells): mean, greedy, differences."""
    rows = run.rows
    head = f"<th>{escape(title)}</th><th>prompts</th><th>chance</th>"
    head += "".join(f"<th>{_name(row)}</th>" for row in rows)
    head += "".join(f"<th>{_name(row)}<br>− {_name(rows[0])}</th>" for row in rows[1:])
    body = "".join(_line(name, [row[key].get(name, {}) for row in rows]) for name in rows[0].get(key, {}))
    if key == "domains":
        body += _line("all", [row["overall"] for row in rows], "total")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def error_note(run: RunData) -> str:
    """The sampling error to read the domain table with."""
    counts = [f.get("n") for f in run.rows[0].get("domains", {}).values()]
    known = [n for n in counts if is_number(n) and n > 0]
    if not known:
        return ""
    error = 50 / math.sqrt(min(known))
    return (
        "<p class='hint'>Mean reward of the samples, greedy in brackets, in percent. One standard error of a "
        f"mean over {min(known)} prompts is at most {error:.0f} points: read smaller differences as noise. "
        "Chance is the reward of an answer without looking.</p>"
    )


def reason_table(samples: Sequence[Record]) -> str:
    """Failed held-out answers by domain and reason, of every checkpoint."""
    names = list(dict.fromkeys(str(s.get("name", "")) for s in samples))
    failed = [s for s in samples if s.get("reason") != "ok"]
    counts = Counter((str(s.get("domain")), str(s.get("reason")), str(s.get("name", ""))) for s in failed)
    pairs = sorted({(domain, reason) for domain, reason, _ in counts})
    if not pairs:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body, previous = "", ""
    for domain, reason in pairs:
        cells = "".join(f"<td>{counts[domain, reason, name] or ''}</td>" for name in names)
        shown, previous = "" if domain == previous else escape(domain), domain
        body += f"<tr><th>{shown}</th><td class='text'><code>{escape(reason)}</code></td>{cells}</tr>"
    head = f"<tr><th>domain</th><th class='text'>reason</th>{head}</tr>"
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _line(name: str, figures: Sequence[Record], style: str = "") -> str:
    cells = (
        f"<th>{escape(name)}</th><td>{figures[0].get('n', '')}</td><td>{_percent(figures[0], 'chance')}</td>"
    )
    for f in figures:
        share = _percent(f, "mean") if is_number(f.get("mean")) else "0"
        greedy = f"<small>({_percent(f, 'greedy', 0)})</small>"
        cells += f"<td class='bar' style='--share:{share}%'>{_percent(f, 'mean')} {greedy}</td>"
    cells += "".join(f"<td>{_delta(figures[0], f)}</td>" for f in figures[1:])
    return f"<tr class='{style}'>{cells}</tr>"


def _delta(before: Record, after: Record) -> str:
    if not (is_number(before.get("mean")) and is_number(after.get("mean"))):
        return "–"
    points = 100 * (after["mean"] - before["mean"])
    return f"<span class='{'up' if points >= 0 else 'down'}'>{points:+.1f}</span>".replace("-", "−")


def _falls(first: Record, last: Record) -> str:
    changes = _changes(first, last)
    fallen = [f"{escape(name)} ({change:+.1f})" for name, change in changes if change < -LARGE_FALL_POINTS]
    if fallen:
        return f"<b>Fell by more than {LARGE_FALL_POINTS:g} points: {', '.join(fallen)}.</b>".replace(
            "-", "−"
        )
    return f"No domain fell by more than {LARGE_FALL_POINTS:g} points."


def _changes(first: Record, last: Record) -> list[tuple[str, float]]:
    found = []
    for name, before in first.get("domains", {}).items():
        a, b = before.get("mean"), last.get("domains", {}).get(name, {}).get("mean")
        if is_number(a) and is_number(b):
            found.append((name, 100 * (b - a)))
    return found


def _formats(first: Record) -> str:
    if not is_number(first["overall"].get("format")):
        return ""
    return f"Format-valid answers {_name(first)}: {_percent(first['overall'], 'format')} %."


def _name(row: Record) -> str:
    return escape(str(row.get("name", "checkpoint")))


def _percent(figures: Record, key: str, digits: int = 1) -> str:
    value: object = figures.get(key)
    return f"{100 * value:.{digits}f}" if is_number(value) else "–"


def _number(value: object) -> str:
    return f"{value:.1f}" if is_number(value) else "–"
