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
from derive.families._rows import GAUSSIAN_ROW, SIGMA, D, chain, one_step, points
from derive.power_sums import N, V
from derive.row_constants import GapTail, freezing, mu
from derive.row_nodes import COS, J2, TOP, CosMean, RowMean, p
from derive.source import Source
from derive.step import Step

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
VELICKOVIC = Source(
    "velickovic2024",
    "Veličković, Perivolaropoulos, Barbero, Pascanu",
    "softmax is not enough (for sharp out-of-distribution)",
    2024,
    "arXiv:2410.01104",
    "https://arxiv.org/abs/2410.01104",
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
LAMBDA = sympy.Symbol("lambda", positive=True)
Z = sympy.Symbol("z", real=True)
ONE_KEY = sympy.Symbol("P_one_key", positive=True)
UNIT = "q and k are random directions (unit vectors), scores g cos(q, k)"
LOG_N = sympy.log(N)


def claims() -> list[Claim]:
    return [*_normalised(), *_softcap(), *_temperatures(), *_other_maps()]


def _normalised() -> list[Claim]:
    bound = 1 / (1 + (N - 1) * sympy.exp(-2 * G))
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
        chain(
            "alternatives.dispersion",
            "Bounded scores disperse: max α ≤ e^(2g)/n, so no head stays sharp as n grows",
            "有界なスコアは拡散する:max α ≤ e^(2g)/n、n が増えると鋭さは保てない",
            (
                Step(TOP, bound, "bounded-scores", "<=", data={"bound": G}),
                Step(bound, sympy.exp(2 * G) / N, "rational-order", "<=", data={"bound": G}),
            ),
            relation="<=",
            given=("every score of the row lies in [−g, g]",),
            source=VELICKOVIC,
        ),
        one_step(
            "alternatives.qk_norm_gain",
            "QK-norm: the gain at which a weight can reach α: half the log-odds plus half log(n − 1)",
            "QK 正規化:重みが α に届くのに必要な g:対数オッズの半分 + ½ log(n − 1)",
            sympy.log((N - 1) * bound / (1 - bound)) / 2,
            G,
            "log-rational",
            given=("n ≥ 2; the argument of the log is (n − 1)α/(1 − α) at α = 1/(1 + (n − 1)e^(−2g))",),
            source=HENRY,
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
    spread = s * SIGMA * LOG_N
    steady = B * sympy.sqrt(2 * LOG_N)
    error = sympy.Rational(7, 100) / freezing(N)
    return [
        one_step(
            "alternatives.temperature",
            "Temperature T acts as variance v/T²: as T → 0, E ‖J‖² falls like T mu_n/(3√v)",
            "温度 T は分散 v/T² として働く:T → 0 で E ‖J‖² は T mu_n/(3√v) で減る",
            SIGMA / T * RowMean(J2, N, V / T**2),
            mu(N) / 3,
            "near-tie",
            relation="limit",
            given=(GAUSSIAN_ROW, "scores are divided by T; T → 0 at fixed n ≥ 2"),
            data={
                "error": sympy.Rational(13, 10) * mu(N) * T / SIGMA,
                "grid": points(n=(8, 64), v=(1.0, 4.0), T=(0.1, 0.01)),
            },
        ),
        one_step(
            "alternatives.log_n",
            "Scores times s log n: long rows always freeze, E Σα² → 1 − b_n/(s σ log n)",
            "スコアを s log n 倍する方式:長い行は必ず凍結する、E Σα² → 1 − b_n/(s σ log n)",
            RowMean(p(2), N, spread**2),
            1 - freezing(N) / spread,
            "frozen",
            relation="limit",
            given=(GAUSSIAN_ROW, "n → ∞; the spread passes √(2 log n) at log n = 2/(s² v)"),
            source=NAKANISHI,
            data={
                "m": freezing(N) / spread,
                "error": error,
                "grid": points(n=(512, 1e6, 1e12), v=(1.0,), s=(1.0, 2.0)),
            },
        ),
        one_step(
            "alternatives.critical_temperature",
            "Scores of spread b √(2 log n), b > 1: equally frozen at every n, E Σα² → 1 − 1/b",
            "標準偏差 b √(2 log n)(b > 1)のスコア:n によらず同じ程度に凍結、E Σα² → 1 − 1/b",
            RowMean(p(2), N, steady**2),
            1 - freezing(N) / steady,
            "frozen",
            relation="limit",
            given=(GAUSSIAN_ROW, "n → ∞ at fixed b > 1; b_n/√(2 log n) → 1"),
            data={
                "m": freezing(N) / steady,
                "error": error,
                "grid": points(n=(64, 512, 1e6, 1e12), b=(1.5, 2.0, 4.0)),
            },
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
