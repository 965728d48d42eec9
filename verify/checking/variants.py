"""Designed inputs for what not every attention has: scale, softcap, groups, sinks, ALiBi, RoPE, log-sum-exp, dropout.

Guarantees and limits: as in `inputs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verify.checking.arguments import ARGUMENTS
from verify.checking.cases import Case, Generator, Setting, direct
from verify.checking.combinations import combinations, sizes


def scales(setting: Setting, rng: Generator) -> Iterator[Case]:
    """A scale that is given: 1, negative, and one that is no power of two."""
    if not setting.can("scale"):
        return
    q, k, v = setting.normal(rng, 5, 6, 8)
    for scale in (1.0, 0.3, 0.125):
        yield Case(f"scale {scale:g} given", "scale", setting.call(q, k, v, setting.spec(scale=scale)))
    call = setting.call([[1.0]], [[2.0], [-2.0]], [[1.0], [0.0]], setting.spec(scale=-0.5))
    yield Case("scale -0.5 given", "scale", call)


def softcaps(setting: Setting, rng: Generator) -> Iterator[Case]:
    """c·tanh(s/c), before bias and mask."""
    built = setting.base.softcap is not None
    if not setting.can("softcap") and not built:
        return
    for cap in [setting.base.softcap] if built else [1.0, 2.0, 48.0]:
        spec = setting.base if built else setting.spec(softcap=cap)
        scores = np.array([3.0, 0.0, -1.0, 1.25]) * float(cap or 1) / 2
        yield Case(f"softcap {cap:g}", "softcap dropped", direct(setting, scores, [1.0, 0.0, 2.0, 4.0], spec))
        if setting.can("mask"):
            mask = np.array([[[[True, False, True, True]]]])
            call = direct(setting, scores, [1.0, 16.0, 2.0, 4.0], spec, mask=mask)
            yield Case(f"softcap {cap:g} and a mask", "softcap order", call)
        if setting.can("bias"):
            bias = np.array([[[[0.0, -np.inf, 0.0, 1.0]]]])
            call = direct(setting, scores, [1.0, 16.0, 2.0, 4.0], spec, bias=bias)
            yield Case(f"softcap {cap:g} and a bias", "softcap order", call)


def groups(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Query head i reads key-value head i // group."""
    g = setting.group
    if g == 1:
        return
    v = np.arange(1.0, 4.0)[:, None, None]
    q, k = np.zeros((3 * g, 1, 1)), np.zeros((3, 1, 1))
    yield Case(f"{3 * g} query heads, 3 key-value heads, one key", "GQA order", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 5, 5, 4, h=3)
    yield Case("grouped heads, normal", "GQA order", setting.call(q, k, v))
    if setting.can("causal"):
        zeros = np.zeros((1, 4, 1))
        values = np.array([1.0, 2.0, 4.0, 8.0])[None, :, None]
        call = setting.call(np.zeros((g, 4, 1)), zeros, values, setting.spec(causal=True))
        yield Case("grouped heads, causal", "GQA axis", call)


def sinks(setting: Setting, rng: Generator) -> Iterator[Case]:
    """A sink: a score without a key, in the denominator only."""
    if not setting.can("sink"):
        return

    def sink(x: float, heads: int = 1) -> Any:
        return np.full(heads * setting.group, x).astype(setting.kind)

    yield Case("sink 0", "sink", direct(setting, [0.0, 0.0], [3.0, 6.0], sink=sink(0.0)))
    yield Case("sink 0, scores 3 and 1", "softmax plus one", direct(setting, [3.0, 1.0], [1.0, 0.0], sink=sink(0.0)))
    yield Case("sink 100", "sink", direct(setting, [0.0, 0.0], [1.0, 2.0], sink=sink(100.0)))
    yield Case("sink 96, scores near 96", "sink", direct(setting, [96.0, 95.0], [1.0, 2.0], sink=sink(96.0)))
    yield Case("sink over 260 keys", "sink", direct(setting, np.zeros(260), np.ones(260) * 4, sink=sink(5.0)))
    q, k, v = setting.normal(rng, 5, 7, 4, h=3)
    own = rng.standard_normal(q.shape[1]).astype(setting.kind)
    yield Case("sinks by head", "sink", setting.call(q, k, v, sink=own))
    if setting.can("mask"):
        rows = np.zeros((4, 4))
        empty = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], bool)
        call = direct(setting, rows, [2.0, 4.0, 8.0, 16.0], sink=sink(0.0), mask=empty[None, None])
        yield Case("sink and empty rows", "sink, empty row", call)


def alibis(setting: Setting, rng: Generator) -> Iterator[Case]:
    """ALiBi: −slope·distance from the causal diagonal."""
    built = "alibi" in setting.declared.fields
    if not setting.can("alibi_slopes") and not built:
        return
    spec = setting.spec(causal=True) if setting.can("causal") else setting.base

    def slopes(heads: int) -> dict[str, Any]:
        found = 2.0 ** -(np.arange(heads * setting.group) % 4)
        return {} if built else {"alibi_slopes": found.astype(setting.kind)}

    for h in (1, 8, 12):
        if not setting.single or h == 1:
            v = np.broadcast_to((2.0 ** np.arange(5))[None, :, None], (h, 5, 1))
            call = setting.call(np.zeros((h, 5, 1)), np.zeros((h, 5, 1)), v, spec, **slopes(h))
            yield Case(f"ALiBi, {h} heads, equal scores", "ALiBi", call)
    v = np.array([0.0, 0.0, 1.0])[:, None]
    yield Case("ALiBi, one query, three keys", "ALiBi", setting.call([[0.0]], np.zeros((3, 1)), v, spec, **slopes(1)))
    q, k, v = setting.normal(rng, 9, 9, 8, h=2)
    yield Case("ALiBi, normal", "ALiBi", setting.call(q, k, v, spec, **slopes(q.shape[1] // setting.group)))


def rotary(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Rotary embeddings: layout, frequencies, positions far from 0."""
    from compute.spec import Rope

    rope = setting.base.rope or setting.declared.spec.rope
    if rope is None:
        return
    q, k, v = setting.normal(rng, 4, 4, 4)
    yield Case("rotary, d = 4", "RoPE layout", setting.call(q, k, v, setting.spec(rope=rope)))
    q, k, v = setting.normal(rng, 9, 9, 16)
    yield Case("rotary, d = 16", "RoPE layout", setting.call(q, k, v, setting.spec(rope=rope)))
    if setting.can("q_offset", "k_offset"):
        for start in (777, 3001):
            far = Rope(rope.layout, rope.base, start + 3, start, rope.dims)
            yield Case(f"rotary at position {start}", "RoPE precision", setting.call(q, k, v, setting.spec(rope=far)))
        apart = Rope(rope.layout, rope.base, 777, 0, rope.dims)
        yield Case("rotary, 777 apart", "RoPE precision", setting.call(q[:, :, :1], k, v, setting.spec(rope=apart)))


def log_sums(setting: Setting, rng: Generator) -> Iterator[Case]:
    """The log-sum-exp beside the output."""
    if not setting.can("lse"):
        return
    yield Case("log-sum-exp of two keys", "LSE base", direct(setting, [1.0, 0.0], [1.0, 0.0], lse=True))
    yield Case(
        "log-sum-exp of 32 scores of 8", "LSE overflow", direct(setting, np.full(32, 8.0), np.ones(32), lse=True)
    )
    yield Case("log-sum-exp of scores 100", "LSE overflow", direct(setting, [100.0, 99.0], [1.0, 0.0], lse=True))
    q, k, v = setting.normal(rng, 5, 40, 8)
    yield Case("log-sum-exp, 40 keys", "LSE", setting.call(q, k, v, lse=True))
    if setting.can("bias"):
        call = direct(setting, [0.0, 1.0], [1.0, 0.0], lse=True, bias=np.ones((1, 1, 1, 2)))
        yield Case("log-sum-exp under a bias of 1", "mask values", call)
    if setting.can("sink"):
        sink = np.full(setting.group, 100.0).astype(setting.kind)
        yield Case("log-sum-exp with sink 100", "sink", direct(setting, [0.0, 0.0], [1.0, 2.0], lse=True, sink=sink))
    if setting.can("mask"):
        mask = np.zeros((1, 1, 4, 4), bool)
        mask[..., 1, :2] = mask[..., 3, :] = True
        call = direct(setting, np.zeros((4, 4)), [1.0, 2.0, 4.0, 8.0], lse=True, mask=mask)
        yield Case("log-sum-exp beside empty rows", "LSE of empty", call)
    if setting.can("softcap"):
        call = direct(setting, [60.0, 0.0], [1.0, 0.0], setting.spec(softcap=48.0), lse=True)
        yield Case("log-sum-exp under a softcap", "softcap dropped", call)


def dropouts(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Dropout by a given mask of multipliers, and dropout in evaluation."""
    q, k, v = setting.normal(rng, 4, 6, 4)
    if setting.can("dropout_mask"):
        drop = ((rng.random((*q.shape[:3], 6)) < 0.75) / 0.75).astype(setting.kind)
        yield Case("dropout mask", "dropout", setting.call(q, k, v, dropout_mask=drop))
    if setting.can("dropout", "training"):
        options = (("dropout", 0.9), ("training", False))
        yield Case("dropout 0.9 in evaluation", "dropout", setting.call(q, k, v, options=options))
    elif setting.can("dropout"):
        yield Case("dropout 0", "dropout", setting.call(q, k, v, options=(("dropout", 0.0),)))


VARIANTS = (scales, softcaps, sinks, alibis, rotary, log_sums, dropouts, sizes, combinations, *ARGUMENTS)
