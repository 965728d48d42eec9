"""Claims of the family `saturation` on large variance: fixed n, the frozen phase, the freezing point, exponents."""

from __future__ import annotations

import sympy

from derive.catalogue import Claim
from derive.families._rows import DERRIDA, SIGMA, one_step, points, row
from derive.power_sums import N, V
from derive.row_constants import freezing, mu
from derive.row_nodes import J2, LOG_Z, TOP, TR, H, p
from derive.source import HERE

HALF = sympy.Rational(1, 2)
K = mu(N) / SIGMA  # the small quantity of the laws at large variance
BIG = points(n=(2, 3, 8, 64, 512, 1e6), ratio=(4, 8, 32, 128))


def claims() -> list[Claim]:
    return [*_large(), *_frozen(), *_critical(), *_exponents()]


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
            data={"error": sympy.Rational(13, 5) * K**2, "grid": grid},
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
    psi = sympy.digamma(1) - sympy.digamma(1 - m)
    laws = (
        ("p2", "E Σα²", "E Σα²", p(2), 1 - m, sympy.Rational(7, 100), "participation"),
        ("jacobian", "E ‖J‖²", "E ‖J‖²", J2, m * (1 - m) / 3, sympy.Rational(2, 5), "jacobian_norm"),
        (
            "entropy",
            "mean entropy",
            "エントロピーの平均",
            H,
            psi,
            sympy.Rational(3, 5),
            "entropy",
        ),
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
                "en": "With σ_c = √(2 log n) in place of b_n the law is 10 to 50 % off at ordinary n; past 2 σ_c mu_n "
                "is better than either (it is the exact constant of the limit at fixed n).",
                "ja": "b_n の代わりに σ_c = √(2 log n) では通常の n で 1〜5 割ずれる。2σ_c 以上では mu_n が良い。",
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
