"""`derive.prove` refuses arguments of the wrong kind, and says what to write instead."""

from typing import Any

import numpy as np
import pytest
import sympy

import derive
from derive.assumptions import AtLeast, Defined, Distinct, FixedArray, InRange, Ordered, Positive, ZeroOne
from derive.errors import StatementError
from derive.language import array, index, scalar, size, total
from derive.prover import decide
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

n, i, j = size("n"), index("i"), index("j")
x, s = array("x", n), scalar("s")
IN_ROW = InRange(i, 0, n - 1)

BAD_SIDES: dict[str, tuple[Any, str]] = {
    "text": ("x + 1", "text is never evaluated"),
    "nothing": (None, "expected a SymPy expression"),
    "list": ([s, s], "is a list"),
    "NumPy array": (np.ones(3), "expected a SymPy expression"),
    "rounded number": (0.5, "exact number"),
    "truth": (True, "exact number"),
    "equation": (sympy.Eq(s, 1), "two sides apart"),
    "condition": (sympy.And(s > 0, s < 1), "two sides apart"),
    "matrix": (sympy.Matrix([[s]]), "one entry"),
    "matrix symbol": (sympy.MatrixSymbol("A", n, n), "one entry"),
    "whole array": (x, "one entry"),
    "tuple": (sympy.Tuple(s, s), "one entry"),
}


@pytest.mark.parametrize("name", BAD_SIDES)
@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_a_side_of_another_kind(name: str, side: str) -> None:
    bad, message = BAD_SIDES[name]
    sides = {"lhs": s, "rhs": s, side: bad}
    with pytest.raises(StatementError, match=message) as error:
        derive.prove(**sides)
    assert side in str(error.value)


BAD_CONDITIONS: dict[str, tuple[Any, str]] = {
    "words": (["n >= 1"], r"in words: 'n >= 1'.*AtLeast\(n, 1\)"),
    "words among data": ([IN_ROW, "rows are short"], "assumption 2 is in words"),
    "bare words": ("n >= 1", "expected a sequence"),
    "one condition": (AtLeast(n, 1), "is one AtLeast: expected a sequence"),
    "nothing": (None, "expected a sequence"),
    "number": (3, "expected a sequence"),
    "relation": ([n >= 1], r"expected one of derive\.assumptions"),
    "SymPy assumption": ([sympy.Q.positive(s)], r"expected one of derive\.assumptions"),
    "text as an index": ([InRange("i", 0, n - 1)], "InRange.index"),
    "number as an index": ([InRange(3, 0, n - 1)], "expected an index"),
    "text as an end": ([InRange(i, 0, "n - 1")], "InRange.upper"),
    "text as a size": ([AtLeast("n", 1)], "AtLeast.size"),
    "rounded least size": ([AtLeast(n, 1.5)], "exact number"),
    "relation as positive": ([Positive(s > 0)], "two sides apart"),
    "text in an order": ([Ordered(0, "m", n)], "Ordered.middle"),
    "text as distinct": ([Distinct(i, "j")], "Distinct.second"),
    "number as a mask": ([ZeroOne(3)], "ZeroOne.array"),
    "number as fixed": ([FixedArray(3)], "FixedArray.array"),
    "index that is no tuple": ([Defined(x, i, s)], "tuple of indices"),
    "text as a body": ([Defined(x, (i,), "2*s")], "Defined.body"),
}


@pytest.mark.parametrize("name", BAD_CONDITIONS)
def test_a_condition_of_another_kind(name: str) -> None:
    bad, message = BAD_CONDITIONS[name]
    with pytest.raises(StatementError, match=message):
        derive.prove(s, s, bad)


@pytest.mark.parametrize("relation", ["", "==", ">", None, 1, ["="]])
def test_a_relation_of_another_kind(relation: Any) -> None:
    with pytest.raises(StatementError, match="relation is"):
        derive.prove(s, s, (), relation)


@pytest.mark.parametrize("opaque", ["alpha", None, 3, [x], [sympy.Symbol("x")]])
def test_names_of_another_kind(opaque: Any) -> None:
    with pytest.raises(StatementError, match="names of arrays"):
        derive.prove(s, s, (), opaque=opaque)


def test_what_may_be_given() -> None:
    side = total(x[i], i, n)
    for conditions in ([], (), {AtLeast(n, 1)}, iter([AtLeast(n, 1)]), [AtLeast(n)]):
        assert derive.prove(side, side, conditions).is_proved
    assert derive.prove(2, 2).is_proved
    assert derive.prove(s * 0, 0).is_proved


def test_words_in_a_step_prove_nothing_and_refute_nothing() -> None:
    row = total(1 / n, j, n)
    in_words = check_step(Step(row, sympy.Integer(1), "normal-form", assumptions=("n ≥ 1",)))
    assert in_words.kind not in (Kind.PROVED, Kind.REFUTED)
    assert check_step(Step(row, sympy.Integer(1), "normal-form", assumptions=(AtLeast(n, 1),))).kind is Kind.PROVED
    assert decide(s, 0, ("s = 0",)).kind is Kind.UNKNOWN
    assert decide(s, 0, ()).kind is Kind.REFUTED
    assert decide(s, s, ("s = 0",)).kind is Kind.PROVED
