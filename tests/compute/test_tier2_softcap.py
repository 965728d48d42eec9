"""The softcap of Tier 2: c·tanh(s/c) as a pair, against ball arithmetic, and mutants of each of its steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx

import compute.tier2_scores as scores
from compute.table_exp import EPS, Work
from compute.tier2 import tight
from tests.compute.cases import exact_of, head_of
from tests.compute.truth import excess

CAPS = (2.0**-40, 0.5, 30.0, 50.0, 1e4, 2.0**60)


def arguments(rng: np.random.Generator, cap: float, most: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores as pairs whose low parts are far above an ulp, and a bound of their size."""
    high = rng.standard_normal(400) * 10.0 ** rng.uniform(-12, 1, 400)
    high = np.clip(high / np.abs(high).max() * most * cap, -most * cap, most * cap)
    high[:3] = 0.0, most * cap, -most * cap
    low = np.abs(high).max() * 2.0**-24 * rng.uniform(-1, 1, 400)
    return high[None], low[None], float(np.abs(high).max() + np.abs(low).max())


def worst(cap: float, most: float, seed: int = 0) -> tuple[float, float]:
    """Error of the capped score over its bound, and that of 1 − tanh² over 2·bound/c + 2⁻⁹⁸ (F14)."""
    high, low, size = arguments(np.random.default_rng(seed), cap, most)
    a, b, error, t = scores.softcap(high.copy(), low.copy(), cap, size, Work(high.shape))
    slope = scores.slope_of(t)
    old, ctx.prec = ctx.prec, 400
    try:
        value, change = 0.0, 0.0
        for i in range(high.size):
            exact = ((arb(float(high[0, i])) + arb(float(low[0, i]))) / arb(cap)).tanh()
            gap = abs(exact * arb(cap) - arb(float(a[0, i])) - arb(float(b[0, i]))).lower()
            value = max(value, float(gap) / error)
            gap = abs(1 - exact * exact - arb(float(slope[0][0, i])) - arb(float(slope[1][0, i]))).lower()
            change = max(change, float(gap) / (2 * error / cap + 2.0**-98))
        return value, change
    finally:
        ctx.prec = old


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("most", [1e-9, 1e-3, 2.0**-7.1, 0.1, 3.0, 20.0, 1000.0])
def test_score_and_slope_are_within_their_bounds(cap: float, most: float) -> None:
    assert max(worst(cap, most)) <= 1


def test_the_bound_is_at_the_level_of_the_table_exp_or_of_the_scores() -> None:
    high, low, size = arguments(np.random.default_rng(1), 30.0, 3.0)
    assert scores.softcap(high, low, 30.0, size, Work(high.shape))[2] <= 30 * EPS
    high, low, size = arguments(np.random.default_rng(1), 1e6, 1e-5)
    assert scores.softcap(high, low, 1e6, size, Work(high.shape))[2] <= size * 2.0**-64


@pytest.mark.parametrize("cap", [0.5, 20.0, 50.0, 1e5])
def test_outputs_have_radii_of_about_1e18(cap: float) -> None:
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 64)) * 3, rng.standard_normal((200, 64)), rng.standard_normal((200, 2))
    case = q, k, v, {"softcap": cap, "causal": "bottom-right"}
    got, exact = tight(head_of(case), np.arange(3)), exact_of(case, prec=300)
    assert not got.refused
    assert got.rad.max() < 4e-18 * np.abs(v).max()
    for i, c in np.ndindex(3, 2):
        assert excess(exact["z"][i, c], got.mid[i, c], got.rad[i, c], got.low[i, c], prec=300) <= 1
    assert max(excess(exact["lse"][i], got.lse[i], got.lse_rad[i], prec=300) for i in range(3)) <= 1


def test_scores_far_beyond_the_cap_saturate() -> None:
    q, k = np.array([[1e8, 1e-3]]), np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    case = q, k, np.array([[1.0], [2.0], [-3.0]]), {"softcap": 5.0, "scale": 1.0}
    got, exact = tight(head_of(case), np.arange(1)), exact_of(case, prec=300)
    assert not got.refused
    assert got.rad.max() < 1e-17
    assert excess(exact["z"][0, 0], got.mid[0, 0], got.rad[0, 0], got.low[0, 0], prec=300) <= 1


def _text(before: str, after: str) -> Callable[[pytest.MonkeyPatch], None]:
    """softcap with one piece of its text changed."""

    def change(patch: pytest.MonkeyPatch) -> None:
        import inspect

        source = "".join(inspect.getsource(f) for f in (scores.softcap, scores._over, scores.slope_of))
        assert source.count(before) == 1, before
        space = dict(vars(scores))
        exec(compile(source.replace(before, after), "mutant", "exec", dont_inherit=False), space)
        for name in ("softcap", "_over", "slope_of"):
            patch.setattr(scores, name, space[name])

    return change


MUTANTS = {
    "argument without its low part": (0.5, 3.0, _text("exp_all(-t, -t_low,", "exp_all(-t, 0 * t_low,")),
    "argument's remainder": (0.3, 3.0, _text("(((high - p) - pe) + low) / by", "low / by")),
    "score's low part": (0.5, 3.0, _text("xp.where(far, 0.0, sign * low)", "0.0 * low")),
    "exp's second word": (0.5, 3.0, _text("n_low - y2, d_low + y2", "n_low, d_low")),
    "numerator's": (0.5, 3.0, _text("n_low - y2, d_low + y2", "n_low, d_low + y2")),
    "denominator's": (0.5, 3.0, _text("n_low - y2, d_low + y2", "n_low - y2, d_low")),
    "quotient's remainder": (0.5, 3.0, _text("((n - p) - pe) + (n_low - q * d_low)", "n_low - q * d_low")),
    "quotient's divisor": (0.5, 3.0, _text("(n_low - q * d_low)", "n_low")),
    "product with the cap": (0.3, 3.0, _text("sign * (pe + cap * q_low)", "sign * (cap * q_low)")),
    "quotient's low part": (0.3, 3.0, _text("sign * (pe + cap * q_low)", "sign * pe")),
    "sign of the low part": (0.5, 3.0, _text("sign * (pe + cap * q_low)", "pe + cap * q_low")),
    "clip too near": (0.5, 30.0, _text("abs(high) > _CLIP * cap", "abs(high) > 15 * cap")),
    "1/3": (1.0, 2.0**-7.1, _text("1 / 3", "(1 / 3 + 1e-12)")),
    "2/15": (1.0, 2.0**-7.1, _text("2 / 15", "(2 / 15 + 1e-8)")),
    "17/315": (1.0, 2.0**-7.1, _text("17 / 315", "(17 / 315 + 1e-4)")),
    "62/2835": (1.0, 2.0**-7.1, _text("62 / 2835", "0")),
    "series without the sum's remainder": (1.0, 2.0**-7.1, _text("low = rest + low\n        return", "return")),
    "series too far": (1.0, 0.05, _text("size * _SERIES <= cap", "size * 16 <= cap")),
    "slope without the square's remainder": (0.5, 3.0, _text("(low - rest) - 2", "low - 2")),
    "slope without tanh's low part": (0.5, 3.0, _text("(low - rest) - 2 * t[0] * t[1]", "low - rest")),
    "slope without the difference's remainder": (0.5, 3.0, _text("(low - rest) - 2", "-rest - 2")),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cap, most, change = MUTANTS[mutant]
    assert max(worst(cap, most)) <= 1
    change(monkeypatch)
    assert max(worst(cap, most)) > 1
