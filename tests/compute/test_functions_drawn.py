"""Drawn operation trees against one entry at a time in exact integers."""

from __future__ import annotations

import functools
import itertools
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compute
import compute.functions
from compute import evaluate
from compute.errors import InputError

SIZES = {"n": 3, "m": 2, "d": 4}
RNG = np.random.default_rng(0)
ARRAYS = {
    "A": (["n", "d"], RNG.integers(-3, 4, (3, 4))),
    "B": (["m", "d"], RNG.integers(-3, 4, (2, 4))),
    "x": (["n"], RNG.integers(-3, 4, 3)),
}
SCALARS = {"s": 2, "t": -3}
OUTPUT = [["i", "n"], ["j", "m"]]


def last(size):
    return ["add", ["sym", size], ["num", -1, 1]]


@st.composite
def exprs(draw, scope: tuple[tuple[str, str], ...], depth: int):
    """An expression; scope: indices with the size of their range."""
    inside = functools.partial(exprs, scope)
    kinds = ["num", "scalar", "index", "at"]
    if depth:
        kinds += ["add", "mul", "max", "min", "abs", "pow", "sum", "sum", "until", "product", "where", "delta"]
    kind = draw(st.sampled_from(kinds))
    if kind == "num":
        return ["num", draw(st.integers(-3, 3)), 1]
    if kind == "scalar":
        return ["sym", draw(st.sampled_from([*SCALARS, *SIZES]))]
    if kind == "index":
        return ["sym", draw(st.sampled_from([name for name, _ in scope]))]
    if kind == "at":
        name = draw(st.sampled_from(sorted(ARRAYS)))
        return ["at", name, [draw(place(scope, axis)) for axis in ARRAYS[name][0]]]
    if kind in ("add", "mul", "max", "min"):
        return [kind, *draw(st.lists(inside(depth - 1), min_size=1, max_size=3))]
    if kind == "abs":
        return [kind, draw(inside(depth - 1))]
    if kind == "pow":
        return [kind, draw(inside(depth - 1)), ["num", draw(st.integers(0, 2)), 1]]
    if kind in ("sum", "product", "until"):
        binder, size = draw(st.sampled_from(["a", "b", "i"])), draw(st.sampled_from(sorted(SIZES)))
        # "until" runs up to an outer index of the same or a shorter range: an end that depends on the row.
        shorter = [name for name, own in scope if SIZES[own] <= SIZES[size] and name != binder]
        end = ["sym", draw(st.sampled_from(shorter))] if kind == "until" and shorter else last(size)
        rest = tuple(pair for pair in scope if pair[0] != binder)
        body = draw(exprs((*rest, (binder, size)), depth - 1))
        return ["sum" if kind == "until" else kind, binder, ["num", draw(st.integers(0, 1)), 1], end, body]
    if kind == "where":
        a, b, then, other = (draw(inside(depth - 1)) for _ in range(4))
        cond = [draw(st.sampled_from(["lt", "le", "eq"])), a, b]
        cond = draw(st.sampled_from([cond, ["not", cond], ["and", cond, ["le", b, a]], ["or", cond, ["eq", a, b]]]))
        return ["where", cond, then, other]
    return ["delta", draw(inside(0)), draw(inside(0))]


@st.composite
def place(draw, scope, axis):
    """An index into an axis: an index variable of a range that fits, or a number."""
    fits = [name for name, size in scope if SIZES[size] <= SIZES[axis]]
    if fits and draw(st.integers(0, 4)):
        return ["sym", draw(st.sampled_from(fits))]
    return ["num", draw(st.integers(0, SIZES[axis] - 1)), 1]


def slow(expr, env):
    """One entry, in Python's integers."""
    op, args = expr[0], expr[1:]
    if op == "num":
        return args[0]
    if op == "sym":
        return env[args[0]]
    if op == "at":
        return int(ARRAYS[args[0]][1][tuple(slow(e, env) for e in args[1])])
    if op in ("sum", "product"):
        binder, lo, hi, body = args
        terms = [slow(body, env | {binder: at}) for at in range(slow(lo, env), slow(hi, env) + 1)]
        return sum(terms) if op == "sum" else functools.reduce(lambda a, b: a * b, terms, 1)
    if op == "where":
        return slow(args[1] if holds(args[0], env) else args[2], env)
    values = [slow(e, env) for e in args]
    if op == "mul":
        return functools.reduce(lambda a, b: a * b, values)
    return {
        "add": sum, "max": max, "min": min, "abs": lambda v: abs(v[0]), "pow": lambda v: v[0] ** v[1],
        "delta": lambda v: int(v[0] == v[1]),
    }[op](values)  # fmt: skip


def holds(cond, env):
    op, args = cond[0], cond[1:]
    if op == "not":
        return not holds(args[0], env)
    if op in ("and", "or"):
        return (all if op == "and" else any)(holds(c, env) for c in args)
    a, b = (slow(e, env) for e in args)
    return a < b if op == "lt" else a <= b if op == "le" else a == b


def widest(expr, env):
    """A bound of every number met on the way, so that float64 is exact below 2⁵³."""
    op, args = expr[0], expr[1:]
    if op in ("num", "sym", "at", "delta"):
        return 4
    if op in ("sum", "product"):
        w = widest(args[3], env)
        return 4 * w if op == "sum" else max(w, 1) ** 4
    parts = [widest(e, env) for e in (args[1:] if op == "where" else args)]
    if op == "add":
        return sum(parts)
    if op == "mul":
        return functools.reduce(lambda a, b: a * b, [max(p, 1) for p in parts])
    return max(parts[0], 1) ** 2 if op == "pow" else max(parts)


def evaluated(body):
    tree = {
        "version": 1,
        "inputs": [{"name": k, "axes": a} for k, (a, _) in ARRAYS.items()] + [{"name": k, "axes": []} for k in SCALARS],
        "output": OUTPUT,
        "body": body,
    }
    return compute.function_from(tree)(**{k: a.astype(float) for k, (_, a) in ARRAYS.items()}, **SCALARS)


def wanted(body):
    env = SIZES | SCALARS
    return np.array([[slow(body, env | {"i": i, "j": j}) for j in range(2)] for i in range(3)], float)


SCOPE = (("i", "n"), ("j", "m"))


@settings(max_examples=250)
@given(exprs(SCOPE, 4), st.sampled_from([1, 5, evaluate.CELLS]))
def test_drawn_trees(body, cells):
    if widest(body, {}) >= 2**53:
        return
    before, evaluate.CELLS = evaluate.CELLS, cells
    try:
        got = evaluated(body)
    finally:
        evaluate.CELLS = before
    assert (got == wanted(body)).all()


MUTANTS = [
    ("at = self._integer(place, indices)", "at = self._integer(place, indices) * 0"),
    ("there = ~cond if live is None else ~cond & live", "there = cond if live is None else cond & live"),
    ("return self.xp.where(cond, self.value(args[1]", "return self.xp.where(~cond, self.value(args[1]"),
    ("return a < b if op == \"lt\" else a <= b", "return a <= b if op == \"lt\" else a <= b"),
    ("(line >= lo) & (line <= hi)", "(line >= lo) & (line < hi)"),
    ("piece = xp.where(inside, piece, neutral)", "pass"),
    ("last + 1 - first)", "last - first)"),
    ("line = self._line(first, last + 1, axis)", "line = self._line(first + 1, last + 2, axis)"),
    ("return piece * self.kind(count) if op == \"sum\" else piece**count", "return piece"),
    ("out = self.kind(count)", "out = self.kind(1)"),
    ("for x in rest:", "for x in rest[1:]:"),
    ("total + piece if op == \"sum\" else total * piece", "piece"),
    ("neutral = self.kind(0 if op == \"sum\" else 1)", "neutral = self.kind(0)"),
    ("out = out & other if op == \"and\" else out | other", "out = out | other if op == \"and\" else out & other"),
    ("return ~self.condition(args[0]", "return self.condition(args[0]"),
    ("{**indices, binder: line}, axis, last", "{binder: line, **indices}, axis, last"),
]  # fmt: skip


def battery():
    i, j, a, b = (["sym", x] for x in "ijab")
    one, zero = ["num", 1, 1], ["num", 0, 1]
    row = ["at", "A", [i, a]]
    dot = ["mul", row, ["at", "B", [j, a]], ["at", "x", [i]], ["sym", "s"]]
    yield ["sum", "a", zero, last("d"), dot]
    yield ["sum", "a", one, last("d"), ["mul", ["sym", "s"], ["at", "x", [i]]]]
    yield ["sum", "a", zero, last("d"), ["add", row, ["sum", "b", one, a, ["mul", row, ["at", "B", [j, b]]]]]]
    yield ["sum", "a", zero, i, ["add", ["at", "x", [a]], one]]
    yield ["product", "a", one, i, ["add", ["at", "x", [a]], ["num", 5, 1]]]
    yield ["product", "a", one, last("d"), ["sym", "t"]]
    yield ["where", ["and", ["lt", j, i], ["not", ["eq", i, ["num", 2, 1]]]], ["at", "x", [i]], ["sym", "t"]]
    yield ["where", ["or", ["le", i, j], ["eq", ["at", "x", [i]], zero]], ["at", "x", [["num", 2, 1]]], ["sym", "s"]]
    yield ["where", ["lt", i, ["num", 2, 1]], ["at", "x", [["add", i, one]]], zero]
    yield ["where", ["not", ["lt", i, ["num", 2, 1]]], zero, ["at", "x", [["add", i, one]]]]
    yield ["add", i, ["sum", "i", zero, last("d"), ["mul", ["at", "A", [["num", 1, 1], i]], ["at", "B", [j, i]]]]]


@pytest.mark.parametrize("number", [-1, *range(len(MUTANTS))])
def test_a_faulty_line_is_seen(number, monkeypatch):
    old, new = ("class Evaluator", "class Evaluator") if number < 0 else MUTANTS[number]
    source = Path(evaluate.__file__).read_text(encoding="utf-8")
    assert old in source, old
    for cells in ("1 << 22", "1", "5"):
        changed = types.ModuleType("compute.evaluate")
        text = source.replace(old, new).replace("CELLS = 1 << 22", f"CELLS = {cells}")
        exec(compile(text, "evaluate", "exec"), changed.__dict__)
        monkeypatch.setattr(compute.functions, "Evaluator", changed.Evaluator)
        if seen_here():
            assert number >= 0
            return
    assert number < 0


def seen_here() -> bool:
    for body in battery():
        try:
            if not np.array_equal(evaluated(body), wanted(body)):
                return True
        except (InputError, ValueError, IndexError, TypeError, AttributeError):
            return True
    return False


def test_sums_are_cut_into_pieces_that_fit(monkeypatch):
    monkeypatch.setattr(evaluate, "CELLS", 1 << 14)
    q, k, c = ["at", "Q", [["sym", "i"], ["sym", "c"]]], ["at", "K", [["sym", "j"], ["sym", "c"]]], ["num", 0, 1]
    body = ["sum", "c", c, last("d"), ["sum", "b", c, ["num", 1, 1], ["exp", ["add", q, k, ["sym", "b"]]]]]
    tree = {
        "version": 1,
        "inputs": [{"name": "Q", "axes": ["n", "d"]}, {"name": "K", "axes": ["m", "d"]}],
        "output": [["i", "n"], ["j", "m"]],
        "body": body,
    }
    f, x = compute.function_from(tree), np.zeros((100, 100))
    f(x[:2], x[:2])
    tracemalloc.start()
    out = f(x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(out, 100 * (1 + np.e), rtol=1e-13)
    assert peak < 2e6  # uncut, 2·10⁶ entries take 16 MB


def test_every_place_of_the_output_is_its_own():
    for i, j in itertools.product(range(3), range(2)):
        body = ["mul", ["delta", ["sym", "i"], ["num", i, 1]], ["delta", ["sym", "j"], ["num", j, 1]]]
        out = evaluated(body)
        assert out[i, j] == 1
        assert out.sum() == 1
