"""Terms: sums of products with bound indices, built so that a binder cannot capture.

A `Poly` is a sum of rational × `Mono`. A `Mono` is Σ over its binders of [bounds ≥ 0][equations = 0] · ∏ atom^power ·
exp(argument), where the sum runs over all integers and the brackets are 1 or 0. Ranges, triangular ranges, Kronecker
deltas and masks by index are all brackets, so exchanging sums needs no rule: the order of binders isn't stored.

Guarantees: the only two places where scopes meet, `substitute` and `times`, rename binders apart first. Equality of
terms is equality of their keys.
Does not: simplify; see `derive.normal`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property

from derive.index import Ix

_fresh = itertools.count()
Power = Fraction


def fresh() -> str:
    """A variable name never used before; '#' can't occur in a name that came from outside."""
    return f"#{next(_fresh)}"


class Atom:
    """A factor: an array entry, a variable's value, a prime, a power base, or a function of sums.

    kind: "at" (name, indices), "var" (name), "prime" (name is the digits), "pow" (one Poly, the base of a power that
    isn't expanded), "fn" (name, Polys).
    """

    __slots__ = ("__dict__", "indices", "key", "kind", "name", "parts")

    def __init__(self, kind: str, name: str = "", indices: tuple[Ix, ...] = (), parts: tuple[Poly, ...] = ()) -> None:
        self.kind, self.name, self.indices, self.parts = kind, name, indices, parts
        inner = ",".join([*(i.key for i in indices), *(p.key for p in parts)])
        self.key = f"{kind}:{name}[{inner}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key

    @cached_property
    def free(self) -> frozenset[str]:
        own = frozenset((self.name,)) if self.kind == "var" else frozenset()
        return own.union(*(i.free for i in self.indices), *(p.free for p in self.parts))


class Mono:
    """Σ_binders [bounds ≥ 0][equations = 0] ∏ atom^power · exp(argument), with coefficient 1."""

    __slots__ = ("__dict__", "argument", "binders", "bounds", "equations", "factors", "key")

    def __init__(
        self,
        binders: tuple[str, ...] = (),
        bounds: Iterable[Ix] = (),
        equations: Iterable[Ix] = (),
        factors: Iterable[tuple[Atom, Power]] = (),
        argument: Poly | None = None,
    ) -> None:
        self.binders = binders
        self.bounds = frozenset(bounds)
        self.equations = frozenset(equations)
        self.factors = tuple(sorted(((a, p) for a, p in factors if p), key=lambda f: f[0].key))
        self.argument = argument if argument is not None and argument.terms else None
        self.key: str = "|".join(
            [
                ",".join(binders),
                ",".join(sorted(b.key for b in self.bounds)),
                ",".join(sorted(e.key for e in self.equations)),
                " ".join(f"{a.key}^{p}" for a, p in self.factors),
                self.argument.key if self.argument else "",
            ]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mono) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Mono<{self.key}>"

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All variables at this level, bound or free."""
        parts = [x.free for x in itertools.chain(self.bounds, self.equations)] + [a.free for a, _ in self.factors]
        if self.argument:
            parts.append(self.argument.free)
        return frozenset(self.binders).union(*parts)

    @cached_property
    def free(self) -> frozenset[str]:
        return self.mentioned - frozenset(self.binders)

    @cached_property
    def body_variables(self) -> frozenset[str]:
        """Variables that occur outside bounds and equations."""
        parts = [a.free for a, _ in self.factors] + ([self.argument.free] if self.argument else [])
        return frozenset().union(*parts)

    def power_of(self, atom: Atom) -> Power:
        for a, p in self.factors:
            if a.key == atom.key:
                return p
        return Power(0)

    def renamed_apart(self, avoid: frozenset[str]) -> Mono:
        """The same term, none of whose binders is in `avoid`."""
        clash = [b for b in self.binders if b in avoid]
        if not clash:
            return self
        new = {b: fresh() for b in clash}
        values = {b: Ix.var(v) for b, v in new.items()}
        return self._mapped(tuple(new.get(b, b) for b in self.binders), values)

    def _mapped(self, binders: tuple[str, ...], values: Mapping[str, Ix]) -> Mono:
        """Variables replaced by variables throughout (so a product of atoms stays one)."""
        return Mono(
            binders,
            (b.substitute(values) for b in self.bounds),
            (e.substitute(values) for e in self.equations),
            merged((_atom_renamed(a, values), p) for a, p in self.factors),
            self.argument.substitute(values) if self.argument else None,
        )

    def renamed(self, names: Mapping[str, str]) -> Mono:
        """Binders renamed. The new names must be fresh or reserved for this level."""
        return self._mapped(tuple(names.get(b, b) for b in self.binders), {b: Ix.var(v) for b, v in names.items()})


class Poly:
    """A sum of coefficient × Mono; equal terms are collected."""

    __slots__ = ("__dict__", "key", "terms")

    def __init__(self, terms: Mapping[Mono, Fraction]) -> None:
        self.terms = tuple(sorted(((m, Fraction(c)) for m, c in terms.items() if c), key=lambda t: t[0].key))
        self.key: str = "(" + " + ".join(f"{c}<{m.key}>" for m, c in self.terms) + ")"

    @staticmethod
    def const(value: Fraction | int) -> Poly:
        return Poly({Mono(): Fraction(value)})

    @staticmethod
    def mono(mono: Mono, coefficient: Fraction | int = 1) -> Poly:
        return Poly({mono: Fraction(coefficient)})

    @staticmethod
    def atom(atom: Atom, power: Power | int = 1) -> Poly:
        return Poly({Mono(factors=((atom, Power(power)),)): Fraction(1)})

    @staticmethod
    def of_index(value: Ix) -> Poly:
        """An index expression as a value."""
        table: dict[Mono, Fraction] = {}
        for m, c in value.terms:
            counts = {v: m.count(v) for v in m}
            mono = Mono(factors=((Atom("var", v), Power(k)) for v, k in counts.items()))
            table[mono] = Fraction(c)
        return Poly(table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Poly{self.key}"

    @cached_property
    def free(self) -> frozenset[str]:
        return frozenset().union(*(m.free for m, _ in self.terms))

    @property
    def is_zero(self) -> bool:
        return not self.terms

    def constant(self) -> Fraction | None:
        """The value, if the sum is a plain rational."""
        if not self.terms:
            return Fraction(0)
        if len(self.terms) == 1 and self.terms[0][0].key == _ONE.key:
            return self.terms[0][1]
        return None

    def __add__(self, other: Poly) -> Poly:
        table = dict(self.terms)
        for m, c in other.terms:
            table[m] = table.get(m, Fraction(0)) + c
        return Poly(table)

    def scaled(self, factor: Fraction | int) -> Poly:
        return Poly({m: c * factor for m, c in self.terms})

    def __neg__(self) -> Poly:
        return self.scaled(-1)

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def times(self, other: Poly) -> Poly:
        table: dict[Mono, Fraction] = {}
        for a, c in self.terms:
            for b, d in other.terms:
                product = times(a, b)
                table[product] = table.get(product, Fraction(0)) + c * d
        return Poly(table)

    def power(self, exponent: int) -> Poly:
        """A non-negative integer power, multiplied out; each copy gets binders of its own."""
        result = Poly.const(1)
        for _ in range(exponent):
            result = result.times(self)
        return result

    def summed(self, binder: str, bounds: Iterable[Ix]) -> Poly:
        """Σ over `binder` of [bounds ≥ 0] · self. The binder must be a fresh name."""
        limits = tuple(bounds)
        table: dict[Mono, Fraction] = {}
        for m, c in self.terms:
            whole = Mono((*m.binders, binder), m.bounds | frozenset(limits), m.equations, m.factors, m.argument)
            table[whole] = table.get(whole, Fraction(0)) + c
        return Poly(table)

    def where(self, bounds: Iterable[Ix] = (), equations: Iterable[Ix] = ()) -> Poly:
        """[bounds ≥ 0][equations = 0] · self; the brackets' variables must not be binders of self."""
        return self.times(Poly.mono(Mono((), bounds, equations)))

    def substitute(self, values: Mapping[str, Ix]) -> Poly:
        """Free variables replaced by index expressions, capture avoided."""
        if not (self.free & values.keys()):
            return self
        result: dict[Mono, Fraction] = {}
        for m, c in self.terms:
            for k, d in substitute(m, values).terms:
                result[k] = result.get(k, Fraction(0)) + c * d
        return Poly(result)


_ONE = Mono()


def merged(factors: Iterable[tuple[Atom, Power]]) -> list[tuple[Atom, Power]]:
    """Equal atoms' powers added: x^a x^b = x^(a+b) wherever both sides of a statement are defined."""
    table: dict[Atom, Power] = {}
    for a, p in factors:
        table[a] = table.get(a, Power(0)) + p
    return list(table.items())


def times(a: Mono, b: Mono) -> Mono:
    """The product of two terms, their binders renamed apart."""
    a = a.renamed_apart(b.mentioned)
    b = b.renamed_apart(a.mentioned)
    if a.argument and b.argument:
        argument: Poly | None = a.argument + b.argument
    else:
        argument = a.argument or b.argument
    return Mono(
        a.binders + b.binders,
        a.bounds | b.bounds,
        a.equations | b.equations,
        merged((*a.factors, *b.factors)),
        argument,
    )


def _atom_renamed(atom: Atom, values: Mapping[str, Ix]) -> Atom:
    if not (atom.free & values.keys()):
        return atom
    name = atom.name
    if atom.kind == "var":
        variable = values[name].as_variable()
        assert variable is not None, "only a variable may replace a variable here"
        name = variable
    return Atom(
        atom.kind,
        name,
        tuple(i.substitute(values) for i in atom.indices),
        tuple(p.substitute(values) for p in atom.parts),
    )


def substitute(mono: Mono, values: Mapping[str, Ix]) -> Poly:
    """Free variables of one term replaced by index expressions, capture avoided: binders that occur in a new value are
    renamed first. The result is a sum, since a variable's value may become one."""
    active = {v: x for v, x in values.items() if v in mono.free}
    if not active:
        return Poly.mono(mono)
    incoming = frozenset().union(*(x.free for x in active.values()))
    mono = mono.renamed_apart(incoming | frozenset(active))
    kept: list[tuple[Atom, Power]] = []
    expanded = Poly.const(1)
    for a, p in mono.factors:
        if a.kind == "var" and a.name in active:
            value = Poly.of_index(active[a.name])
            if p.denominator == 1 and p > 0:
                expanded = expanded.times(value.power(int(p)))
            else:
                kept.append((Atom("pow", parts=(value,)), p))
        else:
            kept.append((_atom_renamed(a, active), p))
    rest = Mono(
        (),
        (b.substitute(active) for b in mono.bounds),
        (e.substitute(active) for e in mono.equations),
        merged(kept),
        mono.argument.substitute(active) if mono.argument else None,
    )
    table: dict[Mono, Fraction] = {}
    for m, c in expanded.terms:  # expanded has no binders: it is a polynomial in variables
        product = times(m, rest)
        whole = Mono(mono.binders, product.bounds, product.equations, product.factors, product.argument)
        table[whole] = table.get(whole, Fraction(0)) + c
    return Poly(table)


def wrap(frame: Mono, binders: tuple[str, ...], product: Poly) -> Poly:
    """Σ_binders frame · product, where both may mention the binders."""
    table: dict[Mono, Fraction] = {}
    clash = frame.mentioned | frozenset(binders)
    for m, c in product.terms:
        apart = m.renamed_apart(clash)
        whole = times(frame, apart)
        closed = Mono((*whole.binders, *binders), whole.bounds, whole.equations, whole.factors, whole.argument)
        table[closed] = table.get(closed, Fraction(0)) + c
    return Poly(table)
