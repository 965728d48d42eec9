"""What `derive.moments` refuses, where it is given, and with which words: expected, got, mend."""

from collections.abc import Callable
from typing import Any

import pytest
import sympy

from derive import moments as m
from derive.errors import InputError
from derive.language import index, scalar, size

n, d, i = size("n"), size("d_k"), index("i")
q, k = (m.vector(name, d, law=m.gaussian()) for name in "qk")
X = m.matrix("X", n, d, law=m.gaussian())
qk = q @ k

REFUSED: list[tuple[Callable[[], Any], str]] = [
    # laws that are none
    (lambda: m.vector("q", d, law="gaussian"), r"got the text 'gaussian'; did you mean law=moments.gaussian\(…\)\?"),  # type: ignore[arg-type]
    (lambda: m.vector("q", d, law="normal"), r"did you mean law=moments.gaussian"),  # type: ignore[arg-type]
    (lambda: m.matrix("X", n, d, law=m.student), r"the function student; did you mean law=moments.student"),  # type: ignore[arg-type]
    (lambda: m.vector("q", d, law=5), "expected a Law, got 5"),  # type: ignore[arg-type]
    # names and sizes
    (lambda: m.vector(5, d, law=m.gaussian()), 'such as "q", got 5'),  # type: ignore[arg-type]
    (lambda: m.vector("", d, law=m.gaussian()), "got an empty one"),
    (lambda: m.vector("q", "d_k", law=m.gaussian()), r'got the text \'d_k\'; a symbolic size is size\("d_k"\)'),
    (lambda: m.vector("q", -1, law=m.gaussian()), "at least 0, got -1"),
    (lambda: m.vector("q", 2.5, law=m.gaussian()), "whole number of at least 0, got 2.5"),
    (lambda: m.vector("q", True, law=m.gaussian()), "whole number of at least 0, got True"),
    (lambda: m.vector("q", None, law=m.gaussian()), "got None"),
    (lambda: m.fixed("X"), "one or two sizes, got 0"),
    (lambda: m.fixed("X", n, d, 2), "one or two sizes, got 3"),
    # cumulants
    (lambda: m.vector("q", d, cumulants=5), r"\[mean, variance, …\]"),  # type: ignore[arg-type]
    (lambda: m.vector("q", d, cumulants={"a": 1}), "orders from 1 up"),  # type: ignore[dict-item]
    (lambda: m.vector("q", d, cumulants="ab"), "the text 'ab'"),
    (lambda: m.vector("q", d, cumulants=[]), "got none"),
    (lambda: m.vector("q", d, cumulants=[0, "1"]), "cumulant 2: .* the text '1'"),
    (lambda: m.vector("q", d, cumulants={1.5: 1}), "got 1.5"),  # type: ignore[dict-item]
    (lambda: m.from_cumulants([0, 1], rest="a"), "rest: .* the text 'a'"),
    (lambda: m.shaped(0, 1, excess_kurtosis=-5), "no law has"),
    # parameters of laws
    (lambda: m.gaussian("0", 1), "the text '0'"),
    (lambda: m.gaussian(0.5), r"which is rounded; write Rational\(1, 2\)"),
    (lambda: m.gaussian(True), "got True"),
    (lambda: m.gaussian(sympy.I), "finite and real"),
    (lambda: m.gaussian(sympy.oo), "finite and real"),
    (lambda: m.gaussian(0, q), "a value of type Array"),
    (lambda: m.uniform("a", 1), "low: .* the text 'a'"),
    (lambda: m.laplace(scale=-1), "above 0, got -1"),
    (lambda: m.laplace(scale=0), "above 0, got 0"),
    (lambda: m.shifted_exponential(-1), "above 0, got -1"),
    (lambda: m.truncated_gaussian(1, cut=0), "cut: expected a number above 0"),
    (lambda: m.student("3"), "dof: .* the text '3'"),
    (lambda: m.xavier("a", "b"), "rows: .* the text 'a'"),
    (lambda: m.xavier(0, 4), "rows: .* at least 1, got 0"),
    (lambda: m.lecun(0), "at least 1, got 0"),
    (lambda: m.he(-2), "at least 1, got -2"),
    (lambda: m.orthogonal(0), "at least 1, got 0"),
    (lambda: m.gaussian().cumulant(1.5), "got 1.5"),  # type: ignore[arg-type]
    (lambda: m.gaussian().moment(-1), "at least 0, got -1"),
    # pairs
    (lambda: m.correlated("qk", d, correlation=0), "names: expected a pair"),  # type: ignore[arg-type]
    (lambda: m.correlated(("q", "q"), d, correlation=0), "two different names"),
    (lambda: m.correlated(("q", "k"), d, correlation="r"), "the text 'r'"),
    (lambda: m.correlated(("q", "k"), d, correlation=0, means=0), "means: expected a pair"),  # type: ignore[arg-type]
    (lambda: m.correlated(("q", "k"), d, correlation=0, deviations=(-1, 1)), "at least 0"),
    # quantities
    (lambda: m.expect(qk, method="foo"), "method: expected one of auto, diagrams, cumulants, both"),  # type: ignore[arg-type]
    (lambda: m.expect(q), r"an array: take a product, q @ k, or an entry"),  # type: ignore[arg-type]
    (lambda: m.variance(q), "variance: .* an array"),  # type: ignore[arg-type]
    (lambda: m.covariance(qk, 3), "covariance: .* got 3"),  # type: ignore[arg-type]
    (lambda: m.cumulant(qk, 2.5), "from 1 to 10, got 2.5"),  # type: ignore[arg-type]
    (lambda: m.cumulant(qk, True), "from 1 to 10, got True"),
    (lambda: m.skewness(3), "got 3"),  # type: ignore[arg-type]
    (lambda: m.excess_kurtosis(q), "an array"),  # type: ignore[arg-type]
    (lambda: qk**2.0, "got 2.0"),  # type: ignore[operator]
    (lambda: qk / "2", "the text '2'"),
    (lambda: qk / 0, "division by 0"),
    (lambda: qk + "a", "the text 'a'"),
    (lambda: qk * 1.5, r"Rational\(3, 2\)"),
    (lambda: 1 / qk, "under the bar"),
    (lambda: 2**qk, "random exponent"),
    (lambda: qk @ q, "a random number on the left"),
    # arrays
    (lambda: X["i", 0], r'the text \'i\'; a symbolic index is index\("i"\)'),
    (lambda: X[-1, 0], "from 0 to n - 1, got -1"),
    (lambda: X[1.5, 0], "from 0 to n - 1, got 1.5"),
    (lambda: X[i, d], "got d_k"),
    (lambda: X[i], "expected 2 indices"),
    (lambda: q * k, "two arrays are multiplied by @"),
    (lambda: q * "a", "the text 'a'"),
    (lambda: q / 0, "division by 0"),
    (lambda: q + 1, r"expected an array of shape \(d_k,\)"),
    (lambda: 1 + q, r"expected an array of shape \(d_k,\)"),
    (lambda: q - 1, r"expected an array of shape \(d_k,\)"),
    (lambda: q**2, "take an entry"),
    (lambda: 3 @ q, "got 3 on the left"),
    (lambda: q @ 3, "got 3 on the right"),
    # results
    (lambda: m.large(3 + 6 / d, "d_k"), r'size\("d_k"\), got the text'),
    (lambda: m.large("3", d), "the text '3'"),
    (lambda: m.large(3 + 6 / d, d, terms=0), "at least 1, got 0"),
    (lambda: m.opened(qk), r"as expect\(…\) gives it"),
    (lambda: m.verdict(m.variance, qk, equals="d_k"), "equals: .* the text 'd_k'"),
    (lambda: m.verdict(m.variance, qk, equals=qk), "equals: .* type Quantity"),
    (lambda: m.verdict(m.variance, qk, qk, equals=d), "one random quantity"),
    (lambda: m.verdict(m.covariance, qk, equals=d), "two random quantities"),
    (lambda: m.verdict(m.cumulant, qk, equals=d), "a random quantity and an order"),
    (lambda: m.verdict(m.cumulant, qk, "2", equals=d), "order of a cumulant"),
    (lambda: m.verdict(m.variance, qk, equals=d, assuming=3), "expected a tuple of conditions"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_has_no_meaning_is_refused_where_it_is_given(case: int) -> None:
    make, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        make()


def test_what_has_a_meaning_still_passes() -> None:
    sigma = scalar("sigma", positive=True)
    assert m.variance(m.vector("q", d, law=m.gaussian(0, sigma**2)) @ k) == d * sigma**2
    assert m.expect((q - k)[0] ** 2) == 2
    assert m.expect((-q)[0] * q[0]) == -1
    assert m.variance((q / 2 + k * 3)[1]) == sympy.Rational(37, 4)
    assert m.expect(X[1, 0] * X[0, 0]) == 0
    assert m.expect(m.vector("e", 0, law=m.gaussian()) @ m.vector("f", 0, law=m.gaussian())) == 0
    assert m.cumulant(qk, sympy.Integer(2)) == d
    assert m.large(sympy.Integer(3) + 6 / d, d) == 3
    # A law's parameters may be symbols of which nothing is known.
    assert str(m.laplace(scale=sympy.Symbol("b"))) == "Laplace(0, b)"
