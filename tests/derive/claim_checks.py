"""What every claim family is put through: proved, printed with its conditions, and safe from its own mutants."""

from __future__ import annotations

import dataclasses
from typing import Any

from derive.catalogue import Claim, check_chain, claims
from derive.step import Step
from derive.verdict import Kind, Verdict
from tests.derive.mutants import mutated_steps, verdict_on

MUTANTS = 8


def ids(family: str) -> list[str]:
    return [one.id for one in claims(family)]


def assert_proved(one: Claim) -> None:
    """Every step is proved, the steps chain, and the claim is said in both languages with a source."""
    assert check_chain(one) is None
    assert one.prove().is_proved, [str(verdict) for verdict in one.step_verdicts()]
    assert one.title["en"] != ""
    assert any(ord(ch) > 0x2FF for ch in one.title["ja"])
    assert one.source.year > 1900


def assert_mutants_refused(one: Claim) -> None:
    """At least eight false variants of the statement, none accepted; each is refuted or said to be not shown."""
    variants = mutated_steps(one, MUTANTS)
    assert len(variants) >= MUTANTS, f"{one.id}: only {[name for name, _ in variants]}"
    for name, step in variants:
        verdict = verdict_on(step)
        assert verdict.kind in (Kind.REFUTED, Kind.UNKNOWN), f"{one.id}, {name}: {verdict} of {step.lhs} and {step.rhs}"


def without(one: Claim, condition: Any) -> Verdict:
    """The weakest verdict of the claim's steps when one condition is taken away."""
    kept = tuple(a for a in one.assumptions if a != condition)
    assert len(kept) == len(one.assumptions) - 1, f"{one.id} has no condition {condition}"
    steps = [_without(step, condition) for step in one.steps]
    return min((verdict_on(step) for step in steps), key=lambda v: v.kind)


def _without(step: Step, condition: Any) -> Step:
    return dataclasses.replace(step, assumptions=tuple(a for a in step.assumptions if a != condition))
