"""The moment engine: its routes against each other, against full enumeration, and against simulation."""

from collections.abc import Callable
from fractions import Fraction as F
from itertools import product
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from derive import moments
from derive.assumptions import AtLeast, Defined, Distinct, FixedArray, RandomEntries
from derive.errors import InputError, MomentError, StatementError
from derive.language import array, index, scalar, size, total
from derive.moments import algebra
from derive.moments.definitions import opened, with_fresh_binders
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.enumeration import at, enumerated, matching_support
from derive.moments.expansion import expanded_at
from derive.moments.laws import Support
from derive.moments.layers import expect_by_layers
from derive.moments.model import GaussianField, GaussianPair, model_of
from derive.moments.nodes import Cumulant, Expect, PowerSum, Variance, cumulants_of, raw_moments_of
from derive.moments.reader import read
from derive.moments.traces import NotLayered
from derive.verdict import Kind

d_k, d_model, n = size("d_k"), size("d_model"), size("n")
i, j, l = index("i"), index("j"), index("l")


def two(law_q: moments.Law, law_k: moments.Law) -> moments.Quantity:
    return moments.vector("q", d_k, law=law_q) @ moments.vector("k", d_k, law=law_k)


def attention(x: moments.Array, law: moments.Law) -> moments.Array:
    w_q, w_k = (moments.matrix(name, d_model, d_k, law=law) for name in ("W_Q", "W_K"))
    return (x @ w_q) @ (x @ w_k).T


# ---- the reader's own questions


def test_the_readers_own_question_in_python_objects() -> None:
    mu, s, g, e = scalar("mu"), scalar("sigma", positive=True), scalar("g"), scalar("e")
    q = moments.vector("q", d_k, cumulants={1: mu, 2: s**2, 3: g, 4: e})
    k = moments.vector("k", d_k, cumulants=[0, 1, 0, 0])
    score = q @ k
    assert moments.expect(score) == 0
    assert algebra.same(moments.variance(score), d_k * (s**2 + mu**2))
    fourth = moments.expect(score**4, method="both")
    # E y⁴ = 3 E q⁴ and E y² = E q² for y = q k with k standard normal.
    raw = raw_moments_of([0, mu, s**2, g, e])
    assert algebra.same(fourth, 3 * d_k * raw[4] + 3 * d_k * (d_k - 1) * raw[2] ** 2)


@pytest.mark.parametrize("order", range(1, 9))
def test_powers_to_eight_by_both_routes(order: int) -> None:
    score = two(moments.shifted_exponential(1, -sympy.Rational(1, 2)), moments.uniform(-1, 2))
    if order > 6:
        score = two(moments.laplace(), moments.uniform())
    assert moments.expect(score**order, method="both") != 1


def test_gaussian_moments_to_order_ten() -> None:
    score = two(moments.gaussian(), moments.gaussian())
    for order in range(2, 11, 2):
        expected = sympy.factorial2(order - 1) * sympy.Mul(*(d_k + 2 * r for r in range(order // 2)))
        assert algebra.same(moments.expect(score**order), expected)
        assert moments.expect(score ** (order - 1)) == 0
    assert moments.cumulant(score, 10) == sympy.factorial(9) * d_k


@pytest.mark.parametrize(
    ("law", "excess"),
    [
        (moments.rademacher(), -2),
        (moments.uniform(), sympy.Rational(6, 25)),
        (moments.laplace(), 33),
        (moments.shifted_exponential(1, -1), 78),
        (moments.student(9), sympy.Rational(366, 25)),
        (moments.gaussian(), 6),
    ],
    ids=str,
)
def test_excess_kurtosis_of_special_laws(law: moments.Law, excess: Any) -> None:
    assert algebra.same(moments.excess_kurtosis(two(law, law)), sympy.sympify(excess) / d_k)


def test_skewness_with_symbols() -> None:
    score = two(moments.shifted_exponential(1, -1), moments.shifted_exponential(1, -1))
    assert algebra.same(moments.skewness(score), 4 / sympy.sqrt(d_k))


@pytest.mark.parametrize(("dof", "order"), [(2, 2), (3, 3), (4, 4), (8, 8)])
def test_a_moment_that_does_not_exist_is_an_error(dof: int, order: int) -> None:
    score = two(moments.student(dof), moments.gaussian())
    with pytest.raises(MomentError, match="does not exist"):
        moments.expect(score**order)
    below = moments.expect(score ** (order - 1))
    assert below == 0 if order % 2 == 0 else below != 0


def test_a_moment_that_was_not_given_is_an_error() -> None:
    score = two(moments.mean_variance(0, 1), moments.gaussian())
    assert moments.variance(score) == d_k
    with pytest.raises(MomentError, match="only \\[1, 2\\] were given"):
        moments.expect(score**3)


def test_large_sizes() -> None:
    assert moments.large(3 * d_k * (d_k + 2), d_k) == 3 * d_k**2
    assert moments.large(3 + 6 / d_k, d_k, terms=2) == 3 + 6 / d_k
    assert moments.large(4 / sympy.sqrt(d_k), d_k) == 4 / sympy.sqrt(d_k)
    whole = d_k / (d_k + 3)
    assert algebra.same(moments.large(whole, d_k, terms=3), 1 - 3 / d_k + 9 / d_k**2)
    with pytest.raises(StatementError, match="growth"):
        moments.large(sympy.exp(d_k), d_k)


def test_self_attention_by_objects() -> None:
    fixed = attention(moments.fixed("X", n, d_model), moments.gaussian())
    x = array("X", n, d_model)

    def gram(a: Any, b: Any) -> Any:
        return PowerSum(x, d_model, a, b)

    assert algebra.same(moments.variance(fixed[i, j]), d_k * gram(i, i) * gram(j, j))
    assert algebra.same(moments.covariance(fixed[i, j], fixed[i, l]), d_k * gram(i, i) * gram(j, l))
    assert algebra.same(moments.covariance(fixed[i, j], fixed[j, i]), d_k * gram(i, j) ** 2)
    random = attention(moments.matrix("X", n, d_model, law=moments.gaussian()), moments.gaussian())
    assert algebra.same(moments.variance(random[i, j]), d_k * d_model**2)
    assert algebra.same(moments.variance(random[i, i]), d_k * d_model * (d_model + 2))
    assert moments.covariance(random[i, j], random[i, l]) == 0
    assert algebra.same(moments.covariance(random[0, 1], random[1, 0]), d_k * d_model)


def test_shared_and_fixed_arrays_keep_one_law() -> None:
    x = moments.fixed("X", n, d_model)
    w = moments.matrix("W", d_model, d_k, law=moments.gaussian())
    tied = (x @ w) @ (x @ w).T
    assert len(tied.laws) == 2
    twin = moments.matrix("W", d_model, d_k, law=moments.gaussian())
    with pytest.raises(StatementError, match="more than one law"):
        moments.expect(((x @ w) @ (x @ twin).T)[i, j])


def test_bias_and_scaling() -> None:
    x = moments.fixed("X", n, d_model)
    w = moments.matrix("W", d_model, d_k, law=moments.gaussian())
    bias = moments.vector("b", d_k, law=moments.gaussian(0, 4))
    k = moments.matrix("K", n, d_k, law=moments.gaussian())
    score = ((x @ w + bias) @ k.T)[i, j] / sympy.sqrt(d_k)
    gram = PowerSum(array("X", n, d_model), d_model, i, i)
    assert algebra.same(moments.variance(score), gram + 4)
    assert algebra.same(moments.variance(3 * score - 1), 9 * gram + 36)
    assert algebra.same(moments.expect(2 - score), 2)


@pytest.mark.parametrize(
    ("law", "variance"),
    [
        (moments.xavier(d_model, d_k), 4 * d_k * d_model**2 / (d_model + d_k) ** 2),
        (moments.xavier(d_model, d_k, shape="uniform"), 4 * d_k * d_model**2 / (d_model + d_k) ** 2),
        (moments.lecun(d_model), d_k),
        (moments.lecun(d_model, shape="uniform"), d_k),
        (moments.he(d_model), 4 * d_k),
        (moments.he(d_model, shape="uniform"), 4 * d_k),
        (moments.inverse_root(d_model), d_k / 9),
        (moments.orthogonal(d_model), d_k),
    ],
    ids=["xavier", "xavier uniform", "lecun", "lecun uniform", "he", "he uniform", "inverse root", "orthogonal"],
)
def test_initialisations(law: Any, variance: Any) -> None:
    scores = attention(moments.matrix("X", n, d_model, law=moments.gaussian()), law)
    assert algebra.same(moments.variance(scores[i, j]), variance)


def test_unknown_shape_of_weights() -> None:
    with pytest.raises(InputError, match="normal"):
        moments.lecun(d_model, shape="flat")


def test_results_can_be_written_out_in_plain_sums() -> None:
    scores = attention(moments.fixed("X", n, d_model), moments.gaussian())
    plain = moments.opened(moments.variance(scores[i, j]))
    assert not plain.atoms(PowerSum)
    assert len(plain.atoms(sympy.Sum)) == 2


def test_a_readers_formula_gets_a_verdict() -> None:
    score = two(moments.laplace(), moments.gaussian())
    other = moments.vector("q", d_k, law=moments.gaussian())
    stated = (AtLeast(d_k, 1),)
    assert moments.verdict(moments.expect, score**4, equals=12 * d_k * (d_k + 5)).kind is Kind.PROVED
    assert moments.verdict(moments.variance, score, equals=d_k).kind is Kind.REFUTED
    assert moments.verdict(moments.cumulant, score, 4, equals=60 * d_k).kind is Kind.PROVED
    assert moments.verdict(moments.excess_kurtosis, score, equals=15 / d_k).kind is Kind.UNKNOWN
    assert moments.verdict(moments.excess_kurtosis, score, equals=15 / d_k, assuming=stated).kind is Kind.PROVED
    assert moments.verdict(moments.excess_kurtosis, score, equals=3 + 15 / d_k, assuming=stated).kind is Kind.REFUTED
    scores = attention(moments.matrix("X", n, d_model, law=moments.gaussian()), moments.gaussian())
    pair = (scores[i, j], scores[j, i])
    assert moments.verdict(moments.covariance, *pair, equals=d_k * d_model).kind is Kind.PROVED
    assert moments.verdict(moments.covariance, *pair, equals=0).kind is Kind.REFUTED
    with pytest.raises(InputError, match="one of the functions"):
        moments.verdict(moments.large, score, equals=0)
    with pytest.raises(InputError, match="random quantity"):
        moments.verdict(moments.variance, other, equals=0)


def test_correlated_vectors() -> None:
    rho = scalar("rho")
    q, k = moments.correlated(("q", "k"), d_k, correlation=rho)
    for order in range(1, 7):
        bracket = (1 + rho) ** order + (-1) ** order * (1 - rho) ** order
        assert algebra.same(moments.cumulant(q @ k, order), d_k * sympy.factorial(order - 1) / 2 * bracket)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: moments.vector("q", d_k), "either law"),
        (lambda: moments.vector("q", d_k, cumulants=[0, 0.5]), "exact number"),
        (lambda: moments.vector("q", d_k, cumulants={0: 1}), "orders from 1"),
        (
            lambda: moments.vector("q", d_k, law=moments.gaussian()) @ moments.vector("k", n, law=moments.gaussian()),
            "fit",
        ),
        (lambda: moments.expect(3), "random quantity"),  # type: ignore[arg-type]
        (lambda: two(moments.gaussian(), moments.gaussian()) ** sympy.Rational(1, 2), "power: expected a whole number"),  # type: ignore[operator]
        (lambda: moments.cumulant(two(moments.gaussian(), moments.gaussian()), 11), "1 to 10"),
        (lambda: moments.fixed("X", n, d_model)[i], "2 indices"),
        (lambda: moments.vector("q", d_k, cumulants=[0, -1]), "at least 0"),
        (lambda: moments.vector("q", d_k, cumulants=[0, 1, 0, -3]), "no law has"),
        (lambda: moments.vector("q", d_k, cumulants=[0, 1, 2, 1]), "κ3 = 2, κ4 = 1"),
        (lambda: moments.uniform(1, 1), "low < high"),
        (lambda: moments.student(scalar("nu")), "number of degrees"),
        (lambda: Support((1, 2), (F(1, 2), F(1, 3))), "summing to 1"),
        (lambda: moments.fixed("X", n, d_model) + moments.fixed("Y", n), "shape"),
        (lambda: two(moments.gaussian(), moments.gaussian()) / two(moments.gaussian(), moments.gaussian()), "division"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# ---- laws


@pytest.mark.parametrize(
    ("law", "density", "support"),
    [
        (moments.uniform(-1, 2), lambda x: sympy.Rational(1, 3), (-1, 2)),
        (moments.laplace(0, 2), lambda x: sympy.exp(-sympy.Abs(x) / 2) / 4, (-sympy.oo, sympy.oo)),
        (moments.shifted_exponential(2, -1), lambda x: sympy.exp(-(x + 1) / 2) / 2, (-1, sympy.oo)),
        (
            moments.gaussian(1, 4),
            lambda x: sympy.exp(-((x - 1) ** 2) / 8) / sympy.sqrt(8 * sympy.pi),
            (-sympy.oo, sympy.oo),
        ),
    ],
    ids=["uniform", "laplace", "exponential", "normal"],
)
def test_moments_of_a_law_are_integrals_of_its_density(law: moments.Law, density: Any, support: Any) -> None:
    x = sympy.Symbol("x", real=True)
    for order in (1, 2, 3, 4, 6):
        exact = sympy.integrate(x**order * density(x), (x, *support))
        assert sympy.nsimplify(exact - law.moment(order)) == 0


def test_discrete_student_and_truncated_laws() -> None:
    for order in range(1, 9):
        assert moments.rademacher(3).moment(order) == (0 if order % 2 else 3**order)
    # Variance dof/(dof − 2), excess kurtosis 6/(dof − 4).
    assert moments.student(9).cumulant(2) == sympy.Rational(9, 7)
    assert moments.student(9).cumulant(4) == sympy.Rational(6, 5) * sympy.Rational(9, 7) ** 2
    cut = moments.truncated_gaussian(1, 2)
    assert abs(float(cut.cumulant(2)) - stats.truncnorm(-2, 2).var()) < 1e-12
    assert abs(float(cut.moment(4)) - stats.truncnorm(-2, 2).moment(4)) < 1e-12


def test_cumulants_and_moments_are_inverse() -> None:
    kappa = [sympy.S.Zero, *sympy.symbols("c1:7")]
    assert all(algebra.same(a, b) for a, b in zip(cumulants_of(raw_moments_of(kappa)), kappa, strict=True))


@pytest.mark.parametrize("top", range(2, 9))
def test_matching_support_has_the_moments(top: int) -> None:
    target = [F(1)] + [F(int(p), int(q)) for p, q in ((moments.gaussian(1, 4).moment(r), 1) for r in range(1, top + 1))]
    found = matching_support(target)
    assert [found.moment(r) for r in range(top + 1)] == target


# ---- the routes against full enumeration

SUPPORTS = [
    Support((F(-1), F(1)), (F(1, 2), F(1, 2))),
    Support((F(-1), F(3)), (F(3, 4), F(1, 4))),
    Support((F(0), F(2)), (F(2, 3), F(1, 3))),
    Support((F(-1), F(0), F(2)), (F(1, 2), F(1, 4), F(1, 4))),
]
X, W_Q, W_K = array("X", n, d_model), array("W_Q", d_model, d_k), array("W_K", d_model, d_k)
Q, K = array("q", d_k), array("k", d_k)
c, a, b = index("c"), index("a"), index("b")


def attention_score(row: Any, column: Any, keys: Any) -> Any:
    left = total(X[row, a] * W_Q[a, c], a, d_model)
    return total(left * total(X[column, b] * keys[b, c], b, d_model), c, d_k)


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize(("one", "other"), [(SUPPORTS[0], SUPPORTS[1]), (SUPPORTS[1], SUPPORTS[3])])
def test_dot_product_against_all_outcomes(order: int, one: Support, other: Support) -> None:
    model = model_of([RandomEntries((Q,), one.law()), RandomEntries((K,), other.law())])
    score = total(Q[c] * K[c], c, d_k)
    polynomial = read(score**order)
    for count in (1, 2, 3):
        outcomes = product(*[list(zip(s.values, s.weights, strict=True)) for s in [one] * count + [other] * count])
        exact = F(0)
        for outcome in outcomes:
            weight, value = F(1), F(0)
            for (x, w), (y, v) in zip(outcome[:count], outcome[count:], strict=True):
                weight, value = weight * w * v, value + x * y
            exact += weight * value**order
        expected = sympy.Rational(exact.numerator, exact.denominator)
        assert expect_by_layers(polynomial, model).xreplace({d_k: count}) == expected
        if order <= 5:
            assert expect_by_diagrams(polynomial, model).xreplace({d_k: count}) == expected


@settings(max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.sampled_from([i, j, l]), st.sampled_from([i, j, l])), min_size=1, max_size=3),
    tied=st.booleans(),
    fixed=st.booleans(),
    laws=st.tuples(*[st.sampled_from(SUPPORTS)] * 3),
    sizes=st.sampled_from([(1, 2), (2, 1), (2, 2)]),
)
def test_any_product_of_self_attention_scores(pairs: Any, tied: bool, fixed: bool, laws: Any, sizes: Any) -> None:
    keys = W_Q if tied else W_K
    statement = sympy.Mul(*(attention_score(row, column, keys) for row, column in pairs))
    rows = [Distinct(i, j), Distinct(i, l), Distinct(j, l)]
    known: list[Any] = [RandomEntries((W_Q,), laws[0].law()), *rows]
    known += [] if tied else [RandomEntries((W_K,), laws[1].law())]
    known += [FixedArray(X)] if fixed else [RandomEntries((X,), laws[2].law())]
    model = model_of(known)
    by_diagrams = expect_by_diagrams(read(statement), model)
    by_layers = expect_by_layers(read(statement), model)
    assert algebra.same(by_diagrams, by_layers)
    values = {
        d_k: sympy.Integer(sizes[0]),
        d_model: sympy.Integer(sizes[1]),
        i: sympy.S(0),
        j: sympy.S(1),
        l: sympy.S(2),
    }
    exact = expanded_at(Expect(statement), model, values)
    assert algebra.same(at(by_diagrams, model, values), exact)


@settings(max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.sampled_from([i, j]), st.sampled_from([i, j])), min_size=1, max_size=3),
    bias=st.sampled_from(["none", "random", "fixed"]),
    laws=st.tuples(*[st.sampled_from(SUPPORTS)] * 3),
    correlation=st.sampled_from([None, sympy.Rational(3, 5), sympy.Rational(-1, 2)]),
    d=st.sampled_from([1, 2, 3]),
)
def test_any_product_of_scores_of_rows(pairs: Any, bias: str, laws: Any, correlation: Any, d: int) -> None:
    """Rows of Q and K, independent or correlated place by place, with a bias on the queries or without."""
    rows, columns, b_q = array("Q", n, d_k), array("K", n, d_k), array("b", d_k)
    known: list[Any] = [Distinct(i, j), FixedArray(b_q) if bias == "fixed" else RandomEntries((b_q,), laws[2].law())]
    if correlation is None:
        known += [RandomEntries((rows,), laws[0].law()), RandomEntries((columns,), laws[1].law())]
    else:
        pair = GaussianPair((sympy.S.One, sympy.Rational(-1, 2)), (sympy.S(2), sympy.Rational(3, 2)), correlation)
        known += [RandomEntries((rows, columns), pair)]
    model = model_of(known)
    statement = sympy.Mul(
        *(total((rows[r, c] + (0 if bias == "none" else b_q[c])) * columns[s, c], c, d_k) for r, s in pairs)
    )
    by_diagrams = expect_by_diagrams(read(statement), model)
    assert algebra.same(by_diagrams, expect_by_layers(read(statement), model))
    values = {d_k: sympy.Integer(d), i: sympy.S(0), j: sympy.S(1)}
    assert algebra.same(at(by_diagrams, model, values), expanded_at(Expect(statement), model, values))


@pytest.mark.parametrize(
    "statement", [Variance, lambda f: Cumulant(f, 3), lambda f: Expect(f**4)], ids=["variance", "third", "fourth"]
)
def test_all_outcomes_and_multiplying_out_agree(statement: Any) -> None:
    model = model_of([RandomEntries((Q,), SUPPORTS[3].law()), RandomEntries((K,), moments.gaussian(1, 4))])
    node = statement(total(Q[c] * K[c], c, d_k))
    for count in (1, 2):
        values = {d_k: sympy.Integer(count)}
        assert enumerated(node, model, values) == expanded_at(node, model, values)


def test_a_row_label_may_have_the_name_of_a_binder() -> None:
    model = model_of([RandomEntries((Q,), SUPPORTS[3].law()), RandomEntries((K,), SUPPORTS[1].law())])
    whole = total(Q[c] * K[c], c, d_k)
    values = {d_k: sympy.Integer(2), c: sympy.S.Zero}
    ratio = Variance(whole) / Variance(Q[c] * K[c])
    assert enumerated(ratio, model, values) == expanded_at(ratio, model, values) == 2
    crossed = Expect(whole * Q[c])
    assert enumerated(crossed, model, values) == expanded_at(crossed, model, values)


def test_sums_over_rows_by_both_routes() -> None:
    rows, columns = array("Q", n, d_k), array("K", n, d_k)
    model = model_of([RandomEntries((rows,), moments.gaussian()), RandomEntries((columns,), moments.laplace())])
    score = total(rows[i, c] * columns[j, c], c, d_k)
    square = sympy.Sum(score**2, (i, 0, n - 1), (j, 0, n - 1))
    polynomial = read(square**2)
    assert algebra.same(expect_by_layers(polynomial, model), expect_by_diagrams(polynomial, model))
    mixed = read(square * total(rows[0, c] * columns[0, c], c, d_k) ** 2)
    assert expect_by_diagrams(mixed, model) != 0
    with pytest.raises(NotLayered):
        expect_by_layers(mixed, model)


def test_fixed_networks_have_one_form() -> None:
    m_q = array("M", d_model, d_model)
    x = array("x", d_model)
    model = model_of([RandomEntries((x,), moments.gaussian()), FixedArray(m_q)])
    form = sympy.Sum(x[a] * m_q[a, b] * x[b], (a, 0, d_model - 1), (b, 0, d_model - 1))
    second = expect_by_diagrams(read(form**2), model)
    a0, a1 = index("a_0"), index("a_1")
    trace = total(m_q[a0, a0], a0, d_model)
    whole = [(a0, 0, d_model - 1), (a1, 0, d_model - 1)]
    square, turned = sympy.Sum(m_q[a0, a1] ** 2, *whole), sympy.Sum(m_q[a0, a1] * m_q[a1, a0], *whole)
    assert algebra.same(second, trace**2 + square + turned)


@pytest.mark.parametrize("order", range(1, 5))
def test_vectors_of_any_covariance_by_pairings_and_by_traces(order: int) -> None:
    covariances = {(0, 0): array("A", d_k, d_k), (1, 1): array("B", d_k, d_k), (0, 1): array("C", d_k, d_k)}
    model = model_of([RandomEntries((Q, K), GaussianField(covariances))])
    score = total(Q[c] * K[c], c, d_k)
    by_pairs = expect_by_diagrams(read(score**order), model)
    assert algebra.same(by_pairs, expect_by_layers(read(score**order), model))
    values = {d_k: sympy.Integer(2)}
    assert algebra.same(at(by_pairs, model, values), expanded_at(Expect(score**order), model, values))
    square = total(Q[c] ** 2, c, d_k)
    assert algebra.same(expect_by_diagrams(read(square**order), model), expect_by_layers(read(square**order), model))


ENTRIES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: Q[x],
    lambda x, y: K[x],
    lambda x, y: Q[x] ** 2,
    lambda x, y: X[i, y],
    lambda x, y: X[j, y] ** 2,
    lambda x, y: W_Q[y, x],
    lambda x, y: W_Q[y, x] * K[x],
    lambda x, y: Q[0],
    lambda x, y: X[i, 0],
]


def _entries(make: Callable[[Any, Any], Any]) -> int:
    """How many entries a maker's product has, squares counted twice."""
    return sum(int(f.as_base_exp()[1]) for f in sympy.Mul.make_args(make(c, a)))


@settings(max_examples=60)
@given(
    pieces=st.lists(
        st.tuples(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=2), st.integers(1, 2)), min_size=1, max_size=2
    ),
    shift=st.sampled_from([0, 1]),
    laws=st.tuples(*[st.sampled_from(SUPPORTS)] * 4),
    fixed=st.booleans(),
    sizes=st.sampled_from([(1, 2), (2, 1), (2, 2)]),
)
def test_any_polynomial_in_entries(pieces: Any, shift: int, laws: Any, fixed: bool, sizes: Any) -> None:
    """Products and powers of sums of products of entries, squares and named places among them."""
    # Set partitions of all entries of one array are many: keep to six entries in a term.
    assume(sum(exponent * max(shift, sum(_entries(make) for make in makers)) for makers, exponent in pieces) <= 6)
    statement = sympy.S.One
    for makers, exponent in pieces:
        body = sympy.Mul(*(make(c, a) for make in makers)) + shift * Q[c]
        statement *= sympy.Sum(body, (a, 0, d_model - 1), (c, 0, d_k - 1)) ** exponent
    known: list[Any] = [Distinct(i, j)]
    known += [RandomEntries((x,), law.law()) for x, law in zip((Q, K, W_Q), laws, strict=False)]
    known += [FixedArray(X)] if fixed else [RandomEntries((X,), laws[3].law())]
    model = model_of(known)
    by_diagrams = expect_by_diagrams(read(statement), model)
    values = {d_k: sympy.Integer(sizes[0]), d_model: sympy.Integer(sizes[1]), i: sympy.S(0), j: sympy.S(1)}
    exact = expanded_at(Expect(statement), model, values)
    assert algebra.same(at(by_diagrams, model, values), exact)
    try:
        by_layers = expect_by_layers(read(statement), model)
    except NotLayered:
        return
    assert algebra.same(at(by_layers, model, values), exact)


def test_an_array_inside_and_outside_the_sum_is_no_layer() -> None:
    w, v = array("W", n, d_k), array("V", d_k, d_model)
    model = model_of([RandomEntries((w,), moments.gaussian()), RandomEntries((v,), moments.gaussian())])
    inner = total(total(w[i, b] * v[b, c], b, d_k), c, d_model)
    beside = total(w[i, b] ** 2, b, d_k)
    statement = inner**2 * beside
    assert expect_by_diagrams(read(statement), model) == d_k**2 * d_model + 2 * d_k * d_model
    values = {d_k: sympy.Integer(2), d_model: sympy.Integer(3), i: sympy.S(0)}
    assert expanded_at(Expect(statement), model, values) == 4 * 3 + 2 * 2 * 3
    try:
        found = expect_by_layers(read(statement), model)
    except NotLayered:
        return
    assert algebra.same(found, expect_by_diagrams(read(statement), model))


def test_the_field_with_unit_covariance_is_the_independent_vector() -> None:
    covariances = {(0, 0): array("A", d_k, d_k), (1, 1): array("B", d_k, d_k), (0, 1): array("C", d_k, d_k)}
    model = model_of([RandomEntries((Q, K), GaussianField(covariances))])
    fourth = expect_by_diagrams(read(total(Q[c] * K[c], c, d_k) ** 4), model)
    # At d_k = 3 with A = B = 1 and C = ρ 1 it is the correlated pair.
    rho, three = sympy.Rational(1, 3), {d_k: 3}
    entries = {"A": sympy.eye(3), "B": sympy.eye(3), "C": rho * sympy.eye(3)}
    opened_sums = fourth.replace(lambda e: isinstance(e, sympy.Sum), lambda e: _numbers(e, entries, three))
    q, k = moments.correlated(("q", "k"), d_k, correlation=rho)
    assert opened_sums == moments.expect((q @ k) ** 4).xreplace({d_k: sympy.Integer(3)})


def _numbers(whole: Any, entries: dict[str, Any], sizes: dict[Any, int]) -> Any:
    binders = [limit[0] for limit in whole.limits]
    found = sympy.S.Zero
    for places in product(range(sizes[d_k]), repeat=len(binders)):
        put = dict(zip(binders, map(sympy.Integer, places), strict=True))
        term = whole.function.xreplace(put)
        found += term.xreplace({e: entries[str(e.base)][tuple(map(int, e.indices))] for e in term.atoms(sympy.Indexed)})
    return found


def test_capture_is_impossible() -> None:
    model = model_of([RandomEntries((Q,), moments.gaussian()), RandomEntries((K,), moments.gaussian())])
    same_binder = total(Q[c] * K[c], c, d_k) * total(Q[c] * K[c], c, d_k)
    nested = total(Q[c] * K[c] * total(Q[c] * K[c], c, d_k), c, d_k)
    assert expect_by_diagrams(read(same_binder), model) == d_k
    assert expect_by_diagrams(read(nested), model) == d_k


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (lambda: sympy.exp(Q[c]), "can't be read"),
        (lambda: total(c * Q[c], c, d_k), "only as the index"),
        (lambda: sympy.Sum(Q[c], (c, 1, d_k)), r"\(binder, 0, size - 1\)"),
        (lambda: total(Q[c], c, n), "axis"),
        (lambda: total(Q[2 * c], c, d_k), "index symbol"),
        (lambda: sympy.Sum(Q[c] * K[b], (b, 0, c), (c, 0, d_k - 1)), "depends on"),
    ],
)
def test_what_cannot_be_read_is_refused(expr: Callable[[], Any], message: str) -> None:
    with pytest.raises(StatementError, match=message):
        read(expr())


def test_algebra_is_sound_about_roots_and_floats() -> None:
    x, y = scalar("x"), scalar("y", positive=True)
    assert algebra.same(sympy.sqrt(8), 2 * sympy.sqrt(2))
    assert algebra.same(sympy.sqrt(d_k * (x**2 + y)) ** 2, d_k * x**2 + d_k * y)
    assert algebra.same(1 / sympy.sqrt(d_k), sympy.sqrt(d_k) / d_k)
    assert algebra.same(sympy.sqrt(4 * y**3 * d_k), 2 * y * sympy.sqrt(y) * sympy.sqrt(d_k))
    assert not algebra.same(sympy.sqrt(x**2), x)
    assert not algebra.same(sympy.sqrt(d_k), d_k)
    assert not algebra.same(sympy.sqrt(d_k + 1), sympy.sqrt(d_k) + 1)
    with pytest.raises(StatementError, match="exact"):
        algebra.same(0.5 * x, x / 2)


# ---- simulation

BATCHES, DRAWS = 100, 1500


def _normal(rng: Any, shape: Any) -> Any:
    return rng.standard_normal(shape)


SAMPLERS: dict[str, tuple[moments.Law, Callable[[Any, Any], Any]]] = {
    "normal": (moments.gaussian(), _normal),
    "shifted": (moments.gaussian(sympy.Rational(1, 2), 4), lambda rng, s: 0.5 + 2 * rng.standard_normal(s)),
    "signs": (moments.rademacher(), lambda rng, s: rng.integers(0, 2, s) * 2.0 - 1),
    "uniform": (moments.uniform(-1, 2), lambda rng, s: rng.uniform(-1, 2, s)),
    "exponential": (moments.shifted_exponential(1, -1), lambda rng, s: rng.exponential(1, s) - 1),
    "laplace": (moments.laplace(), lambda rng, s: rng.laplace(0, 1, s)),
    "student": (moments.student(20), lambda rng, s: rng.standard_t(20, s)),
}
DOTS = [
    ("normal", "normal", 2),
    ("normal", "normal", 16),
    ("shifted", "normal", 5),
    ("shifted", "uniform", 4),
    ("signs", "signs", 8),
    ("signs", "exponential", 6),
    ("uniform", "uniform", 3),
    ("uniform", "laplace", 12),
    ("exponential", "uniform", 7),
    ("laplace", "signs", 10),
    ("student", "normal", 9),
    ("student", "uniform", 16),
]
ATTENTION = [
    (kind, law, d, m)
    for kind in ("off", "diagonal", "tied", "fixed")
    for law, d, m in (("normal", 3, 4), ("uniform", 2, 5))
]


def _dot_sample(rng: Any, one: str, other: str, count: int) -> Any:
    shape = (BATCHES, DRAWS, count)
    return (SAMPLERS[one][1](rng, shape) * SAMPLERS[other][1](rng, shape)).sum(-1)[..., None]


def _fixed_tokens(m: int) -> Any:
    return np.array([[(3 * r + 2 * a) % 5 - 2 for a in range(m)] for r in range(3)]) / 2


def _attention_sample(rng: Any, kind: str, law: str, d: int, m: int) -> Any:
    """Scores of one kind, (batches, draws, entries): entries of one draw depend on each other."""
    draw, rows = (BATCHES, DRAWS // 3), 3
    x = _fixed_tokens(m) if kind == "fixed" else rng.standard_normal((*draw, rows, m))
    w_q = SAMPLERS[law][1](rng, (*draw, m, d))
    w_k = w_q if kind == "tied" else SAMPLERS[law][1](rng, (*draw, m, d))
    scores = (x @ w_q) @ np.swapaxes(x @ w_k, -1, -2)
    if kind == "diagonal":
        return np.diagonal(scores, axis1=-2, axis2=-1)
    if kind == "fixed":
        return scores[..., 0, 1][..., None]
    return scores[..., ~np.eye(rows, dtype=bool)]


def _attention_law(kind: str, law: str, m: int) -> moments.Quantity:
    x = moments.fixed("X", n, d_model) if kind == "fixed" else moments.matrix("X", n, d_model, law=moments.gaussian())
    w_q, w_k = (moments.matrix(name, d_model, d_k, law=SAMPLERS[law][0]) for name in ("W_Q", "W_K"))
    scores = (x @ w_q) @ (x @ (w_q if kind == "tied" else w_k)).T
    return scores[i, i] if kind == "diagonal" else scores[i, j]


def _settings() -> list[tuple[str, moments.Quantity, dict[Any, Any], Callable[[Any], Any]]]:
    found: list[Any] = []
    for one, other, count in DOTS:
        law = two(SAMPLERS[one][0], SAMPLERS[other][0])
        found.append(
            (f"{one} {other} {count}", law, {d_k: count}, lambda rng, t=(one, other, count): _dot_sample(rng, *t))
        )
    for kind, name, d, m in ATTENTION:
        law = _attention_law(kind, name, m)
        sample = (kind, name, d, m)
        found.append((f"{kind} {name}", law, {d_k: d, d_model: m}, lambda rng, t=sample: _attention_sample(rng, *t)))
    return found


def _law_value(law: moments.Quantity, order: int, values: dict[Any, Any]) -> float:
    exact = moments.expect(law**order)
    x = _fixed_tokens(values.get(d_model, 1))
    put = {
        node: sympy.nsimplify(np.prod([x[{i: 0, j: 1}[r]] for r in node.rows], axis=0).sum())
        for node in exact.atoms(PowerSum)
    }
    return float(exact.xreplace(put).xreplace({s: sympy.Integer(v) for s, v in values.items()}))


def test_every_moment_to_order_four_is_inside_the_simulations_band() -> None:
    """Means of independent batches, so the dependence of entries within a draw is inside the standard error."""
    cases = _settings()
    assert len(cases) == 20
    bound = stats.t.ppf(1 - 0.01 / (2 * 4 * len(cases)), BATCHES - 1)
    outside = []
    for number, (name, law, values, sample) in enumerate(cases):
        draws = sample(np.random.default_rng([20260101, number]))
        for order in range(1, 5):
            means = (draws**order).mean(axis=(1, 2))
            error = means.std(ddof=1) / np.sqrt(BATCHES)
            z = (means.mean() - _law_value(law, order, values)) / error if error else 0.0
            if abs(z) > bound:
                outside.append((name, order, z))
    assert not outside


def test_the_simulation_would_see_a_wrong_law() -> None:
    draws = _attention_sample(np.random.default_rng(7), "diagonal", "normal", 3, 4)
    means = (draws**2).mean(axis=(1, 2))
    error = means.std(ddof=1) / np.sqrt(BATCHES)
    wrong = _law_value(_attention_law("off", "normal", 4), 2, {d_k: 3, d_model: 4})
    right = _law_value(_attention_law("diagonal", "normal", 4), 2, {d_k: 3, d_model: 4})
    assert abs(means.mean() - wrong) / error > 10
    assert abs(means.mean() - right) / error < 4


def test_a_pair_law_gives_its_joint_moments() -> None:
    pair = GaussianPair((sympy.S.Zero, sympy.S.Zero), (sympy.S(2), sympy.S(3)), sympy.Rational(3, 5))
    model = model_of([RandomEntries((Q, K), pair)])
    values = {d_k: sympy.Integer(2)}
    node = Variance(total(Q[c] * K[c], c, d_k))
    assert enumerated(node, model, values) == expanded_at(node, model, values) == 2 * 36 * (1 + sympy.Rational(9, 25))


# ---- abbreviations


def test_abbreviations_are_opened_without_capture() -> None:
    s, row = array("S", n, n), index("r")
    body = total(Q[c] * X[i, c] * X[j, c], c, d_model)
    definition = Defined(s, (i, j), body)
    # The indices that are put in have the names of the body's own binder, and of each other.
    crossed = opened(s[c, i], [definition])
    assert crossed.free_symbols >= {c, i}
    (binder,) = (limit[0] for limit in crossed.limits)
    assert binder not in (c, i, j)
    assert crossed.function == Q[binder] * X[c, binder] * X[i, binder]
    swapped = opened(s[j, i], [definition])
    assert swapped.function.has(X[j, swapped.limits[0][0]])
    summed = opened(total(s[row, row], row, n), [definition])
    # SymPy joins sums that stand inside each other, innermost first.
    (binder, *_), outer = summed.limits
    assert outer == (row, 0, n - 1)
    assert summed.function == Q[binder] * X[row, binder] ** 2


def test_definitions_in_a_circle_are_refused() -> None:
    s, t = array("S", n), array("T", n)
    with pytest.raises(StatementError, match="circle"):
        opened(s[i], [Defined(s, (i,), t[i]), Defined(t, (i,), s[i])])


def test_binders_of_one_name_inside_each_other() -> None:
    inner = total(X[i, c], c, d_model)
    nested = total(Q[c] * inner, c, d_k)
    fresh = with_fresh_binders(nested)
    assert len({limit[0] for s in fresh.atoms(sympy.Sum) for limit in s.limits}) == 2
    double = sympy.Sum(X[i, c] * Q[a], (c, 0, d_model - 1), (a, 0, d_k - 1))
    renamed = with_fresh_binders(double)
    assert {limit[0].name for limit in renamed.limits} == {"c", "a"}
    assert not renamed.function.free_symbols & {a, c}
