"""The tiny tokenizer: natural text, round trips, and the same results in transformers."""

import json

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from glmv.data import template
from glmv.data.tokenizer import DECIMAL_POINT, TINY_WORDS, UNKNOWN, Tokenizer, tiny_tokenizer

TINY = tiny_tokenizer()
ANSWER = "<think>at 3, 5 = 7</think><answer><|begin_of_box|>[[12, 340, 56, 78]]<|end_of_box|></answer>"
CHAT = "[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>read<|assistant|>\n"


def test_vocabulary():
    assert len(set(TINY_WORDS)) == len(TINY_WORDS)
    assert TINY.vocab_size == len(template.CONTROL_TOKENS) + len(template.MARKER_TOKENS) + 1 + len(TINY_WORDS)
    for token in (*template.CONTROL_TOKENS, *template.MARKER_TOKENS):
        assert TINY.encode(token) == [TINY.id(token)]
        assert TINY.id(token) in TINY.special_ids
    assert TINY.id("red") not in TINY.special_ids


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        CHAT,
        "7 + 8 = 15",
        "7 - 8 = -1",
        "(1/2), [-4, 5]; 12: 30. 7?",
        "1.5 seconds. 5 at 1.",
        "count red shapes\nread",
        "[[1, 2, 3, 4], [5, 6, 7, 8]]",
    ],
)
def test_text_comes_back_as_people_write_it(text):
    assert TINY.decode(TINY.encode(text)) == text


def test_digits_are_single_tokens():
    assert TINY.encode("137") == [TINY.id("1"), TINY.id("3"), TINY.id("7")] == TINY.encode("1 3  7")


def test_decimal_point_and_full_stop_differ():
    assert TINY.encode("1.5") == [TINY.id(t) for t in ("1", DECIMAL_POINT, "5")]
    assert TINY.encode("1. 5") == [TINY.id(t) for t in ("1", ".", "5")]


words = st.sampled_from([w for w in TINY_WORDS if w != DECIMAL_POINT])
tokens = words | st.sampled_from([*template.CONTROL_TOKENS, *template.MARKER_TOKENS]) | st.just("2.5")


@given(st.lists(tokens, max_size=40))
def test_ids_survive_a_round_trip(parts):
    ids = [i for part in parts for i in TINY.encode(part)]
    assert TINY.encode(TINY.decode(ids)) == ids


@given(st.lists(st.integers(0, TINY.vocab_size - 1), max_size=40))
def test_text_only_grows_when_tokens_are_added(ids):
    """vLLM sends out the difference between the text so far and the text with one token more."""
    for k in range(len(ids)):
        assert TINY.decode(ids).startswith(TINY.decode(ids[:k]))


@pytest.mark.parametrize(
    ("text", "word"), [("read zebra", "zebra"), ("Read", "Read"), ("7 ÷ 2", "÷"), ("red-ish", "ish")]
)
def test_unknown_word_is_named(text, word):
    with pytest.raises(ValueError, match=f"does not know '{word}' in '{text}'"):
        TINY.encode(text)


def test_unknown_token_name():
    with pytest.raises(ValueError, match=r"has no token '<\|box\|>'"):
        TINY.id("<|box|>")


def test_skip_special_keeps_the_markers():
    ids = TINY.encode(f"{ANSWER}<|user|>")
    assert TINY.decode(ids, skip_special=True) == ANSWER


def test_save_and_load(tmp_path):
    TINY.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.encode(CHAT + ANSWER) == TINY.encode(CHAT + ANSWER)
    assert again.decode(again.encode(ANSWER)) == ANSWER
    assert (again.vocab_size, again.special_ids, again.config) == (
        TINY.vocab_size,
        TINY.special_ids,
        TINY.config,
    )
    with pytest.raises(ValueError, match="does not know"):
        again.encode("zebra")


def test_load_without_files(tmp_path):
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_any_tokenizer_json_loads(tmp_path):
    """A byte-level BPE without tokenizer_config.json, with the chat template in a file of its own."""
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(["how many circles"], trainer)
    backend.add_special_tokens(["<|user|>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    tokenizer = Tokenizer.load(tmp_path)
    text = "<|user|>\nWie viele Größen? 12"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.config == {"chat_template": "{{ messages }}"}
    assert tokenizer.special_ids == (tokenizer.id("<|user|>"),)


@pytest.fixture(scope="module")
def hf(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    TINY.save(path)
    return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)


def test_transformers_gives_the_same_ids_and_text(hf):
    ids = TINY.encode(CHAT + ANSWER + "<|user|>")
    assert hf(CHAT + ANSWER + "<|user|>", add_special_tokens=False)["input_ids"] == ids
    assert hf.decode(ids) == TINY.decode(ids)
    assert hf.decode(ids, skip_special_tokens=True) == TINY.decode(ids, skip_special=True)
    assert (hf.pad_token, hf.eos_token, hf.unk_token) == ("<|endoftext|>", "<|user|>", UNKNOWN)
    assert len(hf) == TINY.vocab_size


def test_transformers_renders_the_same_chat(hf):
    chat = [
        {"role": "system", "content": "count"},
        {"role": "user", "content": "<image>read<image>"},
        {"role": "assistant", "content": "7"},
        {"role": "user", "content": "sum"},
    ]
    image, text = {"type": "image"}, {"type": "text", "text": "read"}
    parts = [chat[0], {"role": "user", "content": [image, text, image]}, *chat[2:]]
    assert (
        hf.apply_chat_template(parts, tokenize=False, add_generation_prompt=True)
        == template.render(chat, 2, []).text
        == "[gMASK]<sop><|system|>\ncount<|user|>\n"
        "<|begin_of_image|><|image|><|end_of_image|>read<|begin_of_image|><|image|><|end_of_image|>"
        "<|assistant|>\n7<|user|>\nsum<|assistant|>\n"
    )


def test_config_is_plain_json(tmp_path):
    TINY.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["chat_template"] == template.CHAT_TEMPLATE
