"""Sampling: estimators without bias, standard errors that the dependence demands, and the mistakes they rule out."""

import math
from itertools import product

import numpy as np
import pytest

from compute.errors import InputError
from compute.sampling import (
    LAWS,
    Components,
    Estimate,
    block_relative_sd,
    gaussian_rows,
    replicates_for,
    score_block,
    score_variance,
    unbiased_variance,
)
from compute.streams import Stream


@pytest.mark.parametrize("law", LAWS)
def test_standard_laws_have_the_moments_they_state(law: str) -> None:
    x = LAWS[law].draw(Stream(0, "moments"), (400_000,))
    for power, expected in ((1, 0.0), (2, 1.0), (3, LAWS[law].third), (4, LAWS[law].fourth)):
        values = x**power
        assert abs(values.mean() - expected) <= 4.5 * values.std() / math.sqrt(x.size) + 1e-12, power


def law_of_variance(d: int, q: Components, k: Components) -> float:
    return d * (q.sd**2 * k.sd**2 + q.mean**2 * k.sd**2 + k.mean**2 * q.sd**2)


@pytest.mark.parametrize(
    ("law", "mean_q", "mean_k", "d"), list(product(["normal", "exponential"], [0.0, 0.7], [-0.4], [3, 48]))
)
def test_variance_estimate_covers_the_law(law: str, mean_q: float, mean_k: float, d: int) -> None:
    q, k = Components(law, mean_q, 1.3), Components(law, mean_k, 0.6)
    got = score_variance(d, q, k, block=32, replicates=300, experiment="covers")
    assert abs(got.value - law_of_variance(d, q, k)) < 4 * got.standard_error


def test_estimator_is_exactly_unbiased() -> None:
    # Every sample of two queries and two keys with components ±1 shifted: the average over all of them is the law.
    mean_q, mean_k = 0.5, 2.0
    points = (-1.0, 1.0)
    total = 0.0
    for a, b, c, e in product(points, repeat=4):
        s = np.outer([a + mean_q, b + mean_q], [c + mean_k, e + mean_k])
        total += unbiased_variance(s)
    assert total / 16 == pytest.approx(1 + mean_q**2 + mean_k**2, rel=1e-14)


def test_plain_block_variance_is_biased() -> None:
    # The mistake that unbiased_variance avoids: with means, rows share queries and the block's own variance is low.
    q = k = Components("normal", 2.0, 1.0)
    law = law_of_variance(4, q, k)
    plain = [float(score_block(Stream(0, "bias", r), 4, 4, 4, q, k).var(ddof=1)) for r in range(4000)]
    assert Estimate.of(plain).value < law - 5 * Estimate.of(plain).standard_error


def test_centre_does_not_move_the_estimate() -> None:
    s = score_block(Stream(0, "c"), 8, 9, 5, Components(), Components())
    assert unbiased_variance(s, 3.0) == pytest.approx(unbiased_variance(s), rel=1e-12)


@pytest.mark.parametrize("law", ["normal", "uniform", "rademacher", "student9"])
@pytest.mark.parametrize(("n", "m", "d"), [(16, 16, 4), (8, 32, 16)])
def test_what_a_block_is_worth(law: str, n: int, m: int, d: int) -> None:
    q = k = Components(law)
    blocks = 3000
    values = [float((score_block(Stream(1, law, r), n, m, d, q, k) ** 2).mean()) for r in range(blocks)]
    measured = float(np.std(values)) / d
    # The sd of an sd from 3000 values of kurtosis up to ~ 10 is 3.9 %: 4 of those.
    assert measured == pytest.approx(block_relative_sd(n, m, d, q, k), rel=0.16)


def test_block_formula_of_the_notes() -> None:
    for N, d in ((256, 16), (512, 64)):
        note = math.sqrt(2 / N**2 + 4 / (d * N) + 2 / (d * N**2))
        assert block_relative_sd(N, N, d, Components(), Components()) == pytest.approx(note, rel=1e-14)


def test_counting_entries_as_independent_understates_the_error() -> None:
    # N² entries taken as independent would claim √((2 + 6/d)/N²): five times too little at d = 16, N = 256.
    naive = math.sqrt(2 + 6 / 16) / 256
    assert block_relative_sd(256, 256, 16, Components(), Components()) / naive > 5


@pytest.mark.parametrize("mean", [0.0, 1.5])
def test_replicates_reach_the_precision_asked_for(mean: float) -> None:
    q, k = Components("exponential", mean), Components("normal", -mean)
    count = replicates_for(8, q, k, 0.01, block=64)
    got = score_variance(8, q, k, block=64, replicates=count)
    # The pilot's sd of 24 blocks is itself uncertain by 15 %.
    assert got.standard_error / got.value < 0.0145


def test_scale_multiplies_the_variance_by_its_square() -> None:
    a = score_variance(16, replicates=4, block=16)
    b = score_variance(16, replicates=4, block=16, scale=0.25)
    assert b.value == pytest.approx(a.value / 16, rel=1e-13)


def test_gaussian_rows_have_the_law_of_the_product() -> None:
    from scipy import stats

    d, n = 6, 5
    fast = gaussian_rows(Stream(0, "fast"), 20_000, n, d, 0.5)
    slow = np.concatenate(
        [0.5 * score_block(Stream(0, "slow", r), 1, n, d, Components(), Components()) for r in range(20_000)]
    )
    # One score a row is independent of the others; the row's variance is a statistic of the whole row.
    assert stats.ks_2samp(fast[:, 0], slow[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(fast.var(axis=1), slow.var(axis=1)).pvalue > 1e-3


def test_bad_calls_are_refused() -> None:
    with pytest.raises(InputError, match="law"):
        Components("cauchy")
    with pytest.raises(InputError, match="sd"):
        Components("normal", 0.0, 0.0)
    with pytest.raises(InputError, match="replicates"):
        score_variance(4, replicates=1)
    with pytest.raises(InputError, match="at least 2"):
        unbiased_variance(np.ones((1, 5)))
    with pytest.raises(InputError, match="zero means"):
        block_relative_sd(4, 4, 4, Components("normal", 1.0), Components())
    with pytest.raises(InputError, match="d_k=0"):
        score_block(Stream(0, "x"), 2, 2, 0, Components(), Components())
    with pytest.raises(InputError, match="rows=0"):
        gaussian_rows(Stream(0, "x"), 0, 2, 2, 1.0)
