"""A one-line diagnosis: the known misreading that a wrong output equals.

Guarantees: a diagnosis is only given when the output equals the misreading's everywhere within at most 3 times what
rounding is allowed, and the misreading itself differs from the right answer by more than that where the target failed.
Does not: prove a cause; two misreadings may agree on one input.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from verify.checking.allowance import sensible
from verify.checking.calls import Array, Call, Reply
from verify.checking.outcomes import Wrong, scaled_output
from verify.checking.values import Answer, Violation, answer, comparable, differences
from verify.checking.wrong_scores import ALL_ZERO
from verify.checking.wrongs import alternatives

SLACK = 3.0
FLOAT32 = (
    "looks like float32 arithmetic: the errors are within float32's bound; try --dtype float32 (dtype='float32'), "
    "or declare --algorithm eager:accumulate=fp32,output=fp32"
)
# Of the largest value: an error of float32 sums is smaller, unless scores are large.
SMALL = 1e-4
MULTIPLIED = "matches scores multiplied by"


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
WEAK = frozenset(("values", "scale", "precision", "softmax missing"))
ACCUMULATORS = frozenset(("fp16 accumulation", "bf16 accumulation"))


@dataclass(frozen=True)
class Evidence:
    """What one failing case says of the misreadings. fits: (kind, text) of those its output equals, nearest first.
    refuted: texts of those that apply to it and leave it unexplained. scaled: a factor on the scores that fits.
    narrow: the output is right for float32, where float64 was asked."""

    fits: tuple[tuple[str, str], ...] = ()
    refuted: frozenset[str] = frozenset()
    scaled: tuple[str, str] | None = None
    overflow: tuple[str, str] | None = None
    narrow: bool = False


NOTHING = Evidence()


def diagnose(
    call: Call, reply: Reply, known: Answer, violation: Violation, about: str = "values"
) -> tuple[str, str] | None:
    """(kind, text) of the misreading that fits best, or None."""
    if violation.name == "lse":
        return _log_sum(reply, known)
    return choose(evidence(call, reply, known, violation), about)


def choose(found: Evidence, about: str, established: Collection[str] = ()) -> tuple[str, str] | None:
    """(kind, text) of the misreading that fits best, or None.

    One that explained an earlier case comes first: one fault is likelier than two. Else, of several that fit, one of
    the kind the case is about; a weak likeness (all zero, a plain mean, a factor on the scores) explains, but names
    the kind only where the case is about nothing in particular.
    """
    if found.narrow:
        return "precision", FLOAT32
    if found.overflow is not None:
        return found.overflow
    for kind, text in found.fits:
        if text in established:
            return (kind if (kind not in WEAK and about not in PINNED) or about in GENERIC else about), text
    for named in found.fits:
        if named[0] == about:
            return named
    for named in found.fits:
        if about not in PINNED and named[0] not in WEAK:
            return named
    if about in PINNED:
        return None
    weak = found.fits[0] if found.fits else found.scaled
    if weak is None:
        return None
    return (weak[0] if about in GENERIC else about), weak[1]


def says(found: Evidence, diagnosis: str) -> bool:
    """Whether a case's evidence holds a diagnosis. Factors on the scores and overflows count whatever their number."""
    if any(text == diagnosis for _, text in found.fits):
        return True
    if found.overflow is not None:
        return diagnosis.startswith("consistent with")
    return found.scaled is not None and diagnosis.startswith(MULTIPLIED)


def evidence(call: Call, reply: Reply, known: Answer, violation: Violation) -> Evidence:
    """Every misreading held against one failing output; under float64, float32 arithmetic too."""
    found = _held(call, reply, known, violation)
    if call.dtype != np.float64 or known.judge.declared or not comparable(call, reply) or violation.name != "output":
        return found
    coarse = _in_float32(call, reply, known)
    if coarse is None:
        return replace(found, refuted=found.refuted | {FLOAT32})
    if not coarse.narrow:
        return replace(coarse, fits=tuple(fit for fit in coarse.fits if fit[0] not in ACCUMULATORS))
    return replace(found, fits=coarse.fits + found.fits, narrow=True)


def _held(call: Call, reply: Reply, known: Answer, violation: Violation) -> Evidence:
    if violation.name != "output" or not comparable(call, reply) or reply.output is None:
        return NOTHING
    if violation.rule not in ("values", "non-finite", "masks matter"):
        return NOTHING
    got = reply.output.astype(np.float64)
    judged = np.broadcast_to(known.judged[..., None], got.shape)
    allowed = np.where(np.isfinite(known.allowed.total), known.allowed.total, 0)
    # A fault just beyond the allowance can only be told apart by outputs much closer than that.
    room = float(np.clip(violation.ratio / 4, 0.25, SLACK)) * allowed + 1e-300
    right = known.right.output.astype(np.float64)
    if not np.isfinite(got[judged]).all():
        return Evidence(overflow=_overflow(call, known))
    fits: list[tuple[float, tuple[str, str]]] = []
    refuted: set[str] = set()
    idle: set[str] = set()
    moved: set[str] = set()
    for wrong in alternatives(call):
        if call.dtype == np.float64 and wrong.kind in ACCUMULATORS:
            continue  # no implementation takes float64 and sums in 16 bits
        if degenerate(wrong, judged):
            continue
        if _fits(wrong.output, got, right, judged, room):
            fits.append((float(np.abs(wrong.output - got)[judged].max(initial=0)), (wrong.kind, wrong.text)))
        elif _unexplained(wrong.output, got, right, judged, SLACK * allowed + 1e-300):
            refuted.add(wrong.text)
        if wrong.kind in ACCUMULATORS:
            still = wrong.output.shape == got.shape and _near(wrong.output, right, judged, SLACK * allowed + 1e-300)
            (idle if still else moved).add(wrong.text)
    # An accumulator that leaves this case as it is can't be why it fails by far: the fault lies elsewhere.
    if violation.ratio > SLACK:
        refuted |= idle - moved
    # Nearest first, but what is only "consistent with" a sum in 16 bits gives way to what says what is misread.
    fits.sort(key=lambda f: (f[1][0] in ACCUMULATORS, f[0]))
    scaled = _scaled(call, got, judged, room) if not fits else None
    named = tuple(name for _, name in fits)
    return Evidence(named, frozenset(refuted) - {text for _, text in named}, scaled)


def _in_float32(call: Call, reply: Reply, known: Answer) -> Evidence | None:
    """What a float64 case says when read in float32, if its output is one that float32 arithmetic could give.

    The inputs are rounded to float32 as such a target rounds them; a fault beyond float32's bound is then diagnosed
    within that bound. None where the output is not of float32, or an input is beyond float32's range.
    """
    out = reply.output
    if out is None:
        return None
    with np.errstate(all="ignore"):
        narrow = np.array_equal(out, out.astype(np.float32), equal_nan=True)
        error = np.abs(out - known.right.output)[known.judged]
        if not narrow and not error.max(initial=0) <= SMALL * np.abs(call.v).max(initial=0):
            return None
        arrays = {name: a.astype(np.float32) for name, a in call.arrays().items() if a.dtype == np.float64}
    if any(not np.array_equal(np.isfinite(a), np.isfinite(getattr(call, name))) for name, a in arrays.items()):
        return None
    less = call.with_(**arrays)
    right = answer(less, sensible("float32"))
    given = Reply(output=out.astype(np.float32) if narrow else out)
    found = differences(less, given, right)
    if not found:
        return Evidence(fits=(("precision", FLOAT32),), narrow=True)
    return _held(less, given, right, found[0]) if narrow else None


def degenerate(wrong: Wrong, judged: Array) -> bool:
    """Whether a misreading gives 0 wherever it is judged: many give that, and a target that writes nothing does.

    Only "the output is all zero" may be said then, which claims no cause.
    """
    if wrong.text == ALL_ZERO or wrong.output.shape != judged.shape:
        return False
    return not wrong.output[judged].any()


def _near(output: Array, right: Array, judged: Array, room: Array) -> bool:
    """Whether a misreading leaves every judged entry within what is allowed."""
    return bool(np.isfinite(output[judged]).all() and (np.abs(output - right) <= room)[judged].all())


def _fits(output: Array, got: Array, right: Array, judged: Array, room: Array) -> bool:
    """Whether a misreading's output is the target's, and is not the right one."""
    if output.shape != got.shape or not np.isfinite(output[judged]).all():
        return False
    scale = np.maximum(room, room * np.abs(output) / np.maximum(np.abs(right), 1e-300))
    near = np.abs(got - output) <= np.where(np.isfinite(scale), np.minimum(scale, room * 8), room)
    return bool(near[judged].all() and (np.abs(output - right) > room)[judged].any())


def _unexplained(output: Array, got: Array, right: Array, judged: Array, room: Array) -> bool:
    """Whether a misreading changes this case, and still leaves most of the target's error unexplained.

    Most is half: a misreading's own rounding (its scores may be larger) is never that much of a fault it explains.
    """
    if output.shape != got.shape or not np.isfinite(output[judged]).all():
        return False
    changes = (np.abs(output - right) > room)[judged].any()
    error = float(np.abs(got - right)[judged].max(initial=0))
    left = np.abs(got - output)
    return bool(changes and (left > 8 * room)[judged].any() and left[judged].max(initial=0) > error / 2)


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
    return "scale", f"{MULTIPLIED} {factor:.6g}"


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
