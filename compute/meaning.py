"""What one call of attention means: arrays, Spec, mask, bias … resolved to one canonical problem a head.

Guarantees: every algorithm of this package reads its masks, biases, corners, groups and lengths here and nowhere
else, so they can't disagree on them; every argument is checked before anything is computed; nothing is copied or
expanded to (n, m) before a tile asks for it.
Does not: compute attention, or look for non-finite numbers in q, k, v.

The interface (used by the algorithms, the certified enclosures and the checks):

    problem = resolve(q, k, v, spec, mask=..., bias=..., sink=..., alibi_slopes=..., dropout_mask=..., key_lengths=...)
    problem.heads()           every (batch index, query head): a Part whose arrays are 2-D
    problem.whole()           one Part for all heads at once, with arrays of shape (..., h, n, m)

    part.n, part.m, part.d_k, part.d_v       sizes; part.length: keys that exist (key_lengths, else m)
    part.queries(rows), part.keys(cols)      (…, n, d_k), (…, m, d_k) in the work dtype, RoPE applied
    part.values(cols)                        (…, m, d_v) in the work dtype
    part.scale, part.softcap, part.sink      score = bias + softcap·tanh(scale·q·k / softcap); sink: None or a logit
    part.allowed(rows, cols)                 bool (…, r, c): this key takes part; None where every key of the block does
    part.bias(rows, cols)                    what is added to the capped score, finite where allowed; None for nothing
    part.dropout(rows, cols)                 multipliers of the normalised weights; None for nothing
    part.span(rows)                          (lo, hi): no key outside lo ≤ j < hi is allowed for any of these rows
    part.grad_queries(rows, g), part.grad_keys(cols, g)    gradients taken back through RoPE

`rows` and `cols` are slices with explicit ends, or ALL. A row with no allowed key and no sink is empty:
spec.empty_row says what it gives.
"""

from __future__ import annotations

import math
from numbers import Number, Rational
from typing import Any

import numpy as np

from compute import rope as rotary
from compute.arrays import FLOATS, Array, Namespace, is_float, namespace
from compute.checks import required
from compute.errors import InputError
from compute.problem import ALL as ALL
from compute.problem import Part as Part
from compute.problem import Problem as Problem
from compute.spec import Spec, as_float


def resolve(
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | None = None,
) -> Problem:
    """Check one call and say what it means.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or all three 2-D for one head. mask: bool (True takes
    part) or floating (added; −inf means masked), bias: floating; both broadcast against (…, h, n, m). sink and
    alibi_slopes broadcast against (…, h); key_lengths against the batch axes (…). dropout_mask: bool (kept; needs
    spec.dropout) or floating multipliers, broadcast against (…, h, n, m).

    Raises InputError, with what was expected and got.
    """
    if not isinstance(spec, Spec):
        raise InputError(f"spec is a {type(spec).__name__}: expected a compute.Spec, as Spec(causal='top-left')")
    xp = required(q=q, k=k, v=v)
    flat = _check_shapes(q, k, v)
    if flat:
        q, k, v = q[None], k[None], v[None]
    groups = _groups(q, k, spec)
    if q.shape[-1] == 0 and spec.scale is None:
        raise InputError("d_k is 0: expected at least 1, or a scale in the Spec (1/sqrt(d_k) has no value)")
    if spec.rope is not None:
        rotary.check(spec.rope, q.shape[-1])
    heads = tuple(q.shape[:-2])
    full = (*heads, q.shape[-2], k.shape[-2])
    mask_bool, mask_added = _mask(xp, mask, full)
    added = [a for a in (mask_added, _bias(xp, bias, full)) if a is not None]
    logit = _per_head(xp, "sink", sink, heads)
    if logit is not None and bool((logit == math.inf).any()):
        raise InputError("sink holds +inf: expected finite logits, or -inf for a head without a sink")
    slopes = _per_head(xp, "alibi_slopes", alibi_slopes, heads)
    if slopes is not None and not bool(xp.isfinite(slopes.astype(xp.float64)).all()):
        raise InputError("alibi_slopes holds NaN or inf: expected finite slopes")
    return Problem(
        xp=xp,
        spec=spec,
        q=q,
        k=k,
        v=v,
        flat=flat,
        groups=groups,
        mask=mask_bool,
        additive=tuple(added),
        bias_shape=None if bias is None else tuple(bias.shape),
        bias_dtype=None if bias is None else bias.dtype,
        sink=logit,
        sink_shape=None if sink is None else tuple(getattr(sink, "shape", ())),
        slopes=slopes,
        drop=_dropout(xp, dropout_mask, full, spec),
        lengths=_lengths(xp, key_lengths, heads[:-1], k.shape[-2]),
    )


def _check_shapes(q: Array, k: Array, v: Array) -> bool:
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not is_float(array.dtype):
            raise InputError(f"{name} has dtype {array.dtype}: expected one of {', '.join(FLOATS)}")
        if array.ndim < 2:
            raise InputError(
                f"{name} has shape {array.shape}: expected (…, heads, length, channels), or 2-D for one head"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise InputError(f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}: expected one dtype; cast with astype")
    if not q.ndim == k.ndim == v.ndim:
        raise InputError(f"q, k, v have {q.ndim}, {k.ndim}, {v.ndim} axes: expected the same number")
    if q.shape[-1] != k.shape[-1]:
        raise InputError(f"k has d_k={k.shape[-1]}, q has d_k={q.shape[-1]}: q and k must share their last axis")
    if k.shape[:-1] != v.shape[:-1]:
        raise InputError(f"k has shape {k.shape}, v has {v.shape}: all axes but the last must be the same")
    if q.shape[:-3] != k.shape[:-3]:
        raise InputError(f"q has batch axes {q.shape[:-3]}, k has {k.shape[:-3]}: expected the same")
    return bool(q.ndim == 2)


def _groups(q: Array, k: Array, spec: Spec) -> int:
    h, h_kv = int(q.shape[-3]), int(k.shape[-3])
    if h_kv == 0 or h == 0:
        if h == h_kv:
            return 1
        raise InputError(f"q has {h} heads and k has {h_kv}: expected both or none to be empty")
    if h % h_kv:
        raise InputError(f"q has {h} heads and k has {h_kv}: the query heads must be a multiple of the key-value heads")
    if spec.groups is not None and spec.groups * h_kv != h:
        raise InputError(
            f"Spec has groups={spec.groups}; q has {h} heads and k has {h_kv}: expected groups={h // h_kv}"
        )
    return h // h_kv


def _spread(xp: Namespace, name: str, array: Array, full: tuple[int, ...], axes: str, hint: str = "") -> Array:
    try:
        return xp.broadcast_to(array, full)
    except ValueError:
        raise InputError(
            f"{name} has shape {tuple(array.shape)}: expected one that broadcasts against {axes} = {full}{hint}"
        ) from None


def _mask(xp: Namespace, mask: Array | None, full: tuple[int, ...]) -> tuple[Array | None, Array | None]:
    if mask is None:
        return None, None
    same_library(xp, "mask", mask)
    hint = "; a padding mask (…, m) over keys needs axes of 1 for heads and queries, as mask[:, None, None, :]"
    if mask.dtype == bool:
        return _spread(xp, "mask", mask, full, "(…, h, n, m)", hint), None
    if is_float(mask.dtype):
        return None, _additive(xp, "mask", mask, full)
    raise InputError(
        f"mask has dtype {mask.dtype}, which could mean 1 = keep, 1 = drop, or a number to add: expected bool "
        "(True takes part) or floating (added; -inf means masked); cast with mask.astype(bool)"
    )


def _bias(xp: Namespace, bias: Array | None, full: tuple[int, ...]) -> Array | None:
    if bias is None:
        return None
    same_library(xp, "bias", bias)
    if not is_float(bias.dtype):
        raise InputError(f"bias has dtype {bias.dtype}: expected one of {', '.join(FLOATS)}; a bool belongs into mask=")
    return _additive(xp, "bias", bias, full)


def _additive(xp: Namespace, name: str, array: Array, full: tuple[int, ...]) -> Array:
    view = _spread(xp, name, array, full, "(…, h, n, m)")
    if array.size and bool((array == math.inf).any()):
        raise InputError(
            f"{name} holds +inf: a score of +inf is outside the domain of the softmax; expected finite or -inf"
        )
    return view


def _per_head(xp: Namespace, name: str, value: Array, heads: tuple[int, ...]) -> Array | None:
    if value is None:
        return None
    if isinstance(value, Number):
        if isinstance(value, Rational):
            as_float(name, value)  # refuses what the conversion would round
        value = xp.asarray(value)
        value = value.astype(xp.float64) if value.dtype.kind in "iu" else value
    same_library(xp, name, value)
    if not is_float(value.dtype):
        raise InputError(f"{name} has dtype {value.dtype}: expected a floating dtype")
    return _spread(xp, name, value, heads, "(…, h)")


def _dropout(xp: Namespace, drop: Array | None, full: tuple[int, ...], spec: Spec) -> Array | None:
    if drop is None:
        return None
    same_library(xp, "dropout_mask", drop)
    if drop.dtype == bool:
        if spec.dropout is None:
            raise InputError(
                "dropout_mask is bool and the Spec has no dropout: expected Spec(dropout=p), so that kept weights are "
                "divided by 1 - p, or a floating dropout_mask of multipliers"
            )
    elif not is_float(drop.dtype):
        raise InputError(f"dropout_mask has dtype {drop.dtype}: expected bool (kept) or floating (multipliers)")
    elif spec.dropout is not None:
        raise InputError(
            "dropout_mask is floating (multipliers) and the Spec has dropout too: expected only one of them"
        )
    return _spread(xp, "dropout_mask", drop, full, "(…, h, n, m)")


def _lengths(
    xp: Namespace, lengths: Array, batch: tuple[int, ...], m: int
) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    if lengths is None:
        return None
    if isinstance(lengths, Number):
        lengths = xp.asarray(lengths)
    same_library(xp, "key_lengths", lengths)
    if lengths.dtype.kind not in "iu":
        raise InputError(f"key_lengths has dtype {lengths.dtype}: expected integers")
    view = _spread(xp, "key_lengths", lengths, batch, "the batch axes")
    host = np.asarray(view if xp is np else xp.asnumpy(view)).astype(np.int64)
    if host.size and (host.min() < 0 or host.max() > m):
        raise InputError(f"key_lengths run from {host.min()} to {host.max()}: expected 0 to m = {m}, the keys given")
    return host


def same_library(xp: Namespace, name: str, array: Array) -> None:
    """InputError unless the array belongs to the call's library."""
    if namespace(**{name: array}) is not xp:
        raise InputError(f"{name} and q are arrays of two libraries: expected one; see cupy.asarray and cupy.asnumpy")
