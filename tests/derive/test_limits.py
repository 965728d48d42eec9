"""The laws of limits: where they apply, and where they must not."""

from typing import Any

import pytest
import sympy

from derive.assumptions import AtLeast, InRange, Positive
from derive.inequalities import Context
from derive.language import array, index, scalar, size, total
from derive.limits import limit_of
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

n = size("n")
i, j = index("i"), index("j")
x, gap = array("x", n), array("gap", n)
B, s, b = scalar("B"), scalar("s"), scalar("b", positive=True)
exp, tanh, oo = sympy.exp, sympy.tanh, sympy.oo
CONTEXT = Context((AtLeast(n, 1), InRange(j, 0, n - 1), Positive(gap[j])))

KNOWN = {
    "exp(−B)": (exp(-B), oo, 0),
    "exp(s − bB)": (exp(s - b * B), oo, 0),
    "sum": (s + exp(-B), oo, s),
    "decay under a sum": (total(x[j] * exp(-B * gap[j]), j, n), oo, total(0, j, n)),
    "quotient": (1 / (1 + exp(-B)), oo, 1),
    "tanh": (tanh(b * B), oo, 1),
    "reciprocal": (s / B, oo, 0),
    "continuity": (exp(B * s) + tanh(B) + B**2, sympy.Integer(0), 1),
    "log": (sympy.log(1 + exp(-B)), oo, 0),
    "no variable": (s**2, oo, s**2),
}
UNSETTLED = {
    "growth": (exp(B), oo),
    "unknown sign": (exp(-s * B), oo),
    "unknown sign under a sum": (total(exp(-B * x[j]), j, n), oo),
    "0/0": (B / B**2, sympy.Integer(0)),
    "1/0": (1 / B, sympy.Integer(0)),
    "∞ − ∞": (B - B**2, oo),
    "0 · ∞": (B * exp(-B), oo),
    "log of 0": (sympy.log(exp(-B)) + sympy.log(s * exp(-B)), oo),
    "denominator of unknown sign": (1 / (s + exp(-B)), oo),
    "a range that grows": (sympy.Sum(exp(-j), (j, 0, B)), oo),
    "quadratic exponent": (exp(-(B**2) + B), oo),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_limits(name: str) -> None:
    expr, point, value = KNOWN[name]
    assert limit_of(expr, B, point, CONTEXT) == value


@pytest.mark.parametrize("name", UNSETTLED)
def test_what_the_laws_do_not_settle(name: str) -> None:
    expr, point = UNSETTLED[name]
    assert limit_of(expr, B, point, CONTEXT) is None


def step(expr: Any, value: Any, form: Any = None, point: Any = oo) -> Step:
    data = {} if form is None else {"form": form}
    limit = sympy.Limit(expr, B, point, "-" if point is oo else "+-")
    return Step(limit, sympy.sympify(value), "limit-laws", "limit", assumptions=CONTEXT.assumptions, data=data)


LOGISTIC = exp(s + B) / (exp(s + B) + exp(s))


def test_the_form_must_equal_the_expression() -> None:
    assert check_step(step(LOGISTIC, 1, 1 / (1 + exp(-B)))).is_proved
    assert check_step(step(LOGISTIC, 1)).kind is Kind.UNKNOWN  # ∞/∞ as it stands
    wrong = check_step(step(LOGISTIC, 1, 1 / (1 + 2 * exp(-B))))  # of a limit that is true
    assert wrong.kind is Kind.UNKNOWN
    assert "form" in wrong.scope
    assert check_step(step(LOGISTIC, 0, exp(-B))).kind is Kind.UNKNOWN


def test_a_wrong_value_is_refuted() -> None:
    assert check_step(step(LOGISTIC, sympy.Rational(1, 2), 1 / (1 + exp(-B)))).kind is Kind.REFUTED
    assert check_step(step(LOGISTIC, s, 1 / (1 + exp(-B)))).kind is Kind.REFUTED


def test_a_statement_that_is_no_limit_is_refused() -> None:
    from dataclasses import replace

    one = step(LOGISTIC, 1, 1 / (1 + exp(-B)))
    assert check_step(replace(one, relation="=")).kind is Kind.UNKNOWN
    assert check_step(replace(one, lhs=LOGISTIC)).kind is Kind.UNKNOWN
