"""Masks, windows, softcap and sinks: which keys take part, and what is done to their scores.

Guarantees: a masked key is a removed key where at least one key is left and every score and value is finite.
Does not: say what an implementation does with an empty row, where all of these are undefined (0/0), nor with a masked
key whose value is NaN or infinite, where weight 0 times value is no 0.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import KroneckerDelta, exp, tanh

from derive.assumptions import AtLeast, Defined, InRange, Ordered, Positive
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import bound, chained, limit
from derive.language import Diff, array, index, scalar, size, total
from derive.source import HERE, VASWANI

n, m, d_v = size("n"), size("m"), size("d_v")
i, j, l, c, e, a, b = (index(s) for s in "ijlceab")
w = size("w")
x, keep, V, dZ = array("x", n), array("keep", n), array("V", n, d_v), array("dZ", d_v)
S, dO = array("S", n, n), array("dZ", n, d_v)
alpha, Z = array("alpha", n), array("Z", d_v)

ROW = AtLeast(n, 1)
CHANNEL = InRange(c, 0, d_v - 1)
LEFT = Positive(total(keep[l] * exp(x[l]), l, n))
WEIGHTS = Defined(alpha, (j,), exp(x[j]) / total(exp(x[l]), l, n))
SYMBOLS = {
    "x": "(n,), the scores of one row",
    "keep": "(n,), 1 for a key that takes part, 0 for a masked one",
    "V": "(n, d_v), values",
}
_MASK = VASWANI.at("section 3.2.3, masking by −∞")


def claims() -> list[Claim]:
    return [*_removal(), *_causal(), *_softcap(), *_sink()]


def _removal() -> list[Claim]:
    kept = 1 - KroneckerDelta(j, a)
    left = total((1 - KroneckerDelta(l, a)) * exp(x[l]), l, n)
    masked = total(kept * exp(x[j]) * V[j, c], j, n) / left
    before, after = ((0, a - 1), (a + 1, n - 1))
    left_over = sum(sympy.Sum(exp(x[l]), (l, *r)) for r in (before, after))
    removed = sum(sympy.Sum(exp(x[j]) * V[j, c], (j, *r)) for r in (before, after))
    B = scalar("B")
    return [
        chained(
            "masks.removed_key",
            ("A masked key = a removed key", "マスクされたキー = 取り除かれたキー"),
            (
                masked,
                ("normal-form", {}),
                removed / left,
                ("equals-for-equals", {"old": left, "new": left_over}),
                removed / left_over,
            ),
            assumptions=(InRange(a, 0, n - 1), CHANNEL, Positive(left)),
            source=_MASK,
            symbols={**SYMBOLS, "a": "the masked key"},
            note=(
                "Needs another key in the row, and a finite value at the masked one: 0 times infinity is no 0.",
                "行に他のキーがあり、マスクされたキーの値が有限であることが必要(0 × ∞ は 0 ではない)。",
            ),
        ),
        derivation(
            "masks.renormalised",
            ("Masked weights are the kept weights, divided by their sum", "マスク後の重み = 残る重みの再正規化"),
            (
                keep[i] * exp(x[i]) / total(keep[l] * exp(x[l]), l, n) * total(keep[l] * alpha[l], l, n),
                keep[i] * alpha[i],
            ),
            assumptions=(ROW, LEFT, WEIGHTS, InRange(i, 0, n - 1)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        derivation(
            "masks.no_gradient",
            ("No gradient reaches the score of a masked key", "マスクされたキーのスコアに勾配は届かない"),
            (Diff(total(dZ[c] * masked, c, d_v), x[a]), sympy.Integer(0)),
            assumptions=(InRange(a, 0, n - 1), Positive(left)),
            source=HERE,
            symbols=SYMBOLS,
        ),
        limit(
            "masks.additive_limit",
            ("Adding −B to a score, as B → ∞, is masking it", "スコアに −B を加え B → ∞ とするとマスクになる"),
            (exp(x[i] - B * KroneckerDelta(i, a)) / total(exp(x[l] - B * KroneckerDelta(l, a)), l, n), B, sympy.oo),
            (1 - KroneckerDelta(i, a)) * exp(x[i]) / left,
            (1 - KroneckerDelta(i, a) + KroneckerDelta(i, a) * exp(-B)) * exp(x[i]) / (left + exp(x[a] - B)),
            assumptions=(InRange(i, 0, n - 1), InRange(a, 0, n - 1), Positive(left)),
            source=_MASK,
            symbols={**SYMBOLS, "B": "how much is taken from the score of key a"},
        ),
    ]


def _causal() -> list[Claim]:
    q = array("x", n, m)
    full = array("S", m, m)
    values = array("V", m, d_v)

    def causal(score: Any, last: Any, channel: Any) -> Any:
        """Attention over keys 0 … last."""
        return sympy.Sum(exp(score(j)) * values[j, channel], (j, 0, last)) / sympy.Sum(exp(score(l)), (l, 0, last))

    def row(at: Any, channel: Any) -> Any:
        return sympy.Sum(exp(S[at, j]) * V[j, channel], (j, 0, at)) / sympy.Sum(exp(S[at, l]), (l, 0, at))

    window = sympy.Sum(exp(S[i, j]) * V[j, c], (j, i - w, i))
    shifted = Defined(q, (i, j), full[i + m - n, j])
    place = InRange(i, 0, n - 1)
    loss = total(total(dO[i, c] * row(i, c), c, d_v), i, n)
    return [
        derivation(
            "masks.causal_top_left",
            ("Top-left corner: the first query sees the first key only", "左上揃え:最初のクエリは最初のキーだけを見る"),
            (row(i, c).subs(i, 0), V[0, c]),
            assumptions=(ROW, CHANNEL),
            source=_MASK,
            symbols={"S": "(n, n), scores", "V": "(n, d_v), values"},
        ),
        derivation(
            "masks.causal_bottom_right",
            (
                "Bottom-right corner: n queries on m keys are the last n rows of top-left attention on m",
                "右下揃え:m 個のキーに対する n 個のクエリは、m 個の左上揃えの最後の n 行",
            ),
            (
                causal(lambda ix: q[i, ix], i + m - n, c),
                causal(lambda ix: full[i + m - n, ix], i + m - n, c),
            ),
            assumptions=(ROW, Ordered(0, n, m), AtLeast(m, 1), place, CHANNEL, shifted),
            source=HERE,
            symbols={"S": "(m, m), scores of all m queries", "x": "(n, m), those of the last n"},
            note=(
                "This is decoding with a cache of m keys; for n = m both corners agree.",
                "m 個のキーをキャッシュしたデコードにあたる。n = m では両者は一致する。",
            ),
        ),
        derivation(
            "masks.causal_no_future",
            ("A causal output does not depend on later values", "因果マスクの出力は後の値によらない"),
            (Diff(row(i, c), V[b, e]), sympy.Integer(0)),
            assumptions=(ROW, place, InRange(b, i + 1, n - 1), CHANNEL, InRange(e, 0, d_v - 1)),
            source=_MASK,
            symbols={"S": "(n, n), scores", "V": "(n, d_v), values"},
        ),
        derivation(
            "masks.causal_value_gradient",
            (
                "Under a causal mask a value gathers from its own row on",
                "因果マスクでは値の勾配は自分の行以降から集まる",
            ),
            (
                Diff(loss, V[b, e]),
                sympy.Sum(exp(S[i, b]) / sympy.Sum(exp(S[i, l]), (l, 0, i)) * dO[i, e], (i, b, n - 1)),
            ),
            assumptions=(ROW, InRange(b, 0, n - 1), InRange(e, 0, d_v - 1)),
            source=HERE,
            symbols={"S": "(n, n), scores", "dZ": "(n, d_v), the incoming gradient"},
        ),
        derivation(
            "masks.window",
            (
                "A window of w + 1 keys = the causal sum without the earlier ones",
                "窓 = 因果和から以前のキーを除いたもの",
            ),
            (
                window,
                sympy.Sum(exp(S[i, j]) * V[j, c], (j, 0, i)) - sympy.Sum(exp(S[i, j]) * V[j, c], (j, 0, i - w - 1)),
            ),
            assumptions=(ROW, InRange(i, w, n - 1), CHANNEL),
            source=HERE,
            symbols={"w": "how many keys before its own a query sees"},
        ),
        derivation(
            "masks.window_full",
            ("A window that reaches the first key is the causal mask", "先頭まで届く窓は因果マスクに等しい"),
            (
                sympy.Sum(exp(S[w, j]) * V[j, c], (j, w - w, w)),
                sympy.Sum(exp(S[w, j]) * V[j, c], (j, 0, w - 1)) + exp(S[w, w]) * V[w, c],
            ),
            assumptions=(Ordered(0, w + 1, n), CHANNEL),
            source=HERE,
            symbols={"w": "the row, and the reach of its window"},
        ),
    ]


def _softcap() -> list[Claim]:
    cap = scalar("cap", positive=True)

    def capped(at: Any) -> Any:
        return cap * tanh(x[at] / cap)

    weight = Defined(alpha, (j,), exp(capped(j)) / total(exp(capped(l)), l, n))
    loss = total(dZ[c] * Z[c], c, d_v)
    output = Defined(Z, (c,), total(alpha[j] * V[j, c], j, n))
    into = total(dZ[c] * V[i, c], c, d_v)
    words = {**SYMBOLS, "cap": "the cap, > 0: a score s becomes cap·tanh(s/cap)"}
    place = InRange(i, 0, n - 1)
    return [
        derivation(
            "masks.softcap_slope",
            ("Slope of a capped score: 1 − tanh²(s/cap)", "softcap の傾き:1 − tanh²(s/cap)"),
            (Diff(capped(i), x[i]), 1 - tanh(x[i] / cap) ** 2),
            assumptions=(place,),
            source=HERE,
            symbols=words,
        ),
        bound(
            "masks.softcap_bound",
            ("A capped score stays below the cap", "softcap 後のスコアは cap 未満"),
            (capped(i), cap),
            cap * (1 - tanh(x[i] / cap)),
            relation="<",
            assumptions=(place,),
            source=HERE,
            symbols=words,
        ),
        bound(
            "masks.softcap_bound_below",
            ("… and above minus the cap", "…かつ −cap より大きい"),
            (-cap, capped(i)),
            cap * (1 + tanh(x[i] / cap)),
            relation="<",
            assumptions=(place,),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "masks.softcap_gradient",
            ("The gradient of a score under a softcap", "softcap のもとでのスコアの勾配"),
            (Diff(loss, x[i]), alpha[i] * (into - loss) * (1 - tanh(x[i] / cap) ** 2)),
            assumptions=(ROW, place, weight, output),
            source=HERE,
            symbols={**words, "dZ": "(d_v,), the incoming gradient"},
        ),
    ]


def _sink() -> list[Claim]:
    sink = array("sink", 1)
    sigma = sink[0]
    longer, values = array("y", n + 1), array("U", n + 1, d_v)
    bottom = exp(sigma) + total(exp(x[l]), l, n)
    weight = Defined(alpha, (j,), exp(x[j]) / bottom)
    output = Defined(Z, (c,), total(alpha[j] * V[j, c], j, n))
    plain = total(exp(x[j]) * V[j, c], j, n) / total(exp(x[l]), l, n)
    zero_last = (1 - KroneckerDelta(j, n)) * values[j, c]
    column = total(exp(longer[j]) * zero_last, j, n + 1) / total(exp(longer[l]), l, n + 1)
    B = scalar("B")
    loss = total(dZ[c] * Z[c], c, d_v)
    words = {**SYMBOLS, "sink": "(1,), the logit of the sink: not scaled, not masked, not capped"}
    return [
        derivation(
            "masks.sink_column",
            ("A sink = one more column of logits, with value zero", "シンク = 値 0 のロジット列を1列加えたもの"),
            (
                column,
                total(exp(longer[j]) * values[j, c], j, n) / (exp(longer[n]) + total(exp(longer[l]), l, n)),
            ),
            assumptions=(CHANNEL,),
            source=HERE,
            symbols={"y": "(n + 1,), the scores and, last, the sink's logit", "U": "(n + 1, d_v), values, the last 0"},
            note=(
                "A key vector that yields the logit need not exist: the column is appended to the scores, not to the"
                " keys, and the logit is neither scaled, masked nor capped.",
                "そのロジットを生むキーベクトルは存在しなくてよい。列はキーではなくスコアに加わり、スケールもマスクも"
                " softcap も受けない。",
            ),
        ),
        bound(
            "masks.sink_sum_below_one",
            ("With a sink the weights of the keys sum to less than 1", "シンクがあるとキーの重みの和は 1 未満"),
            (total(alpha[j], j, n), 1),
            exp(sigma) / bottom,
            relation="<",
            assumptions=(weight,),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "masks.sink_output",
            ("A sink shrinks the output by 1 − its own weight", "シンクは出力を (1 − シンクの重み) 倍にする"),
            (Z[c], (1 - exp(sigma) / bottom) * plain),
            assumptions=(ROW, CHANNEL, weight, output),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "masks.sink_gradient",
            ("The gradient of the sink's logit", "シンクのロジットの勾配"),
            (Diff(loss, sigma), -exp(sigma) / bottom * loss),
            assumptions=(ROW, weight, output),
            source=HERE,
            symbols={**words, "dZ": "(d_v,), the incoming gradient"},
        ),
        limit(
            "masks.sink_limit",
            ("A sink at −∞ is no sink", "ロジット −∞ のシンクは無いのと同じ"),
            (exp(x[i]) / (exp(-B) + total(exp(x[l]), l, n)), B, sympy.oo),
            exp(x[i]) / total(exp(x[l]), l, n),
            assumptions=(ROW, InRange(i, 0, n - 1)),
            source=HERE,
            symbols={**SYMBOLS, "B": "minus the sink's logit"},
        ),
    ]
