"""What an error should look like: one head in extended precision, and the expected square of a correct run's error.

Guarantees: right values are computed in float64 for formats up to float32, in long double for float64, whose own
errors are nothing beside those that are judged. The variances are those of roundings to nearest, independent of one
another, of a declared algorithm; where the order of a sum is not declared, of the order with the largest: one term
after the other.
Does not: know the order a library really sums in. Sums in float32 or float64 may therefore be far better than this
says (up to the square root of the length), never worse; a 16-bit cast is met within a few percent.

Model: a rounding to nearest with unit roundoff u has a relative error of mean square u²/(8 ln 2) for mantissas spread
log-uniformly. Summing L terms t one after the other, in an order by chance, to S: the partial sums have mean square
(k/L)²S² + (k/L)(1 − k/L)(Σt² − S²/L) (sampling without replacement), so that their squares add up to L(S²/3 + Σt²/6)
but for terms without the factor L; the sum of L positive terms has S² alone, L/3 times.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.reference import UNIT, repeated

KAPPA = 1 / (8 * math.log(2))


def extended(dtype: str) -> Any:
    """The format that right values of `dtype` are computed in, or None where this machine has none good enough."""
    if dtype != "float64":
        return np.float64
    return np.longdouble if UNIT <= 2.0**-62 else None


@dataclass(frozen=True, eq=False)
class Exact:
    """One head: q, k, v, weights p, scores s, output z as float64; wide_z and wide_p as they were computed."""

    q: Array
    k: Array
    v: Array
    p: Array
    s: Array
    z: Array
    scale: float
    wide_p: Array
    wide_z: Array

    @property
    def lean_of_scale(self) -> float:
        """By how much Σ z·dz/d(log scale) / Σ z²: how far a scale that is off by ε makes the output lean, over ε."""
        mean = (self.p * self.s).sum(1, keepdims=True)
        moved = (self.p * self.s) @ self.v - mean * self.z
        return float((moved * self.z).sum() / max(float((self.z**2).sum()), 1e-300))

    def lost(self, unit: float) -> Array:
        """(rows, 1): what a sum of the weights, one after the other, may lose of those below half its last place.

        Such a term leaves the sum as it is: a loss, no rounding to either side.
        """
        return np.where(self.p < unit, self.p, 0).sum(1, keepdims=True)

    def lean_of_loss(self, unit: float) -> float:
        """By how much those losses make the output too large on the whole."""
        squares = self.z**2
        return float((self.lost(unit) * squares).sum() / max(float(squares.sum()), 1e-300))


def solved(call: Call, head: int) -> Exact:
    """Head `head` of item 0."""
    kind = extended(call.dtype.name) or np.float64
    h = call.q.shape[1]
    q = call.q[0, head].astype(kind)
    k, v = (repeated(x, h)[0, head].astype(kind) for x in (call.k, call.v))
    scale = call.spec.scale_value(q.shape[1])
    tau = kind(scale) if call.spec.scale is not None else 1 / np.sqrt(kind(q.shape[1]))
    s = q @ k.T * tau
    e = np.exp(s - s.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    z = p @ v
    q, k, v, narrow_p, s, narrow_z = (np.asarray(x, np.float64) for x in (q, k, v, p, s, z))
    return Exact(q, k, v, narrow_p, s, narrow_z, scale, p, z)


@dataclass(frozen=True)
class Roundings:
    """The mean squares that a declared algorithm's roundings have, relative to what is rounded.

    unit: the unit roundoff of sums. sums: of one addition (0 where something coarser is rounded, beside which sums
    count for nothing); product: of one product's factors; weights, output, scores: of a stored one. function: of exp,
    spread over its declared error.
    """

    unit: float
    sums: float
    product: float
    weights: float
    output: float
    scores: float
    function: float

    @staticmethod
    def of(algorithm: Any) -> Roundings:
        from compute.roundings import limits

        def square(name: str | None) -> float:
            return 0.0 if name is None or limits(name).unit <= wide else KAPPA * limits(name).unit ** 2

        wide = limits(algorithm.accumulate).unit
        narrow = [square(algorithm.weights), square(algorithm.output), square(getattr(algorithm, "scores", None))]
        coarse = max(narrow) > 0
        return Roundings(
            unit=wide,
            sums=0.0 if coarse else KAPPA * wide**2,
            product=product_square(algorithm.products),
            weights=narrow[0],
            output=narrow[1],
            scores=narrow[2],
            function=0.0 if coarse else (algorithm.exp_ulp * wide) ** 2 / 3,
        )

    def chain(self, length: int, end: Array, squares: Array) -> Array:
        """Mean square of the error of Σ a·b, `end`, whose terms' squares add up to `squares`."""
        if not self.sums:
            return self.product * squares
        return self.sums * length * (end**2 / 3 + squares / 6) + (self.sums + self.product) * squares

    def normaliser(self, x: Exact) -> Array | float:
        """(rows, 1): mean square of the relative error of a row's normaliser, and of the few last operations."""
        m = x.k.shape[0]
        return self.sums * (m / 3 + 4) + x.lost(self.unit) ** 2 if self.sums else 0.0


def distinct(algorithms: Iterable[Any]) -> list[Any]:
    """Those of the algorithms whose roundings differ in this model: one of each."""
    kept: dict[Hashable, Any] = {}
    for a in algorithms:
        r = Roundings.of(a)
        stored = (a.score_stores, a.scale_on, a.scale_format) if r.scores else None
        kept.setdefault((r, stored), a)
    return list(kept.values())


def product_square(products: str) -> float:
    """Mean square of the relative error of a product of rounded factors.

    "tf32": both rounded to 11 bits. "bf16x3": of (a1 + a2 + r)(b1 + b2 + r'), a2·b2 and the two remainders are left
    out; each is two roundings to 8 bits, one of the other's error.
    """
    from compute.roundings import limits

    if products == "tf32":
        return 2 * KAPPA * limits("tf32").unit ** 2
    return 3 * (KAPPA * limits("bfloat16").unit ** 2) ** 2 if products == "bf16x3" else 0.0


def weight_square(x: Exact, algorithm: Any, r: Roundings) -> Array | float:
    """Mean square of the relative error of one weight before its cast, from its score and exp."""
    from compute.roundings import Eager, limits

    found: Array | float = 0.0
    if r.sums or r.product:
        shifted = x.s - x.s.max(1, keepdims=True)
        found = r.chain(x.q.shape[1], x.s, x.scale**2 * (x.q**2 @ (x.k**2).T)) + r.function
        found = found + r.sums * (2 * x.s**2 + 2 * shifted**2)
    if isinstance(algorithm, Eager) and r.scores:
        found = found + r.scores * x.s**2 * algorithm.score_stores
        if algorithm.scale_on != "scores" and algorithm.scale_format is not None:
            sides = 2 if algorithm.scale_on == "both" else 1
            stored = KAPPA * limits(algorithm.scale_format).unit ** 2
            found = found + sides * stored * (x.q**2 @ (x.k**2).T) * x.scale**2
    return found


def output_variance(x: Exact, algorithm: Any) -> Array:
    """Expected square of the output's error, per entry."""
    r, m = Roundings.of(algorithm), x.k.shape[0]
    squares = x.p**2 @ x.v**2
    variance = r.weights * squares + r.chain(m, x.z, squares) + (r.output + r.normaliser(x)) * x.z**2
    relative = weight_square(x, algorithm, r)
    if not isinstance(relative, float):
        w = x.p**2 * relative
        variance = variance + w @ x.v**2 - 2 * (w @ x.v) * x.z + w.sum(1, keepdims=True) * x.z**2
    return np.asarray(np.maximum(variance, 1e-300))


def gradient_variances(x: Exact, do: Array, algorithm: Any) -> dict[str, tuple[Array, Array]]:
    """(exact, expected square of the error) of dQ, dK, dV: P and dS cast once, D from the stored output."""
    r = Roundings.of(algorithm)
    wide_do = do.astype(x.wide_p.dtype)
    wide_q, wide_k, wide_v = (y.astype(x.wide_p.dtype) for y in (x.q, x.k, x.v))
    wide_dp = wide_do @ wide_v.T
    wide_ds = x.wide_p * (wide_dp - (wide_do * x.wide_z).sum(1, keepdims=True))
    dq, dk, dv = x.scale * wide_ds @ wide_k, x.scale * wide_ds.T @ wide_q, x.wide_p.T @ wide_do
    ds = np.asarray(wide_ds, np.float64)
    n, m, wide = len(x.q), len(x.k), x.v.shape[1]
    scale = x.scale**2
    e_d = (do**2 * output_variance(x, algorithm)).sum(1, keepdims=True)
    cast, end = r.weights, r.output + 4 * r.sums
    var_ds, relative, common = cast * ds**2, np.zeros_like(ds), r.normaliser(x)
    if r.sums or r.product:
        delta = (do * x.z).sum(1, keepdims=True)
        e_d = e_d + r.chain(wide, delta, ((do * x.z) ** 2).sum(1, keepdims=True))
        relative = np.asarray(weight_square(x, algorithm, r))
        e_dp = r.chain(wide, np.asarray(wide_dp, np.float64), do**2 @ (x.v**2).T)
        var_ds = var_ds + ds**2 * (relative + 3 * r.sums) + x.p**2 * e_dp
    # What a row's normaliser is off by scales the whole row of dS, and of P.
    var_q = scale * (var_ds @ x.k**2 + e_d * (x.p @ x.k) ** 2) + (end + common) * _square(dq)
    var_k = scale * ((var_ds + common * ds**2 + x.p**2 * e_d).T @ x.q**2) + end * _square(dk)
    var_v = (x.p**2 * (cast + relative + common)).T @ do**2 + end * _square(dv)
    if r.sums or r.product:
        var_q = var_q + r.chain(m, np.asarray(dq, np.float64), scale * (ds**2 @ x.k**2))
        var_k = var_k + r.chain(n, np.asarray(dk, np.float64), scale * ((ds**2).T @ x.q**2))
        var_v = var_v + r.chain(n, np.asarray(dv, np.float64), (x.p**2).T @ do**2)
    return {"q": (dq, var_q), "k": (dk, var_k), "v": (dv, var_v)}


def _square(x: Array) -> Array:
    return np.asarray(x, np.float64) ** 2
