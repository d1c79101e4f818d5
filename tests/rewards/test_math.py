"""The mathematics verifier: expected values follow from mathematics, and hedges are wrong."""

from fractions import Fraction

import pytest

from glmv.rewards import verify
from glmv.rewards.chinese import read

# One pair a line: answer ~ reference.
SAME = r"""
# numerals
57.0 ~ 57
.5 ~ 0.5
+9 ~ 9
29. ~ 29
--29 ~ 29
012 ~ 12
# groups
1,234,567 ~ 1234567
1{,}234 ~ 1234
1,\!234 ~ 1234
1 000 ~ 1000
1,000.5 ~ 1000.5
# scientific
2.50e3 ~ 2500
1E+3 ~ 1000
2.9 \times 10^{1} ~ 29
10⁻⁷ ~ 0.0000001
# fractions
\frac12 ~ 0.5
1⁄2 ~ 0.5
½ ~ 0.5
5/10 ~ 1/2
\frac{1}{2}\frac{1}{3} ~ 1/6
# mixed
3½ ~ 3.5
7/3 ~ 2\frac13
2 1/3 ~ 7/3
-2 1/3 ~ -7/3
# repeating
0.\overline{3} ~ 1/3
0.1\overline{6} ~ 1/6
0.1\dot{6} ~ 1/6
0.\dot{1}4285\dot{7} ~ 1/7
# percent
25% ~ 0.25
25\% ~ 25%
25 percent ~ 25\%
29\% ~ 0.29
# tolerance
0.333333 ~ 1/3
3.14159 ~ \pi
3.1416 ~ \pi
e ~ 2.718281828
# wrappers
**29** ~ 29
$\frac{1}{2}$ ~ 0.5
$$5$$ ~ 5
\(5\) ~ 5
`29` ~ 29
\textbf{29} ~ 29
\boxed{29} ~ 29
\;29 ~ 29
29。 ~ 29
\dfrac{1}{2}. ~ 0.5
# units
12 cm ~ 12
12 ~ 12\text{ cm}
12 meters ~ 12\text{ m}
$5 ~ 5
5 km/h ~ 5
12\mathrm{cm}^2 ~ 12\text{ cm}^2
18.90 dollars ~ \$18.9
# angles
45° ~ 45^{\circ}
45 ~ 45°
90^{\circ} ~ 90 degrees
\frac{\pi}{6} rad ~ 30°
\frac{\pi}{4} ~ 45^\circ
# arithmetic
2^{3^2} ~ 512
-2^2 ~ -4
(-2)^2 ~ 4
2**3 ~ 8
2×3 ~ 6
6÷2 ~ 3
((29)) ~ 29
\left|-3\right| ~ 3
\lceil 2.1\rceil ~ 3
\lfloor -0.5\rfloor ~ -1
\binom{5}{2} ~ 10
1000! ~ 1000!
0.1+0.2 ~ 0.3
6\pi/2 ~ 3\pi
# functions
√12 ~ 2\sqrt3
\sqrt[3]{8} ~ 2
\sin 30^\circ ~ 0.5
\cos 2\pi ~ 1
e^{\ln 5} ~ 5
\log_{10} 1000 ~ 3
\lg 1000 ~ 3
\arcsin 1 ~ \pi/2
\sin^{-1}(1) ~ \pi/2
\sqrt2\sqrt2-2 ~ 0
\sin\pi ~ 0
\ln 1 ~ 0
# collections
(1,2] ~ (1,2]
{1,2} ~ \{2,1\}
\emptyset ~ \{\}
2, 5 ~ 5, 2
\{1,1,2\} ~ \{2,1\}
x=2, x=5 ~ 5, 2
5\pm2 ~ 7,3
\pm 3 ~ 3,-3
(-\infty,2)\cup(5,\infty) ~ (5,\infty)\cup(-\infty,2)
\begin{bmatrix}1&2\\ 3&4\end{bmatrix} ~ \begin{pmatrix}1&2\\3&4\end{pmatrix}
# bases
1011_2 ~ 11
1011_{2} ~ 1011_2
(1011)_2 ~ 11
1F_{16} ~ 31
FF_{16} ~ 255
11_{10} ~ 1011_2
# scripts
１／２ ~ 0.5
－３ ~ -3
２９元 ~ 29
（1，2） ~ (1,2)
1、2 ~ 2,1
२९ ~ 29
# chinese
二十九 ~ 29
百分之二十五 ~ 25%
三分之二 ~ 2/3
1.5亿 ~ 150000000
负三点五 ~ -3.5
# invisible
# words
\text{Even} ~ even
Yes ~ yes
\text{No solution} ~ no solution
3 x ~ 3x
\infty ~ \infty
10:30 ~ 10:30
"""
DIFFERENT = r"""
# nearby
58 ~ 57
0.33 ~ 1/3
22/7 ~ \pi
10^{400} ~ 10^{399}
1e-400 ~ 0
# characters
3½ ~ 31/2
10⁻⁷ ~ 3
2³ ~ 23
²⁹ ~ 29
②⑨ ~ 29
Ⅸ ~ 9
# percent
25% ~ 25
25 ~ 25%
0.25 ~ 25
# separators
1,23,456 ~ 123456
12,34 ~ 1234
3,14 ~ 3.14
1_000_0 ~ 10000
30 29 ~ 3029
# units
12\text{ cm} ~ 12\text{ m}
12\text{ cm}^2 ~ 12\text{ cm}
30 rad ~ 30°
1A_{10} ~ 20
12_2 ~ 5
$5 ~ €5
12 m ~ 12
12 thousand ~ 12
12\text{ thousand} ~ 12
12 dozen ~ 12
12\text{ is wrong} ~ 12
# mixed
3 2/5 ~ 3
5 9/4 ~ 9
2\frac{5}{3} ~ 11/3
3 2/5 ~ 2/5
# hedges
29 or 30 ~ 29
29 and 30 ~ 29
29 or 29 ~ 29
29, 30 ~ 29
29; 30 ~ 29
29/30/31 ~ 29
29 (or maybe 30) ~ 29
\{29\} ~ 29
5\pm2 ~ 7
3\pm0 ~ 3
$5$ and $6$ ~ 5
between 29 and 30 ~ 29
approximately 29 ~ 29
not 29 ~ 29
1,2,...,29 ~ 29
# relations
29=29 ~ 29
x = 29 = y ~ 29
y=29 ~ x=29
\neq 29 ~ 29
x>29 ~ 29
# fragments
29- ~ 29
29+ ~ 29
29, ~ 29
,29 ~ 29
(29 ~ 29
29) ~ 29
29 # x ~ 29
# ambiguous
1/2/3 ~ 1/6
\log 1000 ~ 3
2^3^2 ~ 512
5!! ~ 15
0^0 ~ 1
# brackets
(1,2) ~ [1,2]
(2,3) ~ (3,2)
[0,1) ~ (0,1]
x = 2, y = 3 ~ 2,3
# not finite
nan ~ nan
inf ~ inf
infinity ~ \infty
-\infty ~ \infty
1e400 ~ \infty
# rounding
10^{30}+\sqrt2-10^{30} ~ 0
\sin(10^{300}) ~ 0.5
# letters
A ~ a
x ~ y
two ~ 2
IX ~ 9
0x1D ~ 29
3:4 ~ 3/4
一百五 ~ 105
"""
SAME_ODD = [("29\n", "29"), ("\u200b29", "29"), ("2\u200b9", "29"), ("\u200e29", "29")]
DIFFERENT_ODD = [("\u202e92\u202c", "29"), ("29\n30", "29"), ("30\n29", "29")]


def pairs(table: str) -> list[tuple[str, str]]:
    lines = [line.split(" ~ ") for line in table.strip().splitlines() if not line.startswith("# ")]
    return [(answer, reference) for answer, reference in lines]


@pytest.mark.parametrize(("answer", "reference"), pairs(SAME) + SAME_ODD)
def test_same(answer: str, reference: str) -> None:
    verdict = verify("math", answer, reference)
    assert (verdict.value, verdict.reason) == (1.0, "ok")
    assert verify("math", reference, answer).value == 1.0


@pytest.mark.parametrize(("answer", "reference"), pairs(DIFFERENT) + DIFFERENT_ODD)
def test_different(answer: str, reference: str) -> None:
    verdict = verify("math", answer, reference)
    assert verdict.value == 0.0
    assert verdict.reason in ("wrong", "unsupported")


def test_tolerance_options() -> None:
    assert verify("math", "100000008", "100000007").value == 1.0
    assert verify("math", "100000008", "100000007", {"exact_int": True}).value == 0.0
    assert verify("math", "1.00001", "1").value == 1.0  # on the bound, in decimal
    assert verify("math", "1.000011", "1").value == 0.0
    assert verify("math", "1.4", "1", {"rel_tol": 0.5}).value == 1.0
    assert verify("math", "0.4", "0", {"rel_tol": 0.5}).value == 0.0
    assert verify("math", "0.4", "0", {"abs_tol": 0.5}).value == 1.0


def test_literal_asks_for_a_numeral() -> None:
    assert verify("math", "7 + 8", "15").value == 1.0
    assert verify("math", "7 + 8", "15", {"literal": True}).value == 0.0
    assert verify("math", "15.0", "15", {"literal": True}).value == 1.0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("7" * 513, "too_long"),
        ("7" * 201, "too_long"),
        ("1e401", "too_long"),
        ("9^{9^{9}}", "too_long"),
        ("(" * 33 + "7" + ")" * 33, "too_deep"),
        ("\\sqrt{" * 40 + "7" + "}" * 40, "too_deep"),
        ("2^{" * 40 + "7" + "}" * 40, "too_deep"),
        ("1001!", "unsupported"),
        ("x^2 = y^3 = 7", "unsupported"),
        ("\\frac{1}{0}", "unsupported"),
    ],
)
def test_limits(answer: str, reason: str) -> None:
    verdict = verify("math", answer, "7")
    assert (verdict.value, verdict.reason) == (0.0, reason)


def test_a_text_beyond_the_limits_can_still_be_the_same_text() -> None:
    assert verify("math", "7" * 6000, "7" * 6000).value == 1.0
    assert verify("math", "7" * 5999 + "8", "7" * 6000).reason == "too_long"


def test_prose_goes_to_the_judge() -> None:
    proof = "The sum of two even numbers is even, since both are twice an integer."
    assert verify("math", proof, proof).reason == "ok"
    assert verify("math", "both are twice", proof).reason == "judge_unavailable"
    assert verify("math", "both are twice", proof, judge=lambda prompt: "1").reason == "judge_ok"
    assert verify("math", "\\ln x^2", "2\\ln x", judge=lambda prompt: "1").reason == "unsupported"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("二〇二四", 2024),
        ("三百零五", 305),
        ("一万零三", 10003),
        ("三亿五千万", 350_000_000),
        ("十五", 15),
        ("零点五", Fraction(1, 2)),
        ("一又二分之一", Fraction(3, 2)),
        ("负二", -2),
        ("一百五", None),
        ("百", None),
        ("十十", None),
        ("一百零零五", None),
        ("分之", None),
        ("负负三", None),
        ("一点", None),
    ],
)
def test_chinese_numerals(text: str, value: Fraction | int | None) -> None:
    assert read(text) == value
