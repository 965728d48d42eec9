"""Positions: rotary embeddings (RoPE) with exact positions, and linear biases (ALiBi).

Guarantees: for every real angle θ_t a channel pair, and every integer position. A query is given as the two halves of
its channel pairs, (q_t, q'_t) for t < h with d_k = 2h.
Does not: speak of scaled or interpolated positions, or of the rounding of θ.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import cos, exp, sin

from derive.assumptions import AtLeast, InRange
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import chained, claim_by
from derive.language import Diff, array, index, scalar, size, total
from derive.source import HERE, Source

SU = Source(
    "su2021",
    "Su, Lu, Pan, Murtadha, Wen, Liu",
    "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    2021,
    "arXiv:2104.09864",
    "https://arxiv.org/abs/2104.09864",
)
PRESS = Source(
    "press2022",
    "Press, Smith, Lewis",
    "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    2022,
    "ICLR 2022, arXiv:2108.12409",
    "https://arxiv.org/abs/2108.12409",
)

h, n, d_v = size("h"), size("n"), size("d_v")
t, u, i, j, l, c, a = (index(s) for s in "tuijlca")
p, r, s = scalar("p"), scalar("r"), scalar("s")
q_1, q_2, k_1, k_2 = array("q", h), array("q'", h), array("k", h), array("k'", h)
theta = array("theta", h)
SYMBOLS = {
    "q": "(h,), first channels of the query's pairs; q' the second",
    "k": "(h,), first channels of the key's pairs; k' the second",
    "theta": "(h,), the angles",
    "p": "position of the query",
    "r": "position of the key",
}


def rotated(first: Any, second: Any, at: Any, pair: Any) -> tuple[Any, Any]:
    """One channel pair turned by position × angle."""
    angle = at * theta[pair]
    return first[pair] * cos(angle) - second[pair] * sin(angle), first[pair] * sin(angle) + second[pair] * cos(angle)


def score(query: Any, key: Any) -> Any:
    """The dot product of a query at one position with a key at another, pair by pair."""
    a_1, a_2 = rotated(q_1, q_2, query, t)
    b_1, b_2 = rotated(k_1, k_2, key, t)
    return total(a_1 * b_1 + a_2 * b_2, t, h)


def claims() -> list[Claim]:
    return [*_rotary(), *_layouts(), *_linear()]


def _rotary() -> list[Claim]:
    angle = (r - p) * theta[t]
    relative = total(
        (q_1[t] * k_1[t] + q_2[t] * k_2[t]) * cos(angle) + (q_2[t] * k_1[t] - q_1[t] * k_2[t]) * sin(angle), t, h
    )
    first, second = rotated(q_1, q_2, p, t)
    return [
        claim_by(
            "angle-addition",
            "positions.rope_relative",
            ("A rotary score depends on the difference of positions only", "RoPE のスコアは位置の差だけによる"),
            (score(p, r), relative),
            relation="=",
            source=SU.at("section 3.2.2, equation 16"),
            symbols=SYMBOLS,
        ),
        claim_by(
            "angle-addition",
            "positions.rope_shift",
            ("Moving query and key together changes no score", "クエリとキーを同じだけずらしてもスコアは不変"),
            (score(p + s, r + s), score(p, r)),
            relation="=",
            source=SU.at("section 3.2.2"),
            symbols={**SYMBOLS, "s": "the common shift"},
        ),
        claim_by(
            "angle-addition",
            "positions.rope_norm",
            ("A rotation keeps norms", "回転はノルムを保つ"),
            (total(first**2 + second**2, t, h), total(q_1[t] ** 2 + q_2[t] ** 2, t, h)),
            relation="=",
            source=SU.at("section 3.2.2"),
            symbols=SYMBOLS,
        ),
        claim_by(
            "angle-addition",
            "positions.rope_origin",
            ("At equal positions the rotation drops out", "同じ位置では回転は現れない"),
            (score(p, p), total(q_1[t] * k_1[t] + q_2[t] * k_2[t], t, h)),
            relation="=",
            source=SU,
            symbols=SYMBOLS,
        ),
        derivation(
            "positions.rope_gradient",
            ("The gradient by a query channel is the key turned back", "クエリのチャネルによる勾配は逆回転したキー"),
            (
                Diff(score(p, r), q_1[u]),
                rotated(k_1, k_2, r, u)[0] * cos(p * theta[u]) + rotated(k_1, k_2, r, u)[1] * sin(p * theta[u]),
            ),
            assumptions=(InRange(u, 0, h - 1),),
            source=HERE,
            symbols=SYMBOLS,
        ),
    ]


def _layouts() -> list[Claim]:
    """The two layouts of channel pairs: (2t, 2t + 1), and (t, t + h)."""
    y, z = array("y", 2 * h), array("z", 2 * h)
    w, x = array("w", h, 2), array("x", h, 2)
    e = index("e")
    pairs = total(w[t, 0] * x[t, 0] + w[t, 1] * x[t, 1], t, h)
    by_pair = sympy.Sum(w[t, e] * x[t, e], (e, 0, 1), (t, 0, h - 1))
    flat = total(
        w[sympy.floor(c / 2), sympy.Mod(c, 2)] * x[sympy.floor(c / 2), sympy.Mod(c, 2)],
        c,
        2 * h,
    )
    words = {"w": "(h, 2), the turned query's pairs", "x": "(h, 2), the turned key's pairs"}
    return [
        chained(
            "positions.rope_interleaved",
            (
                "Layout (2t, 2t + 1): channel c is entry c mod 2 of pair ⌊c/2⌋",
                "配置 (2t, 2t + 1):チャネル c は対 ⌊c/2⌋",
            ),
            (flat, ("flat-index", {}), by_pair, ("normal-form", {}), pairs),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "positions.rope_halves",
            ("Layout (t, t + h): the two halves of the channels", "配置 (t, t + h):チャネルの前半と後半"),
            (total(y[c] * z[c], c, 2 * h), total(y[t] * z[t] + y[t + h] * z[t + h], t, h)),
            source=HERE,
            symbols={"y": "(2h,), the turned query", "z": "(2h,), the turned key"},
            note=(
                "With y[t], y[t + h] the pair t this is the sum of positions.rope_interleaved: the layouts agree up to"
                " the permutation of channels that takes 2t to t and 2t + 1 to t + h.",
                "y[t], y[t + h] を対 t とすれば positions.rope_interleaved と同じ和になる。両配置は 2t → t,"
                " 2t + 1 → t + h の並べ替えを除いて一致する。",
            ),
        ),
    ]


def _linear() -> list[Claim]:
    x, V = array("x", n), array("V", n, d_v)

    def causal(bias: Any) -> Any:
        top = sympy.Sum(exp(x[j] + bias(j)) * V[j, c], (j, 0, i))
        return top / sympy.Sum(exp(x[l] + bias(l)), (l, 0, i))

    rows = (AtLeast(n, 1), InRange(i, 0, n - 1), InRange(c, 0, d_v - 1))
    words = {"x": "(n,), the scores of row i", "V": "(n, d_v), values", "s": "the slope of a head"}
    return [
        derivation(
            "positions.alibi_relative",
            (
                "ALiBi: minus slope × distance, the row's own position cancels",
                "ALiBi:−傾き×距離。行の位置は打ち消し合う",
            ),
            (causal(lambda ix: -s * (i - ix)), causal(lambda ix: s * ix)),
            assumptions=rows,
            premises=("softmax.shift",),
            source=PRESS.at("section 3"),
            symbols=words,
            note=(
                "Under a causal mask the bias −s(i − j) and the bias s·j differ by a constant of the row.",
                "因果マスクのもとでは −s(i − j) と s·j の差は行ごとの定数である。",
            ),
        ),
        derivation(
            "positions.alibi_shift",
            ("Moving all positions together changes nothing", "全位置を同じだけずらしても変わらない"),
            (causal(lambda ix: s * (ix + a)), causal(lambda ix: s * ix)),
            assumptions=(*rows, InRange(a, 0, n - 1)),
            premises=("softmax.shift",),
            source=PRESS,
            symbols=words,
        ),
    ]
