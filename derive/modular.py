"""The second checker: exact evaluation of a SymPy statement modulo a safe prime, at drawn sizes.

Guarantees: reads the SymPy expressions themselves and shares no term, importer or rule with the first checker. If the
identity is false at one of `sizes`, it passes with at most `error_probability` (`derive.modular_bound` proves the
bound). Derivatives are exact (`derive.jets`), and exp(a + b) = exp(a)·exp(b) holds without tolerance. Up to four sizes
that count terms are pairwise distinct in every draw, unless the conditions leave no such draw; of more, each pair is
distinct in at least one draw.
Does not: prove anything for all sizes, meet an empty row or a zero denominator (sizes that count terms are ≥ 2), or
refute over the reals: a mismatch is a warning that one of two checkers is wrong. Exponentials inside exponentials,
absolute values and inequalities are `Outside`; log, tanh, sin and cos are known by their derivatives and little else
(`derive.modular_field`).

>>> from derive.language import array, index, size, total
>>> from derive.assumptions import AtLeast, InRange
>>> import sympy
>>> n, j, c = size("n"), index("j"), sympy.Symbol("c", real=True)
>>> x = array("x", n)
>>> shifted = total(sympy.exp(x[j] + c), j, n)
>>> check(shifted, sympy.exp(c) * total(sympy.exp(x[j]), j, n), (AtLeast(n),)).agrees
True
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from derive.assumptions import Assumption, ZeroOne
from derive.at_sizes import Evaluator, Unreadable, show
from derive.errors import StatementError
from derive.instances import Statement, instances, label_of, placements
from derive.modular_bound import Degree, Degrees, NoBound
from derive.modular_field import SMOOTH_PRIMES, Field, Outside, Undefined, exponential

__all__ = ["ModularResult", "Outside", "check"]

_ATTEMPTS = 40
_PLACES = 4
# Above this product of sizes a draw looks at fewer places of the free indices, and bounds the error at the first.
_COSTLY = 600
# A bound above this is not worth giving; the sizes are then listed as unbounded.
_WORTHLESS = 2.0**-20


@dataclass(frozen=True)
class ModularResult:
    """agrees: no draw told the sides apart. sizes: those for which the error probability holds, with the places of the
    free indices and the entries of arrays of zeros and ones.

    unbounded: sizes that were drawn too, and agreed, but for which no error bound is known; where `sizes` is empty,
    error_probability is 1.0 and says nothing. uninterpreted: functions that were only known by name and derivative.
    witness: the sizes and both residues of a mismatch, else None.
    """

    agrees: bool
    error_probability: float
    sizes: tuple[Mapping[str, int], ...]
    witness: Mapping[str, Any] | None = None
    unbounded: tuple[Mapping[str, int], ...] = ()
    uninterpreted: tuple[str, ...] = ()

    @property
    def agreed_at(self) -> tuple[Mapping[str, int], ...]:
        """Every instance at which the sides were the same: those with a bound first. Empty: nothing was compared."""
        if not self.agrees:
            return ()
        return (*self.sizes, *(one for one in self.unbounded if one not in self.sizes))


def check(
    lhs: Any, rhs: Any, assumptions: Sequence[Assumption] = (), *, draws: int = 4, seed: int = 20260801
) -> ModularResult:
    """Compare lhs and rhs modulo a prime at `draws` drawn sizes.

    Raises StatementError for a statement that can't be read (an unbound index, an entry outside its array, a range
    of negative length), and Outside for one that this checker has no arithmetic for.
    """
    try:
        return _check(lhs, rhs, tuple(assumptions), draws, seed)
    except Unreadable as error:
        raise Outside(str(error)) from error


def _check(lhs: Any, rhs: Any, assumptions: tuple[Assumption, ...], draws: int, seed: int) -> ModularResult:
    sides = (sympy.sympify(lhs, strict=True), sympy.sympify(rhs, strict=True))
    statement = Statement(sides, assumptions)
    powers = _powers(statement)
    drawn = _sizes(statement, random.Random(f"sizes{seed}"))
    errors: dict[tuple[tuple[str, int], ...], float] = {}
    unbounded: list[dict[str, int]] = []
    used: set[str] = set()
    alike = {frozenset(p) for p in itertools.combinations(_counting(statement), 2)}
    for number in itertools.count():
        if number >= draws and (not alike or number >= 4 * draws):
            break
        results = _one_draw(statement, drawn, powers, f"{seed}.{number}")
        alike = {pair for pair in alike if len({results[0][0][s] for s in pair}) == 1}
        for values, left, right, field, error in results:
            used |= field.used
            plain = {str(k): v for k, v in values.items()} | field.bits_drawn()
            if not _same(left, right, field):
                witness = {"sizes": plain, "lhs": left.v, "rhs": right.v, "seed": seed}
                return ModularResult(False, 0.0, (plain,), witness, uninterpreted=tuple(sorted(used)))
            key = tuple(sorted(plain.items()))
            if error is None or error > _WORTHLESS:
                if plain not in unbounded:
                    unbounded.append(plain)
            else:
                errors[key] = errors.get(key, 1.0) * error
    return ModularResult(
        agrees=True,
        error_probability=max(errors.values(), default=1.0),
        sizes=tuple(dict(key) for key in errors),
        unbounded=tuple(unbounded),
        uninterpreted=tuple(sorted(used)),
    )


def _one_draw(
    statement: Statement, drawn: Any, powers: Mapping[Any, int], seed: str
) -> list[tuple[dict[Any, int], Any, Any, Field, float | None]]:
    """One draw of sizes and values at which both sides are defined, at several places of the free indices: for each
    place the instance, both residues, the field, and the error bound if there is one.

    Whether a division by zero happens depends on the values drawn, so such a draw is repeated, first with other
    values at the same sizes (that keeps the bound valid), then at other sizes.
    """
    zero_one = frozenset(label_of(a.array) for a in statement.assumptions if isinstance(a, ZeroOne))
    for attempt in range(_ATTEMPTS):
        if attempt % 4 == 0:
            values = next(drawn)
            costly = _product([values[s] for s in _counting(statement)]) > _COSTLY
            places = placements(statement, values, random.Random(f"places{seed}"), 2 if costly else _PLACES)
            bits, errors = _bounds(statement, places[: 1 if costly else None], powers)
            errors += [None] * (len(places) - len(errors))
        field = Field(int.from_bytes(f"{seed}.{attempt}".encode(), "big"), bits, zero_one=zero_one, powers=powers)
        evaluator = Evaluator(statement, values, field)
        try:
            sides = [[evaluator.value_at(side, place) for side in statement.expressions] for place in places]
        except Undefined:
            continue
        return [
            (place, left, right, field, error)
            for place, (left, right), error in zip(places, sides, errors, strict=True)
        ]
    raise Outside(f"every draw met a division by zero or a missing root, the last at {show(values)}")


def _same(left: Any, right: Any, field: Field) -> bool:
    """Equal residues; or, where logs are involved, equal exponentials, exp being injective over the reals."""
    if left.v == right.v:
        return True
    if "log" not in field.used:
        return False
    exps = exponential(left, field.g), exponential(right, field.g)
    return exps[0] is not None and exps[0] == exps[1]


def _bounds(
    statement: Statement, places: Sequence[dict[Any, int]], powers: Mapping[Any, int]
) -> tuple[int, list[float | None]]:
    """Exponent bits for one draw, and the error bound at each placement of the free indices."""
    sizes = Degrees(powers)
    evaluator = Evaluator(statement, places[0], sizes)
    differences: list[Degree | None] = []
    for place in places:
        try:
            left, right = (evaluator.value_at(side, place) for side in statement.expressions)
            difference: Degree = left + -right
            if sizes.fresh and (left.logs or right.logs):
                # The exponentials may be what is compared, see _same.
                difference = sizes.function("exp", left) + -sizes.function("exp", right) + difference
            differences.append(difference)
        except NoBound:
            differences.append(None)
    try:
        bits = max((sizes.best_bits(d) for d in differences if d is not None), default=64)
        return bits, [None if d is None else sizes.bound(d, bits) for d in differences]
    except NoBound:
        return 64, [None] * len(places)


def _powers(statement: Statement) -> dict[Any, int]:
    """How often a root is taken of each scalar: it is drawn as that power."""
    powers: dict[Any, int] = {}
    for node in statement.nodes:
        if isinstance(node, sympy.Pow) and node.exp.is_Rational and node.exp.q > 1:
            for symbol in node.base.free_symbols & set(statement.scalars):
                if node.base == symbol:
                    powers[symbol] = int(sympy.ilcm(powers.get(symbol, 1), node.exp.q))
    return powers


def _counting(statement: Statement) -> list[Any]:
    return [s for s in statement.sizes if s in statement.counting]


def _sizes(statement: Statement, rng: random.Random) -> Any:
    """Instances: small sizes ≥ 2 where terms are counted, large smooth ones where only the value matters.

    Larger pools are used where a condition asks for more than a small pool offers.
    """
    counting = _counting(statement)
    few = len(counting) <= 4
    smooth = sorted({
        _product(c) for c in itertools.combinations_with_replacement((1, *SMOOTH_PRIMES), 3)
    } - {1})  # fmt: skip
    pools = {s: smooth for s in statement.sizes if s not in statement.counting}
    last: StatementError | None = None
    tops = (max(5, len(counting) + 2) if few else 4, 8, 12, 16)
    # Sizes that a condition forces to be equal can't be drawn apart.
    for distinct, top in [*((few, top) for top in tops), *((False, top) for top in tops if few)]:
        draws = instances(statement, rng, pool=range(2, top + 1), distinct=distinct, pools=pools)
        try:
            first = next(draws)
        except StatementError as error:
            last = error
            continue
        return itertools.chain([first], draws)
    assert last is not None
    raise last


def _product(factors: Sequence[int]) -> int:
    result = 1
    for f in factors:
        result *= f
    return result
