"""Runs a declared low-precision algorithm (compute.roundings: Flash or Eager) on a CPU, rounding by rounding.

Guarantees: each rounding that the declaration names happens where it says, and no other but those of `accumulate`;
masks, bias, softcap, sink and the rest are read by compute.meaning, as in compute.attention.
Does not: reproduce one device's bits (its order of summation and its exp are its own). The backward pass is
compute.emulate_backward.

Sources: Dao et al. 2022, algorithm 1 (Flash); Vaswani et al. 2017, equation (1) (Eager).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compute.arrays import Array
from compute.checks import flag, floating, number
from compute.errors import InputError
from compute.formats import in_order, product, round_to
from compute.meaning import ALL, Part, Problem, resolve
from compute.plain import fill_empty
from compute.roundings import Eager, Flash, limits, usual
from compute.select import clean, finite, leaks
from compute.spec import Spec


def emulated_attention(
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    algorithm: Flash | Eager | None = None,
    *,
    storage: str | None = None,
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0),
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | int | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention as `algorithm` would round it; arrays and other arguments as in compute.attention.

    q, k, v are float32 or float64 arrays. storage: format that they are rounded to first (None: taken as they are).
    algorithm: None is Flash in the format of storage, or of q, k and v (compute.roundings.usual).
    descale: what the stored q, k, v are to be multiplied by (scaled fp8): the first two join the scale, the third the
    output. The results are float64 arrays that hold numbers of the algorithm's output format (lse: of `accumulate`).

    Raises InputError for arguments that don't fit.

    >>> import numpy as np
    >>> from compute.roundings import Flash
    >>> q, k, v = np.zeros((1, 1)), np.zeros((300, 1)), np.ones((300, 1))
    >>> emulated_attention(q, k, v, algorithm=Flash(weights="bf16", accumulate="bf16", output="bf16")).tolist()
    [[1.0]]
    """
    q, k, v, algorithm = declared(q, k, v, algorithm, storage)
    flag("return_lse", return_lse)
    if not isinstance(descale, (tuple, list)) or len(descale) != 3:
        raise InputError(f"descale is {descale!r}: expected three numbers, for q, k and v")
    descale = tuple(number("descale", x, "three numbers, for q, k and v") for x in descale)  # type: ignore[assignment]
    problem = resolve(
        q,
        k,
        v,
        spec,
        mask=mask,
        bias=bias,
        sink=sink,
        alibi_slopes=alibi_slopes,
        dropout_mask=dropout_mask,
        key_lengths=key_lengths,
    )
    xp = problem.xp
    out = xp.empty((*problem.batch, problem.h, problem.n, v.shape[-1]))
    lse = xp.empty((*problem.batch, problem.h, problem.n))
    with np.errstate(all="ignore"):
        for part in problem.heads():
            out[(*part.batch, part.head)], lse[(*part.batch, part.head)] = HeadRun(part, algorithm, descale).run()
    lse = lse / math.log(spec.lse_base)
    return _ranked(problem, out, lse, return_lse)


def declared(
    q: Array, k: Array, v: Array, algorithm: Flash | Eager | None, storage: str | None
) -> tuple[Array, Array, Array, Flash | Eager]:
    """q, k, v in their storage format, and the algorithm that runs. Raises InputError for what is neither."""
    if algorithm is not None and not isinstance(algorithm, (Flash, Eager)):
        raise InputError(f"algorithm is {algorithm!r}: expected Flash(...) or Eager(...)")
    floating(q=q, k=k, v=v)
    if storage is not None:
        q, k, v = (stored(x, storage) for x in (q, k, v))
    if algorithm is None:
        algorithm, _ = usual(*(str(x.dtype) if storage is None else storage for x in (q, k, v)))
    return q, k, v, algorithm


def stored(x: Array, name: str) -> Array:
    """x in a storage format; fp8 saturates, as its conversions do."""
    return round_to(x, name, saturate=limits(name).name.startswith("float8"))


def _ranked(problem: Problem, out: Array, lse: Array, return_lse: bool) -> Any:
    if problem.flat:
        out, lse = out[0], lse[0]
    return (out, lse) if return_lse else out


class HeadRun:
    """One head. Arrays are float64 for a float64 accumulator, else float32; every result passes `keep`."""

    def __init__(self, part: Part, algorithm: Flash | Eager, descale: tuple[float, float, float]) -> None:
        self.part, self.algorithm, self.xp = part, algorithm, part.xp
        self.acc = limits(algorithm.accumulate).name
        self.dtype = np.dtype(np.float64 if self.acc == "float64" else np.float32)
        self.tau = self.number(part.scale * descale[0] * descale[1])
        self.descale = self.number(descale[2])
        self.leaks: Any = 0.0
        self.kept: tuple[Any, ...] = ()  # what the backward pass of Eager reads: P, P after dropout, allowed, slope
        self.sink = -math.inf if part.sink is None else float(part.sink)
        self.root = self.number(math.sqrt(abs(float(self.tau))))
        bare = part.softcap is None and part.bias(ALL, slice(0, 0)) is None and algorithm.scale_on == "scores"
        # exp2 of one multiply-add of the raw score, where nothing stands between the product and the exponent
        self.plain = isinstance(algorithm, Flash) and algorithm.base2 and bare
        if self.plain and float(self.tau) <= 0:
            raise InputError("base2 with a scale of 0 or less: the running maximum is of unscaled scores")

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def number(self, x: float) -> Array:
        return self.keep(self.xp.asarray(x, dtype=self.dtype))

    def keep(self, x: Array) -> Array:
        """A result as the accumulator's format holds it."""
        x = round_to(x, self.acc) if self.acc not in ("float32", "float64") else x
        return self.flushed(x) if self.algorithm.flush else x

    def flushed(self, x: Array) -> Array:
        return self.xp.where(abs(x) < limits(self.acc).normal, self.xp.copysign(self.dtype.type(0), x), x)

    def store(self, x: Array, name: str | None) -> Array:
        return x if name is None or limits(name).name == self.acc else round_to(x, name)

    def exp(self, x: Array, base2: bool = False) -> Array:
        y = self.keep((self.xp.exp2 if base2 else self.xp.exp)(x))
        return self.flushed(y) if self.algorithm.exp_flushes else y

    def dot(self, a: Array, b: Array) -> Array:
        return self.keep(product(a, b, products=self.algorithm.products, accumulate=self.acc))

    # -- scores -----------------------------------------------------------------------------------------------------

    def sides(self, cols: slice) -> tuple[Array, Array]:
        """q and k as they enter their product: scaled where the algorithm says so."""
        part, alg, keep = self.part, self.algorithm, self.keep
        q, k = part.queries().astype(self.dtype), part.keys(cols).astype(self.dtype)
        if alg.scale_on == "query":
            q = self.store(keep(q * self.tau), alg.scale_format)
        elif alg.scale_on == "both":
            q = self.store(keep(q * self.root), alg.scale_format) * self.xp.copysign(self.dtype.type(1), self.tau)
            k = self.store(keep(k * self.root), alg.scale_format)
        return q, k

    def scores(self, cols: slice, scaled: bool = True) -> tuple[Array, Array | None, Array | None]:
        """Logits with −inf where not allowed, allowed, slope of the softcap; unscaled where `scaled` is False."""
        part, alg, keep = self.part, self.algorithm, self.keep
        q, k = self.sides(cols)
        slope = None
        s = self.dot(q, k.T)
        if isinstance(alg, Eager) and alg.score_stores == 2:
            s = self.store(s, alg.scores)
        if alg.scale_on == "scores" and scaled:
            s = keep(s * self.tau)
        if isinstance(alg, Eager):
            s = self.store(s, alg.scores)
        if part.softcap is not None:
            cap = self.number(part.softcap)
            turned = keep(self.xp.tanh(keep(s / cap)))
            s, slope = keep(cap * turned), keep(1 - keep(turned * turned))
        bias = part.bias(ALL, cols)
        if bias is not None:
            s = keep(s + bias.astype(self.dtype))
        allowed = part.allowed(ALL, cols)
        s = s if allowed is None else self.xp.where(allowed, s, self.dtype.type(-math.inf))
        return s, allowed, slope

    def weigh(self, used: Array, cols: slice, allowed: Array | None, drop: Array | None) -> Array:
        """used @ V; entries of V that are not finite are set aside for the rows that see them."""
        xp, v = self.xp, self.part.values(cols).astype(self.dtype)
        if not finite(xp, v):
            seen = xp.ones(used.shape, dtype=bool)
            for test in (allowed, None if drop is None else drop != 0):
                seen = seen if test is None else seen & test
            self.leaks = self.leaks + leaks(xp, v, seen)
            v = clean(xp, v)
        return self.dot(used, v)

    # -- algorithms -------------------------------------------------------------------------------------------------

    def run(self) -> tuple[Array, Array]:
        return self.flash(self.algorithm) if isinstance(self.algorithm, Flash) else self.eager(self.algorithm)

    def flash(self, alg: Flash) -> tuple[Array, Array]:
        xp, part, keep = self.xp, self.part, self.keep
        plain = self.plain
        c = self.number(float(self.tau) * math.log2(math.e)) if plain else self.number(1.0)
        top = xp.full((part.n, 1), self.sink / float(self.tau) if plain else self.sink, dtype=self.dtype)
        norm = xp.where(top == -math.inf, self.dtype.type(0), self.dtype.type(1))
        out = xp.zeros((part.n, part.d_v), dtype=self.dtype)
        for start in range(0, part.m, alg.block):
            cols = slice(start, min(start + alg.block, part.m))
            s, allowed, _ = self.scores(cols, scaled=not plain)
            new = xp.maximum(top, s.max(axis=-1, keepdims=True))
            base = xp.where(new == -math.inf, self.dtype.type(0), new)
            if plain:
                e, alpha = (self.exp(self.multiply_add(x, c, base), base2=True) for x in (s, top))
            else:
                e, alpha = self.exp(keep(s - base)), self.exp(keep(top - base))
            if allowed is not None:
                e = xp.where(allowed, e, self.dtype.type(0))
            norm = keep(keep(norm * alpha) + keep(in_order(e, self.acc)))
            drop = part.dropout(ALL, cols)
            used = self.store(e if drop is None else keep(e * drop.astype(self.dtype)), alg.weights)
            out = keep(keep(out * alpha) + self.weigh(used, cols, allowed, drop))
            top = new
        return self.finish(out, norm, keep(top * self.tau) if plain else top)

    def multiply_add(self, x: Array, c: Array, base: Array) -> Array:
        """x·c − base·c as one multiply-add of the rounded base·c."""
        shift = self.keep(base * c).astype(np.float64)
        return self.keep((x.astype(np.float64) * float(c) - shift).astype(self.dtype))

    def finish(self, out: Array, norm: Array, top: Array) -> tuple[Array, Array]:
        xp, one = self.xp, self.dtype.type(1)
        empty = (norm == 0) & (top == -math.inf)
        safe = xp.where(empty, one, norm)
        out = self.keep(self.keep(out / safe) * self.descale) + self.leaks
        base = xp.where(empty, self.dtype.type(0), top)
        lse = xp.where(empty, self.dtype.type(-math.inf), self.keep(base + self.keep(xp.log(safe))))
        out = self.store(out, self.algorithm.output).astype(np.float64)
        return fill_empty(self.part, out, empty), lse[:, 0]

    def eager(self, alg: Eager) -> tuple[Array, Array]:
        xp, part, keep = self.xp, self.part, self.keep
        each = alg.scores if alg.every_op else None
        s, allowed, slope = self.scores(ALL)
        zero = self.dtype.type(0)
        top = xp.full((part.n, 1), self.sink, dtype=self.dtype)
        if part.m:
            top = xp.maximum(top, s.max(axis=-1, keepdims=True))
        empty = top == -math.inf
        base = xp.where(empty | (not alg.shifted), zero, top)
        x = keep(s - base) if alg.shifted else s
        x = x if each is None else self.store(x, each)
        e = self.exp(x)
        e = e if each is None else self.store(e, each)
        if allowed is not None:
            e = xp.where(allowed, e, zero)
        own = self.exp(keep(self.number(self.sink) - base))
        norm = keep(in_order(e, self.acc) + own)
        norm = xp.where(empty, self.dtype.type(1), norm if each is None else self.store(norm, each))
        whole = keep(e / norm)
        drop = part.dropout()
        p = self.store(whole if drop is None else keep(whole * drop.astype(self.dtype)), alg.weights)
        self.kept = self.store(whole, alg.weights), p, allowed, slope
        out = keep(self.weigh(p, ALL, allowed, drop) * self.descale) + self.leaks
        lse = xp.where(empty, self.dtype.type(-math.inf), keep(base + keep(xp.log(norm))))
        return fill_empty(part, self.store(out, alg.output).astype(np.float64), empty), lse[:, 0]
