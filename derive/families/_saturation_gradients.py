"""Claims of the family `saturation` on gradients of a loss at initialisation, with and without scaling.

Two settings are kept apart: independent Q, K, V, and self-attention from one X, where the values' and the keys' Gram
matrices are one and the same and the mean square is larger.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.catalogue import Claim
from derive.families._rows import INDEPENDENT, SELF, WIDTH, D, S, head, one_step, points
from derive.gradient_nodes import Gradient, OwnKeyGradient, SelfGradient
from derive.power_sums import N
from derive.row_constants import mu
from derive.row_nodes import AZ2, J2, JZ2, TR, ZJZ, HeadMean, RowMean, RowSymbol, SelfMean, p

OTHERS = "the row's n keys are of other tokens; for the effect of the own key see the claims …_own_key"
OWN = "the token's own key is among the row's n keys; the next order is 1/d_model of what is stated"
NAMES = {
    "q": ("the queries", "クエリ"),
    "k": ("the keys", "キー"),
    "v": ("the values", "バリュー"),
    "S": ("the scores", "スコア"),
    "W_Q": ("the query weights", "クエリの重み行列"),
    "W_K": ("the key weights", "キーの重み行列"),
    "W_V": ("the value weights", "バリューの重み行列"),
}


def claims() -> list[Claim]:
    return [*_independent(), *_self_attention(), *_own_key(), *_limits(), _head_many_keys()]


def gradient(of: str, scale: Any = S) -> Any:
    return Gradient(RowSymbol(of), N, D, scale)


def shared(body: Any, along: int = 0, row: int = 0, query: int = 0) -> Any:
    return SelfMean(body, N, D + query, S, WIDTH, along, row)


def _independent() -> list[Claim]:
    laws = {
        "q": S**2 * ((D - 1) * head(J2) + head(JZ2)),
        "k": S**2 * D * HeadMean(J2, N, D + 2, S),
        "v": head(p(2)),
        "S": head(J2),
    }
    return [
        one_step(
            f"saturation.gradient_{of.lower() if of != 'S' else 'scores'}",
            f"Mean squared gradient of {NAMES[of][0]}, independent Q, K, V: exact at every size",
            f"{NAMES[of][1]}の勾配の平均二乗(Q, K, V 独立、すべてのサイズで厳密)",
            gradient(of),
            law,
            "gradient-traces",
            given=(INDEPENDENT,),
            note={
                "en": "Per row (or key) and per component of the values. Without scaling s = 1; usually s = 1/√d_k.",
                "ja": "行(またはキー)ごと、バリューの成分ごと。スケールなしは s = 1、通常は s = 1/√d_k。",
            },
        )
        for of, law in laws.items()
    ]


def _self_attention() -> list[Claim]:
    m = WIDTH - 1

    def across(**extra: int) -> Any:
        means = (shared(body, **extra) for body in (J2, TR**2, JZ2, ZJZ**2))
        return sum(c * mean for c, mean in zip((m * (m + 1), m, 2 * m, 1), means, strict=True))

    def along(**extra: int) -> Any:
        return shared(ZJZ**2, along=2, **extra) + m * shared(JZ2, along=2, **extra)

    def query(**extra: int) -> Any:
        return (D - 1) / WIDTH**2 * across(**extra) + along(**extra) / WIDTH

    laws = {
        "q": S**2 * query(),
        "k": S**2 * D / WIDTH * (m * shared(J2, row=2, query=2) + shared(JZ2, row=2, query=2)),
        "v": shared(p(2)),
        "S": (m * shared(J2) + shared(JZ2)) / WIDTH,
        "W_Q": S**2 * WIDTH * query(row=2),
        "W_K": S**2 * D / WIDTH * across(row=2, query=2),
        "W_V": m * shared(p(2)) + shared(AZ2),
    }
    return [
        one_step(
            f"saturation.gradient_{of.lower() if of != 'S' else 'scores'}_self_attention",
            f"Mean squared gradient of {NAMES[of][0]} in self-attention from one X",
            f"一つの X による自己注意での{NAMES[of][1]}の勾配の平均二乗",
            own(SelfGradient, of),
            law,
            "gradient-traces",
            given=(SELF, OTHERS),
            note={
                "en": "As d_model → ∞ this is the law for independent Q, K, V. For the queries the excess is mainly "
                "s² (d_k − 1) E[(tr J)²]/d_model: (tr J)² is near 1 where ‖J‖² is near 1/n, so at d_model = n it "
                "is as large as the rest.",
                "ja": "d_model → ∞ で Q, K, V 独立の法則になる。クエリの補正は主に s² (d_k − 1) E[(tr J)²]/d_model で、"
                "(tr J)² ≈ 1、‖J‖² ≈ 1/n のため、d_model = n で残りと同程度に大きい。",
            },
        )
        for of, law in laws.items()
    ]


def _own_key() -> list[Claim]:
    """n d_model (own key among the keys, less keys of other tokens), as d_model → ∞: 2 (∂ + w)(∂ + a) of the means."""

    def second(mean: Any, a: int, w: int) -> Any:
        slope, curve = sympy.Derivative(mean, S), sympy.Derivative(mean, (S, 2))
        return S**2 / 2 * curve + (S / 2 + (a + w) * S) * slope + 2 * a * w * mean

    def queries(a: int, w: int) -> Any:
        return S**2 * ((D - 1) * second(head(J2), a, w) + second(head(JZ2), a, w))

    keys = HeadMean(J2, N, D + 2, S)
    laws = {
        "q": (queries(2, 0), WIDTH),
        "k": (S**2 * D * second(keys, 1, 1), WIDTH),
        "v": (second(head(p(2)), 0, 0), WIDTH),
        "S": (second(head(J2), 1, 0), WIDTH),
        "W_Q": (queries(2, 1), 1),
        "W_K": (S**2 * D * second(keys, 2, 1), 1),
        "W_V": (second(head(p(2)), 1, 0), 1),
    }
    return [
        one_step(
            f"saturation.gradient_{of.lower() if of != 'S' else 'scores'}_own_key",
            f"What the token's own key adds to the mean squared gradient of {NAMES[of][0]}",
            f"自分自身のキーが{NAMES[of][1]}の勾配の平均二乗に与える変化",
            N * width * (own(OwnKeyGradient, of) - own(SelfGradient, of)),
            law,
            "own-key",
            relation="limit",
            given=(SELF, OWN, "d_model → ∞ at fixed n, d_k, s"),
        )
        for of, (law, width) in laws.items()
    ]


def own(kind: Any, of: str) -> Any:
    return kind(RowSymbol(of), N, D, S, WIDTH)


def _limits() -> list[Claim]:
    root = sympy.sqrt(D)
    large = (INDEPENDENT, "d_k → ∞ at fixed n ≥ 2")
    wide = tuple(
        {"n": float(n), "d_k": float(round(k * k * m2))}
        for n, m2 in ((2, 0.32), (8, 2.03), (64, 5.52), (256, 7.99))
        for k in (3, 6, 20, 60)
    )
    sizes = points(n=(2, 8, 64, 256), d_k=(16, 64, 256, 1024))
    return [
        one_step(
            "saturation.gradient_q_unscaled",
            "Without scaling the mean squared gradient of the queries grows, like mu_n √d_k/3",
            "スケールなしではクエリの勾配の平均二乗は増える:mu_n √d_k/3",
            gradient("q", 1),
            mu(N) * root / 3,
            "oracle-grid",
            relation="limit",
            given=large,
            data={"error": sympy.Rational(3, 2) * mu(N) / root, "grid": wide},
            note={
                "en": "The gradient that trains W^Q and W^K does not vanish in mean square, whatever is said of it: it "
                "grows. At d_k = 64 the limit is 15, 35, 48 % above the exact value for n = 8, 64, 256.",
                "ja": "W^Q, W^K を訓練する勾配は平均二乗では消えず、むしろ増える。d_k = 64 では極限は厳密値より "
                "n = 8, 64, 256 で 15, 35, 48 % 大きい。",
            },
        ),
        one_step(
            "saturation.jacobian_unscaled",
            "Without scaling the mean squared Jacobian falls like d_k^(−1/2)",
            "スケールなしでは平均二乗ヤコビアンは d_k^(−1/2) で減る",
            HeadMean(J2, N, D, 1),
            mu(N) / (3 * root),
            "oracle-grid",
            relation="limit",
            given=large,
            data={"error": sympy.Rational(3, 2) * mu(N) / root, "grid": wide},
            observable="jacobian_norm",
        ),
        one_step(
            "saturation.gradient_q_scaled",
            "With 1/√d_k the mean squared gradient of the queries tends to E ‖J‖² at unit variance",
            "1/√d_k ではクエリの勾配の平均二乗は分散 1 の E ‖J‖² に近づく",
            gradient("q", 1 / root),
            RowMean(J2, N, 1),
            "oracle-grid",
            relation="limit",
            given=large,
            data={"error": sympy.Rational(3, 2) / D, "grid": sizes},
        ),
        one_step(
            "saturation.gradient_q_inverse",
            "With 1/d_k the mean squared gradient of the queries falls like (n − 1)/(n² d_k)",
            "1/d_k ではクエリの勾配の平均二乗は (n − 1)/(n² d_k) で減る",
            gradient("q", 1 / D),
            (N - 1) / (N**2 * D),
            "oracle-grid",
            relation="limit",
            given=large,
            data={"error": sympy.Rational(5, 4) / D, "grid": sizes},
        ),
    ]


def _head_many_keys() -> Claim:
    first, second, third = ((1 - 2 * k / D) ** (-D / 2) for k in (1, 2, 3))
    return one_step(
        "saturation.p2_scaled_many_keys",
        "At scale 1/√d_k, n E Σα² tends to (1 − 2/d_k)^(−d_k/2), not to e",
        "スケール 1/√d_k では n E Σα² は e ではなく (1 − 2/d_k)^(−d_k/2) に近づく",
        N * HeadMean(p(2), N, D, 1 / sympy.sqrt(D)),
        first,
        "oracle-grid",
        relation="limit",
        given=(INDEPENDENT, "n → ∞ at fixed d_k > 2 (the error is stated for d_k > 6)"),
        data={
            # The next term of the expansion in 1/n, averaged over ‖q‖²: E e^(kχ²/d) = (1 - 2k/d)^(-d/2).
            "error": (2 * third - 3 * second + first) / first / N,
            "grid": points(n=(64, 512, 4096, 1e6, 1e9), d_k=(16, 64, 256)) + points(n=(4096, 1e6, 1e9), d_k=(8,)),
        },
        observable="participation",
        note={
            "en": "E e^(‖q‖²/d_k) is the moment generating function of χ² at 1/d_k; it is e only as d_k → ∞.",
            "ja": "E e^(‖q‖²/d_k) は χ² の積率母関数の 1/d_k での値で、d_k → ∞ でのみ e になる。",
        },
    )
