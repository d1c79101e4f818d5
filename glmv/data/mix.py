"""The order of samples in supervised training: batch k is a function of (samples, weights, seed, k) alone."""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from glmv import check
from glmv.data.types import Sample


def batches(
    samples: Sequence[Sample],
    batch_size: int,
    seed: int,
    start_step: int = 0,
    weights: Mapping[str, float] | None = None,
) -> Iterator[list[Sample]]:
    """Batches without end, from batch number `start_step` on: a resumed run sees what it would have seen.

    Without `weights` an epoch is a permutation of all samples. With them (domain -> share) the domains take
    turns in those proportions, each through permutations of its own samples; a domain without a weight is
    left out. Raises ValueError for no samples, or a weight that is not positive or names a domain without
    samples.
    """
    check.that("batches", "samples", len(samples) > 0, "at least one", len(samples))
    check.that("batches", "batch_size", batch_size > 0, "positive", batch_size)
    pools: dict[str, list[Sample]] = {"": list(samples)}
    if weights is not None:
        pools = {domain: [s for s in samples if s.domain == domain] for domain in weights}
        for domain, weight in weights.items():
            check.that("batches", f"weights[{domain!r}]", weight > 0, "positive", weight)
            check.that("batches", f"samples of {domain!r}", len(pools[domain]) > 0, "at least one", 0)
    turns = _turns(weights or {"": 1.0})
    skip = start_step * batch_size
    count = dict.fromkeys(pools, 0)
    for domain in itertools.islice(turns, skip):
        count[domain] += 1
    walks = {domain: _walk(pool, seed, domain, count[domain]) for domain, pool in pools.items()}
    while True:
        yield [next(walks[domain]) for domain in itertools.islice(turns, batch_size)]


def _turns(weights: Mapping[str, float]) -> Iterator[str]:
    """Domains in the proportions of `weights`: the next is the one furthest behind its share."""
    due = {domain: 0.5 / weight for domain, weight in weights.items()}
    while True:
        domain = min(due, key=lambda name: due[name])
        yield domain
        due[domain] += 1 / weights[domain]


def _walk(pool: Sequence[Sample], seed: int, domain: str, start: int) -> Iterator[Sample]:
    """Endless epochs over a pool, each in an order of its own, from draw number `start` on."""
    first, offset = divmod(start, len(pool))
    for epoch in itertools.count(first):
        order = np.random.default_rng((seed, zlib.crc32(domain.encode()), epoch)).permutation(len(pool))
        for i in order[offset:].tolist():
            yield pool[i]
        offset = 0
