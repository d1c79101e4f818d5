"""Multiple choice, names and orderings: what counts as saying it, and what is a hedge."""

from typing import Any

import pytest

from glmv.rewards import verify

CHOICES = {
    "choices": {"A": "a green door", "B": "a red kite", "C": "two small boats", "D": "an empty street"}
}
RIGHT_B = [
    "B", "b", "b.", "(B)", "( b )", "[B]", "B)", "B.", "Ｂ", "'B'", "**B**", "$B$", "\\text{B}", "\\boxed{B}",
    "Answer: B", "The answer is B.", "The correct answer is (B)", "Option B", "answer b", "答案：B",
    "答案是B",
    "选B", "选项B", "B、a red kite", "(B) a red kite", "B: a red kite.", "B. A Red Kite", "B a red kite",
    "B - a red kite", "B (a red kite)", "**B. a red kite**", "B. A pretty kite in the sky", "B\n",
]  # fmt: skip
WRONG_B = [
    "A", "C", "E", "BB", "B B", "A B", "B, C", "B/C", "B-C", "B or C", "B and C", "b, c", "(B)(C)", "B or a",
    "both B and C", "B, but maybe C", "B. two small boats", "B two small boats", "B; a green door", "not B",
    "B is wrong", "(B) is wrong", "B isn't", "everything but B", "B. or C", "B?C", "B1", "Bad", "Bb",
    "a red kite", "A red kite", "A. a red kite", "The kite", "None of the above", "All of the above",
    "B (not sure)",
    "B. a red kite C. two small boats", "B. a red kite or two small boats", "ABCD", "A, B, C, D", "⑧",
    "\u0412",
    "I think B", "B不对", "B或C", "",
]  # fmt: skip


@pytest.mark.parametrize("answer", RIGHT_B)
def test_one_letter(answer: str) -> None:
    assert verify("mcq", answer, "B", CHOICES).reason == "ok"
    assert verify("mcq", answer, "C", CHOICES).value == 0.0


@pytest.mark.parametrize("answer", WRONG_B)
def test_no_letter_or_several(answer: str) -> None:
    verdict = verify("mcq", answer, "B", CHOICES)
    assert (verdict.value, verdict.reason) == (0.0, "wrong" if answer else "empty")


def test_choices_as_a_list_or_left_out() -> None:
    assert verify("mcq", "B. a kite", "b", {"choices": ["a door", "a kite"]}).value == 1.0
    assert verify("mcq", "A. a kite", "A", {"choices": ["a door", "a kite"]}).value == 0.0
    assert verify("mcq", "B", "B").value == 1.0
    assert verify("mcq", "B or C", "B").value == 0.0
    assert verify("mcq", "I", "I", {"choices": list("abcdefghij")}).value == 1.0
    assert verify("mcq", "I", "I", {"choices": ["x", "y"]}).reason == "unsupported"


def test_an_option_whose_text_is_part_of_another() -> None:
    options = {"choices": ["red", "dark red", "A or B", "none"]}
    assert verify("mcq", "B. dark red", "B", options).value == 1.0
    assert verify("mcq", "A. dark red", "A", options).value == 0.0
    assert verify("mcq", "C. A or B", "C", options).value == 1.0


NAMES: list[tuple[str, Any, float]] = [
    ("NYC", ["NYC", "New York City"], 1), ("nyc", ["NYC"], 1), ('"NYC"', ["NYC"], 1), ("**NYC**", ["NYC"], 1),
    ("New York City!", ["New York City"], 1), ("Zürich", ["Zurich"], 1), ("cafe", ["café"], 1),
    ("ＮＹＣ", ["NYC"], 1), ("ﬁsh", ["fish"], 1), ("Straße", ["STRASSE"], 1), ("an apple", ["apple"], 1),
    ("ice-cream", ["ice cream"], 1), ("U.S.A.", ["USA"], 1), ("R&B", ["R and B"], 1), ("1200.0", ["1200"], 1),
    ("1 200", ["1200"], 1), ("1200", 1200, 1), ("red", "red", 1), ("Paris, France", ["Paris France"], 1),
    ("the", ["The"], 1), ("C++", ["C++"], 1), ("C#", ["C"], 0), ("C", ["C++"], 0), ("-5", ["5"], 0),
    ("+5", ["-5"], 0), ("x²", ["x2"], 0), ("3½", ["31/2"], 0), ("①", ["1"], 0), ("1,20", ["120"], 0),
    ("007", ["7"], 0), ("12 cm", ["12"], 0), ("が", ["か"], 0), ("й", ["и"], 0), ("NYC / Boston", ["NYC"], 0),
    ("NYC or Boston", ["NYC"], 0), ("NYC, Boston", ["NYC"], 0), ("not NYC", ["NYC"], 0), ("no", ["NYC"], 0),
    ("N Y C", ["NYC"], 0), ("NYC NYC", ["NYC"], 0), (".", ["."], 0), ("\u0441at", ["cat"], 0),
    ("25%", ["25"], 0), ("1.2", ["12"], 0),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reference", "value"), NAMES)
def test_names(answer: str, reference: Any, value: float) -> None:
    assert verify("list", answer, reference).value == value


ORDERS = [
    ("3,1,4,2", 1), ("3 1 4 2", 1), ("3-1-4-2", 1), ("3 - 1 - 4 - 2", 1), ("3->1->4->2", 1),
    ("3 => 1 => 4 => 2", 1),
    ("(3,1,4,2)", 1), ('["3","1","4","2"]', 1), ("3, 1, 4, and 2", 1), ("3 then 1 then 4 then 2", 1),
    ("3; 1; 4; 2", 1), ("３，１，４，２", 1), ("3、1、4、2", 1), ("3,1,4,2.", 1), ("$3,1,4,2$", 1),
    ("3\n1\n4\n2", 1),
    ("3\\rightarrow 1\\to 4 \\to 2", 1), ("3➜1➜4➜2", 1), ("+3,1,4,2", 1), ("03,1,4,2", 1),
    ("1,2,3,4", 0.2), ("2,4,1,3", 0.2), ("3,1,2,4", 0.2), ("[4 > 3 > 2 > 1]", 0.2),
    ("3142", 0), ("3,1,4", 0), ("3,1,4,2,5", 0), ("3,1,4,4", 0), ("3,3,1,4,2", 0), ("3.0,1,4,2", 0),
    ("3<1<4<2", 0),
    ("-3,-1,-4,-2", 0), ("3,1,4,2\n1,3,4,2", 0), ("3,1,4,2 or 1,2,3,4", 0), ("3 or 1,4,2", 0),
    ("not 3,1,4,2", 0),
    ("1..4", 0), ("④", 0),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value"), ORDERS)
def test_orders(answer: str, value: float) -> None:
    verdict = verify("ordering", answer, [3, 1, 4, 2])
    assert verdict.value == value
    assert verdict.reason == {1: "ok", 0.2: "partial", 0: "wrong"}[value]


def test_orders_of_texts() -> None:
    assert verify("ordering", "CADB", list("CADB")).value == 1.0
    assert verify("ordering", "c, a, d, b", list("CADB")).value == 1.0
    assert verify("ordering", "BADC", list("CADB")).value == 0.2
    assert verify("ordering", "C-A-D-B", list("CADB")).value == 1.0
    assert verify("ordering", "red > blue then dark green", ["red", "blue", "dark green"]).value == 1.0
    assert verify("ordering", "x-ray, CT", ["x-ray", "CT"]).value == 1.0
    assert verify("ordering", "1,2", [2, 1], {"discount": 0}).reason == "wrong"
    assert verify("ordering", "1,2", [2, 1], {"discount": 0.5}).value == 0.5
    assert verify("ordering", "1", []).reason == "unsupported"
