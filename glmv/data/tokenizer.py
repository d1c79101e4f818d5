"""Text to token ids and back: any Hugging Face `tokenizer.json`, and a small one built in code.

The tiny tokenizer is word level with GLM's own special-token strings. Its ids are its own: the model config
carries them. White space between words is not a token, so two texts that differ in spaces alone have the same
ids; the decoder, which is stored in tokenizer.json, puts natural spaces back: `[[12, 34, 56, 78]]`, `7 + 8
= 15`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from glmv.data.template import CHAT_TEMPLATE, CONTROL_TOKENS, MARKER_TOKENS, PAD_TOKEN

UNKNOWN = "<unk>"
# A point inside a number is another token than a full stop: "1.5" and "1. 5" both survive a round trip.
DECIMAL_POINT = "·"
_WORDS = """
red green blue yellow purple black circle square triangle cross shape shapes digit digits chart photo flower
temple button bar box cell frame second seconds value color sum count read find click tap
what how many when is does there appear larger largest at near in of or and to the
"""
# Every word that the tiny tokenizer knows beside the special tokens; their order gives the ids.
TINY_WORDS: tuple[str, ...] = ("\n", *"0123456789", *"[],+=.():-/;?", DECIMAL_POINT, *_WORDS.split())


class Tokenizer:
    """Text <-> ids around a `tokenizers.Tokenizer`; `config` is the content of tokenizer_config.json.

    Special-token strings in a text become special ids. Safe to use from several threads.
    """

    def __init__(self, backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
        self._backend = backend
        self.config = dict(config)
        self._ids: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        self._unknown = self._ids.get(str(getattr(backend.model, "unk_token", None)))
        self.vocab_size = max(self._ids.values(), default=-1) + 1
        added = backend.get_added_tokens_decoder()
        self.special_ids: tuple[int, ...] = tuple(sorted(added))  # tokens that ordinary text never turns into

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; nothing is added. Raises ValueError for a word that the vocabulary lacks."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._unknown is not None and self._unknown in ids:
            start, end = encoding.offsets[ids.index(self._unknown)]
            raise ValueError(f"the tokenizer does not know {text[start:end]!r} in {_shorten(text, start)!r}")
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of `ids`, with the special tokens unless `skip_special`."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def id(self, token: str) -> int:
        """The id of a token. Raises ValueError if there is no such token."""
        if token not in self._ids:
            raise ValueError(f"the tokenizer has no token {token!r}")
        return self._ids[token]

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Read tokenizer.json and, where they exist, tokenizer_config.json and chat_template.jinja."""
        path = Path(directory)
        if not (path / "tokenizer.json").is_file():
            raise ValueError(f"{path} has no tokenizer.json")
        config_file, template = path / "tokenizer_config.json", path / "chat_template.jinja"
        config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
        if template.is_file():
            config["chat_template"] = template.read_text(encoding="utf-8")
        return cls(tokenizers.Tokenizer.from_file(str(path / "tokenizer.json")), config)

    def save(self, directory: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, which transformers and vLLM read."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        self._backend.save(str(path / "tokenizer.json"))
        text = json.dumps(self.config, indent=2, ensure_ascii=False)
        (path / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def tiny_tokenizer() -> Tokenizer:
    """The word-level tokenizer of the tiny model: GLM's special tokens and TINY_WORDS.

    Digits and punctuation are tokens of their own. Any other word raises ValueError in `encode`.
    """
    control = (PAD_TOKEN, UNKNOWN, *(t for t in CONTROL_TOKENS if t != PAD_TOKEN))
    vocabulary = {word: i for i, word in enumerate((*control, *MARKER_TOKENS, *TINY_WORDS))}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    # Markers are single tokens but no "special" ones: skip_special_tokens=True, vLLM's default, keeps them.
    backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in MARKER_TOKENS])
    backend.normalizer = normalizers.Replace(Regex(r"(?<=\d)\.(?=\d)"), DECIMAL_POINT)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed"),
            pre_tokenizers.Split(Regex(r"\n|\d|[^\w\s]"), "isolated"),
        ]
    )
    backend.decoder = _tiny_decoder()
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD_TOKEN,
        "eos_token": "<|user|>",
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    return Tokenizer(backend, config)


def _tiny_decoder() -> decoders.Decoder:
    """One space between all tokens, then the spaces that nobody writes are taken out.

    Each rule looks at the two tokens beside a space and at what stands before it, never further ahead: the
    text of a prefix of the ids is a prefix of the text, which decoders that stream token by token rely on.
    """
    rules = [
        (r" (?=<)|(?<=>) |(?<=\[gMASK\]) ", ""),  # around special tokens
        (r" ?\n ?", "\n"),
        (rf"(?<=\d) {DECIMAL_POINT} ?", "."),  # 1 · 5 -> 1.5
        (r"(?<=\d) (?=\d)", ""),  # digits of one number
        (r" (?=[\],.):;?])|(?<=[\[(]) ", ""),
        (r"(?<=\d) /", "/"),
        (r"(?<=\d/) ", ""),
        (r"(?<=-)(?<![\d\])] -) (?=\d)", ""),
    ]
    replace = [decoders.Replace(Regex(pattern), text) for pattern, text in rules]
    return decoders.Sequence([decoders.WordPiece(prefix="\0", cleanup=False), decoders.Fuse(), *replace])


def _shorten(text: str, around: int, width: int = 40) -> str:
    return text[max(0, around - width) : around + width]
