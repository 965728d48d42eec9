"""Known wrong attentions: what a call gives when one thing about attention is misread.

Guarantees: `alternatives(call)` yields (kind, text, output) computed here in float64, each with exactly one misreading.
Does not: judge; `diagnose` compares a target's output with these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.spec import Rope
from verify.checking.calls import Array, Call, dtype_of
from verify.checking.reference import USUAL, Reading, raw_scores, repeated, rotated, seen_keys

Map = Callable[[Array], Array]


@dataclass(frozen=True)
class Wrong:
    """One misreading: its kind, a line for people, and what it gives on the call at hand."""

    kind: str
    text: str
    output: Array


def attend(s: Array, v: Array, *, sink: Array | None = None) -> Array:
    """softmax(s)·v in float64; rows of −inf give 0."""
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True, initial=-np.inf)
        if sink is not None:
            top = np.maximum(top, sink)
        top = np.where(np.isfinite(top), top, 0)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - top)
        p = np.where(total > 0, e / np.where(total > 0, total, 1), 0)
    return weigh(p, v)


def weigh(p: Array, v: Array) -> Array:
    """p·v in float64, v (b, h, m, d_v); NaN and inf of v count as 0 where p is 0."""
    clean = np.where(np.isfinite(v), v, 0)
    return np.einsum("bhnm,bhmd->bhnd", p, clean.astype(np.float64))


def alternatives(call: Call) -> Iterator[Wrong]:
    """Every misreading that applies to the call."""
    for family in (
        _slopes,
        _rotations,
        _splits,
        _scales,
        _softmaxes,
        _masks,
        _corners,
        _windows,
        _heads,
        _caps,
        _sinks,
        _keys,
        _sums,
        _inputs,
    ):
        yield from family(call)


def _parts(call: Call, reading: Reading = USUAL) -> tuple[Array, Array, Array, Array | None]:
    """(scores with −inf, seen, values, sink) in float64."""
    seen = seen_keys(call, reading)
    with np.errstate(all="ignore"):
        s = raw_scores(call, seen, reading).astype(np.float64)
    v = repeated(call.v, call.q.shape[1], reading.tiled).astype(np.float64)
    sink = None if call.sink is None else call.sink.astype(np.float64).reshape(-1, 1, 1)
    return s, seen, v, sink


def _again(call: Call, reading: Reading = USUAL) -> Array:
    s, _, v, sink = _parts(call, reading)
    return attend(s, v, sink=sink)


def _scales(call: Call) -> Iterator[Wrong]:
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
                    _again(call.with_(spec=call.spec.with_(scale=1.0 / math.sqrt(padded)))))  # fmt: skip
    for text, scale in others.items():
        if scale != own:
            yield Wrong("scale", f"matches {text}", _again(call.with_(spec=call.spec.with_(scale=scale))))


def scaled_output(call: Call, factor: float) -> Array:
    """The output with every score (before bias and sink) multiplied by a factor."""
    scale = factor * call.spec.scale_value(call.q.shape[3])
    return _again(call.with_(spec=call.spec.with_(scale=scale)))


def _softmaxes(call: Call) -> Iterator[Wrong]:
    s, seen, v, _ = _parts(call)
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
    yield Wrong("values", "the output is all zero", np.zeros((*s.shape[:3], v.shape[-1])))


def _masks(call: Call) -> Iterator[Wrong]:
    if call.mask is not None:
        opened = call.with_(mask=None)
        yield Wrong("mask meaning", "matches a mask read with True = masked (--spec mask=drop, if meant)",
                    _again(call.with_(mask=~call.mask)))  # fmt: skip
        yield Wrong("mask dropped", "matches the mask ignored", _again(opened))
        s, _, v, sink = _parts(opened)
        mask = np.broadcast_to(call.mask, s.shape)
        if s.shape[-1] == s.shape[-2]:
            yield Wrong("mask axis", "matches the mask transposed: applied over queries",
                        attend(np.where(np.swapaxes(mask, -1, -2), s, -np.inf), v, sink=sink))  # fmt: skip
        for fill in (10.0, 100.0, 1e4, 1e5, 1e9, 1e10, 1e30):
            yield Wrong("finite -inf", f"matches a mask imitated by adding {-fill:g}",
                        attend(np.where(mask, s, s - fill), v, sink=sink))  # fmt: skip
            yield Wrong("finite -inf", f"matches a mask imitated by a score of {-fill:g}",
                        attend(np.where(mask, s, -fill), v, sink=sink))  # fmt: skip
        yield Wrong(
            "mask meaning", "matches the mask multiplied onto the scores", attend(np.where(mask, s, 0.0), v, sink=sink)
        )
        yield Wrong("mask meaning", "matches the mask added as 0 and 1",
                    attend(np.where(mask, s + 1, s), v, sink=sink))  # fmt: skip
        if call.mask.shape[1] == 1 and s.shape[1] > 1:
            first = s.copy()
            first[:, 0] = np.where(mask[:, 0], s[:, 0], -np.inf)
            yield Wrong(
                "mask broadcast", "matches a broadcast mask applied to head 0 only", attend(first, v, sink=sink)
            )
        if call.mask.shape[0] == 1 and s.shape[0] > 1:
            first = s.copy()
            first[0] = np.where(mask[0], s[0], -np.inf)
            yield Wrong(
                "mask broadcast", "matches a broadcast mask applied to item 0 only", attend(first, v, sink=sink)
            )
        if call.spec.causal != "none":
            spec = call.spec.with_(causal="none")
            yield Wrong("mask dropped", "matches causal dropped where a mask is given", _again(call.with_(spec=spec)))
    if call.bias is not None:
        s, _, v, sink = _parts(call.with_(bias=None))
        yield Wrong("bias", "matches the bias ignored", attend(s, v, sink=sink))
        b = np.broadcast_to(call.bias.astype(np.float64), s.shape)
        filled = np.where(b != 0, -np.inf, s)
        yield Wrong("mask meaning", "matches a finite bias read as masked", attend(filled, v, sink=sink))
        yield Wrong("mask meaning", "matches a bias read as a mask, non-zero = takes part",
                    attend(np.where(b != 0, s, -np.inf), v, sink=sink))  # fmt: skip
        with np.errstate(invalid="ignore"):
            yield Wrong(
                "bias", "matches the bias with the wrong sign", attend(s - np.where(np.isfinite(b), b, 0), v, sink=sink)
            )
            scale = call.spec.scale_value(call.q.shape[3])
            yield Wrong("bias order", "matches the bias added before the scale", attend(s + b * scale, v, sink=sink))
            yield Wrong("mask meaning", "matches a mask of 0 and -inf read as 1 and 0: -1e9 where it is 0",
                        attend(np.where(b == 0, s - 1e9, -np.inf), v, sink=sink))  # fmt: skip
        if call.spec.causal != "none":
            spec = call.spec.with_(causal="none")
            yield Wrong("mask dropped", "matches causal dropped where a bias is given", _again(call.with_(spec=spec)))


def _corners(call: Call) -> Iterator[Wrong]:
    spec = call.spec
    if spec.causal == "none":
        return
    n, m = call.q.shape[2], call.k.shape[2]
    yield Wrong("causal dropped", "matches causal ignored", _again(call.with_(spec=spec.with_(causal="none"))))
    other = "bottom-right" if spec.causal == "top-left" else "top-left"
    if n != m or call.key_lengths is not None:
        kind = "static cache" if call.key_lengths is not None else "causal alignment"
        yield Wrong(kind, f"matches {other} causal", _again(call.with_(spec=spec.with_(causal=other))))
    if call.key_lengths is not None:
        full = call.with_(key_lengths=None)
        yield Wrong("static cache", "matches the whole cache read as filled", _again(full))
    s, _, v, sink = _parts(call.with_(spec=spec.with_(causal="none")))
    i, j = np.arange(n)[:, None] + (m - n if spec.causal == "bottom-right" else 0), np.arange(m)[None]
    yield Wrong("causal alignment", "matches strict causal: a query does not see its own key",
                attend(np.where(j < i, s, -np.inf), v, sink=sink))  # fmt: skip
    yield Wrong(
        "causal alignment", "matches causal one key too wide", attend(np.where(j <= i + 1, s, -np.inf), v, sink=sink)
    )
    yield Wrong("causal alignment", "matches causal upside down: only later keys are seen",
                attend(np.where(j >= i, s, -np.inf), v, sink=sink))  # fmt: skip


def _windows(call: Call) -> Iterator[Wrong]:
    window = call.spec.window
    if window is None:
        return

    def other(left: int | None, right: int | None) -> Array:
        return _again(call.with_(spec=call.spec.with_(window=(left, right))))

    left, right = window
    yield Wrong("window", "matches the window ignored", _again(call.with_(spec=call.spec.with_(window=None))))
    for step, text in ((1, "one key too wide"), (-1, "one key too narrow")):
        if left is not None and left + step >= 0:
            yield Wrong("window", f"matches a window {text} at the left end", other(left + step, right))
        if right is not None and right + step >= 0:
            yield Wrong("window", f"matches a window {text} at the right end", other(left, right + step))
        if left is not None and right is not None and left + step >= 0 and right + step >= 0:
            yield Wrong("window", f"matches a window {text} at both ends", other(left + step, right + step))
    if left != right:
        yield Wrong("window", "matches the window's left and right swapped", other(right, left))
    if right is not None:
        yield Wrong("window", "matches the right end ignored", other(left, None))
    if left is not None:
        yield Wrong("window", "matches the left end ignored", other(None, right))
    n, m = call.q.shape[2], call.k.shape[2]
    if n != m:
        s, _, v, sink = _parts(call.with_(spec=call.spec.with_(window=None)))
        for offset, name in ((0, "top-left"), (m - n, "bottom-right")):
            i, j = np.arange(n)[:, None] + offset, np.arange(m)
            inside = (j >= i - (m + n if left is None else left)) & (j <= i + (m + n if right is None else right))
            yield Wrong("window decode", f"matches a window around the {name} diagonal",
                        attend(np.where(inside, s, -np.inf), v, sink=sink))  # fmt: skip
        for corner in ("top-left", "bottom-right"):
            if call.spec.causal != "none" and corner != call.spec.causal:
                spec = call.spec.with_(causal=corner)
                yield Wrong(
                    "window decode", f"matches a window around the {corner} diagonal", _again(call.with_(spec=spec))
                )


def _heads(call: Call) -> Iterator[Wrong]:
    b, h, h_kv, n, m, _, d_v = call.shape
    if h_kv not in (1, h):
        yield Wrong(
            "GQA order",
            "matches tiled groups: query head i reads key-value head i % h_kv",
            _again(call, Reading(tiled=True)),
        )
    if h > 1 and h == h_kv and n == m:
        for name, arrays in (("v", ("v",)), ("q", ("q",)), ("k", ("k",)), ("q, k and v", ("q", "k", "v"))):
            swapped: dict[str, Any] = {a: getattr(call, a).reshape(b, n, h, -1).transpose(0, 2, 1, 3) for a in arrays}
            yield Wrong("layout", f"matches {name} read with heads and tokens swapped", _again(call.with_(**swapped)))
    if h > 1 and h == h_kv:
        mean = {a: np.broadcast_to(getattr(call, a)[:, :1], getattr(call, a).shape) for a in ("k", "v")}
        yield Wrong("layout", "matches every head reading head 0's keys and values", _again(call.with_(**mean)))
    out = _again(call)
    if h > 1:
        yield Wrong("layout", "matches an output with heads and tokens mixed",
                    out.transpose(0, 2, 1, 3).reshape(b, h, n, d_v))  # fmt: skip
    if b > 1:
        first = {a: np.broadcast_to(getattr(call, a)[:1], getattr(call, a).shape) for a in ("k", "v")}
        yield Wrong("layout", "matches every batch item reading item 0's keys and values", _again(call.with_(**first)))
    for name in ("q", "k", "v"):
        how = dict(call.memory).get(name)
        array = getattr(call, name)
        if how == "transposed" and array.shape[-1] > 1:
            wrong = np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(array.shape)
            yield Wrong("strides", f"matches {name} read in the order of memory", _again(call.with_(**{name: wrong})))


def _caps(call: Call) -> Iterator[Wrong]:
    cap = call.spec.softcap
    if cap is None:
        return
    yield Wrong(
        "softcap dropped", "matches the softcap ignored", _again(call.with_(spec=call.spec.with_(softcap=None)))
    )
    if call.bias is not None or call.alibi_slopes is not None:
        yield Wrong("softcap order", "matches the softcap applied after the bias", _again(call, Reading(cap_last=True)))
    s, _, v, sink = _parts(call.with_(spec=call.spec.with_(softcap=None)))
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


def _sinks(call: Call) -> Iterator[Wrong]:
    if call.sink is None:
        return
    s, _, v, sink = _parts(call)
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


def _slopes(call: Call) -> Iterator[Wrong]:
    if call.alibi_slopes is None:
        return
    slopes = call.alibi_slopes
    for factor, text in ((0.0, "ALiBi left out"), (-1.0, "ALiBi with the wrong sign"),
                         (2.0, "slopes one power of two too large"),
                         (0.5, "slopes one power of two too small")):  # fmt: skip
        yield Wrong("ALiBi", f"matches {text}", _again(call.with_(alibi_slopes=slopes * factor)))
    if len(slopes) == 1:
        yield Wrong("ALiBi", "matches a first slope of 1", _again(call.with_(alibi_slopes=np.ones(1))))
    if len(slopes) > 1:
        first = np.concatenate([[1.0], slopes[:-1].astype(np.float64)])
        yield Wrong("ALiBi", "matches slopes that start at 1", _again(call.with_(alibi_slopes=first)))
        even = 2.0 ** (-8.0 * (np.arange(len(slopes)) + 1) / len(slopes))
        yield Wrong("ALiBi", "matches slopes of one geometric row, for a count of heads that is no power of two",
                    _again(call.with_(alibi_slopes=even)))  # fmt: skip
    if call.spec.causal == "bottom-right" and call.q.shape[2] != call.k.shape[2]:
        spec = call.spec.with_(causal="none")
        yield Wrong("ALiBi", "matches distances counted from the top-left corner", _again(call.with_(spec=spec)))


def _rotations(call: Call) -> Iterator[Wrong]:
    rope = call.spec.rope
    if rope is None:
        return
    other: Any = "half" if rope.layout == "interleaved" else "interleaved"
    changed = {
        f"the {other} layout": ("RoPE layout", Rope(other, rope.base, rope.q_offset, rope.k_offset, rope.dims)),
        "positions that start at 0": ("RoPE precision", Rope(rope.layout, rope.base, 0, 0, rope.dims)),
        "base 1000": ("RoPE layout", Rope(rope.layout, 1000.0, rope.q_offset, rope.k_offset, rope.dims)),
    }
    for text, (kind, wrong) in changed.items():
        yield Wrong(kind, f"matches {text}", _again(call.with_(spec=call.spec.with_(rope=wrong))))
    for name in ("float16", "bfloat16"):
        for positions, angles in ((True, False), (False, True), (True, True)):
            what = " and ".join(w for w, on in (("positions", positions), ("angles", angles)) if on)
            coarse = _coarse_rotation(call, name, positions, angles)
            if coarse is not None:
                yield Wrong("RoPE precision", f"matches {what} rounded to {name}", coarse)
    yield from _half_turned(call)
    yield Wrong("RoPE layout", "matches no rotation", _again(call.with_(spec=call.spec.with_(rope=None))))


def _turned(call: Call, q: Array, k: Array) -> Array:
    return _again(call.with_(q=q, k=k, spec=call.spec.with_(rope=None)))


def _coarse_rotation(call: Call, name: str, positions: bool, angles: bool) -> Array | None:
    """The output with positions or angles rounded to a 16-bit format before the cosine."""
    rope = call.spec.rope
    assert rope is not None
    d = rope.dims or call.q.shape[3]
    if d % 2:
        return None
    dtype = dtype_of(name)

    def turn(x: Array, offset: int) -> Array:
        assert rope is not None
        place = (np.arange(x.shape[2]) + offset).astype(np.float64)
        place = place.astype(dtype).astype(np.float64) if positions else place
        angle = place[:, None] * rope.base ** (-2.0 * np.arange(d // 2) / d)
        angle = angle.astype(dtype).astype(np.float64) if angles else angle
        cos, sin, out = np.cos(angle), np.sin(angle), x.astype(np.float64)
        one, two = (slice(0, d // 2), slice(d // 2, d)) if rope.layout == "half" else (slice(0, d, 2), slice(1, d, 2))
        a, b = out[..., one].copy(), out[..., two].copy()
        out[..., one], out[..., two] = a * cos - b * sin, b * cos + a * sin
        return out

    return _turned(call, turn(call.q, rope.q_offset), turn(call.k, rope.k_offset))


def _half_turned(call: Call) -> Iterator[Wrong]:
    """Only the first halves (or the even channels) are turned."""
    rope = call.spec.rope
    assert rope is not None
    d = rope.dims or call.q.shape[3]
    if d % 2:
        return
    still = slice(d // 2, d) if rope.layout == "half" else slice(1, d, 2)
    arrays = []
    for x, offset in ((call.q, rope.q_offset), (call.k, rope.k_offset)):
        out = rotated(x, call, offset).astype(np.float64)
        out[..., still] = x[..., still]
        arrays.append(out)
    yield Wrong("RoPE layout", "matches a rotation whose second channels stay as they were", _turned(call, *arrays))


def _splits(call: Call) -> Iterator[Wrong]:
    """Keys in two halves whose states are merged by log-sum-exps of another base."""
    s, _, v, sink = _parts(call)
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


def _keys(call: Call) -> Iterator[Wrong]:
    s, _, v, sink = _parts(call)
    m = s.shape[-1]
    if m < 2:
        return
    for name, keep in (("last", np.arange(m) < m - 1), ("first", np.arange(m) > 0)):
        yield Wrong("key dropped", f"matches the {name} key dropped", attend(np.where(keep, s, -np.inf), v, sink=sink))
    for tile in (16, 32, 64, 128):
        if m > tile and m % tile:
            keep = np.arange(m) < m - m % tile
            yield Wrong("ragged tile", f"matches the keys beyond the last whole tile of {tile} dropped",
                        attend(np.where(keep, s, -np.inf), v, sink=sink))  # fmt: skip
            padding = -m % tile
            padded = np.concatenate([s, np.zeros((*s.shape[:-1], padding))], -1)
            zeros = np.concatenate([v, np.zeros((*v.shape[:2], padding, v.shape[-1]))], 2)
            yield Wrong(
                "ragged tile",
                f"matches a last tile of {tile} filled up with keys of score 0",
                attend(padded, zeros, sink=sink),
            )
    if call.key_lengths is not None:
        yield Wrong("static cache", "matches key lengths ignored", _again(call.with_(key_lengths=None)))


def _sums(call: Call) -> Iterator[Wrong]:
    """Sums kept in 16 bits, term after term: they stick at 2/u, or overflow."""
    s, seen, v, _ = _parts(call)
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


def _inputs(call: Call) -> Iterator[Wrong]:
    s, seen, v, sink = _parts(call)
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
            yield Wrong("precision", f"matches inputs rounded to {name}", _again(call.with_(**rounded)))
            yield Wrong("precision", f"matches q and k rounded to {name}", _again(call.with_(**scores_only)))
