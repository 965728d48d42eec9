"""The first checker: a normal form that holds for all sizes.

Guarantees: `Normaliser.normal` returns a sum equal to the one given, for every value of the sizes and free indices that
meets the facts; two statements' difference is proved zero when its normal form is the empty sum. Delta contraction,
exchange of sums, triangular ranges, shifts, joined ranges, D · D⁻¹ = 1 for sums that are never zero, exp(a + b),
exp(log P) and log of products are part of it; products over ranges are exponentials of sums of logarithms.
Does not: decide equality. A difference that isn't reduced to the empty sum is "not shown".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from derive.binders import canonical, name_binders
from derive.cases import first_case, poly_in_case, split_case
from derive.errors import DeriveError
from derive.index import Facts, Ix
from derive.powers import function, logarithm, power, split_exponent
from derive.ranges import count_binder, join, point_options, reduce_bounds, solve_equations, solve_free, undo_shift
from derive.reduction import ORDERS, absorb, lead_term
from derive.signs import POSITIVE, Environment, atom_sign, is_nonzero
from derive.terms import Atom, Mono, Poly, Power, merged, wrap

SignTest = Callable[[Poly, Environment, Facts], bool]
_MOST_TERMS = 4000
_MOST_STEPS = 40000
_MOST_PAIRED = 8  # terms that are compared by their logarithms, pair by pair
_MOST_CLEARED = 12  # terms; beyond it multiplying out costs more than it ever showed


class NotShown(DeriveError):
    """The normal form was given up: it grew past the limit, or met a case in which a denominator vanishes."""


class Normaliser:
    """Normal forms under one set of side conditions. Results are kept for the life of the object."""

    def __init__(self, env: Environment, order: int = 0) -> None:
        self.env = env
        self.order = order
        self.blocked: set[str] = set()
        self._polys: dict[tuple[str, frozenset[Ix]], Poly] = {}
        self._monos: dict[tuple[str, frozenset[Ix], int], Poly | None] = {}
        self._steps = 0

    def normal(self, poly: Poly, facts: Facts | None = None, depth: int = 0) -> Poly:
        """The normal form under the facts (those of the environment unless given)."""
        facts = self.env.facts if facts is None else facts
        poly = canonical(poly)
        memo = (poly.key, facts.bounds)
        found = self._polys.get(memo)
        if found is None:
            found = self._normal(poly, facts, depth)
            self._polys[memo] = self._polys[found.key, facts.bounds] = found
        return found

    def is_zero(self, poly: Poly) -> bool:
        """True when the sum is shown to be zero for all sizes."""
        form = self.normal(poly)
        if form.is_zero or self._zero_after_clearing(form, 0) or self._zero_by_logarithms(form):
            return True
        bases = _bases(form)
        other = [o for o in ORDERS if any(lead_term(p, o) != lead_term(p, self.order) for p in bases)]
        return any(Normaliser(self.env, order).normal(form).is_zero for order in other)

    def holds_in_all_cases(self, test: SignTest, poly: Poly, facts: Facts, depth: int = 4) -> bool:
        """A sign test on a normal form, tried in each case of its brackets on free indices if it fails as a whole."""
        if test(poly, self.env, facts):
            return True
        case = first_case(poly) if depth else None
        if case is None:
            return False
        is_equation, bracket = case
        inside, outside = (poly_in_case(poly, is_equation, bracket, holds=h) for h in (True, False))
        if is_equation:
            solved = solve_free(bracket)
            if solved is None:
                return False
            inside, known_inside, known_outside = inside.substitute(solved), facts, facts
        else:
            known_inside, known_outside = facts.given({bracket}), facts.given({(-bracket).plus(-1)})
        return all(
            known.contradictory or self.holds_in_all_cases(test, self.normal(part, known), known, depth - 1)
            for part, known in ((inside, known_inside), (outside, known_outside))
        )

    def _normal(self, poly: Poly, facts: Facts, depth: int) -> Poly:
        table: dict[Mono, Fraction] = {}
        pending = list(poly.terms)
        while True:
            while pending:
                # Like terms meet early, so that a cancellation costs nothing further.
                batch: dict[Mono, Fraction] = {}
                for mono, c in pending:
                    named = name_binders(mono)
                    batch[named] = batch.get(named, Fraction(0)) + c
                pending = []
                for mono, c in batch.items():
                    if not c:
                        continue
                    changed = self._step(mono, facts, depth)
                    if changed is None:
                        table[mono] = table.get(mono, Fraction(0)) + c
                    else:
                        pending += [(m, c * d) for m, d in changed.terms]
                if len(pending) + len(table) > _MOST_TERMS:
                    raise NotShown("the normal form has too many terms")
            table = {m: c for m, c in table.items() if c}
            joined = join(table, facts)
            if joined is None:
                joined = self._join_point(table, facts, depth)
            if joined is None:
                return Poly(table)
            pending, table = list(joined.items()), {}

    def _join_point(self, table: dict[Mono, Fraction], facts: Facts, depth: int) -> dict[Mono, Fraction] | None:
        """A range that grows or shrinks by one entry which stands beside it in the sum; None when there is none."""
        for mono, moved, at_point, sign in point_options(table):
            c = table[mono]
            point = self.normal(Poly.mono(at_point), facts, depth)
            if point.is_zero:
                continue
            needed = [(m, sign * c * k) for m, k in point.terms]
            if any(m == mono or table.get(m, Fraction(0)) / k < 1 for m, k in needed):
                continue
            new = dict(table)
            del new[mono]
            for m, k in needed:
                new[m] -= k
            named = name_binders(moved)
            new[named] = new.get(named, Fraction(0)) + c
            return {m: k for m, k in new.items() if k}
        return None

    def _step(self, mono: Mono, facts: Facts, depth: int) -> Poly | None:
        """One change to a term with canonical names; None when it is settled."""
        memo = (mono.key, facts.bounds, depth)
        if memo not in self._monos:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NotShown("the normal form took too many steps")
            self._monos[memo] = self._change(mono, facts, depth)
        return self._monos[memo]

    def _change(self, named: Mono, facts: Facts, depth: int) -> Poly | None:
        # Working names differ from level to level, so that facts about outer binders stay readable inside.
        mono = named.renamed({b: f"%{depth}.{k:02d}" for k, b in enumerate(named.binders)}) if named.binders else named
        if any(b in named.free for b in mono.binders):
            mono = named.renamed_apart(frozenset(named.binders))
        solved = solve_equations(mono, facts, self.env)
        if solved is not None:
            return solved
        inner = facts.given(mono.bounds)
        if mono.bounds and inner.contradictory:
            return Poly({})
        rebuilt = self._rebuilt(mono, inner, depth)
        if rebuilt is not None:
            return rebuilt
        changed = (
            split_case(mono)
            or absorb(mono, facts, self.env, self.order, self.blocked)
            or count_binder(mono, facts, self.env)
        )
        if changed is not None:
            return changed
        reduced = reduce_bounds(mono, facts)
        if reduced.key != mono.key:
            return Poly.mono(reduced)
        shifted = undo_shift(mono)
        if shifted is not None:
            return shifted
        return None

    def _rebuilt(self, mono: Mono, inner: Facts, depth: int) -> Poly | None:
        """The term with its powers, functions and exponent normalised; None when they are normal already."""
        product = Poly.const(1)
        plain: list[tuple[Atom, Power]] = []
        changed = False
        for atom, p in mono.factors:
            new = self._factor(atom, p, inner, depth)
            if new is None:
                plain.append((atom, p))
            else:
                changed = True
                product = product.times(new)
        argument = mono.argument
        if argument is not None:
            normal = self.normal(argument, inner, depth + 1)
            rest, leaving = split_exponent(normal)
            for base, p in leaving:
                product = product.times(power(base, p, self.env, inner))
            if leaving or canonical(argument).key != rest.key:
                changed = True
                argument = rest
        if not changed:
            return None
        return wrap(Mono((), mono.bounds, mono.equations, merged(plain), argument), mono.binders, product)

    def _factor(self, atom: Atom, p: Power, inner: Facts, depth: int) -> Poly | None:
        """One factor's normal form, or None when it is normal."""
        if atom.kind == "at" and atom.name in self.env.zero_one and p.denominator == 1 and p > 1:
            return Poly.atom(atom)
        if atom.kind == "prime" and (p < 0 or p >= 1):
            whole = p.numerator // p.denominator
            return Poly.atom(atom, p - whole).scaled(Fraction(int(atom.name)) ** whole)
        if atom.kind not in ("pow", "fn"):
            return None
        parts = tuple(self.normal(x, inner, depth + 1) for x in atom.parts)
        if atom.kind == "pow":
            base = parts[0]
            if base.is_zero and p > 0:
                return Poly({})
            if base.is_zero:
                raise NotShown("a denominator vanishes in one of the cases")
            new = power(base, p, self.env, inner)
        else:
            value = function(atom.name, parts, self.env, inner)
            if value == Poly.atom(Atom("fn", atom.name, parts=parts)):
                new = Poly.atom(Atom("fn", atom.name, parts=parts), p)
            elif p.denominator == 1 and p > 0:
                new = value.power(int(p))
            else:
                new = power(self.normal(value, inner, depth + 1), p, self.env, inner)
        return None if canonical(new).key == canonical(Poly.atom(atom, p)).key else new

    def _zero_by_logarithms(self, form: Poly) -> bool:
        """Whether the terms cancel in pairs c A − d B with log(c A) = log(d B): products and powers of a factor that
        one term holds inside, and the other beside, as Π_{l<n} f_l and f_{n−1} Π_{l<n−1} f_l.

        Sound because log is injective on positive numbers; factors of unknown sign must be the same in both terms.
        """
        if len(form.terms) > _MOST_PAIRED or not any(m.argument for m, _ in form.terms):
            return False
        left = list(form.terms)
        while left:
            (a, c), *others = left
            match = next((t for t in others if c * t[1] < 0 and self._same_logarithm(a, c, *t)), None)
            if match is None:
                return False
            left = [t for t in others if t is not match]
        return True

    def _same_logarithm(self, a: Mono, c: Fraction, b: Mono, d: Fraction) -> bool:
        if a.binders or b.binders or (a.bounds, a.equations) != (b.bounds, b.equations):
            return False
        known = self.env.facts.given(a.bounds)
        quotient = merged((*a.factors, *((atom, -p) for atom, p in b.factors)))
        if any(p and atom_sign(atom, self.env, known) != POSITIVE for atom, p in quotient):
            return False
        difference = logarithm(Poly.const(abs(c / d)), self.env, known)
        for atom, p in quotient:
            inside = atom.parts[0] if atom.kind == "pow" else Poly.atom(atom)
            difference = difference + Poly.atom(Atom("fn", "log", parts=(inside,))).scaled(p)
        for argument, sign in ((a.argument, 1), (b.argument, -1)):
            difference = difference + (argument.scaled(sign) if argument else Poly({}))
        return self.normal(difference, known).is_zero

    def _zero_after_clearing(self, form: Poly, depth: int) -> bool:
        """Multiply by a denominator that is never zero, and look again: the rest of "common denominators"."""
        if depth >= 3 or len(form.terms) > _MOST_CLEARED:
            return False
        for atom in _denominators(form):
            if is_nonzero(atom.parts[0], self.env, self.env.facts):
                cleared = self.normal(_times_base(form, atom))
                if cleared.is_zero or (
                    len(cleared.key) < 4 * len(form.key) and self._zero_after_clearing(cleared, depth + 1)
                ):
                    return True
        return False


def _times_base(form: Poly, atom: Atom) -> Poly:
    """The sum times a power's base: a term that is divided by it loses one power, the others are multiplied out."""
    total: dict[Mono, Fraction] = {}
    for m, c in form.terms:
        if m.power_of(atom) < 0:
            factors = merged((*m.factors, (atom, Power(1))))
            product = Poly.mono(Mono(m.binders, m.bounds, m.equations, factors, m.argument))
        else:
            product = Poly.mono(m).times(atom.parts[0])
        for k, d in product.terms:
            total[k] = total.get(k, Fraction(0)) + c * d
    return Poly(total)


def _bases(form: Poly) -> list[Poly]:
    """What the terms of a sum are divided by, where it isn't a product."""
    found = {a.key: a.parts[0] for m, _ in form.terms for a, p in m.factors if a.kind == "pow" and p < 0}
    return [found[k] for k in sorted(found)]


def _denominators(form: Poly) -> Iterable[Atom]:
    """Sums in denominators that depend on no binder."""
    found: dict[str, Atom] = {}
    for m, _ in form.terms:
        for a, p in m.factors:
            if a.kind == "pow" and p < 0 and not a.free & set(m.binders):
                found[a.key] = a
    return [found[k] for k in sorted(found)]
