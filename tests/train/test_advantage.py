"""Group advantages against hand numbers."""

import pytest

from glmv.train.advantage import group_advantage
from glmv.train.config import AdvantageConfig


def test_hand_numbers_with_ddof_1() -> None:
    # mean 0.25; deviations .75, -.25 x 3; variance (0.5625 + 3 * 0.0625) / 3 = 0.25; std 0.5
    got = group_advantage([1, 0, 0, 0], AdvantageConfig(ddof=1, eps=0.0)).tolist()
    assert got == [1.5, -0.5, -0.5, -0.5]


def test_hand_numbers_with_ddof_0_and_eps() -> None:
    # variance 0.75 / 4, std 0.4330127; eps 0.5669873 makes the divisor 1
    got = group_advantage([1, 0, 0, 0], AdvantageConfig(ddof=0, eps=1 - 0.1875**0.5)).tolist()
    assert got == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_no_scaling() -> None:
    assert group_advantage([1, 0], AdvantageConfig(scale="none")).tolist() == [0.5, -0.5]


@pytest.mark.parametrize("scale", ["std", "none"])
def test_equal_rewards_give_exact_zeros(scale: str) -> None:
    # 0.1 three times: the mean rounds, and noise / eps would be a gradient
    got = group_advantage([0.1, 0.1, 0.1], AdvantageConfig(scale=scale, eps=0.0))
    assert got.tolist() == [0.0, 0.0, 0.0]


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 answers"):
        group_advantage([1.0], AdvantageConfig())
