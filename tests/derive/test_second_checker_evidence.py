"""What a verdict says of the second checker: where it agreed, with which chance, and no proof where it saw nothing."""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import sympy
from sympy import exp, sqrt

import derive
from derive import modular, prover
from derive.assumptions import AtLeast, InRange, Positive
from derive.congruence import and_at_sizes
from derive.language import array, index, scalar, size, total
from derive.modular import ModularResult
from derive.prover import agreement, prove, second_checker
from derive.step import Step
from derive.verdict import Kind, Verdict

n = size("n")
i, j = index("i"), index("j")
x, y = array("x", n), array("y", n)
a, b = scalar("a"), scalar("b")
WITHOUT_BOUND = (
    "softmax.entropy",
    *(f"gradients.{name}" for name in ("dwq", "dwk", "dx", "dwq_opened", "dwk_opened", "dx_opened")),
    *(f"gradients.{name}" for name in ("dscale", "dbias_keys", "double_backward_key", "double_backward_keys_key")),
)
ROOTS = (sqrt(a * b), sqrt(a) * sqrt(b), (Positive(a), Positive(b)))


def assert_seen(verdict: Verdict) -> None:
    """The evidence names an instance at which the second checker agreed; a probability is one, and below 1."""
    evidence = verdict.evidence
    bounded, without = (evidence.get(key, ()) for key in ("sizes", "sizes_without_bound"))
    assert isinstance(bounded, tuple)
    assert isinstance(without, tuple)
    assert bounded + without
    assert all(isinstance(one, Mapping) for one in bounded + without)
    assert ("error_probability" in evidence) == bool(bounded)
    if bounded:
        chance = evidence["error_probability"]
        assert isinstance(chance, float)
        assert 0 <= chance < 2.0**-15
    words = str(evidence["second_checker"])
    assert words.startswith("agrees at drawn ")
    assert ("no bound on the chance" in words) == bool(without)


@pytest.mark.parametrize("claim_id", [one.id for one in derive.claims()])
def test_a_claim_of_two_checkers_names_what_the_second_saw(claim_id: str) -> None:
    verdict = derive.claim(claim_id).prove()
    if "modular" in tuple(verdict.evidence.get("checkers", ())):  # type: ignore[call-overload]
        assert_seen(verdict)
    else:
        assert "error_probability" not in verdict.evidence


@pytest.mark.parametrize("claim_id", WITHOUT_BOUND)
def test_a_claim_without_a_bound_says_so(claim_id: str) -> None:
    found = derive.claim(claim_id).step_verdicts()
    assert all(one.is_proved for one in found)
    for one in found:
        assert_seen(one)
    assert any("sizes" not in one.evidence and "no bound on the chance" in str(one.evidence) for one in found)


@pytest.mark.parametrize(
    ("lhs", "rhs", "conditions"),
    [ROOTS, (sqrt(total(exp(x[i]), i, n)) ** 4, total(exp(x[i]), i, n) ** 2, (AtLeast(n, 1),))],
    ids=["roots of scalars", "root of a sum"],
)
def test_a_statement_of_ones_own(lhs: Any, rhs: Any, conditions: tuple[Any, ...]) -> None:
    verdict = prove(lhs, rhs, conditions)
    assert verdict.is_proved
    assert_seen(verdict)
    assert "1.0" not in str(verdict.to_json())


SEES_NOTHING = ModularResult(True, 1.0, ())


def test_a_second_checker_that_sees_nothing_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = (total(x[i], i, n) ** 2, total(total(x[i] * x[j], i, n), j, n))
    step = Step(*sides, "=", "equals-for-equals")
    assert prove(*sides).is_proved
    assert and_at_sizes(step, "equals for equals").is_proved
    monkeypatch.setattr(modular, "check", lambda *_, **__: SEES_NOTHING)
    for verdict in (prove(*sides), and_at_sizes(step, "equals for equals")):
        assert verdict.kind is Kind.UNKNOWN
        assert "at no instance" in verdict.scope


def test_neither_is_it_exact_at_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    r = scalar("r", positive=True)
    geometric = ((1 - r) * total(r**j, j, n), 1 - r**n)
    assert prove(*geometric).kind is Kind.EXACT_AT_SIZES
    assert_seen(prove(*geometric))
    monkeypatch.setattr(modular, "check", lambda *_, **__: SEES_NOTHING)
    assert prove(*geometric).kind is Kind.UNKNOWN


def test_runs_at_coincidences_keep_what_the_others_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two free indices in one range there are two patterns; each run's instances and bounds are kept."""
    bound = Fraction(1, 2**30)
    runs = iter([
        ModularResult(True, 1.0, (), unbounded=({"n": 2},), uninterpreted=("f",)),
        ModularResult(True, float(bound), ({"n": 3},), unbounded=({"n": 2},)),
        ModularResult(True, float(bound), ({"n": 3}, {"n": 4}), unbounded=({"n": 3}, {"n": 5})),
    ])  # fmt: skip
    monkeypatch.setattr(modular, "check", lambda *_, **__: next(runs))
    result = second_checker(x[i] * y[j], y[j] * x[i], (InRange(i, 0, n - 1), InRange(j, 0, n - 1)))
    assert next(runs, None) is None
    assert result.agreed_at == ({"n": 3}, {"n": 4}, {"n": 2}, {"n": 5})
    assert result.error_probability == float(2 * bound)
    assert result.uninterpreted == ("f",)
    assert agreement(result)["sizes_without_bound"] == ({"n": 2}, {"n": 5})


def test_a_mismatch_in_a_coincidence_is_not_agreement() -> None:
    differ = sympy.KroneckerDelta(i, j) * x[i]
    result = second_checker(differ, 0 * x[i], (InRange(i, 0, n - 1), InRange(j, 0, n - 1)))
    assert not result.agrees
    assert result.agreed_at == ()


def test_the_chance_in_words_is_rounded_up() -> None:
    for chance in (5.2e-7, 9.96e-12, 2.0**-21, 1e-300):
        words = str(agreement(ModularResult(True, chance, ({"n": 2},)))["second_checker"])
        assert words.startswith("agrees at drawn sizes (n = 2): a false equality passes with a chance of at most ")
        said = Fraction(words.split()[-1])
        assert Fraction(chance) <= said <= 2 * Fraction(chance)
    assert dataclasses.replace(SEES_NOTHING, unbounded=({},)).agreed_at == ({},)
    assert prover.proved_twice("a rule", dataclasses.replace(SEES_NOTHING, unbounded=({},))).is_proved
