"""Operation trees: right values, refused text, inert cells."""

import json
import math

import numpy as np
import pytest

import compute
from compute import evaluate
from compute.errors import InputError

ONE, ZERO = ["num", 1, 1], ["num", 0, 1]


def sym(name):
    return ["sym", name]


def last(size):
    return ["add", sym(size), ["num", -1, 1]]


def total(binder, size, body):
    return ["sum", binder, ZERO, last(size), body]


def make(inputs, output, body):
    tree = {"version": 1, "inputs": [{"name": n, "axes": a} for n, a in inputs], "output": output, "body": body}
    return compute.function_from(json.loads(json.dumps(tree)))


DOT = total("c", "d", ["mul", ["at", "Q", [sym("i"), sym("c")]], ["at", "K", [sym("j"), sym("c")]]])
WEIGHT = ["exp", DOT]
ATTENTION = [
    "mul",
    total("j", "m", ["mul", WEIGHT, ["at", "V", [sym("j"), sym("e")]]]),
    ["pow", total("j", "m", WEIGHT), ["num", -1, 1]],
]
ARRAYS = [("Q", ["n", "d"]), ("K", ["m", "d"]), ("V", ["m", "d_v"])]


@pytest.fixture
def qkv():
    rng = np.random.default_rng(3)
    return rng.normal(size=(5, 4)), rng.normal(size=(7, 4)), rng.normal(size=(7, 3))


def test_attention_as_a_tree(qkv):
    f = make(ARRAYS, [["i", "n"], ["e", "d_v"]], ATTENTION)
    want = compute.attention(*qkv, compute.Spec(scale=1), algorithm="shifted")
    np.testing.assert_allclose(f(*qkv), want, rtol=1e-13)
    assert f(*(x.astype(np.float32) for x in qkv)).dtype == np.float32


def test_pieces_give_the_same(qkv, monkeypatch):
    f = make(ARRAYS, [["i", "n"], ["e", "d_v"]], ATTENTION)
    want = f(*qkv)
    monkeypatch.setattr(evaluate, "CELLS", 8)
    np.testing.assert_allclose(f(*qkv), want, rtol=1e-13)


def test_triangular_range_is_causal_attention(qkv):
    q, k, v = qkv
    k, v = k[:5], v[:5]
    causal = lambda body: ["sum", "j", ZERO, sym("i"), body]  # noqa: E731
    body = ["mul", causal(["mul", WEIGHT, ["at", "V", [sym("j"), sym("e")]]]), ["pow", causal(WEIGHT), ["num", -1, 1]]]
    f = make([("Q", ["n", "d"]), ("K", ["n", "d"]), ("V", ["n", "d_v"])], [["i", "n"], ["e", "d_v"]], body)
    want = compute.attention(q, k, v, compute.Spec(scale=1, causal=True))
    np.testing.assert_allclose(f(q, k, v), want, rtol=1e-13)


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        (["erf", ["num", 1, 2]], math.erf(0.5)),
        (["gamma", ["num", 5, 2]], math.gamma(2.5)),
        (["loggamma", ["num", 9, 1]], math.lgamma(9)),
        (["digamma", ONE], -float(np.euler_gamma)),
        (["const", "euler_gamma"], float(np.euler_gamma)),
        (["pow", ["num", -2, 1], ["num", 3, 1]], -8.0),
        (["pow", ZERO, ZERO], 1.0),
        (["pow", ["num", 9, 4], ["num", -1, 2]], 2 / 3),
        (["max", ONE, ["num", 3, 1], ["const", "e"]], 3.0),
        (["min", ONE, ["num", 3, 1]], 1.0),
        (["abs", ["num", -3, 7]], 3 / 7),
        (["tanh", ["log", ["sqrt", ["num", 4, 1]]]], 0.6),
        (["product", "t", ONE, ["num", 6, 1], sym("t")], 720.0),
        (["product", "t", ONE, ZERO, sym("t")], 1.0),
        (["sum", "t", ["num", 3, 1], ["num", 2, 1], sym("t")], 0.0),
        (["sum", "t", ["num", -2, 1], ["num", 4, 1], ["mul", sym("t"), sym("t")]], 35.0),
        (["sum", "t", ONE, ["num", 4, 1], ["delta", sym("t"), ["num", 3, 1]]], 1.0),
        (["where", ["and", ["lt", ONE, ["num", 2, 1]], ["not", ["eq", ONE, ZERO]]], ["num", 7, 1], ["log", ZERO]], 7.0),
        (["where", ["or", ["le", ["num", 2, 1], ONE], ["eq", ONE, ZERO]], ["num", 7, 1], ["num", 8, 1]], 8.0),
    ],
)
def test_operations(expr, want):
    assert make([], [], expr)() == pytest.approx(want, rel=2**-50)  # 4 ulp: SciPy's special functions


def test_nested_ranges_that_depend_on_each_other():
    # Σ_{a<4} Σ_{b≤a} Σ_{c=b}^{a} (a + 10 b + 100 c) against three loops
    body = ["add", sym("a"), ["mul", ["num", 10, 1], sym("b")], ["mul", ["num", 100, 1], sym("c")]]
    inner = ["sum", "c", sym("b"), sym("a"), body]
    tree = ["sum", "a", ZERO, ["num", 3, 1], ["sum", "b", ZERO, sym("a"), inner]]
    want = sum(a + 10 * b + 100 * c for a in range(4) for b in range(a + 1) for c in range(b, a + 1))
    assert make([], [], tree)() == want


def test_a_binder_hides_the_outer_index():
    f = make([("x", ["n"])], [["i", "n"]], ["add", ["at", "x", [sym("i")]], total("i", "n", ["at", "x", [sym("i")]])])
    assert f(np.array([1.0, 2.0])).tolist() == [4.0, 5.0]


def test_sizes_by_number_and_bound_from_arrays():
    f = make([("n", [])], [["i", "n"]], sym("i"))
    assert f(3).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(InputError, match="whole"):
        f(2.5)
    g = make([("x", ["n"]), ("y", ["n"])], [["i", "n"]], ["mul", ["at", "x", [sym("i")]], ["at", "y", [sym("i")]]])
    with pytest.raises(InputError, match="n=3"):
        g(np.ones(2), np.ones(3))
    assert g(np.ones(0), np.ones(0)).shape == (0,)


def test_out_of_range_is_refused_where_used_and_inert_where_not():
    ahead = ["at", "x", [["add", sym("i"), ONE]]]
    f = make([("x", ["n"])], [["i", "n"]], ahead)
    with pytest.raises(InputError, match="outside"):
        f(np.ones(3))
    g = make([("x", ["n"])], [["i", "n"]], ["where", ["lt", sym("i"), last("n")], ahead, ZERO])
    assert g(np.array([1.0, 2.0, 3.0])).tolist() == [2.0, 3.0, 0.0]
    back = make([("x", ["n"])], [["i", "n"]], ["at", "x", [["add", sym("i"), ["num", -1, 1]]]])
    with pytest.raises(InputError, match="outside"):
        back(np.ones(3))


def test_masked_cells_are_inert():
    body = total("j", "n", ["where", ["le", sym("j"), sym("i")], ["at", "x", [sym("j")]], ZERO])
    f = make([("x", ["n"])], [["i", "n"]], body)
    assert f(np.array([1.0, 2.0, np.nan]))[:2].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    "body",
    [
        ["eval", ONE],
        ["__import__", "os"],
        "exp(1)",
        ["sym", "nobody"],
        ["sym", "__class__"],
        ["num", 1, 0],
        ["num", 1.5, 1],
        ["const", "tau"],
        ["pow", ONE],
        ["add"],
        ["at", "x", [ZERO, ZERO]],
        ["at", "y", [ZERO]],
        ["sum", "1; drop", ZERO, ONE, ONE],
        ["where", ["if", ONE, ONE], ONE, ONE],
        ["where", ONE, ONE, ONE],
        [],
        None,
    ],
)
def test_anything_else_is_refused(body):
    with pytest.raises(InputError):
        make([("x", ["n"])], [["i", "n"]], body)


def test_deep_trees_are_refused_not_a_crash():
    deep = ONE
    for _ in range(5000):
        deep = ["exp", deep]
    tree = {"version": 1, "inputs": [], "output": [], "body": deep}
    with pytest.raises(InputError, match="deep"):
        compute.function_from(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"version": 2, "inputs": [], "output": [], "body": ONE},
        {"version": 1, "inputs": [{"name": "a b", "axes": []}], "output": [], "body": ONE},
        {"version": 1, "inputs": [{"name": "a"}], "output": [], "body": ONE},
        {"version": 1, "inputs": [], "output": [["i", "n"]], "body": ONE},
        {"version": 1, "inputs": [{"name": "x", "axes": ["n"]}], "output": [["n", "n"]], "body": ONE},
        {"version": 1, "inputs": [{"name": "x", "axes": []}, {"name": "x", "axes": []}], "output": [], "body": ONE},
    ],
)
def test_faulty_trees(tree):
    with pytest.raises(InputError):
        compute.function_from(tree)


def test_arguments_are_checked():
    f = make([("x", ["n"]), ("s", [])], [], ["mul", sym("s"), total("i", "n", ["at", "x", [sym("i")]])])
    assert f(np.ones(3), s=2) == 6.0
    for args, named in [
        ((np.ones(3),), {}),
        ((np.ones(3), 1, 2), {}),
        ((np.ones(3), "2"), {}),
        ((np.ones((3, 1)), 1), {}),
        (([1.0], 1), {}),
        ((np.ones(3), 1), {"s": 1}),
    ]:
        with pytest.raises(InputError):
            f(*args, **named)
