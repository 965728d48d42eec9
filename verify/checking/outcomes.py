"""What a wrong attention gives: the tools that the families of misreadings share.

Guarantees: everything is computed here in float64, by code that shares nothing with `compute`.
Does not: know any misreading (those are `wrong_scores`, `wrong_places`, `wrong_positions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.reference import USUAL, Reading, raw_scores, repeated, seen_keys


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


def parts(call: Call, reading: Reading = USUAL) -> tuple[Array, Array, Array, Array | None]:
    """(scores with −inf, seen, values, sink) in float64."""
    seen = seen_keys(call, reading)
    with np.errstate(all="ignore"):
        s = raw_scores(call, seen, reading).astype(np.float64)
    v = repeated(call.v, call.q.shape[1], reading.tiled).astype(np.float64)
    sink = None if call.sink is None else call.sink.astype(np.float64).reshape(-1, 1, 1)
    return s, seen, v, sink


def again(call: Call, reading: Reading = USUAL) -> Array:
    """The output of another call, or of the same one read otherwise."""
    s, _, v, sink = parts(call, reading)
    return attend(s, v, sink=sink)


def scaled_output(call: Call, factor: float) -> Array:
    """The output with every score (before bias and sink) multiplied by a factor."""
    scale = factor * call.spec.scale_value(call.q.shape[3])
    return again(call.with_(spec=call.spec.with_(scale=scale)))
