"""The softmax family: proved, its mutants refused, its side conditions needed."""

from dataclasses import replace

import pytest
import sympy

from derive.assumptions import AtLeast, Ordered, Positive
from derive.catalogue import claim
from derive.families import softmax
from derive.inequalities import Context, Sign, sign
from derive.intervals import refute
from derive.rules import check_step
from derive.verdict import Kind
from tests.derive.claim_checks import assert_mutants_refused, assert_proved, ids, without


@pytest.mark.parametrize("claim_id", ids("softmax"))
def test_proved(claim_id: str) -> None:
    assert_proved(claim(claim_id))


@pytest.mark.parametrize("claim_id", ids("softmax"))
def test_mutants_are_refused(claim_id: str) -> None:
    assert_mutants_refused(claim(claim_id))


@pytest.mark.parametrize("claim_id", ["rows_sum", "trace", "entropy"])
def test_the_row_must_not_be_empty(claim_id: str) -> None:
    """Where a free index runs over the row, its range says so already; these have none."""
    assert not without(claim(f"softmax.{claim_id}"), AtLeast(softmax.n, 1)).is_proved


def test_an_empty_row_refutes_that_the_weights_sum_to_one() -> None:
    one = claim("softmax.rows_sum")
    witness = refute(one.lhs, one.rhs, "=", (softmax.WEIGHTS,))
    assert witness is not None
    assert dict(witness.sizes) == {"n": 0}


@pytest.mark.parametrize("claim_id", ["rest_by_gap", "saturation"])
def test_the_gap_must_be_one(claim_id: str) -> None:
    one = claim(f"softmax.{claim_id}")
    order = next(a for a in one.assumptions if isinstance(a, Ordered))
    assert without(one, order).kind is Kind.REFUTED


def test_zero_temperature_needs_a_top_score_and_lower_ones_below_it() -> None:
    one = claim("softmax.zero_temperature")
    needed = [a for a in one.assumptions if isinstance(a, Positive)]
    assert len(needed) == 3
    for condition in needed:
        assert without(one, condition).kind is Kind.UNKNOWN


def test_an_index_of_the_statement_is_no_universal_one() -> None:
    """x_a leads every other score; that says nothing of another index in the place of a."""
    one = claim("softmax.rest_by_gap")
    context = Context.of(one.steps[0])
    i, j, a, g, x = softmax.i, softmax.j, softmax.a, softmax.g, softmax.x
    apart = replace(context.given((i, 0, softmax.n - 1)), distinct=((i, a), (i, j)))
    assert sign(x[a] - x[i] - g, apart) is Sign.NONNEGATIVE
    assert sign(x[i] - x[j] - g, apart) is Sign.UNKNOWN
    assert sign(x[a] - x[i] - g, context.given((i, 0, softmax.n - 1))) is Sign.UNKNOWN
    assert sign(x[a] - x[i] - g, replace(context.given((i, 0, softmax.n)), distinct=((i, a),))) is Sign.UNKNOWN


def test_one_over_n_is_no_bound_but_a_half_is() -> None:
    """The constant 1/2 is sharp: 0.49 is refuted with a witness."""
    step = claim("softmax.largest_eigenvalue").steps[0]
    tighter = replace(step, rhs=sympy.Rational(49, 100) * softmax.SQUARES)
    assert check_step(tighter).kind is Kind.REFUTED
