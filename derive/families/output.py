"""The output Z = alpha V: a weighted mean of the values, and what leaves it unchanged.

Guarantees: for all sizes. Rows are not empty, there is no sink and no dropout; permutations are stated for the exchange
of any two positions, and every permutation is a product of such exchanges.
Does not: hold with positions (RoPE, ALiBi) or a mask, unless they are permuted too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sympy import Eq, KroneckerDelta, Piecewise, Symbol, exp, log

from derive.assumptions import Defined, Positive
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    ROOT,
    W_K,
    W_Q,
    W_V,
    Attention,
    X,
    a,
    b,
    c,
    d_k,
    d_model,
    d_v,
    derivation,
    dot,
    i,
    j,
    l,
    m,
    n,
    opened,
    p,
    place,
    t,
)
from derive.language import Diff, array, scalar, total
from derive.source import HERE, VASWANI
from derive.step import Step

_SOURCE = VASWANI.at("section 3.2.1, equation 1")


def claims() -> list[Claim]:
    return [
        _matrix(),
        _weights_sum(),
        _convex_hull(),
        _constant(),
        _linear(),
        _value_jacobian(),
        _exchange_tokens(),
        _exchange_keys(),
        _exchange_queries(),
        _duplicate(),
        _shifted_values(),
    ]


def exchanged(at: Callable[[Any], Any], position: Any) -> Any:
    """at(position) with the positions a and b exchanged."""
    return Piecewise((at(b), Eq(position, a)), (at(a), Eq(position, b)), (at(position), True))


def _matrix() -> Claim:
    layer = Attention(m)
    _, output = opened(m, lambda x, y: layer.Q[x, y], lambda x, y: layer.K[x, y], lambda x, y: layer.V[x, y])
    row = total(KroneckerDelta(i, t) * layer.alpha[t, j], t, n)
    return derivation(
        "output.matrix",
        ("Output: matrix product αV = one quotient of sums a row", "出力:行列積 αV = 行ごとの和の商"),
        (
            total(row * layer.V[j, c], j, m),
            layer.Z[i, c],
            output(i, c),
        ),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v)), *layer.defined),
        source=_SOURCE,
        symbols={k: INPUTS[k] for k in ("Q", "K", "V", "alpha", "Z")},
        notes=[
            ("Row i of α picked by a unit vector.", "α の第 i 行を単位ベクトルで取り出す。"),
            ("The denominator leaves the sum over keys.", "分母をキーの和の外に出す。"),
        ],
    )


def _weights_sum() -> Claim:
    layer = Attention(m)
    return derivation(
        "output.weights_sum",
        ("The weights of a row add up to 1", "行の重みの和は 1"),
        (total(layer.alpha[i, j], j, m), 1),
        assumptions=(*layer.sizes, *place((i, n)), *layer.defined),
        source=_SOURCE,
        symbols={"alpha": INPUTS["alpha"]},
    )


def _convex_hull() -> Claim:
    layer = Attention(m)
    direction, bound = array("w", d_v), scalar("h")
    support = total(direction[c] * layer.V[j, c], c, d_v)
    left = total(direction[c] * layer.Z[i, c], c, d_v)
    gap = total(layer.alpha[i, j] * (bound - support), j, m)
    conditions = (*layer.sizes, *place((i, n), (j, m)), *layer.defined)
    inside = (*conditions, Positive(bound - support))
    first = Step(
        left,
        bound - gap,
        "normal-form",
        assumptions=conditions,
        note={
            "en": "Σ_j α_ij = 1, so the bound is its own weighted mean.",
            "ja": "Σ_j α_ij = 1 なので、上界はそれ自身の加重平均である。",
        },
    )
    second = Step(
        bound - gap,
        bound,
        "certified-difference",
        relation="<",
        assumptions=inside,
        data={"certificate": gap},
        note={
            "en": "A weighted mean of positive gaps is positive.",
            "ja": "正の差の加重平均は正である。",
        },
    )
    return Claim(
        "output.convex_hull",
        {
            "en": "Every output lies in the convex hull of the values",
            "ja": "出力はすべてバリューの凸包に含まれる",
        },
        left,
        bound,
        HERE,
        (first, second),
        relation="<",
        assumptions=inside,
        symbols={"w": "(d_v,), any direction", "h": "any level above w·v_j for every key j"},
        note={
            "en": "In every direction w, an output stays below each level that all values stay below: it is in every "
            "open half-space that holds all values, and these meet in their convex hull.",
            "ja": "任意の方向 w について、すべてのバリューより大きい水準は出力よりも大きい。"
            "すべてのバリューを含む開半空間の共通部分は凸包である。",
        },
    )


def _constant() -> Claim:
    layer = Attention(m)
    value = array("v", d_v)
    return derivation(
        "output.constant_values",
        ("Equal values give that value, whatever the scores", "バリューがすべて等しければ、出力はその値"),
        (total(layer.alpha[i, j] * value[c], j, m), value[c]),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v)), *layer.defined),
        source=HERE,
    )


def _shifted_values() -> Claim:
    layer = Attention(m)
    value = array("v", d_v)
    return derivation(
        "output.shifted_values",
        (
            "A vector added to every value is added to every output",
            "すべてのバリューに足したベクトルは、出力にもそのまま足される",
        ),
        (total(layer.alpha[i, j] * (layer.V[j, c] + value[c]), j, m), layer.Z[i, c] + value[c]),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v)), *layer.defined),
        source=HERE,
    )


def _linear() -> Claim:
    layer = Attention(m)
    other, x, y = array("V2", m, d_v), scalar("x"), scalar("y")

    def mixed(values: Any) -> Any:
        return total(layer.alpha[i, j] * values, j, m)

    return derivation(
        "output.linear_in_values",
        ("The output is linear in V", "出力は V について線形"),
        (
            mixed(x * layer.V[j, c] + y * other[j, c]),
            x * mixed(layer.V[j, c]) + y * mixed(other[j, c]),
        ),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v)), *layer.defined),
        source=HERE,
    )


def _value_jacobian() -> Claim:
    layer = Attention(m)
    return derivation(
        "output.value_jacobian",
        ("Derivative of the output by a value: the weight", "出力のバリューによる微分は重みである"),
        (Diff(layer.Z[i, c], layer.V[a, b]), layer.alpha[i, a] * KroneckerDelta(c, b)),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v), (a, m), (b, d_v)), *layer.defined),
        source=HERE,
    )


def _self_attention(tokens: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def projected(weight: Any) -> Callable[[Any, Any], Any]:
        return lambda row, channel: total(tokens(row, p) * weight[p, channel], p, d_model)

    return opened(n, projected(W_Q), projected(W_K), projected(W_V))[1]


def _exchange_tokens() -> Claim:
    after = _self_attention(lambda row, x: exchanged(lambda k: X[k, x], row))
    before = _self_attention(lambda row, x: X[row, x])
    return derivation(
        "output.exchange_tokens",
        (
            "Self-attention without mask and positions: exchanged tokens give exchanged outputs",
            "マスクも位置もない自己注意:トークンの入れ替えで出力も入れ替わる",
        ),
        (after(i, c), exchanged(lambda k: before(k, c), i)),
        assumptions=(*Attention(n).sizes, *place((i, n), (c, d_v), (a, n), (b, n))),
        source=HERE,
        note=(
            "For any two positions a and b, hence for every permutation. With a mask, an additive bias or positions, "
            "exchange their rows and columns too.",
            "任意の2つの位置 a, b について成り立つので、任意の置換でも成り立つ。"
            "マスク・バイアス・位置がある場合は、それらの行と列も入れ替える。",
        ),
    )


def _exchange_keys() -> Claim:
    layer = Attention(m)

    def query(row: Any, x: Any) -> Any:
        return layer.Q[row, x]

    after = opened(
        m,
        query,
        lambda column, x: exchanged(lambda k: layer.K[k, x], column),
        lambda column, x: exchanged(lambda k: layer.V[k, x], column),
    )[1]
    before = opened(m, query, lambda x, y: layer.K[x, y], lambda x, y: layer.V[x, y])[1]
    return derivation(
        "output.exchange_keys",
        (
            "Keys exchanged together with their values change nothing",
            "キーとバリューを一緒に入れ替えても何も変わらない",
        ),
        (after(i, c), before(i, c)),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v), (a, m), (b, m))),
        source=HERE,
        note=(
            "For any two keys, hence for every permutation.",
            "任意の2つのキーについて、したがって任意の置換について。",
        ),
    )


def _exchange_queries() -> Claim:
    layer = Attention(m)
    key, value = (lambda x, y: layer.K[x, y]), (lambda x, y: layer.V[x, y])
    after = opened(m, lambda row, x: exchanged(lambda k: layer.Q[k, x], row), key, value)[1]
    before = opened(m, lambda x, y: layer.Q[x, y], key, value)[1]
    return derivation(
        "output.exchange_queries",
        ("Exchanged queries give exchanged rows of the output", "クエリの入れ替えで出力の行も入れ替わる"),
        (after(i, c), exchanged(lambda k: before(k, c), i)),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v), (a, n), (b, n))),
        source=HERE,
    )


def _duplicate() -> Claim:
    layer = Attention(m)

    def again(at: Callable[[Any], Any], position: Symbol) -> Any:
        return Piecewise((at(position), position < m), (at(a), True))

    def query(row: Any, x: Any) -> Any:
        return layer.Q[row, x]

    longer = opened(
        m + 1,
        query,
        lambda column, x: again(lambda k: layer.K[k, x], column),
        lambda column, x: again(lambda k: layer.V[k, x], column),
    )[1]

    def score(row: Any, column: Any) -> Any:
        return dot(lambda x: query(row, x), lambda x: layer.K[column, x], c, d_k) / ROOT + log(2) * KroneckerDelta(
            column, a
        )

    weighted = total(exp(score(i, j)) * layer.V[j, c], j, m) / total(exp(score(i, l)), l, m)
    return derivation(
        "output.duplicate_key",
        (
            "A key repeated with its value = log 2 added to its score",
            "キーとバリューの重複は、そのスコアに log 2 を足すことに等しい",
        ),
        (longer(i, c), weighted),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v), (a, m))),
        source=HERE,
        note=(
            "Key a stands once more as key m, the last of m + 1.",
            "キー a を m + 1 個のうち最後のキー m として繰り返す。",
        ),
    )


def definitions() -> tuple[Defined, ...]:
    """The definitions of cross-attention up to the output, for statements of one's own."""
    return Attention(m).defined
