"""Calls that once gave a false certificate, or a traceback: each with its right value, or its refusal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import compute
from compute import Spec, certify
from compute.enclosure import Enclosure, add_up
from compute.errors import InputError

flint = pytest.importorskip("flint")
TIERS: Any = ("norm", "abs", "tight", "auto", "arb")
X = np.ones((2, 2))
V = np.array([[1.0, 2.0], [3.0, 4.0]])
NAN = np.array([[0.0, np.nan], [0.0, 0.0]])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("where", ["bias", "mask"])
def test_nan_that_takes_part_is_refused_and_behind_a_mask_inert(tier: Any, where: str) -> None:
    with pytest.raises(InputError, match="NaN"):
        certify(X, X, V, tier=tier, **{where: NAN})
    hidden = np.array([[True, False], [True, True]])
    given: Any = {"bias": NAN, "mask": hidden}
    got = certify(X, X, V, tier=tier, **given)
    clean = certify(X, X, V, tier=tier, bias=np.zeros((2, 2)), mask=hidden)
    assert np.array_equal(got.output.mid, clean.output.mid)
    assert (got.output.rad < 1e-12).all()
    assert (got.lse.rad < 1e-12).all()


def test_scales_that_no_float_holds_are_their_exact_numbers_or_refused() -> None:
    for tiny in (Fraction(5, 4) / 2**1074, Fraction(1, 10**400), Fraction(1, 3) / 2**1040):
        with pytest.raises(InputError, match="2\\^-900"):
            Spec(scale=tiny)
    assert Spec(scale=Fraction(5, 4) / 2**1000).scale == Fraction(5, 4) / 2**1000  # a float holds it
    with pytest.raises(InputError):
        Spec(scale=10**400)
    one = np.array([[1.0]])
    k = np.array([[2.0**-70], [0.0]])
    v = np.array([[1.0], [0.0]])
    exact = Fraction(2**70 + 2**16, 2**70)
    for scale in (2**70 + 2**16, Fraction(2**70 + 2**16)):
        for tier in TIERS:
            assert encloses(certify(one, k, v, Spec(scale=scale), tier=tier).output, sigmoid(exact))
    third = np.longdouble(1) / 3
    if float(third) != third:  # a platform with a longer double
        exact = Fraction(*map(int, third.as_integer_ratio()))
        for tier in TIERS:
            got = certify(one, np.array([[1.0], [0.0]]), v, Spec(scale=third), tier=tier)
            assert encloses(got.output, sigmoid(exact))
    assert isinstance(Spec(scale=np.int8(3)).scale, float)
    assert Spec(scale=Fraction(1, 3)).scale == Fraction(1, 3)


def sigmoid(x: Fraction) -> Any:
    old, flint.ctx.prec = flint.ctx.prec, 300
    try:
        return 1 / (1 + (-flint.arb(flint.fmpq(x.numerator, x.denominator))).exp())
    finally:
        flint.ctx.prec = old


def encloses(e: Enclosure, value: Any) -> bool:
    old, flint.ctx.prec = flint.ctx.prec, 300
    try:
        low = 0.0 if e.low is None else float(np.ravel(e.low)[0])
        gap = abs(value - flint.arb(float(np.ravel(e.mid)[0])) - flint.arb(low))
        return bool(gap <= flint.arb(float(np.ravel(e.rad)[0])))
    finally:
        flint.ctx.prec = old


def test_numbers_that_a_float_would_round_are_refused() -> None:
    with pytest.raises(InputError, match="no float64 holds"):
        certify(X, X, V, sink=2**53 + 1)
    with pytest.raises(InputError, match="no float64 holds"):
        compute.attention(X, X, V, sink=np.int64(2**53 + 1))
    assert certify(X, X, V, sink=2**53).output.rad.max() < 1
    with pytest.raises(InputError, match="softcap"):
        Spec(softcap=Fraction(1, 3))  # type: ignore[arg-type]
    assert Spec(softcap=Fraction(1, 4)).softcap == 0.25  # type: ignore[arg-type]
    with pytest.raises(InputError, match="past"):
        Spec(causal=True, past=2**63)


def test_contains_sees_the_low_part() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((5, 4)) for _ in range(3))
    e = certify(q, k, v, tier="tight").output
    assert e.low is not None
    apart = abs(e.low) > 4 * e.rad
    assert apart.any()
    assert not e.contains(e.mid)[apart].any()
    wide = Enclosure(np.array([1.0]), np.array([2.0**-60]), np.array([2.0**-55]))
    assert not wide.contains([1.0])[0]
    assert Enclosure(np.array([1.0]), np.array([2.0**-55]), np.array([2.0**-55])).contains([1.0])[0]
    assert not Enclosure(np.array([1.0]), np.array([2.0**-55]), np.array([-(2.0**-54)])).contains([1.0])[0]
    assert Enclosure(np.array([0.0]), np.array([np.inf])).contains([1e308])[0]
    assert not Enclosure(np.array([0.0]), np.array([1.0])).contains([np.inf])[0]
    with pytest.raises(InputError):
        e.contains("a")
    with pytest.raises(InputError):
        e.rounded(["float32"])  # type: ignore[arg-type]


def test_products_that_vanish_count_in_the_scale_gradient() -> None:
    n, d = 256, 128
    q, k = np.full((n, d), 1e-162), np.zeros((2, d))
    k[0] = 1.0
    v = np.array([[1.0], [0.0]])
    go = np.full((n, 1), 1.1e-161)
    # dscale = Σ_i go_i p(1 − p) q_i·k_0 with p = 1/2 to first order, all of it far below the normal numbers
    exact = flint.arb(n) * flint.arb(float(go[0, 0])) / 4 * (flint.arb(d) * flint.arb(1e-162))
    for tier in ("norm", "abs", "tight"):
        e = certify(q, k, v, grad_output=go, tier=tier).dscale
        assert e is not None
        assert encloses(e, exact)


def test_what_overflows_has_no_bound_and_says_so() -> None:
    c = certify(np.full((1, 2), 1e-305), np.full((2, 2), 1.79e308), np.array([[1.0], [2.0]]))
    for e in (c.output, c.lse):
        assert not np.isnan(e.rad).any()
        assert not np.isnan(e.lower()).any()
        assert e.contains(e.mid).all()
    parts = Enclosure(np.array([1.2e308, 1.2e308, -1.2e308]), np.zeros(3))
    whole = add_up(parts, 0)
    assert whole.mid == 0
    assert whole.rad == np.inf
    assert whole.lower() == -np.inf


@pytest.mark.parametrize("tier", TIERS[:4])
@pytest.mark.parametrize(
    ("n", "m", "spec"),
    [
        (300, 128, Spec(causal=True, window=(64, 0))),
        (300, 3, Spec(window=(1, 1))),
        (200, 200, Spec(causal=True, past=200, window=(0, 0))),
        (130, 2, Spec(causal=True, window=(0, 0))),
        (130, 0, Spec(causal=True, window=(1, 0))),
    ],
)
def test_windows_that_end_before_the_last_rows(tier: Any, n: int, m: int, spec: Spec) -> None:
    rng = np.random.default_rng(n)
    q, k, v, go = (rng.standard_normal((s, 4)) for s in (n, m, m, n))
    c = certify(q, k, v, spec, grad_output=go, tier=tier)
    g = compute.attention_backward(go, q, k, v, spec)
    near = [(c.output, compute.attention(q, k, v, spec)), (c.dq, g.dq), (c.dk, g.dk), (c.dv, g.dv)]
    for e, got in near:
        assert e is not None
        assert np.isfinite(e.rad).all()
        assert (abs(got - e.mid) <= e.rad + 1e-11).all()
    assert (c.output.mid[-1] == 0).all()


def test_calls_without_heads_have_gradients_of_nothing() -> None:
    for shape in ((0, 3, 4), (0, 2, 3, 4)):
        x = np.zeros(shape)
        c = certify(x, x, x, grad_output=x)
        assert c.dq is not None
        assert c.dq.shape == shape
        assert c.dscale is not None
        assert float(c.dscale.mid) == 0
