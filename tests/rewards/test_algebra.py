"""Expressions with symbols, complex numbers and relations: the truth is in the algebra books."""

from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glmv.rewards import math_ball as balls
from glmv.rewards import verify
from tests.numeric import REWARDS_BALL_REL

# One pair a line: answer ~ reference. Both directions must agree.
SAME = r"""
# polynomials
(x+1)(x-1) ~ x^2-1
x^3-3x^2+3x-1 ~ (x-1)^3
2(x+y) ~ 2x+2y
-(a-b) ~ b-a
(a+b)^2-(a-b)^2 ~ 4ab
x(x+1)(x+2) ~ x^3+3x^2+2x
abc ~ cba
2xy ~ 2yx
x^2y ~ yx^2
x \cdot x ~ x^2
0.5x ~ \frac{x}{2}
\frac{1}{2}bh ~ \frac{bh}{2}
# fractions
\frac{x^2-1}{x-1} ~ x+1
\frac{1}{x}+\frac{1}{y} ~ \frac{x+y}{xy}
\frac{a}{b} ~ ab^{-1}
x^{-2} ~ \frac{1}{x^2}
\frac{2x+4}{2} ~ x+2
# powers and roots
\sqrt{x^2+2x+1} ~ |x+1|
x^{1/2} ~ \sqrt{x}
x^{1/3} ~ \sqrt[3]{x}
x^{\frac{2}{3}} ~ \sqrt[3]{x^2}
\sqrt{x}\sqrt{x} ~ \sqrt{x}^2
\frac{1}{\sqrt{2}}x ~ \frac{\sqrt{2}}{2}x
2^{n+1} ~ 2\cdot 2^n
4^n ~ 2^{2n}
e^{x+y} ~ e^xe^y
e^{-x} ~ \frac{1}{e^x}
\exp(x) ~ e^x
# logarithms
\ln(e^x) ~ x
\log_2 x ~ \frac{\ln x}{\ln 2}
\log x^2 - \log x ~ \log x
\ln x+\ln y ~ \ln y+\ln x
# trigonometry
2\sin x\cos x ~ \sin 2x
\cos 2x ~ 1-2\sin^2 x
\cos^2\theta-\sin^2\theta ~ \cos 2\theta
\tan x ~ \frac{\sin x}{\cos x}
\sin(x+\pi) ~ -\sin x
\cos(-x) ~ \cos x
\csc x ~ \frac{1}{\sin x}
\sin(a+b) ~ \sin a\cos b+\cos a\sin b
sin^2(x)+cos^2(x) ~ 1
cosx ~ \cos(x)
# integers
n! ~ n(n-1)!
\binom{n}{2} ~ \frac{n(n-1)}{2}
(-1)^{2n} ~ 1
(-1)^{n+1} ~ -(-1)^n
# complex
4i+3 ~ 3+4i
(1+i)^2 ~ 2i
i^2 ~ -1
\frac{1}{i} ~ -i
e^{i\pi} ~ -1
e^{i\pi/3} ~ \frac{1}{2}+\frac{\sqrt{3}}{2}i
|3+4i| ~ 5
\sqrt{-3} + i ~ i + i\sqrt{3}
(x+i)(x-i) ~ x^2+1
2\pm 3i ~ 2+3i, 2-3i
# names and letters
x_1+x_2 ~ x_2+x_1
a_n ~ a_{n}
\alpha\beta ~ \beta\alpha
f(x)=x^2+1 ~ x^2+1
y=2x+1 ~ 1+2x
AB=5 ~ 5
(x,y)=(3,4) ~ (3,4)
(x,y)=(3,4) ~ y=4, x=3
θ ~ \theta
# equations
x+y=5 ~ y+x=5
2x+4y=6 ~ x+2y=3
y=2x+1 ~ 2x-y+1=0
y=x ~ x=y
\frac{x}{2}=1 ~ x=2
x^2+y^2=25 ~ 25=x^2+y^2
x=1, y=2 ~ y=2, x=1
# inequalities
x>3 ~ 3<x
x\ge 3 ~ 3\le x
2x<6 ~ x<3
-x<-3 ~ x>3
x≤3 ~ x\leq 3
x\neq 3 ~ 3\ne x
1<x<3 ~ 3>x>1
1\le x<3 ~ 3>x\ge1
x<1 or x>3 ~ x>3 or x<1
# intervals
x>3 ~ (3,\infty)
x\le 2 ~ (-\infty,2]
1\le x<3 ~ [1,3)
x\in[1,3) ~ [1,3)
1<x<3 ~ (1,3)
# collections
(x+1, 2x) ~ (1+x, x+x)
\{x, 2x\} ~ \{x+x, x\}
\begin{pmatrix}x&2x\end{pmatrix} ~ \begin{pmatrix}x&x+x\end{pmatrix}
x\pm 1 ~ x-1, x+1
"""
DIFFERENT = r"""
# polynomials
x^2+2x ~ (x+1)^2
x+1 ~ x+1.000001
x ~ 2x-1
x^2 ~ |x|^3
3x ~ 3
X ~ x
ab ~ a+b
ab^2 ~ (ab)^2
2x ~ x^2
x-y ~ y-x
# powers and roots
\sqrt{x^2} ~ x
|x| ~ x
x^{a+b} ~ x^a+x^b
2^{n} ~ n^2
(x+y)^2 ~ x^2+y^2
\sqrt{x+y} ~ \sqrt{x}+\sqrt{y}
# trigonometry
\sin 2x ~ 2\sin x
\sin^2 x ~ \sin x^2
\sin x ~ \sin(x+0.001)
\cos x ~ \sin x
\sin x ~ x
# logarithms
\ln(x+y) ~ \ln x+\ln y
\log_2 x ~ \log_3 x
\lfloor x\rfloor ~ x
# integers
n! ~ n
\binom{n}{2} ~ n^2
# complex
3+4i ~ 3-4i
i ~ -i
i ~ 1
e^{i\pi} ~ 1
i^3 ~ i
|3+4i| ~ 7
# equations
x+y=5 ~ x-y=5
x=2 ~ x=3
x^2=4 ~ x=2
y=2x+1 ~ y=2x
x=1, y=2 ~ x=2, y=1
x=5 ~ x>5
29=30 ~ 30=29
# inequalities
x>3 ~ x<3
x\ge 3 ~ x>3
x>3 ~ y>3
-x<3 ~ x<3
1<x<3 ~ 1<x\le 3
x\ne 3 ~ x=3
# intervals
x>3 ~ [3,\infty)
1<x<3 ~ (1,4)
x>3 ~ (3,4)
x>3 ~ 3
# words
dog ~ god
on ~ no
yes ~ sey
USA ~ SAU
even ~ neve
two ~ tow
"""
# Neither right nor wrong: what they mean depends on the domain.
UNCLEAR = r"""
\ln x^2 ~ 2\ln x
\sqrt{xy} ~ \sqrt{x}\sqrt{y}
x=y=z ~ x=z
1/0 ~ x
\frac{x}{0} ~ \frac{y}{0}
1, 3, \ldots, 2n-1 ~ 1, 2, \ldots, n
x > ~ x > 3
\sin x ~ \ldots
"""


def pairs(table: str) -> list[tuple[str, str]]:
    lines = [line.split(" ~ ") for line in table.strip().splitlines() if not line.startswith("# ")]
    return [(answer, reference) for answer, reference in lines]


@pytest.mark.parametrize(("answer", "reference"), pairs(SAME))
def test_same(answer: str, reference: str) -> None:
    verdict = verify("math", answer, reference)
    assert (verdict.value, verdict.reason) == (1.0, "ok")
    assert verify("math", reference, answer).value == 1.0


@pytest.mark.parametrize(("answer", "reference"), pairs(DIFFERENT))
def test_different(answer: str, reference: str) -> None:
    for verdict in (verify("math", answer, reference), verify("math", reference, answer)):
        assert verdict.value == 0.0
        assert verdict.reason in ("wrong", "unsupported")


@pytest.mark.parametrize(("answer", "reference"), pairs(UNCLEAR))
def test_unclear_is_unsupported(answer: str, reference: str) -> None:
    for verdict in (verify("math", answer, reference), verify("math", reference, answer)):
        assert verdict.value == 0.0
    assert verify("math", answer, reference).reason in ("unsupported", "wrong")


# -- random polynomials: expanding and factoring by hand-written rules ---------------------------------------

COEFFICIENTS = st.integers(-9, 9)


@settings(max_examples=60, deadline=None)
@given(a=COEFFICIENTS, b=COEFFICIENTS, c=COEFFICIENTS, d=COEFFICIENTS, off=COEFFICIENTS)
def test_products_of_linear_factors(a: int, b: int, c: int, d: int, off: int) -> None:
    factored = f"({a}x+({b}))({c}x+({d}))"
    expanded = f"{a * c}x^2+({a * d + b * c})x+({b * d + off})"
    assert verify("math", factored, expanded).value == float(off == 0)
    assert verify("math", expanded, factored).value == float(off == 0)


ATOMS = st.sampled_from(["x", "y", "2", "3", "\\pi", "i", "\\sqrt{2}", "0.5", "n"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "\\cdot "]), inner).map(
            lambda t: f"({t[0]}{t[1]}{t[2]})"
        ),
        st.tuples(st.sampled_from(["\\sin", "\\cos", "\\exp", "\\ln", "\\sqrt", "\\arctan"]), inner).map(
            lambda t: f"{t[0]}{{{t[1]}}}" if t[0] == "\\sqrt" else f"{t[0]}({t[1]})"
        ),
        st.tuples(inner, st.sampled_from(["2", "3", "-1", "n"])).map(lambda t: f"({t[0]})^{{{t[1]}}}"),
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(a=EXPRESSIONS, b=EXPRESSIONS)
def test_equality_is_symmetric_and_sees_a_difference_of_one(a: str, b: str) -> None:
    assert verify("math", a, b).value == verify("math", b, a).value
    assert verify("math", f"{a}+1", a).value == 0.0
    assert verify("math", f"({a})+({b})", f"({b})+({a})").reason in (
        "ok",
        "unsupported",
        "too_deep",
        "too_long",
    )


# -- the discs hold the true value: against mpmath at 80 digits ----------------------------------------------

REALS = st.fractions(-50, 50, max_denominator=1000)


def contains(ball: balls.Ball, truth: mpmath.mpc) -> bool:
    with mpmath.workdps(80):
        centre = mpmath.mpc(mpmath.mpf(str(ball.re)), mpmath.mpf(str(ball.im)))
        holds = abs(centre - truth) <= mpmath.mpf(str(ball.rad))
        return bool(holds) and ball.rad < Decimal(REWARDS_BALL_REL) * (1 + ball.size)


@settings(max_examples=60, deadline=None)
@given(x=REALS)
def test_functions_hold_the_value_of_mpmath(x: Fraction) -> None:
    with mpmath.workdps(80), localcontext(balls.CONTEXT):
        exact = mpmath.mpf(x.numerator) / x.denominator
        ball = balls.from_fraction(x)
        assert contains(balls.sin(ball), mpmath.sin(exact))
        assert contains(balls.cos(ball), mpmath.cos(exact))
        assert contains(balls.arctan(ball), mpmath.atan(exact))
        assert contains(balls.exp(ball), mpmath.exp(exact))
        assert contains(balls.power(ball, 7), exact**7)
        if x > 0:
            assert contains(balls.ln(ball), mpmath.log(exact))
            assert contains(balls.sqrt(ball, False), mpmath.sqrt(exact))
        if abs(x) < 1:
            assert contains(balls.arcsin(ball), mpmath.asin(exact))
            assert contains(balls.arccos(ball), mpmath.acos(exact))
        turned = balls.exp(balls.mul(balls.I, ball))
        assert contains(turned, mpmath.expj(exact))


@settings(max_examples=60, deadline=None)
@given(a=REALS, b=REALS, c=REALS, d=REALS)
def test_arithmetic_holds_the_exact_value(a: Fraction, b: Fraction, c: Fraction, d: Fraction) -> None:
    def complex_ball(re: Fraction, im: Fraction) -> balls.Ball:
        return balls.add(balls.from_fraction(re), balls.mul(balls.I, balls.from_fraction(im)))

    with mpmath.workdps(80), localcontext(balls.CONTEXT):
        x, y = complex_ball(a, b), complex_ball(c, d)

        def number(re: Fraction, im: Fraction) -> mpmath.mpc:
            return mpmath.mpc(
                mpmath.mpf(re.numerator) / re.denominator, mpmath.mpf(im.numerator) / im.denominator
            )

        assert contains(balls.add(x, y), number(a + c, b + d))
        assert contains(balls.mul(x, y), number(a * c - b * d, a * d + b * c))
        if (c, d) != (0, 0):
            norm = c * c + d * d
            assert contains(balls.inverse(y), number(c / norm, -d / norm))
