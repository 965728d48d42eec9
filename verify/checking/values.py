"""One reply held against the certified answer: metadata, then the pattern of NaN and infinity, then values.

Guarantees: a NaN in the reference is never a pass (the case is out of domain); a value is a violation only if it is
further from the enclosure than the worst case of the algorithm. Rows without keys are left to the conventions.
Does not: name the fault (that is `diagnose`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verify.checking.allowance import Allowed, Judge, allowed, lse_allowed
from verify.checking.calls import Array, Call, Reply
from verify.checking.reference import USUAL, Reading, Truth, truth

MOST_KEPT = 600
LARGEST_KEPT = 4_000
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
_KEPT: dict[bytes, Answer] = {}


@dataclass(frozen=True, eq=False)
class Violation:
    """A reply that can't be right. ratio: error over what is allowed (inf for NaN, shapes, crashes)."""

    rule: str
    message: str
    index: tuple[int, ...] = ()
    got: float | None = None
    expected: float | None = None
    radius: float | None = None
    allowed: float | None = None
    why: tuple[tuple[str, float], ...] = ()
    ulp: float | None = None
    ratio: float = float("inf")
    name: str = "output"


@dataclass(frozen=True, eq=False)
class Answer:
    """The right answer of a call, with what a correct implementation may be off by."""

    right: Truth
    allowed: Allowed
    judge: Judge
    cache: dict[str, Array] = field(default_factory=dict)

    @property
    def judged(self) -> Array:
        """Rows (b, h, n) whose values can be judged: some key, no score of +inf or NaN."""
        return ~self.right.empty & ~self.right.outside


def answer(call: Call, judge: Judge, reading: Reading = USUAL) -> Answer:
    """The answer to hold replies against. Answers of small calls are kept: a test suite asks the same ones again."""
    key = _key(call, judge, reading)
    known = _KEPT.get(key) if key is not None else None
    if known is None:
        right = truth(call, reading)
        known = Answer(right, allowed(call, right, judge, reading), judge)
        if key is not None:
            if len(_KEPT) >= MOST_KEPT:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = known
    return known


def _key(call: Call, judge: Judge, reading: Reading) -> bytes | None:
    """A digest of everything that an answer depends on; None for a large call."""
    b, h, _, n, m, _, d_v = call.shape
    if b * h * n * max(m, d_v) > LARGEST_KEPT:
        return None
    digest = hashlib.sha256(repr((judge.algorithms, reading, call.spec, call.lse)).encode())
    for name, array in call.arrays().items():
        digest.update(f"{name}{array.dtype.name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def metadata(call: Call, reply: Reply) -> list[Violation]:
    """What is wrong before any value is looked at."""
    if reply.fault is not None:
        return [Violation(reply.fault, reply.message)]
    found = []
    b, h, _, n, _, _, d_v = call.shape
    wanted = {"output": ((b, h, n, d_v), reply.output), "lse": ((b, h, n), reply.lse)}
    for name, (shape, array) in wanted.items():
        if array is None:
            continue
        if array.shape != shape:
            found.append(Violation("shape", f"{name} has shape {array.shape}: expected {shape}", name=name))
        elif name == "output" and array.dtype != call.dtype:
            text = f"output has dtype {array.dtype.name}: expected {call.dtype.name}, as q has"
            found.append(Violation("dtype", text, name=name))
    if reply.mutated:
        found.append(Violation("mutation", f"the call changed its input {', '.join(reply.mutated)}"))
    if reply.state:
        found.append(Violation("global state", f"the call changed global state: {', '.join(reply.state)}"))
    return found


def comparable(call: Call, reply: Reply) -> bool:
    """Whether the reply holds an output of the right shape."""
    b, h, _, n, _, _, d_v = call.shape
    return reply.fault is None and reply.output is not None and reply.output.shape == (b, h, n, d_v)


def differences(call: Call, reply: Reply, known: Answer) -> list[Violation]:
    """Non-finite entries where the answer is finite, then entries outside enclosure ± worst case."""
    found = []
    if comparable(call, reply) and reply.output is not None:
        right = known.right
        judged = np.broadcast_to(known.judged[..., None], reply.output.shape)
        found += worst(reply.output, right.output, right.radius, known.allowed.total, judged, "output",
                       known.allowed.sources, reply.output.dtype)  # fmt: skip
    if call.lse and reply.lse is not None and reply.lse.shape == known.right.lse.shape:
        room = lse_allowed(call, known.right, known.judge)
        found += worst(
            reply.lse, known.right.lse, known.right.lse_radius, room, known.judged, "lse", {}, reply.lse.dtype
        )
    return found


def overshoot(call: Call, reply: Reply, known: Answer) -> float:
    """The largest error over what is allowed, also below 1; inf for NaN or inf where the answer is finite."""
    if not comparable(call, reply) or reply.output is None:
        return 0.0
    found = [v.ratio for v in differences(call, reply, known)]
    if found:
        return max(found)
    right, room = known.right, known.allowed.total
    judged = np.broadcast_to(known.judged[..., None], reply.output.shape) & np.isfinite(room)
    error = np.abs(reply.output.astype(np.longdouble) - right.output)[judged]
    return float((error / (room + right.radius + SMALLEST)[judged]).max(initial=0))


def worst(
    got: Array, mid: Array, radius: Array, room: Array, judged: Array, name: str, sources: dict[str, Array], dtype: Any
) -> list[Violation]:
    """The worst violation among entries, or none. Where the room is infinite nothing is asked."""
    given = got.astype(np.longdouble)
    bounded = judged & np.isfinite(room)
    unruly = bounded & ~np.isfinite(given)
    if unruly.any():
        index = tuple(int(i) for i in np.argwhere(unruly)[0])
        value = float(given[index])
        text = f"{name} is {value} where the right value is {float(mid[index]):.9g}"
        return [Violation("non-finite", text, index, value, float(mid[index]), float(radius[index]), name=name)]
    with np.errstate(all="ignore"):
        error = np.abs(given - mid)
        allowance = room * (1 + 2.0**-40) + radius + SMALLEST
        ratio = np.where(bounded & np.isfinite(given), error / allowance, 0).astype(np.float64)
    if not ratio.size or ratio.max() <= 1:
        return []
    index = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    ulp = float(error[index] / unit_in_last_place(float(mid[index]), dtype))
    parts = sorted(((n, float(s[index])) for n, s in sources.items()), key=lambda p: -p[1])
    text = (
        f"{name} is {float(given[index]):.9g} where the right value is {float(mid[index]):.9g}: "
        f"{float(ratio[index]):.3g} times what the worst case allows"
    )
    return [
        Violation(
            "values", text, index, float(given[index]), float(mid[index]), float(radius[index]), float(room[index]),
            tuple(p for p in parts if p[1] > 0), ulp, float(ratio[index]), name,
        )
    ]  # fmt: skip


def unit_in_last_place(value: float, dtype: Any) -> float:
    """Spacing of the dtype at `value` (its least subnormal at 0)."""
    from compute.roundings import limits

    limit = limits(np.dtype(dtype).name if np.dtype(dtype).name != "longdouble" else "float64")
    exponent = np.floor(np.log2(abs(value))) if value and np.isfinite(value) else -2000.0
    return float(max(2 * limit.unit * 2.0 ** max(exponent, -1074.0), 2 * limit.tiny))
