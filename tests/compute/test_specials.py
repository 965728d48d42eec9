"""Special numbers drawn into every array: inert where masked, the same pattern on every algorithm where seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compute
from compute import Spec, tiled, tiled_backward
from tests.compute.battery import FAST, TINY

SPECIALS = (np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, -0.0, 1.0)


@pytest.fixture(autouse=True)
def tiny_tiles(monkeypatch):
    for module in (tiled, tiled_backward):
        monkeypatch.setattr(module, "plan", lambda problem: TINY)


@st.composite
def calls(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    q, k, v = (rng.normal(size=(2, size, 2)).astype(dtype) for size in (n, m, m))
    places = [
        (
            draw(st.sampled_from("qkv")),
            draw(st.integers(0, 7)),
            draw(st.integers(0, 1)),
            draw(st.sampled_from(SPECIALS)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    spec = Spec(
        causal=draw(st.sampled_from(["none", "top-left", "bottom-right"])),
        window=draw(st.sampled_from([None, (1, 1)])),
        softcap=draw(st.sampled_from([None, 2.0])),
    )
    mask = rng.random((n, m)) > 0.4 if draw(st.booleans()) else None
    return q, k, v, places, spec, mask


def put(arrays, places):
    out = {name: x.copy() for name, x in zip("qkv", arrays, strict=True)}
    for name, row, channel, value in places:
        with np.errstate(over="ignore"):
            out[name][:, row % out[name].shape[1], channel] = value
    return out["q"], out["k"], out["v"]


@settings(max_examples=150)
@given(calls())
def test_the_same_pattern_on_every_algorithm(call):
    q, k, v, places, spec, mask = call
    args = put((q, k, v), places)
    grad = np.ones_like(q)
    outs = [compute.attention(*args, spec, mask=mask, return_lse=True, algorithm=a) for a in FAST]
    for out, lse in outs[1:]:
        for a, b in ((outs[0][0], out), (outs[0][1], lse)):
            assert (np.isnan(a) == np.isnan(b)).all()
            assert (np.isposinf(a) == np.isposinf(b)).all()
            assert (np.isneginf(a) == np.isneginf(b)).all()
    for algorithm in FAST:  # a gradient may be NaN, but never for a row or key that nothing special reaches
        g = compute.attention_backward(grad, *args, spec, mask=mask, algorithm=algorithm)
        clean = np.isfinite(outs[0][0]).all(axis=-1) & np.isfinite(args[0]).all(axis=-1)
        seen = seen_keys(q.shape[1], k.shape[1], spec, mask)
        calm_keys = np.isfinite(args[1]).all(axis=-1) & np.isfinite(args[2]).all(axis=-1)
        for h in range(2):
            calm_rows = clean[h] & ~(seen & ~calm_keys[h]).any(axis=1) & (abs(args[0][h]) < 1e6).all(axis=-1)
            calm_rows &= ~(seen & (abs(args[1][h]) > 1e6).any(axis=-1)).any(axis=1)
            calm_rows &= ~(seen & (abs(args[2][h]) > 1e6).any(axis=-1)).any(axis=1)
            assert np.isfinite(g.dq[h][calm_rows]).all()
            calm = ~(seen & ~calm_rows[:, None]).any(axis=0)
            assert np.isfinite(g.dk[h][calm]).all()
            assert np.isfinite(g.dv[h][calm]).all()


def seen_keys(n, m, spec, mask):
    i, j = np.arange(n)[:, None], np.arange(m)[None]
    position = i + (m - n if spec.causal == "bottom-right" else 0)
    seen = np.ones((n, m), bool) if mask is None else mask.copy()
    if spec.causal != "none":
        seen &= j <= position
    if spec.window is not None:
        seen &= abs(j - position) <= 1
    return seen


@settings(max_examples=150)
@given(calls())
def test_what_no_row_sees_changes_no_bit(call):
    q, k, v, places, spec, mask = call
    seen = seen_keys(q.shape[1], k.shape[1], spec, mask)
    hidden = [p for p in places if p[0] != "q" and not seen[:, p[1] % k.shape[1]].any()]
    dead = [p for p in places if p[0] == "q" and not seen[p[1] % q.shape[1]].any()]
    args = put((q, k, v), hidden + dead)
    grad = np.random.default_rng(0).normal(size=q.shape).astype(q.dtype)
    for algorithm in FAST:
        a = compute.attention(q, k, v, spec, mask=mask, return_lse=True, algorithm=algorithm)
        b = compute.attention(*args, spec, mask=mask, return_lse=True, algorithm=algorithm)
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        ga, gb = (compute.attention_backward(grad, *x, spec, mask=mask, algorithm=algorithm) for x in ((q, k, v), args))
        assert all(np.array_equal(getattr(ga, x), getattr(gb, x)) for x in ("dq", "dk", "dv"))


@settings(max_examples=100)
@given(calls())
def test_masked_cells_change_no_bit_of_their_row(call):
    """A key that row i doesn't see may be seen by others: row i keeps its bits."""
    q, k, v, places, spec, mask = call
    seen = seen_keys(q.shape[1], k.shape[1], spec, mask)
    args = put((q, k, v), [p for p in places if p[0] != "q"])
    touched = {p[1] % k.shape[1] for p in places if p[0] != "q"}
    blind = ~seen[:, sorted(touched)].any(axis=1) if touched else np.ones(q.shape[1], bool)
    for algorithm in FAST:
        a = compute.attention(q, k, v, spec, mask=mask, algorithm=algorithm)
        b = compute.attention(*args, spec, mask=mask, algorithm=algorithm)
        assert np.array_equal(a[:, blind], b[:, blind])
