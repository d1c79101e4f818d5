"""The chat format of GLM-4.1V: role markers, image and video markers, timestamps.

    [gMASK]<sop><|user|>
    <|begin_of_image|><|image|><|end_of_image|>How many?<|assistant|>
    <think>...</think><answer>...</answer><|user|>

A video is a run of frames between <|begin_of_video|> and <|end_of_video|>, each frame like an image and
followed by its second as text. The processor repeats <|image|> once per merged patch; no <|video|> is left
in the ids.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glmv.data.types import IMAGE, VIDEO

PAD_TOKEN = "<|endoftext|>"
END_TOKEN = "<|user|>"  # the model ends its turn by opening the next one
STOP_TOKENS = (PAD_TOKEN, END_TOKEN, "<|observation|>")
IMAGE_TOKEN = "<|image|>"
BEGIN_IMAGE, END_IMAGE = "<|begin_of_image|>", "<|end_of_image|>"
BEGIN_VIDEO, END_VIDEO = "<|begin_of_video|>", "<|end_of_video|>"
# Tokens that only the template may write: found in a prompt's or a response's text, they are an error.
CONTROL_TOKENS = (
    *(PAD_TOKEN, "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *(BEGIN_IMAGE, END_IMAGE, BEGIN_VIDEO, END_VIDEO, IMAGE_TOKEN, "<|video|>"),
)
# Tokens that the model writes in an answer.
MARKER_TOKENS = ("<think>", "</think>", "<answer>", "</answer>", "<|begin_of_box|>", "<|end_of_box|>")
ROLES = ("system", "user", "assistant")

# The same format as a Jinja template, for transformers and vLLM; content is a string or a list of parts.
CHAT_TEMPLATE = """\
[gMASK]<sop>
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|begin_of_image|><|image|><|end_of_image|>
{%- elif part.type == 'video' -%}<|begin_of_video|><|video|><|end_of_video|>
{%- elif part.type == 'text' -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}
"""

_PLACEHOLDER = re.compile(r"<image>|<video>")
_CONTROL = re.compile("|".join(re.escape(token) for token in CONTROL_TOKENS))


@dataclass(frozen=True)
class Rendered:
    """The text of a chat, up to where the model answers."""

    text: str  # one <|image|> for each image and for each frame of a video
    media: tuple[tuple[int, int], ...]  # (IMAGE or VIDEO, which one of its kind), in order of appearance


def render(
    messages: Sequence[Mapping[str, str]], num_images: int, video_seconds: Sequence[Sequence[float]]
) -> Rendered:
    """Write a chat in GLM-4.1V's format.

    `messages` hold `<image>` and `<video>` where the next image or video stands; `video_seconds` has the
    time of each frame pair of each video. Raises ValueError if the counts differ, or if a content holds a
    control token.
    """
    media: list[tuple[int, int]] = []
    counts = {IMAGE: 0, VIDEO: 0}

    def place(match: re.Match[str]) -> str:
        kind = IMAGE if match.group() == "<image>" else VIDEO
        index = counts[kind]
        counts[kind] += 1
        media.append((kind, index))
        if kind == IMAGE:
            return BEGIN_IMAGE + IMAGE_TOKEN + END_IMAGE
        return _video(video_seconds[index]) if index < len(video_seconds) else ""

    parts = ["[gMASK]<sop>"]
    for message in messages:
        found = _CONTROL.search(message["content"])
        if found:
            raise ValueError(f"the {message['role']} message holds the control token {found.group()!r}")
        parts.append(f"<|{message['role']}|>\n" + _PLACEHOLDER.sub(place, message["content"]))
    for kind, name, given in ((IMAGE, "image", num_images), (VIDEO, "video", len(video_seconds))):
        if counts[kind] != given:
            raise ValueError(f"the prompt has {counts[kind]} <{name}> but {given} {name}s are given")
    parts.append("<|assistant|>\n")
    return Rendered("".join(parts), tuple(media))


def count_placeholders(messages: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    """How many `<image>` and how many `<video>` the messages hold."""
    text = "\n".join(message["content"] for message in messages)
    return text.count("<image>"), text.count("<video>")


def find_control_token(text: str) -> str | None:
    """The first control token in `text`, or None."""
    found = _CONTROL.search(text)
    return found.group() if found else None


def _video(seconds: Sequence[float]) -> str:
    frames = (f"{BEGIN_IMAGE}{IMAGE_TOKEN}{END_IMAGE}{int(second)}" for second in seconds)
    return BEGIN_VIDEO + "".join(frames) + END_VIDEO
