"""The families projections, scores, scaling, output, gradients: proved; each checker alone refuses their mutants."""

import dataclasses

import pytest

from derive.assumptions import AtLeast, Positive
from derive.catalogue import Claim, check_chain, claim
from derive.errors import StatementError
from derive.families._attention import Attention, d_k, m, n
from derive.prover import first_checker, second_checker
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind
from tests.derive.claim_checks import MUTANTS, ids, without
from tests.derive.mutants import mutated_steps, verdict_on

FAMILIES = ("projections", "scores", "scaling", "output", "gradients")
IDS = [one for family in FAMILIES for one in ids(family)]
# Chains whose last step is an inequality or a rank are put through their own rule below.
EQUALITIES = [one for one in IDS if claim(one).relation == "="]


@pytest.mark.parametrize("claim_id", IDS)
def test_proved(claim_id: str) -> None:
    one = claim(claim_id)
    assert check_chain(one) is None
    assert one.title["en"] != ""
    assert any(ord(ch) > 0x2FF for ch in one.title["ja"])
    assert one.source.year > 1900
    verdict = one.prove()
    assert verdict.is_proved, str(verdict)


CONDITIONS = [
    ("output.weights_sum", AtLeast(m, 1)),
    ("output.constant_values", AtLeast(m, 1)),
    ("output.linear_in_values", AtLeast(d_k, 1)),
    ("scaling.queries", AtLeast(d_k, 1)),
    ("scaling.variance_free", AtLeast(d_k, 1)),
    ("scaling.split", AtLeast(d_k, 1)),
]


@pytest.mark.parametrize(("claim_id", "condition"), CONDITIONS)
def test_the_condition_is_needed(claim_id: str, condition: AtLeast) -> None:
    """A row that may be empty, or a d_k that may be 0: the claim is no longer proved."""
    assert without(claim(claim_id), condition).kind in (Kind.UNKNOWN, Kind.REFUTED)


def test_the_convex_hull_needs_the_level_above_the_values() -> None:
    one = claim("output.convex_hull")
    level = next(a for a in one.assumptions if isinstance(a, Positive))
    assert without(one, level).kind in (Kind.UNKNOWN, Kind.REFUTED)


def test_mutants_of_the_convex_hull_are_refused() -> None:
    one = claim("output.convex_hull")
    variants = mutated_steps(end_to_end_bound(one), MUTANTS)
    assert len(variants) >= MUTANTS
    for name, step in variants:
        assert not verdict_on(step).is_proved, name


def end_to_end_bound(one: Claim) -> Claim:
    """The bound alone, z·w < h, under the rule that has the certificate."""
    step = one.steps[-1]
    whole = dataclasses.replace(step, lhs=one.lhs, rhs=one.rhs)
    assert check_step(whole).is_proved
    return dataclasses.replace(one, steps=(whole,))


def test_a_rank_below_that_of_the_factors_is_refused() -> None:
    step = claim("scores.rank").steps[0]
    for wrong in (d_k - 1, n, m, d_k + 1, 2 * d_k, d_k**2, n - 1, m - 1):
        assert not verdict_on(dataclasses.replace(step, rhs=wrong)).is_proved


def test_a_rank_needs_factors_without_the_other_index() -> None:
    step = claim("scores.rank").steps[0]
    layer = Attention(m)
    row, column, inner = step.data["rows"], step.data["columns"], step.data["inner"]
    both = {**step.data, "left": layer.Q[row, inner] * layer.K[column, inner], "right": 1 + 0 * layer.K[column, inner]}
    assert check_step(dataclasses.replace(step, data=both)).kind is Kind.UNKNOWN


def end_to_end(one: Claim) -> Claim:
    """The claim as a single step from its left side to its right side: what a mutant of the statement is put into."""
    step = one.steps[0]
    whole = Step(one.lhs, one.rhs, step.rule, assumptions=one.assumptions, data=step.data, premises=step.premises)
    return dataclasses.replace(one, steps=(whole,))


@pytest.mark.parametrize("claim_id", EQUALITIES)
def test_each_checker_alone_refuses_the_mutants(claim_id: str) -> None:
    one = claim(claim_id)
    variants = mutated_steps(end_to_end(one), MUTANTS, where="rhs")
    if len(variants) < MUTANTS:  # a right side of 0 has few mutants; the last step has the rest
        variants += mutated_steps(one, MUTANTS)
    assert len(variants) >= MUTANTS, [name for name, _ in variants]
    for name, step in variants:
        assert not accepted_by_the_normal_form(step), f"{name}: {step.lhs} = {step.rhs}"
        assert not accepted_by_arithmetic(step), f"{name}: {step.lhs} = {step.rhs}"


def accepted_by_the_normal_form(step: Step) -> bool:
    try:
        return first_checker(step.lhs, step.rhs, step.assumptions).zero
    except StatementError:
        return False


def accepted_by_arithmetic(step: Step) -> bool:
    try:
        return second_checker(step.lhs, step.rhs, step.assumptions).agrees
    except StatementError:
        return False
