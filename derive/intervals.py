"""Refutation over the reals: rigorous interval evaluation of both sides at drawn sizes and values.

Guarantees: a `Witness` is a proof that the statement is false there. Entries are exact dyadic numbers that meet every
side condition; arithmetic rounds outwards at 120 bits; and a relation counts as violated only where the two intervals
settle it (disjoint for =, in the wrong order for ≤ and <). A draw where anything is undefined, outside its array or
not decided is passed over.
Does not: prove. Finding no witness says nothing, and `limit` and `rank` statements are not looked at.

>>> from derive.language import array, index, size, total
>>> from derive.assumptions import AtLeast
>>> n, j = size("n"), index("j")
>>> x = array("x", n)
>>> print(refute(total(x[j] ** 2, j, n), total(x[j], j, n) ** 2, "<=", (AtLeast(n, 2),)).relation)
<=
>>> refute(total(2 * x[j], j, n), 2 * total(x[j], j, n), "=") is None
True
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy

from derive.assumptions import Assumption, AtLeast, Distinct, Ordered, Positive, RandomEntries, ZeroOne
from derive.at_sizes import Evaluator, Unreadable, show
from derive.errors import StatementError
from derive.instances import Statement, free_symbols, instances, integer, label_of
from derive.interval_numbers import EULER_GAMMA, PI, Interval, Undefined


@dataclass(frozen=True)
class Witness:
    """Sizes and values at which the relation fails, with the intervals that show it (decimal, rounded outwards)."""

    relation: str
    sizes: Mapping[str, int]
    values: Mapping[str, str]
    lhs: tuple[str, str]
    rhs: tuple[str, str]
    seed: int = field(default=0, compare=False)

    def __str__(self) -> str:
        at = [show(self.sizes)] if self.sizes else []
        at += [f"{k} = {v}" for k, v in self.values.items()]
        sides = " and ".join(
            f"{name} lies in [{lo}, {hi}]" for name, (lo, hi) in (("lhs", self.lhs), ("rhs", self.rhs))
        )
        return f"not lhs {self.relation} rhs at {', '.join(at) or 'every point'}: {sides}"


def refute(
    lhs: Any,
    rhs: Any,
    relation: str = "=",
    assumptions: Sequence[Assumption] = (),
    *,
    seed: int = 20260801,
    draws: int | None = None,
) -> Witness | None:
    """A witness against `lhs relation rhs`, or None when `draws` draws hold none (60 for =, else 150).

    relation: "=", "<=" or "<"; of anything else nothing is refuted. Sizes run from the least that the assumptions
    allow (0 without an AtLeast) to 4 more. Raises StatementError for an unbound index.
    """
    if relation not in ("=", "<=", "<"):
        return None
    sides = (sympy.sympify(lhs, strict=True), sympy.sympify(rhs, strict=True))
    statement = Statement(sides, tuple(assumptions))
    statement.check_bound()
    rng = random.Random(f"intervals{seed}")
    drawn = _instances(statement, rng)
    for number in range(draws or (60 if relation == "=" else 150)):
        sizes = next(drawn, None)
        if sizes is None:
            return None
        reals = Reals(f"{seed}.{number}", number, statement)
        try:
            witness = _at(statement, relation, sizes, reals, seed)
        except Unreadable:
            return None
        except (Undefined, StatementError):
            continue
        if witness is not None:
            return witness
    return None


def _instances(statement: Statement, rng: random.Random) -> Any:
    """Sizes from the least allowed up: mostly tiny ones, where a counterexample is easiest to read."""
    many = len(statement.sizes) > 4  # the work grows with the product of the sizes
    pools = [range(3), range(3), range(4)] if many else [range(3), range(4), range(4), range(5), range(8)]
    streams = [instances(statement, rng, pool=pool, distinct=False) for pool in pools]
    while streams:
        for stream in list(streams):
            try:
                yield next(stream)
            except StatementError:
                streams.remove(stream)  # this pool holds no instance; a raised generator is spent


def _at(statement: Statement, relation: str, sizes: dict[Any, int], reals: Reals, seed: int) -> Witness | None:
    evaluator = Evaluator(statement, sizes, reals)
    for one in statement.assumptions:
        if not _surely(one, evaluator, sizes):
            return None
    left, right = (evaluator.value(side) for side in statement.expressions)
    violated = {
        "=": left.below(right) or right.below(left),
        "<=": right.below(left),
        "<": right.at_most(left),
    }[relation]
    if not violated:
        return None
    plain = {str(k): v for k, v in sizes.items() if k in statement.free_symbols or k in statement.counting}
    return Witness(relation, plain, reals.seen(), left.decimal(), right.decimal(), seed)


def _surely(one: Assumption, evaluator: Evaluator, sizes: Mapping[Any, int]) -> bool:
    """Whether a condition on values certainly holds at this draw; conditions on sizes hold already.

    A free index of the sides is that one index; any other ranged index of the condition stands for all its values.
    """
    if isinstance(one, Positive):
        return _everywhere([(one.expr, True)], evaluator, sizes)
    if isinstance(one, AtLeast):
        size = sympy.sympify(one.size, strict=True)
        return bool(size.is_integer) or _everywhere([(size - one.least, False)], evaluator, sizes)
    if isinstance(one, (str, RandomEntries)):
        return False  # what a draw is to be like is told in words, or by a law: it can't be seen to hold
    if isinstance(one, Ordered):
        low, middle, high = (sympy.sympify(e, strict=True) for e in (one.lower, one.middle, one.upper))
        ends = (low, middle, high)
        if all(s in sizes for e in ends for s in free_symbols(e)) and not any(e.has(sympy.Indexed) for e in ends):
            return True
        return _everywhere([(middle - low, False), (high - middle, False)], evaluator, sizes)
    return True


def _everywhere(conditions: list[tuple[Any, bool]], evaluator: Evaluator, sizes: Mapping[Any, int]) -> bool:
    """Whether every expression is ≥ 0 (> 0 where marked) for all its indices; one without a range is undecided."""
    statement = evaluator.statement
    ranged = {r.index: r for r in statement.ranges}
    fixed = set().union(*(free_symbols(side) for side in statement.expressions))
    apart = [a for a in statement.assumptions if isinstance(a, Distinct)]
    symbols = sorted(set().union(*(free_symbols(e) for e, _ in conditions)), key=str)
    if any(s.is_integer and s not in sizes for s in symbols):
        return False
    indices = [s for s in symbols if s in ranged and s not in fixed]
    ends = [(integer(ranged[s].lower, sizes), integer(ranged[s].upper, sizes)) for s in indices]
    for at in itertools.product(*(range(low, high + 1) for low, high in ends)):
        place = {**sizes, **dict(zip(indices, at, strict=True))}
        if all(integer(a.first, place) != integer(a.second, place) for a in apart):
            for expr, strict in conditions:
                value = evaluator.value_at(expr, place)
                if not (value.positive() if strict else value.nonnegative()):
                    return False
    return True


class Reals:
    """Interval arithmetic, and the exact values of one draw."""

    splits_logs = False

    def __init__(self, seed: str, style: int, statement: Statement) -> None:
        self.seed, self.style = seed, style
        self.zero_one = {label_of(a.array) for a in statement.assumptions if isinstance(a, ZeroOne)}
        self._drawn: dict[str, Fraction] = {}

    def seen(self) -> dict[str, str]:
        return {name: str(value) for name, value in sorted(self._drawn.items())}

    def lift(self, value: Fraction) -> Interval:
        return Interval.of(value)

    def entry(self, label: str, place: tuple[int, ...]) -> Any:
        name = f"{label}[{', '.join(map(str, place))}]"
        return self._value(name, bit=label in self.zero_one)

    def scalar(self, symbol: Any) -> Any:
        return self._value(str(symbol), positive=bool(symbol.is_positive))

    def _value(self, name: str, *, bit: bool = False, positive: bool = False) -> Any:
        if name not in self._drawn:
            digest = hashlib.blake2b(f"{self.seed}|{name}".encode(), digest_size=8).digest()
            at = int.from_bytes(digest, "big")
            if bit:
                value = Fraction(at % 2)
            else:
                choices = self._style(name.split("[")[0])
                value = choices[at % len(choices)]
                value = abs(value) + (Fraction(1, 2) if value == 0 else 0) if positive else value
            self._drawn[name] = value
        return self.lift(self._drawn[name])

    def _style(self, label: str) -> tuple[Fraction, ...]:
        """The numbers an array draws from: of its own, so that equal scores meet a vector of opposite signs, say."""
        shift = int.from_bytes(hashlib.blake2b(f"{self.seed}|{label}".encode(), digest_size=2).digest(), "big")
        return _STYLES[(self.style + shift % 2 * (shift // 2)) % len(_STYLES)]

    def constant(self, atom: Any) -> Interval:
        if atom is sympy.pi:
            return PI
        if atom is sympy.EulerGamma:
            return EULER_GAMMA
        raise Unreadable(f"{atom} has no interval here")

    def inverse(self, x: Interval) -> Interval:
        return x.inverse()

    def root(self, x: Interval, degree: int) -> Interval:
        return x.sqrt() if degree == 2 else (x.log() * Interval.of(Fraction(1, degree))).exp()

    def function(self, name: str, x: Interval) -> Interval:
        if name == "tanh":  # x stands once, so nothing is lost: tanh x = 1 − 2/(exp 2x + 1)
            two = Interval.of(Fraction(2))
            return Interval.of(Fraction(1)) + -(two * ((two * x).exp() + Interval.of(Fraction(1))).inverse())
        if name in ("exp", "log", "sin", "cos"):
            return getattr(x, name)()
        raise Unreadable(f"no interval for {name}")

    def absolute(self, x: Interval) -> Interval:
        return abs(x)


_STYLES: tuple[tuple[Fraction, ...], ...] = (
    tuple(Fraction(k) for k in (-1, 0, 1, 2)),
    tuple(Fraction(k, 8) for k in range(-20, 21)),
    tuple(Fraction(k) for k in (-1, 1)),
    tuple(Fraction(k, 16) for k in range(1, 48)),
    tuple(Fraction(k) for k in (0, 0, 1, -30)),
    (Fraction(0),),
    tuple(Fraction(k, 2) for k in range(-16, 17)),
)
