"""Heads: concatenation and W^O, heads that don't see each other, one head, and shared keys and values.

Guarantees: for any number of heads and any sizes. Queries, keys and values carry the head as their first index; with
grouped keys a query head is (group, member), and all members of a group read one K and V.
Does not: say which weights a trained model has.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import exp, sqrt

from derive.assumptions import AtLeast, Defined, Distinct, InRange
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import chained
from derive.language import Diff, array, index, size, total
from derive.source import HERE, VASWANI, Source

AINSLIE = Source(
    "ainslie2023",
    "Ainslie, Lee-Thorp, de Jong, Zemlyanskiy, Lebrón, Sanghai",
    "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
    2023,
    "EMNLP 2023, arXiv:2305.13245",
    "https://arxiv.org/abs/2305.13245",
)

h, n, m, d_k, d_v, d_model, g_q = (size(s) for s in ("h", "n", "m", "d_k", "d_v", "d_model", "r"))
g, e, i, j, l, c, u, o, a, b, f = (index(s) for s in "geijlcuoabf")
Q, K, V = array("Q", h, n, d_k), array("K", h, m, d_k), array("V", h, m, d_v)
alpha, Z = array("alpha", h, n, m), array("Z", h, n, d_v)
W_O = array("W_O", h, d_v, d_model)
dZ = array("dZ", h, n, d_v)
SIZES = (AtLeast(m, 1), AtLeast(d_k, 1))


def score(head: Any, row: Any, key: Any) -> Any:
    return total(Q[head, row, c] * K[head, key, c], c, d_k) / sqrt(d_k)


HEADS = (
    Defined(alpha, (g, i, j), exp(score(g, i, j)) / total(exp(score(g, i, l)), l, m)),
    Defined(Z, (g, i, c), total(alpha[g, i, j] * V[g, j, c], j, m)),
)
SYMBOLS = {
    "Z": "(h, n, d_v), the output of each head",
    "W_O": "(h, d_v, d_model): row block g of W^O belongs to head g",
}
_MULTIHEAD = VASWANI.at("section 3.2.2")


def claims() -> list[Claim]:
    return [*_concatenation(), *_isolation(), *_grouped()]


def _concatenation() -> list[Claim]:
    free = array("Z", h, n, d_v)
    place = (AtLeast(d_v, 1), InRange(i, 0, n - 1), InRange(o, 0, d_model - 1))
    head, channel = sympy.floor(u / d_v), sympy.Mod(u, d_v)
    concatenated = total(free[head, i, channel] * W_O[head, channel, o], u, h * d_v)
    double = sympy.Sum(free[g, i, c] * W_O[g, c, o], (c, 0, d_v - 1), (g, 0, h - 1))
    by_head = total(total(free[g, i, c] * W_O[g, c, o], c, d_v), g, h)
    wide = size("D")
    row, W = array("C", wide + d_v), array("W", wide + d_v, d_model)
    one, W_one = array("z", 1, n, d_v), array("W_O", 1, d_v, d_model)
    return [
        chained(
            "heads.concat",
            (
                "Concatenation followed by W^O = sum over heads of Z_g W^O_g",
                "結合して W^O を掛ける = ヘッドごとの Z_g W^O_g の和",
            ),
            (concatenated, ("flat-index", {}), double, ("normal-form", {}), by_head),
            assumptions=place,
            source=_MULTIHEAD,
            symbols={**SYMBOLS, "u": "channel of the concatenation: head ⌊u/d_v⌋, channel u mod d_v"},
        ),
        derivation(
            "heads.one_more",
            ("One more head adds its own block of rows of W^O", "ヘッドを1つ加えると W^O の行ブロックが1つ加わる"),
            (
                total(row[u] * W[u, o], u, wide + d_v),
                total(row[u] * W[u, o], u, wide) + total(row[wide + c] * W[wide + c, o], c, d_v),
            ),
            assumptions=(InRange(o, 0, d_model - 1),),
            source=HERE,
            symbols={"C": "(D + d_v,), the concatenation with the new head last", "W": "(D + d_v, d_model), W^O"},
        ),
        derivation(
            "heads.one_head",
            ("One head is the plain case", "ヘッドが1つなら通常のアテンション"),
            (
                total(total(one[g, i, c] * W_one[g, c, o], c, d_v), g, 1),
                total(one[0, i, c] * W_one[0, c, o], c, d_v),
            ),
            assumptions=(InRange(i, 0, n - 1), InRange(o, 0, d_model - 1)),
            source=_MULTIHEAD,
            symbols={"z": "(1, n, d_v), the output of the only head", "W_O": "(1, d_v, d_model)"},
        ),
        derivation(
            "heads.output_gradient",
            ("The gradient of W^O, head by head", "W^O の勾配(ヘッドごと)"),
            (
                Diff(
                    total(total(array("dY", n, d_model)[i, o] * by_head, o, d_model), i, n),
                    W_O[a, b, f],
                ),
                total(free[a, i, b] * array("dY", n, d_model)[i, f], i, n),
            ),
            assumptions=(InRange(a, 0, h - 1), InRange(b, 0, d_v - 1), InRange(f, 0, d_model - 1)),
            source=HERE,
            symbols={**SYMBOLS, "dY": "(n, d_model), the gradient after W^O"},
        ),
    ]


def _isolation() -> list[Claim]:
    other = (InRange(a, 0, h - 1), Distinct(a, g), InRange(g, 0, h - 1), InRange(i, 0, n - 1))
    reads = {"Q": (Q[a, e, b], n, d_k), "K": (K[a, e, b], m, d_k), "V": (V[a, e, b], m, d_v)}
    names = {"Q": ("queries", "クエリ"), "K": ("keys", "キー"), "V": ("values", "値")}
    return [
        derivation(
            f"heads.isolated_{name.lower()}",
            (
                f"Before W^O a head does not depend on another head's {names[name][0]}",
                f"W^O の前ではヘッドは他のヘッドの{names[name][1]}によらない",
            ),
            (Diff(Z[g, i, c], entry), sympy.Integer(0)),
            assumptions=(
                *SIZES,
                *other,
                InRange(c, 0, d_v - 1),
                InRange(e, 0, rows - 1),
                InRange(b, 0, columns - 1),
                *HEADS,
            ),
            source=_MULTIHEAD,
            symbols={**SYMBOLS, "a": "another head"},
        )
        for name, (entry, rows, columns) in reads.items()
    ]


def _grouped() -> list[Claim]:
    """Query head (g, e): member e of group g, which reads K_g and V_g."""
    query, key, value = array("Q", h, g_q, n, d_k), array("K", h, m, d_k), array("V", h, m, d_v)
    grad = array("dZ", h, g_q, n, d_v)
    weights, scores_gradient = array("alpha", h, g_q, n, m), array("dS'", h, g_q, n, m)
    into = array("dalpha", h, g_q, n, m)

    def grouped_score(group: Any, member: Any, row: Any, at: Any) -> Any:
        return total(query[group, member, row, c] * key[group, at, c], c, d_k) / sqrt(d_k)

    repeated = array("Krep", h, g_q, m, d_k)
    repeat = Defined(repeated, (g, e, j, c), key[g, j, c])
    definitions = (
        Defined(
            weights,
            (g, e, i, j),
            exp(grouped_score(g, e, i, j)) / total(exp(grouped_score(g, e, i, l)), l, m),
        ),
        Defined(into, (g, e, i, j), total(grad[g, e, i, c] * value[g, j, c], c, d_v)),
        Defined(
            scores_gradient,
            (g, e, i, j),
            weights[g, e, i, j] * (into[g, e, i, j] - total(weights[g, e, i, l] * into[g, e, i, l], l, m)),
        ),
    )
    output = total(weights[g, e, i, j] * value[g, j, c], j, m)
    loss = total(total(total(total(grad[g, e, i, c] * output, c, d_v), i, n), e, g_q), g, h)
    words = {
        "Q": "(h, r, n, d_k): r query heads a group",
        "K": "(h, m, d_k), one key head a group",
        "V": "(h, m, d_v), one value head a group",
        "dZ": "(h, r, n, d_v), the incoming gradient",
    }
    place = (*SIZES, InRange(a, 0, h - 1), InRange(b, 0, m - 1))
    return [
        derivation(
            "heads.grouped_repeat",
            (
                "Grouped keys = the key head repeated for each member of its group",
                "グループ化キー = グループ内で反復したキー",
            ),
            (
                grouped_score(a, e, i, b),
                total(query[a, e, i, c] * repeated[a, e, b, c], c, d_k) / sqrt(d_k),
            ),
            assumptions=(*place, InRange(e, 0, g_q - 1), InRange(i, 0, n - 1), repeat),
            source=AINSLIE.at("section 2.2"),
            symbols={**words, "Krep": "(h, r, m, d_k), K repeated r times"},
        ),
        derivation(
            "heads.grouped_value_gradient",
            ("The gradient of a grouped value sums over the group", "グループ化された値の勾配はグループ内の和"),
            (Diff(loss, value[a, b, f]), total(total(weights[a, e, i, b] * grad[a, e, i, f], i, n), e, g_q)),
            assumptions=(*place, InRange(f, 0, d_v - 1), *definitions),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "heads.grouped_key_gradient",
            ("The gradient of a grouped key sums over the group", "グループ化されたキーの勾配はグループ内の和"),
            (
                Diff(loss, key[a, b, f]),
                total(total(scores_gradient[a, e, i, b] * query[a, e, i, f], i, n), e, g_q) / sqrt(d_k),
            ),
            assumptions=(*place, InRange(f, 0, d_k - 1), *definitions),
            premises=("softmax.jacobian",),
            source=HERE,
            symbols=words,
        ),
    ]
