"""The prover against random index calculus, and the generator against both evaluators."""

from pathlib import Path

import pytest
import sympy

from benchmarks.identities import Run, falsehoods, truths
from derive import intervals, modular
from derive.assumptions import Ordered
from derive.errors import StatementError
from derive.prover import first_checker
from tests.derive.identities import (
    CLASSES,
    CONDITIONS,
    CUT,
    EMPTY_ALLOWED,
    LURES,
    closed_statement,
    falsehood,
    identity,
)

TRUE, FALSE = 300, 300


def test_the_generator_makes_true_identities() -> None:
    """Judged by the evaluators alone, so that a fault of the generator is not taken for one of the prover."""
    for seed in range(60):
        one = identity(seed)
        assert 1 <= len(one.classes) <= 6
        assert modular.check(one.lhs, one.rhs, CONDITIONS, draws=2).agrees, str(one)
        assert intervals.refute(one.lhs, one.rhs, "=", CONDITIONS, draws=6) is None, str(one)


def test_the_generator_is_seeded() -> None:
    assert identity(7) == identity(7)
    assert identity(7) != identity(8)
    assert falsehood(7) == falsehood(7)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_can_be_asked_for(name: str) -> None:
    assert all(name in identity(seed, name).classes for seed in range(3))


def test_names_of_binders_clash_on_purpose() -> None:
    """Some renamed sums carry the name of a free index or of another sum: the lures for a capturing prover."""
    clashes = 0
    for seed in range(80):
        one = identity(seed, "rename")
        binders = [node.limits[0][0] for node in sympy.preorder_traversal(one.rhs) if isinstance(node, sympy.Sum)]
        clashes += any(b in one.rhs.free_symbols for b in binders) or len(set(binders)) < len(binders)
        assert any(b in LURES for b in binders)
    assert clashes >= 15


def test_true_identities_are_proved_in_every_class() -> None:
    survey = truths(range(TRUE))
    assert not survey.faults
    short = {name: round(survey.share(name), 3) for name in CLASSES if survey.share(name) < 0.95}
    assert not short, [str(one) for one, _ in survey.gaps[:5]]


def test_no_falsehood_is_proved() -> None:
    survey = falsehoods(range(FALSE))
    assert survey.made.total() == FALSE
    assert len(survey.made) == 8
    assert not survey.faults, [(why, str(one)) for one, why in survey.faults[:5]]


def test_a_survey_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    begun = Run(5, kept)
    begun.grow(begun.true, "identities", truths, 7)
    begun.grow(begun.false, "falsehoods", falsehoods, 3)
    resumed = Run(5, kept)
    assert (resumed.true.seeds, resumed.false.seeds) == (7, 3)
    resumed.grow(resumed.true, "identities", truths, 12)
    whole = truths(range(5, 17))
    assert (resumed.true.made, resumed.true.proved) == (whole.made, whole.proved)
    assert resumed.false.made == falsehoods(range(5, 8)).made
    assert resumed.spent > begun.spent
    with pytest.raises(SystemExit, match="seed 5"):
        Run(6, kept)


def test_a_split_is_never_proved_without_its_order() -> None:
    """0 ≤ h ≤ n taken away: the parts may overlap, or reach outside the array."""
    seen = 0
    for seed in range(40):
        one = identity(seed, "split")
        for cut in CUT.values():
            if cut in one.rhs.free_symbols:
                kept = tuple(a for a in CONDITIONS if not (isinstance(a, Ordered) and a.middle == cut))
                seen += 1
                try:
                    assert not first_checker(one.lhs, one.rhs, kept).zero, str(one)
                except StatementError:
                    continue
    assert seen >= 15


def test_nothing_is_proved_of_rows_that_may_be_empty() -> None:
    """Σ/Σ = 1 and its like, where no condition says that the row holds anything: refuted at n = 0, never proved."""
    refuted = 0
    for seed in range(40):
        one = closed_statement(seed)
        if intervals.refute(one.lhs, one.rhs, "=", EMPTY_ALLOWED, draws=30) is not None:
            refuted += 1
            try:
                assert not first_checker(one.lhs, one.rhs, EMPTY_ALLOWED).zero, str(one)
            except StatementError:
                continue  # refused: entry 0 of an array that may be empty, say
    assert refuted >= 20
