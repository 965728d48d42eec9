"""The text of a Refuted: sizes, values and both sides, in one short line that is true of the witness."""

from fractions import Fraction
from typing import Any

import pytest
from sympy import Rational, exp, sqrt

from derive.assumptions import AtLeast, InRange, Positive
from derive.intervals import Witness
from derive.language import array, index, scalar, size, total
from derive.prover import prove
from derive.verdict import Kind
from derive.witness_words import LENGTH, brief

n, m = size("n"), size("m")
i, j = index("i"), index("j")
x, A = array("x", n), array("A", n, m)
a, b = scalar("a"), scalar("b")
LARGE = (AtLeast(n, 3), AtLeast(m, 3))
BOTH = (InRange(i, 0, n - 1), InRange(j, 0, m - 1))
FALSE: dict[str, tuple[Any, Any, tuple[Any, ...], Any]] = {
    "row": (total(x[i] ** 2, i, n), total(x[i], i, n) ** 2, (), "="),
    "scalars": (a, b, (), "="),
    "irrational": (total(exp(x[i]), i, n), 1, (AtLeast(n, 1),), "="),
    "many values": (total(total(A[i, j], i, n), j, m), total(total(A[i, j] ** 2, i, n), j, m), LARGE, "="),
    "an entry": (A[i, j], 0, BOTH, "<="),
    "equal sides": (n, m, (), "<"),
    "near": (sqrt(2), Rational(141421356, 10**8), (), "="),
    "large and near": (exp(100 * a), exp(100 * a) + 1, (Positive(a),), "="),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_refutation_shows_its_witness(name: str) -> None:
    lhs, rhs, conditions, relation = FALSE[name]
    verdict = prove(lhs, rhs, conditions, relation)
    assert verdict.kind is Kind.REFUTED
    text = str(verdict)
    assert text.startswith("Refuted: at ")
    assert len(text) <= 100
    witness = verdict.evidence["witness"]
    assert isinstance(witness, Witness)
    for size_name, value in witness.sizes.items():
        assert f"{size_name} = {value}" in text
    shown = text.rpartition(": ")[2]
    if name == "large and near":  # the intervals hold too few digits to tell the sides apart in words
        assert shown == "both sides are in the evidence"
        return
    sides = shown.split(" against ")
    assert len(sides) == 2
    for side, ends in zip(sides, (witness.lhs, witness.rhs), strict=True):
        number, (low, high) = Fraction(side.strip("≈")), (Fraction(end) for end in ends)
        if side.startswith("≈"):
            assert abs(number - low) <= Fraction(1, 1000) * abs(low)
        else:
            assert number == low == high
    assert relation == "<" or sides[0].strip("≈") != sides[1].strip("≈")


def test_a_row_is_a_tuple() -> None:
    row = {"x[0]": "1", "x[1]": "-1/2", "x[10]": "3", "y[0]": "2", "A[0, 1]": "5", "s": "7/8"}
    text = brief({"n": 2}, row, ("1.0", "1.0"), ("2.0", "2.0"))
    assert text == "at n = 2, x[0] = 1, x[1] = -1/2, x[10] = 3, y[0] = 2, A[0, 1] = 5, s = 7/8: 1 against 2"
    full = {f"x[{k}]": str(k) for k in sorted(range(12), key=str)}
    text = brief({}, full, ("1.0", "1.0"), ("2.0", "2.0"))
    assert text == "at x = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11): 1 against 2"


def test_what_does_not_fit_is_marked() -> None:
    values = {f"A[{k}, {k}]": "-30" for k in range(40)}
    text = brief({"n": 40}, values, ("1.0", "1.0"), ("2.0", "2.0"))
    assert text.startswith("at n = 40, A[0, 0] = -30, ")
    assert text.endswith(", …: 1 against 2")
    assert len(text) <= LENGTH


@pytest.mark.parametrize(
    ("lhs", "rhs", "words"),
    [
        (("3.0", "3.0"), ("3.0000001", "3.0000002"), "both sides are in the evidence"),
        (("3.0", "3.0"), ("3.00000012345678", "3.00000012345679"), "3 against ≈3.0000001"),
        (("1.0e+30", "1.0e+30"), ("-0.00001", "-0.00001"), "1e+30 against -0.00001"),
        (("0.0", "0.0"), ("1.0e-20", "+inf"), "both sides are in the evidence"),
        (("1200.0", "1200.0"), ("0.0", "0.0"), "1200 against 0"),
    ],
)
def test_numbers(lhs: tuple[str, str], rhs: tuple[str, str], words: str) -> None:
    assert brief({}, {}, lhs, rhs) == f"at every point: {words}"
