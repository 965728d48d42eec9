"""Designed and random inputs without masks: each is small, and named after the fault it shows.

Guarantees: every number is exact in the dtype; large scores stay in the dtype's range. Sources: the public threads
whose kinds name the cases (empty tile, 16-bit sums, index width, ...).
Does not: know the right answers (the reference computes them).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.checking.calls import Call
from verify.checking.cases import Case, Generator, Setting, direct

TILES = (16, 32, 64, 128)


def basic(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Softmax, scale, heads, shapes."""
    yield Case("one key", "softmax missing", direct(setting, [3.0], [5.0]))
    yield Case("two keys", "softmax missing", direct(setting, [2.0, 3.0], [1.0, 4.0]))
    rows = np.array([[0, 0, 0, 0], [2, 0, 0, 0], [0, 1, 0, 3], [0, 0, 0, 1]], float)
    yield Case("four rows, four keys", "softmax axis", direct(setting, rows, [1.0, 1.0, 1.0, 1.0]))
    yield Case("weights 1 and 0", "softmax axis", direct(setting, rows, np.eye(4)))
    for d, about in ((16, "scale"), (3, "head padding"), (64, "scale")):
        # One key of score about 3 against 16 of score 0: half of the weight each, where a scale shows most.
        q, k, v = np.zeros((2, 2, d)), np.zeros((2, 17, d)), np.full((2, 17, d), -4.0)
        q[:, 0, :3], q[:, 1, :3] = (2, 1, 1), (1, 1, 0)
        k[:, 0, :3], v[:, 0] = np.array([1.0, 2.0, 1.0]) * round(3 * d**0.5 / 5), 4.0
        yield Case(f"scale at d = {d}", about, _one(setting, q, k, v))
    yield Case("heads differ", "layout", _one(setting, *_heads_differ()))
    q, k, v = setting.normal(rng, 7, 7, 8, d_v=5)
    yield Case("d_v below d_k", "d_v != d_k", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 7, 7, 4, d_v=12)
    yield Case("d_v above d_k", "d_v != d_k", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 3, 9, 8)
    yield Case("fewer queries than keys", "layout", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 9, 4, 8)
    yield Case("more queries than keys", "layout", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 1, 6, 8, b=2)
    yield Case("one query", "values", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 17, 17, 8, h=3, b=2)
    yield Case("normal, 17 keys", "values", setting.call(q, k, v))
    q, k, v = setting.normal(rng, 33, 65, 16, h=2, size=3.0)
    yield Case("normal, 65 keys, scores × 3", "values", setting.call(q, k, v))
    yield Case("no query", "zero length", setting.call(np.zeros((1, 0, 8)), k[0, :1, :5, :8], v[0, :1, :5, :8]))


def _one(setting: Setting, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Call:
    return setting.call(*((q[:1], k[:1], v[:1]) if setting.single else (q, k, v)))


def _heads_differ() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three heads, three rows; values of head g are g in every entry, scores differ by head."""
    h = n = 3
    v = np.arange(h)[:, None, None] * np.ones((h, n, 4))
    q = np.zeros((h, n, 4))
    k = np.zeros((h, n, 4))
    q[..., 0], k[..., 0] = np.arange(h)[:, None] + 1.0, np.arange(n) - 1.0
    v[:, 0, 1] = 4.0
    return q, k, v


def large(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Scores beyond what exp can take without the row's maximum."""
    d = setting.dtype
    yield Case("scores 100 and 99", "no max shift", direct(setting, [100.0, 99.0], [1.0, 0.0]))
    yield Case("scores 2000 and 1992", "no max shift", direct(setting, [2000.0, 1992.0], [1.0, 0.0]))
    yield Case("scores -2000 and -2008", "no max shift", direct(setting, [-2000.0, -2008.0], [1.0, 0.0]))
    yield Case("first score far below the second", "no max shift", direct(setting, [-1000.0, 1000.0], [1.0, 3.0]))
    yield Case("first score far above the second", "no max shift", direct(setting, [1000.0, -1000.0], [1.0, 3.0]))
    yield Case("scores near -60000", "finite -inf", direct(setting, [-59904.0, -60416.0], [17.0, 16.0]))
    if d != "float16":
        yield Case(
            "scores near -1.6e10", "finite -inf", direct(setting, [-(2.0**34), -(2.0**34) - 2.0**28], [17.0, 16.0])
        )
        yield Case("scores 0 and -1e30, value 1e38", "underflow", direct(setting, [0.0, -(2.0**100)], [1.0, 2.0**126]))
    for tile in TILES:
        m = 2 * tile + 3
        rising, falling = np.zeros(m), np.zeros(m)
        rising[:tile], rising[tile:] = -50.0, 50.0
        falling[:tile], falling[tile:] = 50.0, -50.0
        values = np.where(np.arange(m) < tile, 17.0, 19.0)
        yield Case(f"scores rise after {tile} keys", "tile max", direct(setting, rising, values))
        yield Case(f"scores fall after {tile} keys", "tile max", direct(setting, falling, values))
    ramp = np.arange(200) * 0.25 - 20
    yield Case("scores rise by 1/4 over 200 keys", "tile max", direct(setting, ramp, np.cos(np.arange(200))))
    low = np.full(131, -200.0)
    low[7], low[130] = -199.0, -198.0
    values = np.full(131, 16.0)
    values[7], values[130] = 18.0, 20.0
    yield Case("all scores near -200", "tile max", direct(setting, low, values))
    if d == "float16":
        yield Case("q·k = 65536 before the scale", "fp16 overflow", _wide_dot(setting, 64.0, 64.0, 60.0))
        yield Case("q·k = -66000 before the scale", "fp16 overflow", _wide_dot(setting, -64.0, 64.5, 64.0))


def _wide_dot(setting: Setting, q: float, k0: float, k1: float) -> Call:
    d = 16
    keys = np.stack([np.full(d, k0), np.full(d, k1)])
    return setting.call(np.full((1, d), q), keys, np.array([[1.0], [0.0]]) * np.ones(d))


def long_rows(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Many keys: sums in 16 bits that stick or overflow, small weights, index width, every key at tile edges."""
    half = setting.dtype == "float16"
    sums = "fp16 accumulation" if half else "bf16 accumulation" if setting.dtype == "bfloat16" else "long row"
    for m in (300, 2050, 4100):
        values = np.where(np.arange(m) % 2 == 0, 1.0, 0.5)
        yield Case(f"{m} equal scores", sums, direct(setting, np.zeros(m), values))
    small = np.full(2049, -7.625)
    small[0] = 0.0
    values = np.ones(2049)
    values[0] = 0.0
    yield Case("one key against 2048 small weights", "fp8 underflow", direct(setting, small, values))
    for m in (15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257):
        yield Case(f"a needle at every key of {m}", "key dropped", needles(setting, m))
    yield Case("32769 equal scores", "index width", direct(setting, np.zeros(32769), np.ones(32769)))
    if half:
        yield Case("40000 equal scores, value 2", sums, direct(setting, np.zeros(40000), np.full(40000, 2.0)))
    last = np.zeros(70000)
    last[65536:] = 30.0
    values = np.zeros(70000)
    values[65536:] = 1.0
    yield Case("weight beyond key 65535", "index width", direct(setting, last, values))


def needles(setting: Setting, m: int) -> Call:
    """m queries, each of which sees one key of m: q_i, k_j on a circle, so that i = j wins by a wide margin."""
    angle = 2 * np.pi * np.arange(m) / m
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    gap = 1 - np.cos(2 * np.pi / m)
    size = min(np.sqrt(40 / gap), 150.0)
    values = np.stack([np.arange(m) % 16 + 1.0, (np.arange(m) * 7) % 16 - 8.0], -1)
    return setting.call(circle * size, circle * size, values)


def cancelling(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Values that cancel, and values of wide range."""
    m = 64
    v = np.where(np.arange(m) % 2 == 0, 1.0, -1.0) * 16
    yield Case("values that cancel", "values", direct(setting, np.zeros(m), v))
    q, k, v3 = setting.normal(rng, 8, 40, 8)
    yield Case("values of wide range", "values", setting.call(q, k, v3 * 4.0 ** rng.integers(-5, 5, v3.shape)))


def exponentials(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Two keys, one score 0 and one falling by 1/16 from row to row: exp itself, with few roundings beside it.

    Scores up to 4 only: the roundings of larger ones would cover more of exp's error.
    """
    x = np.arange(64) / 16
    call = setting.call(x[:, None], np.array([[0.0], [-1.0]]), np.array([[0.0], [1.0]]))
    yield Case("exp from 0 to -4 in steps of 1/16", "approximate exp", call)


def memory(setting: Setting, rng: Generator) -> Iterator[Case]:
    """The same values in other memory: steps, negative steps, transposed, expanded, read-only."""
    q, k, v = setting.normal(rng, 6, 6, 4)
    for name in ("q", "k", "v"):
        for how in ("strided", "reversed", "transposed"):
            call = setting.call(q, k, v, memory=((name, how),))
            yield Case(f"{name} {how} in memory", "strides", call)
    yield Case(
        "v expanded in memory", "strides", setting.call(q, k, np.repeat(v[:, :, :1], 6, 2), memory=(("v", "expanded"),))
    )
    frozen = (("q", "readonly"), ("k", "readonly"), ("v", "readonly"))
    yield Case("read-only arrays", "mutation", setting.call(q, k, v, memory=frozen))


PLAIN = (basic, large, long_rows, cancelling, exponentials, memory)
