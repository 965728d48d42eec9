"""Designed and random inputs with masks, biases, corners, windows and lengths.

Guarantees and limits: as in `inputs`. Rows without any key appear on purpose; what they give is a convention, but the
rows beside them are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verify.checking.calls import Array
from verify.checking.cases import Case, Generator, Setting, direct
from verify.checking.inputs import TILES

T, F = True, False


def masks(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Boolean masks: True = the key takes part."""
    if not setting.can("mask"):
        return
    allowed = np.array([[[[T, F]]]])
    yield Case("equal scores, mask TF", "mask arithmetic", direct(setting, [1.0, 1.0], [4.0, 8.0], mask=allowed))
    yield Case("mask TF", "mask meaning", direct(setting, [0.0, 0.0], [1.0, 3.0], mask=np.array([[T, F]])[None, None]))
    eye = np.array([[T, F, F, F], [T, T, F, F], [T, F, T, F], [T, F, F, T]])
    rows = np.zeros((4, 4))
    yield Case("mask by rows", "mask axis", direct(setting, rows, [1.0, 2.0, 4.0, 8.0], mask=eye[None, None]))
    padded = np.broadcast_to(np.array([T, T, F, F]), (1, 1, 4, 4)).copy()
    yield Case("padding mask written out", "mask axis", direct(setting, rows, [1.0, 5.0, 9.0, 16.0], mask=padded))
    q, k, v = setting.normal(rng, 6, 9, 8, h=3, b=2)
    b, h = q.shape[:2]
    yield Case("random mask", "mask meaning", setting.call(q, k, v, mask=some(rng, b, h, 6, 9)))
    yield Case("mask over keys only", "mask broadcast", setting.call(q, k, v, mask=some(rng, 1, 1, 1, 9)))
    if not setting.single:
        yield Case("mask with a head axis of 1", "mask broadcast", setting.call(q, k, v, mask=some(rng, b, 1, 6, 9)))
        yield Case("mask with a batch axis of 1", "mask broadcast", setting.call(q, k, v, mask=some(rng, 1, h, 6, 9)))
    mask = np.array([[[[T, F]]]])
    yield Case("masked score 12 above the other", "finite -inf", direct(setting, [0.0, 12.0], [0.0, 1.0], mask=mask))
    yield Case(
        "score -12000 beside a masked 500", "finite -inf", direct(setting, [-12032.0, 500.0], [1.0, 0.0], mask=mask)
    )
    for tile in TILES:
        m = 2 * tile + 2
        hidden = np.ones((1, 1, 1, m), bool)
        hidden[..., :tile] = False
        scores = np.full(m, -200.0)
        scores[tile + 1], scores[-1] = -199.0, -198.0
        values = np.full(m, 16.0)
        values[tile + 1], values[-1] = 18.0, 20.0
        yield Case(
            f"first {tile} keys masked, the rest near -200", "tile max", direct(setting, scores, values, mask=hidden)
        )
        ends = np.ones((1, 1, 1, m), bool)
        ends[..., -tile:] = False
        yield Case(f"last {tile} keys masked", "tile max", direct(setting, scores, values, mask=ends))
    rows = np.zeros((4, 4))
    empty = np.array([[F, F, F, F], [T, T, F, F], [F, F, F, F], [T, T, T, T]])
    yield Case(
        "an empty row beside others", "empty row", direct(setting, rows, [3.0, 5.0, 7.0, 9.0], mask=empty[None, None])
    )
    if setting.batches:
        call = setting.call(q[:1].repeat(2, 0), k[:1].repeat(2, 0), v[:1].repeat(2, 0), mask=_items(9))
        yield Case("an item without keys beside another", "empty row", call)
    wide = np.eye(300, dtype=bool)[None, None]
    v300 = (np.arange(300) % 16 + 1.0)[:, None]
    yield Case("each of 300 rows sees its own key", "index width",
               setting.call(np.zeros((300, 1)), np.zeros((300, 1)), v300, mask=wide))  # fmt: skip


def some(rng: Generator, *shape: int) -> Array:
    """A random mask in which no row is empty."""
    mask = rng.random(shape) < 0.6
    mask[..., 0] |= ~mask.any(-1)
    return mask


def _items(m: int) -> Array:
    return np.stack([np.ones((1, 1, m), bool), np.zeros((1, 1, m), bool)])


def biases(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Additive biases: finite values add, −inf masks."""
    if not setting.can("bias"):
        return
    inf = -np.inf
    yield Case(
        "bias 0, -1.5, scores 1, 3", "mask meaning", direct(setting, [1.0, 3.0], [0.0, 1.0], bias=_bias([0.0, -1.5]))
    )
    yield Case("bias 0, -1.5", "mask meaning", direct(setting, [1.0, 1.0], [0.0, 1.0], bias=_bias([0.0, -1.5])))
    yield Case("bias 0.5, -inf", "mask arithmetic", direct(setting, [0.0, 0.0], [4.0, 9.0], bias=_bias([0.5, inf])))
    yield Case(
        "bias 0, 0, -inf", "mask meaning", direct(setting, [3.0, 0.0, 7.0], [1.0, 0.0, 5.0], bias=_bias([0, 0, inf]))
    )
    yield Case("bias 1, 1", "mask values", direct(setting, [0.0, 1.0], [1.0, 0.0], bias=_bias([1.0, 1.0])))
    q, k, v = setting.normal(rng, 5, 7, 8, h=2, b=2)
    b, h = q.shape[:2]
    yield Case("random bias", "bias", setting.call(q, k, v, bias=rng.standard_normal((b, h, 5, 7)) * 2))
    yield Case("bias over keys only", "bias", setting.call(q, k, v, bias=rng.standard_normal((1, 1, 1, 7)) * 2))
    holes = np.where(some(rng, b, h, 5, 7), rng.standard_normal((b, h, 5, 7)), inf)
    yield Case("random bias with -inf", "mask arithmetic", setting.call(q, k, v, bias=holes))
    if setting.can("mask"):
        call = setting.call(q, k, v, bias=rng.standard_normal((b, h, 5, 7)), mask=some(rng, b, h, 5, 7))
        yield Case("bias and mask", "mask composition", call)
    if setting.can("softcap") or setting.base.softcap:
        spec = setting.spec(softcap=2.0) if setting.can("softcap") else None
        yield Case(
            "softcap and bias", "softcap order", direct(setting, [3.0, 0.0], [1.0, 0.0], spec, bias=_bias([0.0, 2.0]))
        )


def _bias(row: Any) -> Array:
    return np.asarray(row, np.float64)[None, None, None]


def causal(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Causal with n = m; other lengths only under a declared corner."""
    if not setting.can("causal") and setting.base.causal == "none":
        return
    spec = setting.spec(causal=True) if setting.can("causal") else setting.base
    zeros = np.zeros((4, 4))
    yield Case("causal, equal scores", "causal dropped", direct(setting, zeros, [2.0, 6.0, 10.0, 30.0], spec))
    q, k, v = setting.normal(rng, 11, 11, 8, h=2, b=2)
    yield Case("causal, 11 keys", "causal dropped", setting.call(q, k, v, spec))
    q, k, v = setting.normal(rng, 70, 70, 4, h=1)
    yield Case("causal, 70 keys, large scores", "causal dropped", setting.call(q * 20, k, v, spec))
    low = np.full((131, 1), -15.0)
    yield Case(
        "causal, all scores low",
        "tile max",
        setting.call(np.full((131, 1), 16.0), low, np.arange(131.0)[:, None] % 16, spec),
    )
    for n, m in ((1, 4), (2, 4), (3, 5), (3, 2), (5, 1), (1, 1)):
        v0 = np.arange(1.0, m + 1)[:, None] * 2
        call = setting.call(np.zeros((n, 1)), np.zeros((m, 1)), v0, spec)
        yield Case(f"causal, {n} queries, {m} keys", "causal alignment", call)
    if setting.can("mask"):
        q, k, v = setting.normal(rng, 9, 9, 8, h=2, b=1)
        call = setting.call(q, k, v, spec, mask=np.ones((1, 1, 9, 9), bool))
        yield Case("causal and a mask of True", "mask dropped", call)
        call = setting.call(q, k, v, spec, mask=some(rng, 1, 1, 9, 9) | np.eye(9, dtype=bool))
        yield Case("causal and a random mask", "mask composition", call)
    if setting.can("bias"):
        q, k, v = setting.normal(rng, 9, 9, 8, h=2, b=1)
        yield Case("causal and a bias of 0", "mask dropped", setting.call(q, k, v, spec, bias=np.zeros((1, 1, 9, 9))))
        yield Case(
            "causal and a bias", "mask composition", setting.call(q, k, v, spec, bias=rng.standard_normal((1, 1, 9, 9)))
        )


def windows(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Windows, inclusive at both ends, around the diagonal of the corner."""
    built = setting.base.window is not None
    if not setting.can("window") and not built:
        return
    causal_too = setting.can("causal") or setting.base.causal != "none"
    sizes: list[Any] = [(1, 0), (2, 0), (0, 0), (0, 1), (1, 1), (2, None)]
    declared = setting.declared.spec.window
    if declared is not None and declared not in sizes:
        sizes.insert(0, declared)
    if built:
        sizes = [setting.base.window]
    for window in sizes:
        changes: dict[str, Any] = {} if built else {"window": window}
        if causal_too and window[1] in (0, None) and setting.can("causal"):
            changes["causal"] = True
        spec = setting.spec(**changes)
        left, right = (str(w) if w is not None else "all" for w in window)
        label = f"window {left} back, {right} ahead"
        for n, m, about in ((6, 6, "window"), (1, 5, "window decode"), (2, 6, "window")):
            v = (2.0 ** np.arange(m))[:, None]
            call = setting.call(np.zeros((n, 1)), np.zeros((m, 1)), v, spec)
            yield Case(f"{label}, {n} queries, {m} keys", about, call)
        q, k, v = setting.normal(rng, 40, 40, 4, h=1)
        yield Case(f"{label}, 40 keys", "window", setting.call(q, k, v, spec))
    if not built:
        v = np.array([[2.0], [4.0]])
        yield Case(
            "no window",
            "window",
            setting.call(np.zeros((2, 1)), np.zeros((2, 1)), v, setting.spec(window=(None, None))),
        )
        q, k, v = setting.normal(rng, 200, 200, 4, h=1)
        spec = setting.spec(window=(128, 0), **({"causal": True} if setting.can("causal") else {}))
        yield Case("window 128 back, 200 keys", "window", setting.call(q, k, v, spec))


def lengths(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Key lengths by item, zero among them."""
    if not setting.can("key_lengths") or not setting.batches:
        return
    v = np.arange(1.0, 9.0)
    values = np.stack([v, v, v, v])[:, None, :, None]
    zeros = np.zeros((4, 1, 8, 1))
    there = np.array([0, 3, 0, 5])
    yield Case("lengths 0, 3, 0, 5", "zero length", setting.call(zeros[:, :, :1], zeros, values, key_lengths=there))
    q, k, v3 = setting.normal(rng, 4, 9, 8, h=2, b=3)
    yield Case("lengths 1, 9, 6", "static cache", setting.call(q, k, v3, key_lengths=np.array([1, 9, 6])))
    if setting.can("causal") and setting.corner == "bottom-right":
        q, k, v3 = setting.normal(rng, 2, 6, 4, h=1, b=2)
        call = setting.call(q, k, v3, setting.spec(causal=True), key_lengths=np.array([3, 6]))
        yield Case("causal into a cache filled to 3 of 6", "static cache", call)


MASKED = (masks, biases, causal, windows, lengths)
