"""Refutation over the reals: what it must find, what it must never refute, and that its numbers round outwards."""

import math
import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy

from derive.assumptions import AtLeast, InRange, Ordered, Positive, ZeroOne
from derive.errors import StatementError
from derive.interval_numbers import PI, Interval, Undefined
from derive.intervals import refute
from derive.language import Diff, array, index, scalar, size, total
from tests.derive.test_modular import ATTENTION, DQ, DQ_MUTANTS, FALSE, LOSS, TRUE, Q, a, b

n, i, j, l = size("n"), index("i"), index("j"), index("l")
x, y = array("x", n), array("y", n)
exp, sqrt = sympy.exp, sympy.sqrt


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_are_never_refuted(name: str) -> None:
    lhs, rhs, assumptions = TRUE[name]
    for seed in range(4):
        assert refute(lhs, rhs, "=", assumptions, seed=seed) is None


@pytest.mark.parametrize("name", FALSE)
def test_false_statements_are_refuted(name: str) -> None:
    lhs, rhs, assumptions = FALSE[name]
    witness = refute(lhs, rhs, "=", assumptions)
    assert witness is not None
    assert "lies in [" in str(witness)


@pytest.mark.parametrize("name", DQ_MUTANTS)
def test_mutants_of_the_query_gradient_are_refuted(name: str) -> None:
    assert refute(Diff(LOSS, Q[a, b]), DQ_MUTANTS[name], "=", ATTENTION) is not None


def test_the_query_gradient_is_not() -> None:
    assert refute(Diff(LOSS, Q[a, b]), DQ, "=", ATTENTION) is None


def test_an_empty_row_refutes_a_statement_that_forgot_it() -> None:
    rows = total(exp(x[j]) / total(exp(x[l]), l, n), j, n)
    witness = refute(rows, sympy.Integer(1))
    assert witness is not None
    assert dict(witness.sizes) == {"n": 0}
    assert refute(rows, sympy.Integer(1), "=", (AtLeast(n),)) is None


def test_inequalities() -> None:
    cauchy = total(x[j] * y[j], j, n) ** 2, total(x[j] ** 2, j, n) * total(y[j] ** 2, j, n)
    assert refute(*cauchy, "<=") is None
    assert refute(*reversed(cauchy), "<=") is not None
    assert refute(*cauchy, "<") is not None  # equality is attained
    assert refute(1 + x[0], exp(x[0]), "<=", (AtLeast(n),)) is None
    assert refute(exp(x[0]), 1 + x[0], "<=", (AtLeast(n),)) is not None


def test_conditions_on_values_are_met_by_the_witness() -> None:
    s, lo = scalar("s"), scalar("lo")
    assert refute(sympy.Integer(0), s, "<") is not None
    assert refute(sympy.Integer(0), s, "<", (Positive(s),)) is None
    assert refute(sympy.Integer(0), s - lo, "<=", (Ordered(lo, s, s),)) is None
    assert refute(sympy.Integer(0), s - lo, "<=") is not None
    assert refute(sympy.Integer(0), x[i], "<", (InRange(i, 0, n - 1), Positive(x[i]))) is None
    assert refute(x[i] ** 2, x[i], "=", (InRange(i, 0, n - 1), ZeroOne(x))) is None
    every = total(sympy.Integer(1), j, n), total(x[j] / sympy.Abs(x[j]), j, n)
    ranged = InRange(i, 0, n - 1)
    assert refute(*every, "=", (ranged, Positive(x[i]))) is None  # x[i] > 0 at every i, not only at the one drawn
    assert refute(*every, "=", (ranged,)) is not None


def test_what_is_undefined_or_undecided_is_no_witness() -> None:
    zero = total(x[j], j, n) - total(x[l], l, n)
    assert refute(1 / zero, sympy.Integer(1)) is None
    tiny = sympy.Rational(1, 2**200)
    assert refute(exp(scalar("s")) * exp(-scalar("s") + 1), exp(1) * (1 + tiny)) is None  # true difference, too small
    assert refute(sympy.gamma(x[0]), x[0], "=", (AtLeast(n),)) is None
    assert refute(x[0], x[0] + 1, "limit", (AtLeast(n),)) is None
    with pytest.raises(StatementError, match="unbound"):
        refute(x[i], x[i])


def test_a_witness_is_reproducible_and_readable() -> None:
    first, second = (refute(x[0] ** 2, x[0], "=", (AtLeast(n),), seed=3) for _ in range(2))
    assert first == second
    assert first is not None
    value = Fraction(first.values["x[0]"])
    assert float(first.lhs[0]) <= value**2 <= float(first.lhs[1])
    assert "x[0] = " in str(first)


def _value(end: Any) -> mpmath.mpf:
    with mpmath.workprec(400):
        return mpmath.mpf(end)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "inverse", "add", "mul", "abs"])
def test_operations_hold_the_exact_result(name: str) -> None:
    rng = random.Random(11)
    with mpmath.workprec(400):
        for _ in range(200):
            p, q = (Fraction(rng.randint(1, 10**6), rng.randint(1, 10**4)) / 100 for _ in range(2))
            u, v = Interval.of(p), Interval.of(-q)
            mp_p, mp_q = (mpmath.mpf(w.numerator) / w.denominator for w in (p, q))
            got, want = {
                "exp": (v.exp, mpmath.exp(-mp_q)),
                "log": (u.log, mpmath.log(mp_p)),
                "sqrt": (u.sqrt, mpmath.sqrt(mp_p)),
                "sin": (u.sin, mpmath.sin(mp_p)),
                "cos": (v.cos, mpmath.cos(-mp_q)),
                "inverse": (v.inverse, -1 / mp_q),
                "add": (lambda u=u, v=v: u + v, mp_p - mp_q),
                "mul": (lambda u=u, v=v: u * v, -mp_p * mp_q),
                "abs": (lambda v=v: abs(v), mp_q),
            }[name]
            low, high = (mpmath.mpf(e) for e in got().ends)
            assert low <= want <= high
            assert high - low <= abs(want) * mpmath.mpf(2) ** -95 + mpmath.mpf(2) ** -98
            shown = [mpmath.mpf(e) for e in got().decimal()]
            assert shown[0] <= want <= shown[1]


def test_exp_of_a_wide_interval_holds_both_ends() -> None:
    wide = Interval((Interval.of(Fraction(-1)).ends[0], Interval.of(Fraction(2)).ends[1]))
    low, high = (float(_value(e)) for e in wide.exp().ends)
    assert low <= math.exp(-1) * (1 + 1e-15)
    assert high >= math.exp(2) * (1 - 1e-15)
    low, high = (float(_value(e)) for e in PI.ends)
    assert low <= math.pi <= high or high - math.pi < 1e-15
    for bad in (wide.inverse, wide.log, wide.sqrt):
        with pytest.raises(Undefined):
            bad()
