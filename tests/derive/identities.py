"""Random identities and falsehoods of index calculus, by seed: a generator that knows nothing of the prover.

A true identity is a random expression and what 1 to 6 rewrites make of it, each a fact of arithmetic applied at a
random place. A falsehood is a true identity with one structural mutation on one side, kept only where interval
arithmetic finds a witness.

The rewrites, by class: rename, exchange, shift, split, delta, distribute, exp, denominators.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy

from derive.assumptions import Assumption, AtLeast, InRange, Ordered
from derive.intervals import refute
from derive.language import array, index, scalar, size

N, M = size("n"), size("m")
CUT = {N: size("h"), M: size("w")}
X, Y, U = array("x", N), array("y", N), array("u", M)
A, S = array("A", N, M), array("S", N, N)
ARRAYS = {(N,): (X, Y), (M,): (U,), (N, M): (A,), (N, N): (S,)}
FREE = {index("i"): N, index("c"): M}
SCALARS = (scalar("s"), scalar("t"))
CONDITIONS: tuple[Assumption, ...] = (
    AtLeast(N),
    AtLeast(M),
    *(InRange(i, 0, n - 1) for i, n in FREE.items()),
    *(Ordered(0, h, n) for n, h in CUT.items()),
)
EMPTY_ALLOWED: tuple[Assumption, ...] = tuple(Ordered(0, h, n) for n, h in CUT.items())
CLASSES = ("rename", "exchange", "shift", "split", "delta", "distribute", "exp", "denominators")
# Names that bound indices are renamed to: those that other sums and the free indices use as well.
LURES = tuple(index(s) for s in ("i", "c", "j", "k", "l"))


@dataclass(frozen=True)
class Identity:
    """lhs = rhs under CONDITIONS; classes: the rewrites that made it; mutation: what made it false, or None."""

    seed: int
    lhs: Any
    rhs: Any
    classes: tuple[str, ...]
    mutation: str | None = None

    def __str__(self) -> str:
        kind = self.mutation or " ".join(self.classes)
        return f"identity {self.seed} ({kind}): {self.lhs} = {self.rhs}"


def identity(seed: int, first: str | None = None) -> Identity:
    """The true identity of this seed. first: a class that must be among its rewrites (else any)."""
    for attempt in itertools.count():
        maker = _Maker(random.Random(f"identity {seed} {attempt}"))
        start = maker.expression(maker.rng.randint(1, 3), dict(FREE))
        wanted = [maker.rng.choice(CLASSES) for _ in range(maker.rng.randint(1, 6))]
        if first is not None:
            wanted[0] = first
        wanted.sort(key=lambda name: name == "rename")  # the others presume that no two binders share a name
        now, used = start, []
        for name in wanted:
            after = maker.rewrite(name, now)
            if after is not None:
                now = after
                used.append(name)
        if used and now != start and (first is None or first in used) and now.count_ops() < 150:
            return Identity(seed, start, now, tuple(used))
    raise AssertionError


def closed_statement(seed: int) -> Identity:
    """Like `identity`, without free indices: true for sizes ≥ 1, but stated under EMPTY_ALLOWED, where a row may be
    empty and a quotient of sums then is not 1."""
    for attempt in itertools.count():
        maker = _Maker(random.Random(f"closed {seed} {attempt}"))
        binder, n = maker.fresh(), maker.rng.choice((N, M))
        body = maker.expression(2, {binder: n}) * maker.entry({binder: n}, binder)
        start = _sum(body, binder, 0, n - 1) + maker.rng.choice(SCALARS)
        now, used = start, []
        for name in [maker.rng.choice(CLASSES) for _ in range(3)]:
            after = maker.rewrite(name, now, {})
            if after is not None:
                now = after
                used.append(name)
        weight, (l, low, high) = (p := maker.positive({binder: n}).xreplace({binder: 0})).function, p.limits[0]
        if binder in now.free_symbols:
            continue
        k = maker.fresh()
        now = now + _sum(SCALARS[1] * _renamed(weight, l, k) / p, k, low, high) - SCALARS[1]
        return Identity(seed, start, now, (*used, "denominators"))
    raise AssertionError


def falsehood(seed: int) -> Identity:
    """A statement that is false over the reals, one mutation away from a true identity."""
    for attempt in itertools.count():
        rng = random.Random(f"falsehood {seed} {attempt}")
        true = identity(seed * 1009 + attempt)
        name = rng.choice(tuple(_MUTATIONS))
        places = [(p, new) for p, node, _ in _places(true.rhs, {}) for new in _MUTATIONS[name](node, rng)]
        if not places:
            continue
        path, new = rng.choice(places)
        rhs = _put(true.rhs, path, new)
        if rhs != true.rhs and refute(true.lhs, rhs, "=", CONDITIONS, draws=24) is not None:
            return Identity(seed, true.lhs, rhs, true.classes, name)
    raise AssertionError


Scope = dict[Any, Any]
Path = tuple[int, ...]


def _places(expr: Any, scope: Scope, path: Path = (), exponents: bool = True) -> Iterator[tuple[Path, Any, Scope]]:
    """All sub-expressions that may be rewritten, with the indices in scope and the size each runs below, or None.

    exponents: whether to look inside exp as well.
    """
    yield path, expr, scope
    if isinstance(expr, sympy.Sum):
        inner = dict(scope)
        for binder, low, high in expr.limits:
            inner[binder] = _size_of(low, high, scope)
        yield from _places(expr.function, inner, (*path, 0), exponents)
    elif isinstance(expr, (sympy.Add, sympy.Mul)) or (isinstance(expr, sympy.exp) and exponents):
        for number, argument in enumerate(expr.args):
            yield from _places(argument, scope, (*path, number), exponents)
    elif isinstance(expr, sympy.Pow):
        yield from _places(expr.base, scope, (*path, 0), exponents)


def _size_of(low: Any, high: Any, scope: Scope) -> Any:
    """The size N with 0 ≤ index < N for an index between low and high, where the generator can tell."""
    if low == 0 or scope.get(low) is not None:
        for n in (N, M):
            if high == n - 1 and (low == 0 or scope[low] == n):
                return n
        if scope.get(high) is not None and (low == 0 or scope[low] == scope[high]):
            return scope[high]
    return None


def _put(expr: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    if isinstance(expr, sympy.Sum):
        return sympy.Sum(_put(expr.function, path[1:], new), *expr.limits)
    args = list(expr.args)
    args[path[0]] = _put(args[path[0]], path[1:], new)
    return expr.func(*args)


def _sum(body: Any, binder: Any, low: Any, high: Any) -> Any:
    return sympy.Sum(body, (binder, low, high))


class _NothingInScope(Exception):
    """No array has an entry with the indices in scope."""


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = itertools.count()

    def fresh(self) -> Any:
        return index(f"b{next(self._names)}")

    def entry(self, scope: Scope, must: Any = None) -> Any:
        """An entry of an array whose indices are in scope, `must` among them."""
        options = []
        for shape, arrays in ARRAYS.items():
            per_axis = [[s for s, n in scope.items() if n == axis] for axis in shape]
            for places in itertools.product(*per_axis):
                if must is None or must in places:
                    options += [a[places] for a in arrays]
        if not options:
            raise _NothingInScope
        return self.rng.choice(options)

    def positive(self, scope: Scope) -> Any:
        """A sum of exponentials: never 0, as its range is not empty."""
        binder, n = self.fresh(), self.rng.choice((N, M))
        return _sum(sympy.exp(self.entry({**scope, binder: n}, binder)), binder, 0, n - 1)

    def expression(self, depth: int, scope: Scope) -> Any:
        kind = self.rng.choice(("entry", "add", "mul", "sum", "sum", "sum", "triangle", "exp", "ratio", "scalar"))
        if depth == 0 or kind == "entry":
            return self.entry(scope)
        if kind == "scalar":
            return self.rng.choice(SCALARS) * self.expression(depth - 1, scope)
        if kind in ("add", "mul"):
            a, b = self.expression(depth - 1, scope), self.expression(depth - 1, scope)
            return a + self.rng.choice((1, -1, 2)) * b if kind == "add" else a * b
        if kind == "exp":
            return sympy.exp(self.entry(scope) + self.rng.choice((*SCALARS, self.entry(scope))))
        if kind == "ratio":
            return self.expression(depth - 1, scope) / self.positive(scope)
        binder = self.fresh()
        ends = [s for s, n in scope.items() if n is not None]
        if kind == "triangle" and ends:
            end = self.rng.choice(ends)
            inner = {**scope, binder: scope[end]}
            low, high = self.rng.choice(((0, end), (end, scope[end] - 1)))
            return _sum(self.entry(inner, binder) * self.expression(depth - 1, inner), binder, low, high)
        n = self.rng.choice((N, M))
        inner = {**scope, binder: n}
        factor = self.rng.choice(
            (self.entry(inner, binder), sympy.exp(self.entry(inner, binder) + self.rng.choice(SCALARS)))
        )
        return _sum(factor * self.expression(depth - 1, inner), binder, 0, n - 1)

    def rewrite(self, name: str, expr: Any, scope: Scope = FREE) -> Any:
        """One rewrite of the class at a random place where it applies, or None; scope holds the free indices."""
        # A quotient inside an exponent is outside the modular checker, so none is made there.
        places = list(_places(expr, dict(scope), exponents=name != "denominators"))
        self.rng.shuffle(places)
        for path, node, inner in places:
            try:
                new = _REWRITES[name](self, node, inner)
            except _NothingInScope:
                continue
            if new is not None:
                after = _put(expr, path, new)
                if after != expr:
                    return after
        return None

    def rename(self, node: Any, scope: Scope) -> Any:
        """Σ_j f(j) = Σ_k f(k), where k is not free in f and no inner sum over k holds j."""
        if not isinstance(node, sympy.Sum) or len(node.limits) != 1:
            return None
        binder, low, high = node.limits[0]
        allowed = [k for k in LURES if k != binder and k not in node.function.free_symbols
                   and not _captures(node.function, binder, k)]  # fmt: skip
        if not allowed:
            return None
        shadowing = [k for k in allowed if k in scope]
        new = self.rng.choice(shadowing if shadowing and self.rng.random() < 0.8 else allowed)
        return _sum(_renamed(node.function, binder, new), new, low, high)

    def exchange(self, node: Any, scope: Scope) -> Any:
        """Σ_i Σ_j = Σ_j Σ_i, of a rectangle or of a triangle 0 ≤ j ≤ i < n."""
        if not isinstance(node, sympy.Sum) or len(node.limits) != 1:
            return None
        outer = node.limits[0]
        factors = node.function.args if isinstance(node.function, sympy.Mul) else (node.function,)
        sums = [f for f in factors if isinstance(f, sympy.Sum) and len(f.limits) == 1]
        if not sums:
            return None
        inner = self.rng.choice(sums)
        body = sympy.Mul(*(f for f in factors if f is not inner), inner.function)
        (i, low_i, high_i), (j, low_j, high_j) = outer, inner.limits[0]
        if not {i} & (low_j.free_symbols | high_j.free_symbols):
            return _sum(_sum(body, i, low_i, high_i), j, low_j, high_j)
        if low_i == low_j and high_j == i:
            return _sum(_sum(body, i, j, high_i), j, low_j, high_i)
        if low_j == i and high_i == high_j:
            return _sum(_sum(body, i, low_i, j), j, low_i, high_j)
        return None

    def shift(self, node: Any, scope: Scope) -> Any:
        """Σ_{a ≤ j ≤ b} f(j) = Σ_{a+k ≤ j ≤ b+k} f(j − k)."""
        if not isinstance(node, sympy.Sum) or len(node.limits) != 1:
            return None
        j, low, high = node.limits[0]
        k = self.rng.choice((1, 2, -1, M, *(s for s in scope if s != j)))
        new = self.fresh()
        return _sum(_renamed(node.function, j, new - k), new, low + k, high + k)

    def split(self, node: Any, scope: Scope) -> Any:
        """Σ_{a ≤ j ≤ b} = Σ_{a ≤ j < h} + Σ_{h ≤ j ≤ b}, or one end apart from the rest."""
        if not isinstance(node, sympy.Sum) or len(node.limits) != 1:
            return None
        j, low, high = node.limits[0]
        first, second = self.fresh(), self.fresh()
        f, g = _renamed(node.function, j, first), _renamed(node.function, j, second)
        for n, h in CUT.items():
            if low == 0 and high == n - 1 and self.rng.random() < 0.7:
                return _sum(f, first, 0, h - 1) + _sum(_unshared(g, self), second, h, high)
        if _size_of(low, high, scope) is None:
            return None
        if self.rng.random() < 0.5:
            return _sum(f, first, low, high - 1) + _unshared(_renamed(node.function, j, high), self)
        return _unshared(_renamed(node.function, j, low), self) + _sum(f, first, low + 1, high)

    def delta(self, node: Any, scope: Scope) -> Any:
        """f(i) = Σ_j δ_ij f(j), for an index i in range; not where i sets a range or is part of a shifted index, as
        f(j) would then reach outside its arrays."""
        inside = [s for s, n in scope.items() if n is not None and s in node.free_symbols and _only_plain(node, s)]
        if not inside or isinstance(node, sympy.Symbol):
            return None
        i, j = self.rng.choice(inside), self.fresh()
        return _sum(sympy.KroneckerDelta(i, j) * _renamed(node, i, j), j, 0, scope[i] - 1)

    def distribute(self, node: Any, scope: Scope) -> Any:
        """a(b + c) = ab + ac and a Σ f = Σ a f, both ways; Σ (f + g) = Σ f + Σ g."""
        if isinstance(node, sympy.Mul):
            picks = [f for f in node.args if isinstance(f, (sympy.Add, sympy.Sum))]
            if not picks:
                return None
            pick = self.rng.choice(picks)
            rest = sympy.Mul(*(f for f in node.args if f is not pick))
            if isinstance(pick, sympy.Add):
                return sympy.Add(*(rest * _unshared(a, self) for a in pick.args))
            return sympy.Sum(rest * pick.function, *pick.limits)
        if isinstance(node, sympy.Sum) and len(node.limits) == 1:
            j, low, high = node.limits[0]
            if isinstance(node.function, sympy.Add):
                return sympy.Add(*(_sum(_unshared(f, self), j, low, high) for f in node.function.args))
            if isinstance(node.function, sympy.Mul):
                out = [f for f in node.function.args if j not in f.free_symbols]
                if out and len(out) < len(node.function.args):
                    return sympy.Mul(*out) * _sum(
                        sympy.Mul(*(f for f in node.function.args if f not in out)), j, low, high
                    )
        if isinstance(node, sympy.Pow) and node.exp == 2 and isinstance(node.base, sympy.Add):
            return sympy.Add(*(a * _unshared(b, self) for a in node.base.args for b in node.base.args))
        return None

    def exp(self, node: Any, scope: Scope) -> Any:
        """Σ_j exp(a_j + c) f = exp(c) Σ_j exp(a_j) f, both ways, for any c without j."""
        if not isinstance(node, sympy.Sum) or len(node.limits) != 1:
            return None
        j, low, high = node.limits[0]
        factors = node.function.args if isinstance(node.function, sympy.Mul) else (node.function,)
        exps = [f for f in factors if isinstance(f, sympy.exp)]
        if not exps:
            return None
        rest = sympy.Mul(*(f for f in factors if f is not exps[0]))
        exponent = exps[0].args[0]
        out = sympy.Add(*(a for a in sympy.Add.make_args(exponent) if j not in a.free_symbols))
        if out != 0 and self.rng.random() < 0.6:
            return sympy.exp(out) * _sum(rest * sympy.exp(exponent - out), j, low, high)
        c = self.rng.choice((*SCALARS, self.entry(scope)))
        return sympy.exp(-c) * _sum(rest * sympy.exp(exponent + c), j, low, high)

    def denominators(self, node: Any, scope: Scope) -> Any:
        """a/D + b/E = (aE + bD)/(DE); Σ_j f/D = (Σ_j f)/D, both ways; f = Σ_l f·w_l / Σ_l w_l."""
        if isinstance(node, sympy.Add):
            parts = [sympy.fraction(a) for a in node.args]
            if any(d != 1 for _, d in parts):
                bottom = sympy.Mul(*{d for _, d in parts if not d.is_Rational})
                if all((bottom / d).as_numer_denom()[1].is_Rational for _, d in parts):
                    return sympy.Add(*(a * (bottom / d) for a, d in parts)) / bottom
        if isinstance(node, sympy.Mul):
            sums = [f for f in node.args if isinstance(f, sympy.Sum)]
            below = [f for f in node.args if isinstance(f, sympy.Pow) and f.exp.is_negative]
            if sums and below:
                rest = sympy.Mul(*(f for f in node.args if f is not sums[0]))
                return sympy.Sum(rest * sums[0].function, *sums[0].limits)
        if isinstance(node, sympy.Sum) and len(node.limits) == 1 and isinstance(node.function, sympy.Mul):
            j = node.limits[0][0]
            out = [f for f in node.function.args if isinstance(f, sympy.Pow) and f.exp.is_negative
                   and j not in f.free_symbols]  # fmt: skip
            if out:
                return sympy.Mul(*out) * sympy.Sum(
                    sympy.Mul(*(f for f in node.function.args if f not in out)), *node.limits
                )
        if isinstance(node, sympy.Indexed):
            bottom = self.positive(scope)
            (l, low, high), k = bottom.limits[0], self.fresh()
            weight = _renamed(bottom.function, l, k)
            return _sum(node * weight / bottom, k, low, high)
        return None


_REWRITES: dict[str, Callable[[_Maker, Any, Scope], Any]] = {name: getattr(_Maker, name) for name in CLASSES}


def _renamed(expr: Any, old: Any, new: Any) -> Any:
    """expr with the free index `old` replaced. The caller sees to it that `new` isn't captured."""
    if isinstance(expr, sympy.Sum):
        limits, open_ = [], True
        for binder, low, high in reversed(expr.limits):
            if open_:
                low, high = low.xreplace({old: new}), high.xreplace({old: new})
            open_ = open_ and binder != old
            limits.append((binder, low, high))
        body = _renamed(expr.function, old, new) if open_ else expr.function
        return sympy.Sum(body, *reversed(limits))
    if isinstance(expr, sympy.Indexed):
        return expr.base[tuple(place.xreplace({old: new}) for place in expr.indices)]
    if isinstance(expr, sympy.Symbol):
        return new if expr == old else expr
    return expr.func(*(_renamed(a, old, new) for a in expr.args)) if expr.args else expr


def _only_plain(expr: Any, i: Any) -> bool:
    """Whether i stands nowhere but as an index of its own."""
    for node in sympy.preorder_traversal(expr):
        if isinstance(node, sympy.Sum) and any(i in e.free_symbols for _, *ends in node.limits for e in ends):
            return False
        if isinstance(node, sympy.Indexed) and any(i in p.free_symbols and p != i for p in node.indices):
            return False
    return True


def _captures(expr: Any, old: Any, new: Any) -> bool:
    """Whether an inner sum over `new` holds `old` free: renaming old to new would be captured there."""
    inner = (node for node in sympy.preorder_traversal(expr) if isinstance(node, sympy.Sum))
    return any(
        old in node.function.free_symbols or any(old in e.free_symbols for _, *ends in node.limits for e in ends)
        for node in inner
        if any(binder == new for binder, *_ in node.limits)
    )


def _unshared(expr: Any, maker: _Maker) -> Any:
    """A copy of expr in which every bound index has a new name, so that two copies share none."""
    if isinstance(expr, sympy.Sum) and len(expr.limits) == 1:
        (binder, low, high), new = expr.limits[0], maker.fresh()
        return _sum(_renamed(_unshared(expr.function, maker), binder, new), new, low, high)
    if isinstance(expr, (sympy.Indexed, sympy.Symbol)) or not expr.args:
        return expr
    return expr.func(*(_unshared(a, maker) for a in expr.args))


def _other_index(node: Any, rng: random.Random) -> Iterator[Any]:
    """One index of an entry replaced by another symbol of the statement, or two swapped."""
    if isinstance(node, sympy.Indexed):
        free = [i for i, n in FREE.items() if node.base.shape[0] == n]
        for new in free:
            yield node.base[(new, *node.indices[1:])]
        if len(node.indices) == 2 and node.base.shape[0] == node.base.shape[1]:
            yield node.base[tuple(reversed(node.indices))]


def _no_delta(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, sympy.KroneckerDelta):
        yield sympy.Integer(1)


def _sign(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, sympy.Add):
        at = rng.randrange(len(node.args))
        yield sympy.Add(*(-a if k == at else a for k, a in enumerate(node.args)))


def _coefficient(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, (sympy.Sum, sympy.Indexed)):
        yield 2 * node


def _range(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, sympy.Sum):
        (j, low, high), *rest = node.limits
        yield sympy.Sum(node.function, (j, low, high - 1), *rest)
        yield sympy.Sum(node.function, (j, low + 1, high), *rest)


def _power(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, sympy.Indexed):
        yield node**2
    if isinstance(node, sympy.Pow):
        yield node.base


def _exponent(node: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(node, sympy.exp):
        yield sympy.exp(2 * node.args[0])
        yield sympy.exp(-node.args[0])


def _capture(node: Any, rng: random.Random) -> Iterator[Any]:
    """A binder given a name that is free in the body: what a careless renaming does."""
    if isinstance(node, sympy.Sum):
        (j, low, high), *rest = node.limits
        for new in LURES:
            if new != j and new in node.function.free_symbols:
                yield sympy.Sum(_renamed(node.function, j, new), (new, low, high), *rest)


_MUTATIONS: dict[str, Callable[[Any, random.Random], Iterator[Any]]] = {
    "other index": _other_index,
    "dropped delta": _no_delta,
    "sign": _sign,
    "coefficient": _coefficient,
    "range": _range,
    "power": _power,
    "exponent": _exponent,
    "captured index": _capture,
}
