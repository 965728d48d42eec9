"""The normal form keeps the value: terms before and after, evaluated at sizes down to those where ranges are empty.

Neither checker of `prove` draws such sizes, so this is where an identity that only fails there would show.
"""

import math
import random
import zlib
from typing import Any

import pytest
import sympy
from sympy import Eq, Piecewise, Sum, exp, log, sqrt

from derive.assumptions import AtLeast, InRange, Ordered
from derive.errors import DeriveError
from derive.importer import Importer
from derive.index import Ix
from derive.language import Diff, array, index, scalar, size, total
from derive.terms import Atom, Mono, Poly
from tests.derive.identities import CONDITIONS, falsehood, identity

REACH = range(-3, 11)  # wider than any range at the sizes below
Values = dict[str, int | float]


class Undefined(Exception):
    """The term divides by zero here, so it has no value to keep."""


def integer(value: Ix, env: Values) -> int:
    return sum(c * math.prod(int(env[v]) for v in word) for word, c in value.terms)


def of_poly(poly: Poly, env: Values) -> float:
    return math.fsum(float(c) * of_mono(m, env) for m, c in poly.terms)


def of_mono(mono: Mono, env: Values) -> float:
    total = 0.0
    for point in points(mono, dict(env), mono.binders):
        value = math.prod(of_atom(a, point) ** float(p) if base_ok(a, p, point) else 0.0 for a, p in mono.factors)
        total += value * (math.exp(of_poly(mono.argument, point)) if mono.argument else 1.0)
    return total


def base_ok(atom: Atom, power: Any, env: Values) -> bool:
    value = of_atom(atom, env)
    if power < 0 and abs(value) < 1e-12:
        raise Undefined
    if power.denominator != 1 and value < 0:
        raise Undefined
    return True


def points(mono: Mono, env: Values, binders: tuple[str, ...]) -> Any:
    """Every value of the binders at which all brackets are 1."""
    known = set(env)
    for bound in mono.bounds:
        if bound.free <= known and integer(bound, env) < 0:
            return
    for equation in mono.equations:
        if equation.free <= known and integer(equation, env) != 0:
            return
    if not binders:
        yield env
        return
    for k in REACH:
        yield from points(mono, {**env, binders[0]: k}, binders[1:])


def of_atom(atom: Atom, env: Values) -> float:
    if atom.kind == "at":
        return entry(atom.name, [integer(i, env) for i in atom.indices])
    if atom.kind == "var":
        return math.pi if atom.name == "!pi" else float(env[atom.name])
    if atom.kind == "prime":
        return float(atom.name)
    inner = [of_poly(p, env) for p in atom.parts]
    if atom.kind == "pow":
        return inner[0]
    if atom.name == "log" and inner[0] <= 0:
        raise Undefined
    return float({"log": math.log, "tanh": math.tanh, "Abs": abs}[atom.name](inner[0]))


def entry(name: str, place: list[int]) -> float:
    """A fixed irregular value for each entry, of either sign."""
    return math.sin(1 + zlib.crc32(f"{name}{place}".encode()) % 10_007)


n, m = size("n"), size("m")
i, j, k, l, a, b = (index(s) for s in "ijklab")
x, y, A = array("x", n), array("y", n), array("A", n, n)
s, pos = scalar("s"), scalar("pos", positive=True)
ROW = total(exp(x[l]), l, n)
# Statements whose terms change much on the way, at sizes down to 0.
HARD: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "weights": (total(exp(x[i]) / ROW, i, n), ()),
    "weights with a sink": (total(exp(x[i]) / (exp(s) + ROW), i, n) + exp(s) / (exp(s) + ROW), ()),
    "one over a size": (total(s / n, i, n), ()),
    "root of a size": (total(sqrt(n) * x[i] / sqrt(n) + 1 / sqrt(n), i, n), ()),
    "size under weights": (total(exp(x[i]) / (n * (pos + ROW)), i, n) * n, ()),
    "triangles": (Sum(A[i, j], (j, 0, i), (i, 0, n - 1)) + Sum(A[i, j], (j, i + 1, n - 1), (i, 0, n - 1)), ()),
    "split": (Sum(x[j], (j, 0, m - 1)) - Sum(x[j], (j, m, n - 1)), (Ordered(0, m, n),)),
    "blocks": ((Sum(exp(x[j]), (j, 0, m - 1)) + Sum(exp(x[j]), (j, m, n - 1))) ** 2, (Ordered(0, m, n),)),
    "causal": (Sum(exp(A[i, j]) / Sum(exp(A[i, l]), (l, 0, i)) * x[i], (j, 0, i), (i, 0, n - 1)), ()),
    "causal mean": (Sum(x[j] / (i + 1), (j, 0, i), (i, 0, n - 1)), ()),
    "counts": (Sum(j * i + 1, (j, 0, i), (i, 0, n - 1)) + total(j**3, j, n), ()),
    "cases": (total(Piecewise((x[j], Eq(j, i)), (y[j], j < i), (s, True)) ** 2, j, n), (InRange(i, 0, n - 1),)),
    "case in a denominator": (
        total(1 / (pos + exp(Piecewise((x[j] + s, Eq(j, a)), (x[j], True)))), j, n),
        (InRange(a, 0, n - 1),),
    ),
    "gradient": (Diff(total(x[i] * exp(x[i]) / ROW, i, n), x[a]), (InRange(a, 0, n - 1),)),
    "second derivatives": (
        Diff(Diff(log(pos + ROW), x[a]), x[b]),
        (InRange(a, 0, n - 1), InRange(b, 0, n - 1)),
    ),
    "shifted": (Sum(x[j + 1] * y[j], (j, 0, n - 2)) + Sum(x[j], (j, 1, n - 1)), (AtLeast(n, 1),)),
    "last entry": (Sum(x[j], (j, 0, n - 2)) + x[n - 1], (AtLeast(n, 1),)),
}


def assert_kept(expr: Any, assumptions: tuple[Any, ...], rng: random.Random, draws: int) -> int:
    """How many instances were compared."""
    importer = Importer(assumptions, statement=(expr,))
    before = importer.statement(expr)
    after = importer.normaliser.normal(before)
    seen = 0
    for _ in range(draws):
        env: Values = {}
        for name in sorted(before.free | after.free | {v for f in importer.facts.bounds for v in f.free}):
            symbol = importer.symbols.get(name)
            whole = symbol is not None and bool(symbol.is_integer)
            env[name] = rng.randrange(4) if whole else rng.uniform(0.3, 1.5)
        if any(integer(f, env) < 0 for f in importer.facts.bounds):
            continue
        try:
            want = of_poly(before, env)
        except Undefined:
            continue  # it has no value here: there is nothing to keep
        got = of_poly(after, env)
        assert got == pytest.approx(want, rel=1e-9, abs=1e-9), f"{expr} at {env}\n{before}\n{after}"
        seen += 1
    return seen


@pytest.mark.parametrize("name", HARD)
def test_the_value_is_kept_down_to_empty_ranges(name: str) -> None:
    expr, assumptions = HARD[name]
    assert assert_kept(expr, assumptions, random.Random(name), draws=24) >= 2


def test_the_value_of_random_expressions_is_kept() -> None:
    seen = 0
    for seed in range(40):
        for one in (identity(seed), falsehood(seed)):
            for side in (one.lhs, one.rhs):
                try:
                    seen += assert_kept(side, CONDITIONS, random.Random(seed), draws=12)
                except (DeriveError, sympy.SympifyError):
                    continue  # a mutation that can't be read
    assert seen >= 60
