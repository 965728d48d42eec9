"""Gradients of attention by the closed form, in extended precision, with what a correct backward pass may be off by.

Guarantees: `gradients(call)` encloses the exact vector-Jacobian product of a call for every input; `room` bounds, per
entry, what any run with the given units may add: weights recomputed from perturbed scores, products in any order,
D = rowsum(dO ∘ O) from the stored output or rowsum(P ∘ dP), every intermediate stored once. Rows without keys give
nothing back. Under RoPE the gradients are those of q and k before the rotation; the scale's is the sum of dS ∘ QKᵀ.
Does not: bound an algorithm that accumulates gradients in 16 bits across blocks.

Source: Dao et al. 2022 (FlashAttention), appendix B.2, equations for dV, dP, dS, dQ, dK.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verify.checking.allowance import Allowed, Judge
from verify.checking.calls import Array, Call
from verify.checking.reference import (
    UNIT,
    USUAL,
    Reading,
    Truth,
    Wide,
    raw_scores,
    repeated,
    scale_of,
    score_error,
    truth,
    weight_error,
)
from verify.checking.rotary import pair_sums, rotated, rotation_unit


@dataclass(frozen=True)
class Units:
    """wide: unit roundoff of products and sums; store: of stored intermediates (0 if none is); out: of results.
    tiny: what underflow may add to a weight."""

    wide: float
    store: float
    out: float
    tiny: float

    @staticmethod
    def of(judge: Judge) -> Units:
        """The loosest units of the judge's algorithms."""
        from compute.roundings import limits

        wide = max(limits(a.accumulate).unit for a in judge.algorithms)
        stored = [getattr(a, "scores", None) or a.weights for a in judge.algorithms]
        store = max(limits(s).unit for s in stored)
        out = max(limits(a.output).unit for a in judge.algorithms)
        tiny = max(max(limits(s).tiny for s in stored), max(limits(a.accumulate).normal for a in judge.algorithms))
        return Units(wide, store if store > wide else 0.0, out, tiny)


@dataclass(frozen=True, eq=False)
class Gradient:
    """mid ± radius, and what a correct run may be off by (room), all in the input's own shape."""

    mid: Array
    radius: Array
    room: Array


@dataclass(frozen=True, eq=False)
class _Pass:
    """One backward pass in long double: values by name, and bounds of the error of a run with some units."""

    values: dict[str, Array]
    errors: dict[str, Array]


def gradients(call: Call, judge: Judge, forward: Allowed, reading: Reading = USUAL) -> dict[str, Gradient]:
    """The enclosed gradients of Σ grad_output·output + Σ grad_lse·lse, by name of the input; "scale" among them."""
    right = truth(call, reading)
    clean = np.where(np.isfinite(forward.total), forward.total, 0)
    exact = _backward(call, right, reading, Units(UNIT, 0.0, UNIT, 0.0), right.radius)
    rough = _backward(call, right, reading, Units.of(judge), clean)
    return {n: Gradient(exact.values[n], exact.errors[n], rough.errors[n]) for n in exact.values}


def _backward(call: Call, right: Truth, reading: Reading, units: Units, output_error: Array) -> _Pass:
    b, h, h_kv, n, m, _d, d_v = call.shape
    u, store = units.wide, units.store
    tau = scale_of(call)
    turned = _turned(call, units)
    q, k = turned.q, repeated(turned.k, h, reading.tiled)
    v = repeated(call.v, h, reading.tiled).astype(Wide)
    used = np.asarray(right.seen.any(axis=2))[..., None]
    k, v = np.where(used, k, 0), np.where(used, v, 0)
    q = np.where(right.empty[..., None], 0, q)
    do = np.zeros((b, h, n, d_v), Wide) if call.grad_output is None else call.grad_output.astype(Wide)
    dl = np.zeros((b, h, n), Wide) if call.grad_lse is None else call.grad_lse.astype(Wide)
    dl = dl / np.log(Wide(call.spec.lse_base))
    do, dl = np.where(right.empty[..., None], 0, do), np.where(right.empty, 0, dl)

    s, p, p_sink = _weights(call, right, reading)
    drop = np.ones((1, 1, 1, 1), Wide) if call.dropout_mask is None else call.dropout_mask.astype(Wide)
    delta = score_error(call, s, right.seen, u=u, store=store, function=8 * u, reading=reading)
    moved = weight_error(s, p, right.seen, delta, 8 * max(u, store))
    total = moved.sum(-1, keepdims=True)
    growth = np.where(total < 0.5, 1 / (1 - np.minimum(total, 0.5)), np.inf)
    with np.errstate(invalid="ignore"):
        relative = moved * growth + p * (total * growth + (m + 8) * u + store)
    e_p = np.where(right.seen, np.minimum(np.nan_to_num(relative, nan=1.0, posinf=1.0), 1.0) + units.tiny, 0)

    dp = np.where(right.seen, np.einsum("bhnd,bhmd->bhnm", do, v), 0) * drop
    size = np.einsum("bhnd,bhmd->bhnm", np.abs(do), np.abs(v)) * np.abs(drop)
    e_dp = np.where(right.seen, (d_v + 2) * u * size + 2 * store * np.abs(dp), 0)
    big_d = (p * dp).sum(-1, keepdims=True)
    spread = (p + e_p) * (np.abs(dp) + e_dp)
    eager = (e_p * np.abs(dp) + (p + e_p) * e_dp).sum(-1, keepdims=True) + (m + 2) * u * spread.sum(-1, keepdims=True)
    out_size = (np.abs(do) * (np.abs(right.output) + output_error)).sum(-1, keepdims=True)
    flash = (np.abs(do) * output_error).sum(-1, keepdims=True) + (d_v + 2) * u * out_size
    e_d = np.maximum(eager, flash) + store * np.abs(big_d)
    inner = dp - big_d + dl[..., None]
    e_inner = e_dp + e_d + 3 * u * (np.abs(dp) + np.abs(big_d) + np.abs(dl)[..., None] + e_dp + e_d)
    ds = np.where(right.seen, p * inner, 0)
    e_ds = e_p * np.abs(inner) + (p + e_p) * e_inner + 3 * u * (p + e_p) * (np.abs(inner) + e_inner)
    e_ds = np.where(right.seen, e_ds + 2 * store * (np.abs(ds) + e_ds) + units.tiny * (np.abs(inner) + e_inner), 0)

    values: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    if call.bias is not None:
        values["bias"], errors["bias"] = _summed(ds, e_ds, call.bias.shape, u, units.out)
    if call.sink is not None:
        assert p_sink is not None
        part = -p_sink * (big_d - dl[..., None])
        e_sink = p_sink * (np.expm1(np.minimum(delta.max(-1, keepdims=True, initial=0) * 2, 50)) + (m + 8) * u + store)
        e_part = e_sink * (np.abs(big_d) + np.abs(dl)[..., None]) + (p_sink + e_sink) * (e_d + 4 * u * np.abs(big_d))
        values["sink"] = part.sum((0, 2, 3))
        errors["sink"] = (e_part.sum((0, 2, 3)) + (b * n + 2) * u * np.abs(part).sum((0, 2, 3))) * (1 + 8 * u)
        errors["sink"] = errors["sink"] + units.out * (np.abs(values["sink"]) + errors["sink"])
    if call.spec.softcap is not None:
        ds, e_ds = _capped(call, right, reading, ds, e_ds, units)
    blocks = -(-max(m, n) // 16)
    coarse = 2 * store + 4 * u
    values["q"], errors["q"] = _product("bhnm,bhmd->bhnd", ds, e_ds, k, np.asarray(tau), (m + 2 * blocks) * u + coarse)
    values["k"], errors["k"] = _product("bhnm,bhnd->bhmd", ds, e_ds, q, np.asarray(tau), (n + 2 * blocks) * u + coarse)
    values["scale"], errors["scale"] = _of_scale(ds, e_ds, q, k, units)
    if call.spec.rope is not None:
        size, e_k = np.abs(ds) + e_ds, np.where(used, repeated(turned.e_k, h, reading.tiled), 0)
        errors["q"] = errors["q"] + abs(tau) * np.einsum("bhnm,bhmd->bhnd", size, e_k)
        errors["k"] = errors["k"] + abs(tau) * np.einsum("bhnm,bhnd->bhmd", size, turned.e_q)
        for name, offset in (("q", call.spec.rope.q_offset), ("k", call.spec.rope.k_offset)):
            values[name], errors[name] = _turned_back(call, values[name], errors[name], offset, turned.unit)
    drop_p, drop_e = p * drop, e_p * np.abs(drop) + store * p * np.abs(drop)
    values["v"], errors["v"] = _product(
        "bhnm,bhnd->bhmd", drop_p, drop_e, do, np.asarray(Wide(1)), (n + 2 * blocks) * u + 2 * u
    )
    for name in ("q", "k", "v"):
        errors[name] = errors[name] + units.out * (np.abs(values[name]) + errors[name]) + units.tiny
    if h_kv != h:
        for name in ("k", "v"):
            values[name], errors[name] = _gathered(values[name], errors[name], h_kv, reading.tiled, units)
    return _Pass(values, {name: e.astype(np.float64) for name, e in errors.items()})


@dataclass(frozen=True, eq=False)
class _Turned:
    """q and k as they meet in the scores (rotated under RoPE), what rounding may put them off by, one turn's unit."""

    q: Array
    k: Array
    e_q: Array
    e_k: Array
    unit: float


def _turned(call: Call, units: Units) -> _Turned:
    q, k, rope = call.q.astype(Wide), call.k.astype(Wide), call.spec.rope
    if rope is None:
        return _Turned(q, k, np.zeros(()), np.zeros(()), 0.0)
    # Rotated queries and keys are stored in the input's format, whatever the algorithm says of scores.
    unit = rotation_unit(call, units.wide, max(units.store, units.out), 8 * units.wide)
    e_q, e_k = unit * pair_sums(q, call), unit * pair_sums(k, call)
    return _Turned(rotated(q, call, rope.q_offset), rotated(k, call, rope.k_offset), e_q, e_k, unit)


def _turned_back(call: Call, value: Array, error: Array, offset: int, unit: float) -> tuple[Array, Array]:
    """The gradient before the rotation: the transposed rotation of the gradient after it."""
    size = pair_sums(error, call)
    return rotated(value, call, offset, back=True), size + unit * (pair_sums(value, call) + size)


def _of_scale(ds: Array, e_ds: Array, q: Array, k: Array, units: Units) -> tuple[Array, Array]:
    """Σ dS ∘ QKᵀ, the scale's gradient, whichever of the two products comes first."""
    product = np.einsum("bhnd,bhmd->bhnm", q, k)
    size = np.einsum("bhnd,bhmd->bhnm", np.abs(q), np.abs(k))
    value = (ds * product).sum()
    terms = ds.size + q.shape[-1] + sum(ds.shape[2:])
    error = (e_ds * size).sum() + (terms * units.wide + 4 * units.store) * ((np.abs(ds) + e_ds) * size).sum()
    return np.asarray(value), np.asarray(error + units.out * (np.abs(value) + error) + units.tiny)


def _weights(call: Call, right: Truth, reading: Reading) -> tuple[Array, Array, Array | None]:
    """(scores, softmax weights before dropout, the sink's weight) in long double."""
    s = raw_scores(call, right.seen, reading)
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True, initial=-np.inf)
        sink = None if call.sink is None else call.sink.astype(Wide).reshape(-1, 1, 1)
        if sink is not None:
            top = np.maximum(top, sink)
        top = np.where(np.isfinite(top), top, 0)
        e = np.where(right.seen, np.exp(s - top), 0)
        total = e.sum(-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - top)
        safe = np.where(total > 0, total, 1)
    return s, e / safe, None if sink is None else np.where(right.empty[..., None], 0, np.exp(sink - top) / safe)


def _product(how: str, a: Array, e_a: Array, x: Array, tau: Array, gamma: float) -> tuple[Array, Array]:
    """τ·(a x), and its error when a is off by e_a and sums and scale add a relative gamma."""
    value = tau * np.einsum(how, a, x)
    size = np.einsum(how, e_a + gamma * (np.abs(a) + e_a), np.abs(x))
    return value, np.abs(tau) * size


def _summed(ds: Array, e_ds: Array, shape: tuple[int, ...], u: float, out: float) -> tuple[Array, Array]:
    """Sums over the axes that a bias was broadcast along."""
    axes = tuple(i for i in range(4) if shape[i] == 1 and ds.shape[i] != 1)
    count = math.prod(ds.shape[i] for i in axes)
    value = ds.sum(axes, keepdims=True)
    error = e_ds.sum(axes, keepdims=True) + (count + 2) * u * np.abs(ds).sum(axes, keepdims=True)
    return value, error + out * (np.abs(value) + error)


def _capped(call: Call, right: Truth, reading: Reading, ds: Array, e_ds: Array, units: Units) -> tuple[Array, Array]:
    """Through the softcap: times 1 − tanh²(s/c)."""
    assert call.spec.softcap is not None
    cap = Wide(call.spec.softcap)
    plain = call.with_(spec=call.spec.with_(softcap=None))
    if not reading.cap_last:
        plain = plain.with_(bias=None, alibi_slopes=None)
    raw = np.where(right.seen, raw_scores(plain, right.seen, reading), 0)
    t = np.tanh(raw / cap)
    slope = 1 - t * t
    off = score_error(plain, raw, right.seen, u=units.wide, store=units.store, function=0.0, reading=reading) / cap
    e_slope = 2 * np.minimum(off, 1) * (np.abs(t) + off) + 12 * units.wide + 4 * units.store
    return ds * slope, e_ds * (slope + e_slope) + np.abs(ds) * e_slope


def _gathered(value: Array, error: Array, h_kv: int, tiled: bool, units: Units) -> tuple[Array, Array]:
    """Sums of the query heads of each key-value head."""
    b, h = value.shape[:2]
    shape = (b, h // h_kv, h_kv) if tiled else (b, h_kv, h // h_kv)
    axis = 1 if tiled else 2

    def sums(x: Array) -> Array:
        return x.reshape(*shape, *x.shape[2:]).sum(axis)

    total, off = sums(value), sums(error)
    off = off + (h // h_kv) * max(units.wide, units.out) * sums(np.abs(value))
    return total, off + units.out * np.abs(total)


def complex_step(call: Call, name: str, index: tuple[int, ...], reading: Reading = USUAL) -> float:
    """d(Σ grad_output·output)/d(entry, or "scale") by a complex step of 1e-200: a second opinion on the closed form.

    f(x + ih) = f(x) + ih f'(x) + O(h²), with no cancellation (Squire and Trapp 1998). Double precision.
    """
    from verify.checking.reference import alibi, seen_keys

    h = call.q.shape[1]
    step = 1e-200
    arrays = {
        n: getattr(call, n).astype(np.complex128)
        for n in ("q", "k", "v", "bias", "sink")
        if getattr(call, n) is not None
    }
    if name != "scale":
        arrays[name][index] += 1j * step
    k, v = repeated(arrays["k"], h, reading.tiled), repeated(arrays["v"], h, reading.tiled)
    seen = seen_keys(call, reading)
    q = arrays["q"]
    if call.spec.rope is not None:
        q = rotated(q, call, call.spec.rope.q_offset)
        k = rotated(k, call, call.spec.rope.k_offset)
    tau = float(scale_of(call)) + (1j * step if name == "scale" else 0)
    s = (np.einsum("bhnd,bhmd->bhnm", q, k) * tau).astype(np.complex128)
    if call.spec.softcap is not None:
        s = call.spec.softcap * np.tanh(s / call.spec.softcap)
    if call.bias is not None:
        s = s + np.where(seen, arrays["bias"], 0)
    if call.alibi_slopes is not None:
        s = s + alibi(call, reading).astype(np.float64)
    top = np.where(seen, s.real, -np.inf).max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    e = np.where(seen, np.exp(s - top), 0)
    total = e.sum(-1, keepdims=True)
    if call.sink is not None:
        total = total + np.exp(arrays["sink"].reshape(-1, 1, 1) - top)
    p = e / np.where(total == 0, 1, total)
    if call.dropout_mask is not None:
        p = p * call.dropout_mask.astype(np.float64)
    out = np.einsum("bhnm,bhmd->bhnd", p, v)
    assert call.grad_output is not None
    return float((out * call.grad_output.astype(np.float64)).sum().imag / step)
