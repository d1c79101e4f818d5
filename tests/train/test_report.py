"""The HTML report: complete from a made-up run, honest about falls, safe against hostile answers."""

import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageDraw

from glmv.train.report import write_report
from glmv.train.report_data import read_run
from glmv.train.report_examples import choose
from glmv.train.report_svg import Series, area_chart, line_chart, smooth

DOMAINS = ("chart", "click", "grounding", "math", "ocr", "video", "vqa")
NAMES = ("after SFT", "after RL", "after more SFT")  # the order in which the demo evaluates
TITLES = (
    "Mean reward of the rollouts", "Accuracy by domain", "Share of valid groups", "Reasons of the scores",
    "Response length", "Supervised loss", "Expansion ratio", "Tiers of all prompts", "Tiers by domain",
    "Clip fractions", "Entropy", "Bin fill", "Tokens per second", "Where the time goes", "Failures by reason",
    "Environment", "Configuration",
)  # fmt: skip
TIERS = ("very_easy", "easy", "medium", "hard", "very_hard")
VOID = {"meta", "img", "br", "link", "input"}


class Checker(HTMLParser):
    """Balanced tags, and every attribute that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [
            value or "" for name, value in attributes if name in ("src", "href", "data", "xlink:href")
        ]
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(path: Path) -> str:
    """The page's text, after checking that it is whole and needs nothing from elsewhere."""
    text = path.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert not checker.tags & {"script", "iframe", "link", "object", "embed", "base", "form"}
    assert all(load.startswith("data:image/png;base64,") for load in checker.loads)
    assert "url(" not in text
    assert "@import" not in text
    return text


def rl_step(step: int, rng: random.Random) -> dict[str, Any]:
    done = step / 60
    record: dict[str, Any] = {"phase": "rl", "step": step, "time_s": 3.0 * step}
    record |= {"reward": 0.36 + 0.2 * done + rng.gauss(0, 0.02), "valid_share": 0.7 - 0.2 * done}
    record |= {"expansion_ratio": 1.3 + rng.random() / 2, "expansion_ema": 1.4 + 0.2 * done}
    record |= {
        "response_length": 24 + 4 * done,
        "thinking_rate": 1.0,
        "entropy": 0.5 - 0.3 * done,
        "bin_fill": 0.93,
    }
    record |= {
        "clip_low": 0.001,
        "clip_high": 0.002 * rng.random(),
        "approx_kl": 0.01,
        "ratio_mean": 1.0,
        "ratio_max": 1.8,
    }
    record |= {
        "grad_norm": 1 + rng.random(),
        "rollout_tokens_per_s": 9000.0,
        "train_tokens_per_s": 7000.0,
        "micro_steps": 6,
    }
    record |= {"time/rollout": 0.7, "time/score": 0.01, "time/train": 1.4, "loss": 0.0, "lr": 3e-4}
    record["tiers"] = dict(zip(TIERS, (100 + 3 * step, 200, 500 - step, 300, 400 - 2 * step), strict=True))
    record["reasons"] = {"ok": 200 + 2 * step, "wrong": 240 - 2 * step, "no_box": 8, "judge_unavailable": 30}
    for i, domain in enumerate(DOMAINS):
        record[f"accuracy/{domain}"] = 0.2 + 0.06 * i + 0.2 * done + rng.gauss(0, 0.04)
        record[f"valid_share/{domain}"] = 0.5 + 0.05 * i
        record[f"response_length/{domain}"] = 16.0 + 2 * i
        record[f"tiers/{domain}"] = record["tiers"]
    return record


def figures(mean: float, n: int) -> dict[str, Any]:
    return {
        "n": n,
        "mean": mean,
        "greedy": mean + 0.1,
        "best": mean + 0.3,
        "format": 0.98,
        "length": 24.5,
        "chance": 0.1,
    }


def eval_row(name: str, gain: float, falls: float = 0.0) -> dict[str, Any]:
    by_domain = {d: figures(0.3 + 0.04 * i + gain, 60) for i, d in enumerate(DOMAINS)}
    by_domain["vqa"]["mean"] -= falls
    cells = {f"{d}/task/{k}": figures(0.3 + gain - 0.1 * k, 20) for d in DOMAINS for k in range(3)}
    return {"name": name, "overall": figures(0.36 + gain, 420), "domains": by_domain, "cells": cells}


def picture(path: Path, rng: random.Random) -> None:
    image = Image.new("RGB", (84, 84), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        x, y = rng.randrange(56), rng.randrange(56)
        draw.rectangle((x, y, x + 26, y + 26), fill=tuple(rng.randrange(220) for _ in range(3)))
    path.parent.mkdir(exist_ok=True)
    image.save(path)


def answer(domain: str, right: bool, rng: random.Random) -> tuple[str, str]:
    """(what is said, reference) for a domain."""
    if domain == "grounding":
        return str([[100, 100, 400, 400]] if right else [[500, 500, 900, 800]]), "[[110, 100, 400, 420]]"
    if domain == "click":
        return str([250, 250] if right else [800, 700]), "[110, 100, 400, 420]"
    want = rng.randrange(10, 100)
    return str(want if right else want + 1), str(want)


def samples(root: Path, rng: random.Random) -> list[dict[str, Any]]:
    found = []
    for i in range(8 * len(DOMAINS)):
        domain = DOMAINS[i % len(DOMAINS)]
        images = [f"images/{i}-{k}.png" for k in range(6 if domain == "video" else 1)]
        for name in images:
            picture(root / name, rng)
        for gain, name in enumerate(NAMES):
            right = rng.random() < (0.3, 0.6, 0.5)[gain]
            said, want = answer(domain, right, random.Random(i))
            box = f"<|begin_of_box|>{said}<|end_of_box|>"
            sample = {"phase": "heldout", "name": name, "domain": domain, "task": "task", "difficulty": i % 3}
            sample |= {"images": images, "question": "<image>what stands in the picture?", "reference": want}
            sample |= {"response": f"<think>cell {i % 9} then {i}</think><answer>{box}</answer>"}
            found.append(sample | {"reward": float(right), "reason": "ok" if right else "wrong"})
    return found


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def make_run(root: Path, falls: float = 0.0) -> Path:
    """A complete run directory."""
    rng = random.Random(0)
    sft = [
        {"phase": "sft", "step": k, "loss": 3 * math.exp(-k / 60) + 0.3, "bin_fill": 0.95}
        for k in range(1, 300)
    ]
    control = [{"phase": "control", "step": k, "loss": 0.3 - k / 9000} for k in range(300, 420)]
    write_lines(root / "metrics.jsonl", sft + [rl_step(k, rng) for k in range(1, 61)] + control)
    rows = [eval_row(NAMES[0], 0.0), eval_row(NAMES[1], 0.19, falls), eval_row(NAMES[2], 0.12)]
    record = {
        "rows": rows,
        "group_size": 8,
        "prompts": 420,
        "notes": ["RL starts early on purpose.", "a < b & c"],
    }
    (root / "eval.json").write_text(json.dumps(record), encoding="utf-8")
    write_lines(root / "samples.jsonl", samples(root, rng))
    (root / "config.yaml").write_text("seed: 0\nnote: <b>bold</b>\n", encoding="utf-8")
    (root / "env.json").write_text('{"torch": "2.13.0", "threads": 2}', encoding="utf-8")
    return root


def visible(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_a_complete_run(tmp_path: Path) -> None:
    path = write_report(make_run(tmp_path))
    assert path == tmp_path / "report.html"
    text = check(path)
    words = visible(text)
    assert (
        "went from 36.0 % (after SFT) to 55.0 % (after RL): +19.0 points on 420 held-out prompts × 8 samples"
        in words
    )
    assert "For comparison, after more SFT: 48.0 %" in words
    assert "No domain fell by more than 5 points" in words
    for title in TITLES:
        assert title in words
    assert "a &lt; b &amp; c" in text
    assert "note: &lt;b&gt;bold&lt;/b&gt;" in text
    assert text.count("<article>") == 4 * len(DOMAINS)
    assert text.count("data:image/png;base64,") == 4 * (len(DOMAINS) - 1) + 4 * 6
    assert "<rect class='want' x='110' y='100' width='290' height='320'/>" in text
    assert "<circle class='got'" in text


def test_every_chart_is_well_formed(tmp_path: Path) -> None:
    text = write_report(make_run(tmp_path)).read_text(encoding="utf-8")
    charts = re.findall(r"<svg viewBox='0 0 340.*?</svg>", text)
    assert len(charts) == 6 + 2 + len(DOMAINS) + 6 + 3
    for chart in charts:
        ElementTree.fromstring(chart)
        assert "nan" not in chart.lower()


def test_a_fall_is_said(tmp_path: Path) -> None:
    words = visible(write_report(make_run(tmp_path, falls=0.3)).read_text(encoding="utf-8"))
    assert "Fell by more than 5 points: vqa (−11.0)" in words
    assert "No domain fell" not in words


@pytest.mark.parametrize("kept", ["metrics.jsonl", "eval.json", "samples.jsonl", "config.yaml", "none"])
def test_partial_runs(tmp_path: Path, kept: str) -> None:
    make_run(tmp_path)
    for name in ("metrics.jsonl", "eval.json", "samples.jsonl", "config.yaml", "env.json"):
        if name != kept:
            (tmp_path / name).unlink()
    words = visible(check(write_report(tmp_path)))
    assert ("No held-out evaluation yet" in words) == (kept != "eval.json")
    assert ("Entropy" in words) == (kept == "metrics.jsonl")


def test_gaps_in_the_metrics(tmp_path: Path) -> None:
    records = [{"phase": "rl", "step": k, "reward": math.nan if k == 3 else k / 10} for k in range(1, 6)]
    write_lines(tmp_path / "metrics.jsonl", [*records, {"phase": "rl"}, {"step": 1, "reward": None}])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "rl", "step": 7, "rew')  # killed in the middle of a line
    assert "Mean reward of the rollouts" in check(write_report(tmp_path))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step"\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: "):
        write_report(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"write_report: run_dir must be a directory, got .*nowhere"):
        write_report(tmp_path / "nowhere")


def test_hostile_text_is_only_shown(tmp_path: Path) -> None:
    attack = "</code><script>alert(1)</script><img src=x onerror=alert(2)>'\"\ud83d\x00"
    sample = dict.fromkeys(("name", "domain", "task", "question", "response", "reason", "reference"), attack)
    write_lines(tmp_path / "samples.jsonl", [{**sample, "reward": 0.0, "images": [attack, "missing.png"]}])
    row = eval_row(attack, 0.0)
    (tmp_path / "eval.json").write_text(json.dumps({"rows": [row, row], "notes": [attack]}))
    records = [
        {"phase": "rl", "step": k, f"accuracy/{attack}": 0.5, "reasons": {attack: 1}} for k in range(3)
    ]
    write_lines(tmp_path / "metrics.jsonl", records)
    text = check(write_report(tmp_path))
    assert "&lt;script&gt;alert(1)" in text
    assert "missing.png is missing" in text


def test_choice_shows_all_outcomes() -> None:
    def question(*rewards: float) -> list[dict[str, float]]:
        return [{"reward": reward} for reward in rewards]

    better, worse, right, wrong = question(0, 1), question(1, 0), question(1, 1), question(0, 0.4)
    chosen = choose([better, better, better, worse, right, wrong], 5)
    assert chosen == [better, wrong, right, worse, better]
    assert choose([], 5) == []


def test_smoothing_is_a_centred_mean() -> None:
    values = [(float(k), float(v)) for k, v in enumerate((0, 9, 0, 3, 3))]
    assert smooth(values, window=3) == [(0.0, 4.5), (1.0, 3.0), (2.0, 4.0), (3.0, 2.0), (4.0, 3.0)]


def test_rare_reasons_are_one_layer(tmp_path: Path) -> None:
    reasons = {
        "ok": 50,
        "wrong": 30,
        **dict.fromkeys(("empty", "no_box", "multi_box", "malformed", "too_long"), 2),
    }
    write_lines(tmp_path / "metrics.jsonl", [{"phase": "rl", "step": k, "reasons": reasons} for k in (1, 2)])
    chart = check(write_report(tmp_path)).partition("Reasons of the scores")[2]
    assert re.findall(r"</i>(.*?)</span>", chart) == ["ok", "wrong", "empty", "no box", "multi box", "other"]
    other = re.findall(r'<path d="M[\d.]+,([\d.]+)', chart)
    assert float(other[-1]) == 8.0  # the layers fill the whole height


def test_chart_geometry() -> None:
    chart = line_chart("t", [Series("a", [(0.0, 0.0), (10.0, 1.0)])], percent=True)
    path = re.search(r'd="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)"', chart)
    assert path is not None
    assert [float(v) for v in path.groups()] == [46.0, 168.0, 332.0, 8.0]  # corners of the plot area
    assert [f">{label}<" in chart for label in ("0%", "50%", "100%")] == [True] * 3
    assert line_chart("t", [Series("a", [(1.0, 1.0)])]) == ""
    assert line_chart("t", [Series("a", [(1.0, 5.0), (2.0, 5.0)])]) != ""
    assert area_chart("t", [1.0], {"a": [1.0]}) == ""
    assert area_chart("t", [1.0, 2.0], {"a": [1.0, 0.0], "b": [3.0, 0.0]}).count("<path") == 2


def test_read_run_orders_the_checkpoints(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    assert [row["name"] for row in run.rows] == ["after SFT", "after more SFT", "after RL"]
