"""The makers of statements refuse what SymPy would take or fail on without a word of what to write."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import derive
from derive.assumptions import Positive
from derive.errors import StatementError
from derive.language import array, index, scalar, size, total

n, m, i, j, s = size("n"), size("m"), index("i"), index("j"), scalar("s")
x, A = array("x", n), array("A", n, m)

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "two indices of a row": (
        lambda: x[i, j],
        r"x\[i, j\] has 2 indices: expected 1, x being of shape \(n\), as x\[i\]",
    ),
    "one index of a matrix": (lambda: A[i], r"A\[i\] has 1 indices: expected 2, .*shape \(n, m\), as A\[i, "),
    "no index": (lambda: A[()], "has 0 indices: expected 2"),
    "text as an index": (lambda: x["i"], r"an index of x is 'i': expected a whole number, as index\('i'\)"),
    "rounded index": (lambda: x[0.5], "an index of x is 0.5"),
    "fraction as an index": (lambda: A[i, sympy.Rational(1, 2)], "an index of A is 1/2"),
    "slice": (lambda: x[0:2], "an index of x is slice"),
    "truth as an index": (lambda: x[True], "an index of x is True"),
    "rounded axis": (lambda: array("x", 2.5), "an axis of x is 2.5: expected a whole number"),
    "negative axis": (lambda: array("x", -1), r"an axis of x is -1: expected a whole number ≥ 0"),
    "negative symbolic axis": (lambda: array("x", n, -1 - n), "an axis of x is -n - 1"),
    "text as an axis": (lambda: array("x", "n"), "an axis of x is 'n'"),
    "shape as one axis": (lambda: array("x", (n, m)), "an axis of x is"),
    "empty size": (lambda: size(""), r"the name is '': expected text that isn't empty, as size\('n'\)"),
    "empty index": (lambda: index(" "), r"as index\('i'\)"),
    "empty scalar": (lambda: scalar(""), r"as scalar\('s'\)"),
    "empty array": (lambda: array("", n), r"as array\('x', n\)"),
    "number as a name": (lambda: size(3), "the name is 3"),  # type: ignore[arg-type]
    "rounded count": (lambda: total(x[i], i, 2.5), "count is 2.5: expected a whole number"),
    "negative count": (lambda: total(x[i], i, -1), "count is -1: expected a whole number ≥ 0"),
    "array as a count": (lambda: total(x[i], i, np.ones(2)), "count is array"),
    "number as a binder": (lambda: total(x[i], 2, n), "binder is 2: expected an index"),
    "entry as a binder": (lambda: total(x[i], x[i], n), "expected an index"),
    "text as a body": (lambda: total("x", i, n), "is text"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_with_the_mend(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(StatementError, match=message):
        make()


@pytest.mark.parametrize("bad", [-1, 0, sympy.Integer(-3), sympy.sqrt(2) - 2, sympy.I])
def test_a_number_that_is_not_positive_is_no_condition(bad: Any) -> None:
    for rhs in (total(x[j], j, n), s):
        with pytest.raises(StatementError, match=r"can't be positive.*Positive\(s\)"):
            derive.prove(total(x[i], i, n), rhs, [Positive(bad)])


def test_a_positive_number_says_nothing() -> None:
    same, other = (total(x[i], i, n), total(x[j], j, n)), (total(x[i], i, n), total(x[j], j, n) + 1)
    for two in (2, sympy.Integer(2)):
        assert derive.prove(*same, [Positive(two)]).is_proved
        assert str(derive.prove(*other, [Positive(two)])).startswith("Refuted: at ")


def test_what_may_be_written() -> None:
    assert A[i, 0].indices == (i, 0)
    assert A[(i, j)] == A[i, j] == A[[i, j]]
    assert x[sympy.floor(i / 2)].indices == (sympy.floor(i / 2),)
    assert array("y", 0).shape == (0,)
    assert array("y", 2 * n, n - 1).shape == (2 * n, n - 1)
    assert total(x[i], i, 0).doit() == 0
    assert total(x[i], i, np.int64(2)).limits == ((i, 0, 1),)


def test_an_array_stays_one() -> None:
    """Rebuilt, replaced in and unpickled it is the same array, and the order of terms is that of SymPy's arrays."""
    assert array("x", n) == x
    assert x.func(*x.args) == x
    assert pickle.loads(pickle.dumps(x)) == x
    assert A[i, j].xreplace({i: j, j: i}) == A[j, i]
    assert x.class_key() == sympy.IndexedBase("x").class_key()
    assert str(A[i, j] * x[i]) == "A[i, j]*x[i]"
