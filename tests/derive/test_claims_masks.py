"""The masks family: proved, its mutants refused, its side conditions needed."""

from dataclasses import replace

import pytest
import sympy

from derive.assumptions import AtLeast, InRange, Positive
from derive.catalogue import claim
from derive.families import masks
from derive.rules import check_step
from derive.verdict import Kind
from tests.derive.claim_checks import assert_mutants_refused, assert_proved, ids, without
from tests.derive.mutants import verdict_on


@pytest.mark.parametrize("claim_id", ids("masks"))
def test_proved(claim_id: str) -> None:
    assert_proved(claim(claim_id))


@pytest.mark.parametrize("claim_id", ids("masks"))
def test_mutants_are_refused(claim_id: str) -> None:
    assert_mutants_refused(claim(claim_id))


@pytest.mark.parametrize("claim_id", ["removed_key", "renormalised", "no_gradient", "additive_limit"])
def test_a_row_of_masked_keys_is_undefined(claim_id: str) -> None:
    one = claim(f"masks.{claim_id}")
    (left,) = [a for a in one.assumptions if isinstance(a, Positive)]
    assert not without(one, left).is_proved


def test_the_future_must_be_later() -> None:
    one = claim("masks.causal_no_future")
    later = next(a for a in one.assumptions if isinstance(a, InRange) and a.index == masks.b)
    steps = [replace(s, assumptions=tuple(InRange(masks.b, 0, masks.n - 1) if a == later else a for a in s.assumptions))
             for s in one.steps]  # fmt: skip
    assert all(check_step(s).kind is Kind.REFUTED for s in steps)


def test_a_window_must_not_reach_before_the_first_key() -> None:
    one = claim("masks.window")
    inside = next(a for a in one.assumptions if isinstance(a, InRange) and a.index == masks.i)
    step = one.steps[0]
    wider = tuple(InRange(masks.i, 0, masks.n - 1) if a == inside else a for a in step.assumptions)
    assert not verdict_on(replace(step, assumptions=wider)).is_proved


@pytest.mark.parametrize("claim_id", ["sink_output", "sink_limit", "softcap_gradient", "causal_top_left"])
def test_the_row_must_not_be_empty(claim_id: str) -> None:
    one = claim(f"masks.{claim_id}")
    kept = [a for a in one.assumptions if isinstance(a, AtLeast)]
    assert kept == [AtLeast(masks.n, 1)]
    free = any(isinstance(a, InRange) and a.upper == masks.n - 1 for a in one.assumptions)
    # A free index of the row says so as well: only where there is none can the condition be missed.
    assert free or not without(one, kept[0]).is_proved


def test_a_sink_needs_no_key_at_all() -> None:
    """Its denominator holds e^sink, so the sum of weights is below 1 even for an empty row."""
    assert not [a for a in claim("masks.sink_sum_below_one").assumptions if isinstance(a, AtLeast)]


def test_a_negative_cap_is_no_cap() -> None:
    step = claim("masks.softcap_bound").steps[0]
    (cap,) = step.rhs.free_symbols
    loose = sympy.Symbol("cap", real=True)
    changed = replace(step, lhs=step.lhs.xreplace({cap: loose}), rhs=loose, data={})
    assert not verdict_on(changed).is_proved
