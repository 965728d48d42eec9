"""Every algorithm against loops over single numbers, within derived bounds; shapes, masks and specials drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compute
from compute import Rope, Spec, tiled, tiled_backward, whole
from tests.compute.battery import FAST, TINY, battery, case, cotangents, worst_backward, worst_forward
from tests.compute.reference import forward, gradients

CASES = dict(battery())


@pytest.fixture(autouse=True)
def tiny_tiles(monkeypatch):
    for module in (tiled, tiled_backward):
        monkeypatch.setattr(module, "plan", lambda problem: TINY)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm", FAST)
def test_forward(name, algorithm):
    assert worst_forward(CASES[name], algorithm) <= 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm", FAST)
def test_backward(name, algorithm):
    assert worst_backward(CASES[name], algorithm) <= 1


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "large" not in n])
def test_the_unshifted_formula_where_exp_is_in_range(name):
    assert worst_forward(CASES[name], "plain") <= 1
    assert worst_backward(CASES[name], "plain") <= 1


flags = st.booleans()


@st.composite
def drawn_cases(draw):
    h_kv, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    n, m = draw(st.integers(0, 7)), draw(st.integers(0, 8))
    batch = draw(st.sampled_from([(), (2,), (1, 2)]))
    d = 2 * draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spec = Spec(
        scale=draw(st.sampled_from([None, 0.5, -2.0, 0.0])),
        causal=draw(st.sampled_from(["none", "top-left", "bottom-right"])),
        window=draw(st.sampled_from([None, (1, 1), (0, None), (None, 2), (3, 0)])),
        rope=draw(st.sampled_from([None, Rope("half"), Rope("interleaved", 10.0, 5, 0)])),
        softcap=draw(st.sampled_from([None, 1.0])),
        empty_row=draw(st.sampled_from(["zero", "mean", "nan"])),
        past=draw(st.integers(0, 3)),
    )
    h, full = groups * h_kv, (*batch, groups * h_kv, n, m)
    given_ = {}
    if draw(flags):
        given_["mask"] = rng.random(full[draw(st.integers(0, len(full) - 1)) :]) > 0.3
    if draw(flags):
        bias = rng.normal(size=[1 if draw(flags) else s for s in full])
        given_["bias"] = np.where(rng.random(bias.shape) > 0.8, -np.inf, bias)
    if draw(flags):
        given_["sink"] = rng.normal(size=h)
    if draw(flags):
        given_["alibi_slopes"] = rng.random(h)
    if draw(flags):
        given_["dropout_mask"] = rng.random(full) * (rng.random(full) > 0.3)
    if draw(flags):
        given_["key_lengths"] = rng.integers(0, m + 1, size=batch)
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    sizes = {"heads": (h, h_kv), "n": n, "m": m, "d": (d, draw(st.integers(0, 3))), "batch": batch}
    return case(draw(st.integers(0, 99)), spec, **sizes, dtype=dtype, **given_)


@settings(max_examples=150)
@given(drawn_cases())
def test_any_call(c):
    want, back = forward(c), None
    for algorithm in FAST:
        assert worst_forward(c, algorithm, want) <= 1
    if c.q.size and c.k.size:
        back = gradients(c, *cotangents(c))
        for algorithm in FAST:
            assert worst_backward(c, algorithm, back) <= 1


@pytest.mark.parametrize("algorithm", [*FAST, "auto"])
@pytest.mark.parametrize(("n", "m"), [(127, 513), (128, 512), (129, 511), (1, 1500), (1025, 1), (600, 1030)])
def test_real_tiles_on_ragged_and_long_rows(algorithm, n, m, monkeypatch):
    monkeypatch.undo()
    for causal in ("none", "bottom-right"):
        c = case(n, Spec(causal=causal), n=n, m=m, d=(8, 4), heads=(2, 1), dtype=np.float64)
        # A reference in float64 with its own error: the shifted formula, itself held to the loops above. Both obey
        # the bound of sums in any order, so their distance obeys twice the bound, here per row by max|v|.
        a, la = compute.attention(*c.args, return_lse=True, algorithm="shifted")
        b, lb = compute.attention(*c.args, return_lse=True, algorithm=algorithm)
        reach = abs(c.q).max() * abs(c.k).max() * 8
        bound = 2 * (m + 8 * reach + 30) * 2.0**-53 * 2
        assert abs(a - b).max() <= bound * abs(c.v).max()
        finite = np.isfinite(la)
        assert (np.isfinite(lb) == finite).all()
        assert (abs(la[finite] - lb[finite]) <= bound * (1 + abs(la[finite]))).all()
        go = np.random.default_rng(5).normal(size=a.shape)
        ga = compute.attention_backward(go, *c.args, algorithm="shifted")
        gb = compute.attention_backward(go, *c.args, algorithm=algorithm)
        for name in ("dq", "dk", "dv"):
            x, y = getattr(ga, name), getattr(gb, name)
            wide = (
                abs(go).max()
                * max(abs(c.v).max() * 4 * max(abs(c.q).max(), abs(c.k).max()), 1)
                * (n if name != "dq" else 1)
            )
            assert abs(x - y).max() <= 8 * bound * wide


@pytest.mark.parametrize("algorithm", ["plain", "shifted"])
def test_pieces_of_the_batch_are_the_whole(algorithm, monkeypatch):
    rng = np.random.default_rng(2)
    q, k, v = rng.normal(size=(5, 2, 4, 3, 4)), rng.normal(size=(5, 2, 2, 6, 4)), rng.normal(size=(5, 2, 2, 6, 2))
    grad, grad_lse = rng.normal(size=(5, 2, 4, 3, 2)), rng.normal(size=(5, 2, 4, 3))
    spec = Spec(causal="bottom-right", rope=Rope(), empty_row="mean")
    for bias in (rng.normal(size=(5, 1, 1, 1, 6)), rng.normal(size=(4, 3, 1)), rng.normal(size=(1, 2, 1, 1, 6))):
        given_ = {"bias": bias, "sink": rng.normal(size=(5, 1, 4)), "key_lengths": rng.integers(0, 7, size=(5, 2))}
        given_["mask"] = rng.random((2, 1, 3, 6)) > 0.2
        given_["alibi_slopes"] = rng.random((5, 2, 4))
        given_["dropout_mask"] = rng.random((5, 1, 1, 3, 6))
        seen = []
        for cells, threads in ((1 << 30, 1), (300, 1), (1, 3)):
            monkeypatch.setattr(whole, "CELLS", cells)
            out = compute.attention(q, k, v, spec, **given_, return_lse=True, algorithm=algorithm, threads=threads)
            g = compute.attention_backward(
                grad, q, k, v, spec, **given_, grad_lse=grad_lse, algorithm=algorithm, threads=threads
            )
            seen.append([*out, g.dq, g.dk, g.dv, g.dsink, g.dbias, g.dscale])
        for other in seen[1:]:
            for a, b in zip(seen[0][:6], other[:6], strict=True):
                assert np.array_equal(a, b)
            # Sums over the batch: in pieces, or by NumPy at once.
            assert abs(seen[0][6] - other[6]).max() <= 64 * 2.0**-53 * 100
            assert abs(seen[0][7] - other[7]) <= 400 * 2.0**-53 * 100


def test_zero_sizes():
    for n, m, d_v in [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)]:
        q, k, v = np.ones((2, n, 4)), np.ones((2, m, 4)), np.ones((2, m, d_v))
        for algorithm in ("plain", *FAST, "auto"):
            out, lse = compute.attention(q, k, v, return_lse=True, algorithm=algorithm)
            assert out.shape == (2, n, d_v)
            assert (out == (0 if m == 0 else 1)).all()
            assert m > 0 or (lse == -np.inf).all()
            g = compute.attention_backward(np.ones((2, n, d_v)), q, k, v, algorithm=algorithm)
            assert g.dq.shape == q.shape
            assert g.dk.shape == k.shape
            assert g.dv.shape == v.shape
            assert not g.dq.any()
    assert compute.attention(np.ones((0, 2, 3, 4)), np.ones((0, 2, 3, 4)), np.ones((0, 2, 3, 5))).shape == (0, 2, 3, 5)


@pytest.mark.parametrize("algorithm", ["plain", *FAST])
def test_results_follow_dtype_and_inputs_are_untouched(algorithm):
    import ml_dtypes

    for dtype, lse_dtype in [
        (np.float64, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (ml_dtypes.bfloat16, np.float32),
    ]:
        c = case(3, dtype=dtype, heads=(2, 1))
        kept = [x.copy() for x in (c.q, c.k, c.v)]
        for x in (c.q, c.k, c.v):
            x.flags.writeable = False
        out, lse = compute.attention(*c.args, return_lse=True, algorithm=algorithm)
        assert out.dtype == dtype
        assert lse.dtype == lse_dtype
        g = compute.attention_backward(out, *c.args, algorithm=algorithm)
        assert g.dq.dtype == g.dk.dtype == g.dv.dtype == dtype
        assert all((a == b).all() for a, b in zip((c.q, c.k, c.v), kept, strict=True))
        # Computed in float32 and rounded once: the float32 call, rounded.
        if lse_dtype == np.float32:
            wide = compute.attention(*(x.astype(np.float32) for x in c.args[:3]), algorithm=algorithm)
            assert (out == wide.astype(dtype)).all()


@pytest.mark.parametrize("algorithm", FAST)
def test_saved_output_and_lse_give_the_same_gradients(algorithm):
    c = CASES["everything"]
    out, lse = compute.attention(*c.args, **c.given, return_lse=True, algorithm=algorithm)
    g = compute.attention_backward(out, *c.args, **c.given, algorithm=algorithm)
    saved = compute.attention_backward(out, *c.args, **c.given, algorithm=algorithm, output=out, lse=lse)
    # The log-sum-exp went to base 2 and back: two roundings of a number of its size.
    slack = 8 * 2.0**-53 * (1 + abs(lse[np.isfinite(lse)]).max())
    for name in ("dq", "dk", "dv", "dbias", "dsink"):
        x, y = getattr(g, name), getattr(saved, name)
        assert abs(x - y).max() <= slack * 40 * abs(x).max()
