"""A free index of a definition's body is the statement's index of that name, whatever binder is in force around it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import sympy

from derive import intervals, modular, prove
from derive.assumptions import AtLeast, Defined, InRange, Positive
from derive.at_sizes import Evaluator
from derive.instances import Statement
from derive.interval_numbers import Interval
from derive.language import Diff, array, index, size, total
from derive.prover import first_checker
from derive.verdict import Kind

n = size("n")
x, y, g, h = array("x", n), array("y", n), array("g", n), array("h", n)
i, j, k, l, r = (index(name) for name in "ijklr")
RANGES = (AtLeast(n, 1), InRange(i, 0, n - 1), InRange(k, 0, n - 1), InRange(r, 0, n - 1))
X_I = Defined(g, (j,), x[i])
MIXED = Defined(g, (j,), x[i] + y[j])
SECOND = Defined(h, (i,), g[i] * y[i])
OUTER = Defined(h, (j,), total(g[i] + y[j], i, n))


def product(body: Any, binder: Any) -> Any:
    return sympy.Product(body, (binder, 0, n - 1))


# What stands left, what it is, what it would be if a binder captured the free index, and the definitions.
CLASHES: dict[str, tuple[Any, Any, Any, tuple[Any, ...]]] = {
    "binder of the sum": (total(g[k], i, n), n * x[i], total(x[i], i, n), (X_I,)),
    "binder of the outer sum": (total(total(g[k], r, n), i, n), n**2 * x[i], n * total(x[i], i, n), (X_I,)),
    "binder of an inner sum": (total(total(g[k], i, n), r, n), n**2 * x[i], n * total(x[i], i, n), (X_I,)),
    "binder of both": (total(total(g[i], i, n) + g[i], i, n), n * (n + 1) * x[i], (n + 1) * total(x[i], i, n), (X_I,)),
    "binder that indexes": (total(g[i], i, n), n * x[i] + total(y[l], l, n), total(x[l] + y[l], l, n), (MIXED,)),
    "beside the free index": (x[i] * total(g[k], i, n), n * x[i] ** 2, x[i] * total(x[l], l, n), (X_I,)),
    "index of a second definition": (h[k], (x[i] + y[k]) * y[k], (x[k] + y[k]) * y[k], (MIXED, SECOND)),
    "second definition in a sum": (
        total(h[i], i, n),
        x[i] * total(y[l], l, n) + total(y[l] ** 2, l, n),
        total(x[l] * y[l] + y[l] ** 2, l, n),
        (MIXED, SECOND),
    ),
    "sum inside a second definition": (
        total(h[i], i, n),
        n**2 * x[i] + 2 * n * total(y[l], l, n),
        n * total(x[l], l, n) + 2 * n * total(y[l], l, n),
        (MIXED, OUTER),
    ),
    "derivative under the binder": (
        total(Diff(g[k] ** 2, x[i]), i, n),
        2 * x[i],
        2 * total(x[i], i, n),
        (X_I,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASHES)
def test_a_true_statement_is_proved(name: str) -> None:
    left, right, _, definitions = CLASHES[name]
    assert first_checker(left, right, (*RANGES, *definitions)).zero
    assert modular.check(left, right, (*RANGES, *definitions)).agrees
    assert intervals.refute(left, right, "=", (*RANGES, *definitions)) is None
    assert prove(left, right, [*RANGES, *definitions]).kind is Kind.PROVED


@pytest.mark.parametrize("name", CLASHES)
def test_what_capture_would_make_of_it_is_refuted(name: str) -> None:
    left, _, captured, definitions = CLASHES[name]
    assert not first_checker(left, captured, (*RANGES, *definitions)).zero
    assert not modular.check(left, captured, (*RANGES, *definitions)).agrees
    assert prove(left, captured, [*RANGES, *definitions]).kind is Kind.REFUTED


def test_the_binder_of_a_product() -> None:
    definition = Defined(g, (j,), sympy.exp(x[i]))
    left, right = product(g[k], i), sympy.exp(n * x[i])
    captured = sympy.exp(total(x[i], i, n))
    conditions = [*RANGES, definition, Positive(g[k])]
    assert modular.check(left, right, tuple(conditions)).agrees
    assert not modular.check(left, captured, tuple(conditions)).agrees
    assert prove(left, right, conditions).kind is Kind.PROVED
    assert prove(left, captured, conditions).kind is Kind.REFUTED


class Exact:
    """Rational arithmetic on entries of its own."""

    splits_logs = False

    def lift(self, value: Fraction) -> Fraction:
        return value

    def entry(self, label: str, place: tuple[int, ...]) -> Fraction:
        return Fraction(random.Random(f"{label}{place}").randint(1, 10**6))


def plain(expr: Any, env: Mapping[Any, int], around: Mapping[Any, int], bodies: Mapping[str, Defined]) -> Fraction:
    """The value by the definition, with nothing remembered: bodies are read in `around` and their own indices."""
    if isinstance(expr, sympy.Integer):
        return Fraction(int(expr))
    if isinstance(expr, sympy.Symbol):
        return Fraction(env[expr])
    if isinstance(expr, sympy.Indexed):
        place = tuple(env[at] for at in expr.indices)
        body = bodies.get(str(expr.base.label))
        if body is None:
            return Exact().entry(str(expr.base.label), place)
        return plain(body.body, {**around, **dict(zip(body.indices, place, strict=True))}, around, bodies)
    if isinstance(expr, (sympy.Sum, sympy.Product)):
        (binder, _, _), *outer = reversed(expr.limits)
        inner = expr.function if not outer else expr.func(expr.function, *reversed(outer))
        parts = [plain(inner, {**env, binder: at}, around, bodies) for at in range(env[n])]
        return sum(parts, Fraction(0)) if isinstance(expr, sympy.Sum) else multiplied(parts)
    if isinstance(expr, sympy.Pow):
        return plain(expr.base, env, around, bodies) ** int(expr.exp)
    parts = [plain(a, env, around, bodies) for a in expr.args]
    return sum(parts, Fraction(0)) if isinstance(expr, sympy.Add) else multiplied(parts)


def multiplied(parts: list[Fraction]) -> Fraction:
    result = Fraction(1)
    for part in parts:
        result *= part
    return result


def _random(rng: random.Random, depth: int, arrays: tuple[Any, ...]) -> Any:
    """An expression in which four names serve as free indices, as binders and as indices of entries."""
    names = (i, j, k, l)
    kind = rng.choice(("sum", "product", "add", "mul")) if depth else "entry"
    if kind == "entry":
        return rng.choice(arrays)[rng.choice(names)]
    if kind in ("sum", "product"):
        body = _random(rng, depth - 1, arrays)
        return total(body, rng.choice(names), n) if kind == "sum" else product(body, rng.choice(names))
    a, b = (_random(rng, depth - 1, arrays) for _ in range(2))
    return a + 2 * b if kind == "add" else a * b


@pytest.mark.parametrize("seed", range(60))
def test_every_clash_of_names_has_the_value_of_its_definition(seed: int) -> None:
    rng = random.Random(seed)
    definitions = (
        Defined(g, (rng.choice((i, j)),), _random(rng, 2, (x, y))),
        Defined(h, (rng.choice((k, l)),), _random(rng, 2, (x, g))),
    )
    left = _random(rng, 3, (x, g, h))
    ranges = tuple(InRange(s, 0, n - 1) for s in (i, j, k, l))
    statement = Statement((left, sympy.Integer(0)), (*ranges, *definitions))
    bodies = {str(d.array.label): d for d in definitions}
    around = {n: 2, i: 0, j: 1, k: 0, l: 1}
    evaluator = Evaluator(statement, around, Exact())  # type: ignore[arg-type]
    for places in ((0, 1, 0, 1), (1, 0, 0, 0), (1, 1, 1, 0), (0, 1, 0, 1)):
        moved = {**around, **dict(zip((i, j, k, l), places, strict=True))}
        assert evaluator.value_at(left, moved) == plain(left, moved, moved, bodies), (left, definitions)


def test_intervals_read_a_body_at_the_statements_index() -> None:
    statement = Statement((total(g[k], i, n), n * x[i]), (*RANGES, X_I))
    values = {n: 3, i: 1, k: 0, r: 0}
    evaluator = Evaluator(statement, values, intervals.Reals("scopes", 1, statement))
    for at in (1, 0, 2):
        left, right = (evaluator.value_at(side, {**values, i: at}) for side in statement.expressions)
        assert isinstance(left, Interval)
        assert left.decimal() == right.decimal()
