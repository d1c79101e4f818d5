"""Rendered answers: the images, the question, and what every checkpoint thought and answered."""

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from PIL import Image

from glmv.rewards import extract
from glmv.rewards.click import as_point
from glmv.rewards.grounding import as_box
from glmv.rewards.strict_json import JsonError, loads
from glmv.train.report_data import Record, is_number

PER_DOMAIN = 4
MAX_IMAGES, MAX_PIXELS = 8, 448
MAX_TEXT_CHARS = 2000
RIGHT = 0.5  # the success rule of the curriculum for graded rewards
FRAME = (1000.0, 1000.0)
_PLACEHOLDER = re.compile(r"<(?:image|video)>")


def example_sections(samples: Sequence[Record], root: Path) -> str:
    """Several questions a domain, each with the answers of all checkpoints side by side."""
    by_domain: dict[str, list[list[Record]]] = {}
    for answers in _by_question(samples):
        by_domain.setdefault(str(answers[0].get("domain", "")), []).append(answers)
    sections = []
    for domain, questions in sorted(by_domain.items()):
        cards = "".join(_card(answers, root) for answers in choose(questions, PER_DOMAIN))
        sections.append(f"<h3>{escape(domain)}</h3><div class='cards'>{cards}</div>")
    return "".join(sections)


def choose(questions: Sequence[list[Record]], n: int) -> list[list[Record]]:
    """A mix, not the best: improved, still wrong, always right, got worse, in turn, in file order."""
    kinds: dict[tuple[bool, bool], list[list[Record]]] = {}
    for answers in questions:
        kinds.setdefault((_right(answers[0]), _right(answers[-1])), []).append(answers)
    order = [(False, True), (False, False), (True, True), (True, False)]
    turns = [kinds[kind] for kind in order if kind in kinds]
    longest = max((len(turn) for turn in turns), default=0)
    mixed = [turn[i] for i in range(longest) for turn in turns if i < len(turn)]
    return mixed[:n]


def _by_question(samples: Sequence[Record]) -> list[list[Record]]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for sample in samples:
        key = (str(sample.get("domain")), str(sample.get("images")), str(sample.get("question")))
        groups.setdefault(key, []).append(sample)
    return list(groups.values())


def _right(sample: Record) -> bool:
    return is_number(sample.get("reward")) and sample["reward"] >= RIGHT


def _card(answers: Sequence[Record], root: Path) -> str:
    first = answers[0]
    question = _PLACEHOLDER.sub("", str(first.get("question", ""))).strip()
    tag = " / ".join(str(first[key]) for key in ("task", "difficulty") if key in first)
    paths = list(first.get("images", ()))[:MAX_IMAGES]
    marks = _marks(answers) if len(paths) == 1 else ""
    pictures = "".join(f"<div class='picture'>{_picture(str(path), root)}{marks}</div>" for path in paths)
    return (
        f"<article><div class='pictures'>{pictures}</div><div class='qa'>"
        f"<p class='question'>{escape(question)}<small>{escape(tag)}</small></p>"
        f"<p class='reference'>reference <code>{_clip(str(first.get('reference', '')))}</code></p>"
        f"{''.join(_answer(sample) for sample in answers)}</div></article>"
    )


def _answer(sample: Record) -> str:
    response = str(sample.get("response", ""))
    found = extract("glm", response)
    reward = f"{sample['reward']:.2f}" if is_number(sample.get("reward")) else "none"
    if found.answer is None:
        said = f"<p class='said'><code>{_clip(response) or '(empty)'}</code></p>"
    else:
        thinking = f"<i>{_clip(found.thinking.strip())}</i> " if found.thinking.strip() else ""
        said = f"<p class='said'>{thinking}<code>{_clip(found.answer)}</code></p>"
    return (
        f"<div class='answer {'right' if _right(sample) else 'wrong'}'>"
        f"<p class='verdict'><b>{escape(str(sample.get('name', 'answer')))}</b>"
        f"<span>{reward} · {escape(str(sample.get('reason', '')))}</span></p>{said}</div>"
    )


def _clip(text: str) -> str:
    return escape(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + " …")


# -- pictures ----------------------------------------------------------------------------------------------


def _picture(path: str, root: Path) -> str:
    """An <img> that holds its PNG. Small images are enlarged by the style sheet, large ones shrunk here."""
    try:
        with Image.open(root / path) as image:
            image.thumbnail((MAX_PIXELS, MAX_PIXELS))
            buffer = io.BytesIO()
            image.convert("RGB").save(buffer, "PNG", optimize=True)
    except (OSError, ValueError):  # not there, no image, no path
        return f"<span class='missing'>{escape(Path(path).name)} is missing</span>"
    text = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"<img alt='' src='data:image/png;base64,{text}'>"


def _marks(answers: Sequence[Record]) -> str:
    """The boxes of the reference and the last checkpoint's boxes or click, to lie over the image."""
    answer = extract("glm", str(answers[-1].get("response", ""))).answer or ""
    shapes = _shapes(str(answers[-1].get("reference", "")), "want") + _shapes(answer, "got")
    if "<rect" not in shapes:
        return ""
    return f"<svg viewBox='0 0 1000 1000' preserveAspectRatio='none'>{shapes}</svg>"


def _shapes(text: str, name: str) -> str:
    try:
        found = loads(text)
    except JsonError:
        return ""
    single = isinstance(found, list) and not any(isinstance(entry, list | dict) for entry in found)
    entries = [found] if single or isinstance(found, dict) else found if isinstance(found, list) else []
    shapes = []
    for entry in entries:
        box, point = as_box(entry, FRAME), as_point(entry, FRAME)
        if box is not None:
            x1, y1, x2, y2 = box
            shapes.append(f"<rect class='{name}' x='{x1}' y='{y1}' width='{x2 - x1}' height='{y2 - y1}'/>")
        elif point is not None:
            shapes.append(f"<circle class='{name}' cx='{point[0]}' cy='{point[1]}' r='28'/>")
    return "".join(shapes)
