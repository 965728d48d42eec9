"""The plain algorithm carried out with rounding bounds: how far `compute` may be from the exact value, entry by entry.

Guarantees: the operations of plain attention, forward and backward, in the order in which a float64 program makes
them, on pairs (value, bound) of `Rounded` arithmetic; sums in any order. What a float64 run of that algorithm gives
lies within each bound.
Does not: use a line of `compute`; and it is slow: small sizes only.

Source: Vaswani et al. 2017, equation (1); gradients as in Dao et al. 2022, appendix B.2.
"""

from __future__ import annotations

from typing import Any

from verify.crosschecking.arithmetic import Rounded

Pair = tuple[Any, Any]
Matrix = list[list[Pair]]


class PlainSteps:
    """Plain attention with the row maximum subtracted before exp.

    q (n, d_k), k (m, d_k), v (m, d_v): matrices of pairs (`exact_matrix` makes them from doubles, `product` from
    other matrices). tau: the scale, a pair. bias: a matrix of pairs or None; keep: booleans (n, m) or None; softcap: a
    double or None; sink: a double or None.
    """

    def __init__(
        self,
        arithmetic: Rounded,
        q: Matrix,
        k: Matrix,
        v: Matrix,
        tau: Pair,
        *,
        bias: Matrix | None = None,
        keep: Any = None,
        softcap: float | None = None,
        sink: float | None = None,
    ) -> None:
        self._a = arithmetic
        self._tau = tau
        self.q, self.k, self.v = q, k, v
        self._keep = keep
        self.raw = product(arithmetic, q, transposed(k))
        self.scores = [[arithmetic.mul([x, tau]) for x in row] for row in self.raw]
        self.slope: Matrix | None = None
        if softcap is not None:
            self._cap(arithmetic.exact(softcap))
        if bias is not None:
            self.scores = [
                [arithmetic.add([x, y]) for x, y in zip(r, b, strict=True)]
                for r, b in zip(self.scores, bias, strict=True)
            ]
        self.weights, self.lse = self._softmax(None if sink is None else arithmetic.exact(sink))
        self.output = product(arithmetic, self.weights, v)

    def _cap(self, cap: Pair) -> None:
        """s → c·tanh(s/c), and its slope 1 − tanh²."""
        a = self._a
        turned = [[a.function("tanh", quotient(a, x, cap)) for x in row] for row in self.scores]
        self.scores = [[a.mul([cap, t]) for t in row] for row in turned]
        self.slope = [[a.add([a.exact(1), negative(a.mul([t, t]))]) for t in row] for row in turned]

    def _softmax(self, sink: Pair | None) -> tuple[Matrix, list[Pair]]:
        a = self._a
        weights, lse = [], []
        for i, row in enumerate(self.scores):
            seen = [self._keep is None or bool(self._keep[i][j]) for j in range(len(row))]
            logits = [x for x, s in zip(row, seen, strict=True) if s] + ([sink] if sink is not None else [])
            # The program subtracts the maximum of its own scores: a number known exactly to it, so only the
            # subtraction rounds; which shift it is does not change the exact weights.
            top = a.exact(max(v for v, _ in logits))
            e = [
                a.function("exp", a.add([x, negative(top)])) if s else a.exact(0)
                for x, s in zip(row, seen, strict=True)
            ]
            own = [a.function("exp", a.add([sink, negative(top)]))] if sink is not None else []
            total = a.add([*(x for x, s in zip(e, seen, strict=True) if s), *own])
            weights.append([quotient(a, x, total) if s else a.exact(0) for x, s in zip(e, seen, strict=True)])
            lse.append(a.add([a.function("log", total), top]))
        return weights, lse

    def backward(self, grad: Matrix, grad_lse: list[Pair] | None = None) -> dict[str, Any]:
        """dv, ds, dq, dk, dscale of Σ grad·output + Σ grad_lse·lse, by dS = P ∘ (dP − Σ_j P dP + dlse)."""
        a, p = self._a, self.weights
        dp = product(a, grad, transposed(self.v))
        ds: Matrix = []
        for i, (weights, row) in enumerate(zip(p, dp, strict=True)):
            inner = a.add([a.mul([x, y]) for x, y in zip(weights, row, strict=True)])
            if grad_lse is not None:
                inner = a.add([inner, negative(grad_lse[i])])
            ds.append([a.mul([x, a.add([y, negative(inner)])]) for x, y in zip(weights, row, strict=True)])
        into = ds
        if self.slope is not None:
            into = [[a.mul([x, y]) for x, y in zip(r, s, strict=True)] for r, s in zip(ds, self.slope, strict=True)]
        pulled = product(a, into, self.k)
        along = [a.mul([x, y]) for r, s in zip(self.q, pulled, strict=True) for x, y in zip(r, s, strict=True)]
        return {
            "dv": product(a, transposed(p), grad),
            "dbias": ds,
            "dq": self._scaled(pulled),
            "dk": self._scaled(product(a, transposed(into), self.q)),
            "dscale": a.add(along),
        }

    def _scaled(self, m: Matrix) -> Matrix:
        return [[self._a.mul([x, self._tau]) for x in row] for row in m]


def exact_matrix(a: Rounded, rows: Any) -> Matrix:
    """Doubles as pairs."""
    return [[a.exact(float(x)) for x in row] for row in rows]


def product(a: Rounded, left: Matrix, right: Matrix) -> Matrix:
    """A matrix product, sums in any order."""
    columns = transposed(right)
    return [[a.add([a.mul([x, y]) for x, y in zip(row, column, strict=True)]) for column in columns] for row in left]


def quotient(a: Rounded, x: Pair, y: Pair) -> Pair:
    found: Pair = a.mul([x, a.power(y, a.exact(-1))])
    return found


def negative(x: Pair) -> Pair:
    return -x[0], x[1]


def transposed(m: Matrix) -> Matrix:
    return [list(column) for column in zip(*m, strict=True)]
