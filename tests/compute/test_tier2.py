"""Tier 2 and its exp against ball arithmetic, and mutants of its table, polynomial and slices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx

import compute.slices
import compute.table_exp
import compute.tier2_scores
from compute.table_exp import EPS, Work, exp64, exp_pair, table
from compute.tier2 import tight
from tests.compute.cases import exact_of, head_of
from tests.compute.families import FAMILIES, Case, shapes
from tests.compute.truth import excess


def worst(case: Case) -> float:
    got, exact = tight(head_of(case), np.arange(len(case[0]))), exact_of(case, prec=300)
    logs = [excess(exact["lse"][i], got.lse[i], got.lse_rad[i]) for i in exact["rows"]]
    return max(
        *logs,
        *(
            excess(exact["z"][i, c], got.mid[i, c], got.rad[i, c], got.low[i, c], prec=300)
            for i in exact["rows"]
            for c in range(got.mid.shape[1])
        ),
        0.0,
        0.0,
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_enclosed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    for block in (2, 8, 128):
        monkeypatch.setattr(compute.slices, "BLOCK", block)
        assert worst(FAMILIES[name](rng, *shapes(rng))) <= 1


def test_radius_is_about_1e18_of_the_largest_value() -> None:
    rng = np.random.default_rng(0)
    for size in (1.0, 30.0, 1e4, 1e7):  # two slices, then three
        q, k, v = rng.standard_normal((3, 64)) * size, rng.standard_normal((300, 64)), rng.standard_normal((300, 2))
        got = tight(head_of((q, k, v, {})), np.arange(3))
        assert not got.refused
        assert got.rad.max() < 4e-18 * np.abs(v).max()


def test_what_cannot_be_split_is_refused_with_a_reason() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 4)) for _ in range(3))
    got = tight(head_of((q * 1e150, k * 1e150, v, {})), np.arange(2))
    assert set(got.refused) == {0, 1}
    assert np.isinf(got.rad).all()
    assert "softcap" in tight(head_of((q, k, v, {"softcap": 1e-280})), np.arange(2)).refused[0]


def test_only_the_rows_asked_for() -> None:
    rng = np.random.default_rng(2)
    case = (
        rng.standard_normal((9, 8)),
        rng.standard_normal((40, 8)),
        rng.standard_normal((40, 3)),
        {"causal": "bottom-right"},
    )
    whole, some = tight(head_of(case), np.arange(9)), tight(head_of(case), np.array([7, 2]))
    np.testing.assert_array_equal(some.mid, whole.mid[[7, 2]])


def exp_error(dh: np.ndarray, sl: np.ndarray, grid: float | None) -> float:
    """Largest relative error beyond the rounding of w2."""
    w1, w2 = np.empty((1, dh.size)), np.empty((1, dh.size))
    exp_pair(dh.reshape(1, -1), sl.reshape(1, -1), w1, w2, Work((1, dh.size)), grid)
    old, ctx.prec = ctx.prec, 160
    try:
        found = 0.0
        for x, low, a, b in zip(dh.tolist(), sl.tolist(), w1[0].tolist(), w2[0].tolist(), strict=True):
            exact = (arb(x) + arb(low)).exp()
            error = abs(arb(a) + arb(b) - exact) - arb(2.0**-53) * abs(arb(b))
            found = max(found, float((error / exact).mid()))
        return found
    finally:
        ctx.prec = old


def arguments(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    if kind == "wide":
        return -rng.random(count) * 599
    if kind == "tiny":
        return -(10.0 ** rng.uniform(-25, 0, count))
    cell = rng.integers(0, 8000, count)
    return -((cell + 0.5) / 256 + rng.standard_normal(count) * 1e-10)


@pytest.mark.parametrize("kind", ["wide", "tiny", "cell ends"])
@pytest.mark.parametrize("grid", [None, 1.5 * 2.0 ** (52 - 23)])
def test_exp_is_within_its_proved_error(kind: str, grid: float | None) -> None:
    rng = np.random.default_rng(3)
    dh = np.minimum(arguments(kind, rng, 3000), 0.0)
    sl = rng.uniform(-1, 1, 3000) * 2.0 ** -rng.integers(16, 40, 3000)
    assert exp_error(dh, sl, grid) <= EPS


def test_the_table_is_within_its_proved_error() -> None:
    heads, tails = table()
    old, ctx.prec = ctx.prec, 160
    try:
        for i in [*range(0, len(heads), 997), len(heads) - 1]:
            exact = (-arb(i) / 256).exp()
            assert abs(arb(float(heads[i])) + arb(float(tails[i])) - exact) <= exact * arb(2.0**-78)
            assert heads[i] == float(np.float64(heads[i]).astype(np.float64))
            mantissa = np.frexp(heads[i])[0] * 2.0**26
            assert mantissa == np.rint(mantissa)
    finally:
        ctx.prec = old


def test_exp64_is_within_one_ulp() -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate([[0.0, -np.inf, -745.2, -760.0], -rng.random(2000) * 750])
    got = exp64(x)
    assert got[0] == 1
    assert got[1] == 0
    old, ctx.prec = ctx.prec, 120
    try:
        for a, b in zip(x[2:].tolist(), got[2:].tolist(), strict=True):
            exact = arb(a).exp()
            assert abs(arb(b) - exact) <= exact * arb(2.0**-52) + arb(2.0**-1022)
    finally:
        ctx.prec = old


def _no_tails(patch: pytest.MonkeyPatch) -> None:
    heads, tails = table()
    patch.setattr(compute.table_exp, "table", lambda: (heads, tails * 0))


def _tails_off(patch: pytest.MonkeyPatch) -> None:
    heads, tails = table()
    patch.setattr(compute.table_exp, "table", lambda: (heads, tails * (1 + 1e-9)))


def _coefficient(name: str, factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    def change(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(compute.table_exp, name, getattr(compute.table_exp, name) * factor)

    return change


def _long_slices(patch: pytest.MonkeyPatch) -> None:
    right = compute.slices.split_at
    for module in (compute.slices, compute.tier2_scores):
        patch.setattr(module, "split_at", lambda x, e: right(x, e - 5))


MUTANTS = {
    "no tails": _no_tails,
    "tails off by 1e-9": _tails_off,
    "1/720": _coefficient("_C6", 1.2),
    "1/120": _coefficient("_C5", 1 + 1e-4),
    "1/24": _coefficient("_C4", 1 + 1e-7),
    "slices too long": _long_slices,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table()
    MUTANTS[mutant](monkeypatch)
    rng = np.random.default_rng(5)
    found = 0.0
    for _ in range(12):
        q, k, v = rng.standard_normal((2, 64)) * 2, rng.standard_normal((64, 64)), rng.standard_normal((64, 3))
        found = max(found, worst((q, k, v, {})))
    dh = np.minimum(arguments("cell ends", rng, 2000), 0.0)
    assert max(found, exp_error(dh, np.zeros(2000), None) / EPS) > 1
