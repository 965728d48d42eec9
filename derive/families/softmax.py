"""Softmax of one row: its sum, its shift, its Jacobian and spectrum, log-sum-exp, entropy and temperature.

Guarantees: for all n ≥ 1 and finite real scores x. The spectrum is bounded through quadratic forms vᵀJv, for every
vector v, by certificates that are sums of squares; J is symmetric with J·1 = 0 and vᵀJv ≥ 0.
Does not: speak of random scores (`saturation`), of masked entries (`masks`), or of rounding.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import KroneckerDelta, Rational, exp, log

from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import bound, limit
from derive.language import Diff, array, index, scalar, size, total
from derive.source import HERE, VASWANI

n = size("n")
i, j, k, l, a, b, p, q = (index(s) for s in "ijklabpq")
x, v = array("x", n), array("v", n)
alpha = array("alpha", n)
beta = scalar("beta", positive=True)
g, c = scalar("g"), scalar("c")

ROW = AtLeast(n, 1)
WEIGHTS = Defined(alpha, (i,), exp(x[i]) / total(exp(x[l]), l, n))
LSE = log(total(exp(x[l]), l, n))
HALF = Rational(1, 2)
SYMBOLS = {"x": "(n,), the scores of one row", "alpha": "(n,), softmax(x)", "v": "(n,), any vector"}
_EQUATION = VASWANI.at("section 3.2.1, equation 1")


def at(*indices: Any) -> tuple[InRange, ...]:
    """Free indices, each from 0 to n − 1."""
    return tuple(InRange(ix, 0, n - 1) for ix in indices)


def jacobian(row: Any, column: Any) -> Any:
    """∂α_row/∂x_column in closed form."""
    return alpha[row] * (KroneckerDelta(row, column) - alpha[column])


def variance(of: Any) -> Any:
    """vᵀJv = Σ α v² − (Σ α v)² for the vector with entries of(index): its variance under the weights."""
    return total(alpha[i] * of(i) ** 2, i, n) - total(alpha[i] * of(i), i, n) ** 2


def apart(one: Any, other: Any) -> Any:
    """1 where two indices differ, else 0."""
    return 1 - KroneckerDelta(one, other)


# ½Σ_{i≠j} α_i α_j (v_i + v_j)²: what vᵀJv lacks of 2 Σ α(1 − α)v².
PAIRS = HALF * total(total(apart(i, j) * alpha[i] * alpha[j] * (v[i] + v[j]) ** 2, j, n), i, n)
SQUARES = total(v[i] ** 2, i, n)


def claims() -> list[Claim]:
    return [*_values(), *_jacobian(), *_spectrum(), *_second_order(), *_temperature()]


def _values() -> list[Claim]:
    weight = exp(x[i]) / total(exp(x[l]), l, n)
    return [
        derivation(
            "softmax.rows_sum",
            ("The weights of a row sum to 1", "行の重みの和は 1"),
            (total(alpha[i], i, n), sympy.Integer(1)),
            assumptions=(ROW, WEIGHTS),
            source=_EQUATION,
            symbols=SYMBOLS,
            note=(
                "Needs a non-empty row: with no entry the sum is 0, not 1.",
                "行が空でないことが必要。要素がなければ和は 0 で、1 にはならない。",
            ),
        ),
        bound(
            "softmax.nonnegative",
            ("Every weight is positive", "重みはすべて正"),
            (0, alpha[i]),
            alpha[i],
            relation="<",
            assumptions=(ROW, WEIGHTS, *at(i)),
            source=_EQUATION,
            symbols=SYMBOLS,
            note=(
                "In real arithmetic, for finite scores; a computed weight can round to 0.",
                "実数演算で、スコアが有限のとき。計算された重みは 0 に丸められることがある。",
            ),
        ),
        bound(
            "softmax.at_most_one",
            ("No weight exceeds 1", "重みは 1 を超えない"),
            (alpha[i], 1),
            total(apart(l, i) * alpha[l], l, n),
            assumptions=(ROW, WEIGHTS, *at(i)),
            premises=("softmax.rows_sum",),
            source=_EQUATION,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.shift",
            ("Adding one number to all scores changes nothing", "全スコアに同じ数を加えても変わらない"),
            (exp(x[i] + c) / total(exp(x[l] + c), l, n), weight),
            assumptions=(ROW, *at(i)),
            source=HERE,
            symbols={**SYMBOLS, "c": "any real number, as minus the maximum"},
        ),
        derivation(
            "softmax.log_weight",
            ("log α_i = x_i − log-sum-exp", "log α_i = x_i − log-sum-exp"),
            (log(alpha[i]), x[i] - LSE),
            assumptions=(ROW, WEIGHTS, *at(i)),
            source=HERE,
            symbols=SYMBOLS,
        ),
    ]


def _jacobian() -> list[Claim]:
    derivative = Diff(alpha[i], x[j])
    weights = (ROW, WEIGHTS)
    return [
        derivation(
            "softmax.jacobian",
            ("The Jacobian: ∂α_i/∂x_j = α_i(δ_ij − α_j)", "ヤコビ行列:∂α_i/∂x_j = α_i(δ_ij − α_j)"),
            (derivative, jacobian(i, j)),
            assumptions=(*weights, *at(i, j)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.null_vector",
            ("The Jacobian's null vector is 1: J·1 = 0", "ヤコビ行列の零ベクトルは 1:J·1 = 0"),
            (total(derivative, j, n), total(jacobian(i, j), j, n), sympy.Integer(0)),
            assumptions=(*weights, *at(i)),
            source=HERE,
            symbols=SYMBOLS,
            note=(
                "The null space is exactly the constants: see softmax.quadratic_form, which is 0 only for constant v.",
                "零空間は定数ベクトルのみ:softmax.quadratic_form は v が定数のときだけ 0。",
            ),
        ),
        derivation(
            "softmax.symmetry",
            ("The Jacobian is symmetric", "ヤコビ行列は対称"),
            (derivative, Diff(alpha[j], x[i])),
            assumptions=(*weights, *at(i, j)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.trace",
            ("Trace of the Jacobian: 1 − Σα²", "ヤコビ行列のトレース:1 − Σα²"),
            (total(Diff(alpha[i], x[i]), i, n), 1 - total(alpha[i] ** 2, i, n)),
            assumptions=weights,
            source=HERE,
            symbols=SYMBOLS,
            observable="participation",
        ),
        derivation(
            "softmax.frobenius",
            (
                "Squared Frobenius norm of the Jacobian: Σα² − 2Σα³ + (Σα²)²",
                "ヤコビ行列のフロベニウスノルムの2乗:Σα² − 2Σα³ + (Σα²)²",
            ),
            (
                total(total(derivative**2, j, n), i, n),
                total(total(jacobian(i, j) ** 2, j, n), i, n),
                total(alpha[i] ** 2, i, n) - 2 * total(alpha[i] ** 3, i, n) + total(alpha[i] ** 2, i, n) ** 2,
            ),
            assumptions=weights,
            source=HERE,
            symbols=SYMBOLS,
            observable="jacobian_norm",
        ),
        derivation(
            "softmax.quadratic_form",
            (
                "vᵀJv is the variance of v under the weights: ½ΣΣ α_i α_j (v_i − v_j)²",
                "vᵀJv は重みのもとでの v の分散:½ΣΣ α_i α_j (v_i − v_j)²",
            ),
            (
                total(total(v[i] * derivative * v[j], j, n), i, n),
                variance(lambda ix: v[ix]),
                HALF * total(total(alpha[i] * alpha[j] * (v[i] - v[j]) ** 2, j, n), i, n),
            ),
            assumptions=weights,
            source=HERE,
            symbols=SYMBOLS,
        ),
    ]


def _spectrum() -> list[Claim]:
    weights = (ROW, WEIGHTS)
    form = variance(lambda ix: v[ix])
    two = array("alpha", n)
    halves = Defined(two, (i,), HALF * (KroneckerDelta(i, a) + KroneckerDelta(i, b)))
    others = total(apart(l, a) * apart(l, i) * alpha[l], l, n)
    coefficient = KroneckerDelta(i, a) * (1 - alpha[i]) ** 2 + apart(i, a) * (alpha[i] ** 2 + others)
    above_gap = (Ordered(0, g, x[a] - x[j]), Distinct(j, a), *at(a, j))
    decays = total(apart(j, a) * (exp(-g) - exp(x[j] - x[a])), j, n)
    bottom = total(exp(x[l] - x[a]), l, n)
    rest = total(apart(j, a) * exp(x[j] - x[a]), j, n)
    return [
        bound(
            "softmax.positive_semidefinite",
            ("The Jacobian is positive semidefinite", "ヤコビ行列は半正定値"),
            (0, form),
            HALF * total(total(alpha[i] * alpha[j] * (v[i] - v[j]) ** 2, j, n), i, n),
            assumptions=weights,
            premises=("softmax.quadratic_form",),
            source=HERE,
            symbols=SYMBOLS,
        ),
        bound(
            "softmax.largest_eigenvalue",
            ("No eigenvalue of the Jacobian exceeds 1/2", "ヤコビ行列の固有値は 1/2 を超えない"),
            (form, SQUARES / 2),
            HALF * total((1 - 2 * alpha[i]) ** 2 * v[i] ** 2, i, n) + PAIRS,
            assumptions=weights,
            premises=("softmax.quadratic_form",),
            source=HERE,
            symbols=SYMBOLS,
            note=(
                "The certificate, ½|v|² − vᵀJv as a sum of squares, is the right side of softmax.eigenvalue_defect."
                " Equality needs every one of these squares to vanish: v_i = 0 or α_i = 1/2, and v_i = −v_j for any"
                " two positive weights. So 1/2 is attained only at two weights of 1/2 and the rest exactly 0: for n = 2"
                " at equal scores; for n ≥ 3 it is a supremum; at n = 1 the Jacobian is 0.",
                "証明書、すなわち ½|v|² − vᵀJv の平方和は softmax.eigenvalue_defect の右辺である。"
                "等号にはそのすべての平方が 0 であることが必要:v_i = 0 または α_i = 1/2、正の重み2つについて"
                " v_i = −v_j。よって 1/2 は重み2つが 1/2、他が厳密に 0 のときだけ達せられる:n = 2 ではスコアが等しい"
                "とき、n ≥ 3 では上限であって達しない。n = 1 ではヤコビ行列は 0。",
            ),
        ),
        derivation(
            "softmax.eigenvalue_defect",
            (
                "What vᵀJv lacks of ½|v|², as squares: when 1/2 is attained",
                "½|v|² − vᵀJv の平方和表示:1/2 が達せられる条件",
            ),
            (SQUARES / 2 - form, HALF * total((1 - 2 * alpha[i]) ** 2 * v[i] ** 2, i, n) + PAIRS),
            assumptions=weights,
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.eigenvalue_attained",
            (
                "Two weights of 1/2 and the rest 0: e_a − e_b is an eigenvector of 1/2",
                "重み2つが 1/2、他が 0:e_a − e_b は固有値 1/2 の固有ベクトル",
            ),
            (
                total(jacobian(i, j) * (KroneckerDelta(j, a) - KroneckerDelta(j, b)), j, n),
                HALF * (KroneckerDelta(i, a) - KroneckerDelta(i, b)),
            ),
            assumptions=(AtLeast(n, 2), halves, Distinct(a, b), *at(i, a, b)),
            source=HERE,
            symbols={"alpha": "(n,), 1/2 at a and at b, else 0: no softmax of finite scores for n ≥ 3"},
        ),
        _strict(form),
        _supremum(),
        bound(
            "softmax.eigenvalue_by_maximum",
            ("No eigenvalue exceeds 2(1 − α_a), for any a: 2(1 − max α)", "固有値は 2(1 − max α) を超えない"),
            (form, 2 * (1 - alpha[a]) * SQUARES),
            2 * total(coefficient * v[i] ** 2, i, n) + PAIRS,
            assumptions=(*weights, *at(a)),
            premises=("softmax.quadratic_form",),
            source=HERE,
            symbols=SYMBOLS,
        ),
        bound(
            "softmax.rest_by_gap",
            (
                "Outside a score that leads by g: 1 − α_a ≤ (n − 1)e^(−g)",
                "首位が差 g で先行するとき 1 − α_a ≤ (n − 1)e^(−g)",
            ),
            (1 - alpha[a], (n - 1) * exp(-g)),
            decays + rest * rest / bottom,
            assumptions=(*weights, *above_gap),
            source=HERE,
            symbols={**SYMBOLS, "g": "gap between the score a and every other"},
        ),
        _saturation(form, coefficient, decays, rest, bottom, above_gap),
    ]


def _strict(form: Any) -> Claim:
    """vᵀJv stays below ½|v|² by at least (4/3) α_a α_b α_k v_a², for three different places."""
    places = (a, b, k)
    outside = sympy.Mul(*(apart(i, place) for place in places))
    inside = sympy.Add(*(KroneckerDelta(i, place) for place in places))
    other_outside = sympy.Mul(*(apart(j, place) for place in places))
    # ½ΣΣ over the pairs that are not both among the three places.
    others = HALF * total(
        total(apart(i, j) * (outside + inside * other_outside) * alpha[i] * alpha[j] * (v[i] + v[j]) ** 2, j, n),
        i,
        n,
    )

    def rest(place: Any) -> Any:
        """1 − α at a place."""
        return total(apart(l, place) * alpha[l], l, n)

    s_1, s_2, s_3 = v[a] + v[b], v[a] + v[k], v[b] + v[k]
    three = alpha[a] * alpha[b] * alpha[k]
    lost = (
        alpha[a] * alpha[b] * rest(k) * s_1**2
        + alpha[a] * alpha[k] * rest(b) * s_2**2
        + alpha[b] * alpha[k] * rest(a) * s_3**2
    )
    squares = Rational(1, 3) * three * ((s_1 - s_2) ** 2 + (s_1 + s_3) ** 2 + (s_2 + s_3) ** 2)
    return bound(
        "softmax.eigenvalue_strict",
        (
            "With three or more scores 1/2 is never attained: the shortfall is at least (4/3)α_a α_b α_k v_a²",
            "スコアが3つ以上なら 1/2 には達しない:不足は (4/3)α_a α_b α_k v_a² 以上",
        ),
        (form + Rational(4, 3) * three * v[a] ** 2, SQUARES / 2),
        HALF * total((1 - 2 * alpha[i]) ** 2 * v[i] ** 2, i, n) + others + lost + squares,
        assumptions=(ROW, WEIGHTS, *at(a, b, k), Distinct(a, b), Distinct(a, k), Distinct(b, k)),
        premises=("softmax.quadratic_form", "softmax.nonnegative"),
        source=HERE,
        symbols={**SYMBOLS, "a": "any place; b and k two others"},
        note=(
            "Every weight of a softmax is positive, so vᵀJv < ½|v|² for every v ≠ 0 when n ≥ 3.",
            "softmax の重みはすべて正なので、n ≥ 3 では v ≠ 0 に対して vᵀJv < ½|v|²。",
        ),
    )


def _supremum() -> Claim:
    """Two scores β and the rest 0: the quadratic form at e_a − e_b tends to 1 = ½|e_a − e_b|²."""

    def risen(ix: Any) -> Any:
        return exp(beta * (KroneckerDelta(ix, a) + KroneckerDelta(ix, b)))

    def vector(ix: Any) -> Any:
        return KroneckerDelta(ix, a) - KroneckerDelta(ix, b)

    bottom = total(risen(l), l, n)
    square = total(risen(i) * vector(i) ** 2, i, n) / bottom - (total(risen(i) * vector(i), i, n) / bottom) ** 2
    return limit(
        "softmax.eigenvalue_supremum",
        (
            "… but approached: two leading scores β → ∞ bring vᵀJv/|v|² to 1/2",
            "…しかし近づく:首位2つのスコア β → ∞ で vᵀJv/|v|² → 1/2",
        ),
        (square / total(vector(i) ** 2, i, n), beta, sympy.oo),
        HALF,
        1 / (2 + (n - 2) * exp(-beta)),
        assumptions=(AtLeast(n, 2), Distinct(a, b), *at(a, b)),
        source=HERE,
        symbols={"beta": "the two leading scores; all others are 0", "a": "the first of them", "b": "the second"},
    )


def _saturation(form: Any, coefficient: Any, decays: Any, rest: Any, bottom: Any, above_gap: Any) -> Claim:
    """vᵀJv ≤ 2(1 − α_a)|v|² ≤ 2(n − 1)e^(−g)|v|², in one certificate."""
    return bound(
        "softmax.saturation",
        (
            "A row saturated by a gap g: every eigenvalue ≤ 2(n − 1)e^(−g)",
            "差 g で飽和した行:固有値はすべて 2(n − 1)e^(−g) 以下",
        ),
        (form, 2 * (n - 1) * exp(-g) * SQUARES),
        2 * total(coefficient * v[i] ** 2, i, n) + PAIRS + 2 * (decays + rest * rest / bottom) * SQUARES,
        assumptions=(ROW, WEIGHTS, *above_gap),
        premises=("softmax.quadratic_form", "softmax.eigenvalue_by_maximum", "softmax.rest_by_gap"),
        source=VASWANI.at("section 3.2.1 (extremely small gradients), made exact"),
        symbols={**SYMBOLS, "g": "gap between the score a and every other"},
    )


def _second_order() -> list[Claim]:
    second = Diff(Diff(alpha[i], x[j]), x[k])
    return [
        derivation(
            "softmax.hessian",
            ("Second derivatives of a weight", "重みの2階微分"),
            (
                second,
                alpha[i] * (KroneckerDelta(i, j) - alpha[j]) * (KroneckerDelta(i, k) - alpha[k])
                - alpha[i] * alpha[j] * (KroneckerDelta(j, k) - alpha[k]),
            ),
            assumptions=(ROW, WEIGHTS, *at(i, j, k)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.lse_gradient",
            ("The gradient of log-sum-exp is softmax", "log-sum-exp の勾配は softmax"),
            (Diff(LSE, x[i]), alpha[i]),
            assumptions=(ROW, WEIGHTS, *at(i)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "softmax.lse_hessian",
            ("The Hessian of log-sum-exp is softmax's Jacobian", "log-sum-exp のヘッセ行列は softmax のヤコビ行列"),
            (Diff(Diff(LSE, x[i]), x[j]), jacobian(i, j)),
            assumptions=(ROW, WEIGHTS, *at(i, j)),
            source=HERE,
            symbols=SYMBOLS,
        ),
    ]


def _temperature() -> list[Claim]:
    t = array("tau", 1)
    hot = exp(t[0] * x[i]) / total(exp(t[0] * x[l]), l, n)
    tempered = Defined(alpha, (i,), hot)
    entropy = -total(alpha[i] * log(alpha[i]), i, n)
    mean = total(alpha[i] * x[i], i, n)
    tied, below = array("tied", n), array("below", n)

    def decaying(ix: Any) -> Any:
        """e^(β x), x measured from the top score: 1 for a score tied at the top, e^(−β below) for one below it."""
        return tied[ix] + (1 - tied[ix]) * exp(-beta * below[ix])

    bottom = total(decaying(l), l, n)
    return [
        derivation(
            "softmax.entropy",
            ("Entropy = log-sum-exp − mean score", "エントロピー = log-sum-exp − 平均スコア"),
            (-total(alpha[i] * log(alpha[i]), i, n), LSE - mean),
            assumptions=(ROW, WEIGHTS),
            premises=("softmax.rows_sum", "softmax.log_weight"),
            source=HERE,
            symbols=SYMBOLS,
            observable="entropy",
        ),
        derivation(
            "softmax.entropy_slope",
            (
                "Derivative of the entropy by the inverse temperature: −τ Var(x)",
                "エントロピーの逆温度による微分:−τ Var(x)",
            ),
            (Diff(entropy, t[0]), -t[0] * (total(alpha[i] * x[i] ** 2, i, n) - mean**2)),
            assumptions=(ROW, tempered),
            source=HERE,
            symbols={**SYMBOLS, "tau": "(1,), the inverse temperature; alpha = softmax(tau x)"},
        ),
        limit(
            "softmax.infinite_temperature",
            ("At infinite temperature all weights are 1/n", "温度無限大では重みはすべて 1/n"),
            (exp(beta * x[i]) / total(exp(beta * x[l]), l, n), beta, sympy.Integer(0)),
            1 / n,
            assumptions=(ROW, *at(i)),
            source=HERE,
            symbols={**SYMBOLS, "beta": "inverse temperature"},
        ),
        limit(
            "softmax.zero_temperature",
            (
                "At temperature zero the top scores share the weight equally",
                "温度 0 では最大スコアが重みを等分する",
            ),
            (decaying(i) / bottom, beta, sympy.oo),
            tied[i] / total(tied[l], l, n),
            assumptions=(
                ROW,
                "tied[l] is 1 for a score equal to the top score, else 0",
                Positive(total(tied[l], l, n)),
                Positive(below[l]),
                Positive(bottom),
                *at(i, l),
            ),
            source=HERE,
            symbols={
                "tied": "(n,), 1 where the score equals the top score, else 0",
                "below": "(n,), how far below the top the others are, > 0",
                "beta": "inverse temperature",
            },
            note=(
                "With one top score the limit is its one-hot vector; with t tied ones each gets 1/t.",
                "最大が1つなら極限は one-hot、t 個が同点ならそれぞれ 1/t。",
            ),
        ),
    ]
