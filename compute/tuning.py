"""Inputs whose roundings all push one way: which vectors may move, and how far each rounding errs.

Guarantees: every array holds numbers of the input format; `tune` only makes moves that enlarge the local error it
looks at. Why all rows can be at their worst although they share the keys: a row's error depends on its scores and the
values only, so no row can exceed what a single row can reach, and rows of equal scores all reach it. They need not be
equal rows: a channel that the keys leave at 0 is free (the spare channel). The gradients likewise: dV sums over rows,
each with a weight of its own to tune (its query); dK sums over rows, dS = p(dP − D) tuned by each row of grad_output;
dQ sums over keys, dS tuned by their values, in mirrored pairs (equal keys, opposite values), so that D = 0 and no
move disturbs another.
Does not: say how far a kernel errs (compute.search runs it), or look at masks, windows and biases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compute.formats import round_to
from compute.heads import F64, Scale
from compute.roundings import Algorithm, Eager, limits
from compute.spec import Spec

Target = Literal["output", "dq", "dk", "dv"]
Inputs = tuple[F64, F64, F64, F64]  # q, k, v, grad_output
SPAN = 6  # ulp
ENOUGH = 3  # channels without which no spare one is set aside


@dataclass
class Case:
    """vectors (units, c) may move; raw = vectors @ direction is all that a unit's rounded number depends on.

    sign: the direction that each unit's error shall have. exact(raw) and held(raw, factor): the number, and what the
    declared algorithm makes of it where its own arithmetic has moved it by `factor`. pinned: a unit that stays and
    whose raw number no other may reach. coupled: one unit's number depends on all (a normaliser). arrays(vectors):
    the whole input.
    """

    vectors: F64
    direction: F64
    sign: F64
    exact: Callable[[F64], F64]
    held: Callable[[F64, float], F64]
    arrays: Callable[[F64], Inputs]
    pinned: int | None = None
    coupled: bool = False

    def worth(self, raw: F64, noise: float) -> F64:
        """Signed error of each unit: the smaller of two, as an error that a tie could turn round is worth nothing."""
        exact = self.exact(raw)
        low, high = (self.sign * (self.held(raw, 1 + e) / (1 + e) - exact) for e in (-noise, noise))
        return np.asarray(np.minimum(low, high))


def tune(case: Case, fmt: str, rng: np.random.Generator, noise: float, seconds: float) -> Inputs:
    """Move one or two channels of every unit by a few ulp, again and again, where that enlarges its error."""
    vectors, direction = case.vectors, case.direction
    units, width = vectors.shape
    raw = vectors @ direction
    gain, stop = case.worth(raw, noise), time.perf_counter() + seconds
    while units and time.perf_counter() < stop:
        some = np.unique(rng.integers(0, width, 2 if width > 1 and rng.random() < 0.5 else 1))
        new = moved(vectors[:, some], fmt, rng.integers(-SPAN, SPAN + 1, (units, len(some))))
        tried = raw + (new - vectors[:, some]) @ direction[some]
        if case.coupled:
            gain = case.worth(raw, noise)
        local = case.worth(tried, noise)
        better = local > gain
        if case.pinned is not None:
            better &= tried < raw[case.pinned]
            better[case.pinned] = False
        rows = np.flatnonzero(better)
        vectors[np.ix_(rows, some)], raw[rows], gain[rows] = new[rows], tried[rows], local[rows]
    return case.arrays(vectors)


def moved(x: F64, fmt: str, steps: F64) -> F64:
    """Each number moved by a few ulp of the format, by its own size."""
    ulp = np.ldexp(2 * limits(fmt).unit, np.frexp(x)[1] - 1)
    return np.asarray(round_to(x + steps * ulp, fmt))


def draw(rng: np.random.Generator, fmt: str, *shape: int, size: float = 1.0) -> F64:
    """Normal numbers of the format, of standard deviation `size`, cut at two of them."""
    return np.asarray(round_to(np.clip(rng.standard_normal(shape), -2, 2) * size, fmt))


def cases_of(
    target: Target,
    spec: Spec,
    fmt: str,
    shape: tuple[int, int, int, int],
    guide: Algorithm,
    rng: np.random.Generator,
    size: float,
) -> list[Case]:
    """What may be tuned for one target; shape (n, m, d, d_v), size: spread of the queries.

    For dQ and dK the cast of dS, or the error of the output inside D; one kernel's bound is mostly the second.
    """
    on = _Setting(spec, fmt, shape, guide, rng, size)
    if target == "output":
        return [_weights(on)]
    if target == "dv":
        return [_values(on)]
    return [_queries(on) if target == "dq" else _keys(on), _weights(on, target)]


# -- what the cases share -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Setting:
    spec: Spec
    fmt: str
    shape: tuple[int, int, int, int]
    guide: Algorithm
    rng: np.random.Generator
    size: float

    @property
    def tau(self) -> float:
        return Scale.of(self.spec, self.shape[2]).value

    def draw(self, *shape: int, size: float = 1.0) -> F64:
        return draw(self.rng, self.fmt, *shape, size=size)

    def signs(self, count: int) -> F64:
        """As many +1 as −1, in random order."""
        return np.where(np.arange(count) % 2, 1.0, -1.0)[self.rng.permutation(count)]

    def spread(self, column: F64, width: int) -> F64:
        """The column (r,) in `width` channels, each with a sign of its own."""
        return np.asarray(column[:, None] * self.signs(width)[None, :])

    def capped(self, raw: F64) -> F64:
        cap = self.spec.softcap
        return raw if cap is None else np.asarray(cap * np.tanh(raw / cap))

    def weight(self, x: F64) -> F64:
        return np.asarray(round_to(x, self.guide.weights))

    def stored(self, x: F64) -> F64:
        """What Eager stores between its operations; Flash stores nothing."""
        kept = self.guide.scores if isinstance(self.guide, Eager) else None
        return x if kept is None else np.asarray(round_to(x, kept))

    def difference(self, x: F64) -> F64:
        """dS as it enters its products: cast by Flash, stored by Eager."""
        return self.stored(x) if isinstance(self.guide, Eager) else self.weight(x)


def _used(width: int, others: int) -> int:
    """Channels to tune: all but a spare one, which lets the others differ, where that costs little."""
    return width - 1 if others > 1 and width > ENOUGH else width


def _lowest(x: F64, count: int) -> np.ndarray:
    """Places of the numbers that lie lowest in their binade, where half an ulp is relatively largest."""
    return np.argsort(np.abs(np.frexp(x)[0]), kind="stable")[:count]


def _widened(x: F64, width: int, spare: F64 | None = None) -> F64:
    """x with the missing channels added: zeros, or `spare`."""
    more = np.zeros((len(x), width - x.shape[1])) if spare is None else spare
    return np.hstack([x, more])


# -- the cases ------------------------------------------------------------------------------------------------------


def _weights(on: _Setting, target: Target = "output") -> Case:
    """Keys move: the weight of each is rounded the way its value points; every row has the same scores.

    For a gradient, the error of the stored output goes through D into every dS of a row with one sign: what it meets
    in its product (keys for dQ, queries for dK) is 1 in a channel that the other side leaves at 0.
    """
    n, m, d, d_v = on.shape
    used = _used(d, n) if target == "output" else max(d - 1, 1)
    query = on.draw(1, used, size=on.size)[0]
    pool = on.draw(3 * m, used)
    s = on.capped((pool @ query) * on.tau)
    peak = int(s.argmax())
    rest = _lowest(np.exp(s - s[peak]), len(pool))
    keys = pool[np.append(peak, rest[rest != peak])[:m]]  # first, so that every causal row meets it at once
    top = float(s[peak])
    sign, columns = on.signs(m), on.signs(d_v)
    more = (n, d - used)
    spare = {"output": on.draw(*more), "dk": np.ones(more)}.get(target, np.zeros(more))
    meets = np.full((m, d - used), 1.0 if target == "dq" else 0.0)
    grad = np.tile(columns, (n, 1))

    def exact(raw: F64) -> F64:
        return np.asarray(np.exp(on.capped(raw) - top))

    def flash(raw: F64, factor: float) -> F64:
        return on.weight(exact(raw) * factor)

    def eager(raw: F64, factor: float) -> F64:
        s = on.capped(raw)
        norm = np.exp(s - top).sum()
        return on.weight(np.exp(on.stored(s * factor) / factor - top) * factor / norm) * norm

    def arrays(keys: F64) -> Inputs:
        q = _widened(np.tile(query, (n, 1)), d, spare)
        return q, _widened(keys, d, meets), sign[:, None] * columns, grad

    eagerly = isinstance(on.guide, Eager)
    return Case(keys, query * on.tau, sign, exact, eager if eagerly else flash, arrays, pinned=0, coupled=eagerly)


def _values(on: _Setting) -> Case:
    """dV: queries move; half of the keys are alike, half are 0, so that a row has two weights, one of them tuned."""
    n, m, d, d_v = on.shape
    used = _used(d, m)
    many, others = (m + 1) // 2, m // 2
    key = on.draw(1, used)[0]
    sign = on.signs(n)

    def softmax(s: F64) -> F64:
        return np.asarray(1 / (many + others * np.exp(-s)))

    def exact(raw: F64) -> F64:
        return softmax(on.capped(raw))

    def held(raw: F64, factor: float) -> F64:
        if isinstance(on.guide, Eager):
            return on.weight(softmax(on.stored(on.capped(raw) * factor) / factor) * factor)
        return on.weight(exact(raw) * factor)

    def arrays(queries: F64) -> Inputs:
        alike = np.where((np.arange(m) % 2 == 0)[:, None], key, 0.0)
        return _widened(queries, d), _widened(alike, d, spare), v, on.spread(sign, d_v)

    pool = on.draw(3 * n, used, size=on.size)
    queries = pool[_lowest(exact(pool @ key * on.tau), n)]
    spare, v = on.draw(m, d - used), on.draw(m, d_v)
    return Case(queries, key * on.tau, sign, exact, held, arrays)


def _keys(on: _Setting) -> Case:
    """dK: rows of grad_output move; equal weights, values v and −v in turn, so that the output and D are 0."""
    n, m, d, d_v = on.shape
    used = _used(d_v, m)
    value = on.draw(1, used)[0]
    sign = on.signs(n)
    row, key = on.draw(1, d)[0], on.draw(1, d, size=on.size)[0]
    s = sign * on.tau * float(row @ key)
    slope = 1.0 if on.spec.softcap is None else 1 - (on.capped(s) / on.spec.softcap) ** 2
    weight = float(on.weight(np.array([1 / m]))[0]) if isinstance(on.guide, Eager) else 1 / m
    pool = on.draw(3 * n, used)
    rows = pool[_lowest(pool @ value / m, n)]
    spare = on.draw(m, d_v - used)

    def exact(raw: F64) -> F64:
        return np.asarray(raw * slope / m)

    def held(raw: F64, factor: float) -> F64:
        return on.difference(on.stored(raw * factor) * weight * slope)

    def arrays(rows: F64) -> Inputs:
        v = _widened(_mirrored(np.tile(value, (m // 2, 1)), m), d_v, spare)
        return sign[:, None] * row, np.tile(key, (m, 1)), v, _widened(rows, d_v)

    return Case(rows, value, sign, exact, held, arrays)


def _queries(on: _Setting) -> Case:
    """dQ: values move, in mirrored pairs of equal keys; the last channel of a key is its sign, that of a query 0."""
    n, m, d, d_v = on.shape
    pairs, used = m // 2, _used(d_v, n)
    query = np.append(on.draw(1, d - 1, size=on.size)[0], 0.0)
    sign = on.signs(pairs)
    keys = np.hstack([np.repeat(on.draw(pairs, d - 1), 2, axis=0), _mirrored(sign[:, None], 2 * pairs)])
    keys = np.vstack([keys, on.draw(m - 2 * pairs, d)])
    grad = on.draw(1, used)[0]
    s = on.capped((keys @ query) * on.tau)
    p = _softmax(s)[: 2 * pairs : 2]
    slope = 1.0 if on.spec.softcap is None else (1 - (s / on.spec.softcap) ** 2)[: 2 * pairs : 2]
    weight = on.weight(_softmax(on.stored(s)))[: 2 * pairs : 2] if isinstance(on.guide, Eager) else p
    pool = on.draw(3, pairs, used)
    best = np.abs(np.frexp(pool @ grad * p * slope)[0]).argmin(axis=0)
    values = pool[best, np.arange(pairs)]
    spare = on.draw(n, d_v - used)

    def exact(raw: F64) -> F64:
        return np.asarray(raw * p * slope)

    def held(raw: F64, factor: float) -> F64:
        return on.difference(on.stored(raw * factor) * weight * slope)

    def arrays(values: F64) -> Inputs:
        go = _widened(np.tile(grad, (n, 1)), d_v, spare)
        return np.tile(query, (n, 1)), keys, _widened(_mirrored(values, m), d_v), go

    return Case(values, grad, sign, exact, held, arrays)


def _mirrored(x: F64, count: int) -> F64:
    """Rows x, −x in turn, then zeros where `count` is odd."""
    out = np.zeros((count, x.shape[1]))
    out[0 : 2 * len(x) : 2], out[1 : 2 * len(x) : 2] = x, -x
    return out


def _softmax(s: F64) -> F64:
    w = np.exp(s - s.max(initial=-np.inf))
    return np.asarray(w / w.sum())
