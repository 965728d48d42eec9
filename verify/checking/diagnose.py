"""A one-line diagnosis: the known misreading that a wrong output equals.

Guarantees: a diagnosis is only given when the output equals the misreading's everywhere within at most 3 times what
rounding is allowed, and the misreading itself differs from the right answer by more than that where the target failed.
Does not: prove a cause; two misreadings may agree on one input.
"""

from __future__ import annotations

import numpy as np

from verify.checking.calls import Array, Call, Reply
from verify.checking.outcomes import scaled_output
from verify.checking.values import Answer, Violation, comparable
from verify.checking.wrongs import alternatives

SLACK = 3.0


# Cases that are about nothing in particular: there a weak likeness may name the kind.
GENERIC = frozenset(
    (
        "values",
        "scale",
        "head padding",
        "layout",
        "d_v != d_k",
        "softmax missing",
        "softmax axis",
        "long row",
        "key dropped",
    )
)
# Cases built for one fault: a likeness on their few numbers is a coincidence.
PINNED = frozenset(
    (
        "tile max",
        "finite -inf",
        "no max shift",
        "underflow",
        "index width",
        "ragged tile",
        "fp16 overflow",
        "fp8 underflow",
    )
)
WEAK = frozenset(("values", "scale", "precision"))


def diagnose(
    call: Call, reply: Reply, known: Answer, violation: Violation, about: str = "values"
) -> tuple[str, str] | None:
    """(kind, text) of the misreading that fits best, or None.

    Of several that fit, one of the kind the case is about comes first; a weak likeness (all zero, a plain mean, a
    factor on the scores) explains, but names the kind only where the case is about nothing in particular.
    """
    if violation.name == "lse":
        return _log_sum(reply, known)
    if violation.name != "output" or not comparable(call, reply) or reply.output is None:
        return None
    if violation.rule not in ("values", "non-finite", "masks matter"):
        return None
    got = reply.output.astype(np.float64)
    judged = np.broadcast_to(known.judged[..., None], got.shape)
    # A fault just beyond the allowance can only be told apart by outputs much closer than that.
    slack = float(np.clip(violation.ratio / 4, 0.25, SLACK))
    room = slack * np.where(np.isfinite(known.allowed.total), known.allowed.total, 0) + 1e-300
    right = known.right.output.astype(np.float64)
    if not np.isfinite(got[judged]).all():
        return _overflow(call, known)
    fits = [w for w in alternatives(call) if _fits(w.output, got, right, judged, room)]
    fits.sort(key=lambda w: float(np.abs(w.output - got)[judged].max(initial=0)))
    for wrong in fits:
        if wrong.kind == about:
            return wrong.kind, wrong.text
    for wrong in fits:
        if about not in PINNED and wrong.kind not in WEAK:
            return wrong.kind, wrong.text
    if about in PINNED:
        return None
    weak = (fits[0].kind, fits[0].text) if fits else _scaled(call, got, judged, room)
    if weak is None:
        return None
    return (weak[0] if about in GENERIC else about), weak[1]


def _fits(output: Array, got: Array, right: Array, judged: Array, room: Array) -> bool:
    """Whether a misreading's output is the target's, and is not the right one."""
    if output.shape != got.shape or not np.isfinite(output[judged]).all():
        return False
    scale = np.maximum(room, room * np.abs(output) / np.maximum(np.abs(right), 1e-300))
    near = np.abs(got - output) <= np.where(np.isfinite(scale), np.minimum(scale, room * 8), room)
    return bool(near[judged].all() and (np.abs(output - right) > room)[judged].any())


def _log_sum(reply: Reply, known: Answer) -> tuple[str, str] | None:
    """What a wrong log-sum-exp equals."""
    if reply.lse is None or reply.lse.shape != known.right.lse.shape:
        return None
    judged = known.judged & np.isfinite(known.right.lse)
    got, right = reply.lse.astype(np.float64)[judged], known.right.lse.astype(np.float64)[judged]
    room = 1e-2 * (1 + np.abs(right))
    if not got.size or not np.isfinite(got).all():
        return None
    others = {
        ("mask values", "matches scores with 1 added to each: the softmax hides it, the log-sum-exp does not"): right
        + 1,
        ("LSE base", "matches the log-sum-exp in base 2"): right / np.log(2),
        ("LSE base", "matches the log-sum-exp in base e, read as base 2"): right * np.log(2),
        ("LSE", "matches the log-sum-exp with the wrong sign"): -right,
    }
    for named, other in others.items():
        if (np.abs(got - other) <= room / 10).all() and (np.abs(other - right) > room).any():
            return named
    return None


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
