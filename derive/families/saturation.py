"""Saturation: what softmax does to a row of random scores as their variance grows.

Guarantees: identities, series and bounds here are exact at every n; limits say what is fixed, what grows, and how
large their relative error is on a stated grid (`data["error"]`, `data["grid"]` of the step). Left sides evaluate to the
exact oracle, right sides are the laws, so each can be drawn as "exact" and "law".
Does not: say that scores of a trained model are Gaussian. Series, limits, medians and gradients are in the
helper modules `_saturation_…`.

Mean and median part here: E ‖J‖_F² first rises (for n > 4) and then falls only like 1/√v, carried by rare near ties;
the median of ‖J‖_F falls exponentially in √v. Both are stated.
"""

from __future__ import annotations

import sympy

from derive.catalogue import Claim
from derive.families import _saturation_gradients, _saturation_limits, _saturation_series, _saturation_tails
from derive.families._rows import SIGMA, STEIN, chain, one_step, row
from derive.power_sums import N, V
from derive.row_constants import mu
from derive.row_nodes import J2, LOG_Z, M1, TR, H, p
from derive.step import Step


def claims() -> list[Claim]:
    return [
        *_identities(),
        *_saturation_series.claims(),
        *_bounds(),
        *_saturation_limits.claims(),
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
