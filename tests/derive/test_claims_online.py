"""The online family: proved, its mutants refused, its side conditions needed."""

import math

import pytest

from derive.assumptions import AtLeast, Ordered
from derive.catalogue import claim
from derive.families import online
from derive.verdict import Kind
from tests.derive.claim_checks import assert_mutants_refused, assert_proved, ids, without


@pytest.mark.parametrize("claim_id", ids("online"))
def test_proved(claim_id: str) -> None:
    assert_proved(claim(claim_id))


@pytest.mark.parametrize("claim_id", ids("online"))
def test_mutants_are_refused(claim_id: str) -> None:
    assert_mutants_refused(claim(claim_id))


@pytest.mark.parametrize("claim_id", ["merge", "merge_values", "output", "lse_merge", "output_from_blocks"])
def test_the_split_must_lie_in_the_range(claim_id: str) -> None:
    one = claim(f"online.{claim_id}")
    (order,) = [a for a in one.assumptions if isinstance(a, Ordered)]
    assert not without(one, order).is_proved


@pytest.mark.parametrize("claim_id", ["lse_merge", "output_from_blocks"])
def test_the_first_block_must_not_be_empty(claim_id: str) -> None:
    assert not without(claim(f"online.{claim_id}"), AtLeast(online.h, 1)).is_proved


@pytest.mark.parametrize("claim_id", ["lse", "output"])
def test_the_row_must_not_be_empty(claim_id: str) -> None:
    assert not without(claim(f"online.{claim_id}"), AtLeast(online.n, 1)).is_proved


def test_the_shift_must_bound_the_scores() -> None:
    one = claim("online.shift_above")
    (order,) = [a for a in one.assumptions if isinstance(a, Ordered)]
    assert without(one, order).kind is Kind.REFUTED


def test_empty_states_in_ieee_arithmetic() -> None:
    """What the note of online.neutral says: merging two empty states from μ = −∞ makes a NaN, one does not."""
    empty = float("-inf")
    assert math.isnan(empty - max(empty, empty))
    assert math.exp(empty - max(empty, 1.0)) == 0.0
