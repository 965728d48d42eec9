"""Tier 2 on the stand-in for CuPy: CuPy's functions only, no array of the host on the way, NumPy's bits.

Radii may differ by the order of the sums of squares, which NumPy has a function of its own for.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from compute import tier2, tier2_backward
from compute.heads import split
from tests.compute import fake_cupy
from tests.compute.cases import arrays_of, spec_of
from tests.compute.families import FAMILIES, shapes

NAMES = ("mid", "low", "rad")


def moved(cupy: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: cupy.asarray(x) for name, x in arrays.items()}


def same(there: Any, here: Any, part: str) -> None:
    x = getattr(there, part)
    assert isinstance(x, fake_cupy.ndarray)
    close = 1e-13 if "rad" in part else 0
    np.testing.assert_allclose(x.inner, getattr(here, part), rtol=close, atol=0)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_same_bits(cupy: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    monkeypatch.setattr(tier2, "TILE", 3)
    monkeypatch.setattr(tier2_backward, "TILE", 2)
    monkeypatch.setattr(tier2, "DEVICE_SCORES", 1)  # tiles of the same size on both
    for _ in range(2):
        n, m, d, d_v = shapes(rng)
        q, k, v, extras = FAMILIES[name](rng, n, m, d, d_v)
        grad = rng.standard_normal((n, d_v))
        here = split(q, k, v, spec_of(extras), **arrays_of(extras)).items[0]
        there = split(*(cupy.asarray(x) for x in (q, k, v)), spec_of(extras), **moved(cupy, arrays_of(extras))).items[0]
        rows = rng.permutation(n)
        mine, theirs = tier2.tight(here, rows), tier2.tight(there, rows)
        for part in (*NAMES, "lse", "lse_rad"):
            same(theirs, mine, part)
        assert mine.refused == theirs.refused
        mine_out, mine_grads = tier2_backward.tight_backward(here, grad, want_bias=True)
        out, grads = tier2_backward.tight_backward(there, cupy.asarray(grad), want_bias=True)
        same(out, mine_out, "mid")
        for what in ("dq", "dk", "dv", "dbias", "dscale", "dsink"):
            a, b = getattr(mine_grads, what), getattr(grads, what)
            assert (a is None) == (b is None)
            for part in NAMES if a is not None else ():
                same(b, a, part)


def test_a_device_takes_larger_tiles(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (cupy.asarray(rng.standard_normal((200, 4))) for _ in range(3))
    seen: list[int] = []
    right = tier2.prepare

    def watched(*args: Any) -> Any:
        seen.append(len(args[1]))
        return right(*args)

    monkeypatch.setattr(tier2, "prepare", watched)
    tiles: list[int] = []
    tier2.tight_and(
        split(q, k, v).items[0], np.arange(200), lambda o, v, t: tiles.append(t.at.stop - t.at.start),
        tier2.tile_size(split(q, k, v).items[0], tier2.TILE),
    )  # fmt: skip
    assert seen == [200]
    assert tiles == [200]
