"""Variance of attention scores: Var(q·k), what the mean adds, what scaling does, and how scores depend on each other.

Guarantees: every claim holds for all sizes and is checked by `moment-routes` (two exact derivations and enumeration).
Right sides are polynomials in plain symbols named d_k, d_model, sigma_q, …, ready to be turned into functions.
Does not: say what softmax makes of a variance; that is the family `saturation`.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import AtLeast, RandomEntries
from derive.catalogue import Claim
from derive.families._moments import claim_of, dot, sizes
from derive.language import array, scalar
from derive.moments.laws import mean_variance
from derive.moments.nodes import Variance
from derive.source import VASWANI

(d_k,) = sizes("d_k")
MU_Q, MU_K = scalar("mu_q"), scalar("mu_k")
SIGMA_Q, SIGMA_K = scalar("sigma_q", positive=True), scalar("sigma_k", positive=True)
Q_VECTOR, K_VECTOR = array("q", d_k), array("k", d_k)
SCORE = dot(Q_VECTOR, K_VECTOR, d_k)


def vectors(mean_q: Any = MU_Q, mean_k: Any = MU_K) -> tuple[RandomEntries, RandomEntries]:
    """q and k with independent components, known by mean and variance alone."""
    return (
        RandomEntries((Q_VECTOR,), mean_variance(mean_q, SIGMA_Q**2)),
        RandomEntries((K_VECTOR,), mean_variance(mean_k, SIGMA_K**2)),
    )


def claims() -> list[Claim]:
    return [_scores(), _scaled()]


def _scores() -> Claim:
    return claim_of(
        "variance.scores",
        en="Variance of a score q·k",
        ja="スコア q·k の分散",
        lhs=Variance(SCORE),
        rhs=d_k * (SIGMA_Q**2 * SIGMA_K**2 + MU_Q**2 * SIGMA_K**2 + MU_K**2 * SIGMA_Q**2),
        laws=vectors(),
        source=VASWANI.at("section 3.2.1, footnote 4 (zero means, unit variances)"),
        observable="score_variance",
        note={
            "en": "Only means and variances are needed. With zero means and unit variances it is d_k.",
            "ja": "必要なのは平均と分散だけ。平均 0、分散 1 のとき d_k になる。",
        },
    )


def _scaled() -> Claim:
    return claim_of(
        "variance.scaled",
        en="Variance of a scaled score, centred components: free of d_k",
        ja="スケール後のスコアの分散(平均 0 の成分):d_k によらない",
        lhs=Variance(SCORE / sympy.sqrt(d_k)),
        rhs=SIGMA_Q**2 * SIGMA_K**2,
        laws=(*vectors(0, 0), AtLeast(d_k, 1)),
        source=VASWANI.at("section 3.2.1, footnote 4"),
        observable="score_variance",
        note={
            "en": "Dividing by √d_k makes the variance one number for every d_k; this is the reason given for 1/√d_k.",
            "ja": "√d_k で割ると分散は d_k によらない一定値になる。1/√d_k を使う理由である。",
        },
    )
