"""Every moment claim is proved, the exact laws agree with integrals of another origin, and mutants are refused."""

from dataclasses import replace
from typing import Any

import pytest
import sympy

import derive
from derive.catalogue import Claim
from derive.families import _moments as words
from derive.families.moments import claims, rising
from derive.moments.laws import gaussian, shaped
from derive.moments.nodes import Distribution, Expect
from derive.rules import check_step
from derive.verdict import Kind
from tests.derive.moment_mutants import judged, mutants, with_sizes_positive

POLYNOMIAL = [c for c in claims() if c.steps[0].rule == "moment-routes"]
LIMITS = [c for c in claims() if c.steps[0].rule == "moment-limit"]
LAWS = [c for c in claims() if c.steps[0].rule == "score-law"]
d_k, d_model = words.d_k, words.d_model


def test_every_claim_is_of_one_of_the_three_kinds() -> None:
    assert len(POLYNOMIAL) + len(LIMITS) + len(LAWS) == len(claims())
    assert len(POLYNOMIAL) >= 20
    assert len(LAWS) == 6


@pytest.mark.parametrize("one", POLYNOMIAL + LIMITS, ids=lambda c: c.id)
def test_claim_is_proved(one: Claim) -> None:
    assert derive.claim(one.id).prove().kind is Kind.PROVED


@pytest.mark.parametrize("one", POLYNOMIAL + LIMITS, ids=lambda c: c.id)
def test_mutants_are_refuted(one: Claim) -> None:
    wrong = mutants(one)
    assert len(wrong) >= 8
    for rhs in wrong[:10]:
        verdict = judged(one, rhs, assumptions=with_sizes_positive(one))
        assert verdict.kind is Kind.REFUTED, f"{rhs}: {verdict}"


@pytest.mark.parametrize(
    ("claim_id", "rhs"),
    [
        ("moments.fourth", 3 * d_k**2 * words.UNIT**2),
        ("moments.eighth", 105 * rising(d_k, 3) * words.UNIT**4),
        ("moments.self_attention_fourth_diagonal", derive.claim("moments.self_attention_fourth_offdiagonal").rhs),
        ("moments.self_attention_fourth_offdiagonal", derive.claim("moments.self_attention_fourth_diagonal").rhs),
        ("moments.self_attention_kurtosis", 3 * (1 + 2 / d_model) ** 2 * (1 + 2 / d_k)),
        ("moments.self_attention_kurtosis", 6 / d_k),
        ("moments.self_attention_fourth_any", derive.claim("moments.self_attention_fourth_fixed").rhs),
    ],
)
def test_a_known_mistake_is_refuted(claim_id: str, rhs: Any) -> None:
    one = derive.claim(claim_id)
    assert judged(one, rhs, assumptions=with_sizes_positive(one)).kind is Kind.REFUTED


def test_limits_that_grow_vanish_or_depend_on_the_size() -> None:
    one = derive.claim("moments.limit_fourth")
    grows = judged(one, one.rhs, lhs=one.lhs.xreplace({one.lhs.args[0]: words.SCORE**4}))
    assert grows.kind is Kind.REFUTED
    assert "without bound" in grows.scope
    vanishes = Expect((words.SCORE / d_k) ** 4)
    assert judged(one, one.rhs, lhs=vanishes).kind is Kind.REFUTED
    assert judged(one, sympy.S.Zero, lhs=vanishes).kind is Kind.PROVED
    assert judged(one, one.rhs * (1 + 1 / d_k)).kind is Kind.REFUTED
    equality = replace(one.steps[0], relation="=")
    assert check_step(equality).kind is Kind.UNKNOWN


@pytest.mark.parametrize("one", LAWS, ids=lambda c: c.id)
def test_an_exact_law_agrees_with_numbers(one: Claim) -> None:
    verdict = derive.claim(one.id).prove()
    assert verdict.kind is Kind.NUMERIC, verdict
    assert "worst" in verdict.evidence or "relative_error_at_d_k" in verdict.evidence


def _wrong_laws(one: Claim) -> list[Any]:
    rhs, s, u = one.rhs, words.SIGMA_Q, words.SIGMA_K
    wrong = [rhs * 2, rhs / 2, -rhs, rhs + sympy.Rational(1, 1000), sympy.S.Zero, rhs**2, 1 - rhs, rhs * s]
    wrong += [rhs.xreplace({s: s**2}), rhs.xreplace({u: sympy.S.One}), rhs.xreplace({d_k: d_k + 1})]
    return [w for w in wrong if w != rhs]


@pytest.mark.parametrize("one", LAWS[:3], ids=lambda c: c.id)
def test_a_wrong_law_is_refuted(one: Claim) -> None:
    wrong = _wrong_laws(one)
    assert len(wrong) >= 8
    for rhs in wrong:
        assert judged(one, rhs).kind is Kind.REFUTED, rhs


@pytest.mark.parametrize("one", LAWS[3:], ids=lambda c: c.id)
def test_a_wrong_limit_is_refuted(one: Claim) -> None:
    others = [other.rhs for other in LAWS[3:] if other is not one]
    wrong = [one.rhs * 2, one.rhs / 2, one.rhs * sympy.Rational(1001, 1000), one.rhs - sympy.Rational(1, 10_000)]
    wrong += [-one.rhs, one.rhs + 1, *others]
    assert len(wrong) >= 8
    for rhs in wrong:
        assert judged(one, rhs).kind is Kind.REFUTED, rhs


def test_a_law_of_another_score_is_not_judged() -> None:
    one = derive.claim("moments.characteristic_function")
    unit = words.products(gaussian(0, words.SIGMA_Q**2), shaped(0, words.SIGMA_K**2, 0, 1))
    assert judged(one, one.rhs, assumptions=unit).kind is Kind.UNKNOWN
    shifted = words.products(gaussian(1, words.SIGMA_Q**2), gaussian(0, words.SIGMA_K**2))
    assert judged(one, one.rhs, assumptions=shifted).kind is Kind.UNKNOWN
    twice = derive.claim("moments.distribution")
    other = Distribution(2 * twice.lhs.args[0], twice.lhs.args[1])
    assert judged(twice, twice.rhs, lhs=other).kind is Kind.UNKNOWN
    limit = derive.claim("moments.kolmogorov_distance")
    assert judged(limit, limit.rhs, lhs=limit.lhs / d_k).kind is Kind.UNKNOWN
    wide = words.products(gaussian(0, 4), gaussian())
    assert judged(limit, limit.rhs, assumptions=(*wide, limit.assumptions[-1])).kind is Kind.UNKNOWN
    assert replace(one.steps[0], relation="<=").relation == "<="
