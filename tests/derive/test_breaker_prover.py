"""Attacks on the prover and on `Claim.prove` that a reviewer found: each must be refused, its sound twin must pass."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import sympy

import derive
from derive.assumptions import (
    Assumption,
    AtLeast,
    Defined,
    Distinct,
    FixedArray,
    InRange,
    Ordered,
    Positive,
    RandomEntries,
)
from derive.catalogue import Claim, check_conditions, composes
from derive.errors import DeriveError, StatementError
from derive.importer import Importer
from derive.language import array, index, scalar, size, total
from derive.moments.laws import gaussian
from derive.prover import decide, first_checker, second_checker
from derive.source import HERE
from derive.step import Step

n, m = size("n"), size("m")
i, j, c = index("i"), index("j"), index("c")
l = index("l")
x, w = array("x", n), array("w", n)
IN_ROW = InRange(i, 0, n - 1)
ONE_ROW = AtLeast(n, 1)


def kind(verdict: Any) -> str:
    return str(verdict.kind.title)


def proves(lhs: Any, rhs: Any, *assumptions: Assumption) -> str:
    return kind(derive.prove(lhs, rhs, assumptions))


def chain(*ends: Any, assumptions: tuple[Assumption, ...], relation: Any = "=", stated: Any = None) -> Claim:
    """A claim whose steps go through `ends` by the normal form; stated: the claim's assumptions if not the steps'."""
    steps = [Step(a, b, "normal-form", assumptions=assumptions) for a, b in itertools.pairwise(ends)]
    return Claim(
        "mine.chain",
        {"en": "a", "ja": "b"},
        ends[0],
        ends[-1],
        HERE,
        tuple(steps),
        relation,
        assumptions if stated is None else stated,
    )


# ---- a claim rests on what it states ------------------------------------------------------------------------------


def test_a_claim_without_the_assumptions_of_its_steps_is_not_proved() -> None:
    one = derive.claim("gradients.dq")
    verdict = dataclasses.replace(one, assumptions=()).prove()
    assert kind(verdict) == "Unknown"
    assert "the claim doesn't state" in str(verdict)


def test_a_step_can_not_define_the_array_the_claim_speaks_of() -> None:
    zero = Defined(x, (i,), sympy.Integer(0))
    one = chain(x[i], sympy.Integer(0), assumptions=(IN_ROW, zero), stated=(IN_ROW,))
    verdict = one.prove()
    assert kind(verdict) == "Unknown"
    assert str(zero) in str(verdict)
    assert kind(dataclasses.replace(one, assumptions=(IN_ROW, zero)).prove()) == "Proved"


def test_words_that_a_step_adds_are_refused_too() -> None:
    one = chain(x[i] + x[i], 2 * x[i], assumptions=(IN_ROW, "rows are short"), stated=(IN_ROW,))
    assert kind(one.prove()) == "Unknown"
    assert kind(dataclasses.replace(one, assumptions=(IN_ROW, "rows are short")).prove()) == "Proved"


def test_a_step_may_use_less_than_the_claim_states() -> None:
    one = chain(x[i] + x[i], 2 * x[i], assumptions=(IN_ROW,), stated=(IN_ROW, ONE_ROW, "rows are short"))
    assert kind(one.prove()) == "Proved"


def test_an_index_that_only_a_step_mentions_makes_no_row_non_empty() -> None:
    ends = (
        total(1 / n, j, n),
        x[i] - x[i] / 1 + sympy.Sum(x[i] * 0 + x[i] / n, (j, 0, n - 1)) / x[i],
        sympy.Integer(1),
    )
    conditions = (IN_ROW, Positive(x[i]))
    one = chain(*ends, assumptions=conditions)
    verdict = one.prove()
    assert kind(verdict) == "Unknown"
    assert "about one i" in str(verdict)
    assert kind(chain(*ends, assumptions=(ONE_ROW, *conditions)).prove()) == "Proved"
    further = Distinct(i, l), InRange(l, 0, n - 1)
    refused = check_conditions(chain(*ends, assumptions=(ONE_ROW, *conditions, *further)))
    assert refused is not None


def test_what_is_stated_of_one_index_is_not_read_for_all_in_a_step_without_it() -> None:
    weights = total(w[j] / total(w[l], l, n), j, n)
    ends = (weights + w[i], weights + w[i], sympy.Integer(1) + w[i])
    assert check_conditions(chain(*ends, assumptions=(IN_ROW, ONE_ROW, Positive(w[i])))) is None
    silent = Step(weights, sympy.Integer(1), "normal-form", assumptions=(IN_ROW, ONE_ROW, Positive(w[i])))
    spoken = chain(*ends, assumptions=(IN_ROW, ONE_ROW, Positive(w[i])))
    assert check_conditions(dataclasses.replace(spoken, steps=(silent,))) is not None


@pytest.mark.parametrize("relation", [">", ">=", "equals", ""])
def test_an_unknown_relation_is_an_error(relation: Any) -> None:
    with pytest.raises(DeriveError, match="relation"):
        dataclasses.replace(derive.claims("gradients")[0], relation=relation)


@pytest.mark.parametrize("relation", ["rank", "limit", "<"])
def test_equalities_show_no_other_relation(relation: Any) -> None:
    verdict = dataclasses.replace(derive.claims("gradients")[0], relation=relation).prove()
    assert kind(verdict) == "Unknown"


def test_how_relations_compose() -> None:
    assert composes(["=", "="], "=")
    assert composes(["=", "<="], "<=")
    assert composes(["<", "="], "<=")
    assert composes(["=", "<", "<="], "<")
    assert composes(["=", "limit"], "limit")
    assert composes(["rank"], "rank")
    assert not composes(["=", "<="], "=")
    assert not composes(["=", "<="], "<")
    assert not composes(["=", "limit"], "<=")
    assert not composes(["limit", "<="], "limit")
    assert not composes(["limit", "limit"], "limit")
    assert not composes(["="], "limit")
    assert not composes(["limit"], "rank")
    assert not composes(["="], ">")


# ---- a range of an index that is not there --------------------------------------------------------------------------


def test_an_unused_range_says_nothing_of_the_sizes() -> None:
    assert proves(total(1 / n, j, n), 1, IN_ROW) != "Proved"
    assert proves(total(1 / n, j, n), 1, ONE_ROW) == "Proved"
    weights = total(w[j] / total(w[l], l, n), j, n)
    assert proves(weights, 1, IN_ROW, Positive(w[i])) != "Proved"
    assert proves(weights, 1, IN_ROW, Positive(w[i]), ONE_ROW) == "Proved"


def test_an_index_that_is_there_makes_its_row_non_empty() -> None:
    assert proves(x[i] * total(1 / n, j, n), x[i], IN_ROW) == "Proved"
    chained = (InRange(i, 0, j), InRange(j, 0, n - 1))
    assert proves(x[i] * total(1 / n, l, n), x[i], *chained) == "Proved"
    assert proves(total(1 / n, l, n), 1, *chained) != "Proved"


def test_an_order_about_an_index_that_is_not_there_says_nothing_of_the_sizes() -> None:
    assert proves(total(1 / n, j, n), 1, IN_ROW, Ordered(1, i, n)) != "Proved"
    assert proves(total(1 / n, j, n), 1, IN_ROW, AtLeast(i, 0)) != "Proved"


# ---- refutations need a witness that meets every condition -----------------------------------------------------------


@pytest.mark.parametrize("relation", ["=", "<"])
def test_a_condition_in_words_leaves_nothing_refuted(relation: Any) -> None:
    y0 = scalar("y0")
    assert kind(decide(y0, 0, ["y0 = 0"], relation)) == "Unknown"
    assert kind(derive.prove(y0, 0, [], relation)) == "Refuted"


def test_a_law_leaves_nothing_refuted_and_a_fixed_array_does() -> None:
    assert kind(derive.prove(x[i], 0, [IN_ROW, RandomEntries((x,), gaussian(0, 1))])) != "Refuted"
    assert kind(derive.prove(x[i], 0, [IN_ROW, FixedArray(x)])) == "Refuted"


# ---- what can't be read is refused ----------------------------------------------------------------------------------


def test_a_delta_with_a_range_is_refused_by_both_checkers() -> None:
    ranged, plain = sympy.KroneckerDelta(i, j, (5, 6)), sympy.KroneckerDelta(i, j)
    conditions = (IN_ROW, InRange(j, 0, n - 1))
    for check in (derive.prove, first_checker, second_checker):
        with pytest.raises(StatementError, match="range"):
            check(ranged, plain, conditions)
    assert proves(plain, sympy.KroneckerDelta(j, i), *conditions) == "Proved"


def test_definitions_in_a_circle_are_refused_by_both_checkers() -> None:
    a, b = array("a", n), array("b", n)
    circle = (IN_ROW, Defined(a, (j,), b[j]), Defined(b, (j,), a[j]))
    for check in (derive.prove, first_checker, second_checker):
        with pytest.raises(StatementError, match="through itself"):
            check(a[i], b[i], circle)
    straight = (IN_ROW, Defined(a, (j,), b[j]), Defined(b, (j,), 2 * x[j]))
    assert proves(a[i], 2 * x[i], *straight) == "Proved"


def test_two_meanings_of_one_abbreviation_are_refused() -> None:
    twice = (IN_ROW, Defined(x, (j,), w[j]), Defined(x, (j,), 2 * w[j]))
    with pytest.raises(StatementError, match="twice"):
        Importer(twice)


def test_a_scalar_named_log_is_no_logarithm() -> None:
    log = scalar("log")
    assert proves(sympy.exp(log + 1), sympy.E * sympy.exp(log)) in {"Proved", "ExactAtSizes"}
    assert proves(sympy.exp(log + scalar("z")), sympy.exp(scalar("z")) * sympy.exp(log)) == "Proved"
    positive = scalar("y", positive=True)
    assert proves(sympy.exp(2 * sympy.log(positive) + log), positive**2 * sympy.exp(log)) == "Proved"


def test_sizes_that_a_condition_makes_equal_are_no_contradiction() -> None:
    assert kind(derive.prove(n, m, [Ordered(n, m, n)])) in {"Proved", "ExactAtSizes", "Unknown"}
    assert second_checker(n, m, [Ordered(n, m, n)]).agrees
    assert not second_checker(n, m + 1, [Ordered(n, m, n)]).agrees
