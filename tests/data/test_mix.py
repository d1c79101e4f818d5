"""The order of training samples: a function of (seed, step), in whole epochs, by domain weights."""

from collections import Counter
from itertools import islice

import pytest

from glmv.data import batches
from glmv.data.types import Sample


def samples(n, domain="a"):
    return [Sample(f"{domain}{i}", "test", (), extra_info={"domain": domain}) for i in range(n)]


def ids(iterator, n):
    return [[s.id for s in batch] for batch in islice(iterator, n)]


def test_an_epoch_shows_every_sample_once():
    pool = samples(10)
    drawn = [i for batch in ids(batches(pool, 3, seed=0), 10) for i in batch]
    epochs = [drawn[:10], drawn[10:20], drawn[20:30]]
    assert all(sorted(e) == sorted(s.id for s in pool) for e in epochs)
    assert len({tuple(e) for e in epochs}) == 3


@pytest.mark.parametrize("weights", [None, {"a": 2.0, "b": 1.0}])
def test_a_resumed_run_sees_the_same_batches(weights):
    pool = samples(7) + samples(5, "b")
    whole = ids(batches(pool, 4, seed=3, weights=weights), 12)
    for start in range(12):
        assert ids(batches(pool, 4, seed=3, start_step=start, weights=weights), 12 - start) == whole[start:]
    assert ids(batches(pool, 4, seed=4, weights=weights), 12) != whole


def test_domains_keep_their_shares_at_every_step():
    pool = samples(50) + samples(3, "b") + samples(40, "c")
    count = Counter()
    for k, batch in enumerate(islice(batches(pool, 5, seed=0, weights={"a": 3, "b": 1, "c": 1}), 40), 1):
        count.update(s.domain for s in batch)
        for domain, share in {"a": 0.6, "b": 0.2, "c": 0.2}.items():
            assert abs(count[domain] - share * 5 * k) <= 1
    assert count == {"a": 120, "b": 40, "c": 40}


def test_bad_arguments():
    with pytest.raises(ValueError, match="samples must be at least one"):
        next(batches([], 4, seed=0))
    with pytest.raises(ValueError, match=r"weights\['a'\] must be positive"):
        next(batches(samples(3), 4, seed=0, weights={"a": 0.0}))
    with pytest.raises(ValueError, match="samples of 'b' must be at least one"):
        next(batches(samples(3), 4, seed=0, weights={"b": 1.0}))
    with pytest.raises(ValueError, match="batch_size must be positive"):
        next(batches(samples(3), 0, seed=0))
