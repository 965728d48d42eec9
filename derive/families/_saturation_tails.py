"""Claims of the family `saturation` on medians, shares of saturated rows, and two keys, where all is exact."""

from __future__ import annotations

import sympy

from derive.catalogue import Claim
from derive.families._rows import GAUSSIAN_ROW, SIGMA, one_step
from derive.power_sums import N, V
from derive.row_constants import gap_median, mu
from derive.row_nodes import J2, NORM_J, TR, RowMean, RowMedian, RowShare
from derive.source import HERE

LARGE = (GAUSSIAN_ROW, "v → ∞ at fixed n ≥ 2")
MEDIAN = sympy.log(RowMedian(NORM_J, N, V))
GAP = SIGMA * gap_median(N)
EPSILON = sympy.Symbol("epsilon", positive=True)
T = sympy.Symbol("t", real=True)
# Of the gap of two scores N(0, v).
GAP_DENSITY = sympy.exp(-(T**2) / (4 * V)) / sympy.sqrt(4 * sympy.pi * V)


def claims() -> list[Claim]:
    return [*_two_keys(), _gap_density(), *_median(), _share()]


def _two_keys() -> list[Claim]:
    two = (GAUSSIAN_ROW, "n = 2")

    def over_gap(body: object) -> object:
        return sympy.Integral(body * GAP_DENSITY, (T, -sympy.oo, sympy.oo))

    return [
        one_step(
            "saturation.two_keys_trace",
            "Two keys: 1 − E Σα² as one integral over the gap, exact",
            "鍵が二つの場合:1 − E Σα² を差の積分で正確に表す",
            RowMean(TR, 2, V),
            over_gap(1 / (1 + sympy.cosh(T))),
            "two-keys",
            given=two,
        ),
        one_step(
            "saturation.two_keys_jacobian",
            "Two keys: E ‖J‖² as one integral over the gap, exact",
            "鍵が二つの場合:E ‖J‖² を差の積分で正確に表す",
            RowMean(J2, 2, V),
            over_gap(1 / (1 + sympy.cosh(T)) ** 2),
            "two-keys",
            given=two,
            observable="jacobian_norm",
        ),
    ]


def _gap_density() -> Claim:
    z, phi, cdf = sympy.symbols("z phi Phi")
    line = (z, -sympy.oo, sympy.oo)
    return one_step(
        "saturation.gap_density",
        "The top gap of n normals has density mu_n at 0",
        "n 個の正規変数の上位二つの差の密度は 0 で mu_n に等しい",
        sympy.Integral(N * (N - 1) * phi**2 * cdf ** (N - 2), line),
        sympy.Integral(N * z * phi * cdf ** (N - 1), line),
        "total-derivative",
        given=("phi, Phi: density and distribution function of the standard normal at z; the right side is mu_n",),
        data={"antiderivative": N * phi * cdf ** (N - 1)},
    )


def _median() -> list[Claim]:
    given = (GAUSSIAN_ROW, "n ≥ 2")
    lower, upper = -GAP - 2 * sympy.log(N), -GAP + sympy.log(2 * (N - 1))
    return [
        one_step(
            "saturation.median_lower",
            "The median Jacobian is at least an exponential in σ, at every n and v",
            "ヤコビ行列のノルムの中央値の下界(すべての n, v)",
            lower,
            MEDIAN,
            "median-of-gap",
            relation="<=",
            given=given,
        ),
        one_step(
            "saturation.median_upper",
            "The median Jacobian is at most an exponential in σ, at every n and v",
            "ヤコビ行列のノルムの中央値の上界(すべての n, v)",
            MEDIAN,
            upper,
            "median-of-gap",
            relation="<=",
            given=given,
        ),
        one_step(
            "saturation.median_jacobian",
            "The median row's Jacobian falls exponentially in σ = √v, unlike the mean",
            "ヤコビ行列のノルムの中央値は σ = √v の指数で減る(平均とは違う)",
            MEDIAN / SIGMA,
            -gap_median(N),
            "squeeze",
            relation="limit",
            given=LARGE,
            premises=("saturation.median_lower", "saturation.median_upper"),
            observable="jacobian_norm",
            note={
                "en": "With σ = √d_k (no scaling) the median falls like exp(-gap_median √d_k) and the mean square only "
                "like d_k^(-1/2): “the gradient vanishes” is true of the typical row, not of the mean square. For "
                "σ gap_median ≥ 3 the median is close to 1/(1 + cosh(σ gap_median)), exact at n = 2.",
                "ja": "σ = √d_k(スケールなし)では中央値は exp(−gap_median √d_k)、平均二乗は d_k^(−1/2) でしか減らない。"
                "「勾配が消える」のは典型的な行であって平均二乗ではない。",
            },
        ),
        one_step(
            "saturation.median_two_keys",
            "Two keys: the median of ‖J‖, exact",
            "鍵が二つの場合の ‖J‖ の中央値(厳密)",
            RowMedian(NORM_J, 2, V),
            1 / (1 + sympy.cosh(SIGMA * gap_median(2))),
            "median-of-two",
            given=(GAUSSIAN_ROW, "n = 2"),
            observable="jacobian_norm",
        ),
    ]


def _share() -> Claim:
    return one_step(
        "saturation.saturated_fraction",
        "Share of rows that are not saturated: mu_n arcosh(1/ε − 1)/σ",
        "飽和していない行の割合:mu_n arcosh(1/ε − 1)/σ",
        SIGMA * RowShare(NORM_J, EPSILON, N, V),
        mu(N) * sympy.acosh(1 / EPSILON - 1),
        "near-tie-share",
        relation="limit",
        given=(*LARGE, "0 < epsilon < 1/2"),
        source=HERE,
        observable="jacobian_norm",
        note={
            "en": "arcosh(1/ε − 1) = log(2/ε) − ε/2 + …; 1 minus this share is the saturated fraction. Usable while "
            "the share is well below 1.",
            "ja": "arcosh(1/ε − 1) = log(2/ε) − ε/2 + …。1 から引けば飽和した行の割合。"
            "割合が 1 より十分小さい範囲で使える。",
        },
    )
