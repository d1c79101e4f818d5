"""Curriculum sampling against the rules of the recipe and hand numbers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glmv.train import Curriculum
from glmv.train.config import CurriculumConfig
from glmv.train.curriculum import TIERS, balance, is_valid, merge_label, quotas, tier


def make(
    n: int = 60, num_domains: int = 3, p0: dict[str, float] | None = None, **options: object
) -> Curriculum:
    ids = {f"s{i}": f"d{i % num_domains}" for i in range(n)}
    return Curriculum(ids, CurriculumConfig(**options), p0)


@pytest.mark.parametrize(
    ("p", "name"),
    [(1.0, "very_easy"), (0.9, "very_easy"), (0.89, "easy"), (0.7, "easy"), (0.3, "medium"), (0.69, "medium")]
    + [(0.29, "hard"), (0.1, "hard"), (0.09, "very_hard"), (0.0, "very_hard")],
)
def test_tiers_have_the_bounds_of_the_recipe(p: float, name: str) -> None:
    assert TIERS[tier(p)] == name


@pytest.mark.parametrize(
    ("p", "label", "want"), [(0.95, 0, 0), (0.95, 1, 1), (0.95, 4, 2), (0.0, 3, 3), (0.5, 3, 2), (0.8, 2, 2)]
)
def test_a_human_label_is_merged_by_the_mean_rounded_towards_medium(p: float, label: int, want: int) -> None:
    assert merge_label(p, label) == want


def test_update_follows_the_ema_by_hand() -> None:
    c = make(2, 1, {"s0": 0.4, "s1": 0.8}, success_ema=0.5, ratio_ema=0.3)
    c.update({"s0": [1, 1, 0, 0], "s1": [1, 1, 1, 1]})
    assert c.p == {"s0": pytest.approx(0.45), "s1": pytest.approx(0.9)}
    # one of two groups has no signal: ratio 1 / (1 - 0.5) = 2; ema = 0.3 * 2 + 0.7 * 1
    assert c.ratio == 2
    assert c.expansion == pytest.approx(1.3)


def test_a_continuous_reward_succeeds_at_one_half() -> None:
    c = make(1, 1, {"s0": 0.0}, success_ema=1.0)
    c.update({"s0": [0.5, 0.49, 0.9, 0.0]})
    assert c.p["s0"] == 0.5


def test_no_signal_at_all_gives_the_cap() -> None:
    c = make(2, 1, ratio_ema=1.0, max_expansion=4.0)
    c.update({"s0": [0, 0], "s1": [1, 1]})
    assert c.expansion == 4.0
    assert len(make(60, 3, ratio_ema=1.0).draw(4)) == 4


def test_draw_is_larger_by_the_expansion() -> None:
    c = make(60, 3)
    c.ema = 1.3
    assert len(c.draw(10)) == 13


def test_domains_keep_their_mix_exactly() -> None:
    c = make(90, 3, domains={"d0": 2, "d1": 1, "d2": 1})
    counts = Counter(c.domain_of[s] for s in c.draw(20))
    assert counts == {"d0": 10, "d1": 5, "d2": 5}


def test_no_repeat_within_an_iteration_and_rest_after_it() -> None:
    c = make(30, 1)
    first, second, third = c.draw(10), c.draw(10), c.draw(10)
    assert len(set(first)) == 10
    assert not set(first) & set(second)
    assert not set(second) & set(third)
    assert set(first) & set(third)  # of 20 rested prompts: all 10 new ones has a chance of 5e-6


def test_a_small_pool_takes_the_longest_rested() -> None:
    c = make(12, 1, cooldown=3)
    first, second = c.draw(6), c.draw(6)
    assert sorted(c.draw(6)) == sorted(first)
    assert sorted(c.draw(6)) == sorted(second)


def test_a_pool_smaller_than_its_share_is_an_error() -> None:
    make(10, 2).check_pools(10)
    with pytest.raises(ValueError, match="'d0' holds 5 prompts and its share of prompts=12 is 6"):
        make(10, 2).check_pools(12)


def test_an_expansion_beyond_the_pool_draws_the_pool() -> None:
    c = make(12, 3)  # 4 prompts a domain
    c.ema = 2.0
    assert c.draw_size(9) == 18
    for _ in range(3):
        assert sorted(c.draw(9)) == sorted(c.domain_of)


@given(n=st.integers(1, 20), ema=st.floats(1, 4), num_domains=st.integers(1, 7))
def test_the_draw_covers_what_select_may_keep(n: int, ema: float, num_domains: int) -> None:
    c = make(100 * num_domains, num_domains)
    c.ema = ema
    drawn = c.draw(n)
    assert len(drawn) == c.draw_size(n)
    assert len(c.select({s: [1, 0] for s in drawn}, n)) == n  # all have signal: no group is lost


def test_the_middle_is_drawn_more_often_than_the_ends() -> None:
    p0 = {f"s{i}": (0.0, 0.5, 1.0)[i % 3] for i in range(300)}
    c = make(300, 1, p0, cooldown=0)
    drawn = Counter(p0[s] for _ in range(40) for s in c.draw(20))
    # tier ratios 0.05 : 1 : 0.05, so 1 / 1.1 = 91 % of 800 draws; 5 sigma = 41
    assert abs(drawn[0.5] - 800 / 1.1) < 41
    assert drawn[0.0] > 0
    assert drawn[1.0] > 0


def test_uniform_draws_all_alike() -> None:
    p0 = {f"s{i}": (0.0, 0.5, 1.0)[i % 3] for i in range(300)}
    c = make(300, 1, p0, cooldown=0, kind="uniform")
    drawn = Counter(p0[s] for _ in range(40) for s in c.draw(20))
    assert all(abs(drawn[p] - 800 / 3) < 5 * (800 * 2 / 9) ** 0.5 for p in (0.0, 0.5, 1.0))


def test_select_takes_the_most_balanced_valid_groups_of_each_domain() -> None:
    c = Curriculum({"a": "x", "b": "x", "c": "x", "d": "x"}, CurriculumConfig())
    c.draw(1)
    rewards = {"a": [1, 0, 0, 0], "b": [1, 1, 0, 0], "c": [1, 1, 1, 1], "d": [1, 1, 1, 0]}
    assert c.select(rewards, 1) == ["b"]
    assert set(c.select(rewards, 4)) == {"a", "b", "d"}


def test_select_does_not_fill_one_domain_with_another() -> None:
    c = Curriculum({"a": "x", "b": "y", "c": "y", "d": "y"}, CurriculumConfig())
    c.draw(2)
    rewards = {"a": [1, 1], "b": [1, 0], "c": [1, 0], "d": [1, 0]}
    assert len(c.select(rewards, 4)) == 2


def test_balance_by_hand() -> None:
    assert balance([1, 0, 0, 0]) == 0.75
    assert balance([1, 1, 0, 0]) == 1.0
    assert balance([1] + [0] * 5) == balance([1] * 5 + [0])  # 1 of 6 and 5 of 6 tie
    assert balance([1, 0, 0, 0]) > balance([0.9, 0, 0, 0])  # a domain with partial credit has both
    assert balance([0.2, 0.6]) == pytest.approx(4 * 0.04)
    assert not is_valid([0.3, 0.3 + 1e-7])
    assert is_valid([0.3, 0.31])


def test_same_seed_same_draws_and_state_resumes_them() -> None:
    a, b = make(60, 3), make(60, 3)
    assert a.draw(12) == b.draw(12)
    rewards = {s: [1, 0, 0, 1] if i % 2 else [0, 0, 0, 0] for i, s in enumerate(a.domain_of)}
    a.update(rewards)
    resumed = make(60, 3)
    resumed.load_state_dict(a.state_dict())
    for _ in range(3):
        assert resumed.draw(12) == a.draw(12)
    assert resumed.state_dict() == a.state_dict()


def test_state_of_other_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match="same 3 prompts"):
        make(3, 1).load_state_dict(make(4, 1).state_dict())


def test_unknown_domain_weight_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"among \['d0'\], got \['ocr'\]"):
        make(3, 1, domains={"ocr": 1.0})


def test_no_prompts_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Curriculum({}, CurriculumConfig())


@given(
    n=st.integers(0, 200),
    weights=st.dictionaries(st.sampled_from("abcdefg"), st.floats(0.01, 10), min_size=1),
    seed=st.integers(0, 2**32 - 1),
)
def test_quotas_add_up_and_stay_within_one_of_the_exact_share(
    n: int, weights: dict[str, float], seed: int
) -> None:
    total = sum(weights.values())
    shares = {k: w / total for k, w in weights.items()}
    got = quotas(n, shares, np.random.default_rng(seed))
    assert sum(got.values()) == n
    assert all(abs(got[k] - n * shares[k]) < 1 + 1e-6 for k in shares)
