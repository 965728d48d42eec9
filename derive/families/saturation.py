"""Saturation: what softmax does to a row of random scores as their variance grows.

Guarantees: identities, series and bounds here are exact at every n; limits say what is fixed, what grows, and how
large their relative error is on a stated grid (`data["error"]`, `data["grid"]` of the step). Left sides evaluate to the
exact oracle, right sides are the laws, so each can be drawn as "exact" and "law".
Does not: say that scores of a trained model are Gaussian. Medians and two keys are in `_saturation_tails`, gradients in
`_saturation_gradients`.

Mean and median part here: E ‖J‖_F² first rises (for n > 4) and then falls only like 1/√v, carried by rare near ties;
the median of ‖J‖_F falls exponentially in √v. Both are stated.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.catalogue import Claim
from derive.families import _saturation_gradients, _saturation_tails
from derive.families._rows import DERRIDA, SIGMA, STEIN, chain, one_step, points, row
from derive.power_sums import N, V
from derive.row_nodes import J2, LOG_Z, M1, TOP, TR, H, LargeN, Taylor, freezing, mu, p
from derive.source import HERE
from derive.step import Step

E = sympy.exp
HALF = sympy.Rational(1, 2)
K = mu(N) / SIGMA  # the small quantity of the laws at large variance
BIG = points(n=(2, 3, 8, 64, 512, 1e6), ratio=(4, 8, 32, 128))


def claims() -> list[Claim]:
    return [
        *_identities(),
        *_small(),
        *_many(),
        *_bounds(),
        *_large(),
        *_frozen(),
        *_critical(),
        *_exponents(),
        *_saturation_tails.claims(),
        *_saturation_gradients.claims(),
    ]


def _identities() -> list[Claim]:
    return [
        one_step(
            "saturation.jacobian_norm",
            "Squared norm of the softmax Jacobian, in power sums of the weights",
            "softmax のヤコビ行列のノルムの二乗を重みのべき和で表す",
            row(J2),
            row(p(2)) - 2 * row(p(3)) + row(p(2) ** 2),
            "row-mean",
        ),
        one_step(
            "saturation.stein",
            "Stein's identity for a softmax row: mean score under the weights",
            "softmax の行に対する Stein の恒等式:重みによるスコアの平均",
            row(M1),
            V * (1 - row(p(2))),
            "stein",
            source=STEIN.at("lemma 1"),
            note={
                "en": "Holds at every n and v; E[α·x]/(v E tr J) is 1 for Gaussian scores, a one-number test of them.",
                "ja": "すべての n, v で成り立つ。E[α·x]/(v E tr J) が 1 かどうかはスコアのガウス性の検査になる。",
            },
        ),
        one_step(
            "saturation.entropy",
            "Mean entropy from the mean log-sum-exp",
            "エントロピーの平均と log-sum-exp の平均の関係",
            row(H),
            row(LOG_Z) - V * row(TR),
            "stein",
            observable="entropy",
        ),
        one_step(
            "saturation.heat_flow",
            "Heat flow: how E Σα² moves with the variance of the scores",
            "熱流:スコアの分散に対する E Σα² の変化率",
            sympy.Derivative(row(p(2)), V),
            row(p(2)) - 4 * row(p(3)) + 3 * row(p(2) ** 2),
            "heat-flow",
            note={
                "en": "A simulator of Gaussian scores can test itself by this, with no reference value.",
                "ja": "ガウス型スコアの模擬計算は、基準値なしでこの式により自己検査できる。",
            },
        ),
        one_step(
            "saturation.heat_flow_p3",
            "Heat flow of E Σα³",
            "E Σα³ の熱流",
            sympy.Derivative(row(p(3)), V),
            3 * row(p(3)) - 9 * row(p(4)) + 6 * row(p(2) * p(3)),
            "heat-flow",
        ),
        one_step(
            "saturation.heat_flow_log_z",
            "Heat flow of the mean log-sum-exp: half the trace of the Jacobian",
            "log-sum-exp の平均の熱流:ヤコビ行列のトレースの半分",
            sympy.Derivative(row(LOG_Z), V),
            row(TR) / 2,
            "heat-flow",
        ),
        one_step(
            "saturation.heat_flow_entropy",
            "Heat flow of the mean entropy",
            "エントロピーの平均の熱流",
            sympy.Derivative(row(LOG_Z) - V * row(TR), V),
            -row(TR) / 2 + V * row(p(2) - 4 * p(3) + 3 * p(2) ** 2),
            "heat-flow",
        ),
    ]


def _small() -> list[Claim]:
    n, v = N, V
    given = ("scores of a row are i.i.d. N(0, v)", "v → 0 at any n: remainder at most C v^(order+1), C in the verdict")
    grid = points(n=(2, 3, 4, 5, 6, 8, 12, 20, 64, 512, 1e6), v=(0.02, 0.05, 0.1, 0.2))

    def to_order(order: int, error: Any) -> dict[str, Any]:
        return {"error": error * v ** (order + 1), "grid": grid}

    return [
        one_step(
            "saturation.p2_small_sigma",
            "E Σα² for scores of small variance, at every n",
            "スコアの分散が小さいときの E Σα²(任意の n)",
            Taylor(row(p(2)), v, 4),
            1 / n
            + (n - 1) / n**2 * v
            + (n - 1) * (n - 6) / (2 * n**3) * v**2
            + (n - 1) * (n**2 - 30 * n + 90) / (6 * n**4) * v**3
            + (n - 1) * (n**3 - 114 * n**2 + 1236 * n - 2520) / (24 * n**5) * v**4,
            "heat-series",
            given=given,
            data=to_order(4, sympy.Rational(14, 5)),
            observable="participation",
        ),
        one_step(
            "saturation.jacobian_small_sigma",
            "E ‖J‖² for scores of small variance, at every n",
            "スコアの分散が小さいときの E ‖J‖²(任意の n)",
            Taylor(row(J2), v, 3),
            (n - 1) / n**2
            + (n - 1) * (n - 4) / n**3 * v
            + (n - 1) * (n**2 - 20 * n + 50) / (2 * n**4) * v**2
            + (n - 1) * (n**3 - 76 * n**2 + 684 * n - 1260) / (6 * n**5) * v**3,
            "heat-series",
            given=given,
            data=to_order(3, sympy.Rational(21, 2)),
            observable="jacobian_norm",
        ),
        one_step(
            "saturation.entropy_small_sigma",
            "Mean entropy for scores of small variance, at every n",
            "スコアの分散が小さいときのエントロピーの平均(任意の n)",
            Taylor(row(H), v, 4),
            sympy.log(n)
            - (n - 1) / (2 * n) * v
            + 3 * (n - 1) / (4 * n**2) * v**2
            + 5 * (n - 1) * (n - 6) / (12 * n**3) * v**3
            + 7 * (n - 1) * (n**2 - 30 * n + 90) / (48 * n**4) * v**4,
            "heat-series",
            given=given,
            data=to_order(4, sympy.Rational(9, 10)),
            observable="entropy",
        ),
        one_step(
            "saturation.jacobian_rise",
            "Growing scores first raise the mean squared Jacobian, exactly when n > 4",
            "スコアが大きくなると、まず平均二乗ヤコビアンは増える(n > 4 のときに限る)",
            Taylor(row(J2), v, 1),
            (n - 1) / n**2 * (1 + (n - 4) / n * v),
            "heat-series",
            given=given,
            data=to_order(1, sympy.Rational(9, 5)),
            observable="jacobian_norm",
            note={
                "en": "The usual sentence, that large scores make the gradient vanish, is false of the mean square at "
                "first: the slope at v = 0 has the sign of n - 4.",
                "ja": "「スコアが大きいと勾配が消える」は平均二乗では最初は誤り:v = 0 での傾きは n − 4 と同符号。",
            },
        ),
    ]


def _many() -> list[Claim]:
    n, v = N, V
    given = ("scores of a row are i.i.d. N(0, v)", "n → ∞ at fixed v: usable while e^(2v) is well below n")
    grid = points(n=(512, 4096, 1e5), v=(0.0625, 0.25, 1.0)) + points(n=(1e6,), v=(2.25,))
    second = (E(v) - 1) / n**2
    return [
        one_step(
            "saturation.p2_large_n",
            "E Σα² for many keys: e^v/n and its first correction",
            "鍵が多いときの E Σα²:e^v/n とその第一補正",
            LargeN(row(p(2)), n, 1),
            E(v) / n * (1 - (2 * E(v) - 1) * (E(v) - 1) / n),
            "many-keys",
            given=given,
            observable="participation",
            data={"error": sympy.Rational(33, 10) * (E(v) - 1) * second * E(4 * v), "grid": grid},
            note={
                "en": "n E Σα² → e^v. For the mean this fails before the freezing point: only for v < (2 log n)/3.",
                "ja": "n E Σα² → e^v。平均については凍結点より前、v < (2 log n)/3 まで。",
            },
        ),
        one_step(
            "saturation.jacobian_large_n",
            "E ‖J‖² for many keys",
            "鍵が多いときの E ‖J‖²",
            LargeN(row(J2), n, 1),
            E(v) / n * (1 - (2 * E(v) - 1) * (E(v) - 1) / n)
            - 2 * E(3 * v) / n**2 * (1 - 3 * (E(3 * v) - 2 * E(v) + 1) / n)
            + E(2 * v) / n**2 * (1 + (E(4 * v) - 8 * E(2 * v) + 10 * E(v) - 3) / n),
            "many-keys",
            given=given,
            observable="jacobian_norm",
            data={"error": sympy.Rational(11, 10) * second * E(5 * v), "grid": grid},
        ),
        one_step(
            "saturation.entropy_large_n",
            "Mean entropy for many keys",
            "鍵が多いときのエントロピーの平均",
            LargeN(row(H), n, 1),
            sympy.log(n) - v / 2 + (v * E(v) - (E(v) - 1) / 2) / n - v * E(v) * (2 * E(v) - 1) * (E(v) - 1) / n**2,
            "many-keys",
            given=given,
            observable="entropy",
            data={
                "error": (E(v) - 1) * second * E(4 * v) / 4 / (sympy.log(n) - v / 2),
                "grid": grid,
            },
        ),
    ]


def _bounds() -> list[Claim]:
    upper = mu(N) / SIGMA
    lower = mu(N) / SIGMA - sympy.log(N) / V
    given = ("scores of a row are i.i.d. N(0, v)", "v > 0")
    by_stein = Step(row(TR), row(M1) / V, "stein", assumptions=given)
    return [
        chain(
            "saturation.trace_upper",
            "Upper bound of 1 − E Σα², at every n and v",
            "1 − E Σα² の上界(すべての n, v)",
            (by_stein, Step(row(M1) / V, upper, "gibbs", "<=", assumptions=given)),
            relation="<=",
            given=given,
        ),
        chain(
            "saturation.trace_lower",
            "Lower bound of 1 − E Σα², at every n and v",
            "1 − E Σα² の下界(すべての n, v)",
            (
                Step(lower, row(M1) / V, "gibbs", "<=", assumptions=given),
                Step(row(M1) / V, row(TR), "stein", assumptions=given),
            ),
            relation="<=",
            given=given,
        ),
    ]


def _large() -> list[Claim]:
    given = ("scores of a row are i.i.d. N(0, v)", "v → ∞ at fixed n ≥ 2; mu_n is the mean of the largest of n normals")
    grid = tuple({"n": g["n"], "v": (g["ratio"] * _mu(g["n"])) ** 2} for g in BIG)
    return [
        one_step(
            "saturation.p2_large_sigma",
            "1 − E Σα² falls like mu_n/σ, at every fixed n",
            "1 − E Σα² は mu_n/σ のように減る(n 固定)",
            SIGMA * row(TR),
            mu(N),
            "squeeze",
            relation="limit",
            given=given,
            premises=("saturation.trace_lower", "saturation.trace_upper"),
            data={"error": 2.6 * K**2, "grid": grid},
            observable="participation",
        ),
        one_step(
            "saturation.jacobian_large_sigma",
            "E ‖J‖² falls only like mu_n/(3σ): algebraically, not exponentially",
            "E ‖J‖² は mu_n/(3σ) のようにしか減らない:指数的ではなく代数的",
            SIGMA * row(J2),
            mu(N) / 3,
            "near-tie",
            relation="limit",
            given=given,
            data={"error": sympy.Rational(13, 10) * K, "grid": grid},
            observable="jacobian_norm",
            note={
                "en": "The mean is carried by rows whose two largest scores nearly tie, a share of about mu_n/σ; the "
                "median row (saturation.median_jacobian) is exponentially small.",
                "ja": "平均は上位二つのスコアがほぼ等しい行(割合およそ mu_n/σ)が担う。中央値の行は指数的に小さい。",
            },
        ),
        one_step(
            "saturation.maximum_large_sigma",
            "1 − E max α falls like mu_n log 2/σ",
            "1 − E max α は mu_n log 2/σ のように減る",
            SIGMA * row(1 - TOP),
            mu(N) * sympy.log(2),
            "near-tie",
            relation="limit",
            given=given,
            data={"error": K / 2, "grid": grid},
            observable="missing_weight",
        ),
        one_step(
            "saturation.entropy_large_sigma",
            "Mean entropy falls like π² mu_n/(6σ)",
            "エントロピーの平均は π² mu_n/(6σ) のように減る",
            SIGMA * row(H),
            sympy.pi**2 * mu(N) / 6,
            "near-tie",
            relation="limit",
            given=given,
            data={"error": sympy.Rational(4, 5) * K, "grid": grid},
            observable="entropy",
        ),
        one_step(
            "saturation.log_z_large_sigma",
            "Mean log-sum-exp at large variance, with its first correction",
            "分散が大きいときの log-sum-exp の平均とその第一補正",
            row(LOG_Z),
            SIGMA * mu(N) + sympy.pi**2 * mu(N) / (12 * SIGMA),
            "oracle-grid",
            relation="limit",
            given=given,
            data={"error": K**2 / 4, "grid": grid},
        ),
    ]


def _mu(n: float) -> float:
    from derive.oracle_order import expected_maximum

    return expected_maximum(n)


def _frozen() -> list[Claim]:
    m = freezing(N) / SIGMA
    given = (
        "scores of a row are i.i.d. N(0, v)",
        "n → ∞ with √v above σ_c = √(2 log n); finite n enters through b_n, n φ(b)/b = 1",
        "the weights of a frozen row follow the Poisson-Dirichlet law PD(m) as n → ∞ (Derrida 1981; Ruelle 1987)",
    )
    grid = tuple(
        {"n": n, "v": (k * (2 * _log(n)) ** 0.5) ** 2} for n in (64, 512, 4096, 1e6, 1e12) for k in (1.5, 2, 4, 8)
    )
    laws = (
        ("p2", "E Σα²", "E Σα²", p(2), 1 - m, 0.07, "participation"),
        ("jacobian", "E ‖J‖²", "E ‖J‖²", J2, m * (1 - m) / 3, 0.4, "jacobian_norm"),
        ("entropy", "mean entropy", "エントロピーの平均", H, sympy.digamma(1) - sympy.digamma(1 - m), 0.6, "entropy"),
    )
    return [
        one_step(
            "saturation.frozen" if name == "p2" else f"saturation.frozen_{name}",
            f"Frozen phase: {en} of a few keys that hold all the weight",
            f"凍結相:少数の鍵がすべての重みを持つときの{ja}",
            row(body),
            law,
            "frozen",
            relation="limit",
            given=given,
            source=DERRIDA if name != "jacobian" else HERE,
            data={"m": m, "error": error / freezing(N), "grid": grid},
            observable=observable,
            note={
                "en": "With σ_c = √(2 log n) in place of b_n the law is 20 to 50 % off at ordinary n; past 2 σ_c mu_n "
                "is better than either (it is the exact constant of the limit at fixed n).",
                "ja": "b_n の代わりに σ_c = √(2 log n) では通常の n で 2〜5 割ずれる。2σ_c 以上では mu_n が良い。",
            },
        )
        for name, en, ja, body, law, error, observable in laws
    ]


def _log(n: float) -> float:
    import math

    return math.log(n)


def _critical() -> list[Claim]:
    """At v = 2 log n, where a row freezes.

    With u = -v + a the integrals of the oracle become n A_2 ≈ e^a/√(2πv), n A_1 ≈ e^a/√(2πv) · √(2πv)/2 · …: half the
    weight comes from the edge. So E Σα² ≈ ∫ e^a/√(2πv) exp(-e^a/2) da = 2/√(2πv), and likewise for the others.
    """
    log_n = sympy.log(N)
    given = ("scores of a row are i.i.d. N(0, v)", "v = 2 log n exactly, n → ∞")
    grid = points(n=(512, 1e6, 1e12, 1e25, 1e50))
    at = {V: 2 * log_n}
    laws = (
        ("", "E Σα²", "E Σα²", p(2), 1 / sympy.sqrt(sympy.pi * log_n), sympy.Rational(2, 5), "participation"),
        ("_jacobian", "E ‖J‖²", "E ‖J‖²", J2, 1 / (3 * sympy.sqrt(sympy.pi * log_n)), HALF + HALF / 5, "jacobian_norm"),
        ("_entropy", "mean entropy", "エントロピーの平均", H, 2 * sympy.sqrt(log_n / sympy.pi), HALF, "entropy"),
    )
    return [
        one_step(
            f"saturation.critical{name}",
            f"At the freezing point σ = √(2 log n): {en}",
            f"凍結点 σ = √(2 log n) での{ja}",
            row(body).subs(at),
            law,
            "oracle-grid",
            relation="limit",
            given=given,
            data={"error": error / sympy.sqrt(log_n), "grid": grid},
            observable=observable,
        )
        for name, en, ja, body, law, error, observable in laws
    ]


def _exponents() -> list[Claim]:
    """-log E Σα² / log n at σ = x √(2 log n): typical rows below x = 1/√3, then rows with a rare large key.

    The mean over rows with one key at height t = σ_c y, y > 1, costs (y² - 1) log n; the balance of both gives the
    second branch, larger than the typical row's exponent 2(1 - x)².
    """
    x = sympy.Symbol("x", positive=True)
    log_n = sympy.log(N)
    at = {V: 2 * x**2 * log_n}
    lhs = -sympy.log(row(p(2)).subs(at)) / log_n
    low, high = 1 - 2 * x**2, (1 - x**2) ** 2 / (4 * x**2)
    return [
        one_step(
            "saturation.exponent_low",
            "Exponent of E Σα² below 1/√3 of the freezing point",
            "凍結点の 1/√3 倍以下での E Σα² の指数",
            lhs,
            low,
            "oracle-grid",
            relation="limit",
            given=("scores of a row are i.i.d. N(0, v), v = 2 x² log n", "n → ∞ at fixed x < 1/√3"),
            data={"error": HALF / (log_n * low), "grid": points(n=(1e3, 1e6, 1e12, 1e25), x=(0.2, 0.3, 0.5))},
            observable="participation",
        ),
        one_step(
            "saturation.exponent_high",
            "Exponent of E Σα² between 1/√3 of the freezing point and the freezing point",
            "凍結点の 1/√3 倍から凍結点までの E Σα² の指数",
            lhs,
            high,
            "oracle-grid",
            relation="limit",
            given=("scores of a row are i.i.d. N(0, v), v = 2 x² log n", "n → ∞ at fixed 1/√3 < x < 1; slow"),
            data={
                "error": sympy.Rational(3, 4) * sympy.log(log_n) / (log_n * high),
                "grid": points(n=(1e12, 1e25, 1e50, 1e100), x=(0.65,)) + points(n=(1e50, 1e100), x=(0.8,)),
            },
            observable="participation",
            note={
                "en": "So n E Σα² → e^v, the law of many keys, holds for the mean only below σ_c/√3, not up to σ_c.",
                "ja": "したがって n E Σα² → e^v は平均については σ_c/√3 までしか成り立たず、σ_c までではない。",
            },
        ),
    ]
