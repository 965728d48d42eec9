"""`certify` with gradients: Tier 2 when asked for or when the target needs it, and what is left where it refuses."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from compute import Spec, canaries, certify, climb, device_arithmetic
from compute.certificate import Certificate
from compute.enclosure import Enclosure, add_up
from tests.compute import fake_cupy
from tests.compute.truth import array, excess, truth

MATRICES = ("dq", "dk", "dv")


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def relative(e: Enclosure) -> float:
    return float(np.max(e.rad) / np.abs(e.mid).max())


def worst(e: Enclosure, exact: Any) -> float:
    assert e.low is not None
    return max(excess(exact[at], e.mid[at], e.rad[at], e.low[at], prec=300) for at in np.ndindex(e.shape))


def step(c: Certificate) -> str:
    return next(s for s in c.steps if s.startswith("gradients"))


@pytest.mark.parametrize("extras", [{}, {"softcap": 4.0}, {"sink": 0.3, "bias": True}])
def test_tight_gradients_trust_no_library(extras: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    q, k, v, go = draw(rng, 6, 8), draw(rng, 40, 8), draw(rng, 40, 3), draw(rng, 6, 3)
    arrays = {"bias": draw(rng, 6, 40)} if "bias" in extras else {}
    arrays |= {"sink": np.array([extras["sink"]])} if "sink" in extras else {}
    got = certify(q, k, v, Spec(softcap=extras.get("softcap")), grad_output=go, tier="tight", **arrays)
    exact = truth(
        q, k, v, softcap=extras.get("softcap"), sink=extras.get("sink"), grad_output=go, prec=300,
        biases=(arrays["bias"],) if arrays.get("bias") is not None else (),
    )  # fmt: skip
    names = (*MATRICES, "dbias") if "bias" in extras else MATRICES
    for name in names:
        e = getattr(got, name)
        assert worst(e, exact[name]) <= 1
        assert relative(e) < 4e-17
    for name, e in (("dscale", got.dscale), ("dsink", got.dsink)):
        if e is None:
            assert name == "dsink"
            assert "sink" not in extras
            continue
        e = e.reshape()
        assert excess(exact[name], float(e.mid), float(e.rad), float(e.low), prec=300) <= 1  # type: ignore[arg-type]
        assert relative(e) < 1e-15
    assert worst(got.output, exact["z"]) <= 1
    assert not any(a.startswith(("A1", "A5")) for a in got.assumptions)
    assert "Tier 2" in step(got)


def test_float32_is_reached_for_every_entry_and_right() -> None:
    rng = np.random.default_rng(1)
    q, k, v, go = draw(rng, 40, 2), draw(rng, 420, 2), draw(rng, 420, 2), draw(rng, 40, 2)
    got = certify(q, k, v, grad_output=go, target="f32")
    assert climb.SMALL < 40 * 420
    exact = truth(q, k, v, grad_output=go)
    for name in MATRICES:
        value, undecided = getattr(got, name).rounded("float32")
        assert not undecided.any()
        assert got.undecided_gradients == 0
        assert (value == array(exact[name]).astype(np.float32)).all()
    assert got.undecided == 0


@pytest.mark.parametrize("spec", [Spec(), Spec(causal="top-left", softcap=20.0), Spec(window=(100, 100), lse_base=2.0)])
def test_a_relative_target_is_climbed_to(spec: Spec) -> None:
    rng = np.random.default_rng(2)
    q, k, v, go = (draw(rng, 300, 16) for _ in range(4))
    coarse = certify(q, k, v, spec, grad_output=go, tier="norm")
    assert step(coarse).endswith("Tier 1")
    assert max(relative(getattr(coarse, name)) for name in MATRICES) > 1e-15
    assert coarse.undecided_gradients == 0  # there is no target
    loose = certify(q, k, v, spec, grad_output=go, target=1e-10)
    assert step(loose).endswith("Tier 1")
    got = certify(q, k, v, spec, grad_output=go, target=1e-15)
    assert "Tier 2" in step(got)
    assert got.undecided == 0
    for name in MATRICES:
        a, b = getattr(got, name), getattr(coarse, name)
        assert relative(a) <= 1e-15
        assert (np.abs(a.mid - b.mid) <= a.rad + b.rad).all()
    assert relative(got.output) <= 1e-15
    # the scale's gradient is one sum over all entries, whose radii add up
    assert got.undecided_gradients == int(relative(got.dscale.reshape(1)) > 1e-15)  # type: ignore[union-attr]
    assert f"of the gradients: {got.undecided_gradients}" in got.text()


def test_where_tier_two_refuses_tier_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb.arb, "available", lambda: False)
    rng = np.random.default_rng(3)
    q, k, v, go = draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2), draw(rng, 3, 2)
    q[1] *= 1e15  # one row too large to be split
    k[:, 0] += 3.0
    for options in ({"tier": "tight"}, {"target": "f32"}):
        got = certify(q, k, v, grad_output=go, **options)  # type: ignore[arg-type]
        assert np.isfinite(got.dv.rad).all()  # type: ignore[union-attr]
        assert np.isfinite(got.output.rad).all()
        exact = truth(q, k, v, grad_output=go, prec=300)
        for name in MATRICES:
            e = getattr(got, name)
            low = np.zeros(e.shape) if e.low is None else e.low
            for at in np.ndindex(e.shape):
                assert excess(exact[name][at], e.mid[at], e.rad[at], low[at], prec=300) <= 1


def test_sums_over_heads_of_a_group_keep_their_low_parts() -> None:
    rng = np.random.default_rng(4)
    q, go = draw(rng, 6, 5, 8), draw(rng, 6, 5, 3)
    k, v = draw(rng, 2, 30, 8), draw(rng, 2, 30, 3)
    got = certify(q, k, v, grad_output=go, bias=draw(rng, 1, 1, 30), tier="tight")
    for name in (*MATRICES, "dbias", "dscale"):
        assert relative(getattr(got, name)) < 1e-16, name


def test_pairs_add_up_within_their_radius() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(5)
    mid = draw(rng, 7, 50) * 10.0 ** rng.integers(-3, 3, (7, 50))
    low = mid * 2.0**-54 * rng.uniform(-1, 1, (7, 50))
    for axis, view in ((0, mid.T), (-2, mid.T), ((1,), mid)):
        total = add_up(Enclosure(mid, np.full((7, 50), 1e-25), low), axis)
        lows = low.T if view is not mid else low
        assert total.low is not None
        for i, (a, b) in enumerate(zip(view, lows, strict=True)):
            exact = sum((Fraction(float(x)) for x in (*a, *b)), Fraction(0))
            got = Fraction(float(total.mid[i])) + Fraction(float(total.low[i]))
            assert abs(exact - got) + len(a) * Fraction(1e-25) <= Fraction(float(total.rad[i]))
            assert total.rad[i] < 1e-23


def test_a_device_climbs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy: Any = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(canaries, "_passed", set(canaries._passed))
    from compute.table_exp import exp64

    monkeypatch.setattr(device_arithmetic, "exps", lambda: (exp64, None))
    rng = np.random.default_rng(6)
    arrays = [draw(rng, 140, 4) for _ in range(4)]
    want = certify(*arrays[:3], grad_output=arrays[3], target=1e-15)
    q, k, v, go = (cupy.asarray(x) for x in arrays)
    got = certify(q, k, v, grad_output=go, target=1e-15)
    assert step(got) == step(want)
    for name in MATRICES:
        a, b = getattr(got, name).host(), getattr(want, name)
        assert (np.abs(a.mid - b.mid) <= a.rad + b.rad).all()
        assert relative(a) <= 1e-15
