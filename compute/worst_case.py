"""Worst-case error of a declared algorithm, per element of the output: the theorem of compute/bounds.md in code.

Guarantees: for every order of summation and every exp within its declared error, |computed − exact| is at most the
sum of the sources returned here; the letters (S1), (X1), ... are those of compute/bounds.md. All quantities are
evaluated in float64 with their own rounding added (E1, E2).
Does not: say anything where a stored value may overflow: there the flag `overflow` is set instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from compute.heads import F64, Head
from compute.roundings import Algorithm, Eager, Flash, Limits, dot_error, limits, product_unit, split_tiny

U = 2.0**-53
ROWS = 128


@dataclass
class Sources:
    """Parts of the bound, each (n, d_v): what rounding they come from."""

    scores: F64
    exp: F64
    cast: F64
    sums: F64
    output: F64
    underflow: F64

    @property
    def total(self) -> F64:
        """Their sum, rounded up."""
        parts = [getattr(self, f.name) for f in fields(self)]
        return np.asarray(sum(parts)) * (1 + 16 * U)


@dataclass(frozen=True)
class Units:
    """The algorithm's numbers: unit roundoffs, absolute errors of underflow, path lengths."""

    acc: Limits
    store: Limits | None
    out: Limits
    u: float
    tiny: float
    u_exp: float
    tiny_exp: float
    u_cast: float
    tiny_cast: float
    n_value: float
    n_norm: float
    blocks: int
    products: float
    split: float

    @staticmethod
    def of(alg: Algorithm, m: int) -> Units:
        """Read them off the declared algorithm for m keys."""
        acc, out, weights = limits(alg.accumulate), limits(alg.output), limits(alg.weights)
        cast = weights.name != acc.name
        if isinstance(alg, Flash):
            blocks = -(-m // min(alg.block, max(m, 1)))
            length = (min(alg.block, m) if alg.sums == "blocks" else m) + 2 * blocks
        else:
            blocks, length = 1, m + 2
        return Units(
            acc=acc,
            store=limits(alg.scores) if isinstance(alg, Eager) and alg.scores is not None else None,
            out=out,
            u=acc.unit,
            tiny=acc.normal if alg.flush else acc.tiny,
            u_exp=2 * alg.exp_ulp * acc.unit,
            tiny_exp=acc.normal if alg.exp_flushes or alg.flush else 2 * acc.tiny,
            u_cast=weights.unit if cast else 0.0,
            tiny_cast=weights.tiny if cast else 0.0,
            n_value=length,
            n_norm=length,
            blocks=blocks,
            products=product_unit(alg.products),
            split=split_tiny(alg.products),
        )


def growth(u: float, k: float) -> float:
    """(1 + u)^k − 1, rounded up: k roundings on one path (P1)."""
    return math.expm1(k * math.log1p(u)) * (1 + 8 * U)


@dataclass
class Scores:
    """Exact scores in float64 (error at most `own`), what the algorithm may add, and where it can overflow."""

    s: F64
    own: F64
    error: F64
    overflow: NDArray[np.bool_]


def score_errors(head: Head, alg: Algorithm, units: Units, rows: slice) -> Scores:
    """Scores of some rows and a bound on the error of the computed ones, entry by entry: (S1) … (S6)."""
    d, tau = head.q.shape[1], abs(head.scale.value)
    q, k = head.q[rows], head.k
    raw = q @ k.T
    size = (np.abs(q) @ np.abs(k).T) * (1 + (d + 4) * U) + d * 2.0**-1074
    u, tiny = units.u, units.tiny
    scaled, magnitude = raw * head.scale.value, size * tau
    own = magnitude * ((d + 3) * U + head.scale.error)
    # (S1) the sum over channels; (S2) the scale, wherever it is applied
    exact_scale = d == 0 or (head.scale.error == 0 and math.frexp(tau)[0] in (0.5, 0.0))
    u_tau = 0.0 if exact_scale else u + head.scale.error
    dot = dot_error(u, d, alg.products)
    reach = np.abs(q).sum(axis=1)[:, None] + np.abs(k).sum(axis=1)
    below = d * tiny * (1 + tau) + max(tau, 1.0 if alg.scale_on != "scores" else 0.0) * 2 * units.split * reach
    side_format = limits(alg.scale_format) if alg.scale_format is not None else units.acc
    u_side, side_tiny = max(u, side_format.unit), max(tiny, side_format.tiny)
    overflow = size * max(1.0, tau) * (1 + dot) > units.acc.largest
    if alg.scale_on == "scores":
        error = magnitude * dot
        if units.store is not None and isinstance(alg, Eager) and alg.score_stores == 2:
            overflow |= np.abs(raw) + size * dot > units.store.largest
            error = error + units.store.unit * (np.abs(scaled) + error) + tau * units.store.tiny
        step = (1 + u) * (1 + u_tau) - 1
        error = error + step * (np.abs(scaled) + error) + tiny
    else:
        sides = 1 if alg.scale_on == "query" else 2
        side = ((1 + u_side) * (1 + u_tau + u_side * (sides - 1))) ** sides
        error = magnitude * ((1 + dot) * side - 1)
        root = 1.0 if sides == 1 else math.sqrt(tau)
        below = below + 2 * side_tiny * root * np.abs(k).sum(axis=1)
        if sides == 2:
            below = below + 2 * side_tiny * root * np.abs(q).sum(axis=1)[:, None] + 4 * d * side_tiny**2
    error = error + below
    s = scaled
    u_op = max(u, units.store.unit) if units.store is not None else u
    tiny_op = max(tiny, units.store.tiny) if units.store is not None else tiny
    if units.store is not None:  # (S3) the stored score
        error = error + units.store.unit * (np.abs(s) + error) + units.store.tiny
        overflow |= np.abs(s) + error > units.store.largest
    if head.softcap is not None:  # (S4)
        capped = head.softcap * np.tanh(s / head.softcap)
        own = own + 2 * U * np.abs(s) + 12 * U * np.abs(capped)
        relative = (1 + u_op) ** 2 * (1 + 2 * alg.exp_ulp * u) * (1 + u_op) - 1
        error = error + u_op * 2 * (np.abs(s) + error) + relative * (np.abs(capped) + error)
        error = error + tiny_op * (2 + 2 * head.softcap)
        s = capped
    bias, bias_error = head.bias(rows)
    if bias is not None:  # (S5)
        uncertain = np.zeros_like(bias) if bias_error is None else bias_error
        s = s + bias
        own = own + uncertain + U * np.abs(s)
        # slopes times distance: one product and one sum of the algorithm's own
        made = 0.0 if bias_error is None else 2 * u_op * np.abs(bias) + uncertain
        error = error + made
        error = error + u_op * (np.abs(s) + error + own) + tiny_op
        if units.store is not None:
            overflow |= np.abs(s) + error > units.store.largest
    if head.sink is not None:  # (S6) a column of its own, exact
        n = len(s)
        s = np.hstack([s, np.full((n, 1), head.sink)])
        zero = np.zeros((n, 1))
        own, error = np.hstack([own, zero]), np.hstack([np.broadcast_to(error, own.shape), zero])
        overflow = np.hstack([overflow, np.zeros((n, 1), bool)])
    return Scores(s, own, np.array(np.broadcast_to(error, s.shape)) * (1 + 64 * U), overflow)


def forward(head: Head, alg: Algorithm) -> tuple[Sources, NDArray[np.bool_]]:
    """Bound by source and the flags of overflow, both (n, d_v), for one head."""
    n, d_v = len(head.q), head.v.shape[1]
    parts = {f.name: np.zeros((n, d_v)) for f in fields(Sources)}
    overflow = np.zeros((n, d_v), bool)
    units = Units.of(alg, len(head.k))
    if head.m or head.sink is not None:
        for i in range(0, n, ROWS):
            rows = slice(i, min(n, i + ROWS))
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                got, flag = _rows(head, alg, units, rows)
            for name, part in got.items():
                parts[name][rows] = part
            overflow[rows] = flag
    for part in parts.values():
        part[head.blank] = 0.0
    overflow[head.blank] = False
    return Sources(**parts), overflow


def _rows(head: Head, alg: Algorithm, units: Units, rows: slice) -> tuple[dict[str, F64], NDArray[np.bool_]]:
    scores = score_errors(head, alg, units, rows)
    s, m_keys = scores.s, scores.s.shape[1]
    v = head.v if head.sink is None else np.vstack([head.v, np.zeros((1, head.v.shape[1]))])
    kept = head.keep(rows)
    keep = np.ones((len(s), head.m), bool) if kept is None else kept
    if head.sink is not None:
        keep = np.hstack([keep, np.ones((len(s), 1), bool)])
    absolute = np.abs(v)
    slack = 1 + (m_keys + 64) * 2 * U  # (E2) float64 sums of m terms of one sign

    # (E1) weights in float64 and an upper bound on the exact ones
    top = np.where(keep, s, -np.inf).max(axis=1)[:, None]
    top = np.where(np.isfinite(top), top, 0.0)
    w = np.where(keep, np.exp(np.minimum(s - top, 0.0)), 0.0)
    total = w.sum(axis=1)[:, None]
    total = np.where(total > 0, total, 1.0)
    wobble = 2 * np.where(keep, scores.own, 0.0).max(axis=1)[:, None] + (m_keys + 800) * U
    p = w / total
    upper = np.where(wobble > 30, 1.0, p * np.exp(np.minimum(wobble, 30.0)) + 2.0**-1020)
    upper = np.where(keep, np.minimum(upper, 1.0), 0.0)

    # (X1) the exponent's error: score, shift, and for blocks the rescaling, whose rounding telescopes
    error = np.where(keep, scores.error, 0.0)
    worst = error.max(axis=1)[:, None]
    distance = np.where(keep, top - s, 0.0) + 2 * np.where(keep, scores.own, 0.0).max(axis=1)[:, None]
    delta = error + shift_error(alg, units, s, top, distance + error + worst)
    delta = np.where(keep, delta, 0.0)
    lost = delta.max(axis=1)[:, None] > 600
    own_worst = np.where(keep, scores.own, 0.0).max(axis=1)[:, None]
    rescales = _rescales(alg, s, keep, worst + own_worst)
    theta = np.expm1((1 + rescales) * math.log1p(units.u_exp))  # (X2)
    if isinstance(alg, Eager) and alg.every_op:
        assert units.store is not None
        theta = (1 + theta) * (1 + units.store.unit) - 1
    f_scores = np.where(keep, np.expm1(np.minimum(delta, 600.0)), 0.0)

    # (W1) relative change of the weights, in the mean
    pf_scores = (upper * f_scores).sum(axis=1)[:, None] * slack
    pf = np.where(lost, np.inf, pf_scores + theta * (1 + pf_scores))
    fine = pf < 1
    a = np.minimum(upper @ absolute * slack, absolute.max(axis=0))
    z = p @ v
    z_own = (np.expm1(np.minimum(wobble, 30.0)) + m_keys * U) * 2 * (a + np.abs(z))
    z_size = np.minimum(np.abs(z) + z_own, a)
    a_f = (upper * f_scores) @ absolute * slack

    # (Z1) perturbed softmax: from the weights, or the hull of the values
    room = np.where(fine, 1 - pf, 1.0)
    by_scores = (a_f + pf_scores * z_size) / room
    by_exp = theta * (a + a_f + (1 + pf_scores) * z_size) / room
    low, high = v.min(axis=0), v.max(axis=0)
    if not keep.all():
        low = np.where(keep[:, :, None], v, np.inf).min(axis=1) if v.size * len(s) < 2**22 else low
        high = np.where(keep[:, :, None], v, -np.inf).max(axis=1) if v.size * len(s) < 2**22 else high
    gap = np.maximum(high - z, z - low) + z_own
    hull = np.where(np.isfinite(gap), np.maximum(gap, 0.0), np.inf)
    use_hull = ~fine | (by_scores + by_exp > hull)
    by_scores = np.where(use_hull, hull, by_scores)
    by_exp = np.where(use_hull, 0.0, by_exp)
    moved = by_scores + by_exp
    a_moved = np.minimum(np.where(fine, (a + a_f + theta * (a + a_f)) / room, np.inf), absolute.max(axis=0))
    z_moved = np.minimum(z_size + moved, a_moved)

    # (N1) the least normaliser, in units of exp(shift)
    if isinstance(alg, Eager) and not alg.shifted:
        least = np.where(fine, total * room, 0.0) * np.exp(np.clip(top - worst, -700, 700)) / slack
    else:
        least = np.maximum(
            np.where(fine, total * room, 0.0) / slack * np.exp(-np.minimum(worst, 600.0)),
            max(0.0, 1 - units.u_exp) ** (1 + units.blocks),
        )
    underflow_unit = units.tiny_exp * (1 + rescales) / least  # (U1)
    if isinstance(alg, Eager):
        underflow_unit = underflow_unit + units.tiny
        if alg.every_op and units.store is not None:
            underflow_unit = underflow_unit + units.store.tiny / least
    grow = (1 + units.u_exp) ** (1 + units.blocks) * (1 + growth(units.u, units.n_value)) * (1 + units.u_cast)

    # (C1) the cast of the weights, entry by entry
    upper_moved = np.where(fine, upper * (1 + f_scores) * (1 + theta) / room, 1.0) * keep
    norm = growth(units.u, units.n_norm)
    if isinstance(alg, Eager) and alg.every_op and units.store is not None:
        norm = (1 + norm) * (1 + units.store.unit) - 1
    column = absolute.sum(axis=0)
    kappa_norm = (m_keys * underflow_unit + (2 * m_keys + 2 * units.blocks) * units.tiny / least) * grow * slack
    lam = norm + kappa_norm
    known = lam < 1
    after = np.where(known, 1 - lam, 1.0)
    by_cast, small_cast = np.zeros_like(z), np.zeros_like(z)
    if units.u_cast:
        flat = units.tiny_cast / (least if isinstance(alg, Flash) else np.ones_like(least))
        entry = upper_moved + underflow_unit * keep
        if isinstance(alg, Eager):
            entry = entry / after * (1 + growth(units.u, 2))
        relative = units.u_cast * entry
        extra = np.maximum(np.minimum(np.maximum(relative, flat), entry) - relative, 0.0) * keep
        by_cast = units.u_cast * np.minimum(entry @ absolute * slack, np.inf) * (1 + growth(units.u, units.n_value))
        small_cast = extra @ absolute * slack * (1 + growth(units.u, units.n_value))
        if isinstance(alg, Eager):  # already in units after the division below
            by_cast, small_cast = by_cast * after, small_cast * after

    # (Q1) sums and division
    value_unit = dot_error(units.u, units.n_value, alg.products)
    operations = 2 * m_keys + 2 * units.blocks
    kappa = (underflow_unit * column + operations * units.tiny / _units_of_sum(alg, least)) * grow
    kappa = kappa + 2 * units.split * (m_keys + column) / _units_of_sum(alg, least) * grow
    by_sums = (value_unit * a_moved + z_moved * norm) / after
    by_cast = by_cast / after
    under = (kappa + small_cast + z_moved * kappa_norm) / after

    # (O1) division and output
    quotient = z_moved + by_sums + by_cast + under
    u_out = units.out.unit if units.out.name != units.acc.name else 0.0
    out_unit = (1 + units.u) ** 2 * (1 + u_out) - 1
    by_output = out_unit * quotient
    under = under + (units.out.tiny + 2 * units.tiny)

    bad = ~(np.isfinite(quotient) & known)
    result = np.where(bad, 0.0, quotient + by_output)
    overflow = _overflow(alg, units, scores, keep, delta, distance + error + worst, column, result, m_keys)
    overflow = overflow | ~(kappa_norm < 1)  # (V1) a normaliser that may vanish: 0/0
    up = 1 + 2.0**-40  # (E2) fewer than 2**11 further float64 operations of one sign
    parts = {"scores": by_scores, "exp": by_exp, "cast": by_cast, "sums": by_sums, "output": by_output}
    parts["underflow"] = under
    return {name: np.where(bad, np.inf, part * up) for name, part in parts.items()}, overflow


def _units_of_sum(alg: Algorithm, least: F64) -> F64:
    """Flash adds up unnormalised weights; eager adds up normalised ones."""
    return least if isinstance(alg, Flash) else np.ones_like(least)


def shift_error(alg: Algorithm, units: Units, s: F64, top: F64, distance: F64) -> F64:
    """(X1) rounding of s − m and of every m_t − m_t+1, whose sizes add up to the distance from the last maximum."""
    if isinstance(alg, Flash):
        error = units.u * distance
        if alg.base2:
            # a rounded maximum times c meets an exact one in every later rescaling, also of an unchanged maximum
            reach = np.maximum(np.abs(s), np.abs(top)) + distance
            error = error + 5 * units.u * distance + units.blocks * units.u * reach
        return error
    if not alg.shifted:
        return np.zeros_like(distance)
    if alg.every_op:
        assert units.store is not None
        return units.store.unit * distance + units.store.tiny
    return units.u * distance


def _rescales(alg: Algorithm, s: F64, keep: NDArray[np.bool_], worst: F64) -> F64:
    """How many blocks may raise the running maximum of a row (n, 1), whatever the scores' errors."""
    n, m = s.shape
    if not isinstance(alg, Flash) or m <= alg.block:
        return np.zeros((n, 1))
    if alg.base2:
        return np.full((n, 1), float(-(-m // alg.block) - 1))
    count, running = np.zeros(n), np.full(n, -np.inf)
    kept = np.where(keep, s, -np.inf)
    for j in range(0, m, alg.block):
        best = kept[:, j : j + alg.block].max(axis=1)
        if j:
            count += best >= running - 2 * worst[:, 0] - 1e-9 * np.abs(running)
        running = np.maximum(running, best)
    return count[:, None]


def _overflow(
    alg: Algorithm,
    units: Units,
    scores: Scores,
    keep: NDArray[np.bool_],
    delta: F64,
    distance: F64,
    column: F64,
    result: F64,
    m_keys: int,
) -> NDArray[np.bool_]:
    """(V1) where a stored value can exceed its format."""
    row = np.asarray((scores.overflow & keep).any(axis=1))[:, None]
    flag = row | ~(result * (1 + units.out.unit) <= units.out.largest)
    if isinstance(alg, Flash):
        flag = flag | (column * 1.01 > units.acc.largest) | (m_keys * 1.01 > units.acc.largest)
    elif not alg.shifted:
        largest = units.store.largest if alg.every_op and units.store is not None else units.acc.largest
        high = np.asarray(np.where(keep, scores.s + delta, -np.inf).max(axis=1))[:, None]
        flag = flag | (high + math.log(max(m_keys, 1)) > math.log(largest))
    elif alg.every_op and units.store is not None:
        spread = np.where(keep, distance, 0.0).max(axis=1)[:, None]
        flag = flag | (m_keys * 1.01 > units.store.largest) | (spread * (1 + units.store.unit) > units.store.largest)
    return np.broadcast_to(flag, result.shape)
