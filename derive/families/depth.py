"""Depth: what one layer of attention does to the lengths and angles of tokens at initialisation.

Guarantees: the output's length and angle are exact for tokens of one common cosine; the two-row overlap is the exact
oracle's. Residual and recurrent paths are in the families `residual` and `recurrence`.
Does not: follow more than one layer: after the first, tokens of attention without a residual are no longer Gaussian,
and a mean-field recursion is wrong there.
"""

from __future__ import annotations

import sympy

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.depth_rules import RHO, WEIGHT
from derive.families._rows import GAUSSIAN_ROW, one_step, points, row
from derive.language import array, index, size, total
from derive.power_sums import N, V
from derive.row_nodes import RowOverlap, p

C = sympy.Symbol("c", real=True)


def claims() -> list[Claim]:
    return [*_outputs(), *_paths(), _overlap()]


def _outputs() -> list[Claim]:
    n = size("n")
    k, l = index("k"), index("l")
    a, b = array("alpha", n), array("beta", n)
    gram = C + (1 - C) * sympy.KroneckerDelta(k, l)
    given = ("tokens of unit length with one common cosine c: ⟨x_k, x_l⟩ = c + (1 − c) δ_kl", AtLeast(n, 1))

    def form(first: object, second: object) -> object:
        return total(total(first[k] * second[l] * gram, k, n), l, n)  # type: ignore[index]

    return [
        one_step(
            "depth.output_length",
            "Squared length of an attention output: c + (1 − c) Σα² (weights sum to 1)",
            "注意の出力の長さの二乗:c + (1 − c) Σα²(重みの和は 1)",
            form(a, a),
            C * total(a[k], k, n) ** 2 + (1 - C) * total(a[k] ** 2, k, n),
            "normal-form",
            given=given,
            note={
                "en": "Averaged over scores of row variance σ²(1 − c), Σα² has the mean of RowMean(p_2, n, σ²(1 − c)).",
                "ja": "行内分散 σ²(1 − c) のスコアについて平均すると、Σα² の平均は RowMean(p_2, n, σ²(1 − c))。",
            },
        ),
        one_step(
            "depth.output_angle",
            "Inner product of two attention outputs: c + (1 − c) Σαβ (weights sum to 1)",
            "二つの注意の出力の内積:c + (1 − c) Σαβ(重みの和は 1)",
            form(a, b),
            C * total(a[k], k, n) * total(b[l], l, n) + (1 - C) * total(a[k] * b[k], k, n),
            "normal-form",
            given=given,
            note={
                "en": "Σαβ is the two-row overlap; that it is 1/n holds only as n → ∞ (at n = 64, c = ½, v = 8 it is "
                "5.2 times that).",
                "ja": "Σαβ は二行の重なり。1/n になるのは n → ∞ のみ(n = 64, c = ½, v = 8 では約 5.2 倍)。",
            },
        ),
    ]


def _paths() -> list[Claim]:
    return [
        one_step(
            "depth.path_mean",
            "Attention reaches every key alike: E α_j = 1/n at every distance",
            "注意はどの距離の鍵にも等しく届く:E α_j = 1/n",
            row(WEIGHT),
            1 / N,
            "exchangeable",
            given=(GAUSSIAN_ROW, "no mask and no positional term"),
        ),
        one_step(
            "depth.path_square",
            "Mean square of one weight: diluted by n, not by distance",
            "一つの重みの平均二乗:距離ではなく n によって薄まる",
            row(WEIGHT**2),
            row(p(2)) / N,
            "exchangeable",
            given=(GAUSSIAN_ROW, "no mask and no positional term"),
            observable="participation",
        ),
        one_step(
            "depth.values_gradient",
            "The gradient of the values never vanishes: E Σα² ≥ 1/n",
            "バリューの勾配は消えない:E Σα² ≥ 1/n",
            1 / N,
            row(p(2)),
            "power-mean",
            relation="<=",
        ),
    ]


def _overlap() -> Claim:
    return one_step(
        "depth.overlap_large_n",
        "Overlap of two rows with correlated scores: n E Σαβ → e^(ρv)",
        "スコアが相関する二行の重なり:n E Σαβ → e^(ρv)",
        N * RowOverlap(N, V, RHO),
        sympy.exp(RHO * V),
        "two-rows",
        relation="limit",
        given=(GAUSSIAN_ROW, "x_k and x'_k have correlation rho; n → ∞ at fixed v"),
        data={
            "error": (sympy.exp(V) - 1) * sympy.exp((1 + RHO) * V) / N,
            "grid": points(n=(64, 512, 4096), v=(0.25, 1.0), rho=(0.0, 0.5, 0.9, 1.0)),
        },
    )
