"""Misreadings of who sees whom: masks, corners, windows, heads, memory, keys at the ends.

Guarantees: each outcome has exactly one thing wrong. Does not: judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.outcomes import Wrong, again, attend, parts
from verify.checking.reference import Reading


def masks(call: Call) -> Iterator[Wrong]:
    """Masks and biases: polarity, axis, broadcast, sentinels, composition."""
    if call.mask is not None:
        opened = call.with_(mask=None)
        yield Wrong("mask meaning", "matches a mask read with True = masked (--spec mask=drop, if meant)",
                    again(call.with_(mask=~call.mask)))  # fmt: skip
        yield Wrong("mask dropped", "matches the mask ignored", again(opened))
        s, _, v, sink = parts(opened)
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
            yield Wrong("mask dropped", "matches causal dropped where a mask is given", again(call.with_(spec=spec)))
    if call.bias is not None:
        s, _, v, sink = parts(call.with_(bias=None))
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
            yield Wrong("mask dropped", "matches causal dropped where a bias is given", again(call.with_(spec=spec)))


def corners(call: Call) -> Iterator[Wrong]:
    """Causal: ignored, of the other corner, off by one, upside down."""
    spec = call.spec
    if spec.causal == "none":
        return
    n, m = call.q.shape[2], call.k.shape[2]
    yield Wrong("causal dropped", "matches causal ignored", again(call.with_(spec=spec.with_(causal="none"))))
    other = "bottom-right" if spec.causal == "top-left" else "top-left"
    if n != m or call.key_lengths is not None:
        kind = "static cache" if call.key_lengths is not None else "causal alignment"
        yield Wrong(kind, f"matches {other} causal", again(call.with_(spec=spec.with_(causal=other))))
    if call.key_lengths is not None:
        full = call.with_(key_lengths=None)
        yield Wrong("static cache", "matches the whole cache read as filled", again(full))
    s, _, v, sink = parts(call.with_(spec=spec.with_(causal="none")))
    i, j = np.arange(n)[:, None] + (m - n if spec.causal == "bottom-right" else 0), np.arange(m)[None]
    yield Wrong("causal alignment", "matches strict causal: a query does not see its own key",
                attend(np.where(j < i, s, -np.inf), v, sink=sink))  # fmt: skip
    yield Wrong(
        "causal alignment", "matches causal one key too wide", attend(np.where(j <= i + 1, s, -np.inf), v, sink=sink)
    )
    yield Wrong("causal alignment", "matches causal upside down: only later keys are seen",
                attend(np.where(j >= i, s, -np.inf), v, sink=sink))  # fmt: skip


def windows(call: Call) -> Iterator[Wrong]:
    """Windows: ignored, too wide, too narrow, swapped, around another diagonal."""
    window = call.spec.window
    if window is None:
        return

    def other(left: int | None, right: int | None) -> Array:
        return again(call.with_(spec=call.spec.with_(window=(left, right))))

    left, right = window
    yield Wrong("window", "matches the window ignored", again(call.with_(spec=call.spec.with_(window=None))))
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
        s, _, v, sink = parts(call.with_(spec=call.spec.with_(window=None)))
        for offset, name in ((0, "top-left"), (m - n, "bottom-right")):
            i, j = np.arange(n)[:, None] + offset, np.arange(m)
            inside = (j >= i - (m + n if left is None else left)) & (j <= i + (m + n if right is None else right))
            yield Wrong("window decode", f"matches a window around the {name} diagonal",
                        attend(np.where(inside, s, -np.inf), v, sink=sink))  # fmt: skip
        for corner in ("top-left", "bottom-right"):
            if call.spec.causal != "none" and corner != call.spec.causal:
                spec = call.spec.with_(causal=corner)
                yield Wrong(
                    "window decode", f"matches a window around the {corner} diagonal", again(call.with_(spec=spec))
                )


def heads(call: Call) -> Iterator[Wrong]:
    """Heads: order of groups, axes swapped, one head for all, memory order."""
    b, h, h_kv, n, m, _, d_v = call.shape
    if h_kv not in (1, h):
        yield Wrong(
            "GQA order",
            "matches tiled groups: query head i reads key-value head i % h_kv",
            again(call, Reading(tiled=True)),
        )
    if h > 1 and h == h_kv and n == m:
        for name, arrays in (("v", ("v",)), ("q", ("q",)), ("k", ("k",)), ("q, k and v", ("q", "k", "v"))):
            swapped: dict[str, Any] = {a: getattr(call, a).reshape(b, n, h, -1).transpose(0, 2, 1, 3) for a in arrays}
            yield Wrong("layout", f"matches {name} read with heads and tokens swapped", again(call.with_(**swapped)))
    if h > 1 and h == h_kv:
        mean = {a: np.broadcast_to(getattr(call, a)[:, :1], getattr(call, a).shape) for a in ("k", "v")}
        yield Wrong("layout", "matches every head reading head 0's keys and values", again(call.with_(**mean)))
    if h_kv > 1:
        for name, what in (("k", "keys"), ("v", "values")):
            array = getattr(call, name)
            one = np.broadcast_to(array[:, :1], array.shape)
            yield Wrong("layout", f"matches every head reading head 0's {what}", again(call.with_(**{name: one})))
    out = again(call)
    if h > 1:
        yield Wrong("layout", "matches an output with heads and tokens mixed",
                    out.transpose(0, 2, 1, 3).reshape(b, h, n, d_v))  # fmt: skip
    if b > 1:
        first = {a: np.broadcast_to(getattr(call, a)[:1], getattr(call, a).shape) for a in ("k", "v")}
        yield Wrong("layout", "matches every batch item reading item 0's keys and values", again(call.with_(**first)))
    for name in ("q", "k", "v"):
        how = dict(call.memory).get(name)
        array = getattr(call, name)
        if how == "transposed" and array.shape[-1] > 1:
            wrong = np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(array.shape)
            yield Wrong("strides", f"matches {name} read in the order of memory", again(call.with_(**{name: wrong})))


def keys(call: Call) -> Iterator[Wrong]:
    """Keys dropped or added at the ends and at tile edges."""
    s, _, v, sink = parts(call)
    m = s.shape[-1]
    if m < 2:
        return
    for name, keep in (("last", np.arange(m) < m - 1), ("first", np.arange(m) > 0)):
        yield Wrong("key dropped", f"matches the {name} key dropped", attend(np.where(keep, s, -np.inf), v, sink=sink))
    for step, text in ((1, "key j weighs value j - 1"), (-1, "key j weighs value j + 1")):
        yield Wrong("layout", f"matches keys and values one place apart: {text}",
                    attend(s, np.roll(v, step, axis=2), sink=sink))  # fmt: skip
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
        yield Wrong("static cache", "matches key lengths ignored", again(call.with_(key_lengths=None)))
