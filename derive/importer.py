"""From a SymPy statement and its side conditions to terms.

Guarantees: every index is bound by a sum or given a range, every entry is shown to lie inside its array, every
denominator, root and logarithm is shown to be defined, and every sum's range is shown not to run backwards; where one
of the last two isn't shown, `Unestablished` says which condition to state. Binders get fresh names on the way in.
Does not: trust anything read off the expression that SymPy may have cancelled; side conditions come from the caller.

A `Product` and a power with a symbolic exponent are read as exp(Σ log f) and exp(k log a), which is sound where f > 0
and a > 0; that must be shown. For other signs they are not read: x^k of unknown sign has no logarithm, and the laws of
its exponents (0^0 = 1, x^(k+1) = x x^k for k ≥ 0 only) are not those of this normal form.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import sympy

from derive.assumptions import (
    AtLeast,
    Defined,
    Distinct,
    InRange,
    Ordered,
    Positive,
    ZeroOne,
)
from derive.calculus import derivative
from derive.entries import array_names, replace_entries
from derive.errors import DeriveError, StatementError
from derive.index import Facts, Ix
from derive.language import Diff
from derive.leaves import Leaves, Scope, base_name
from derive.normal import Normaliser
from derive.powers import split_content
from derive.signs import Environment, Pattern, is_nonnegative, is_nonzero, is_positive
from derive.terms import Atom, Mono, Poly, Power, fresh

FUNCTIONS = {
    sympy.tanh: "tanh",
    sympy.sinh: "sinh",
    sympy.cosh: "cosh",
    sympy.sin: "sin",
    sympy.cos: "cos",
    sympy.erf: "erf",
    sympy.gamma: "gamma",
    sympy.loggamma: "loggamma",
    sympy.Abs: "Abs",
    sympy.atan: "atan",
}
# '!' can't occur in a name that comes from outside.
_CONSTANTS = {sympy.pi: "!pi", sympy.E: "!e", sympy.EulerGamma: "!euler_gamma"}


class Unestablished(DeriveError):
    """A condition that the statement needs isn't among its assumptions; the message says which to state."""


class Importer(Leaves):
    """Reads statements under one list of assumptions.

    opaque: names of defined arrays to keep as they are, where a lemma speaks of them; all others are unfolded.
    statement: the expressions to be read. An assumption's free index that isn't free in them (nor in the body of an
    abbreviation that they use) speaks of every value in its range; one that is speaks of that value. Only of the
    latter a value is known to exist: a range of any other index says nothing of the sizes, as it may be empty.
    """

    def __init__(
        self, assumptions: Iterable[Any] = (), opaque: Iterable[str] = (), statement: Iterable[Any] = ()
    ) -> None:
        self.assumptions = tuple(assumptions)
        self.opaque = frozenset(opaque)
        ranged: dict[Any, tuple[Any, Any]] = {}
        self.definitions: dict[str, Defined] = {}
        self._bodies: dict[tuple[str, frozenset[str]], tuple[tuple[str, ...], Poly]] = {}
        self._opening: list[str] = []
        self._elsewhere: tuple[Ix, ...] = ()
        for a in self.assumptions:
            if isinstance(a, InRange):
                ranged[a.index] = (a.lower, a.upper)
            elif isinstance(a, Defined):
                if base_name(a.array) in self.definitions:
                    raise StatementError(f"{a.array} is defined twice: an abbreviation needs one meaning")
                self.definitions[base_name(a.array)] = a
        env = Environment(
            positive=frozenset(_CONSTANTS.values()),
            zero_one=frozenset(base_name(a.array) for a in self.assumptions if isinstance(a, ZeroOne)),
        )
        super().__init__(env, ranged)
        self.normaliser = Normaliser(env)
        sides = [sympy.sympify(side, strict=True) for side in statement]
        self._fixed = self._free(sides)
        self._read_bounds()
        self.declare(*sides)
        self._read_patterns()

    def _free(self, sides: Iterable[Any]) -> frozenset[Any]:
        """Free symbols of the sides and of the bodies that they open, which are read outside all sums."""
        found: set[Any] = set()
        opened: set[str] = set()
        todo = [(side, frozenset[Any]()) for side in sides]
        while todo:
            expr, own = todo.pop()
            found |= expr.free_symbols - own
            names = {base_name(base) for base in expr.atoms(sympy.IndexedBase, sympy.Symbol)}
            for name in (names & self.definitions.keys()) - opened:
                opened.add(name)
                definition = self.definitions[name]
                todo.append((sympy.sympify(definition.body, strict=True), frozenset(definition.indices)))
        return frozenset(found)

    # ---- side conditions ------------------------------------------------------------------------------------------

    def _read_bounds(self) -> None:
        bounds: list[Ix] = []
        differences: list[Ix] = []
        for a in self.assumptions:
            if isinstance(a, InRange):
                i, low, high = (self._bound_ix(x) for x in (a.index, a.lower, a.upper))
                bounds += [i - low, high - i]
            elif isinstance(a, AtLeast):
                bounds.append(self._bound_ix(a.size).plus(-a.least))
            elif isinstance(a, Ordered):
                low, middle, high = (self._bound_ix(x) for x in (a.lower, a.middle, a.upper))
                bounds += [middle - low, high - middle]
            elif isinstance(a, Distinct):
                differences.append(self._bound_ix(a.first) - self._bound_ix(a.second))
        absent = {s.name for s in self.ranged} - self._present()
        self._elsewhere = tuple(b for b in bounds if b.free & absent)
        self.env.facts = Facts([b for b in bounds if not b.free & absent])
        self.env.distinct = frozenset(differences)

    def _present(self) -> set[str]:
        """Names of the ranged indices that have a value: free in the sides, or in the range of one that is."""
        found = {s for s in self.ranged if s in self._fixed}
        todo = list(found)
        while todo:
            ends = [sympy.sympify(end, strict=True) for end in self.ranged[todo.pop()]]
            more = {s for end in ends for s in end.free_symbols if s in self.ranged} - found
            found |= more
            todo += more
        return {s.name for s in found}

    def _bound_ix(self, value: Any) -> Ix:
        return self.ix(sympy.sympify(value, strict=True), {}, "an assumption")

    def _read_patterns(self) -> None:
        stated = [a for a in self.assumptions if isinstance(a, Positive)]
        self.declare(*(a.expr for a in stated))
        for a in stated:
            expr = sympy.sympify(a.expr, strict=True)
            if isinstance(expr, sympy.Symbol):
                self.symbol_name(expr)
                self.env.positive |= {expr.name}
        for a in stated:
            expr = sympy.sympify(a.expr, strict=True)
            if isinstance(expr, sympy.Symbol):
                continue
            names = tuple(s.name for s in self.ranged if s in expr.free_symbols and s not in self._fixed)
            # Read under the ranges of its own indices, which hold for the entries it speaks of and nowhere else.
            bounds = [b for b in self._elsewhere if b.free & set(names)]
            known = self.facts.given(bounds)
            poly = self.normaliser.normal(self.term(expr, {}, known), known)
            if poly.is_zero:
                raise StatementError(f"{a.expr} is 0, and can't be positive")
            _, _, rest = split_content(poly, self.env, known, signed=False)
            different = tuple(d for d in self.env.distinct if d.free & set(names))
            found = (poly, rest) if all(set(names) <= p.free for p in (poly, rest)) else (poly,)
            self.env.patterns += [Pattern(p, names, tuple(bounds), different) for p in found]

    # ---- expressions ----------------------------------------------------------------------------------------------

    def statement(self, expr: Any) -> Poly:
        """The terms of one side of a statement, definitions unfolded."""
        expr = sympy.sympify(expr, strict=True)
        self._declare(expr)
        return self.unfold(self.term(expr, {}, self.facts), self.opaque)

    def term(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        """A SymPy expression as terms; scope maps bound index symbols to index expressions."""
        if expr.is_Rational:
            return Poly.const(Fraction(int(expr.p), int(expr.q)))
        if expr in _CONSTANTS:
            return Poly.atom(Atom("var", _CONSTANTS[expr]))
        if expr.is_Float:
            raise StatementError(f"{expr} is a rounded number: write it as a Rational or a symbol")
        if isinstance(expr, sympy.Symbol):
            return Poly.of_index(scope[expr]) if expr in scope else self.symbol(expr)
        if isinstance(expr, sympy.Indexed):
            return self.entry(expr, scope, facts)
        handler = self._handlers().get(type(expr)) or self._handlers().get(expr.func)
        if handler is not None:
            return handler(expr, scope, facts)
        if expr.func in FUNCTIONS:
            parts = tuple(self.term(a, scope, facts) for a in expr.args)
            return Poly.atom(Atom("fn", FUNCTIONS[expr.func], parts=parts))
        raise StatementError(
            f"unsupported function or number {expr.func.__name__} in {expr}: statements are built from sums, products, "
            f"powers, exp, log, KroneckerDelta, Piecewise, Diff and {', '.join(sorted(FUNCTIONS.values()))}"
        )

    def _handlers(self) -> dict[Any, Any]:
        return {
            sympy.Add: self._add,
            sympy.Mul: self._mul,
            sympy.Pow: self._pow,
            sympy.exp: self._exp,
            sympy.log: self._log,
            sympy.Sum: self._sum,
            sympy.Product: self._product,
            sympy.KroneckerDelta: self._delta,
            sympy.Piecewise: self._piecewise,
            Diff: self._diff,
        }

    def _add(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        total = Poly({})
        for a in expr.args:
            total = total + self.term(a, scope, facts)
        return total

    def _mul(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        product = Poly.const(1)
        for a in expr.args:
            product = product.times(self.term(a, scope, facts))
        return product

    def _pow(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        base, exponent = expr.args
        if base is sympy.E:
            return Poly.mono(Mono(argument=self.term(exponent, scope, facts)))
        if not exponent.is_Rational:
            return self._symbolic_power(expr, scope, facts)
        p = Power(int(exponent.p), int(exponent.q))
        inside = self.term(base, scope, facts)
        if p.denominator == 1 and p >= 0:
            return inside.power(int(p))
        value = self.normaliser.normal(self.unfold(inside, frozenset()), facts)
        if p.denominator == 1 and not self.normaliser.holds_in_all_cases(is_nonzero, value, facts):
            raise Unestablished(
                f"the denominator {base} is not known to be non-zero: state Positive({base}), or AtLeast(n, 1) "
                "for the sizes of the rows it sums over"
            )
        if p.denominator != 1 and not self.normaliser.holds_in_all_cases(
            is_positive if p < 0 else is_nonnegative, value, facts
        ):
            raise Unestablished(f"{base} under the root in {expr} is not known to be positive: state Positive({base})")
        return Poly.atom(Atom("pow", parts=(inside,)), p)

    def _symbolic_power(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        """base^k = exp(k log base) for a positive base."""
        base, exponent = expr.args
        if not exponent.is_integer:
            raise StatementError(
                f"unsupported exponent {exponent} in {expr}: exponents are rational numbers, or integer polynomials in "
                "sizes and indices"
            )
        times = Poly.of_index(self.ix(exponent, scope, expr))
        return Poly.mono(Mono(argument=times.times(self._log_of(base, expr, scope, facts))))

    def _product(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        """Π f = exp(Σ log f) for positive factors; the empty product is exp(0) = 1."""
        inner, known, opened = self.open_sum(expr, scope, facts)
        total = self._log_of(expr.function, expr, inner, known)
        for name, bounds in reversed(opened):
            total = total.summed(name, bounds)
        return Poly.mono(Mono(argument=total))

    def _log_of(self, inside: Any, where: Any, scope: Scope, facts: Facts) -> Poly:
        """log of what is shown to be positive."""
        term = self.term(inside, scope, facts)
        value = self.normaliser.normal(self.unfold(term, frozenset()), facts)
        if not self.normaliser.holds_in_all_cases(is_positive, value, facts):
            raise Unestablished(f"{inside} in {where} is not known to be positive: state Positive({inside})")
        return Poly.atom(Atom("fn", "log", parts=(term,)))

    def _exp(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        return Poly.mono(Mono(argument=self.term(expr.args[0], scope, facts)))

    def _log(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        return self._log_of(expr.args[0], expr, scope, facts)

    def _sum(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        inner, known, opened = self.open_sum(expr, scope, facts)
        body = self.term(expr.function, inner, known)
        for name, bounds in reversed(opened):
            body = body.summed(name, bounds)
        return body

    def open_sum(self, expr: Any, scope: Scope, facts: Facts) -> tuple[Scope, Facts, list[tuple[str, tuple[Ix, Ix]]]]:
        """The scope and facts inside a sum, and its binders' fresh names with their bounds, outermost first."""
        inner = dict(scope)
        known = facts
        opened: list[tuple[str, tuple[Ix, Ix]]] = []
        for limit in reversed(expr.limits):  # SymPy's last limit is the outermost sum
            if len(limit) != 3:
                raise StatementError(f"a sum without a range in {expr}: write total(body, {limit[0]}, size)")
            binder, low, high = limit
            if not binder.is_integer:
                raise StatementError(f"the binder {binder} of {expr} is not an integer: make it with index()")
            for end in (low, high):
                if end.is_infinite:
                    raise StatementError(f"the range of {binder} in {expr} is not finite")
            first, last = self.ix(low, inner, expr), self.ix(high, inner, expr)
            if not known.implies((last - first).plus(1)):
                raise Unestablished(
                    f"the range {low} … {high} of {binder} may run backwards: state Ordered or AtLeast so that "
                    f"{high} ≥ {low} − 1 follows"
                )
            name = fresh()
            inner[binder] = Ix.var(name)
            bounds = (Ix.var(name) - first, last - Ix.var(name))
            known = known.given(bounds)
            opened.append((name, bounds))
        return inner, known, opened

    def _delta(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        if len(expr.args) != 2:
            raise StatementError(f"{expr} has a range, which is not read here: write KroneckerDelta(i, j)")
        a, b = (self.ix(x, scope, expr) for x in expr.args[:2])
        return Poly.mono(Mono(equations=(a - b,)))

    def _piecewise(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        total = Poly({})
        remaining = Poly.const(1)
        for value, condition in expr.args:
            here = remaining.times(self._condition(condition, scope))
            remaining = remaining - here
            # Each branch is read under what its own condition adds, where that is one bracket.
            known = facts.given(here.terms[0][0].bounds) if len(here.terms) == 1 else facts
            total = total + here.times(self.term(value, scope, known))
        if not self.normaliser.normal(remaining, facts).is_zero:
            raise StatementError(f"{expr} leaves a case open: end it with (value, True)")
        return total

    def _condition(self, condition: Any, scope: Scope) -> Poly:
        """A condition on indices as a sum of brackets."""
        if condition == sympy.true:
            return Poly.const(1)
        if condition == sympy.false:
            return Poly({})
        if isinstance(condition, sympy.And):
            product = Poly.const(1)
            for a in condition.args:
                product = product.times(self._condition(a, scope))
            return product
        if isinstance(condition, sympy.Or):
            none = Poly.const(1)
            for a in condition.args:
                none = none.times(Poly.const(1) - self._condition(a, scope))
            return Poly.const(1) - none
        if isinstance(condition, sympy.Not):
            return Poly.const(1) - self._condition(condition.args[0], scope)
        if not isinstance(condition, sympy.core.relational.Relational):
            raise StatementError(f"unsupported condition {condition}")
        difference = self.ix(condition.rhs, scope, condition) - self.ix(condition.lhs, scope, condition)
        kind = condition.rel_op
        if kind == "==":
            return Poly.mono(Mono(equations=(difference,)))
        if kind == "!=":
            return Poly.const(1) - Poly.mono(Mono(equations=(difference,)))
        bound = {"<=": difference, "<": difference.plus(-1), ">=": -difference, ">": (-difference).plus(-1)}[kind]
        return Poly.mono(Mono(bounds=(bound,)))

    def _diff(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        """The array named in the entry is a variable: what is defined through it is unfolded down to it."""
        entry = expr.entry
        inside = self.term(expr.expr, scope, facts)
        if isinstance(entry, sympy.Symbol) and not entry.is_integer:
            self.symbol_name(entry)
            return derivative(self.unfold(inside, self.opaque), entry.name, None, self)
        if not isinstance(entry, sympy.Indexed):
            raise StatementError(f"{expr} differentiates by {entry}: name an entry of an array, or a scalar")
        indices = self.indices(entry, scope, facts)
        name = base_name(entry.base)
        if name in self.env.zero_one:
            raise StatementError(f"{expr} differentiates by {name}, whose entries are only 0 or 1")
        kept = self.unfold(inside, self.opaque | {name})
        return self.unfold(derivative(kept, name, indices, self), self.opaque)

    def require_positive(self, base: Poly, bounds: frozenset[Ix]) -> None:
        """Roots are differentiated only where their base is known to be positive."""
        known = self.facts.given(bounds)
        if not is_positive(self.normaliser.normal(self.unfold(base, frozenset()), known), self.env, known):
            raise Unestablished("a root is differentiated whose base is not known to be positive: state Positive(…)")

    # ---- definitions ----------------------------------------------------------------------------------------------

    def definition(self, name: str, keep: frozenset[str]) -> tuple[tuple[str, ...], Poly]:
        """(names of the indices, body) of a defined array, its own definitions unfolded down to those kept."""
        memo = (name, keep)
        if memo not in self._bodies:
            d = self.definitions[name]
            if name in self._opening:
                raise StatementError(f"{d.array} is defined through itself, by way of {', '.join(self._opening)}")
            self._declare(d.body)
            names = tuple(fresh() for _ in d.indices)
            scope = dict(zip(d.indices, (Ix.var(v) for v in names), strict=True))
            bounds = []
            for v, extent in zip(names, d.array.shape, strict=True):
                bounds += [Ix.var(v), (self.ix(extent, {}, d.array) - Ix.var(v)).plus(-1)]
            body = self.term(sympy.sympify(d.body, strict=True), scope, self.facts.given(bounds))
            if any(a == name for a in array_names(body)):
                raise StatementError(f"{d.array} is defined through itself")
            self._opening.append(name)
            try:
                whole = self.unfold(body, keep)
            finally:
                self._opening.pop()
            self._bodies[memo] = (names, self.normaliser.normal(whole, self.facts.given(bounds)))
        return self._bodies[memo]

    def unfold(self, poly: Poly, keep: frozenset[str]) -> Poly:
        """Entries of defined arrays replaced by their bodies, except the arrays in `keep`."""
        wanted = (self.definitions.keys() - keep) & array_names(poly)
        if not wanted:
            return poly
        return replace_entries(poly, {name: self.definition(name, keep) for name in wanted})
