"""Alternatives to 1/√d_k: what each does to the scores' spread, and where each saturates in its turn.

Guarantees: variances and bounds are exact; limits state their error. The scales 1, 1/√d_k, 1/d_k and the mistaken
1/√d_model are in the family `variance` (scores, scaled, scaled_by_d, aligned_power, heads_wrong_scale).
Does not: say which trains better.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.alternative_rules import SPARSE_JACOBIAN
from derive.catalogue import Claim
from derive.families._rows import GAUSSIAN_ROW, SIGMA, D, one_step
from derive.power_sums import N, V
from derive.row_nodes import COS, TOP, CosMean, GapTail, mu
from derive.source import Source

HENRY = Source(
    "henry2020",
    "Henry, Dachapally, Pawar, Chen",
    "Query-Key Normalization for Transformers",
    2020,
    "Findings of EMNLP 2020, arXiv:2010.04245",
    "https://arxiv.org/abs/2010.04245",
)
NAKANISHI = Source(
    "nakanishi2025",
    "Nakanishi",
    "Scalable-Softmax Is Superior for Attention",
    2025,
    "arXiv:2501.19399",
    "https://arxiv.org/abs/2501.19399",
)
GEMMA = Source(
    "gemma2024",
    "Gemma Team",
    "Gemma 2: Improving Open Language Models at a Practical Size",
    2024,
    "arXiv:2408.00118",
    "https://arxiv.org/abs/2408.00118",
)
MARTINS = Source(
    "martins2016",
    "Martins, Astudillo",
    "From Softmax to Sparsemax: A Sparse Model of Attention and Multi-Label Classification",
    2016,
    "ICML 2016, arXiv:1602.02068",
    "https://arxiv.org/abs/1602.02068",
)
RAMAPURAM = Source(
    "ramapuram2024",
    "Ramapuram, Danieli, Dhekane, Weers, Busbridge, Ablin, Likhomanenko, Digani, Gu, Shidani, Webb",
    "Theory, Analysis, and Best Practices for Sigmoid Self-Attention",
    2024,
    "arXiv:2409.04431",
    "https://arxiv.org/abs/2409.04431",
)

G = sympy.Symbol("g", positive=True)
C = sympy.Symbol("c", positive=True)
T = sympy.Symbol("T", positive=True)
B = sympy.Symbol("b", positive=True)
EPSILON = sympy.Symbol("epsilon", positive=True)
LAMBDA = sympy.Symbol("lambda", positive=True)
Z = sympy.Symbol("z", real=True)
ONE_KEY = sympy.Symbol("P_one_key", positive=True)
UNIT = "q and k are random directions (unit vectors), scores g cos(q, k)"
LOG_N = sympy.log(N)


def claims() -> list[Claim]:
    return [*_normalised(), *_softcap(), *_temperatures(), *_other_maps()]


def _normalised() -> list[Claim]:
    bound = 1 / (1 + (N - 1) * sympy.exp(-2 * G))
    needed = sympy.log((N - 1) * (1 - EPSILON) / EPSILON) / 2
    return [
        one_step(
            "alternatives.qk_norm",
            "QK-norm: the score g cos(q, k) has variance g²/d_k",
            "QK 正規化:スコア g cos(q, k) の分散は g²/d_k",
            CosMean((G * COS) ** 2, D),
            G**2 / D,
            "sphere",
            given=(UNIT,),
            source=HENRY,
        ),
        one_step(
            "alternatives.qk_norm_kurtosis",
            "QK-norm: kurtosis of a score, below that of a normal",
            "QK 正規化:スコアの尖度は正規分布より小さい",
            CosMean(COS**4, D) / CosMean(COS**2, D) ** 2,
            3 * D / (D + 2),
            "sphere",
            given=(UNIT,),
        ),
        one_step(
            "alternatives.qk_norm_bound",
            "QK-norm: no weight can exceed 1/(1 + (n − 1)e^(−2g))",
            "QK 正規化:重みは 1/(1 + (n − 1)e^(−2g)) を超えない",
            TOP,
            bound,
            "bounded-scores",
            relation="<=",
            given=("every score of the row lies in [−g, g]",),
            data={"bound": G},
            note={
                "en": "A softcap at c bounds scores alike, with g = c.",
                "ja": "上限 c のソフトキャップも g = c として同じ上界を与える。",
            },
        ),
        one_step(
            "alternatives.qk_norm_gain",
            "QK-norm: the gain g at which a weight can reach 1 − ε",
            "QK 正規化:重みが 1 − ε に届くのに必要な g",
            bound.subs(G, needed),
            1 - EPSILON,
            "rational",
            given=("n ≥ 2, 0 < epsilon < 1, g = ½ log((n − 1)(1 − ε)/ε)",),
        ),
    ]


def _wide(body: Any) -> Any:
    return sympy.Integral(body * sympy.exp(-(Z**2) / 2) / sympy.sqrt(2 * sympy.pi), (Z, -sympy.oo, sympy.oo))


def _softcap() -> list[Claim]:
    grid = tuple({"lambda": x} for x in (1.0, 4.0, 16.0))
    excess = (sympy.pi**2 - 6) / 24
    return [
        one_step(
            "alternatives.softcap_slope",
            "Softcap c tanh(x/c): its mean squared slope falls like (4/3) c/(σ√(2π)), a second saturation",
            "ソフトキャップ c tanh(x/c):傾きの平均二乗は (4/3) c/(σ√(2π)) で減る(第二の飽和)",
            _wide(1 / sympy.cosh(LAMBDA * Z) ** 4),
            sympy.Rational(4, 3) / (LAMBDA * sympy.sqrt(2 * sympy.pi)),
            "wide-normal",
            relation="limit",
            given=("scores N(0, σ²), lambda = σ/c → ∞",),
            source=GEMMA,
            # exact/law lies in [1 - excess/λ², 1], so law/exact - 1 is at most excess/λ² / (1 - excess/λ²).
            data={"wide": LAMBDA, "error": excess / (LAMBDA**2 - excess), "grid": grid},
        ),
    ]


def _temperatures() -> list[Claim]:
    s = sympy.Symbol("s", positive=True)
    critical = 2 * LOG_N
    return [
        one_step(
            "alternatives.temperature",
            "Temperature T acts as variance v/T²: its place relative to freezing",
            "温度 T は分散 v/T² として働く:凍結点に対する位置",
            (SIGMA / T) ** 2 / critical,
            V / (2 * T**2 * LOG_N),
            "rational",
            given=(GAUSSIAN_ROW, "scores are divided by T; freezing is at variance 2 log n"),
        ),
        one_step(
            "alternatives.log_n",
            "Scores times s log n: variance relative to freezing grows like log n, so long rows always freeze",
            "スコアを s log n 倍する方式:凍結点に対する分散比は log n で増え、長い行は必ず凍結する",
            (s * LOG_N * SIGMA) ** 2 / critical,
            s**2 * V * LOG_N / 2,
            "rational",
            given=(GAUSSIAN_ROW, "the ratio is 1 at log n = 2/(s² v)"),
            source=NAKANISHI,
        ),
        one_step(
            "alternatives.critical_temperature",
            "Scores times b √(2 log n)/σ: the place relative to freezing is the same for every n",
            "スコアを b √(2 log n)/σ 倍する方式:凍結点に対する位置は n によらない",
            (B * sympy.sqrt(2 * LOG_N) / SIGMA * SIGMA) ** 2 / critical,
            B**2,
            "rational",
            given=(GAUSSIAN_ROW,),
        ),
    ]


def _other_maps() -> list[Claim]:
    grid = tuple({"lambda": x} for x in (3.0, 8.0, 24.0))
    excess = (sympy.pi**2 - 6) / 6
    e = sympy.exp(LAMBDA * Z)
    gamma, rho = sympy.Symbol("gamma", positive=True), sympy.Symbol("rho", real=True)
    return [
        one_step(
            "alternatives.sigmoid_slope",
            "Sigmoid attention without bias: its mean squared slope falls like 1/(6σ√(2π))",
            "シグモイド注意(バイアスなし):傾きの平均二乗は 1/(6σ√(2π)) で減る",
            _wide((e / (1 + e) ** 2) ** 2),
            1 / (6 * LAMBDA * sympy.sqrt(2 * sympy.pi)),
            "wide-normal",
            relation="limit",
            given=("scores N(0, σ²), lambda = σ → ∞",),
            source=RAMAPURAM,
            data={"wide": LAMBDA, "error": excess / (LAMBDA**2 - excess), "grid": grid},
        ),
        one_step(
            "alternatives.sparsemax_dead",
            "Sparsemax: the share of rows with one key left, whose gradient is exactly 0",
            "sparsemax:一つの鍵だけが残る(勾配が厳密に 0 の)行の割合",
            ONE_KEY,
            GapTail(1 / SIGMA, N),
            "sparsemax-gap",
            given=(GAUSSIAN_ROW, "P_one_key: probability that sparsemax gives all the weight to one key"),
            source=MARTINS,
        ),
        one_step(
            "alternatives.sparsemax_jacobian",
            "Sparsemax: its mean squared Jacobian falls like mu_n/σ, no faster than softmax's",
            "sparsemax:平均二乗ヤコビアンは mu_n/σ で減る(softmax より速くはない)",
            SIGMA * SPARSE_JACOBIAN,
            mu(N),
            "sparsemax-tie",
            relation="limit",
            given=(GAUSSIAN_ROW, "v → ∞ at fixed n ≥ 2"),
            source=MARTINS,
        ),
        one_step(
            "alternatives.self_term",
            "Tokens of one common cosine ρ, scores γ log n times cosines: the weight a token gives itself",
            "共通の余弦 ρ を持つトークン、スコア γ log n × 余弦:自分自身への重み",
            sympy.exp(gamma * LOG_N) / (sympy.exp(gamma * LOG_N) + (N - 1) * sympy.exp(gamma * rho * LOG_N)),
            1 / (1 + (N - 1) * N ** (-gamma * (1 - rho))),
            "power-of-n",
            given=("⟨x_i, x_i⟩ = 1, ⟨x_i, x_j⟩ = rho < 1",),
            note={
                "en": "As n → ∞ it tends to 0 for γ < 1/(1 − ρ) and to 1 above: the critical scale for such tokens is "
                "log n, not √(2 log n).",
                "ja": "n → ∞ で γ < 1/(1 − ρ) なら 0、それ以上なら 1 に近づく:"
                "臨界スケールは √(2 log n) ではなく log n。",
            },
        ),
    ]
