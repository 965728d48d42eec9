"""Residual layers: what adding the input does to the Jacobian of a layer and of a stack.

Guarantees: for every depth L and every size. The layer is f(x) = A tanh(Bx + b), a network with one hidden layer of any
width, so that ∂f has a closed form; the structure I + J_f is that of every differentiable f.
Does not: treat normalisation layers between, or say that a stack's product is well conditioned.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import Eq, KroneckerDelta, Piecewise, tanh

from derive.assumptions import Defined, InRange
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import claim_by
from derive.language import Diff, array, index, size, total
from derive.source import HERE, Source

HE = Source(
    "he2016",
    "He, Zhang, Ren, Sun",
    "Identity Mappings in Deep Residual Networks",
    2016,
    "ECCV 2016, arXiv:1603.05027",
    "https://arxiv.org/abs/1603.05027",
)

L, d, r = size("L"), size("d"), size("r")
t, i, j, k, l, e = (index(s) for s in "tijkle")
x, u = array("x", d), array("u", d)
X, P = array("X", L + 1, d), array("P", L + 1, d, d)
A, B, bias = array("A", L + 1, d, r), array("B", L + 1, r, d), array("b", L + 1, r)
PLACE = (InRange(i, 0, d - 1), InRange(j, 0, d - 1))
SYMBOLS = {
    "X": "(L + 1, d), the stream after each layer; X_0 = u",
    "A": "(L + 1, d, r), output weights of each layer",
    "B": "(L + 1, r, d), input weights of each layer",
    "b": "(L + 1, r), biases",
    "P": "(L + 1, d, d), the Jacobian of the first t layers",
}


def hidden(at: Any, unit: Any, entry: Any) -> Any:
    """The argument of tanh in one unit of layer `at`, entry(l) its input."""
    return total(B[at, unit, l] * entry(l), l, d) + bias[at, unit]


def layer(at: Any, row: Any, entry: Any) -> Any:
    """f(x) at one row."""
    return total(A[at, row, e] * tanh(hidden(at, e, entry)), e, r)


def layer_jacobian(at: Any, row: Any, column: Any, entry: Any) -> Any:
    """∂f_row/∂x_column."""
    return total(A[at, row, e] * (1 - tanh(hidden(at, e, entry)) ** 2) * B[at, e, column], e, r)


def claims() -> list[Claim]:
    return [*_one(), *_stack()]


def _one() -> list[Claim]:
    def entry(at: Any) -> Any:
        return x[at]

    here = InRange(t, 0, L)
    first, second = array("J", d, d), array("K", d, d)
    return [
        derivation(
            "residual.block",
            ("A residual layer x + f(x) has the Jacobian I + J_f", "残差層 x + f(x) のヤコビ行列は I + J_f"),
            (Diff(x[i] + layer(t, i, entry), x[j]), KroneckerDelta(i, j) + layer_jacobian(t, i, j, entry)),
            assumptions=(*PLACE, here),
            source=HE.at("section 2, equation 5"),
            symbols=SYMBOLS,
        ),
        derivation(
            "residual.gradient",
            ("The gradient passes unchanged, plus what the layer adds", "勾配はそのまま通り、層の分が加わる"),
            (
                Diff(total(u[i] * (x[i] + layer(t, i, entry)), i, d), x[j]),
                u[j] + total(u[i] * layer_jacobian(t, i, j, entry), i, d),
            ),
            assumptions=(PLACE[1], here),
            source=HE.at("section 2, equation 5"),
            symbols={**SYMBOLS, "u": "(d,), the incoming gradient"},
        ),
        derivation(
            "residual.two_layers",
            ("Two layers: (I + K)(I + J) = I + J + K + KJ", "2層:(I + K)(I + J) = I + J + K + KJ"),
            (
                total((KroneckerDelta(i, k) + second[i, k]) * (KroneckerDelta(k, j) + first[k, j]), k, d),
                KroneckerDelta(i, j) + first[i, j] + second[i, j] + total(second[i, k] * first[k, j], k, d),
            ),
            assumptions=PLACE,
            source=HE,
            symbols={"J": "(d, d), Jacobian of the first layer's f", "K": "(d, d), of the second's"},
        ),
    ]


def _stack() -> list[Claim]:
    def before(at: Any) -> Any:
        return lambda column: X[at - 1, column]

    def jacobian(at: Any, row: Any, column: Any) -> Any:
        return KroneckerDelta(row, column) + layer_jacobian(at, row, column, before(at))

    stream = Defined(X, (t, i), Piecewise((u[i], Eq(t, 0)), (X[t - 1, i] + layer(t, i, before(t)), True)))
    product = Defined(
        P,
        (t, i, j),
        Piecewise((KroneckerDelta(i, j), Eq(t, 0)), (total(jacobian(t, i, k) * P[t - 1, k, j], k, d), True)),
    )
    J = array("J", L + 1, d, d)
    given = Defined(
        P,
        (t, i, j),
        Piecewise(
            (KroneckerDelta(i, j), Eq(t, 0)),
            (total((KroneckerDelta(i, k) + J[t, i, k]) * P[t - 1, k, j], k, d), True),
        ),
    )

    def increment(at: Any) -> Any:
        return total(J[at, i, k] * P[at - 1, k, j], k, d)

    return [
        claim_by(
            "iterated-chain-rule",
            "residual.stack",
            (
                "A stack of L residual layers has the Jacobian (I + J_L) … (I + J_1)",
                "L 層の残差スタックのヤコビ行列は (I + J_L) … (I + J_1)",
            ),
            (Diff(X[L, i], u[j]), P[L, i, j]),
            relation="=",
            assumptions=(*PLACE, stream, product),
            data={"state": X, "product": P, "jacobian": jacobian, "count": d, "column": k},
            source=HE.at("section 2"),
            symbols=SYMBOLS,
        ),
        claim_by(
            "iterated-sum",
            "residual.stack_expanded",
            (
                "The expanded product: I + Σ_t J_t P_(t−1), the identity path stays",
                "積の展開:I + Σ_t J_t P_(t−1)(恒等経路が残る)",
            ),
            (P[L, i, j], KroneckerDelta(i, j) + sympy.Sum(increment(t), (t, 1, L))),
            relation="=",
            assumptions=(*PLACE, given),
            data={"sequence": P, "increment": increment},
            source=HE.at("section 2"),
            symbols={"J": "(L + 1, d, d), the Jacobians of the layers' f", "P": SYMBOLS["P"]},
            note=(
                "Applied again to P_(t−1) it gives the sum over all subsets of layers of the products of their J.",
                "P_(t−1) に繰り返し用いると、層の部分集合すべてにわたる J の積の和になる。",
            ),
        ),
        derivation(
            "residual.plain_block",
            ("Without the residual the identity is missing", "残差がなければ恒等項は現れない"),
            (
                Diff(layer(t, i, lambda at: x[at]), x[j]),
                layer_jacobian(t, i, j, lambda at: x[at]),
            ),
            assumptions=(*PLACE, InRange(t, 0, L)),
            source=HERE,
            symbols=SYMBOLS,
        ),
    ]
