"""What a call's right answer is, computed here in extended precision, sharing no code with `compute`.

Guarantees: `truth(call)` encloses the exact output of every row that has a key, by the a-priori bound of the plain
algorithm in long double (64-bit significands on x86; where long double is double the radius says so). What a mask
hides is selected away, so NaN and inf behind a mask never enter.
Does not: say what a row without keys gives (a convention), or run fast: it is for the small inputs of a check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.rotary import rotated, rotation_unit

Wide = np.longdouble
UNIT = float(np.finfo(Wide).eps) / 2


@dataclass(frozen=True)
class Reading:
    """How a target reads what a Spec leaves open, once it was met (or declared).

    tiled: query head i reads key-value head i % h_kv. cap_last: the softcap comes after the bias. exclusive: the far
    ends of a window do not take part. rising: ALiBi is slope·(j − i) for later keys j too, not −slope·|i − j|.
    """

    tiled: bool = False
    cap_last: bool = False
    exclusive: bool = False
    rising: bool = False


USUAL = Reading()


@dataclass(frozen=True, eq=False)
class Truth:
    """output ± radius (b, h, n, d_v); lse ± lse_radius (b, h, n); weights and scores (b, h, n, m) as float64;
    seen: which keys a row has; empty: rows that have none; outside: rows with a score of +inf or NaN."""

    output: Array
    radius: Array
    lse: Array
    lse_radius: Array
    weights: Array
    scores: Array
    seen: Array
    empty: Array
    outside: Array


def repeated(array: Array, heads: int, tiled: bool = False) -> Array:
    """Key-value heads brought to query heads: head i reads i // group (blocked), or i % h_kv (tiled)."""
    kv = array.shape[1]
    if kv == heads:
        return array
    index = np.arange(heads) % kv if tiled else np.arange(heads) // (heads // kv)
    return array[:, index]


def seen_keys(call: Call, reading: Reading = USUAL) -> Array:
    """Boolean (b, h, n, m): which keys take part, of mask, −inf bias, causal, window and lengths together."""
    b, h, _, n, m, _, _ = call.shape
    spec = call.spec
    seen = np.ones((b, h, n, m), bool)
    if call.mask is not None:
        seen &= call.mask
    if call.bias is not None:
        seen &= ~np.isneginf(call.bias.astype(np.float64))
    if call.key_lengths is not None:
        seen &= np.arange(m) < call.key_lengths.astype(np.int64).reshape(-1, 1, 1, 1)
    i = np.arange(n)[:, None] + diagonal(call)
    j = np.arange(m)[None, :]
    if spec.causal != "none":
        seen &= j <= i
    if spec.window is not None:
        left, right = spec.window
        if reading.exclusive:
            left = left - 1 if left else left
            right = right - 1 if right else right
        if left is not None:
            seen &= j >= i - left
        if right is not None:
            seen &= j <= i + right
    return seen


def diagonal(call: Call) -> Any:
    """Position of query 0 on the keys' axis: 0 or `past` top-left, (keys that exist − n) bottom-right."""
    if call.spec.causal != "bottom-right":
        return call.spec.past
    n, m = call.q.shape[2], call.k.shape[2]
    return m - n if call.key_lengths is None else call.key_lengths.astype(np.int64).reshape(-1, 1, 1, 1) - n


def scale_of(call: Call) -> Any:
    """The scale in long double: exact for 1/√d up to one rounding of each operation."""
    scale = call.spec.scale
    if scale is None:
        return Wide(1) / np.sqrt(Wide(call.q.shape[3]))
    if isinstance(scale, Fraction):
        return Wide(scale.numerator) / Wide(scale.denominator)
    return Wide(scale)


def raw_scores(call: Call, seen: Array, reading: Reading = USUAL) -> Array:
    """q·k, scaled, capped, biased, in long double; −inf where a key is not seen."""
    h = call.q.shape[1]
    q, k = call.q.astype(Wide), repeated(call.k, h, reading.tiled).astype(Wide)
    if call.spec.rope is not None:
        q = rotated(q, call, call.spec.rope.q_offset)
        k = rotated(k, call, call.spec.rope.k_offset)
    with np.errstate(all="ignore"):
        s = np.einsum("bhnd,bhmd->bhnm", q, k) * scale_of(call)
        if call.spec.softcap is not None and not reading.cap_last:
            s = capped(s, call.spec.softcap)
        if call.bias is not None:
            s = s + np.where(np.isneginf(call.bias.astype(np.float64)), 0, call.bias.astype(Wide))
        if call.alibi_slopes is not None:
            s = s + alibi(call, reading)
        if call.spec.softcap is not None and reading.cap_last:
            s = capped(s, call.spec.softcap)
    return np.where(seen, s, -Wide(np.inf))


def capped(s: Array, cap: float) -> Array:
    """cap·tanh(s/cap)."""
    return Wide(cap) * np.tanh(s / Wide(cap))


def alibi(call: Call, reading: Reading = USUAL) -> Array:
    """ALiBi (Press et al. 2022, section 3): −slope·|i − j| around the causal diagonal; of a later key as it is read."""
    n, m = call.q.shape[2], call.k.shape[2]
    ahead = (np.arange(m)[None, :] - (np.arange(n)[:, None] + diagonal(call))).astype(Wide)
    assert call.alibi_slopes is not None
    return call.alibi_slopes.astype(Wide).reshape(-1, 1, 1) * (ahead if reading.rising else -np.abs(ahead))


def truth(call: Call, reading: Reading = USUAL) -> Truth:
    """The exact answer of a call, enclosed."""
    h = call.q.shape[1]
    seen = seen_keys(call, reading)
    s = raw_scores(call, seen, reading)
    outside: Array = np.asarray((np.isnan(s) | np.isposinf(s)).any(-1))
    empty: Array = np.asarray(~seen.any(-1)) if call.sink is None else np.zeros(seen.shape[:-1], bool)
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True) if s.shape[-1] else np.full((*s.shape[:-1], 1), -np.inf, Wide)
        if call.sink is not None:
            top = np.maximum(top, call.sink.astype(Wide).reshape(-1, 1, 1))
        top = np.where(np.isfinite(top), top, 0)
        e = np.where(seen, np.exp(s - top), 0)
        total = e.sum(-1, keepdims=True)
        if call.sink is not None:
            total = total + np.exp(call.sink.astype(Wide).reshape(-1, 1, 1) - top)
        p = np.where(total > 0, e / np.where(total > 0, total, 1), 0)
        lse = (np.log(total) + top)[..., 0] / np.log(Wide(call.spec.lse_base))
    if call.dropout_mask is not None:
        p = p * call.dropout_mask.astype(Wide)
    v = repeated(call.v, h, reading.tiled).astype(Wide)
    used = np.asarray(seen.any(axis=2))[..., None]
    v = np.where(used, v, 0)
    with np.errstate(all="ignore"):
        z = np.einsum("bhnm,bhmd->bhnd", p, v)
        # A key that some rows see and others don't may hold NaN or inf for the latter only where it is masked:
        # there p is 0, and 0·inf must not enter.
        if not np.isfinite(v).all():
            z = np.where(p[..., None] > 0, p[..., None] * v[:, :, None], 0).sum(-2)
        radius, lse_radius = _radius(call, s, seen, p, v, z, reading)
    return Truth(z, radius, lse, lse_radius, p.astype(np.float64), s.astype(np.float64), seen, empty, outside)


def _radius(call: Call, s: Array, seen: Array, p: Array, v: Array, z: Array, reading: Reading) -> tuple[Array, Array]:
    """A-priori bound of the plain algorithm above, unit roundoff UNIT, elementary functions within 2 ulp."""
    u, m = UNIT, call.k.shape[2]
    delta = score_error(call, s, seen, u=u, function=4 * u, reading=reading)
    weights = p.astype(np.float64)
    moved = weight_error(s, p, seen, delta, 6 * u)
    sum_f = moved.sum(-1, keepdims=True)
    size = np.abs(np.where(np.isfinite(v), v, 0)).astype(np.float64)
    absolute = np.abs(z).astype(np.float64)
    spread = np.einsum("bhnm,bhmd->bhnd", moved, size) + sum_f * absolute
    a = np.einsum("bhnm,bhmd->bhnd", weights, size)
    radius = spread / np.maximum(1 - sum_f, 0.5) + (2 * m + 8) * u * (a + absolute) + 1e-300
    lse_radius = sum_f[..., 0] + (m + 8) * u * (1 + np.abs(np.where(np.isfinite(s), s, 0)).max(-1, initial=0))
    return radius, (lse_radius / math.log(call.spec.lse_base)).astype(np.float64)


def weight_error(s: Array, p: Array, seen: Array, delta: Array, relative: float) -> Array:
    """By how much a normalised weight may be off, times its normaliser's 1 − Σ: p(e^δ − 1) and a relative part.

    In logarithms, so that a weight that underflows under any error of its score counts for nothing.
    """
    with np.errstate(all="ignore"):
        total = np.where(p > 0, np.log(np.where(p > 0, p, 1)), -Wide(np.inf))
        top = s.max(-1, keepdims=True, initial=-np.inf)
        level = np.where(p > 0, total, s - np.where(np.isfinite(top), top, 0))
        high = np.exp(np.minimum(level + delta, 600.0))
        moved = np.where(p > 0, p * np.expm1(np.minimum(delta, 600.0)), high)
    return np.where(seen, moved * (1 + relative) + p * relative, 0).astype(np.float64)


def score_error(
    call: Call, s: Array, seen: Array, *, u: float, store: float = 0.0, function: float, reading: Reading = USUAL
) -> Array:
    """Bound of the error of s − max in float64, entry by entry.

    u: unit roundoff of sums and products (dot products in any order); store: that of stored results (0 if they are
    kept): the two scaled sides with their factors, the score, and each later operation; function: error of tanh, sine
    and cosine.
    """
    h, d = call.q.shape[1], call.q.shape[3]
    q = np.abs(call.q.astype(np.float64))
    k = np.abs(repeated(call.k, h, reading.tiled).astype(np.float64))
    each = 2 * (u + store)
    with np.errstate(all="ignore"):
        size = float(abs(scale_of(call))) * np.einsum("bhnd,bhmd->bhnm", q, k)
        size = np.where(seen, size, 0)
        error = ((d + 4) * u + 5 * store) * size
        if call.spec.rope is not None:
            error = error + 2 * rotation_unit(call, u, store, function) * 2 * size
        if call.spec.softcap is not None:
            # |c·tanh(x/c) − c·tanh(y/c)| ≤ |x − y| (1 − tanh²) at the point of the interval nearest to 0
            inner = np.maximum(size * 0, _before_cap(call, seen, reading) - error) / call.spec.softcap
            slope = np.minimum(1.0, 1 - np.tanh(inner) ** 2 + 4 * u)
            error = error * slope + (2 * function + 4 * u + 3 * store) * call.spec.softcap
        shown = np.where(seen & np.isfinite(s), np.abs(s), 0).astype(np.float64)
        if call.bias is not None:
            bias = np.abs(call.bias.astype(np.float64))
            error = error + each * (shown + np.where(np.isfinite(bias), bias, 0))
        if call.alibi_slopes is not None:
            error = error + each * (shown + np.abs(alibi(call, reading)).astype(np.float64))
        top = shown.max(-1, keepdims=True, initial=0)
        if call.sink is not None:
            top = np.maximum(top, np.abs(call.sink.astype(np.float64)).reshape(-1, 1, 1))
        return error + each * (shown + top)


def _before_cap(call: Call, seen: Array, reading: Reading) -> Array:
    """|score| before the softcap, where the bias comes after it; 0 (no information) where it comes before."""
    if reading.cap_last:
        return np.zeros(seen.shape)
    plain = call.with_(spec=call.spec.with_(softcap=None), bias=None, alibi_slopes=None)
    return np.abs(np.where(seen, raw_scores(plain, seen, reading), 0)).astype(np.float64)
