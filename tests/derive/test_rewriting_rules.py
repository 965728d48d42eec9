"""Induction over steps, equals for equals, flat indices, angles: each rule against statements it must refuse."""

from dataclasses import replace
from typing import Any

import pytest
import sympy

from derive.assumptions import AtLeast, Defined, InRange, Positive, ZeroOne
from derive.catalogue import claim
from derive.errors import StatementError
from derive.families import recurrence, residual
from derive.language import Diff, array, index, scalar, size, total
from derive.recursions import Recursion
from derive.rules import check_step, rules
from derive.step import Step
from derive.trigonometry import opened
from derive.verdict import Kind

n, L, h, d = size("n"), size("L"), size("h"), size("d")
i, j, k, l, t, g, c, u = (index(s) for s in "ijkltgcu")
x, y = array("x", n), array("y", n)
exp, cos, sin = sympy.exp, sympy.cos, sympy.sin


def test_every_rule_says_why_it_is_sound() -> None:
    for name in (
        "certified-difference", "limit-laws", "telescoping", "iterated-chain-rule", "iterated-factors", "iterated-sum",
        "iterated-bound", "equals-for-equals", "flat-index", "angle-addition",
    ):  # fmt: skip
        assert "Sound" in (rules()[name].__doc__ or "")


def changed(claim_id: str, number: int = 0, **changes: Any) -> Step:
    return replace(claim(claim_id).steps[number], **changes)


def redefined(one: Step, array_: Any, body: Any) -> Step:
    """The step with another body for one of its definitions."""
    swap = tuple(
        replace(a, body=body(a)) if isinstance(a, Defined) and a.array == array_ else a for a in one.assumptions
    )
    assert swap != one.assumptions
    return replace(one, assumptions=swap)


def second_case(defined: Defined, new: Any) -> Any:
    return sympy.Piecewise(defined.body.args[0], (new, True))


def test_a_skip_to_the_first_state_is_no_product() -> None:
    """h_t = W h_(t−1) + u: the total derivative is more than the product of Jacobians."""
    one = claim("recurrence.linear_product").steps[0]
    skip = redefined(one, recurrence.h, lambda a: second_case(a, a.body.args[1].expr + recurrence.u[i]))
    assert check_step(skip).kind is Kind.UNKNOWN


def test_a_gate_that_reads_the_state_is_no_fixed_gate() -> None:
    """The forget gate as an abbreviation of the state before: its own derivative is missing from the product."""
    one = claim("recurrence.lstm_cell_path").steps[0]
    cell, gate = array("c", recurrence.L + 1, recurrence.d), array("f", recurrence.L + 1, recurrence.d)
    hidden = Defined(gate, (t, i), sympy.tanh(cell[t - 1, i]))
    assert check_step(replace(one, assumptions=(*one.assumptions, hidden))).kind is Kind.UNKNOWN


def test_a_recursion_may_not_read_two_steps_back() -> None:
    one = claim("recurrence.linear_product").steps[0]
    back = redefined(one, recurrence.h, lambda a: second_case(a, a.body.args[1].expr + recurrence.h[t - 2, i]))
    with pytest.raises(StatementError, match="elsewhere than at t - 1"):
        check_step(back)


@pytest.mark.parametrize(
    "change",
    [
        {"rhs": recurrence.P[L, j, i]},
        {"rhs": recurrence.P[L - 1, i, j]},
        {"rhs": recurrence.P[L, i, i]},
        {"lhs": Diff(recurrence.h[L, j], recurrence.u[j])},
        {"lhs": Diff(recurrence.h[L - 1, i], recurrence.u[j])},
        {"lhs": Diff(recurrence.h[L, i], recurrence.u[i])},
        {"lhs": Diff(recurrence.h[L, i], recurrence.v[j])},
    ],
    ids=str,
)
def test_the_product_must_be_read_at_the_right_place(change: dict[str, Any]) -> None:
    assert check_step(changed("recurrence.linear_product", **change)).kind is Kind.UNKNOWN


def test_the_product_must_multiply_from_the_left() -> None:
    one = claim("recurrence.linear_product").steps[0]
    W, P = recurrence.W, recurrence.P
    right = total(P[t - 1, recurrence.i, recurrence.k] * W[recurrence.k, recurrence.j], recurrence.k, recurrence.d)
    assert check_step(redefined(one, P, lambda a: second_case(a, right))).kind is Kind.UNKNOWN


def test_a_wrong_jacobian_is_refused() -> None:
    data = claim("recurrence.tanh_product").steps[0].data
    lost = {**data, "jacobian": lambda at, row, column: recurrence.W[row, column]}
    assert check_step(changed("recurrence.tanh_product", data=lost)).kind is Kind.UNKNOWN


def test_an_undefined_sequence_is_an_error() -> None:
    one = claim("recurrence.linear_product").steps[0]
    with pytest.raises(StatementError, match="do not define"):
        check_step(replace(one, assumptions=one.assumptions[:2]))
    twice = replace(one, assumptions=(*one.assumptions, *one.assumptions))
    with pytest.raises(StatementError):
        check_step(twice)


def test_a_first_case_must_be_at_zero() -> None:
    one = claim("recurrence.linear_product").steps[0]
    late = redefined(
        one, recurrence.h, lambda a: sympy.Piecewise((recurrence.u[i], sympy.Eq(t, 1)), (a.body.args[1].expr, True))
    )
    with pytest.raises(StatementError, match="first case"):
        Recursion.of(late, "state")


def test_factors_of_the_wrong_time_are_refused() -> None:
    one = claim("recurrence.lstm_cell_path").steps[1]
    f = array("f", recurrence.L + 1, recurrence.d)
    early = {**one.data, "factor": lambda at: f[at - 1, recurrence.i]}
    rhs = sympy.KroneckerDelta(recurrence.i, recurrence.j) * sympy.Product(
        f[recurrence.t - 1, recurrence.i], (recurrence.t, 1, recurrence.L)
    )
    assert check_step(replace(one, data=early, rhs=rhs)).kind is Kind.UNKNOWN
    assert check_step(replace(one, rhs=2 * one.rhs)).kind is Kind.UNKNOWN


def test_a_bound_that_one_step_breaks_is_refused() -> None:
    one = claim("recurrence.linear_norm").steps[0]
    square = one.data["factor"](t)
    smaller = {**one.data, "factor": lambda at: square / 2}
    norm = total(recurrence.v[recurrence.i] ** 2, recurrence.i, recurrence.d)
    rhs = norm * sympy.Product(square / 2, (recurrence.t, 1, recurrence.L))
    assert check_step(replace(one, data=smaller, rhs=rhs)).kind is Kind.UNKNOWN
    negative = {**one.data, "factor": lambda at: -square}
    rhs = norm * sympy.Product(-square, (recurrence.t, 1, recurrence.L))
    assert check_step(replace(one, data=negative, rhs=rhs)).kind is Kind.UNKNOWN


def test_an_increment_must_be_all_of_it() -> None:
    one = claim("residual.stack_expanded").steps[0]
    assert check_step(replace(one, rhs=one.rhs - sympy.KroneckerDelta(residual.i, residual.j))).kind is Kind.UNKNOWN
    doubled = {**one.data, "increment": lambda at: 2 * one.data["increment"](at)}
    rhs = sympy.KroneckerDelta(residual.i, residual.j) + sympy.Sum(
        2 * one.data["increment"](residual.t), (residual.t, 1, residual.L)
    )
    assert check_step(replace(one, data=doubled, rhs=rhs)).kind is Kind.UNKNOWN


def telescoped(term: Any, rhs: Any, primitive: Any) -> Step:
    terms = sympy.Sum(term, (l, 0, L - 1))
    return Step(terms, rhs, "telescoping", assumptions=(AtLeast(h, 1),), data={"primitive": primitive})


def test_telescoping() -> None:
    assert check_step(telescoped(l, L * (L - 1) / 2, l * (l - 1) / 2)).is_proved
    assert check_step(telescoped((h - 1) * h**l, h**L - 1, h**l)).is_proved
    assert not check_step(telescoped(l, L * (L + 1) / 2, l * (l + 1) / 2)).is_proved
    assert not check_step(telescoped(l, L * (L - 1) / 2 + 1, l * (l - 1) / 2)).is_proved
    assert not check_step(telescoped(h**l, h**L - 1, h**l)).is_proved
    assert not check_step(telescoped((h - 1) * h ** (l + 1), h**L - 1, h**l)).is_proved
    with pytest.raises(StatementError, match="constant in the exponent"):
        check_step(telescoped(h ** (2 * l), h**L - 1, h**l))


def replacing(lhs: Any, rhs: Any, old: Any, new: Any, *assumptions: Any) -> Step:
    return Step(lhs, rhs, "equals-for-equals", assumptions=assumptions, data={"old": old, "new": new})


def test_equals_for_equals() -> None:
    whole, square = total(x[j], j, n) ** 2, total(total(x[j] * x[k], j, n), k, n)
    positive = (AtLeast(n), Positive(whole), Positive(square))
    assert check_step(replacing(exp(whole), exp(square), whole, square, *positive)).is_proved
    other = total(x[j] ** 2, j, n)
    assert check_step(replacing(exp(whole), exp(other), whole, other, AtLeast(n))).kind is Kind.REFUTED
    assert check_step(replacing(exp(whole), exp(square) + 1, whole, square, AtLeast(n))).kind is Kind.UNKNOWN


def test_nothing_is_replaced_where_a_sum_binds_it() -> None:
    """x_j = y_j at one j says nothing of the j that a sum binds."""
    at = (AtLeast(n), InRange(j, 0, n - 1), Defined(y, (k,), x[k]))
    good = replacing(x[j] ** 2, y[j] ** 2, x[j], y[j], *at)
    assert check_step(good).is_proved
    bound = replacing(total(x[j] ** 2, j, n), total(y[j] ** 2, j, n), x[j], y[j], *at)
    assert check_step(bound).kind is Kind.UNKNOWN


def test_nothing_is_replaced_inside_a_derivative() -> None:
    """keep² = keep for a mask; their derivatives differ."""
    mask = array("keep", n)
    at = (AtLeast(n), InRange(j, 0, n - 1), ZeroOne(mask))
    assert check_step(replacing(1 + mask[j] ** 2, 1 + mask[j], mask[j] ** 2, mask[j], *at)).is_proved
    inside = Diff(mask[j] ** 2, mask[j]), Diff(mask[j], mask[j])
    assert check_step(replacing(*inside, mask[j] ** 2, mask[j], *at)).kind is Kind.UNKNOWN


def flat(lhs: Any, rhs: Any) -> Step:
    return Step(lhs, rhs, "flat-index", assumptions=(AtLeast(d, 1),))


def test_flat_indices() -> None:
    a, b = array("a", h * d), array("b", h, d)
    single = sympy.Sum(a[u] * b[sympy.floor(u / d), sympy.Mod(u, d)], (u, 0, h * d - 1))
    body = a[g * d + c] * b[g, c]
    assert check_step(flat(single, sympy.Sum(body, (c, 0, d - 1), (g, 0, h - 1)))).is_proved
    for wrong in (
        sympy.Sum(body, (c, 0, h - 1), (g, 0, d - 1)),
        sympy.Sum(a[c * h + g] * b[g, c], (c, 0, d - 1), (g, 0, h - 1)),
        sympy.Sum(a[g * d + c] * b[c, g], (c, 0, d - 1), (g, 0, h - 1)),
        sympy.Sum(body, (c, 1, d - 1), (g, 0, h - 1)),
        sympy.Sum(body, (c, 0, d - 1), (g, 0, h - 2)),
        sympy.Sum(2 * body, (c, 0, d - 1), (g, 0, h - 1)),
        sympy.Sum(body, (c, 0, g), (g, 0, h - 1)),
    ):
        assert check_step(flat(single, wrong)).kind is Kind.UNKNOWN
    captured = sympy.Sum(a[u] * total(x[c], c, n) * b[sympy.floor(u / d), 0], (u, 0, h * d - 1))
    reading = sympy.Sum(a[g * d + c] * total(x[c], c, n) * b[g, 0], (c, 0, d - 1), (g, 0, h - 1))
    assert check_step(flat(captured, reading)).kind is Kind.UNKNOWN


ALPHA, BETA = scalar("alpha"), scalar("beta")
ANGLES = {
    "sine of a sum": (sin(ALPHA + BETA), sin(ALPHA) * cos(BETA) + cos(ALPHA) * sin(BETA)),
    "cosine of a difference": (cos(ALPHA - BETA), cos(ALPHA) * cos(BETA) + sin(ALPHA) * sin(BETA)),
    "double angle": (sin(2 * ALPHA), 2 * sin(ALPHA) * cos(ALPHA)),
    "triple angle": (cos(3 * ALPHA), 4 * cos(ALPHA) ** 3 - 3 * cos(ALPHA)),
    "Pythagoras": (cos(ALPHA) ** 4 - sin(ALPHA) ** 4, 1 - 2 * sin(ALPHA) ** 2),
    "odd": (sin(BETA - ALPHA), -sin(ALPHA - BETA)),
}
WRONG_ANGLES = {
    "sign": (cos(ALPHA - BETA), cos(ALPHA) * cos(BETA) - sin(ALPHA) * sin(BETA)),
    "sum of sines": (sin(ALPHA + BETA), sin(ALPHA) + sin(BETA)),
    "swapped": (sin(ALPHA + BETA), sin(ALPHA) * sin(BETA) + cos(ALPHA) * cos(BETA)),
    "double angle": (sin(2 * ALPHA), 2 * sin(ALPHA)),
    "Pythagoras": (cos(ALPHA) ** 2 - sin(ALPHA) ** 2, sympy.Integer(1)),
    "odd": (sin(BETA - ALPHA), sin(ALPHA - BETA)),
    "half": (cos(ALPHA / 2), cos(ALPHA) / 2),
}


@pytest.mark.parametrize("name", ANGLES)
def test_addition_theorems(name: str) -> None:
    lhs, rhs = ANGLES[name]
    assert check_step(Step(lhs, rhs, "angle-addition")).is_proved


@pytest.mark.parametrize("name", WRONG_ANGLES)
def test_wrong_addition_theorems_are_refuted(name: str) -> None:
    lhs, rhs = WRONG_ANGLES[name]
    assert check_step(Step(lhs, rhs, "angle-addition")).kind is Kind.REFUTED


def test_opening_leaves_bound_angles_bound() -> None:
    theta = array("theta", n)
    inside = total(sin(2 * theta[j]) * x[j], j, n)
    assert opened(inside) == total(sympy.expand(2 * sin(theta[j]) * cos(theta[j]) * x[j]), j, n)
