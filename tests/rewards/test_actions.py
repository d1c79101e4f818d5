"""GUI and web actions, and the constraints of instruction following."""

from typing import Any

import pytest

from glmv.rewards import check_spec, verify
from glmv.rewards.constraints import CHECKS
from glmv.rewards.language import detect

CLICK = {"action_type": "click", "box_2d": [[100, 200, 180, 240]]}
TYPE = {"action_type": "input_text", "text": "Hello world", "box_2d": [[100, 200, 180, 240]]}
GUI: list[tuple[str, dict[str, Any], float, str]] = [
    ('{"action_type":"click","box_2d":[100,200,180,240]}', CLICK, 1, "ok"),
    ('{"action_type":"CLICK","point":[140,220]}', CLICK, 1, "ok"),
    ('{"action_type":"click","point":[100,240]}', CLICK, 1, "ok"),
    ('{"action_type":"click","box_2d":[[105,200,185,240]]}', CLICK, 1, "ok"),  # IoU 75 / 85
    ('```json\n{"action_type":"click","box_2d":[[100,200,180,240]]}\n```', CLICK, 1, "ok"),
    ('[{"action_type":"click","box_2d":[[100,200,180,240]]}]', CLICK, 1, "ok"),
    ('{"thought":"the button","action_type":"click","box_2d":[[100,200,180,240]]}', CLICK, 1, "ok"),
    ('{"action_type":"input_text","text":"hello  world","box_2d":[[100,200,180,240]]}', TYPE, 1, "ok"),
    ('{"action_type":"scroll","direction":"down"}', {"action_type": "scroll", "direction": "down"}, 1, "ok"),
    ('{"action_type":"wait"}', {"action_type": "wait"}, 1, "ok"),
    ('{"action_type":"click","point":[505,505]}', {"action_type": "click", "point": [500, 500]}, 1, "ok"),
    ('{"action_type":"click","point":[540,500]}', {"action_type": "click", "point": [500, 500]}, 0, "wrong"),
    ('{"action_type":"click","point":[99,220]}', CLICK, 0, "wrong"),
    ('{"action_type":"click"}', CLICK, 0, "wrong"),
    ('{"box_2d":[[100,200,180,240]]}', CLICK, 0, "wrong"),
    ('{"action_type":"tap","box_2d":[[100,200,180,240]]}', CLICK, 0, "wrong"),
    ('{"action_type":"click","box_2d":[[0,0,1000,1000]]}', CLICK, 0, "wrong"),
    ('{"action_type":"click","box_2d":[[100,200,180,240],[1,1,2,2]]}', CLICK, 0, "bad_geometry"),
    ('{"action_type":"click","box_2d":[[180,240,100,200]]}', CLICK, 0, "bad_geometry"),
    ('{"action_type":"click","box_2d":[[NaN,200,180,240]]}', CLICK, 0, "bad_geometry"),
    ('{"action_type":"click","box_2d":[[100,200,180,240]],"point":[140,220]}', CLICK, 0, "bad_geometry"),
    ('{"action_type":["click","swipe"],"box_2d":[[100,200,180,240]]}', CLICK, 0, "wrong"),
    ('{"action_type":"click","box_2d":[[100,200,180,240]],"text":"hi"}', CLICK, 0, "wrong"),
    ('{"action_type":"input_text","text":"Hello","box_2d":[[100,200,180,240]]}', TYPE, 0, "wrong"),
    ('{"action_type":"input_text","box_2d":[[100,200,180,240]]}', TYPE, 0, "wrong"),
    ('{"action_type":"wait","box_2d":[[1,1,9,9]]}', {"action_type": "wait"}, 0, "wrong"),
    ('[{"action_type":"click"},{"action_type":"click"}]', CLICK, 0, "malformed"),
    ("{'action_type':'click'}", CLICK, 0, "bad_json"),
    ('{"action_type":"click","action_type":"click","box_2d":[[100,200,180,240]]}', CLICK, 0, "bad_json"),
    ("click(140, 220)", CLICK, 0, "bad_json"),
]


@pytest.mark.parametrize(("answer", "reference", "value", "reason"), GUI)
def test_gui(answer: str, reference: dict[str, Any], value: float, reason: str) -> None:
    verdict = verify("gui", answer, reference)
    assert (verdict.value, verdict.reason) == (value, reason)


STEP = {"ACTION": "TYPE", "MARK": 4, "VALUE": "green tea"}
WEB = [
    ('{"ACTION":"TYPE","MARK":4,"VALUE":"green tea"}', 1),
    ('{"action":"type","mark":"4","value":"Green Tea."}', 1),
    ('{"ACTION":"TYPE","MARK":4.0,"VALUE":"green tea","NOTE":"x"}', 1),
    ('```json\n{"ACTION":"TYPE","MARK":4,"VALUE":"green tea"}\n```', 1),
    ('{"ACTION":"TYPE","MARK":true,"VALUE":"green tea"}', 2 / 3),
    ('{"ACTION":"TYPE","MARK":4,"VALUE":["green tea"]}', 2 / 3),
    ('{"ACTION":"TYPE","MARK":"4 or 5","VALUE":"green tea"}', 2 / 3),
    ('{"ACTION":"CLICK","MARK":"four","VALUE":"green tea"}', 1 / 3),
    ('{"ACTION":null,"MARK":-4,"VALUE":""}', 0),
    ('{"ACTION":"TYPE","action":"CLICK","MARK":4,"VALUE":"green tea"}', 0),
    ('{"ACTION":"TYPE","ACTION":"TYPE","MARK":4,"VALUE":"green tea"}', 0),
    ('do {"ACTION":"TYPE"}', 0),
    ('{"ACTION":"TYPE",}', 0),
    ("[]", 0),
    ("4", 0),
]


@pytest.mark.parametrize(("answer", "value"), WEB)
def test_webaction(answer: str, value: float) -> None:
    assert verify("webaction", answer, STEP).value == pytest.approx(value)


def test_webaction_fields_without_a_value() -> None:
    reference = {"ACTION": "CLICK", "MARK": 7, "VALUE": "None"}
    assert verify("webaction", '{"ACTION":"CLICK","MARK":7}', reference).value == 1.0
    weights = {"ACTION": 1, "MARK": 1, "VALUE": 2}
    assert verify("webaction", '{"ACTION":"CLICK","MARK":7}', reference, {"weights": weights}).value == 1.0
    told = '{"ACTION":"CLICK","MARK":7,"VALUE":"tea"}'
    assert verify("webaction", told, reference, {"weights": weights}).value == 0.5
    for wrong in ({"COLOUR": 1}, {"MARK": 0}, {"MARK": "1"}, [1]):
        with pytest.raises(ValueError, match=r"options\.weights"):
            check_spec("webaction", reference, {"weights": wrong})


RULES: list[tuple[str, str, dict[str, Any], bool]] = [
    ("a.b stove", "keywords:existence", {"keywords": ["STOVE", "a.b"]}, True),
    ("aXb", "keywords:existence", {"keywords": ["a.b"]}, False),
    ("cat cat Cat", "keywords:frequency", {"keyword": "cat", "frequency": 3}, True),
    ("cat", "keywords:frequency", {"keyword": "cat", "frequency": 1, "relation": "less than"}, False),
    ("a cat.", "keywords:forbidden_words", {"forbidden_words": ["Cat"]}, False),
    ("concatenate", "keywords:forbidden_words", {"forbidden_words": ["cat"]}, True),
    ("banana", "keywords:letter_frequency", {"letter": "a", "let_frequency": 3, "let_relation": "at least"},
     True),
    ("banana", "keywords:letter_frequency",
     {"letter": "n", "let_frequency": 2, "let_relation": "less than"}, False),
    ("der Hund ist nicht da", "language:response_language", {"language": "de"}, True),
    ("猫在这里", "language:response_language", {"language": "zh"}, True),
    ("猫はここにいる", "language:response_language", {"language": "ja"}, True),
    ("le chat est dans la maison", "language:response_language", {"language": "en"}, False),
    ("One. Two! Three?", "length_constraints:number_sentences", {"num_sentences": 3}, True),
    ("Dr. Fox ran.", "length_constraints:number_sentences", {"num_sentences": 2}, False),
    ("a\n***\nb", "length_constraints:number_paragraphs", {"num_paragraphs": 2}, True),
    ("a\n***\n", "length_constraints:number_paragraphs", {"num_paragraphs": 2}, False),
    ("one two", "length_constraints:number_words", {"num_words": 3, "relation": "less than"}, True),
    ("one two", "length_constraints:number_words", {"num_words": 2, "relation": "less than"}, False),
    ("a\n\nBc d", "length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "bc"}, True),
    ("a\n\nd", "length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "bc"}, False),
    ("[name], [place]", "detectable_content:number_placeholders", {"num_placeholders": 2}, True),
    ("[] x", "detectable_content:number_placeholders", {"num_placeholders": 1}, False),
    ("x\nP.S. bye", "detectable_content:postscript", {"postscript_marker": "P.S."}, True),
    ("x\nP.S.", "detectable_content:postscript", {"postscript_marker": "P.S."}, False),
    ("- a\n- b", "detectable_format:number_bullet_lists", {"num_bullets": 2}, True),
    ("**a**\n* b", "detectable_format:number_bullet_lists", {"num_bullets": 1}, True),
    ("My answer is no.", "detectable_format:constrained_response", {}, True),
    ("no", "detectable_format:constrained_response", {}, False),
    ("*a* **b**", "detectable_format:number_highlighted_sections", {"num_highlights": 2}, True),
    ("** **", "detectable_format:number_highlighted_sections", {"num_highlights": 1}, False),
    ("SECTION 1\nx\nSection 2\ny", "detectable_format:multiple_sections",
     {"section_spliter": "Section", "num_sections": 2}, True),
    ("Section 1\nx", "detectable_format:multiple_sections",
     {"section_spliter": "Section", "num_sections": 2}, False),
    ("```json\n{}\n```", "detectable_format:json_format", {}, True),
    ("{'a': 1}", "detectable_format:json_format", {}, False),
    ("<<ode>>", "detectable_format:title", {}, True),
    ("<< >>", "detectable_format:title", {}, False),
    ("a******b", "combination:two_responses", {}, True),
    ("a******a", "combination:two_responses", {}, False),
    ("Write it. ok", "combination:repeat_prompt", {"prompt_to_repeat": "write it."}, True),
    ("ok", "combination:repeat_prompt", {"prompt_to_repeat": "write it."}, False),
    ("Is there more?", "startend:end_checker", {"end_phrase": "more?"}, True),
    ("more? yes", "startend:end_checker", {"end_phrase": "more?"}, False),
    ('"hi"', "startend:quotation", {}, True),
    ('"hi', "startend:quotation", {}, False),
    ("A BC d", "change_case:capital_word_frequency",
     {"capital_frequency": 2, "capital_relation": "at least"}, True),
    ("a b", "change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"},
     False),
    ("THE CAT IS HERE", "change_case:english_capital", {}, True),
    ("The cat", "change_case:english_capital", {}, False),
    ("the cat is here", "change_case:english_lowercase", {}, True),
    ("der hund ist da", "change_case:english_lowercase", {}, False),
    ("no commas here", "punctuation:no_comma", {}, True),
    ("一，二", "punctuation:no_comma", {}, False),
    ("anything", "punctuation:no_dash", {}, False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "identity", "kwargs", "met"), RULES)
def test_constraints(text: str, identity: str, kwargs: dict[str, Any], met: bool) -> None:
    constraints = [{"id": identity, "kwargs": {**kwargs, "unused": None}}]
    assert verify("ifollow", text, None, {"constraints": constraints}).value == float(met)


def test_every_constraint_is_tested_both_ways() -> None:
    assert len(CHECKS) == 25
    tested = {(identity, met) for _, identity, _, met in RULES}
    assert tested >= {(identity, True) for identity in CHECKS}


def test_the_share_of_constraints_and_unusable_ones() -> None:
    rules = [{"id": "punctuation:no_comma"}, {"id": "startend:quotation", "kwargs": None}, {"id": "x:y"}]
    verdict = verify("ifollow", "hi", None, {"constraints": rules})
    assert verdict.value == pytest.approx(1 / 3)
    assert verdict.details["failed"] == ["startend:quotation", "x:y"]
    assert verify("ifollow", " ", None, {"constraints": rules}).reason == "empty"
    bad = {"id": "length_constraints:number_words", "kwargs": {"num_words": "5"}}
    for constraints in ([bad], [], None, [{"kwargs": {}}], "x", [{"id": "keywords:frequency", "kwargs": {}}]):
        assert verify("ifollow", "hi", None, {"constraints": constraints}).reason == "unsupported"
        with pytest.raises(ValueError, match="constraint"):
            check_spec("ifollow", None, {"constraints": constraints})


LANGUAGES = [
    ("the cat is here", "en"), ("el gato está en la casa", "es"), ("le chat n'est pas là", "fr"),
    ("Привет мир", "ru"), ("안녕 세계", "ko"), ("שלום", "he"), ("नमस्ते", "hi"), ("สวัสดี", "th"),
    ("مرحبا", "ar"), ("OK", "en"), ("42", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "language"), LANGUAGES)
def test_languages(text: str, language: str | None) -> None:
    assert detect(text) == language
