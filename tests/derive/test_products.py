"""Products over symbolic ranges and powers with symbolic exponents: proved for positive factors, and no others."""

from typing import Any

import pytest
import sympy
from sympy import KroneckerDelta, Piecewise, Product, Sum, exp, log

from derive.assumptions import Assumption, AtLeast, Defined, Distinct, InRange, Ordered, Positive
from derive.errors import StatementError
from derive.intervals import refute
from derive.language import Diff, array, index, scalar, size, total
from derive.prover import first_checker, prove
from derive.verdict import Kind

n, m = size("n"), size("m")
i, j, k, l = (index(name) for name in "ijkl")
x, f, g = array("x", n), array("f", n), array("g", n)
A = array("A", n, n)
s = scalar("s")
a, b = scalar("a", positive=True), scalar("b", positive=True)
ROW = AtLeast(n, 1)
FACTORS = (InRange(i, 0, n - 1), Positive(f[i]))  # i is not free in most statements: f > 0 everywhere


def product(body: Any, binder: Any, last: Any = n - 1, first: Any = 0) -> Any:
    return Product(body, (binder, first, last))


WHOLE = product(f[j], j)

TRUE: dict[str, tuple[Any, Any, tuple[Assumption, ...]]] = {
    "renamed": (WHOLE, product(f[k], k), FACTORS),
    "last factor": (WHOLE, f[n - 1] * product(f[k], k, n - 2), (ROW, *FACTORS)),
    "first factor": (WHOLE, f[0] * product(f[k], k, first=1), (ROW, *FACTORS)),
    "split": (WHOLE, product(f[j], j, m - 1) * product(f[j], j, first=m), (Ordered(0, m, n), *FACTORS)),
    "shifted": (product(f[j + 1], j, n - 2), product(f[j], j, first=1), (ROW, *FACTORS)),
    "telescoping": (product(exp(x[j + 1] - x[j]), j, n - 2), exp(x[n - 1] - x[0]), (ROW,)),
    "telescoping quotient": (product(f[j + 1] / f[j], j, n - 2) * f[0], f[n - 1],
                             (ROW, *FACTORS, InRange(l, 0, n - 2), Positive(f[l + 1] / f[l]))),
    "of a constant": (product(a, j), a**n, ()),
    "of a constant times": (product(a * f[j], j), a**n * WHOLE, FACTORS),
    "of exponentials": (product(exp(x[j]), j), exp(total(x[j], j, n)), ()),
    "of squares": (product(f[j] ** 2, j), WHOLE**2, FACTORS),
    "of quotients": (product(1 / f[j], j) * WHOLE, 1, FACTORS),
    "of two": (product(f[j] * g[j], j), WHOLE * product(g[k], k), (*FACTORS, Positive(g[i]), Positive(f[i] * g[i]))),
    "of sums": (product(1 + exp(x[j]), j), exp(total(log(1 + exp(x[j])), j, n)), ()),
    "its logarithm": (log(WHOLE), total(log(f[j]), j, n), FACTORS),
    "empty": (Product(a, (j, 0, -1)), 1, ()),
    "double": (Product(exp(A[j, k]), (j, 0, n - 1), (k, 0, n - 1)), product(product(exp(A[k, j]), j), k), ()),
    "triangle": (Product(exp(A[j, k]), (j, 0, k), (k, 0, n - 1)), Product(exp(A[j, k]), (k, j, n - 1), (j, 0, n - 1)),
                 ()),
    "under a sum": (total(x[k] * product(exp(A[k, j]), j), k, n), total(x[l] * exp(total(A[l, k], k, n)), l, n), ()),
    "named as a free index": (x[i] * product(exp(A[i, j]), j), x[i] * exp(total(A[i, k], k, n)),
                              (InRange(i, 0, n - 1),)),
    "with a delta": (product(exp(KroneckerDelta(i, j) * s), j), exp(s), (InRange(i, 0, n - 1),)),
    "with cases": (product(Piecewise((a, j < m), (b, True)), j), a**m * b ** (n - m), (Ordered(0, m, n),)),
    "defined factors": (product(g[j], j), exp(total(x[j], j, n)), (Defined(g, (j,), exp(x[j])),)),
    "beside unknown signs": (s * WHOLE, s * f[n - 1] * product(f[k], k, n - 2), (ROW, *FACTORS)),
    "exponents add": (a**n * a**m, a ** (n + m), ()),
    "one more": (a ** (n + 1), a * a**n, ()),
    "bases multiply": ((a * b) ** n, a**n * b**n, ()),
    "power of a power": ((a**n) ** 3, a ** (3 * n), ()),
    "reciprocal": (a ** (-n) * a**n, 1, ()),
    "of a number": (2 ** (n + 1) - 2**n, 2**n, ()),
    "of twelve": (sympy.Integer(12) ** n, sympy.Integer(3) ** n * 4**n, ()),
    "of a size": (n ** (m + 1), n * n**m, (ROW,)),
    "exponent of two sizes": (a ** (n * m + n), (a ** (n * m)) * a**n, ()),
    "indices in the exponent": (total(a**j * a, j, n), total(a ** (j + 1), j, n), ()),
    "of a sum": (total(exp(x[j]), j, n) ** (m + 1), total(exp(x[j]), j, n) * total(exp(x[k]), k, n) ** m, (ROW,)),
    "derivative of a product": (Diff(product(exp(x[j]), j), x[i]), product(exp(x[j]), j), (InRange(i, 0, n - 1),)),
    "derivative of a power": (Diff(exp(x[i]) ** n, x[i]), n * exp(n * x[i]), (InRange(i, 0, n - 1),)),
    "derivative by the base": (Diff(f[i] ** (n + 1), f[i]), (n + 1) * f[i] ** n, FACTORS),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_proved_for_positive_factors(name: str) -> None:
    lhs, rhs, conditions = TRUE[name]
    assert prove(lhs, rhs, conditions).kind is Kind.PROVED


def mutations(side: Any) -> list[tuple[str, Any]]:
    """Slips of one place: an end of a range, an exponent, a factor, a sign."""
    found = [("twice", 2 * side), ("negated", -side), ("one more", side + 1)]
    for node in sympy.preorder_traversal(side):
        if isinstance(node, (Product, Sum)):
            (binder, low, high), *rest = node.limits
            found.append(
                ("a factor less", side.xreplace({node: node.func(node.function, (binder, low, high - 1), *rest)}))
            )
            found.append(
                ("a factor less", side.xreplace({node: node.func(node.function, (binder, low + 1, high), *rest)}))
            )
            found.append(("square", side.xreplace({node: node.func(node.function**2, *node.limits)})))
        if isinstance(node, sympy.Pow) and node.exp.free_symbols:
            found.append(("exponent plus one", side.xreplace({node: node.base ** (node.exp + 1)})))
            found.append(("exponent doubled", side.xreplace({node: node.base ** (2 * node.exp)})))
            found.append(("exponent negated", side.xreplace({node: node.base ** (-node.exp)})))
            found.append(("base doubled", side.xreplace({node: (2 * node.base) ** node.exp})))
        if isinstance(node, sympy.Indexed):
            found += [("an entry doubled", side.xreplace({node: 2 * node}))]
    return found


@pytest.mark.parametrize("name", TRUE)
def test_mutants_are_not_proved(name: str) -> None:
    lhs, rhs, conditions = TRUE[name]
    false = 0
    for side in ("lhs", "rhs"):
        for _, mutant in mutations(sympy.sympify(lhs if side == "lhs" else rhs)):
            sides = (mutant, rhs) if side == "lhs" else (lhs, mutant)
            try:
                witness = refute(*sides, "=", conditions, draws=24)
            except StatementError:
                continue
            if witness is None:
                continue
            false += 1
            try:
                assert not first_checker(*sides, conditions).zero, sides
            except StatementError:
                continue
    assert false >= 4


@pytest.mark.parametrize(("lhs", "rhs", "conditions"), [
    (product(x[j], j), product(x[k], k), ()),
    (product(x[j] ** 2, j), product(x[k], k) ** 2, ()),
    (s ** (n + 1), s * s**n, ()),
    ((-a) ** n, (-1) ** n * a**n, ()),
    (n ** (m + 1), n * n**m, ()),
    (WHOLE, f[n - 1] * product(f[k], k, n - 2), (ROW,)),
    (WHOLE * 1, product(f[k], k), (InRange(j, 0, m - 1), Ordered(0, m, n), Positive(f[j]))),
    (x[i] + WHOLE, x[i] + product(f[k], k), FACTORS),
], ids=str)  # fmt: skip
def test_what_may_not_be_positive_is_not_read(lhs: Any, rhs: Any, conditions: tuple[Assumption, ...]) -> None:
    """Also where f > 0 is stated for one i of the statement, or for a part of the range, alone."""
    first = first_checker(lhs, rhs, conditions)
    assert not first.zero
    assert "not known to be positive" in first.reason
    assert prove(lhs, rhs, conditions).kind in (Kind.UNKNOWN, Kind.EXACT_AT_SIZES)


def test_a_stated_condition_is_read_at_places_inside_its_range_only() -> None:
    assert first_checker(log(f[0]), log(f[0]), (ROW, *FACTORS)).zero
    assert first_checker(log(f[n - 1]), log(f[n - 1]), (ROW, *FACTORS)).zero
    part = (Ordered(1, m, n - 1), InRange(i, 0, m - 1), Positive(f[i]))
    assert first_checker(log(f[m - 1]), log(f[m - 1]), part).zero
    assert first_checker(log(f[m]), log(f[m]), part).missing
    assert first_checker(log(f[n - 1]), log(f[n - 1]), part).missing


def test_a_condition_on_two_indices_is_read_where_both_ranges_and_their_difference_hold() -> None:
    triangle = (ROW, InRange(i, 0, n - 1), InRange(j, 0, i), Positive(A[i, j]))
    assert first_checker(log(A[n - 1, 0]), log(A[n - 1, 0]), triangle).zero
    assert first_checker(log(A[n - 1, n - 1]), log(A[n - 1, n - 1]), triangle).zero
    assert first_checker(log(A[0, n - 1]), log(A[0, n - 1]), triangle).missing
    apart = (AtLeast(n, 2), InRange(i, 0, n - 1), InRange(j, 0, n - 1), Distinct(i, j), Positive(A[i, j]))
    assert first_checker(log(A[0, 0]), log(A[0, 0]), apart).missing
    assert first_checker(log(A[n - 1, n - 1]), log(A[n - 1, n - 1]), apart).missing
    step = (AtLeast(n, 2), InRange(i, 0, n - 2), Positive(x[i + 1] - x[i]))
    rise = x[n - 1] - x[n - 2]
    assert first_checker(log(rise), log(rise), step).zero
    assert first_checker(log(-rise), log(-rise), step).missing
    assert first_checker(log(x[n - 1] - x[0]), log(x[n - 1] - x[0]), step).missing


def test_a_range_that_may_run_backwards_is_refused() -> None:
    assert first_checker(product(a, j, m - 2), a ** (m - 1)).missing
    assert first_checker(product(a, j, m - 2), a ** (m - 1), (AtLeast(m, 1),)).zero


@pytest.mark.parametrize("exponent", [s, n / 2, x[i], sympy.sqrt(2)])
def test_other_exponents_are_refused(exponent: Any) -> None:
    with pytest.raises(StatementError, match="unsupported exponent"):
        prove(a**exponent, a**exponent, (InRange(i, 0, n - 1),))


def test_a_product_needs_a_range_of_whole_numbers() -> None:
    with pytest.raises(StatementError):
        prove(Product(a, (j, 0, sympy.oo)), 1)


def test_factors_that_vanish_in_a_case_are_no_logarithms() -> None:
    """[j < m] a is 0 for j ≥ m: the product is 0 there, and no exponential."""
    some = Piecewise((a, j < m), (0, True))
    assert first_checker(product(some, j), a**m, (Ordered(0, m, n),)).missing
    assert prove(product(some, j), a**m, (Ordered(0, m, n),)).kind is Kind.REFUTED


def test_terms_cancel_in_pairs_of_equal_logarithms_only() -> None:
    less = product(f[k], k, n - 2)
    conditions = (ROW, *FACTORS)
    assert prove(WHOLE + a ** (n + 1), f[n - 1] * less + a * a**n, conditions).is_proved
    assert not prove(WHOLE + a ** (n + 1), f[n - 1] * less - a * a**n, conditions).is_proved
    assert not prove(WHOLE + WHOLE, f[n - 1] * less, conditions).is_proved
    assert not prove(s * WHOLE, scalar("t") * f[n - 1] * less, conditions).is_proved


def test_the_words_for_drawn_sizes() -> None:
    """A geometric sum is seen at sizes alone; the verdict says at which."""
    verdict = prove((1 - a) * total(a**j, j, n), 1 - a**n)
    assert verdict.kind is Kind.EXACT_AT_SIZES
    assert verdict.scope.startswith("at drawn sizes (n = ")
    assert "not shown for all" in verdict.scope
    assert "1 drawn sizes" not in verdict.scope
