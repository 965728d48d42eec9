"""Observables against 60-digit values, at ordinary rows and where the textbook formulas have no digit left."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute.accumulate import LogHistogram, Moments
from compute.errors import InputError
from compute.observables import (
    OBSERVABLES,
    entropy,
    jacobian_norm,
    largest_weight,
    missing_weight,
    participation,
    row_variance,
)

ROWS = st.lists(st.floats(-300, 300), min_size=1, max_size=12)


def precise(row: list[float]) -> dict[str, mpmath.mpf]:
    """The definitions, in 700 digits: enough for gaps of 600 without any rearrangement."""
    with mpmath.workdps(700):
        e = [mpmath.exp(mpmath.mpf(x)) for x in row]
        total = mpmath.fsum(e)
        a = [x / total for x in e]
        n = len(a)
        jac = mpmath.fsum(((a[i] if i == j else 0) - a[i] * a[j]) ** 2 for i in range(n) for j in range(n))
        mean = mpmath.fsum(mpmath.mpf(x) for x in row) / n
        return {
            "largest_weight": max(a),
            "missing_weight": 1 - max(a),
            "participation": mpmath.fsum(x * x for x in a),
            "entropy": -mpmath.fsum(x * mpmath.log(x) for x in a),
            "jacobian_norm": mpmath.sqrt(jac),
            "row_variance": mpmath.fsum((mpmath.mpf(x) - mean) ** 2 for x in row) / n,
        }


@given(ROWS)
def test_every_observable_keeps_its_relative_accuracy(row: list[float]) -> None:
    exact = precise(row)
    assert set(exact) == set(OBSERVABLES)
    u = 2.0**-53
    for name, observable in OBSERVABLES.items():
        got = float(observable(np.array(row)))
        # Gaps up to 600 are exact to u·600 absolute, so weights to 600u relative; sums of n ≤ 12 terms and a dozen
        # roundings add less. The variance is a sum of squares about a rounded mean: n·u·max² absolute.
        allowed = 8 * (600 + 24) * u * float(exact[name]) + 1e-300
        if name == "row_variance":
            allowed = 40 * u * max(x * x for x in row) + 1e-300
        assert abs(got - float(exact[name])) <= allowed, name


def test_textbook_formula_fails_where_ours_holds() -> None:
    row = np.array([0.0, -50.0, -60.0])
    a = np.exp(row) / np.exp(row).sum()
    p2, p3 = (a**2).sum(), (a**3).sum()
    assert p2 - 2 * p3 + p2**2 < 1e-30 or abs(np.sqrt(p2 - 2 * p3 + p2**2) / float(jacobian_norm(row)) - 1) > 0.5
    assert float(jacobian_norm(row)) == pytest.approx(2 * np.exp(-50.0), rel=1e-4)


def test_known_values() -> None:
    uniform = np.zeros(8)
    assert float(largest_weight(uniform)) == 1 / 8
    assert float(participation(uniform)) == 1 / 8
    assert float(entropy(uniform)) == pytest.approx(np.log(8), rel=1e-15)
    assert float(jacobian_norm(uniform)) == pytest.approx(np.sqrt(7) / 8, rel=1e-15)
    assert float(jacobian_norm(np.array([3.0]))) == 0.0
    assert float(missing_weight(np.array([3.0]))) == 0.0
    assert float(row_variance(np.array([1.0, 3.0]))) == 1.0


def test_masked_keys_do_not_count() -> None:
    row = np.array([0.3, -np.inf, 1.0, -np.inf])
    for observable in (largest_weight, missing_weight, participation, entropy, jacobian_norm):
        assert float(observable(row)) == pytest.approx(float(observable(row[[0, 2]])), rel=1e-15)
    only = np.array([2.0, -np.inf])
    assert float(jacobian_norm(only)) == 0.0
    assert float(entropy(only)) == 0.0


@pytest.mark.parametrize("bad", [np.zeros((3, 0)), np.array([np.nan, 1.0]), np.array([-np.inf]), np.float64(1.0)])
def test_rows_without_meaning_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(InputError):
        jacobian_norm(bad)


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_moments_merge_as_if_pooled(a: list[float], b: list[float]) -> None:
    merged, pooled = Moments.of(a) + Moments.of(b), Moments.of(a + b)
    size = max((abs(x) for x in a + b), default=0.0)
    assert merged.count == pooled.count
    for power, name in enumerate(("mean", "m2", "m3", "m4"), start=1):
        allowed = 64 * 60 * 2.0**-53 * (2 * size) ** power * max(1, pooled.count)
        assert abs(getattr(merged, name) - getattr(pooled, name)) <= allowed


def test_moments_against_exact_rationals() -> None:
    from fractions import Fraction

    values = [1e8 + 1, 1e8 + 2, 1e8 + 4, 1e8 + 8]
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / 4
    m = Moments.of(values[:1]) + Moments.of(values[1:])
    assert m.mean == float(mean)
    # A mean near 1e8 is known to u·1e8 = 1e-8, against deviations of 1: a few 1e-8 relative. Raw power sums would
    # keep nothing: u·(1e8)^2 = 1, u·(1e8)^4 = 1e16.
    assert m.m2 == pytest.approx(float(sum((x - mean) ** 2 for x in exact)), rel=1e-7)
    assert m.m3 == pytest.approx(float(sum((x - mean) ** 3 for x in exact)), rel=1e-7)
    assert m.m4 == pytest.approx(float(sum((x - mean) ** 4 for x in exact)), rel=1e-7)
    assert m.sample_variance == pytest.approx(float(sum((x - mean) ** 2 for x in exact)) / 3, rel=1e-7)


def test_moments_refuse_nan() -> None:
    with pytest.raises(InputError, match="finite"):
        Moments.of([1.0, np.nan])


POSITIVE = st.lists(st.floats(0, 1e300), max_size=40)


@given(POSITIVE, POSITIVE)
def test_histogram_merges_to_the_bit(a: list[float], b: list[float]) -> None:
    ha, hb, hab = LogHistogram(), LogHistogram(), LogHistogram()
    ha.add(a)
    hb.add(b)
    hab.add(a + b)
    assert ha + hb == hab == hb + ha


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=60), st.floats(0, 1))
def test_histogram_quantile_is_within_its_bin(values: list[float], share: float) -> None:
    h = LogHistogram(64)
    h.add(values)
    rank = max(1, int(np.ceil(share * len(values))))
    exact = sorted(values)[rank - 1]
    assert exact / (1 + 1 / 64) <= h.quantile(share) <= exact * (1 + 1 / 64)


def test_histogram_refuses_what_it_cannot_hold() -> None:
    h = LogHistogram()
    with pytest.raises(InputError):
        h.add([-1.0])
    with pytest.raises(InputError):
        h.quantile(0.5)
    with pytest.raises(InputError):
        LogHistogram(4) + LogHistogram(8)
    h.add([0.0, 0.0, 1.0])
    assert h.quantile(0.5) == 0.0
    assert h.share_below(0.5) == pytest.approx(2 / 3)
