"""Every variance claim is proved as it stands, and every mutant of it is refused."""

from dataclasses import replace
from typing import Any

import pytest
import sympy

import derive
from derive.families.variance import MU_K, MU_Q, SIGMA_K, SIGMA_Q, claims, d_k
from derive.verdict import Kind, Verdict


def judged(claim_id: str, rhs: Any) -> Verdict:
    """The verdict of the claim with another right side."""
    one = derive.claim(claim_id)
    return replace(one, rhs=rhs, steps=(replace(one.steps[0], rhs=rhs),)).prove()


@pytest.mark.parametrize("one", claims(), ids=lambda c: c.id)
def test_claim_is_proved(one: derive.Claim) -> None:
    verdict = one.prove()
    assert verdict.kind is Kind.PROVED, verdict
    assert verdict.evidence["enumerated"]


V, M, N = SIGMA_Q**2 * SIGMA_K**2, MU_Q**2 * SIGMA_K**2, MU_K**2 * SIGMA_Q**2

MUTANTS: dict[str, list[Any]] = {
    "variance.scores": [
        d_k * V,
        d_k * (V + M),
        d_k * (V + N),
        d_k**2 * (V + M + N),
        sympy.sqrt(d_k) * (V + M + N),
        V + M + N,
        d_k * (V + M + N + MU_Q**2 * MU_K**2),
        d_k * (V - M + N),
        d_k * (V + MU_Q**2 * SIGMA_Q**2 + MU_K**2 * SIGMA_K**2),
        d_k * (SIGMA_Q * SIGMA_K + M + N),
        d_k * (V + 2 * M + N),
        (d_k - 1) * (V + M + N),
    ],
    "variance.scaled": [
        d_k * V,
        V / d_k,
        V * sympy.sqrt(d_k),
        SIGMA_Q * SIGMA_K,
        SIGMA_Q**2 + SIGMA_K**2,
        V / 2,
        SIGMA_Q**4,
        -V,
        V + 1,
    ],
}


def mutants() -> list[Any]:
    return [pytest.param(name, rhs, id=f"{name}-{k}") for name, many in MUTANTS.items() for k, rhs in enumerate(many)]


@pytest.mark.parametrize(("claim_id", "rhs"), mutants())
def test_mutant_is_refuted(claim_id: str, rhs: Any) -> None:
    assert judged(claim_id, rhs).kind is Kind.REFUTED


@pytest.mark.parametrize("one", claims(), ids=lambda c: c.id)
def test_every_claim_has_mutants(one: derive.Claim) -> None:
    assert len(MUTANTS[one.id]) >= 8
