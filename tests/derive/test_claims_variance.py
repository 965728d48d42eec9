"""Every variance claim is proved as it stands, and every mutant of it is refuted by an enumerated case."""

from dataclasses import replace
from typing import Any

import pytest
import sympy

import derive
from derive.assumptions import AtLeast, Distinct, RandomEntries
from derive.catalogue import Claim
from derive.families import _moments as words
from derive.families.variance import claims
from derive.moments.checking import small_cases
from derive.moments.laws import gaussian, mean_variance
from derive.moments.model import model_of
from derive.moments.nodes import Expect, Variance
from derive.rules import check_step
from derive.verdict import Kind
from tests.derive.moment_mutants import judged, mutants, with_sizes_positive

ALL = claims()
d_k, d_model = words.d_k, words.d_model


@pytest.mark.parametrize("one", ALL, ids=lambda c: c.id)
def test_claim_is_proved(one: Claim) -> None:
    verdict = derive.claim(one.id).prove()
    assert verdict.kind is Kind.PROVED, verdict
    if one.steps[0].rule == "moment-routes":
        enumerated = verdict.evidence["enumerated"]
        assert isinstance(enumerated, list)
        assert len(enumerated) >= 3


@pytest.mark.parametrize("one", ALL, ids=lambda c: c.id)
def test_mutants_are_refuted(one: Claim) -> None:
    wrong = mutants(one)
    assert len(wrong) >= 8
    for rhs in wrong[:14]:
        verdict = judged(one, rhs, assumptions=with_sizes_positive(one))
        assert verdict.kind is Kind.REFUTED, f"{rhs}: {verdict}"
        if one.steps[0].rule == "moment-routes":
            assert verdict.evidence["left"] != verdict.evidence["right"]


NAMED = [
    ("variance.scores", words.d_k * words.UNIT, "dropped mean terms"),
    ("variance.scores", d_k**2 * words.UNIT, "wrong power"),
    ("variance.scaled", d_k * words.UNIT, "forgotten scale"),
    ("variance.scaled", words.UNIT / d_k, "scale applied twice"),
    ("variance.kurtosis", ((sympy.Symbol("e_q", real=True) + 3) * (sympy.Symbol("e_k", real=True) + 3) - 3) / d_k + 3,
     "kurtosis for excess kurtosis"),
    ("variance.kurtosis", sympy.Symbol("e_q", real=True) * sympy.Symbol("e_k", real=True) / d_k, "product of excesses"),
    ("variance.kurtosis_gaussian", 3 + 6 / d_k, "kurtosis for excess kurtosis"),
    ("variance.self_attention_diagonal", derive.claim("variance.self_attention_offdiagonal").rhs,
     "off-diagonal law on the diagonal"),
    ("variance.self_attention_transpose", sympy.S.Zero, "s_ij and s_ji taken as uncorrelated"),
    ("variance.mean_square", (2 * d_k**2 + 6 * d_k) / (words.n * words.m), "scores taken as independent"),
    ("variance.row_covariance", sympy.S.Zero, "row taken as independent"),
    ("variance.within_row", derive.claim("variance.scores").rhs, "total for within-row variance"),
    ("variance.heads_wrong_scale", words.UNIT, "1/√d_model for 1/√d_k"),
    ("variance.tied", derive.claim("variance.self_attention_offdiagonal").rhs.xreplace(
        {words.SIGMA_Q: words.SIGMA_W, words.SIGMA_K: words.SIGMA_W}), "tied weights taken as independent"),
    ("variance.correlated", d_k * words.UNIT, "correlation dropped"),
    ("variance.init_he", derive.claim("variance.init_lecun").rhs, "LeCun for He"),
    ("variance.init_xavier", derive.claim("variance.init_lecun").rhs, "LeCun for Xavier"),
]  # fmt: skip


@pytest.mark.parametrize(("claim_id", "rhs"), [pytest.param(c, r, id=f"{c}: {why}") for c, r, why in NAMED])
def test_a_known_mistake_is_refuted(claim_id: str, rhs: Any) -> None:
    one = derive.claim(claim_id)
    assert judged(one, rhs, assumptions=with_sizes_positive(one)).kind is Kind.REFUTED


def test_diagonal_law_used_off_the_diagonal() -> None:
    off, diagonal = (
        derive.claim("variance.self_attention_offdiagonal"),
        derive.claim("variance.self_attention_diagonal"),
    )
    wrong = diagonal.rhs.xreplace({sympy.Symbol("e_x", real=True): sympy.S.Zero})
    laws = words.random_tokens(
        gaussian(0, words.SIGMA_X**2), *(gaussian(0, s**2) for s in (words.SIGMA_Q, words.SIGMA_K))
    )
    rows = words.rows(words.i, words.j)
    assert judged(off, wrong, assumptions=(*laws, *rows)).kind is Kind.REFUTED
    assert judged(off, off.rhs, assumptions=(*laws, *rows)).kind is Kind.PROVED
    assert judged(diagonal, wrong, assumptions=laws).kind is Kind.PROVED


@pytest.mark.parametrize(
    ("claim_id", "other"),
    [
        ("variance.scores", lambda c: sympy.expand(c.rhs)),
        ("variance.third", lambda c: sympy.expand(c.rhs)),
        ("variance.skewness", lambda c: c.rhs.xreplace({d_k: d_k + 0})),
        ("variance.kurtosis", lambda c: sympy.expand(c.rhs)),
        ("variance.mean_square", lambda c: sympy.factor(c.rhs)),
        ("variance.tied", lambda c: sympy.expand(c.rhs)),
        ("variance.init_xavier", lambda c: 4 * d_model**2 / (d_model**2 + 2 * d_model * d_k + d_k**2)),
    ],
)
def test_the_same_law_written_otherwise_is_proved(claim_id: str, other: Any) -> None:
    one = derive.claim(claim_id)
    assert judged(one, other(one), assumptions=with_sizes_positive(one)).kind is Kind.PROVED


def test_a_binder_of_any_name_will_do() -> None:
    one = derive.claim("variance.scores")
    x, c = sympy.Symbol("x", integer=True), words.SCORE.limits[0][0]
    score = sympy.Sum(words.q[x] * words.k[x], (x, 0, d_k - 1))
    assert judged(one, one.rhs, lhs=Variance(score)).kind is Kind.PROVED
    captured = sympy.Sum(words.q[x] * words.k[c], (c, 0, d_k - 1))
    assert judged(one, one.rhs, lhs=Variance(captured)).kind is not Kind.PROVED


def test_a_missing_law_a_missing_row_assumption_and_a_possible_zero_are_unknown() -> None:
    one = derive.claim("variance.scores")
    verdict = judged(one, one.rhs, assumptions=one.assumptions[:1])
    assert verdict.kind is Kind.UNKNOWN
    assert "has no law" in verdict.scope
    row = derive.claim("variance.row_covariance")
    laws = tuple(a for a in row.assumptions if not isinstance(a, Distinct))
    verdict = judged(row, row.rhs, assumptions=laws)
    assert verdict.kind is Kind.UNKNOWN
    assert "may be equal" in verdict.scope
    scaled = derive.claim("variance.scaled")
    laws = tuple(a for a in scaled.assumptions if isinstance(a, RandomEntries))
    verdict = judged(scaled, scaled.rhs, assumptions=laws)
    assert verdict.kind is Kind.UNKNOWN
    assert "divides by d_k" in verdict.scope


def test_a_denominator_that_may_vanish_and_two_symbols_of_one_name_are_unknown() -> None:
    one = derive.claim("variance.scaled")
    verdict = judged(one, one.rhs + 1 / (d_k - 1))
    assert verdict.kind is Kind.UNKNOWN
    assert "may be 0" in verdict.scope
    verdict = judged(one, one.rhs.xreplace({words.SIGMA_Q: sympy.Symbol("sigma_q")}))
    assert verdict.kind is Kind.UNKNOWN
    assert "two different symbols" in verdict.scope


def test_small_cases_keep_the_stated_least_size() -> None:
    one = derive.claim("variance.scaled")
    (first, *_) = small_cases(
        replace(one.steps[0], assumptions=(*one.assumptions, AtLeast(d_k, 3))), model_of(one.assumptions)
    )
    assert first[d_k] == 3


def test_more_moments_than_were_given_are_unknown() -> None:
    one = derive.claim("variance.kurtosis_gaussian")
    laws = words.products(mean_variance(0, 1), mean_variance(0, 1))
    assert judged(one, 6 / d_k, assumptions=with_sizes_positive(replace(one, assumptions=laws))).kind is Kind.UNKNOWN


def test_one_route_alone_is_no_proof() -> None:
    """The cumulants don't cover a named row beside a sum over the rows of the same array, and say so."""
    one = derive.claim("variance.mean_square")
    i, j, n, m = words.i, words.j, words.n, words.m
    named = words.CROSS[sympy.S.Zero, sympy.S.Zero] ** 2
    total = sympy.Sum(words.CROSS[i, j] ** 2, (i, 0, n - 1), (j, 0, m - 1))
    right = d_k**2 * n * m + 2 * d_k * (n - 1) + 2 * d_k * (m - 1) + 2 * d_k**2 + 6 * d_k
    verdict = judged(one, right, lhs=Expect(named * total))
    assert verdict.kind is Kind.EXACT_AT_SIZES
    assert "second_route" in verdict.evidence
    assert judged(one, right + 1, lhs=Expect(named * total)).kind is Kind.REFUTED


def test_orthogonal_weights_are_known_to_second_order_only() -> None:
    one = derive.claim("variance.init_orthogonal")
    fourth = derive.claim("moments.self_attention_fourth_offdiagonal")
    assert judged(fourth, fourth.rhs, assumptions=one.assumptions).kind is Kind.UNKNOWN


def test_a_sum_over_the_wrong_axis_is_not_read() -> None:
    one = derive.claim("variance.scores")
    c = sympy.Symbol("c", integer=True)
    wrong = sympy.Sum(words.q[c] * words.k[c], (c, 0, d_model - 1))
    verdict = judged(one, one.rhs, lhs=Variance(wrong))
    assert verdict.kind is Kind.UNKNOWN
    assert "axis" in verdict.scope


def test_only_equalities_are_judged() -> None:
    one = derive.claim("variance.scores")
    assert check_step(replace(one.steps[0], relation="<=")).kind is Kind.UNKNOWN


@pytest.mark.parametrize("one", ALL, ids=lambda c: c.id)
def test_the_page_says_what_is_assumed_and_what_symbols_mean(one: Claim) -> None:
    assert one.assumptions == one.steps[0].assumptions
    assert one.symbols
    assert any(ord(letter) > 0x3000 for letter in one.title["ja"])
    latex = sympy.latex(one.lhs)
    assert latex
