"""Counts of operations and of sequential steps per layer, as polynomials in n, d and k.

Guarantees: exact numbers of scalar multiplications of the formulas as written (one for each term of each sum), of
sequential steps, and of positions that a stack reaches; the table of "Attention Is All You Need" keeps their leading
terms.
Does not: count memory traffic or what a kernel fuses, nor say which layer is faster on a machine.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import Integer

from derive.assumptions import AtLeast, InRange, Ordered
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import bound, claim_by
from derive.language import index, size, total
from derive.source import HERE, VASWANI

n, d, r, L, d_k, d_v, h = (size(s) for s in ("n", "d", "r", "L", "d_k", "d_v", "h"))
k = size("k")
i, j, c, e, t, l, g = (index(s) for s in "ijcetlg")
ONE = Integer(1)
_TABLE = VASWANI.at("section 4, table 1")
SYMBOLS = {
    "n": "length of the sequence",
    "d": "dimension of the representation",
    "k": "width of the kernel",
    "r": "size of the neighbourhood of restricted attention",
    "L": "number of layers",
}


def count(*loops: tuple[Any, Any]) -> Any:
    """How often the body of nested loops runs: one for each value of each binder."""
    body: Any = ONE
    for binder, size_ in reversed(loops):
        body = total(body, binder, size_)
    return body


def claims() -> list[Claim]:
    return [*_operations(), *_steps(), *_reach(), *_comparison()]


def _counted(claim_id: str, title: tuple[str, str], loops: Any, value: Any, **rest: Any) -> Claim:
    return derivation(claim_id, title, (loops, value), symbols=SYMBOLS, **rest)


def _operations() -> list[Claim]:
    return [
        _counted(
            "counts.self_attention",
            (
                "Self-attention: n²d multiplications for the scores, n²d for the output",
                "自己アテンション:スコアに n²d 回、出力に n²d 回の乗算",
            ),
            count((i, n), (j, n), (c, d)) + count((i, n), (e, d), (j, n)),
            2 * n**2 * d,
            source=_TABLE,
        ),
        _counted(
            "counts.recurrent",
            ("Recurrent layer: nd² multiplications for the state", "再帰層:状態に nd² 回の乗算"),
            count((t, n), (i, d), (j, d)),
            n * d**2,
            source=_TABLE,
        ),
        _counted(
            "counts.convolutional",
            ("Convolutional layer: k·n·d² multiplications", "畳み込み層:k·n·d² 回の乗算"),
            count((t, n), (l, k), (i, d), (j, d)),
            k * n * d**2,
            source=_TABLE,
            note=("With padding, so that every position reads k.", "パディングありで各位置が k 個を読む場合。"),
        ),
        _counted(
            "counts.separable",
            ("Separable convolution: k·n·d + n·d² multiplications", "分離可能畳み込み:k·n·d + n·d² 回の乗算"),
            count((t, n), (l, k), (i, d)) + count((t, n), (i, d), (j, d)),
            k * n * d + n * d**2,
            source=VASWANI.at("section 4"),
        ),
        _counted(
            "counts.restricted",
            ("Restricted self-attention: 2·r·n·d multiplications", "局所自己アテンション:2·r·n·d 回の乗算"),
            count((i, n), (j, r), (c, d)) + count((i, n), (e, d), (j, r)),
            2 * r * n * d,
            source=_TABLE,
        ),
        _counted(
            "counts.causal",
            (
                "Causal self-attention: n(n + 1)d multiplications, about half",
                "因果的自己アテンション:n(n + 1)d 回の乗算",
            ),
            2 * sympy.Sum(ONE, (c, 0, d - 1), (j, 0, i), (i, 0, n - 1)),
            n * (n + 1) * d,
            source=HERE,
        ),
        _counted(
            "counts.projections",
            (
                "Projections of all heads: n·d·h(2d_k + d_v) multiplications",
                "全ヘッドの射影:n·d·h(2d_k + d_v) 回の乗算",
            ),
            2 * count((g, h), (i, n), (c, d_k), (e, d)) + count((g, h), (i, n), (c, d_v), (e, d)),
            n * d * h * (2 * d_k + d_v),
            source=VASWANI.at("section 3.2.2"),
        ),
        _counted(
            "counts.heads",
            (
                "h heads of size d/h cost what one head of size d costs",
                "大きさ d/h の h ヘッドの計算量は大きさ d の1ヘッドと同じ",
            ),
            2 * count((g, h), (i, n), (j, n), (c, d_k)),
            2 * n**2 * (h * d_k),
            source=VASWANI.at("section 3.2.2"),
            note=("With h·d_k = d this is 2n²d.", "h·d_k = d なら 2n²d。"),
        ),
    ]


def _steps() -> list[Claim]:
    return [
        _counted(
            "counts.recurrent_steps",
            ("A recurrent layer takes n sequential steps", "再帰層は n 段の逐次計算を要する"),
            count((t, n)),
            n,
            source=_TABLE,
            note=(
                "h_t needs h_(t−1). Self-attention and convolution need none of the other positions' outputs: their"
                " number of sequential steps is 1 whatever n.",
                "h_t は h_(t−1) を必要とする。自己アテンションと畳み込みは他の位置の出力が要らず、"
                "段数は n によらず 1。",
            ),
        ),
        _counted(
            "counts.recurrent_path",
            (
                "Between positions j ≤ i a recurrent layer puts i − j steps; attention puts one",
                "位置 j ≤ i の間に再帰層は i − j 段を置く(アテンションは1段)",
            ),
            sympy.Sum(ONE, (t, j + 1, i)),
            i - j,
            assumptions=_between(),
            source=_TABLE,
        ),
    ]


def _between() -> tuple[Any, ...]:
    return (AtLeast(n, 1), InRange(j, 0, n - 1), InRange(i, j, n - 1))


def _reach() -> list[Claim]:
    dilated = sympy.Sum((k - 1) * k**l, (l, 0, L - 1))
    return [
        _counted(
            "counts.contiguous_reach",
            (
                "A stack of L convolutions of width k reaches 1 + L(k − 1) positions",
                "幅 k の畳み込み L 層は 1 + L(k − 1) 個の位置に届く",
            ),
            1 + total(k - 1, l, L),
            1 + L * (k - 1),
            assumptions=(AtLeast(k, 1),),
            source=_TABLE,
            note=(
                "To reach n positions it needs (n − 1)/(k − 1) layers, rounded up: O(n/k).",
                "n 個の位置に届くには ⌈(n − 1)/(k − 1)⌉ 層、すなわち O(n/k) 層が必要。",
            ),
        ),
        claim_by(
            "telescoping",
            "counts.dilated_reach",
            (
                "With dilations 1, k, k², … L layers reach k^L positions",
                "拡張率 1, k, k², … の L 層は k^L 個の位置に届く",
            ),
            (dilated, k**L - 1),
            relation="=",
            assumptions=(AtLeast(k, 1),),
            data={"primitive": k**l},
            source=_TABLE,
            symbols=SYMBOLS,
            note=(
                "1 plus this sum is k^L: n positions are reached from L = log_k n on, rounded up.",
                "これに 1 を加えると k^L。n 個の位置に届くには ⌈log_k n⌉ 層あればよい。",
            ),
        ),
    ]


def _comparison() -> list[Claim]:
    return [
        _counted(
            "counts.against_recurrent",
            (
                "Scores of self-attention are cheaper than a recurrent layer exactly when n < d",
                "自己アテンションのスコアが再帰層より軽いのは n < d のとき、そのときに限る",
            ),
            count((t, n), (i, d), (j, d)) - count((i, n), (j, n), (c, d)),
            n * d * (d - n),
            source=VASWANI.at("section 4"),
        ),
        bound(
            "counts.restricted_saves",
            ("Restricted attention never costs more than full attention", "局所アテンションは全体より重くならない"),
            (2 * r * n * d, 2 * n**2 * d),
            2 * n * d * (n - r),
            assumptions=(Ordered(0, r, n),),
            source=_TABLE,
            symbols=SYMBOLS,
        ),
    ]
