"""Physics and chemistry: units, conversions, and what goes to a judge."""

from fractions import Fraction

import pytest

from glmv.rewards import verify
from glmv.rewards.units import read_unit

SAME = r"""
15 m/s ~ 15.0 m/s
15m/s ~ 15 m/s
15 m / s ~ 15 m/s
15 m s^{-1} ~ 15 m/s
15 m·s⁻¹ ~ 15 m/s
15\,\text{m/s} ~ 15 m/s
$15\ \mathrm{m\cdot s^{-1}}$ ~ 15 m/s
15 meters per second ~ 15 m/s
v = 15 m/s ~ 15 m/s
≈ 15 m/s ~ 15 m/s
54 km/h ~ 15 m/s
3 x 10^8 m/s ~ 3e8 m/s
3.0×10⁸ m/s ~ 300000 km/s
25 °C ~ 298.15 K
25℃ ~ 25 °C
77 °F ~ 25 °C
5 kΩ ~ 5000 ohm
5 μm ~ 5 µm
0.5 h ~ 30 min
9.8 N/kg ~ 9.8 m/s²
1 J ~ 1 N m
1 kWh ~ 3.6 MJ
1 atm ~ 101325 Pa
100 kPa ~ 1 bar
180° ~ 3.14159265 rad
60 rpm ~ 1 rev/s
10 Hz ~ 10 1/s
500 mL ~ 0.5 L
2 mol ~ 2 moles
0.1 M ~ 0.1 mol/L
1 g/cm3 ~ 1000 kg/m^3
4.2e3 J/(kg·K) ~ 4.2 kJ/(kg K)
1.6e-19 C ~ 1.6\times10^{-19} C
1 eV ~ 1.602176634e-19 J
\frac{1}{2} m ~ 0.5 m
10^{-3} m ~ 1 mm
2.5 米 ~ 2.5 m
12 foo ~ 12.0 foo
25% ~ 0.25
6.02\times 10^{23} ~ 6.02e23
\sqrt{2gh} ~ \sqrt{2hg}
H₂O ~ H_2O
\mathrm{H_2O} ~ H2O
Fe²⁺ ~ Fe^{2+}
oxygen ~ Oxygen
"""
DIFFERENT = r"""
15 ~ 15 m/s
15 m ~ 15 s
15 kg ~ 15 g
15 m/s ~ 16 m/s
15 mm/s ~ 15 m/s
15 ms ~ 15 m
50 Mm ~ 50 mm
5 nm ~ 5 Nm
-5 m ~ 5 m
15 m/s or 16 m/s ~ 15 m/s
15, 16 m/s ~ 15 m/s
1 5 m ~ 15 m
10 Hz ~ 10 rad/s
25 °C ~ 25 K
25 °C ~ 25 °F
1 J/kg ~ 1 J
9.8 m/s ~ 9.8 m/s^2
10% ~ 10
CO ~ Co
1e400 m ~ 1 m
nan m ~ 1 m
"""
# A unit where the reference has none, and units or texts that the rule cannot read.
FOR_THE_JUDGE = [("42 J", "42"), ("12 foo", "12 bar"), ("4.2 J/kg·K", "4.2 J/(kg K)"), ("a gas", "oxygen")]


def pairs(table: str) -> list[tuple[str, str]]:
    lines = [line.split(" ~ ") for line in table.strip().splitlines()]
    return [(answer, reference) for answer, reference in lines]


@pytest.mark.parametrize(("answer", "reference"), pairs(SAME))
def test_same(answer: str, reference: str) -> None:
    assert verify("physics", answer, reference).reason == "ok"


@pytest.mark.parametrize(("answer", "reference"), pairs(DIFFERENT))
def test_different(answer: str, reference: str) -> None:
    assert verify("physics", answer, reference).value == 0.0
    assert verify("chemistry", answer, reference).value == 0.0


@pytest.mark.parametrize(("answer", "reference"), FOR_THE_JUDGE)
def test_what_goes_to_the_judge(answer: str, reference: str) -> None:
    assert verify("physics", answer, reference).reason == "judge_unavailable"
    assert verify("physics", answer, reference, judge=lambda prompt: "1").reason == "judge_ok"
    assert verify("physics", answer, reference, judge=lambda prompt: "0").reason == "judge_wrong"


def test_a_judge_confirms_a_conversion_and_never_a_wrong_value() -> None:
    assert verify("physics", "54 km/h", "15 m/s", judge=lambda prompt: "0").value == 0.0
    assert verify("physics", "54 km/h", "15 m/s", judge=lambda prompt: "1").value == 1.0
    assert verify("physics", "15.0 m/s", "15 m/s", judge=lambda prompt: "0").value == 1.0
    for answer in ("16 m/s", "15 s", "15", "55 km/h"):
        assert verify("physics", answer, "15 m/s", judge=lambda prompt: "1").reason == "wrong"


def test_formulas_of_substances_keep_the_order_of_their_letters() -> None:
    assert verify("chemistry", "ClNa", "NaCl").reason == "judge_unavailable"
    assert verify("chemistry", "NaCl", "NaCl").value == 1.0
    assert verify("physics", "mgh", "gmh").value == 1.0


def test_tolerance() -> None:
    assert verify("physics", "9.81 m/s^2", "9.8 m/s^2", {"rel_tol": 0.01}).value == 1.0
    assert verify("physics", "981 cm/s^2", "9.8 m/s^2", {"rel_tol": 0, "abs_tol": 0.02}).value == 1.0
    assert verify("physics", "9.9 m/s^2", "9.8 m/s^2", {"rel_tol": 1e-3}).value == 0.0


# m, kg, s, A, K, mol, cd, rad
@pytest.mark.parametrize(
    ("text", "dimension", "factor"),
    [
        ("km/h", (1, 0, -1, 0, 0, 0, 0, 0), Fraction(5, 18)),
        ("kg*m/s^2", (1, 1, -2, 0, 0, 0, 0, 0), 1),
        ("kg m^2 s^-2", (2, 1, -2, 0, 0, 0, 0, 0), 1),
        ("J/(kg K)", (2, 0, -2, 0, -1, 0, 0, 0), 1),
        ("J/kg/K", (2, 0, -2, 0, -1, 0, 0, 0), 1),
        ("cm3", (3, 0, 0, 0, 0, 0, 0, 0), Fraction(1, 10**6)),
        ("square kilometers", (2, 0, 0, 0, 0, 0, 0, 0), 10**6),
        ("uF", (-2, -1, 4, 2, 0, 0, 0, 0), Fraction(1, 10**6)),
        ("min", (0, 0, 1, 0, 0, 0, 0, 0), 60),
        ("米/秒", (1, 0, -1, 0, 0, 0, 0, 0), 1),
    ],
)
def test_units(text: str, dimension: tuple[int, ...], factor: Fraction) -> None:
    unit = read_unit(text)
    assert unit is not None
    assert (unit.dimension, unit.factor) == (dimension, factor)


@pytest.mark.parametrize(
    "text",
    ["", "foo", "J/kg K", "m//s", "/m", "m/", "m^", "(m", "m)", "m^99", "m^^2", "1", "m" * 49, "s m/s kg m"],
)
def test_no_units(text: str) -> None:
    assert read_unit(text) is None
