"""Online softmax: attention row by row from running sums, merged in any order, and its backward from log-sum-exp.

A state of a set of keys is (μ, ℓ, o): a shift μ, ℓ = Σ e^(x_j − μ) and o_c = Σ e^(x_j − μ) V_jc.

Guarantees: in real arithmetic, for every finite shift: the maximum is one choice among all.
Does not: speak of rounding. In IEEE arithmetic the empty state has μ = −∞, ℓ = 0, and merging two of them computes
−∞ − (−∞) = NaN: an implementation must treat the empty state apart (see online.neutral).
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import exp, log

from derive.assumptions import AtLeast, Defined, InRange, Ordered
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import bound, limit
from derive.language import Diff, array, index, scalar, size, total
from derive.source import DAO, HERE, MILAKOV

n, h, d_v = size("n"), size("h"), size("d_v")
i, j, l, c, e, a = (index(s) for s in "ijlcea")
x, V, dZ = array("x", n), array("V", n, d_v), array("dZ", d_v)
alpha, Z = array("alpha", n), array("Z", d_v)
mu, mu_1, mu_2, mu_3, s, t = (scalar(name) for name in ("mu", "mu_1", "mu_2", "mu_3", "s", "t"))
l_1, l_2, l_3 = (scalar(f"l_{k}") for k in "123")

ROW = AtLeast(n, 1)
SPLIT = Ordered(0, h, n)
CHANNEL = InRange(c, 0, d_v - 1)
LSE = log(total(exp(x[l]), l, n))
WEIGHTS = Defined(alpha, (j,), exp(x[j]) / total(exp(x[l]), l, n))
OUTPUT = Defined(Z, (c,), total(alpha[j] * V[j, c], j, n))
SYMBOLS = {
    "x": "(n,), the scores of one row",
    "V": "(n, d_v), values",
    "mu": "any finite shift",
    "h": "where the keys are split, 0 ≤ h ≤ n",
}
_MERGE = DAO.at("section 3.1, the decomposition of softmax over blocks")
_ONLINE = MILAKOV.at("section 3, algorithm 3")


def part(low: Any, high: Any, shift: Any, channel: Any = None) -> Any:
    """ℓ, or o at a channel, of the keys low … high at a shift."""
    value = 1 if channel is None else V[j, channel]
    return sympy.Sum(exp(x[j] - shift) * value, (j, low, high))


def claims() -> list[Claim]:
    return [*_states(), *_algebra(), *_log_sum_exp(), *_outputs(), *_backward(), *_bounded_shift()]


def _states() -> list[Claim]:
    longer = array("x", n + 1)

    def first(count: Any, shift: Any) -> Any:
        return sympy.Sum(exp(longer[j] - shift), (j, 0, count - 1))

    return [
        derivation(
            "online.step",
            ("One more key: rescale the running sum, add one term", "キーを1つ追加:和を再スケールして1項を足す"),
            (first(n + 1, mu_2), exp(mu_1 - mu_2) * first(n, mu_1) + exp(longer[n] - mu_2)),
            source=_ONLINE,
            symbols={**SYMBOLS, "mu_1": "shift before", "mu_2": "shift after"},
        ),
        derivation(
            "online.merge",
            ("Two blocks merge into the state of all keys", "2ブロックの状態は全キーの状態に統合できる"),
            (
                part(0, n - 1, mu),
                exp(mu_1 - mu) * part(0, h - 1, mu_1) + exp(mu_2 - mu) * part(h, n - 1, mu_2),
            ),
            assumptions=(SPLIT,),
            source=_MERGE,
            symbols=SYMBOLS,
        ),
        derivation(
            "online.merge_values",
            ("The accumulated values merge in the same way", "値の累積和も同じように統合できる"),
            (
                part(0, n - 1, mu, c),
                exp(mu_1 - mu) * part(0, h - 1, mu_1, c) + exp(mu_2 - mu) * part(h, n - 1, mu_2, c),
            ),
            assumptions=(SPLIT, CHANNEL),
            source=_MERGE,
            symbols=SYMBOLS,
        ),
    ]


def _algebra() -> list[Claim]:
    def merged(one: tuple[Any, Any], other: tuple[Any, Any], shift: Any) -> Any:
        return exp(one[0] - shift) * one[1] + exp(other[0] - shift) * other[1]

    one, two, three = (mu_1, l_1), (mu_2, l_2), (mu_3, l_3)
    words = {"l_1": "running sum at shift mu_1", "s": "shift between", "t": "shift of the result"}
    empty = sympy.Sum(exp(x[j] - mu_2), (j, h, h - 1))
    B = scalar("B")
    return [
        derivation(
            "online.associative",
            ("Merging is associative, whatever the shifts between", "統合は結合的(途中のシフトによらない)"),
            (merged((s, merged(one, two, s)), three, t), merged(one, (mu, merged(two, three, mu)), t)),
            source=HERE,
            symbols=words,
            note=("In real arithmetic; rounding depends on the order.", "実数演算での性質。丸めは順序による。"),
        ),
        derivation(
            "online.commutative",
            ("Merging is commutative up to a shift", "統合は可換(シフトを除いて)"),
            (exp(s - t) * merged(one, two, s), merged(two, one, t)),
            source=HERE,
            symbols=words,
        ),
        derivation(
            "online.neutral",
            ("The empty state is neutral", "空の状態は単位元"),
            (exp(mu_1 - mu) * part(0, h - 1, mu_1) + exp(mu_2 - mu) * empty, part(0, h - 1, mu)),
            assumptions=(SPLIT,),
            source=HERE,
            symbols=SYMBOLS,
            note=(
                "At any finite shift. IEEE code starts from μ = −∞, where merging two empty states would compute"
                " −∞ − (−∞) = NaN; that case needs a rule of its own.",
                "任意の有限シフトで成り立つ。IEEE では μ = −∞ から始めるため、空どうしの統合は −∞ − (−∞) = NaN に"
                "なり、特別扱いが要る。",
            ),
        ),
        limit(
            "online.neutral_limit",
            ("A shift of −∞ takes a finite state out", "シフト −∞ の状態は寄与しない"),
            (exp(mu_1 - t) * l_1 + exp(-B - t) * l_2, B, sympy.oo),
            exp(mu_1 - t) * l_1,
            source=HERE,
            symbols={**words, "B": "minus the shift of the second state"},
        ),
    ]


def _log_sum_exp() -> list[Claim]:
    first, second = (log(sympy.Sum(exp(x[j]), (j, low, high))) for low, high in ((0, h - 1), (h, n - 1)))
    both = (AtLeast(h, 1), Ordered(0, h + 1, n))
    return [
        derivation(
            "online.lse",
            ("log-sum-exp from a state: μ + log ℓ", "状態からの log-sum-exp:μ + log ℓ"),
            (LSE, mu + log(part(0, n - 1, mu))),
            assumptions=(ROW,),
            source=MILAKOV,
            symbols=SYMBOLS,
        ),
        derivation(
            "online.lse_merge",
            ("Two log-sum-exps merge: L₁ + log(1 + e^(L₂ − L₁))", "log-sum-exp の統合:L₁ + log(1 + e^(L₂ − L₁))"),
            (LSE, first + log(1 + exp(second - first))),
            assumptions=both,
            source=DAO,
            symbols=SYMBOLS,
        ),
        derivation(
            "online.weights_from_lse",
            ("Weights from the saved log-sum-exp: α = e^(x − L)", "保存した log-sum-exp から重みを復元:α = e^(x − L)"),
            (alpha[i], exp(x[i] - LSE)),
            assumptions=(ROW, WEIGHTS, InRange(i, 0, n - 1)),
            source=DAO.at("section 3.1 and appendix B.2"),
            symbols=SYMBOLS,
        ),
    ]


def _outputs() -> list[Claim]:
    def rescaled(channel: Any = None) -> Any:
        return exp(mu_1 - mu) * part(0, h - 1, mu_1, channel) + exp(mu_2 - mu) * part(h, n - 1, mu_2, channel)

    both = (AtLeast(h, 1), Ordered(0, h + 1, n))

    # Named, so that SymPy can't cancel a block's sum before anyone asks whether it is empty.
    L, z, k = array("L", 2), array("z", 2, d_v), index("k")
    low, high = ((0, h - 1), (h, n - 1))

    def by_block(of: Any) -> Any:
        return sympy.Piecewise((of(low), sympy.Eq(k, 0)), (of(high), True))

    def bottom(r: Any) -> Any:
        return sympy.Sum(exp(x[l]), (l, *r))

    blocks = (
        Defined(L, (k,), by_block(lambda r: log(bottom(r)))),
        Defined(z, (k, c), by_block(lambda r: sympy.Sum(exp(x[j]) * V[j, c], (j, *r)) / bottom(r))),
    )
    return [
        derivation(
            "online.output",
            ("The rescaled accumulator divided by the running sum is attention", "累積和 ÷ 正規化和 = アテンション"),
            (rescaled(c) / rescaled(), Z[c]),
            assumptions=(ROW, SPLIT, CHANNEL, WEIGHTS, OUTPUT),
            premises=("online.merge", "online.merge_values"),
            source=_MERGE,
            symbols=SYMBOLS,
        ),
        derivation(
            "online.output_from_blocks",
            (
                "Outputs of two blocks, weighed by e^(L_b − L), add up to attention",
                "2ブロックの出力を e^(L_b − L) で重みづけた和がアテンション",
            ),
            (exp(L[0] - LSE) * z[0, c] + exp(L[1] - LSE) * z[1, c], Z[c]),
            assumptions=(*both, CHANNEL, WEIGHTS, OUTPUT, *blocks),
            source=DAO,
            symbols=SYMBOLS,
        ),
    ]


def _backward() -> list[Claim]:
    loss = total(dZ[c] * Z[c], c, d_v)
    into = total(dZ[c] * V[i, c], c, d_v)
    place = InRange(i, 0, n - 1)
    weights = (ROW, WEIGHTS, OUTPUT)
    symbols = {**SYMBOLS, "dZ": "(d_v,), the incoming gradient", "Z": "(d_v,), the output"}
    return [
        derivation(
            "online.delta",
            ("Σ_j α_j dα_j = Σ_c dZ_c Z_c: one number a row, without the weights", "Σ_j α_j dα_j = Σ_c dZ_c Z_c"),
            (total(alpha[j] * total(dZ[c] * V[j, c], c, d_v), j, n), loss),
            assumptions=weights,
            source=DAO.at("appendix B.2"),
            symbols=symbols,
        ),
        derivation(
            "online.backward",
            (
                "The gradient of a score from the saved log-sum-exp",
                "保存した log-sum-exp からのスコアの勾配",
            ),
            (Diff(loss, x[i]), alpha[i] * (into - loss), exp(x[i] - LSE) * (into - loss)),
            assumptions=(*weights, place),
            premises=("online.weights_from_lse", "online.delta"),
            source=DAO.at("appendix B.2"),
            symbols=symbols,
        ),
        derivation(
            "online.backward_values",
            ("The gradient of a value from the saved log-sum-exp", "保存した log-sum-exp からの値の勾配"),
            (Diff(loss, V[i, e]), exp(x[i] - LSE) * dZ[e]),
            assumptions=(*weights, place, InRange(e, 0, d_v - 1)),
            source=DAO.at("appendix B.2"),
            symbols=symbols,
        ),
    ]


def _bounded_shift() -> list[Claim]:
    above = Ordered(x[l], mu, mu)
    everywhere = InRange(l, 0, n - 1)
    apart = 1 - sympy.KroneckerDelta(j, a)
    words = {**SYMBOLS, "mu": "a shift that no score exceeds, as the product of norms"}
    return [
        derivation(
            "online.any_shift",
            (
                "Any shift gives the same weights: the maximum is not needed",
                "どのシフトでも重みは同じ:最大値でなくてよい",
            ),
            (exp(x[i] - mu) / total(exp(x[l] - mu), l, n), alpha[i]),
            assumptions=(ROW, WEIGHTS, InRange(i, 0, n - 1)),
            premises=("softmax.shift",),
            source=HERE,
            symbols=SYMBOLS,
        ),
        bound(
            "online.shift_above",
            ("With a shift that bounds the scores, the running sum is at most n", "上界シフトでは正規化和は n 以下"),
            (part(0, n - 1, mu), n),
            total(1 - exp(x[l] - mu), l, n),
            assumptions=(above, everywhere),
            source=HERE,
            symbols=words,
        ),
        bound(
            "online.shift_below",
            (
                "… and at least e^(x_a − μ): it underflows only if the shift is far above every score",
                "…かつ e^(x_a − μ) 以上:シフトが全スコアより遠く上にあるときだけアンダーフローする",
            ),
            (exp(x[a] - mu), part(0, n - 1, mu)),
            total(apart * exp(x[j] - mu), j, n),
            assumptions=(InRange(a, 0, n - 1),),
            source=HERE,
            symbols=words,
        ),
    ]
