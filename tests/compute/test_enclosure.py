"""Enclosure: containment, rounding and sums, against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute.enclosure import Enclosure, add_up
from compute.errors import InputError

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
SMALL = st.floats(min_value=0, max_value=1e-3, allow_subnormal=False)


def one(mid: float, rad: float, low: float | None = None) -> Enclosure:
    return Enclosure(np.array([mid]), np.array([rad]), None if low is None else np.array([low]))


@given(FLOATS, SMALL, st.integers(-100, 100))
def test_ends_are_outward(mid: float, rad: float, share: int) -> None:
    low = mid * 2.0**-54 * share / 100
    e = one(mid, rad, low)
    centre = Fraction(mid) + Fraction(low)
    if np.isfinite(e.lower()[0]):
        assert Fraction(float(e.lower()[0])) <= centre - Fraction(rad)
    if np.isfinite(e.upper()[0]):
        assert Fraction(float(e.upper()[0])) >= centre + Fraction(rad)


@given(st.floats(-1e30, 1e30), st.floats(0, 1), st.floats(-1, 1))
def test_what_is_contained_is_never_denied(mid: float, rad: float, where: float) -> None:
    y = float(mid + rad * where)
    if abs(Fraction(y) - Fraction(mid)) <= Fraction(rad):
        assert one(mid, rad).contains(np.array([y]))[0]


def test_what_is_clearly_outside_is_denied() -> None:
    e = one(1.0, 1e-10)
    assert not e.contains(np.array([1 + 2e-10]))[0]
    assert not e.contains(np.array([np.nan]))[0]
    assert not e.contains(np.array([np.inf]))[0]
    assert Enclosure(np.array([np.nan]), np.array([np.nan])).contains(np.array([np.nan]))[0]


@given(st.floats(-1e30, 1e30), st.floats(0, 1e-9), st.floats(-1, 1))
def test_decided_roundings_are_right(mid: float, relative: float, where: float) -> None:
    rad = abs(mid) * relative
    value, undecided = one(mid, rad).rounded("float32")
    exact = Fraction(mid) + Fraction(rad) * Fraction(where)
    if not undecided[0]:
        candidates = [float(np.nextafter(value[0], np.float32(s))) for s in (-np.inf, np.inf)]
        best = min(abs(exact - Fraction(c)) for c in candidates if np.isfinite(c))
        assert abs(exact - Fraction(float(value[0]))) <= best


def test_a_tie_is_undecided_unless_it_is_exact() -> None:
    tie = 1 + 2.0**-24
    assert one(tie, 1e-30).rounded("float32")[1][0]
    value, undecided = one(tie, 0.0).rounded("float32")
    assert not undecided[0]
    assert value[0] == 1


def test_float64_needs_the_low_part() -> None:
    value, undecided = one(1.0, 1e-20, 2.0**-55).rounded("float64")
    assert not undecided[0]
    assert value[0] == 1
    assert one(1.0, 1e-20, 2.0**-53).rounded("float64")[1][0]
    assert one(1.0, 1e-16).rounded("float64")[1][0]
    assert not one(1.0, 0.0).rounded("float64")[1][0]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1)), min_size=1, max_size=8))
def test_sums_enclose_the_sum_of_any_members(parts: list[tuple[float, float]]) -> None:
    mids, rads = (np.array(x) for x in zip(*parts, strict=True))
    total = add_up(Enclosure(mids, rads), 0)
    for sign in (-1, 1):
        exact = sum((Fraction(float(m)) + sign * Fraction(float(r)) for m, r in parts), Fraction(0))
        assert abs(exact - Fraction(float(total.mid))) <= Fraction(float(total.rad))


def test_formats_are_named() -> None:
    with pytest.raises(InputError, match="expected one of"):
        one(1.0, 0.0).rounded("float12")


def test_shape_and_indexing() -> None:
    e = Enclosure(np.zeros((2, 3)), np.ones((2, 3)), np.zeros((2, 3)))
    assert e.shape == (2, 3)
    assert e[0].shape == (3,)
    assert e.reshape(6).low is not None


def test_contains_broadcasts_nothing() -> None:
    e = Enclosure(np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(InputError, match="expected one shape"):
        e.contains(np.zeros(3))
