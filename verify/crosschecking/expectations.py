"""Expectations in many digits, by enumeration: each random entry takes the few values of a Gauss rule of its law.

Guarantees: a rule of N points has the law's own moments up to order 2N − 1, and N is chosen by the degree in which an
entry occurs, so the sum over all points is the expectation itself, not an estimate of it. Where a claim states a few
moments only, the points are one law that has them.
Does not: share code with derive's moment engines, or handle laws of whole matrices (orthogonal ones).

Source: Golub, Welsch (1969), Calculation of Gauss quadrature rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from derive.assumptions import RandomEntries
from derive.errors import MomentError
from derive.moments.model import GaussianPair
from derive.moments.nodes import Covariance, Cumulant, ExcessKurtosis, Expect, Skewness, Variance
from verify.crosschecking.arithmetic import Digits, Unsupported
from verify.crosschecking.evaluation import Entry, Evaluation

NODES = (Expect, Variance, Covariance, Cumulant, Skewness, ExcessKurtosis)
MOST_POINTS = 800
# How often a node multiplies its argument with itself.
_TIMES = {Variance: 2, Skewness: 3, ExcessKurtosis: 4}
Draws = list[tuple[Any, Any]]


def has_expectations(*sides: Any) -> bool:
    return any(getattr(s, "has", lambda *_: False)(*NODES) for s in sides)


def law_symbols(one: RandomEntries) -> set[Any]:
    """Symbols of a law's parameters."""
    if isinstance(one.law, GaussianPair):
        told = (*one.law.means, *one.law.deviations, one.law.correlation)
        return set().union(*(sympy.sympify(x).free_symbols for x in told))
    found: set[Any] = set()
    for order in range(1, 5):
        try:
            found |= sympy.sympify(one.law.cumulant(order)).free_symbols
        except (AttributeError, MomentError):
            break
    return found


class RandomEvaluation(Evaluation):
    """An evaluation in which some arrays are random, independent from place to place.

    Raises Unsupported when a rule does not exist at these parameters, or would need too many points.
    """

    def __init__(
        self,
        context: Any,
        arrays: Mapping[str, Mapping[tuple[int, ...], Any]],
        scalars: Mapping[str, Any],
        definitions: tuple[Any, ...],
        laws: Iterable[RandomEntries],
        sides: Iterable[Any],
    ) -> None:
        super().__init__(Digits(context), arrays, scalars, definitions)
        self._context = context
        self._laws = tuple(laws)
        self._points = self._enumerate(tuple(sides))

    def _value(self, expr: Any, at: dict[Any, int]) -> Any:
        if isinstance(expr, NODES):
            return self._node(expr, at)
        return super()._value(expr, at)

    # -- the points -------------------------------------------------------------------------------------------------

    def _enumerate(self, sides: tuple[Any, ...]) -> list[tuple[Any, dict[Entry, Any]]]:
        choices: list[list[tuple[Any, dict[Entry, Any]]]] = []
        count = 1
        for one in self._laws:
            names = [str(a.label) for a in one.arrays]
            degree = max(self._degree(node, set(names)) for s in sides for node in s.atoms(*NODES))
            rule = self._rule(one.law, degree)
            places = next(self._arrays[n] for n in names if n in self._arrays)
            for place in places:
                named = [(w, {(n, place): x for n, x in zip(names, values, strict=True)}) for w, values in rule]
                choices.append(named)
                count *= len(named)
            if count > MOST_POINTS:
                raise Unsupported("an expectation over too many entries")
        points = []
        for picked in itertools.product(*choices):
            entries: dict[Entry, Any] = {}
            for _, part in picked:
                entries |= part
            points.append((self._context.fprod(w for w, _ in picked), entries))
        return points

    def _degree(self, expr: Any, names: set[str]) -> int:
        """In what degree one entry of these arrays may occur, abbreviations opened."""
        if isinstance(expr, sympy.Indexed):
            name = str(expr.base.label)
            if name in self._definitions:
                return self._degree(self._definitions[name].body, names)
            return int(name in names)
        if isinstance(expr, (sympy.Sum, sympy.Product)):
            return self._degree(expr.args[0], names)
        if expr.is_Mul:
            return sum(self._degree(a, names) for a in expr.args)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return int(expr.exp) * self._degree(expr.base, names)
        inner = [self._degree(a, names) for a in getattr(expr, "args", ())]
        if isinstance(expr, Covariance):
            return sum(inner)
        if isinstance(expr, Cumulant):
            return inner[0] * expr.order
        return max(inner, default=0) * _TIMES.get(type(expr), 1)

    def _rule(self, law: Any, degree: int) -> list[tuple[Any, tuple[Any, ...]]]:
        if isinstance(law, GaussianPair):
            return self._pair(law, degree)
        if not hasattr(law, "cumulant"):
            raise Unsupported(f"{law} has no law of single entries")
        cumulants = self._cumulants(law, degree)
        # A law known to some order only: the rule is itself such a law, so the claim must hold for it.
        degree = min(degree, len(cumulants))
        mean, *higher = (self._parameter(k) for k in cumulants)
        return [(w, (mean + x,)) for w, x in gauss_rule(self._context, _central(self._context, higher + [0]), degree)]

    def _cumulants(self, law: Any, degree: int) -> list[Any]:
        """The cumulants that are known, up to the order that a rule of this degree needs."""
        found: list[Any] = []
        for order in range(1, 2 * (degree // 2 + 1)):
            try:
                found.append(law.cumulant(order))
            except MomentError:
                break
        return found

    def _pair(self, law: GaussianPair, degree: int) -> list[tuple[Any, tuple[Any, ...]]]:
        """Both entries from two independent normals: k = ρ z₁ + √(1 − ρ²) z₂."""
        (mq, mk), (sq, sk) = (tuple(self._parameter(x) for x in two) for two in (law.means, law.deviations))
        rho = self._parameter(law.correlation)
        if abs(rho) > 1:
            raise Unsupported("a correlation beyond 1")
        normal = gauss_rule(self._context, _central(self._context, [1] + [0] * (2 * degree)), degree)
        rest = self._context.sqrt(1 - rho**2)
        return [
            (u * w, (mq + sq * x, mk + sk * (rho * x + rest * y)))
            for (u, x), (w, y) in itertools.product(normal, normal)
        ]

    def _parameter(self, expr: Any) -> Any:
        return super()._value(sympy.sympify(expr, strict=True), {})

    # -- the nodes --------------------------------------------------------------------------------------------------

    def _node(self, node: Any, at: dict[Any, int]) -> Any:
        drawn = self._draws(node.args[0], at)
        mean = self._mean(drawn)
        if isinstance(node, Expect):
            return mean
        centred = [(w, x - mean) for w, x in drawn]
        if isinstance(node, Covariance):
            other = self._draws(node.args[1], at)
            middle = self._mean(other)
            return self._context.fsum(w * x * (y - middle) for (w, x), (_, y) in zip(centred, other, strict=True))
        second, third, fourth = (self._context.fsum(w * x**p for w, x in centred) for p in (2, 3, 4))
        if isinstance(node, Variance):
            return second
        if isinstance(node, Skewness):
            return third / self._context.sqrt(second) ** 3
        if isinstance(node, ExcessKurtosis):
            return fourth / second**2 - 3
        known = {1: mean, 2: second, 3: third, 4: fourth - 3 * second**2}
        if node.order not in known:
            raise Unsupported("a cumulant above the fourth")
        return known[node.order]

    def _mean(self, drawn: Draws) -> Any:
        return self._context.fsum(w * x for w, x in drawn)

    def _draws(self, f: Any, at: dict[Any, int]) -> Draws:
        moved, kept = self._moved, self._kept
        found = []
        for weight, entries in self._points:
            self._moved, self._kept = entries, {}
            found.append((weight, self._value(f, at)))
        self._moved, self._kept = moved, kept
        return found


def _central(context: Any, cumulants: list[Any]) -> list[Any]:
    """Central moments μ₀ = 1, μ₁ = 0, μ₂ … from κ₂, κ₃ …: μ_r = Σ_s C(r−1, s−1) κ_s μ_{r−s}, κ₁ = 0."""
    moments = [context.mpf(1)]
    for r in range(1, len(cumulants) + 2):
        terms = [context.binomial(r - 1, s - 1) * cumulants[s - 2] * moments[r - s] for s in range(2, r + 1)]
        moments.append(context.fsum(terms))
    return moments


def gauss_rule(context: Any, moments: list[Any], degree: int) -> list[tuple[Any, Any]]:
    """(weight, point) pairs with these moments up to `degree`; fewer points where the law itself has fewer.

    Raises Unsupported when no law has such moments.
    """
    tiny = context.mpf(10) ** (-context.dps // 2)
    for count in range(degree // 2 + 1, 0, -1):
        hankel = context.matrix([[moments[a + b] for b in range(count)] for a in range(count)])
        size = context.det(hankel)
        if size < -tiny:
            raise Unsupported("moments that no law has")
        if size <= tiny:
            continue  # the law sits on fewer points
        right = context.matrix([-moments[a + count] for a in range(count)])
        monic = [context.mpf(1), *reversed(list(context.lu_solve(hankel, right)))]
        points = context.polyroots(monic, maxsteps=400, extraprec=4 * context.prec) if count > 1 else [-monic[1]]
        if any(abs(context.im(x)) > tiny for x in points):
            raise Unsupported("moments that no law has")
        points = [context.re(x) for x in points]
        powers = context.matrix([[x**a for x in points] for a in range(count)])
        weights = context.lu_solve(powers, context.matrix(moments[:count]))
        return [(weights[k], points[k]) for k in range(count)]
    raise Unsupported("moments that no law has")
