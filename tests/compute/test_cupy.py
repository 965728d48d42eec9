"""The CuPy path on a stand-in: chosen by the input, CuPy's functions only, NumPy's bits, CuPy arrays back."""

import sys

import numpy as np
import pytest

import compute
from compute import Spec, tiled, tiled_backward
from compute.errors import DeviceError, InputError, NotInstalled
from compute.kernels import bridge
from compute.kernels.emulator import compiler
from tests.compute import fake_cupy
from tests.compute.battery import TINY, battery, cotangents

CASES = {name: c for name, c in battery() if name != "float16"}


@pytest.fixture
def cupy(monkeypatch):
    fake = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    for module in (tiled, tiled_backward):
        monkeypatch.setattr(module, "plan", lambda problem: TINY)
    return fake


def moved(cupy, value):
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm", ["plain", "shifted", "online", "bounded"])
def test_cupy_arrays_go_the_same_way(cupy, name, algorithm):
    c = CASES[name]
    given = {key: moved(cupy, value) for key, value in c.given.items()}
    args = [moved(cupy, x) for x in (c.q, c.k, c.v)]
    out, lse = compute.attention(*args, c.spec, **given, return_lse=True, algorithm=algorithm)
    want, want_lse = compute.attention(*c.args, **c.given, return_lse=True, algorithm=algorithm, threads=1)
    assert type(out) is type(lse) is fake_cupy.ndarray
    assert np.array_equal(out.inner, want, equal_nan=True)
    assert np.array_equal(lse.inner, want_lse, equal_nan=True)
    go, gl = cotangents(c)
    g = compute.attention_backward(
        cupy.asarray(go), *args, c.spec, **given, grad_lse=cupy.asarray(gl), algorithm=algorithm
    )
    h = compute.attention_backward(go, *c.args, **c.given, grad_lse=gl, algorithm=algorithm, threads=1)
    for field in ("dq", "dk", "dv", "dbias", "dsink"):
        mine, theirs = getattr(g, field), getattr(h, field)
        assert (mine is None) == (theirs is None)
        assert mine is None or np.array_equal(mine.inner, theirs, equal_nan=True)
    assert np.array_equal(g.dscale, h.dscale, equal_nan=True)


def test_rows_next_to_keys_that_are_not_finite(cupy):
    c = CASES["mask"]
    v = c.v.copy()
    v[:, 3] = np.nan
    out = compute.attention(*(cupy.asarray(x) for x in (c.q, c.k, v)), mask=cupy.asarray(c.given["mask"]))
    assert np.array_equal(out.inner, compute.attention(c.q, c.k, v, mask=c.given["mask"]), equal_nan=True)


def test_layouts_cache_blocks_and_formulas(cupy):
    rng = np.random.default_rng(0)
    t, starts = rng.normal(size=(5, 2, 4)), np.array([0, 2, 5])
    both = [compute.packed_attention(*(f(t),) * 3, f(starts), f(starts)) for f in (cupy.asarray, np.asarray)]
    assert np.array_equal(both[0].inner, both[1])
    x = rng.normal(size=(6, 8))
    w = rng.normal(size=(4, 8, 8))
    both = [compute.self_attention(f(x), *(f(a) for a in w), heads=2) for f in (cupy.asarray, np.asarray)]
    assert np.array_equal(both[0].inner, both[1])
    caches = [compute.Cache(Spec(causal=True), 6) for _ in range(2)]
    outs = [c.extend(*(f(x)[None],) * 3) for c, f in zip(caches, (cupy.asarray, np.asarray), strict=True)]
    assert np.array_equal(outs[0].inner, outs[1])
    dot = ["mul", ["at", "Q", [["sym", "i"], ["sym", "c"]]], ["at", "K", [["sym", "j"], ["sym", "c"]]]]
    tree = {
        "version": 1,
        "inputs": [{"name": "Q", "axes": ["n", "d"]}, {"name": "K", "axes": ["m", "d"]}],
        "output": [["i", "n"], ["j", "m"]],
        "body": ["exp", ["sum", "c", ["num", 0, 1], ["add", ["sym", "d"], ["num", -1, 1]], dot]],
    }
    f = compute.function_from(tree)
    assert not f.elementwise
    assert np.array_equal(f(cupy.asarray(x), cupy.asarray(w[0])).inner, f(x, w[0]))


ENTRY = ["at", "S", [["sym", "i"], ["sym", "j"]]]
SQUASH = {
    "version": 1,
    "inputs": [{"name": "S", "axes": ["n", "m"]}, {"name": "cap", "axes": []}],
    "output": [["i", "n"], ["j", "m"]],
    "body": ["mul", ["sym", "cap"], ["tanh", ["mul", ENTRY, ["pow", ["sym", "cap"], ["num", -1, 1]]]]],
}


def test_an_elementwise_formula_is_one_kernel(cupy, monkeypatch):
    f = compute.function_from(SQUASH)
    assert f.elementwise
    built = []

    class Backend:
        xp = cupy

        def build(self, source, name):
            built.append(source)
            return lambda grid, block, args: args[0].inner.__setitem__(..., 7.0)

    monkeypatch.setattr(bridge, "device", Backend)
    monkeypatch.setattr(cupy, "ascontiguousarray", lambda x, dtype=None: x, raising=False)
    for _ in range(2):
        assert (f(cupy.asarray(np.ones((2, 3))), cap=2.0).inner == 7).all()
    assert len(built) == 1
    assert built[0].count("__global__") == 1


def test_the_kernel_of_a_formula_gives_its_values():
    try:
        compiler()
    except NotInstalled as error:
        pytest.skip(str(error))
    from compute.kernels.loader import Emulator

    f, s = compute.function_from(SQUASH), np.random.default_rng(0).normal(size=(4, 5))
    got = f.kernel("float64", Emulator())(S=s, cap=1.5)
    np.testing.assert_allclose(got, f(s, 1.5), rtol=8 * 2.0**-53)


def test_our_kernels_are_an_algorithm_by_name(monkeypatch):
    c = CASES["causal, bottom-right"]
    with pytest.raises(DeviceError, match="CuPy"):
        compute.attention(*c.args, algorithm="kernel")
    try:
        compiler()
    except NotInstalled as error:
        pytest.skip(str(error))
    from compute.kernels.loader import Emulator

    backend, forward, backward = Emulator(), bridge.forward, bridge.backward
    monkeypatch.setattr(bridge, "forward", lambda problem: forward(problem, backend))
    monkeypatch.setattr(bridge, "backward", lambda problem, *rest: backward(problem, *rest, backend))
    spec = Spec(causal="bottom-right", lse_base=2.0)
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(2, 4, 9, 16)), rng.normal(size=(2, 2, 11, 16)), rng.normal(size=(2, 2, 11, 8))
    grad, grad_lse = rng.normal(size=(2, 4, 9, 8)), rng.normal(size=(2, 4, 9))
    slack = 400 * 2.0**-53 * 16
    for sink in (rng.normal(size=4), rng.normal(size=(1, 4)), 0.25):
        given = {"sink": sink}
        a = compute.attention(q, k, v, spec, **given, return_lse=True, algorithm="kernel")
        b = compute.attention(q, k, v, spec, **given, return_lse=True, algorithm="shifted")
        assert all(abs(x - y).max() <= slack for x, y in zip(a, b, strict=True))
        given["grad_lse"] = grad_lse
        ga, gb = (
            compute.attention_backward(grad, q, k, v, spec, **given, algorithm=name) for name in ("kernel", "shifted")
        )
        for name in ("dq", "dk", "dv", "dsink"):
            x, y = getattr(ga, name), getattr(gb, name)
            assert np.shape(x) == np.shape(y)
            assert abs(x - y).max() <= 40 * slack
        assert abs(ga.dscale - gb.dscale) <= 400 * slack
    with pytest.raises(InputError, match="sink"):
        compute.attention_backward(grad, q, k, v, spec, sink=np.zeros((2, 4)), algorithm="kernel")
    with pytest.raises(InputError, match="bias"):
        compute.attention(q, k, v, spec, bias=np.zeros(11), algorithm="kernel")
