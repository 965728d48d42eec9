"""Exact values below the least float: a radius of 0 would call them 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import compute
from compute import arb

pytestmark = pytest.mark.skipif(not arb.available(), reason="python-flint is not installed")
LEAST = Fraction(1, 2**1074)


def test_a_weight_that_no_float_holds() -> None:
    q, k, v = np.array([[1000.0]]), np.array([[0.0], [-1.0]]), np.array([[0.0], [1.0]])
    found = compute.certify(q, k, v, tier="arb").output
    assert found.rad[0, 0] > 0
    assert found.lower()[0, 0] <= 0.0 < found.upper()[0, 0]


def test_a_subnormal_output_is_enclosed() -> None:
    """exp(1)/(1 + exp(1)) · 1e-300 is no float; the enclosure's ends must be on both sides of it."""
    q, k, v = np.array([[1.0]]), np.array([[1.0], [0.0]]), np.array([[1e-300], [0.0]])
    found = compute.certify(q, k, v, tier="arb").output
    assert found.rad[0, 0] > 0
    e = sum((Fraction(1, _factorial(i)) for i in range(40)), Fraction(0))  # exp(1) to 1e-47
    exact = Fraction(1e-300) * e / (1 + e)
    low = Fraction(0) if found.low is None else Fraction(float(found.low[0, 0]))
    gap = abs(Fraction(float(found.mid[0, 0])) + low - exact)
    assert gap <= Fraction(float(found.rad[0, 0])) + exact / 10**40


def test_gradients_too() -> None:
    q, k, v = np.array([[1500.0]]), np.array([[0.0], [-1.0]]), np.array([[0.0], [1.0]])
    found = compute.certify(q, k, v, grad_output=np.array([[1.0]]), tier="arb")
    assert found.dv is not None
    assert found.dv.rad[1, 0] > 0


def test_what_is_exact_stays_exact() -> None:
    found = compute.certify(np.zeros((1, 1)), np.zeros((2, 1)), np.array([[1.0], [1.0]]), tier="arb").output
    assert found.mid[0, 0] == 1.0
    assert found.rad[0, 0] <= 2.0**-100


def _factorial(n: int) -> int:
    return 1 if n < 2 else n * _factorial(n - 1)
