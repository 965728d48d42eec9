"""Sizes and features together: designed sizes, and a seeded covering design over what can be on or off.

Guarantees: in a full run every three of the features that a target has are met in all eight ways of on and off; in a
quick run, every two in all four. The draw (which sizes, which scale, which place in memory) depends on the seed alone.
Rows without keys don't occur, scores stay of size 1, and no product of a weight and a value is subnormal, so that
flushing subnormals is no fault here. Source of the method: covering arrays of strength t, built greedily (Cohen,
Dalal, Fredman and Patton 1997, "The AETG system").
Does not: meet a condition on four features for certain, or sizes beyond those that `extent` tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations as subsets
from typing import Any

import numpy as np

from verify.checking.calls import Array, Memory
from verify.checking.cases import Case, Generator, Setting

CANDIDATES = 40
WIDE_HEADS = ((32, 32), (80, 80), (96, 65), (128, 128), (256, 130), (64, 128))
HOW: tuple[Memory, ...] = ("strided", "reversed", "transposed")
FEATURES = (
    "mask", "causal", "window", "softcap", "sink", "ALiBi", "RoPE", "scale", "bias", "lse", "memory", "wide heads",
    "many heads", "many items", "values", "d_v != d_k",
)  # fmt: skip
# Which of the target's parameters a feature needs. RoPE is built in where it is declared; what can be on or off is
# that queries and keys start at positions apart.
NEEDS = {name: (name,) for name in ("mask", "causal", "window", "softcap", "sink", "scale", "bias", "lse")} | {
    "ALiBi": ("alibi_slopes",),
    "RoPE": ("q_offset", "k_offset"),
}
WINDOWS = ((1, 0), (2, 0), (3, 0), (2, 1), (0, 2))


def covering(count: int, strength: int, rng: Generator) -> Array:
    """Rows of `count` booleans in which every `strength` columns take every value together.

    >>> rows = covering(5, 2, np.random.default_rng(0))
    >>> {(bool(a), bool(b)) for a, b in rows[:, [1, 4]]} == {(x, y) for x in (True, False) for y in (True, False)}
    True
    """
    strength = min(strength, count)
    if not strength:
        return np.zeros((1, 0), bool)
    columns = np.array(list(subsets(range(count), strength)))
    weights = 2 ** np.arange(strength)
    left = np.ones((len(columns), 2**strength), bool)
    rows = []
    while left.any():
        drawn = rng.random((CANDIDATES, count)) < 0.5
        # Every candidate meets one combination that is still to be met, so that each round makes progress.
        where, code = np.argwhere(left)[rng.integers(left.sum())]
        drawn[:, columns[where]] = (code >> np.arange(strength)) & 1 == 1
        codes = drawn[:, columns] @ weights
        gains = left[np.arange(len(columns)), codes].sum(1)
        best = int(gains.argmax())
        rows.append(drawn[best])
        left[np.arange(len(columns)), codes[best]] = False
    return np.array(rows)


def possible(setting: Setting) -> tuple[str, ...]:
    """The features of a setting that can be on or off."""
    out = {name for name, needed in NEEDS.items() if not setting.can(*needed)}
    if setting.base.rope is None:
        out.add("RoPE")
    if setting.single:
        out |= {"many heads", "many items"}
    if not setting.batches:
        out.add("many items")
    return tuple(name for name in FEATURES if name not in out)


def build(setting: Setting, rng: Generator, on: frozenset[str], **sizes: int) -> Case:
    """One call in which exactly the features `on` are met; sizes that are not given are drawn."""
    square = bool(on & {"causal", "window"}) or setting.base.causal != "none" or setting.base.window is not None
    square = square or "cu_seqlens" in setting.has
    m = sizes.get("m", int(rng.integers(6, 13)))
    n = sizes.get("n", m if square else int(rng.integers(4, 13)))
    d, wide = WIDE_HEADS[rng.integers(len(WIDE_HEADS))] if "wide heads" in on else (8, 8)
    if "d_v != d_k" in on and wide == d:
        wide = (48 if d > 64 else 65) if "wide heads" in on else int(rng.choice([4, 12]))
    d, d_v = sizes.get("d", d), sizes.get("d_v", wide if "d_v != d_k" in on else d)
    h = sizes.get("h", int(rng.choice([4, 5, 8])) if "many heads" in on else 2)
    b = sizes.get("b", int(rng.choice([3, 4])) if "many items" in on else 1)
    spec_changes: dict[str, Any] = {}
    if "causal" in on:
        spec_changes["causal"] = True
    if "scale" in on:
        spec_changes["scale"] = float(rng.choice([0.3, 1.75, 4.0]))
    if "window" in on:
        spec_changes["window"] = WINDOWS[rng.integers(3 if "causal" in on else len(WINDOWS))]
    if "softcap" in on:
        spec_changes["softcap"] = float(rng.choice([0.5, 1.5]))
    if "RoPE" in on and setting.base.rope is not None:
        start, later = (int(x) for x in rng.integers(1, 40, 2))
        spec_changes["rope"] = replace(setting.base.rope, q_offset=start + later, k_offset=start)
    spec = setting.spec(**spec_changes)
    q, k, v = setting.normal(rng, n, m, d, d_v=d_v, h=h, b=b)
    spread = 0.25 if "values" in on else 1.0
    shrink = spread / (abs(float(spec.scale_value(d))) * float(d) ** 0.5 or 1.0)
    q = q * shrink
    if "values" in on:
        v = np.asarray(1 + rng.random(v.shape)) * float(rng.choice(_sizes_of_values(setting)))
    b, h = q.shape[:2]
    more: dict[str, Any] = {"lse": True} if "lse" in on else {}
    if "mask" in on:
        shapes = [(b, h, n, m), (b, 1, n, m), (1, 1, n, m)]
        mask = rng.random(shapes[rng.integers(3)]) < 0.6
        if square:
            mask |= np.eye(n, m, dtype=bool)  # which causal and a window leave in
        else:
            mask[..., 0] = True
        more["mask"] = mask
    if "bias" in on:
        more["bias"] = rng.standard_normal((b, h, n, m) if rng.random() < 0.5 else (1, 1, n, m)) * spread
    if "sink" in on:
        more["sink"] = np.asarray(rng.standard_normal(h) * spread).astype(setting.kind)
    if "ALiBi" in on:
        more["alibi_slopes"] = np.asarray(2.0 ** -rng.integers(0, 4, h) * spread**2).astype(setting.kind)
    if "memory" in on:
        names = ["q", "k", "v", *(name for name in ("mask", "bias") if name in on)]
        more["memory"] = tuple((name, HOW[rng.integers(3)]) for name in names)
    label = ", ".join(name for name in FEATURES if name in on) or "none of the features"
    return Case(f"together: {label}", "values", setting.call(q, k, v, spec, **more), together=on)


def _sizes_of_values(setting: Setting) -> Sequence[float]:
    """Tiny and large, both far inside the normal numbers of the dtype."""
    return (2.0**-11, 2.0**10) if setting.dtype == "float16" else (2.0**-116, 2.0**100)


def sizes(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Sizes of heads, many heads and items, a scale above 1, tiny values, one array at a time out of order."""

    def case(name: str, about: str, on: set[str], **given: int) -> Case:
        return Case(name, about, build(setting, rng, frozenset(on & have), **given).call)

    have = set(possible(setting))
    for d, d_v in WIDE_HEADS[: 3 if setting.quick else None]:
        yield case(f"d_k = {d}, d_v = {d_v}", "values", {"wide heads", "d_v != d_k"}, d=d, d_v=d_v)
    for h, b in ((4, 1), (8, 1), (1, 3), (2, 5)):
        if (h < 3 or "many heads" in have) and (b < 3 or "many items" in have):
            yield case(f"{h} heads, {b} items", "layout", set(), h=h, b=b)
    usual = {"mask", "causal", "scale"} & have
    for count in range(2, len(usual) + 1):
        for some in subsets(sorted(usual), count):
            yield case(f"{' and '.join(some)}, together", "mask composition", set(some))
    if setting.can("scale"):
        for scale in (2.5, 8.0):
            q, k, v = setting.normal(rng, 5, 6, 8)
            call = setting.call(q / scale, k, v, setting.spec(scale=scale))
            yield Case(f"scale {scale:g} given", "scale", call)
    for size in _sizes_of_values(setting):
        q, k, v = setting.normal(rng, 5, 6, 8, size=0.25)
        yield Case(f"values near {size:.0e}", "values", setting.call(q, k, (1 + rng.random(v.shape)) * size))
    for on in ("mask", "causal"):
        for name in ("q", "k", "v", "mask"):
            if on in have and (name != "mask" or "mask" in have):
                asked = frozenset({on, "mask"} if name == "mask" else {on})
                call = build(setting, rng, asked).call
                for how in HOW[:: 2 if setting.quick else 1]:
                    text = f"{name} {how} in memory, with {' and '.join(sorted(asked))}"
                    yield Case(text, "strides", call.with_(memory=((name, how),)))


def combinations(setting: Setting, rng: Generator) -> Iterator[Case]:
    """A covering design: every three features in a full run, every two in a quick one."""
    names = possible(setting)
    for row in covering(len(names), 2 if setting.quick else 3, rng):
        yield build(setting, rng, frozenset(name for name, on in zip(names, row, strict=True) if on))


def graded(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Likewise for gradients: every two features, values of size 1; and sizes one at a time."""
    names = tuple(name for name in possible(setting) if name not in ("values", "lse"))
    none: frozenset[str] = frozenset()
    for given in (
        {"d": 32}, {"d": 64}, {"d": 80}, {"d": 128}, {"d": 8, "d_v": 5}, {"d": 8, "d_v": 70}, {"n": 72, "m": 40},
        {"n": 72, "m": 72}, {"n": 130, "m": 5}, {"n": 5, "m": 1}, {"n": 1, "m": 1}, {"n": 1, "m": 9},
    ):  # fmt: skip
        text = ", ".join(f"{name} = {size}" for name, size in given.items())
        yield Case(text, "gradient", build(setting, rng, none, **given).call)
    for row in covering(len(names), 2, rng):
        yield build(setting, rng, frozenset(name for name, on in zip(names, row, strict=True) if on))
