"""Misreadings of scores and weights: scale, softmax, softcap, sinks, merging, sums and formats.

Guarantees: each outcome has exactly one thing wrong. Does not: judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from verify.checking.calls import Array, Call, dtype_of
from verify.checking.outcomes import Wrong, again, attend, parts, weigh
from verify.checking.reference import Reading

ALL_ZERO = "the output is all zero"


def scales(call: Call) -> Iterator[Wrong]:
    """Other factors on the scores."""
    _, h, _, _, _, d, d_v = call.shape
    own = call.spec.scale_value(d)
    padded = 2 ** math.ceil(math.log2(d)) if d > 1 else 1
    others = {
        "softmax without a scale": 1.0,
        "softmax scaled by 1/d_k": 1.0 / d,
        "softmax scaled by 1/sqrt(d_model)": 1.0 / math.sqrt(h * d),
        "softmax scaled by 1/d_model": 1.0 / (h * d),
        "the scale applied twice": own * own,
        "scores multiplied by sqrt(d_k)": math.sqrt(d),
        "softmax scaled by 1/sqrt(d_v)": 1.0 / math.sqrt(max(d_v, 1)),
        "softmax scaled by 1/sqrt(batch)": 1.0 / math.sqrt(max(len(call.q), 1)),
        "softmax scaled by 1/sqrt(heads)": 1.0 / math.sqrt(h),
        "a scale of 1/sqrt(d_k) although one was given": 1.0 / math.sqrt(d),
        "the square root of the scale": math.sqrt(abs(own)),
        "the inverse of the scale": 1.0 / own if own else 1.0,
        "scores of the wrong sign": -own,
    }
    if padded != d:
        yield Wrong("head padding", f"matches softmax scaled by 1/sqrt({padded}), the padded head size",
                    again(call.with_(spec=call.spec.with_(scale=1.0 / math.sqrt(padded)))))  # fmt: skip
    for text, scale in others.items():
        if scale != own:
            yield Wrong("scale", f"matches {text}", again(call.with_(spec=call.spec.with_(scale=scale))))


def softmaxes(call: Call) -> Iterator[Wrong]:
    """No softmax, the wrong axis, no division, a 1 too many, plain means."""
    s, seen, v, _ = parts(call)
    yield Wrong("softmax missing", "matches scores times V, without softmax", weigh(np.where(seen, s, 0), v))
    with np.errstate(all="ignore"):
        top = s.max(-2, keepdims=True)
        e = np.where(seen, np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
        p = e / np.maximum(e.sum(-2, keepdims=True), 1e-300)
        yield Wrong("softmax axis", "matches softmax over the queries", weigh(p, v))
        row = s.max(-1, keepdims=True)
        e = np.where(seen, np.exp(s - np.where(np.isfinite(row), row, 0)), 0)
    yield Wrong("softmax missing", "matches weights that were never divided by their sum", weigh(e, v))
    if call.sink is None and call.mask is None and call.bias is None:
        yield Wrong("softmax plus one", "matches a 1 added to the sum of weights after the shift",
                    weigh(e / (e.sum(-1, keepdims=True) + 1), v))  # fmt: skip
    mean = np.broadcast_to(np.where(seen, 1.0, 0.0) / np.maximum(seen.sum(-1, keepdims=True), 1), s.shape)
    yield Wrong("values", "matches the plain mean of the values seen: the scores are lost", weigh(mean, v))
    yield Wrong("values", ALL_ZERO, np.zeros((*s.shape[:3], v.shape[-1])))


def caps(call: Call) -> Iterator[Wrong]:
    """The softcap left out or in another place."""
    cap = call.spec.softcap
    if cap is None:
        return
    yield Wrong("softcap dropped", "matches the softcap ignored", again(call.with_(spec=call.spec.with_(softcap=None))))
    if call.bias is not None or call.alibi_slopes is not None:
        yield Wrong("softcap order", "matches the softcap applied after the bias", again(call, Reading(cap_last=True)))
    s, _, v, sink = parts(call.with_(spec=call.spec.with_(softcap=None)))
    late = np.where(np.isneginf(s), -cap, cap * np.tanh(s / cap))
    yield Wrong(
        "softcap order",
        "matches the softcap applied after the mask: masked keys keep weight",
        attend(late, v, sink=sink),
    )
    yield Wrong("softcap order", "matches tanh without the factor of the cap", attend(np.tanh(s / cap), v, sink=sink))
    scale = call.spec.scale_value(call.q.shape[3])
    if scale not in (0.0, 1.0):
        yield Wrong("softcap order", "matches the softcap applied before the scale",
                    attend(cap * np.tanh(s / scale / cap) * scale, v, sink=sink))  # fmt: skip


def sinks(call: Call) -> Iterator[Wrong]:
    """The sink left out, counted again, or after the shift."""
    if call.sink is None:
        return
    s, _, v, sink = parts(call)
    assert sink is not None
    yield Wrong("sink", "matches the sink ignored", attend(s, v))
    for splits in (2, 4):
        yield Wrong("sink", f"matches the sink counted {splits} times", attend(s, v, sink=sink + math.log(splits)))
    top = np.where(np.isfinite(s.max(-1, keepdims=True)), s.max(-1, keepdims=True), 0)
    yield Wrong("softmax plus one", "matches exp(sink) added after the shift by the row's maximum",
                attend(s, v, sink=np.minimum(sink + top, 700)))  # fmt: skip
    if len(sink) > 1:
        yield Wrong(
            "sink", "matches head 0's sink for every head", attend(s, v, sink=np.broadcast_to(sink[:1], sink.shape))
        )


def sums(call: Call) -> Iterator[Wrong]:
    """Sums kept in 16 bits, term after term: they stick at 2/u, or overflow."""
    s, seen, v, _ = parts(call)
    m = s.shape[-1]
    if call.sink is not None or s[..., 0].size > 64 or m > 50000 or v.shape[-1] > 8:
        return
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True)
        e = np.where(seen, np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
    for name in ("float16", "bfloat16"):
        total = _stuck(e, name)
        for both in (False, True):
            over = _stuck(e[..., None] * v[:, :, None], name, axis=-2) if both else weigh(e, v)
            with np.errstate(all="ignore"):
                output = over / total[..., None]
            text = f"consistent with a {name} accumulator"
            yield Wrong(f"{'fp16' if name == 'float16' else 'bf16'} accumulation", text, output)


def _stuck(terms: Array, name: str, axis: int = -1) -> Array:
    dtype = dtype_of(name)
    moved = np.moveaxis(terms, axis, 0).astype(np.float32)
    with np.errstate(all="ignore"):
        total = np.zeros(moved.shape[1:], np.float32)
        for term in moved:
            total = (total + term).astype(dtype).astype(np.float32)
    return total.astype(np.float64)


def inputs(call: Call) -> Iterator[Wrong]:
    """Inputs or weights rounded to a smaller format."""
    s, seen, v, sink = parts(call)
    if sink is None:
        with np.errstate(all="ignore"):
            top = s.max(-1, keepdims=True, initial=-np.inf)
            e = np.where(seen, np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
            for name in ("float8_e4m3fn", "float8_e5m2"):
                coarse = e.astype(np.float32).astype(dtype_of(name)).astype(np.float64)
                total = e.sum(-1, keepdims=True)
                yield Wrong("fp8 underflow", f"matches weights rounded to {name}, but not their sum",
                            weigh(coarse / np.where(total > 0, total, 1), v))  # fmt: skip
    for name in ("float8_e4m3fn", "bfloat16", "float16"):
        dtype = dtype_of(name)
        if dtype.itemsize >= call.dtype.itemsize:
            continue
        with np.errstate(all="ignore"):
            rounded = {a: getattr(call, a).astype(np.float32).astype(dtype).astype(np.float64) for a in ("q", "k", "v")}
            scores_only = {a: rounded[a] for a in ("q", "k")}
            yield Wrong("precision", f"matches inputs rounded to {name}", again(call.with_(**rounded)))
            yield Wrong("precision", f"matches q and k rounded to {name}", again(call.with_(**scores_only)))


def splits(call: Call) -> Iterator[Wrong]:
    """Keys in two halves whose states are merged by log-sum-exps of another base."""
    s, _, v, sink = parts(call)
    m = s.shape[-1]
    if m < 2 or sink is not None or call.mask is not None or call.bias is not None:
        return
    halves = (slice(0, m // 2), slice(m // 2, m))
    with np.errstate(all="ignore"):
        lses = [np.logaddexp.reduce(s[..., half], -1, keepdims=True) for half in halves]
        outs = [attend(s[..., half], v[:, :, half]) for half in halves]
        for text, factor in (("base-2 log-sum-exps merged as natural ones", 1 / math.log(2)),
                             ("natural log-sum-exps merged as base-2 ones", math.log(2))):  # fmt: skip
            top = np.maximum(*lses)
            weights = [
                np.exp(np.where(np.isfinite(x), (x - np.where(np.isfinite(top), top, 0)) * factor, -np.inf))
                for x in lses
            ]
            total = weights[0] + weights[1]
            merged = (weights[0] * outs[0] + weights[1] * outs[1]) / np.where(total > 0, total, 1)
            yield Wrong("LSE base", f"matches two halves of the keys with {text}", merged)
