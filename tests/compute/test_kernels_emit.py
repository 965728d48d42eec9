"""Formulas printed as CUDA: the emulator's values against 40 digits, in ulp, and against compute.function_from."""

from __future__ import annotations

import sys
from typing import Any

import mpmath
import numpy as np
import pytest

from compute.errors import InputError, NotInstalled
from compute.functions import function_from
from compute.kernels.emit import Formula, emit
from compute.kernels.emulator import compiler
from compute.kernels.loader import Emulator
from compute.optree import check
from tests.compute import fake_cupy

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)

X, Y = ["sym", "x"], ["sym", "y"]


def num(p: int, q: int = 1) -> list[Any]:
    return ["num", p, q]


# body, the same in mpmath, allowed ulp in float64 (each operation's stated error, added and rounded up)
SCALARS: dict[str, tuple[list[Any], Any, float]] = {
    "rational": (["mul", num(1, 3), X, ["pow", Y, num(-2)]], lambda x, y: x / 3 / y**2, 4),
    "gauss": (
        [
            "mul",
            ["exp", ["mul", num(-1, 2), ["pow", X, num(2)]]],
            ["pow", ["mul", num(2), ["const", "pi"]], num(-1, 2)],
        ],
        lambda x, y: mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi),
        8,
    ),
    "softmax of two": (
        ["mul", ["exp", X], ["pow", ["add", ["exp", X], ["exp", Y]], num(-1)]],
        lambda x, y: mpmath.exp(x) / (mpmath.exp(x) + mpmath.exp(y)),
        6,
    ),
    "powers": (["add", ["pow", X, num(5, 2)], ["pow", Y, num(7)]], lambda x, y: x ** mpmath.mpf("2.5") + y**7, 6),
    "special": (["mul", ["erf", X], ["gamma", Y]], lambda x, y: mpmath.erf(x) * mpmath.gamma(y), 16),
    "loggamma": (["loggamma", ["add", X, num(3)]], lambda x, y: mpmath.loggamma(x + 3), 8),
    "where": (
        ["where", ["lt", X, Y], ["tanh", X], ["sqrt", ["abs", Y]]],
        lambda x, y: mpmath.tanh(x) if x < y else mpmath.sqrt(abs(y)),
        4,
    ),
    "extremes": (["add", ["max", X, Y, num(1)], ["min", X, num(2)]], lambda x, y: max(x, y, 1) + min(x, 2), 2),
}


def scalar_tree(body: list[Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "inputs": [{"name": "x", "axes": []}, {"name": "y", "axes": []}],
        "output": [],
        "body": body,
    }


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("fmt", ["float64", "float32"])
def test_elementwise_within_the_stated_ulp(name: str, fmt: str) -> None:
    body, exact, ulps = SCALARS[name]
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(0.2, 2.5, 300).astype(fmt) for _ in range(2))
    got = Formula(scalar_tree(body), Emulator(), fmt, elementwise=True)(x=x, y=y)
    with mpmath.workdps(40):
        for a, b, value in zip(x, y, got, strict=True):
            want = exact(mpmath.mpf(float(a)), mpmath.mpf(float(b)))
            ulp = float(np.spacing(np.array(abs(float(want)), fmt)))
            assert abs(mpmath.mpf(float(value)) - want) <= ulps * ulp, (name, a, b)


SCORES = {
    "version": 1,
    "inputs": [{"name": "Q", "axes": ["n", "d"]}, {"name": "K", "axes": ["m", "d"]}, {"name": "t", "axes": []}],
    "output": [["i", "n"], ["j", "m"]],
    "body": [
        "mul",
        ["sym", "t"],
        ["sum", "c", num(0), ["add", ["sym", "d"], num(-1)],
         ["mul", ["at", "Q", [["sym", "i"], ["sym", "c"]]], ["at", "K", [["sym", "j"], ["sym", "c"]]]]],
    ],
}  # fmt: skip


def test_reductions_agree_with_the_array_code() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((5, 7)), rng.standard_normal((4, 7))
    got = Formula(SCORES, Emulator())(Q=q, K=k, t=0.5)
    want = function_from(SCORES)(Q=q, K=k, t=0.5)
    assert (np.abs(got - want) <= 2 * 9 * 2.0**-53 * (np.abs(q) @ np.abs(k).T)).all()


def test_triangular_ranges_conditions_and_deltas() -> None:
    tree = {
        "version": 1,
        "inputs": [{"name": "a", "axes": ["n"]}],
        "output": [["i", "n"]],
        "body": [
            "add",
            ["sum", "j", num(0), ["sym", "i"], ["at", "a", [["sym", "j"]]]],
            ["mul", num(10), ["delta", ["sym", "i"], num(2)]],
            ["where", ["and", ["le", num(1), ["sym", "i"]], ["not", ["eq", ["sym", "i"], num(3)]]],
             ["at", "a", [["add", ["sym", "i"], num(-1)]]], num(0)],
        ],
    }  # fmt: skip
    a = np.array([1.0, 2.0, 4.0, 8.0])
    want = np.array([1.0, 3.0 + 1.0, 7.0 + 10.0 + 2.0, 15.0])
    np.testing.assert_array_equal(Formula(tree, Emulator())(a=a), want)
    np.testing.assert_array_equal(function_from(tree)(a=a), want)


def test_an_entry_outside_its_array_reads_as_nan() -> None:
    tree = {
        "version": 1,
        "inputs": [{"name": "a", "axes": ["n"]}],
        "output": [["i", "n"]],
        "body": ["at", "a", [["add", ["sym", "i"], num(1)]]],
    }
    got = Formula(tree, Emulator())(a=np.array([1.0, 2.0]))
    assert got[0] == 2.0
    assert np.isnan(got[1])


def test_no_text_of_the_tree_reaches_the_source() -> None:
    hostile = {**SCORES, "inputs": [{"name": "evil", "axes": ["n"]}], "output": [["asm", "n"]]}
    hostile["body"] = ["at", "evil", [["sym", "asm"]]]
    source = emit(check(hostile))
    assert "evil" not in source
    assert "asm" not in source


# One tree in which every printing rule shows, and printers that are wrong in one of them.
EVERYTHING: dict[str, Any] = {
    "version": 1,
    "inputs": [{"name": "a", "axes": ["n", "m"]}, {"name": "t", "axes": []}],
    "output": [["i", "n"]],
    "body": [
        "add",
        ["sum", "j", num(0), ["sym", "i"],
         ["mul", ["at", "a", [["sym", "i"], ["sym", "j"]]], ["pow", ["sym", "t"], num(-3)]]],
        ["product", "j", num(1), num(3), ["add", ["sym", "j"], ["sym", "t"]]],
        ["delta", ["sym", "i"], num(1)],
        ["where", ["le", ["sym", "i"], num(1)], num(1, 3), ["pow", ["sym", "t"], num(-1, 2)]],
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("<= end", "< end"),
        (" += ", " = "),
        (" *= ", " += "),
        ("? 1.0 : 0.0", "? 0.0 : 1.0"),
        ("<= (1ll)", "< (1ll)"),
        ("0.3333333333333333", "0.33333334"),
        ("sqrt(", "("),
        (" * n1 + ", " * n0 + "),
        ("(1.0 / (x", "(1.0 * (x"),
    ],
)
def test_wrong_printers_are_seen(right: str, wrong: str) -> None:
    source = emit(check(EVERYTHING))
    assert right in source
    a, out, broken = np.arange(1.0, 21.0).reshape(4, 5), np.zeros(4), np.zeros(4)
    want = function_from(EVERYTHING)(a=a, t=0.75)
    for code, result in ((source, out), (source.replace(right, wrong), broken)):
        kernel = Emulator().build(code, "formula")
        kernel((1,), (32,), (result, np.int64(4), a, np.float64(0.75), np.int64(4), np.int64(5)))
    np.testing.assert_allclose(out, want, rtol=16 * 2.0**-53)
    assert not np.allclose(broken, want, rtol=1e-12, atol=0, equal_nan=True)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="no CUDA function"):
        emit(check(scalar_tree(["digamma", X])))
    with pytest.raises(InputError, match="float64 or float32"):
        emit(check(scalar_tree(X)), "float16")
    with pytest.raises(InputError, match="trees of scalars"):
        emit(check(SCORES), elementwise=True)
    with pytest.raises(InputError, match="expected the arguments"):
        Formula(SCORES, Emulator())(Q=np.ones((2, 2)))


def test_subnormal_entries_reach_a_float64_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's own conversion from float32 flushes them; on the stand-in too."""
    cupy = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    place = [["sym", "i"]]
    data = {
        "version": 1,
        "inputs": [{"name": "S", "axes": ["n"]}, {"name": "T", "axes": ["n"]}],
        "output": [["i", "n"]],
        "body": ["mul", ["at", "S", place], ["at", "T", place]],
    }
    s, t = np.array([2.0**-149, -(2.0**-130), 0.5], np.float32), np.array([2.0**100, 3.0, 2.0])
    got = Formula(data, fake_cupy.Kernels(cupy))(S=cupy.asarray(s), T=cupy.asarray(t))
    np.testing.assert_array_equal(got.inner, s.astype(np.float64) * t)
