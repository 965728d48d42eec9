"""Arguments that a truth test, a default, a clamp or a shortcut misreads: 0, large, negative, of every broadcast shape.

Guarantees: each is asked in every run, whatever the seed, beside nothing else that a target must have.
Does not: ask combinations (that is `combinations`), or sizes of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.checking.cases import Case, Generator, Setting
from verify.checking.masked import some

SCALES = (0.0, 16.0, 64.0)
AHEAD = ((2, 1), (0, 2), (None, 1))


def given_scales(setting: Setting, rng: Generator) -> Iterator[Case]:
    """A scale of 0 (all scores equal; no default), and large ones whose scores stay of size 1."""
    if not setting.can("scale"):
        return
    q, k, v = setting.normal(rng, 5, 6, 8)
    for scale in SCALES:
        call = setting.call(q / (scale or 1.0), k, v, setting.spec(scale=scale))
        yield Case(f"scale {scale:g} given, 6 keys", "scale", call)


def windows_ahead(setting: Setting, rng: Generator) -> Iterator[Case]:
    """A window that reaches ahead, under causal: no later key is seen."""
    if not setting.can("window", "causal"):
        return
    q, k, v = setting.normal(rng, 8, 8, 8)
    for left, right in AHEAD:
        back = "all" if left is None else left
        call = setting.call(q, k, v, setting.spec(window=(left, right), causal=True))
        yield Case(f"causal, window {back} back, {right} ahead", "window", call)


def shapes(b: int, h: int, n: int, m: int) -> list[tuple[int, int, int, int]]:
    """The shapes (·, ·, ·, m) that broadcast to (b, h, n, m): each leading axis whole or 1.

    >>> shapes(1, 2, 1, 9)
    [(1, 1, 1, 9), (1, 2, 1, 9)]
    """
    return sorted({(x, y, z, m) for x in (1, b) for y in (1, h) for z in (1, n)})


def broadcasts(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Masks and biases of every broadcast shape, over several items and heads at once."""
    q, k, v = setting.normal(rng, 3, 5, 4, b=1 if setting.profile.layout == "thd" else 2)
    for shape in shapes(len(q), q.shape[1], 3, 5):
        text = " × ".join(str(size) for size in shape)
        if setting.can("mask"):
            yield Case(f"mask of {text}", "mask broadcast", setting.call(q, k, v, mask=some(rng, *shape)))
        if setting.can("bias"):
            yield Case(f"bias of {text}", "bias", setting.call(q, k, v, bias=rng.standard_normal(shape) * 2))


def rising_slopes(setting: Setting, rng: Generator) -> Iterator[Case]:
    """ALiBi of slopes that are negative (a far key gains), 0 and positive, by head."""
    if not setting.can("alibi_slopes"):
        return
    spec = setting.spec(causal=True) if setting.can("causal") else setting.base
    q, k, v = setting.normal(rng, 7, 7, 8, h=3)
    slopes = np.array([-0.5, 0.0, 0.25, -0.125])[np.arange(q.shape[1]) % 4].astype(setting.kind)
    yield Case("ALiBi, slopes of both signs", "ALiBi", setting.call(q, k, v, spec, alibi_slopes=slopes))


ARGUMENTS = (given_scales, windows_ahead, broadcasts, rising_slopes)
