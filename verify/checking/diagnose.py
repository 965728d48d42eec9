"""A one-line diagnosis: the known misreading that a wrong output equals.

Guarantees: a diagnosis is only given when the output equals the misreading's everywhere within 16 times what rounding
is allowed, and the misreading itself differs from the right answer by more than that where the target failed.
Does not: prove a cause; two misreadings may agree on one input.
"""

from __future__ import annotations

import numpy as np

from verify.checking.calls import Array, Call, Reply
from verify.checking.values import Answer, Violation, comparable
from verify.checking.wrongs import alternatives, scaled_output

SLACK = 16.0


def diagnose(call: Call, reply: Reply, known: Answer, violation: Violation) -> tuple[str, str] | None:
    """(kind, text) of the first misreading that fits, or None."""
    if violation.name != "output" or not comparable(call, reply) or reply.output is None:
        return None
    if violation.rule not in ("values", "non-finite", "masks matter"):
        return None
    got = reply.output.astype(np.float64)
    judged = np.broadcast_to(known.judged[..., None], got.shape)
    room = SLACK * np.where(np.isfinite(known.allowed.total), known.allowed.total, 0) + 1e-300
    right = known.right.output.astype(np.float64)
    if not np.isfinite(got[judged]).all():
        return _overflow(call, known)
    for wrong in alternatives(call):
        output = wrong.output
        if output.shape != got.shape or not np.isfinite(output[judged]).all():
            continue
        scale = np.maximum(room, 4 * known.allowed.total * np.abs(output) / np.maximum(np.abs(right), 1e-300))
        near = np.abs(got - output) <= np.where(np.isfinite(scale), np.minimum(scale, room * 8), room)
        apart = np.abs(output - right) > room
        if near[judged].all() and (apart & judged).any():
            return wrong.kind, wrong.text
    return _scaled(call, got, judged, room)


def _scaled(call: Call, got: Array, judged: Array, room: Array) -> tuple[str, str] | None:
    """A factor on the scores that explains the output, found on a grid and refined."""
    own = call.spec.scale_value(call.q.shape[3])
    if own == 0 or got.size > 4096 or call.k.shape[2] > 512 or call.spec.softcap is not None:
        return None

    def off(factor: float) -> Array:
        return np.abs(got - scaled_output(call, factor))

    grid = [sign * 2.0 ** (i / 4) for sign in (1, -1) for i in range(-28, 29)]
    best = min(grid, key=lambda f: float(off(f)[judged].sum()))
    low, high = sorted((best * 2**-0.25, best * 2**0.25))
    for _ in range(60):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if off(a)[judged].sum() < off(b)[judged].sum() else (a, high)
    factor = (low + high) / 2
    if abs(factor - 1) < 2.0**-12 or not (off(factor) <= room)[judged].all():
        return None
    return "scale", f"matches scores multiplied by {factor:.6g}"


def _overflow(call: Call, known: Answer) -> tuple[str, str] | None:
    """What a NaN or an infinity is consistent with, where the scores say so."""
    if call.mask is not None or call.bias is not None:
        return None
    scores = known.right.scores
    finite = scores[np.isfinite(scores)]
    limit = float(np.log(3.4e38)) if call.dtype.itemsize <= 4 else 709.0
    scale = abs(call.spec.scale_value(call.q.shape[3]))
    if (
        call.dtype == np.float16
        and finite.size
        and scale
        and np.abs(finite).max() / scale > 65504 >= np.abs(finite).max()
    ):
        return "fp16 overflow", "consistent with q·k beyond 65504 before the scale"
    spread = float(np.ptp(finite)) if finite.size else 0.0
    if finite.size and finite.max() > limit and spread < limit:
        return "no max shift", f"consistent with exp of scores up to {finite.max():.4g} without the row's maximum"
    return None
