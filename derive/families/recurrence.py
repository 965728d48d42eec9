"""How far a gradient travels: one step of attention at any distance, L factors in a recurrent network.

Guarantees: for every length L and every size; a recurrent state is a recursion h_t = F(h_(t−1), t) from h_0 = u, and
its Jacobian across L steps is the product P_L of L one-step Jacobians, P_0 = I.
Does not: say how large the factors of a trained network are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy import Eq, KroneckerDelta, Piecewise, exp, sqrt, tanh

from derive.assumptions import AtLeast, Defined, InRange
from derive.catalogue import Claim
from derive.families._attention import derivation
from derive.families._bounds import chained, claim_by
from derive.language import Diff, array, index, size, total
from derive.source import HERE, VASWANI, Source

BENGIO = Source(
    "bengio1994",
    "Bengio, Simard, Frasconi",
    "Learning Long-Term Dependencies with Gradient Descent is Difficult",
    1994,
    "IEEE Transactions on Neural Networks 5(2)",
)
HOCHREITER = Source(
    "hochreiter1997",
    "Hochreiter, Schmidhuber",
    "Long Short-Term Memory",
    1997,
    "Neural Computation 9(8)",
)

L, d, n, d_k, d_v, d_model = (size(s) for s in ("L", "d", "n", "d_k", "d_v", "d_model"))
t, i, j, k, l, e, c, p, a = (index(s) for s in "tijklecpa")
W, b, u, v = array("W", d, d), array("b", L + 1, d), array("u", d), array("v", d)
h, P, w = array("h", L + 1, d), array("P", L + 1, d, d), array("w", L + 1, d)
HERE_OR_THERE = (InRange(i, 0, d - 1), InRange(j, 0, d - 1))
SYMBOLS = {
    "h": "(L + 1, d), states; h_0 = u",
    "W": "(d, d), the recurrent matrix",
    "b": "(L + 1, d), what the inputs add at each step",
    "P": "(L + 1, d, d), the product of the first t Jacobians",
    "L": "number of steps",
}


def recursion(sequence: Any, indices: tuple[Any, ...], first: Any, step: Any) -> Defined:
    """sequence[t, …] = first at t = 0, else step, which reads the sequence at t − 1."""
    return Defined(sequence, (t, *indices), Piecewise((first, Eq(t, 0)), (step, True)))


def product_of(jacobian: Callable[[Any, Any, Any], Any]) -> Defined:
    """P_t = J_t P_(t−1), P_0 = I."""
    return recursion(P, (i, j), KroneckerDelta(i, j), total(jacobian(t, i, k) * P[t - 1, k, j], k, d))


def claims() -> list[Claim]:
    return [*_attention(), *_linear(), *_tanh(), *_cell()]


def _attention() -> list[Claim]:
    S, V, alpha = array("S", n, n), array("V", n, d_v), array("alpha", n, n)
    weights = Defined(alpha, (i, j), exp(S[i, j]) / total(exp(S[i, l]), l, n))
    X, W_Q, W_K = array("X", n, d_model), array("W_Q", d_model, d_k), array("W_K", d_model, d_k)
    W_V = array("W_V", d_model, d_v)
    Q, K, value, Z = array("Q", n, d_k), array("K", n, d_k), array("V", n, d_v), array("Z", n, d_v)
    q = index("q")
    full = (
        Defined(Q, (i, c), total(X[i, q] * W_Q[q, c], q, d_model)),
        Defined(K, (i, c), total(X[i, q] * W_K[q, c], q, d_model)),
        Defined(value, (i, c), total(X[i, q] * W_V[q, c], q, d_model)),
        Defined(S, (i, j), total(Q[i, c] * K[j, c], c, d_k) / sqrt(d_k)),
        weights,
        Defined(Z, (i, c), total(alpha[i, j] * value[j, c], j, n)),
    )
    from_key = total(Q[i, a] * W_K[p, a], a, d_k) / sqrt(d_k)
    to_query = total(total(alpha[i, l] * (value[l, c] - Z[i, c]) * K[l, a], l, n) * W_Q[p, a], a, d_k) / sqrt(d_k)
    one_step = (
        alpha[i, j] * W_V[p, c] + alpha[i, j] * (value[j, c] - Z[i, c]) * from_key + KroneckerDelta(i, j) * to_query
    )
    place = (InRange(i, 0, n - 1), InRange(j, 0, n - 1), InRange(c, 0, d_v - 1))
    return [
        derivation(
            "recurrence.attention_value_path",
            (
                "∂z_i/∂v_j is the weight α_ij, at any distance |i − j|",
                "∂z_i/∂v_j は重み α_ij そのもの(距離 |i − j| によらない)",
            ),
            (Diff(total(alpha[i, l] * V[l, c], l, n), V[j, e]), alpha[i, j] * KroneckerDelta(c, e)),
            assumptions=(AtLeast(n, 1), *place, InRange(e, 0, d_v - 1), weights),
            source=VASWANI.at("section 4, maximum path length"),
            symbols={"S": "(n, n), scores", "V": "(n, d_v), values", "alpha": "softmax of the rows of S"},
        ),
        derivation(
            "recurrence.attention_one_step",
            (
                "∂z_i/∂x_j in one step at any distance: no product over the positions between",
                "∂z_i/∂x_j は任意の距離で1段:間の位置についての積は現れない",
            ),
            (Diff(Z[i, c], X[j, p]), one_step),
            assumptions=(AtLeast(n, 1), AtLeast(d_k, 1), *place, InRange(p, 0, d_model - 1), *full),
            source=VASWANI.at("section 4, maximum path length"),
            symbols={
                "X": "(n, d_model), tokens",
                "W_Q": "(d_model, d_k)",
                "W_K": "(d_model, d_k)",
                "W_V": "(d_model, d_v)",
                "Z": "(n, d_v), the output of self-attention without window or mask",
            },
        ),
    ]


def _product(
    claim_id: str, title: tuple[str, str], state: Defined, jacobian: Callable[[Any, Any, Any], Any], **rest: Any
) -> Claim:
    """Diff(h[L, i], u[j]) = P[L, i, j]."""
    product = product_of(jacobian)
    return claim_by(
        "iterated-chain-rule",
        claim_id,
        title,
        (Diff(state.array[L, i], u[j]), P[L, i, j]),
        relation="=",
        assumptions=(*HERE_OR_THERE, state, product),
        data={"state": state.array, "product": P, "jacobian": jacobian, "count": d, "column": k},
        **rest,
    )


def _norm(claim_id: str, title: tuple[str, str], step: Any, certificate: Callable[[Any], Any], **rest: Any) -> Claim:
    """|w_L|² ≤ |v|² Π ‖W‖_F²."""
    sequence = recursion(w, (i,), v[i], step)
    square = sympy.Sum(W[i, k] ** 2, (k, 0, d - 1), (i, 0, d - 1))
    return claim_by(
        "iterated-bound",
        claim_id,
        title,
        (total(w[L, i] ** 2, i, d), total(v[i] ** 2, i, d) * sympy.Product(square, (t, 1, L))),
        relation="<=",
        assumptions=(sequence,),
        data={"sequence": w, "factor": lambda at: square, "count": d, "certificate": certificate},
        **rest,
    )


def lagrange(vector: Any) -> Any:
    """Σ_i (|W_i|²|v|² − (W_i·v)²) as squares: what makes it the inequality of Cauchy and Schwarz."""
    crossed = (W[i, k] * vector[l] - W[i, l] * vector[k]) ** 2
    return sympy.Rational(1, 2) * total(total(total(crossed, l, d), k, d), i, d)


def _linear() -> list[Claim]:
    state = recursion(h, (i,), u[i], total(W[i, k] * h[t - 1, k], k, d) + b[t, i])
    words = {**SYMBOLS, "w": "(L + 1, d), P_t v", "v": "(d,), any vector"}
    return [
        _product(
            "recurrence.linear_product",
            (
                "A linear RNN's Jacobian over L steps is W^L: a product of L factors",
                "線形 RNN の L 段のヤコビ行列は W^L",
            ),
            state,
            lambda at, row, column: W[row, column],
            source=BENGIO,
            symbols=SYMBOLS,
        ),
        _norm(
            "recurrence.linear_norm",
            ("… and its norm at most ‖W‖_F^L", "…そのノルムは ‖W‖_F^L 以下"),
            total(W[i, k] * w[t - 1, k], k, d),
            lagrange,
            source=BENGIO,
            symbols=words,
        ),
    ]


def _tanh() -> list[Claim]:
    into = total(W[i, k] * h[t - 1, k], k, d) + b[t, i]
    state = recursion(h, (i,), u[i], tanh(into))
    given = array("a", L + 1, d)
    slope = 1 - tanh(given[t, i]) ** 2
    step = slope * total(W[i, k] * w[t - 1, k], k, d)

    def jacobian(at: Any, row: Any, column: Any) -> Any:
        before = total(W[row, l] * h[at - 1, l], l, d) + b[at, row]
        return (1 - tanh(before) ** 2) * W[row, column]

    def certificate(vector: Any) -> Any:
        """Cauchy and Schwarz, and 1 − (1 − s²)² = s² + s²(1 − s²) for s = tanh."""
        square = tanh(given[t, i]) ** 2
        lost = (square + square * (1 - square)) * total(W[i, k] * vector[k], k, d) ** 2
        return lagrange(vector) + total(lost, i, d)

    words = {**SYMBOLS, "a": "(L + 1, d), the arguments of tanh", "w": "(L + 1, d), P_t v", "v": "(d,), any vector"}
    return [
        _product(
            "recurrence.tanh_product",
            (
                "A tanh RNN's Jacobian over L steps is a product of L factors diag(1 − h²)W",
                "tanh RNN の L 段のヤコビ行列は diag(1 − h²)W の L 個の積",
            ),
            state,
            jacobian,
            source=BENGIO,
            symbols=SYMBOLS,
        ),
        _norm(
            "recurrence.tanh_norm",
            ("… and its norm at most ‖W‖_F^L, as 1 − tanh² ≤ 1", "…そのノルムは ‖W‖_F^L 以下(1 − tanh² ≤ 1)"),
            step,
            certificate,
            source=BENGIO,
            symbols=words,
        ),
    ]


def _cell() -> list[Claim]:
    forget, write = array("f", L + 1, d), array("g", L + 1, d)
    cell = array("c", L + 1, d)
    state = recursion(cell, (i,), u[i], forget[t, i] * cell[t - 1, i] + write[t, i])

    def jacobian(at: Any, row: Any, column: Any) -> Any:
        return KroneckerDelta(row, column) * forget[at, row]

    product = product_of(jacobian)
    closed = KroneckerDelta(i, j) * sympy.Product(forget[t, i], (t, 1, L))
    U, o, old = array("U", d, d), array("o", d), array("c", d)
    argument = total(U[i, l] * o[l] * tanh(old[l]), l, d)
    gate = (1 + tanh(argument)) / 2
    total_derivative = KroneckerDelta(i, j) * gate + old[i] * (1 - tanh(argument) ** 2) / 2 * U[i, j] * o[j] * (
        1 - tanh(old[j]) ** 2
    )
    words = {
        "c": "(L + 1, d), cell states; c_0 = u",
        "f": "(L + 1, d), forget gates, held fixed",
        "g": "(L + 1, d), what is written, held fixed",
    }
    return [
        chained(
            "recurrence.lstm_cell_path",
            (
                "An LSTM's cell path with gates held fixed is the product of its forget gates",
                "ゲートを固定した LSTM のセル経路は忘却ゲートの積",
            ),
            (
                Diff(cell[L, i], u[j]),
                (
                    "iterated-chain-rule",
                    {"state": cell, "product": P, "jacobian": jacobian, "count": d, "column": k},
                ),
                P[L, i, j],
                ("iterated-factors", {"sequence": P, "factor": lambda at: forget[at, i]}),
                closed,
            ),
            assumptions=(*HERE_OR_THERE, state, product),
            source=HOCHREITER,
            symbols=words,
        ),
        derivation(
            "recurrence.lstm_total",
            (
                "What the total derivative adds to the cell path: the gate's own dependence on the cell",
                "全微分がセル経路に加えるもの:ゲート自身のセル依存",
            ),
            (Diff(gate * old[i], old[j]), total_derivative),
            assumptions=HERE_OR_THERE,
            source=HERE,
            symbols={
                "c": "(d,), the cell before",
                "U": "(d, d), recurrent weights of the forget gate f = (1 + tanh(U(o∘tanh c)))/2, σ as tanh",
                "o": "(d,), the output gate, held fixed",
            },
            note=(
                "The first term is the product's factor; the second passes through h = o∘tanh(c) and the gate.",
                "第1項が積の因子。第2項は h = o∘tanh(c) とゲートを通る経路。",
            ),
        ),
    ]
