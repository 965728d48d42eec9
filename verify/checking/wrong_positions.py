"""Misreadings of positions: ALiBi slopes and distances, rotary layout, angles and precision.

Guarantees: each outcome has exactly one thing wrong. Does not: judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from compute.spec import Rope
from verify.checking.calls import Array, Call, dtype_of
from verify.checking.outcomes import Wrong, again
from verify.checking.rotary import rotated


def slopes(call: Call) -> Iterator[Wrong]:
    """ALiBi: slopes and distances."""
    if call.alibi_slopes is None:
        return
    slopes = call.alibi_slopes
    for factor, text in ((0.0, "ALiBi left out"), (-1.0, "ALiBi with the wrong sign"),
                         (2.0, "slopes one power of two too large"),
                         (0.5, "slopes one power of two too small")):  # fmt: skip
        yield Wrong("ALiBi", f"matches {text}", again(call.with_(alibi_slopes=slopes * factor)))
    if len(slopes) == 1:
        yield Wrong("ALiBi", "matches a first slope of 1", again(call.with_(alibi_slopes=np.ones(1))))
    if len(slopes) > 1:
        first = np.concatenate([[1.0], slopes[:-1].astype(np.float64)])
        yield Wrong("ALiBi", "matches slopes that start at 1", again(call.with_(alibi_slopes=first)))
        even = 2.0 ** (-8.0 * (np.arange(len(slopes)) + 1) / len(slopes))
        yield Wrong("ALiBi", "matches slopes of one geometric row, for a count of heads that is no power of two",
                    again(call.with_(alibi_slopes=even)))  # fmt: skip
    if call.spec.causal == "bottom-right" and call.q.shape[2] != call.k.shape[2]:
        spec = call.spec.with_(causal="none")
        yield Wrong("ALiBi", "matches distances counted from the top-left corner", again(call.with_(spec=spec)))


def rotations(call: Call) -> Iterator[Wrong]:
    """Rotary embeddings: layout, base, positions and their precision."""
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
        yield Wrong(kind, f"matches {text}", again(call.with_(spec=call.spec.with_(rope=wrong))))
    for name in ("float16", "bfloat16"):
        for positions, angles in ((True, False), (False, True), (True, True)):
            what = " and ".join(w for w, on in (("positions", positions), ("angles", angles)) if on)
            coarse = _coarse_rotation(call, name, positions, angles)
            if coarse is not None:
                yield Wrong("RoPE precision", f"matches {what} rounded to {name}", coarse)
    yield from _half_turned(call)
    yield Wrong("RoPE layout", "matches no rotation", again(call.with_(spec=call.spec.with_(rope=None))))


def _turned(call: Call, q: Array, k: Array) -> Array:
    return again(call.with_(q=q, k=k, spec=call.spec.with_(rope=None)))


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
