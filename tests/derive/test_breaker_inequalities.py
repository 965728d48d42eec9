"""Statements that are false, or hold text, and that names of indices once let through."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sympy

import derive
from derive import moments
from derive.assumptions import Assumption, AtLeast, Defined, Distinct, InRange, Ordered, Positive
from derive.errors import DeriveError, InputError
from derive.inequalities import Context, Sign, minimum, sign
from derive.language import array, index, scalar, size, total
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

n, m = size("n"), size("m")
i, j, k, l = (index(s) for s in "ijkl")
x, w, y, g = (array(s, n) for s in "xwyg")
f = array("f", sympy.Integer(11))
s = scalar("s")
exp = sympy.exp
ROW = (AtLeast(n, 1), InRange(i, 0, n - 1), InRange(j, 0, n - 1))


def judged(rhs: Any, *assumptions: Assumption, relation: str = "<", certificate: Any = None) -> Kind:
    data = {} if certificate is None else {"certificate": certificate}
    one = Step(sympy.Integer(0), rhs, "certified-difference", relation, assumptions=assumptions, data=data)  # type: ignore[arg-type]
    return check_step(one).kind


@pytest.mark.parametrize("place", [sympy.Integer(7), k, k + 1], ids=str)
def test_the_index_of_a_definition_is_not_the_free_index_of_its_name(place: Any) -> None:
    """f[7] = 5 − 7 < 0, although the statement's own i is at most 5."""
    conditions = (InRange(i, 0, 5), InRange(k, 6, 9), Defined(f, (i,), 5 - i))
    assert judged(f[place], *conditions, relation="<=") is not Kind.PROVED
    assert judged(f[place], InRange(i, 0, 5), InRange(k, 0, 4), Defined(f, (i,), 10 + i)) in (Kind.PROVED, Kind.UNKNOWN)


def test_definitions_are_read_at_their_places() -> None:
    conditions = (InRange(i, 0, 5), Defined(f, (i,), 5 - i))
    assert sign(f[4], Context(conditions)) is Sign.POSITIVE
    assert sign(f[5], Context(conditions)) is Sign.NONNEGATIVE
    assert sign(f[6], Context(conditions)) is Sign.UNKNOWN
    assert sign(f[i], Context(conditions)) is Sign.NONNEGATIVE
    assert sign(sympy.Sum(f[j], (j, 0, 5)), Context(conditions)) is Sign.NONNEGATIVE
    assert sign(sympy.Sum(f[j], (j, 0, 6)), Context(conditions)) is Sign.UNKNOWN


def test_a_condition_on_the_free_index_says_nothing_of_a_definition() -> None:
    """False for x[0] = −5, i = 1, x[1] = 1."""
    conditions = (AtLeast(n, 2), InRange(i, 0, n - 1), Positive(x[i]), Defined(g, (i,), x[i]))
    assert judged(x[i] + g[0], *conditions) is not Kind.PROVED
    assert judged(x[i] + exp(g[0]), *conditions) is Kind.PROVED


def test_a_condition_is_not_captured_by_its_own_binder() -> None:
    """False for w = (1, 3), y = (2, −1) and x = −9."""
    stated = Positive(total(w[i] * y[j], j, n))
    assert judged(exp(x[j]) + total(w[j] * y[j], j, n), *ROW, stated) is not Kind.PROVED
    assert judged(exp(x[k]) + total(w[k] * y[j], j, n), *ROW, InRange(k, 0, n - 1), stated) is Kind.PROVED


def test_an_index_of_the_statement_in_a_condition_is_not_a_binder_of_its_name() -> None:
    """x_i > y_j is stated for the one j of the left side, not for every j."""
    stated = Positive(x[i] - y[j])
    inner = total(total(x[k] - y[j], k, n), j, n)
    assert judged(y[j] ** 2 + inner, *ROW, stated, relation="<=") is not Kind.PROVED
    assert judged(y[j] ** 2 + total(x[k] - y[j], k, n), *ROW, stated, relation="<=") is Kind.PROVED


def test_what_an_index_differs_from_is_not_a_binder_of_its_name() -> None:
    """x_i > 0 for i ≠ j, the one j of the statement: the sum over another j says nothing of that."""
    conditions = (*ROW, Distinct(i, j), Positive(x[i]))
    delta = sympy.KroneckerDelta
    away = total(total((1 - delta(k, j)) * x[k], k, n), j, n)
    assert judged(y[j] ** 2 + away, *conditions, relation="<=") is not Kind.PROVED
    assert judged(y[j] ** 2 + total((1 - delta(k, j)) * x[k], k, n), *conditions, relation="<=") is Kind.PROVED


def test_the_ends_of_a_stated_range_are_not_binders() -> None:
    conditions = (AtLeast(n, 1), InRange(j, 0, n - 1), InRange(i, 0, j), Positive(x[i]))
    inside = sympy.Sum(sympy.Sum(x[k], (k, 0, j)), (j, 0, n - 1))
    assert sign(inside, Context(conditions, frozenset({j}))) is Sign.UNKNOWN
    bound = Context((InRange(i, 0, j),), frozenset({i, j})).given((j, sympy.Integer(0), n - 1))
    assert minimum(j - i, bound) is None
    nested = Context(()).given((j, sympy.Integer(0), n)).given((k, sympy.Integer(0), j)).given((j, sympy.Integer(0), n))
    assert minimum(j - k, nested) is None


def test_an_order_of_indices_limits_what_a_condition_speaks_of() -> None:
    conditions = (AtLeast(n, 1), InRange(i, 0, n - 1), Ordered(0, i, m), Positive(x[i]))
    assert sign(total(x[k], k, n), Context(conditions)) is Sign.UNKNOWN


def test_a_certificate_brings_no_index_that_may_have_no_value() -> None:
    """0 < n is false at n = 0, where no i with 0 ≤ i < n exists."""
    certificate = exp(-s) * ((n - i) * exp(s) + i * exp(s))
    assert judged(n, InRange(i, 0, n - 1), certificate=certificate) is not Kind.PROVED
    assert judged(n, AtLeast(n, 1), InRange(i, 0, n - 1), certificate=certificate) is Kind.PROVED


@pytest.mark.parametrize("kind", ["range", "positive", "ordered", "certificate", "form", "rows", "side"])
def test_text_is_refused_and_never_run(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "run"
    text: Any = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    side = total(exp(x[l]) * l, l, n) + i
    conditions = {"range": InRange(i, 0, text), "positive": Positive(text), "ordered": Ordered(0, s, text)}
    base = (InRange(i, 0, n - 1), *([conditions[kind]] if kind in conditions else []))
    zero = sympy.Integer(0)
    one = Step(zero, side, "certified-difference", "<=", assumptions=base)
    if kind == "certificate":
        one = replace(one, data={kind: text})
    elif kind == "form":
        one = replace(one, lhs=sympy.Limit(s, s, 0), rule="limit-laws", relation="limit", data={kind: text})
    elif kind == "rows":
        data = {"rows": text, "columns": j, "left": x[i], "right": y[j], "inner": k}
        one = replace(one, rule="rank-factorisation", relation="rank", data=data)
    elif kind == "side":
        one = replace(derive.claim("saturation.maximum_large_sigma").steps[0], rhs=text)
    if kind == "range":
        one = replace(one, assumptions=(conditions["range"],))
    with pytest.raises(DeriveError):
        check_step(one)
    assert not mark.exists()


def test_an_unfamiliar_form_of_a_limit_is_not_refuted() -> None:
    """acosh(5/4) = log 2."""
    step = derive.claim("saturation.maximum_large_sigma").steps[0]
    assert (
        check_step(replace(step, rhs=step.rhs / sympy.log(2) * sympy.acosh(sympy.Rational(5, 4)))).kind is Kind.UNKNOWN
    )
    assert check_step(replace(step, rhs=2 * step.rhs)).kind is Kind.REFUTED


def test_a_limit_of_moments_is_refuted_by_numbers_only() -> None:
    one = derive.claim("moments.limit_fourth")
    step = one.steps[0]
    hidden = step.rhs / sympy.log(2) * sympy.acosh(sympy.Rational(5, 4))
    assert check_step(replace(step, rhs=hidden)).kind is Kind.UNKNOWN
    wrong = check_step(replace(step, rhs=step.rhs + 1))
    assert wrong.kind is Kind.REFUTED
    assert wrong.evidence["left"] != wrong.evidence["right"]


@pytest.mark.parametrize("dof", [-3, 0])
def test_student_needs_degrees_of_freedom(dof: int) -> None:
    with pytest.raises(InputError, match="above 0"):
        moments.student(dof)


@pytest.mark.parametrize("correlation", [3, -2, sympy.I])
def test_a_correlation_lies_between_its_bounds(correlation: Any) -> None:
    with pytest.raises(InputError, match=r"from -1 to 1|finite and real"):
        moments.correlated(("q", "k"), n, correlation=correlation)


def test_a_variance_is_not_minus_a_square() -> None:
    with pytest.raises(InputError, match="variance"):
        moments.gaussian(0, -(s**2))
    assert moments.gaussian(0, s**2).cumulant(2) == s**2
    assert moments.gaussian(0, 0).cumulant(2) == 0
