"""How far a correct implementation may be off on one call: the worst case of its declared algorithm.

Guarantees: the bound is `compute.tolerance`'s, on the mask and biases that this package reads itself; with no
algorithm declared it is the largest over the sensible ones for the dtype, and `Judge.text` says so.
Does not: bound what an undeclared algorithm may do (a 16-bit accumulator is one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.reference import UNIT, USUAL, Reading, Truth, alibi, repeated, score_error
from verify.checking.rotary import rotated
from verify.errors import UsageError

SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
         "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # fmt: skip


@dataclass(frozen=True)
class Judge:
    """The algorithms a target may be running. text: how a person declares them."""

    algorithms: tuple[Any, ...]
    text: str
    declared: bool


@dataclass(frozen=True, eq=False)
class Allowed:
    """total (b, h, n, d_v), inf where a stored value may overflow; sources by name, of the loosest algorithm."""

    total: Array
    sources: dict[str, Array]
    overflow: Array


def sensible(dtype: str) -> Judge:
    """The loosest sensible algorithms of a dtype: results in the dtype, sums in float32 (float64 in float64)."""
    from compute.roundings import Eager, Flash

    wide = "float64" if dtype == "float64" else "float32"
    common: dict[str, Any] = {"accumulate": wide, "output": dtype, "weights": dtype, "exp_ulp": 4.0}
    stored = None if dtype == wide else dtype
    algorithms = (
        Eager(**common, scores=stored, scale_on="both", scale_format=stored),
        Flash(**common, block=16, base2=True, scale_on="query", scale_format=stored),
    )
    kept = f"scores and weights stored in {SHORT[dtype]}, " if stored else ""
    return Judge(algorithms, f"no algorithm declared; loosest sensible for {dtype}: {kept}sums in {SHORT[wide]}", False)


def parse_algorithm(text: str | Any | None, dtype: str) -> Judge:
    """`flash:block=128,weights=fp16,accumulate=fp32`, or an Algorithm of compute; None takes the loosest sensible."""
    if text is None:
        return sensible(dtype)
    from compute.errors import InputError
    from compute.roundings import Eager, Flash

    if not isinstance(text, str):
        return Judge((text,), str(text), True)
    name, _, rest = text.partition(":")
    kinds: dict[str, Any] = {"flash": Flash, "eager": Eager}
    if name not in kinds:
        raise UsageError(f"--algorithm {text}: expected flash:... or eager:..., as flash:block=128,weights=fp16")
    wide = "float64" if dtype == "float64" else "float32"
    options: dict[str, Any] = {"accumulate": wide, "output": dtype, "weights": wide}
    known = set(kinds[name].__dataclass_fields__)
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise UsageError(f"--algorithm {text}: {word!r} is not one of {', '.join(sorted(known))} with a value")
        options[key] = _value(value)
    block = options.get("block")
    if block is not None and (isinstance(block, bool) or not isinstance(block, int)):
        raise UsageError(f"--algorithm {text}: block is {block!r}: expected a number of keys, as 128")
    try:
        return Judge((kinds[name](**options),), text, True)
    except (InputError, TypeError) as error:
        raise UsageError(f"--algorithm {text}: {error}") from error


def _value(text: str) -> Any:
    if text.lower() in ("true", "yes", "false", "no"):
        return text.lower() in ("true", "yes")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text.lower() == "none" else text


def allowed(call: Call, right: Truth, judge: Judge, reading: Reading = USUAL) -> Allowed:
    """The worst-case bound of a call, per element, over the judge's algorithms."""
    parts = [_one(call, right, algorithm, reading) for algorithm in judge.algorithms]
    first = max(parts, key=lambda p: float(np.where(np.isfinite(p.total), p.total, 0).sum()))
    total = np.maximum.reduce([p.total for p in parts])
    overflow = np.logical_and.reduce([p.overflow for p in parts])
    # An overflow that only some algorithm predicts leaves the others' bound in force.
    finite = np.maximum.reduce([np.where(p.overflow, 0, p.total) for p in parts])
    total = np.where(overflow, np.inf, np.where(np.isfinite(total), total, finite))
    return Allowed(total, first.sources, overflow)


def _one(call: Call, right: Truth, algorithm: Any, reading: Reading) -> Allowed:
    from compute.bounds import tolerance

    q, k, v, mask, bias, extra = plain_problem(call, right, reading)
    lost, rest = _lost(call, right, algorithm, reading)
    if lost.any():
        mask = mask.copy()
        mask[..., : lost.shape[-1]] &= ~lost
        extra = extra + rest
    found = tolerance(q, k, v, call.spec.with_(causal="none", window=None, rope=None, past=0, groups=None),
                      algorithm, mask=mask, bias=bias)  # fmt: skip
    total = found.total + extra
    return Allowed(total, {**found.sources, "rotary": np.broadcast_to(extra, total.shape)}, found.overflow)


def _lost(call: Call, right: Truth, algorithm: Any, reading: Reading) -> tuple[Array, Array]:
    """Keys whose weight is 0, or a few of the least numbers, under any error of their score; and what those may add."""
    from compute.roundings import limits

    limit = limits(algorithm.accumulate)
    stored = getattr(algorithm, "scores", None)
    unit = max(limit.unit, limits(stored).unit if stored else 0.0)
    delta = score_error(call, right.scores, right.seen, u=2 * unit, function=8 * unit, reading=reading)
    top = np.where(right.seen, right.scores - delta, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        below = right.scores + delta - top
    lost = right.seen & (below < np.log(limit.tiny) - 1)
    if not lost.any():
        return lost, np.zeros((1, 1, 1, 1))
    size = np.abs(np.where(np.isfinite(call.v.astype(np.float64)), call.v.astype(np.float64), 0))
    most = size.max(axis=2, keepdims=True, initial=0).max(axis=1, keepdims=True)
    return lost, lost.sum(-1)[..., None] * 4 * limit.tiny * most


def plain_problem(
    call: Call, right: Truth, reading: Reading = USUAL
) -> tuple[Array, Array, Array, Array, Array | None, Array]:
    """The call as (q, k, v, mask, bias) with every head written out, and what a rotation may add to the bound.

    A sink becomes a key of score `sink` and value 0; ALiBi becomes a bias (rounded as a bias would be).
    """
    b, h, _, n, m = call.shape[:5]
    q, k, v = call.q, repeated(call.k, h, reading.tiled), repeated(call.v, h, reading.tiled)
    extra: Array = np.zeros((1, 1, 1, 1))
    if call.spec.rope is not None:
        unit = 2.0**-24 if call.dtype.itemsize <= 4 else 2.0**-53
        reach = n + m + abs(call.spec.rope.q_offset) + abs(call.spec.rope.k_offset)
        q, k = rotated(q, call, call.spec.rope.q_offset), rotated(k, call, call.spec.rope.k_offset)
        size = np.einsum("bhnd,bhmd->bhnm", np.abs(q), np.abs(k)).astype(np.float64)
        scale = abs(call.spec.scale_value(call.q.shape[3]))
        delta = 2 * scale * size.max(-1, keepdims=True, initial=0) * (4 * reach * unit + 8 * unit)
        if call.dtype.itemsize < 4:
            delta = delta + 2 * scale * size.max(-1, keepdims=True, initial=0) * float(_unit(call.dtype.name))
        extra = np.expm1(np.minimum(2 * delta, 50)) * np.abs(v.astype(np.float64)).max(axis=(2,), keepdims=True) * 2
        q, k = q.astype(np.float64), k.astype(np.float64)
    seen = right.seen
    bias = None if call.bias is None else np.broadcast_to(call.bias, (b, h, n, m)).astype(np.float64)
    if call.alibi_slopes is not None:
        bias = np.broadcast_to(alibi(call, reading), (b, h, n, m)).astype(np.float64) + (0 if bias is None else bias)
    if call.sink is not None:
        column = np.broadcast_to(call.sink.astype(np.float64).reshape(1, h, 1, 1), (b, h, n, 1))
        bias = np.concatenate([np.zeros((b, h, n, m)) if bias is None else bias, column], -1)
        seen = np.concatenate([seen, np.ones((b, h, n, 1), bool)], -1)
        k = np.concatenate([k, np.zeros_like(k[:, :, :1])], 2)
        v = np.concatenate([v, np.zeros_like(v[:, :, :1])], 2)
    if bias is not None:
        bias = np.where(seen, bias, 0)
    return q, k, v, seen, bias, extra


def _unit(dtype: str) -> float:
    from compute.roundings import limits

    return limits(dtype).unit


def lse_allowed(call: Call, right: Truth, judge: Judge, reading: Reading = USUAL) -> Array:
    """A bound on the error of the log-sum-exp (b, h, n): the scores' error, the sum's, and one rounding to its dtype.

    The log-sum-exp moves by at most the largest error of a score (it is 1-Lipschitz in the maximum norm).
    """
    unit = max(_unit(a.accumulate) for a in judge.algorithms)
    stored = [getattr(a, "scores", None) for a in judge.algorithms]
    store = max([0.0, *(_unit(s) for s in stored if s)])
    error = score_error(call, right.scores, right.seen, u=unit, store=store, function=8 * unit, reading=reading)
    delta = np.where(right.seen, error, 0).max(-1, initial=0)
    m = call.k.shape[2]
    size = np.abs(np.where(np.isfinite(right.lse), right.lse, 0)).astype(np.float64)
    out = max(_unit(a.output) for a in judge.algorithms)
    total = delta + (m + 16) * unit + (out + store + 4 * unit) * size + m * 2.0**-126
    return np.asarray(total / np.log(call.spec.lse_base) + UNIT)
