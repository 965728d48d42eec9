"""From a failing call to a small one that still fails, and to the features without which it does not.

Guarantees: every step was tried on the target and still fails the same rule. Does not: find the smallest of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compute.spec import Spec
from verify.checking.calls import Array, Call

Fails = Callable[[Call], bool]


def shrink(call: Call, fails: Fails, *, tries: int = 80) -> Call:
    """Drop items, heads, queries, keys and channels, then round numbers, while `fails` holds."""
    for _ in range(6):
        smaller = None
        for candidate in _smaller(call):
            tries -= 1
            if tries < 0:
                return call
            if fails(candidate):
                smaller = candidate
                break
        if smaller is None:
            break
        call = smaller
    for name in ("q", "k", "v"):
        for digits in (0, 1):
            array = getattr(call, name)
            rounded = np.round(array.astype(np.float64), digits).astype(array.dtype)
            tries -= 1
            if tries >= 0 and not np.array_equal(rounded, array) and fails(call.with_(**{name: rounded})):
                call = call.with_(**{name: rounded})
                break
    return call


def without_features(call: Call, fails: Fails, on: frozenset[str], base: Spec) -> tuple[Call, tuple[str, ...]]:
    """(a failing call with as few of the features `on` as can be, those it needs): without any one of them it passes.

    base: what every call of the target has.
    """
    left = [name for name in OFF if name in on]
    while True:
        for name in left:
            candidate = OFF[name](call, base)
            if fails(candidate):
                call = candidate
                left.remove(name)
                break
        else:
            return call, tuple(name for name in ORDER if name in left)


def _spec(name: str) -> Callable[[Call, Spec], Call]:
    """One field of the Spec back to the target's own."""
    return lambda call, base: call.with_(spec=call.spec.with_(**{name: getattr(base, name)}))


# What is easiest to miss first: a fault is told by masks and variants rather than by memory or a log-sum-exp.
OFF: dict[str, Callable[[Call, Spec], Call]] = {
    "memory": lambda call, base: call.with_(memory=()),
    "lse": lambda call, base: call.with_(lse=False),
    "scale": _spec("scale"),
    "bias": lambda call, base: call.with_(bias=None),
    "mask": lambda call, base: call.with_(mask=None),
    "causal": _spec("causal"),
    "window": _spec("window"),
    "softcap": _spec("softcap"),
    "sink": lambda call, base: call.with_(sink=None),
    "ALiBi": lambda call, base: call.with_(alibi_slopes=None),
    "RoPE": _spec("rope"),
}
ORDER = ("mask", "causal", "window", "softcap", "sink", "ALiBi", "RoPE", "scale", "bias", "lse", "memory")


def _smaller(call: Call) -> Iterator[Call]:
    b, h, h_kv, n, m, d, d_v = call.shape
    group = h // max(h_kv, 1)
    if b > 1:
        for i in range(min(b, 3)):
            yield _take(call, 0, [i], [i])
    if h_kv > 1:
        for g in range(min(h_kv, 4)):
            yield _take(call, 1, list(range(g * group, (g + 1) * group)), [g])
    plain = (
        call.spec.causal == "none" and call.spec.window is None and call.alibi_slopes is None and call.spec.rope is None
    )
    if n > 1 and plain:
        yield _take(call, 2, list(range(n // 2)), None)
        yield _take(call, 2, list(range(n // 2, n)), None)
    if m > 1 and plain and call.key_lengths is None:
        for part in (range(m // 2), range(m // 2, m), range(m - 1), range(1, m)):
            yield _take(call, 3, None, list(part))
    if not plain and n == m and n > 1:
        yield _take(_take(call, 2, list(range(n // 2)), None), 3, None, list(range(n // 2)))
        yield _take(_take(call, 2, list(range(n - 1)), None), 3, None, list(range(n - 1)))
    if d_v > 1:
        for c in (0, d_v - 1):
            yield call.with_(v=call.v[..., c : c + 1])
    if d > 1 and call.spec.rope is None:
        for width in (1, d // 2):
            yield call.with_(q=call.q[..., :width], k=call.k[..., :width])


def _take(call: Call, axis: int, mine: list[int] | None, keys: list[int] | None) -> Call:
    """Keep some items (axis 0), heads (1), queries (2) or keys (3) everywhere they appear."""
    changes: dict[str, Any] = {}
    if axis < 2:
        changes["q"] = np.take(call.q, mine or [], axis)
        changes |= {"k": np.take(call.k, keys or [], axis), "v": np.take(call.v, keys or [], axis)}
    elif axis == 2:
        changes["q"] = np.take(call.q, mine or [], 2)
    else:
        changes |= {"k": np.take(call.k, keys or [], 2), "v": np.take(call.v, keys or [], 2)}
    index = keys if axis == 3 else mine
    for name in ("mask", "bias", "dropout_mask"):
        array = getattr(call, name)
        if array is not None and array.shape[axis] > 1:
            changes[name] = np.take(array, index or [], axis)
    if axis == 1:
        for name in ("sink", "alibi_slopes"):
            array = getattr(call, name)
            if array is not None:
                changes[name] = np.take(array, mine or [], 0)
    if axis == 0 and call.key_lengths is not None:
        changes["key_lengths"] = np.take(call.key_lengths, mine or [], 0)
    if call.grad_output is not None and axis < 3:
        changes["grad_output"] = np.take(call.grad_output, mine or [], axis)
    return call.with_(**changes)


def shown(call: Call, most: int = 24) -> dict[str, Any]:
    """The call as numbers, if it is small enough to print; else its shapes."""
    found: dict[str, Any] = {}
    for name, array in call.arrays().items():
        small = array.size <= most
        found[name] = _numbers(array) if small else f"{array.dtype.name}{list(array.shape)}"
    spec = call.spec
    for name in ("scale", "causal", "window", "softcap", "rope"):
        value = getattr(spec, name)
        if value not in (None, "none"):
            found[name] = str(value) if not isinstance(value, (int, float)) else value
    if call.memory:
        found["memory"] = ", ".join(f"{name} {how}" for name, how in call.memory)
    return found


def _numbers(array: Array) -> Any:
    squeezed = array.reshape(array.shape[-2:]) if array.ndim == 4 and array.shape[:2] == (1, 1) else array
    if array.dtype == bool:
        return squeezed.tolist()
    return (
        np.vectorize(lambda x: float(f"{x:.6g}"), otypes=[float])(squeezed.astype(np.float64)).tolist()
        if array.size
        else []
    )
