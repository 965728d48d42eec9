"""The heads family: proved, its mutants refused, its side conditions needed."""

from dataclasses import replace

import pytest
import sympy

from derive.assumptions import AtLeast, Distinct
from derive.catalogue import claim
from derive.families import heads
from derive.rules import check_step
from derive.verdict import Kind
from tests.derive.claim_checks import assert_mutants_refused, assert_proved, ids, without


@pytest.mark.parametrize("claim_id", ids("heads"))
def test_proved(claim_id: str) -> None:
    assert_proved(claim(claim_id))


@pytest.mark.parametrize("claim_id", ids("heads"))
def test_mutants_are_refused(claim_id: str) -> None:
    assert_mutants_refused(claim(claim_id))


@pytest.mark.parametrize("claim_id", ["isolated_q", "isolated_k", "isolated_v"])
def test_the_other_head_must_be_another(claim_id: str) -> None:
    assert without(claim(f"heads.{claim_id}"), Distinct(heads.a, heads.g)).kind is Kind.REFUTED


@pytest.mark.parametrize("claim_id", ["isolated_q", "grouped_key_gradient"])
def test_heads_need_channels(claim_id: str) -> None:
    """1/√d_k and a row of no keys are undefined; a free index of either says the same."""
    one = claim(f"heads.{claim_id}")
    assert AtLeast(heads.d_k, 1) in one.assumptions
    assert AtLeast(heads.m, 1) in one.assumptions


def test_a_grouped_value_needs_its_group_sum() -> None:
    """The gradient of the first member alone is refuted."""
    step = claim("heads.grouped_value_gradient").steps[0]
    first = sympy.Sum(step.rhs.function.xreplace({heads.e: sympy.Integer(0)}), step.rhs.limits[0])
    members = (*step.assumptions, AtLeast(heads.g_q, 1))
    assert check_step(replace(step, rhs=first, assumptions=members)).kind is Kind.REFUTED
