"""The second checker: what it accepts, what it must refuse, and that its error bound is a bound."""

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest
import sympy

from derive import modular_field
from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, ZeroOne
from derive.at_sizes import Evaluator
from derive.errors import StatementError
from derive.instances import Statement, instances
from derive.language import Diff, array, index, scalar, size, total
from derive.modular import Outside, check
from derive.modular_bound import Degrees
from derive.modular_field import Field, Undefined, certify_prime

n, m, d, d_v = size("n"), size("m"), size("d_k"), size("d_v")
i, j, l, c, t, k, a, b = map(index, ("i", "j", "l", "c", "t", "k", "a", "b"))
x, y = array("x", n), array("y", n)
Q, K, V, G = array("Q", n, d), array("K", m, d), array("V", m, d_v), array("G", n, d_v)
exp, sqrt, log, tanh = sympy.exp, sympy.sqrt, sympy.log, sympy.tanh
ROW = (AtLeast(n), InRange(i, 0, n - 1))


def weights(at: Any) -> Any:
    """softmax(x) at one place."""
    return exp(x[at]) / total(exp(x[l]), l, n)


def score(row: Any, column: Any, binder: Any) -> Any:
    return total(Q[row, binder] * K[column, binder], binder, d) / sqrt(d)


ALPHA = array("alpha", n, m)
D_ALPHA = array("dalpha", n, m)
ATTENTION = (
    AtLeast(m),
    AtLeast(d),
    InRange(a, 0, n - 1),
    InRange(b, 0, d - 1),
    Defined(ALPHA, (i, j), exp(score(i, j, c)) / total(exp(score(i, l, t)), l, m)),
    Defined(D_ALPHA, (i, j), total(G[i, k] * V[j, k], k, d_v)),
)
LOSS = total(total(total(G[i, k] * ALPHA[i, j] * V[j, k], j, m), k, d_v), i, n)
INNER = total(ALPHA[a, l] * D_ALPHA[a, l], l, m)
DQ = total(ALPHA[a, j] * (D_ALPHA[a, j] - INNER) * K[j, b], j, m) / sqrt(d)
DQ_MUTANTS = {
    "sign": total(ALPHA[a, j] * (D_ALPHA[a, j] + INNER) * K[j, b], j, m) / sqrt(d),
    "negated": -DQ,
    "scale dropped": DQ * sqrt(d),
    "scale squared": DQ / sqrt(d),
    "root of n": DQ * sqrt(d) / sqrt(n),
    "a line through the squares 4 and 9": DQ * sqrt(d) * 5 / (d + 6),
    "rank-one term dropped": total(ALPHA[a, j] * D_ALPHA[a, j] * K[j, b], j, m) / sqrt(d),
    "weights of the inner sum dropped": total(
        ALPHA[a, j] * (D_ALPHA[a, j] - total(D_ALPHA[a, l], l, m)) * K[j, b], j, m
    )
    / sqrt(d),
    "wrong sum index": total(ALPHA[a, j] * (D_ALPHA[a, j] - total(ALPHA[a, l] * D_ALPHA[a, j], l, m)) * K[j, b], j, m)
    / sqrt(d)
    + total(ALPHA[a, j] * K[j, b], j, m),
    "captured index": total(ALPHA[a, j] * (D_ALPHA[a, j] - total(ALPHA[a, j] * D_ALPHA[a, j], j, m)) * K[0, b], j, m)
    / sqrt(d),
    "keys at the wrong place": total(ALPHA[a, j] * (D_ALPHA[a, j] - INNER) * K[m - 1 - j, b], j, m) / sqrt(d),
    "one term too few": sympy.Sum(ALPHA[a, j] * (D_ALPHA[a, j] - INNER) * K[j, b], (j, 0, m - 2)) / sqrt(d),
}


def test_the_query_gradient_end_to_end() -> None:
    result = check(Diff(LOSS, Q[a, b]), DQ, ATTENTION)
    assert result.agrees
    assert result.error_probability < 1e-9
    assert len(result.sizes) >= 2
    assert all(v >= 2 for s in result.sizes for key, v in s.items() if key in ("n", "m", "d_k", "d_v"))


@pytest.mark.parametrize("name", DQ_MUTANTS)
def test_mutants_of_the_query_gradient_are_refused(name: str) -> None:
    result = check(Diff(LOSS, Q[a, b]), DQ_MUTANTS[name], ATTENTION)
    assert not result.agrees
    assert result.witness is not None
    assert set(result.witness["sizes"]) >= {"n", "m", "d_k"}


TRUE = {
    "rows sum to one": (total(exp(x[j]) / total(exp(x[l]), l, n), j, n), sympy.Integer(1), (AtLeast(n),)),
    "exp is a homomorphism": (exp(x[i] + y[i]), exp(x[i]) * exp(y[i]), ROW),
    "product in an exponent": (exp(x[i] * (y[i] + 2)), exp(x[i] * y[i]) * exp(2 * x[i]), ROW),
    "exchange": (
        total(total(x[i] * y[j] ** 2, i, n), j, n),
        total(y[j] ** 2, j, n) * total(x[i], i, n),
        (),
    ),
    "triangle": (
        sympy.Sum(x[i] * y[j], (j, 0, i), (i, 0, n - 1)),
        sympy.Sum(x[i] * y[j], (i, j, n - 1), (j, 0, n - 1)),
        (),
    ),
    "delta": (total(sympy.KroneckerDelta(i, j) * x[j], j, n), x[i], ROW),
    "arithmetic series": (total(j, j, n), n * (n - 1) / 2, ()),
    "reciprocal": (total(1 / (1 + x[j]), j, n), total(1 - x[j] / (1 + x[j]), j, n), ()),
    "Hessian of log-sum-exp": (
        Diff(Diff(log(total(exp(x[l]), l, n)), x[i]), x[j]),
        weights(i) * sympy.KroneckerDelta(i, j) - weights(i) * weights(j),
        (*ROW, InRange(j, 0, n - 1)),
    ),
    "log-sum-exp shifted": (
        log(total(exp(x[l] + scalar("s")), l, n)),
        scalar("s") + log(total(exp(x[l]), l, n)),
        (AtLeast(n),),
    ),
    "tanh": (Diff(tanh(x[i]), x[i]), 1 - tanh(x[i]) ** 2, ROW),
    "tanh twice": (
        Diff(Diff(tanh(x[i]), x[i]), x[i]),
        -2 * tanh(x[i]) * (1 - tanh(x[i]) ** 2),
        ROW,
    ),
    "tanh in an exponent": (exp(tanh(x[i]) + y[i]), exp(tanh(x[i])) * exp(y[i]), ROW),
    "Pythagoras": (sympy.cos(x[i]) ** 2 + sympy.sin(x[i]) ** 2, sympy.Integer(1), ROW),
    "slope of a sine": (Diff(sympy.sin(2 * x[i]), x[i]), 2 * sympy.cos(2 * x[i]), ROW),
    "a mask is idempotent": (total(y[j] ** 2 * x[j], j, n), total(y[j] * x[j], j, n), (ZeroOne(y),)),
    "root of a scalar": (sqrt(scalar("s", positive=True)) ** 2 * sqrt(d) / d, scalar("s", positive=True) / sqrt(d), ()),
    "other entries are fixed": (Diff(x[i] * x[j], x[j]), x[i], (*ROW, InRange(j, 0, n - 1), Distinct(i, j))),
}
FALSE = {
    "rows sum to two": (total(exp(x[j]) / total(exp(x[l]), l, n), j, n), sympy.Integer(2), (AtLeast(n),)),
    "sum of exponents": (exp(x[i] + y[i]), exp(x[i]) + exp(y[i]), ROW),
    "exp(xy) = 1": (exp(x[i] * y[i]), sympy.Integer(1), ROW),
    "exp(x)^2 against exp(x^2)": (exp(x[i]) ** 2, exp(x[i] ** 2), ROW),
    "sum of products": (total(x[i] * y[i], i, n), total(x[i], i, n) * total(y[i], i, n), ()),
    "captured index": (total(total(x[i] * y[j], i, n), j, n), total(total(x[j] * y[j], j, n), j, n), ()),
    "delta dropped": (total(sympy.KroneckerDelta(i, j) * x[j], j, n), total(x[j], j, n), ROW),
    "triangle with its diagonal twice": (
        sympy.Sum(x[i] * y[j], (j, 0, i), (i, 0, n - 1)),
        sympy.Sum(x[i] * y[j], (i, j, n - 1), (j, 0, n - 1)) + total(x[i] * y[i], i, n),
        (),
    ),
    "no mask": (total(y[j] ** 2 * x[j], j, n), total(y[j] * x[j], j, n), ()),
    "sine for cosine": (Diff(sympy.sin(x[i]), x[i]), sympy.sin(x[i]), ROW),
    "odd for even": (sympy.cos(-x[i]), -sympy.cos(x[i]), ROW),
    "tanh is not the identity": (tanh(x[i]), x[i], ROW),
    "tanh' without its square": (Diff(tanh(x[i]), x[i]), 1 - tanh(x[i]), ROW),
    "log is not linear": (log(total(exp(x[l]), l, n)), total(x[l], l, n), (AtLeast(n),)),
    "wrong series": (total(j, j, n), n * (n + 1) / 2, ()),
    "the same entry twice": (Diff(x[i] * x[j], x[j]), x[i], (*ROW, InRange(j, 0, n - 1))),
    "root forgotten": (sqrt(d), d / 2, ()),
    "a sum against its derivative": (
        Diff(total(x[i] ** 2, i, n), x[j]),
        total(2 * x[i], i, n),
        (InRange(j, 0, n - 1),),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_agree(name: str) -> None:
    lhs, rhs, assumptions = TRUE[name]
    result = check(lhs, rhs, assumptions)
    assert result.agrees
    assert result.error_probability < 1e-9


@pytest.mark.parametrize("name", FALSE)
def test_false_statements_do_not(name: str) -> None:
    lhs, rhs, assumptions = FALSE[name]
    assert not check(lhs, rhs, assumptions, draws=12).agrees


def test_a_derivative_passes_through_a_named_scalar() -> None:
    """An abbreviation without indices is opened under the derivative too."""
    z = scalar("Z")
    named = Defined(z, (), total(exp(x[l]), l, n))
    assert check(Diff(log(z), x[i]), exp(x[i]) / z, (*ROW, named)).agrees
    assert check(Diff(2 * z + 1, x[i]), 2 * exp(x[i]), (*ROW, named)).agrees
    assert not check(Diff(z, x[i]), sympy.Integer(0), (*ROW, named)).agrees


def test_the_masks_that_were_tried_are_named() -> None:
    """The error bound is one for these masks; with a free array instead the statement is false."""
    lhs, rhs, assumptions = TRUE["a mask is idempotent"]
    result = check(lhs, rhs, assumptions)
    assert all(one["y[0]"] in (0, 1) and one["y[1]"] in (0, 1) for one in result.sizes)
    assert len({tuple(sorted(one.items())) for one in result.sizes}) == len(result.sizes)


def test_a_split_needs_its_condition() -> None:
    half = size("h")
    whole = total(x[j], j, n)
    parts = total(x[j], j, half) + sympy.Sum(x[j], (j, half, n - 1))
    assert check(whole, parts, (Ordered(0, half, n),)).agrees
    with pytest.raises(StatementError, match=r"Ordered|outside its array"):
        check(whole, parts, draws=20)


BAD = {
    "unbound index": (x[i], x[i], (), "index i is unbound"),
    "outside the array": (total(x[j + 1], j, n), total(x[j], j, n), (), "outside its array"),
    "mixed sizes": (total(x[j], j, m), sympy.Integer(0), (AtLeast(m),), "outside its array"),
    "unknown function": (sympy.gamma(x[i]), x[i], ROW, "gamma"),
    "derivative by a scalar": (Diff(x[i], scalar("s")), x[i], ROW, "by an entry of an array"),
    "defined twice": (x[i], x[i], (*ROW, Defined(y, (j,), x[j]), Defined(y, (j,), 2 * x[j])), "defined twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_statements_are_named(name: str) -> None:
    lhs, rhs, assumptions, words = BAD[name]
    with pytest.raises(StatementError, match=words):
        check(lhs, rhs, assumptions, draws=20)


@pytest.mark.parametrize("expr", [exp(exp(x[i])), exp(weights(i)), sympy.Abs(x[i]), exp(sympy.sin(x[i]))], ids=str)
def test_what_is_outside_says_so(expr: Any) -> None:
    with pytest.raises(Outside):
        check(expr, expr + 1, ROW)


def test_text_is_never_evaluated() -> None:
    with pytest.raises((sympy.SympifyError, TypeError)):
        check("1 + 1", sympy.Integer(2))


def test_an_empty_range_is_an_empty_sum() -> None:
    """SymPy follows Karr: Sum(1, (j, 5, 1)) is −3 there. A window that opens at the first row is empty here."""
    statement = Statement((total(sympy.Integer(1), j, n),), ())
    assert Evaluator(statement, {n: 0}, Field(1, 16)).value(statement.expressions[0]).v == 0
    with pytest.raises(StatementError, match="negative"):
        Evaluator(statement, {n: -3}, Field(1, 16)).value(statement.expressions[0])


def test_the_prime_is_what_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert certify_prime()
    assert sympy.isprime(modular_field.P)
    assert sympy.isprime(modular_field.R)
    assert modular_field.P == 2 * modular_field.R + 1
    certify_prime.cache_clear()
    monkeypatch.setattr(modular_field, "R", modular_field.R + 2)
    with pytest.raises(AssertionError):
        certify_prime()
    monkeypatch.undo()
    certify_prime.cache_clear()


def test_roots_of_sizes_are_positive_and_multiply() -> None:
    field = Field(7, 32)
    roots = {q: field.root(field.lift(Fraction(q)), 2) for q in (2, 3, 4, 6, 8, 9, 12, 13)}
    assert roots[4].v == roots[4].e == 2
    assert roots[9].v == roots[9].e == 3
    product = roots[2] * roots[6]
    assert (product.v, product.e) == ((roots[3] * field.lift(Fraction(2))).v, (roots[3] * field.lift(Fraction(2))).e)
    with pytest.raises(Undefined):
        field.root(field.lift(Fraction(-1)), 2)


@pytest.mark.parametrize("bits", [3, 4, 5])
def test_the_error_bound_holds_where_it_can_be_measured(bits: int) -> None:
    """exp(xy) = 1 is false; with few exponent bits it passes often enough to count, and no more often than allowed."""
    statement = Statement((exp(x[0] * x[1]), sympy.Integer(1)), (AtLeast(n, 2),))
    sizes = {n: 2}
    degrees = Degrees({})
    left, right = (Evaluator(statement, sizes, degrees).value(s) for s in statement.expressions)
    allowed = degrees._one((left + -right).top, bits)
    tries = 600
    passed = 0
    for seed in range(tries):
        one = Evaluator(statement, sizes, Field(seed, bits))
        u, v = (one.value(s) for s in statement.expressions)
        passed += u.v == v.v
    assert 0 < passed <= tries * allowed


def test_value_and_exponent_are_independent() -> None:
    """A statement that confuses x with exp's exponent may not pass: exp(x)·x is no function of either alone."""
    assert not check(x[i] * exp(x[i]), exp(x[i]), ROW).agrees
    field = Field(3, 8)
    drawn = [field.entry("x", (q,)) for q in range(400)]
    assert {r.e for r in drawn if r.v % 2} & {r.e for r in drawn if r.v % 2 == 0}
    assert len({r.v for r in drawn}) == 400


def test_draws_meet_their_conditions() -> None:
    lower, upper = index("u"), index("v")
    statement = Statement(
        (x[lower] + x[upper],),
        (InRange(lower, 0, n - 1), InRange(upper, lower, n - 1), Distinct(lower, upper), AtLeast(n, 3)),
    )
    drawn = list(itertools.islice(instances(statement, random.Random(1), pool=range(2, 6), distinct=True), 200))
    assert all(3 <= v[n] <= 5 and 0 <= v[lower] < v[upper] < v[n] for v in drawn)
    impossible = Statement((x[lower],), (InRange(lower, 0, n - 1), Distinct(lower, lower)))
    with pytest.raises(StatementError, match="contradict"):
        next(instances(impossible, random.Random(1), pool=range(2, 6), distinct=True))


def test_free_indices_and_splits_are_looked_at_from_both_ends() -> None:
    """One term too few shows only where the index or the split stands at an end."""
    cut = size("h")
    ends = sympy.Sum(sympy.KroneckerDelta(i, j) * x[j], (j, 0, n - 2))
    assert not check(ends, x[i], ROW, draws=1).agrees
    assert not check(sympy.Sum(sympy.KroneckerDelta(i, j) * x[j], (j, 1, n - 1)), x[i], ROW, draws=1).agrees
    for end in (sympy.Integer(0), n):
        at_end = sympy.KroneckerDelta(cut, end) * x[0]
        assert not check(at_end, sympy.Integer(0), (AtLeast(n, 1), Ordered(0, cut, n)), draws=1).agrees


def test_the_same_seed_draws_the_same() -> None:
    assert check(x[i], x[i], ROW, seed=5) == check(x[i], x[i], ROW, seed=5)
    first, second = (check(x[i], 2 * x[i], ROW, seed=s).witness for s in (5, 6))
    assert first != second


def test_a_denominator_that_a_placement_makes_zero_is_drawn_again_or_outside() -> None:
    """Σ_{j<m} δ_ij is 0 for i ≥ m: no draw there has a value, and none is an error of this program."""
    inside = total(sympy.KroneckerDelta(i, j), j, m)
    agreed = check(x[i] / inside, x[i], (*ROW, AtLeast(m), InRange(i, 0, m - 1), Ordered(1, m, n)))
    assert agreed.agrees
    nowhere = total(sympy.KroneckerDelta(i, n + j), j, m)
    with pytest.raises(Outside, match="division by zero"):
        check(x[i] / nowhere, x[i], (*ROW, AtLeast(m)))
    assert check(x[i] / inside, x[i], (*ROW, AtLeast(m))).agrees
