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

Matrix = list[list[Any]]


class PlainSteps:
    """Plain attention of q (n, d_k), k (m, d_k), v (m, d_v), given as nested lists of exact doubles.

    tau: the scale as a pair; shifted: whether the row maximum is subtracted before exp.
    """

    def __init__(self, arithmetic: Rounded, q: Any, k: Any, v: Any, tau: Any, *, shifted: bool) -> None:
        self._a = arithmetic
        self._tau = tau
        self.q, self.k, self.v = (self.matrix(x) for x in (q, k, v))
        self.raw = self.product(self.q, transposed(self.k))
        self.scores = self.scaled(self.raw)
        self.weights, self.lse = self._softmax(shifted)
        self.output = self.product(self.weights, self.v)

    def matrix(self, rows: Any) -> Matrix:
        return [[self._a.exact(float(x)) for x in row] for row in rows]

    def product(self, a: Matrix, b: Matrix) -> Matrix:
        add, mul = self._a.add, self._a.mul
        columns = transposed(b)
        return [[add([mul([x, y]) for x, y in zip(row, column, strict=True)]) for column in columns] for row in a]

    def scaled(self, a: Matrix) -> Matrix:
        return [[self._a.mul([x, self._tau]) for x in row] for row in a]

    def _softmax(self, shifted: bool) -> tuple[Matrix, list[Any]]:
        a = self._a
        weights, lse = [], []
        for row in self.scores:
            # The program subtracts the maximum of its own scores: a number known exactly to it, so only the
            # subtraction rounds; which shift it is does not change the exact weights.
            top = a.exact(max(v for v, _ in row)) if shifted else a.exact(0)
            moved = [a.add([x, (-top[0], top[1])]) for x in row] if shifted else row
            e = [a.function("exp", x) for x in moved]
            total = a.add(e)
            weights.append([self.quotient(x, total) for x in e])
            lse.append(a.add([a.function("log", total), top]))
        return weights, lse

    def quotient(self, x: Any, y: Any) -> Any:
        return self._a.mul([x, self._a.power(y, self._a.exact(-1))])

    def backward(self, grad: Any) -> dict[str, Matrix]:
        """dv, dp, ds, dq, dk of Σ grad·output, by dS = P ∘ (dP − Σ_j P dP)."""
        a, p = self._a, self.weights
        g = self.matrix(grad)
        dp = self.product(g, transposed(self.v))
        ds: Matrix = []
        for weights, row in zip(p, dp, strict=True):
            pairs = [a.mul([x, y]) for x, y in zip(weights, row, strict=True)]
            inner = a.add(pairs)
            ds.append([a.mul([x, a.add([y, (-inner[0], inner[1])])]) for x, y in zip(weights, row, strict=True)])
        return {
            "dv": self.product(transposed(p), g),
            "dp": dp,
            "ds": ds,
            "dq": self.scaled(self.product(ds, self.k)),
            "dk": self.scaled(self.product(transposed(ds), self.q)),
        }


def transposed(a: Matrix) -> Matrix:
    return [list(column) for column in zip(*a, strict=True)]
