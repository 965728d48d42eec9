"""Signs from structure, and the certificates built on them: what is shown, and what must not be."""

import random
from typing import Any

import pytest
import sympy

from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne
from derive.inequalities import Context, Sign, minimum, nonempty, positive_denominators, sign
from derive.intervals import refute
from derive.language import array, index, scalar, size, total
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

n, m = size("n"), size("m")
i, j, k, a = (index(s) for s in "ijka")
x, y, keep, p = array("x", n), array("y", n), array("keep", n), array("p", n)
s, positive = scalar("s"), scalar("positive", positive=True)
exp, log, tanh = sympy.exp, sympy.log, sympy.tanh
delta = sympy.KroneckerDelta
BASE = (AtLeast(n, 1), InRange(i, 0, n - 1), ZeroOne(keep), Defined(p, (j,), exp(x[j])))

POSITIVE = {
    "exponential": exp(x[i]),
    "sum of exponentials": total(exp(x[j]), j, n),
    "sum up to an index": sympy.Sum(exp(x[j]), (j, 0, i)),
    "quotient": exp(x[i]) / total(exp(x[j]), j, n),
    "positive scalar": positive**2,
    "positive plus a square": positive + s**2,
    "a defined exponential": p[i],
    "1 + a size": 1 + n,
    "1 − tanh²": 1 - tanh(s) ** 2,
    "1 + tanh": 1 + tanh(s),
    "exp of more": exp(s + positive) - exp(s),
    "1 − e^(−positive)": 1 - exp(-positive),
    "product": sympy.Product(exp(x[j]), (j, 0, n - 1)),
}
NONNEGATIVE = {
    "square": (x[i] - s) ** 2,
    "sum of squares": total(x[j] ** 2, j, n),
    "sum over a range that may be empty": total(exp(x[j]), j, m),
    "mask": keep[i],
    "kept weights": total(keep[j] * exp(x[j]), j, n),
    "1 − δ": 1 - delta(i, a),
    "others' weights": total((1 - delta(j, a)) * exp(x[j]), j, n),
    "sum that may stop before it starts": sympy.Sum(exp(x[j]), (j, 0, i - 1)),
    "index": i,
    "size − 1 − index": n - 1 - i,
    "log of 1 + a square": log(1 + s**2),
    "root of a square": sympy.sqrt(total(x[j] ** 2, j, n)),
    "absolute value": sympy.Abs(s),
    "square times a size": n * s**2,
}
UNKNOWN = {
    "entry": x[i],
    "scalar": s,
    "negative": -exp(s),
    "difference": exp(s) - exp(x[i]),
    "cube": s**3,
    "sum of entries": total(x[j], j, n),
    "reciprocal of a square": 1 / s**2,
    "2 − size": 2 - n,
    "index − 1": i - 1,
    "1 − weight": 1 - exp(s),
    "tanh": tanh(s),
    "tanh² − 1": tanh(s) ** 2 - 1,
    "2δ − 1": 2 * delta(i, a) - 1,
    "1 − 2δ": 1 - 2 * delta(i, a),
    "log": log(exp(s) + 1) - log(2),
    "product of two unknowns": x[i] * s,
    "1 − mask twice": 1 - 2 * keep[i],
    "square root of an unknown": sympy.sqrt(s),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_positive(name: str) -> None:
    assert sign(POSITIVE[name], Context(BASE)) is Sign.POSITIVE


@pytest.mark.parametrize("name", NONNEGATIVE)
def test_nonnegative_but_no_more(name: str) -> None:
    assert sign(NONNEGATIVE[name], Context(BASE)) is Sign.NONNEGATIVE


@pytest.mark.parametrize("name", UNKNOWN)
def test_not_shown(name: str) -> None:
    assert sign(sympy.sympify(UNKNOWN[name]), Context(BASE)) is Sign.UNKNOWN


def test_an_empty_row_has_no_positive_sum() -> None:
    assert sign(total(exp(x[j]), j, n), Context(())) is Sign.NONNEGATIVE


def test_minima_follow_ranges() -> None:
    context = Context((AtLeast(n, 2), InRange(i, 1, n - 1), InRange(j, i, n - 1)))
    assert minimum(n - 1, context) == 1
    assert minimum(j - i, context) == 0
    assert minimum(n - j, context) == 1
    assert minimum(i - j, context) is None
    assert nonempty(i, j, context)
    assert not nonempty(sympy.Integer(0), m - 1, context)
    shadowed = context.given((i, sympy.Integer(-5), n - 1))
    assert minimum(i, shadowed) == -5


def test_a_binder_shadows_a_condition_on_its_name() -> None:
    """x_j > 0 is stated for j < n; a sum over j < m says nothing of it."""
    stated = Context((AtLeast(n), InRange(j, 0, n - 1), Positive(x[j])))
    assert sign(x[j], stated) is Sign.POSITIVE
    assert sign(total(x[j], j, n), stated) is Sign.POSITIVE
    assert sign(sympy.Sum(x[j], (j, 0, n)), stated) is Sign.UNKNOWN
    assert sign(total(x[k], k, n), stated) is Sign.POSITIVE
    assert sign(total(x[k + 1], k, n), stated) is Sign.UNKNOWN
    one = Context((AtLeast(n), InRange(j, 0, n - 1), Positive(x[j])), frozenset({j}))
    assert sign(x[j], one) is Sign.POSITIVE
    assert sign(total(x[k], k, n), one) is Sign.UNKNOWN  # j is one index of the statement
    assert sign(total(x[j], j, n), one) is Sign.UNKNOWN  # and this j is another


def test_distinctness_does_not_leak_into_inner_sums() -> None:
    inner = total((1 - delta(j, a)) * (x[a] - x[j]), j, n)
    given = (AtLeast(n), InRange(j, 0, n - 1), InRange(a, 0, n - 1), Distinct(j, a), Ordered(x[j], x[a], x[a]))
    context = Context(given, frozenset({a}))
    assert sign(inner, context) is Sign.NONNEGATIVE
    assert sign(total(x[a] - x[j], j, n), context) is Sign.UNKNOWN
    assert sign((1 - delta(j, a)) * total(x[a] - x[j], j, n), context) is Sign.UNKNOWN


def test_denominators_with_bound_indices_are_not_assumed() -> None:
    context = Context((AtLeast(n),))
    inside = total(1 / exp(x[j] ** 2), j, n) + 1 / total(exp(x[j]), j, n)
    assert {str(q) for q in positive_denominators(context, inside)} == {f"{total(exp(x[j]), j, n)} > 0"}


def step(lhs: Any, rhs: Any, certificate: Any = None, relation: str = "<=", assumptions: Any = BASE) -> Step:
    data = {} if certificate is None else {"certificate": certificate}
    lhs, rhs = sympy.sympify(lhs), sympy.sympify(rhs)
    return Step(lhs, rhs, "certified-difference", relation, assumptions=assumptions, data=data)  # type: ignore[arg-type]


CAUCHY = (total(x[j] * y[j], j, n) ** 2, total(x[j] ** 2, j, n) * total(y[j] ** 2, j, n))
LAGRANGE = sympy.Rational(1, 2) * total(total((x[j] * y[k] - x[k] * y[j]) ** 2, j, n), k, n)


def test_cauchy_schwarz_by_its_certificate() -> None:
    assert check_step(step(*CAUCHY, LAGRANGE)).is_proved


@pytest.mark.parametrize(
    ("lhs", "rhs", "certificate", "relation"),
    [
        (*CAUCHY, 2 * LAGRANGE, "<="),
        (*CAUCHY, -LAGRANGE, "<="),
        (*CAUCHY, None, "<="),
        (*CAUCHY, LAGRANGE, "<"),
        (CAUCHY[1], CAUCHY[0], LAGRANGE, "<="),
        (CAUCHY[1], CAUCHY[0], -LAGRANGE, "<="),
        (CAUCHY[0], CAUCHY[1] - 1, LAGRANGE, "<="),
        (*CAUCHY, total(total((x[j] * y[k] - x[k] * y[k]) ** 2, j, n), k, n) / 2, "<="),
        (exp(x[i]), 1 + x[i], None, "<="),
        (s, s**2, None, "<="),
    ],
)
def test_wrong_certificates_and_false_bounds_are_refused(lhs: Any, rhs: Any, certificate: Any, relation: str) -> None:
    assert check_step(step(lhs, rhs, certificate, relation)).kind in (Kind.UNKNOWN, Kind.REFUTED)


def test_a_false_bound_is_refuted_with_a_witness() -> None:
    verdict = check_step(step(CAUCHY[1], CAUCHY[0], LAGRANGE))
    assert verdict.kind is Kind.REFUTED
    assert "lies in" in str(verdict.evidence["witness"])


def test_other_relations_are_not_this_rules() -> None:
    assert check_step(step(x[i], x[i], None, "=")).kind is Kind.UNKNOWN


def random_expression(rng: random.Random, depth: int, scope: tuple[Any, ...]) -> Any:
    """Something whose sign may or may not follow from its structure: subtractions and odd powers among squares."""
    leaves = ("entry", "mask", "delta", "one", "scalar", "index")
    nodes = ("square", "exp", "sum", "triangle", "add", "subtract", "mul", "apart", "quotient", "gap", "cube", "root")
    kind = rng.choice((*nodes, "entry") if depth else leaves)
    at = rng.choice(scope)

    def below(*more: Any) -> Any:
        return random_expression(rng, depth - 1, (*scope, *more))

    fresh = index(f"b{depth}{rng.randrange(10**6)}")
    return {
        "entry": lambda: x[at],
        "mask": lambda: keep[at],
        "delta": lambda: delta(at, rng.choice(scope)),
        "one": lambda: sympy.Integer(rng.choice((1, 2, -1))),
        "scalar": lambda: rng.choice((s, positive)),
        "index": lambda: at,
        "square": lambda: below() ** 2,
        "exp": lambda: exp(x[at] * rng.choice((1, -1))),
        "sum": lambda: total(below(fresh), fresh, n),
        "triangle": lambda: sympy.Sum(below(fresh), (fresh, 0, at)),
        "add": lambda: below() + below(),
        "subtract": lambda: below() - below(),
        "mul": lambda: below() * below(),
        "apart": lambda: (1 - delta(at, rng.choice(scope))) * below(),
        "quotient": lambda: below() / (1 + x[at] ** 2),
        "gap": lambda: exp(x[at]) - exp(x[at] - rng.choice((positive, s, s**2))),
        "cube": lambda: below() ** 3,
        "root": lambda: sympy.sqrt(x[at] ** 2 + 1) * below(),
    }[kind]()


def test_no_sign_is_claimed_that_intervals_refute() -> None:
    """Three hundred random expressions: whatever is said to be ≥ 0 or > 0 is so wherever it is looked at."""
    rng = random.Random(20260801)
    claimed = {Sign.POSITIVE: 0, Sign.NONNEGATIVE: 0, Sign.UNKNOWN: 0}
    for _ in range(300):
        expr = sympy.sympify(random_expression(rng, rng.randint(1, 3), (i, a)))
        conditions = (*BASE, InRange(a, 0, n - 1))
        answer = sign(expr, Context(conditions, frozenset({i, a})))
        claimed[answer] += 1
        if answer is not Sign.UNKNOWN:
            relation = "<" if answer is Sign.POSITIVE else "<="
            assert refute(sympy.Integer(0), expr, relation, conditions, draws=12) is None, f"{expr} is no {answer.name}"
    assert all(count >= 30 for count in claimed.values()), claimed
