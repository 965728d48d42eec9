"""Judging an equality with two checkers that share no code.

Guarantees: `Proved` means that the normal form of lhs − rhs is empty for all sizes, and that exact arithmetic modulo a
prime agrees at drawn sizes. A normal form that is empty where the arithmetic disagrees is a fault of this program and
raises CheckersDisagree. `Refuted` always carries a witness over the reals.
Does not: say "false" for what it can't show; that is `ExactAtSizes` or `Unknown`, with the reason.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from derive import arguments, intervals, modular
from derive.assumptions import Distinct, InRange
from derive.at_sizes import show
from derive.errors import CheckersDisagree, DeriveError, StatementError
from derive.importer import Importer, Unestablished
from derive.language import Diff
from derive.normal import NotShown
from derive.rules import rule
from derive.step import Relation, Step
from derive.verdict import Verdict
from derive.witness_words import brief


@dataclass(frozen=True)
class FirstAnswer:
    """What the normal form came to. zero: lhs − rhs is 0 for all sizes. reason: why not, if it is not."""

    zero: bool
    reason: str = ""
    missing: bool = False


def first_checker(lhs: Any, rhs: Any, assumptions: Iterable[Any] = (), *, opaque: Iterable[str] = ()) -> FirstAnswer:
    """The all-sizes normal form of lhs − rhs. Raises StatementError for a statement that can't be read.

    opaque: names of defined arrays to keep as they are; a softmax among them is differentiated by its lemma.
    """
    try:
        importer = Importer(assumptions, opaque, (lhs, rhs))
        left, right = importer.statement(lhs), importer.statement(rhs)
        zero = importer.normaliser.is_zero(left - right)
    except Unestablished as missing:
        return FirstAnswer(False, str(missing), missing=True)
    except NotShown as limit:
        return FirstAnswer(False, str(limit))
    if zero:
        return FirstAnswer(True)
    if importer.normaliser.blocked:
        return FirstAnswer(
            False,
            "a denominator would have to be non-zero, and the assumptions don't say so: state AtLeast(n, 1) for the "
            "sizes of the rows it sums over, or Positive(denominator)",
            missing=True,
        )
    return FirstAnswer(False, "the normal form of the difference is not empty")


def prove(
    lhs: Any,
    rhs: Any,
    assumptions: Iterable[Any] = (),
    relation: Relation = "=",
    *,
    opaque: Iterable[str] = (),
) -> Verdict:
    """Prove a statement of your own: lhs relation rhs, in SymPy, under side conditions from `derive.assumptions`.

    Returns Proved (both checkers pass), Refuted (with a witness over the reals), ExactAtSizes (true at all drawn
    sizes, not shown for all) or Unknown. Relations other than "=" can be refuted here; to prove one, write its steps
    with the rules of `derive.rules`. A `Product`, or a power with sizes and indices in its exponent, is proved where
    its factors or its base are shown to be positive. opaque: names of defined arrays to keep as they are.

    exp, sqrt, log and the other functions are SymPy's (`from sympy import exp, sqrt`). SymPy cancels as it builds an
    expression: exp(log(a)), (n − 1)/(n − 1) and 1/(1/a) arrive here as a, 1 and a, so what such a form needs (a > 0,
    n ≠ 1, a ≠ 0) is not asked for.

    The text of a Refuted names sizes and values where the sides differ, and both values there, lhs first.

    Raises StatementError for what can't be read, for an argument of the wrong kind, and for an assumption in words,
    which no checker reads: a claim may carry words, but they prove nothing and leave nothing refuted. Raises
    CheckersDisagree when the two checkers contradict each other.

    >>> from derive.language import array, index, size, total
    >>> n = size("n")
    >>> x, i, j = array("x", n), index("i"), index("j")
    >>> first_checker(total(x[i], i, n) ** 2, total(total(x[i] * x[j], i, n), j, n)).zero
    True
    """
    sides = arguments.expression(lhs, "lhs"), arguments.expression(rhs, "rhs")
    arguments.known_relation(relation)
    names = arguments.array_names(opaque)
    return decide(*sides, arguments.conditions(assumptions), relation, opaque=names)


def decide(
    lhs: Any, rhs: Any, assumptions: Sequence[Any], relation: Relation = "=", *, opaque: Sequence[str] = ()
) -> Verdict:
    """`prove` for rules, whose steps may carry conditions in words: these prove nothing and leave nothing refuted."""
    lhs, rhs = arguments.expression(lhs, "lhs"), arguments.expression(rhs, "rhs")
    conditions = tuple(assumptions)
    if relation != "=":
        return _only_refute(lhs, rhs, relation, conditions)
    first = first_checker(lhs, rhs, conditions, opaque=opaque)
    if first.missing:
        return refuted(lhs, rhs, "=", conditions) or Verdict.unknown(first.reason)
    return _combine(first, lhs, rhs, conditions)


def _combine(first: FirstAnswer, lhs: Any, rhs: Any, conditions: tuple[Any, ...]) -> Verdict:
    if not first.zero:
        false = refuted(lhs, rhs, "=", conditions)
        if false is not None:
            return false
    try:
        second = second_checker(lhs, rhs, conditions)
    except modular.Outside as outside:
        if first.zero:
            return Verdict.unknown(
                f"the normal form agrees, and the second checker can't read the statement: {outside}"
            )
        return Verdict.unknown(first.reason)
    if first.zero and not second.agrees:
        raise CheckersDisagree(
            f"the normal form says that {lhs} = {rhs} for all sizes, and arithmetic modulo a prime says no at "
            f"{second.witness}: this is a fault of attnproof; please report it with the statement"
        )
    if first.zero:
        return proved_twice("normal form", second)
    if second.agreed_at:
        words = _draws(second.agreed_at) + ("" if second.sizes else ", without a bound on the error")
        return Verdict.exact_at_sizes(f"{words}; not shown for all", **agreement(second))
    return Verdict.unknown(first.reason)


def proved_twice(name: str, second: modular.ModularResult) -> Verdict:
    """Proved for all sizes by the argument `name`, where the second checker agreed at one instance at least."""
    if not second.agreed_at:
        return Verdict.unknown(f"{name} shows it, and the second checker compared the sides at no instance")
    return Verdict.proved("all sizes", checkers=(name, "modular"), **agreement(second))


def agreement(second: modular.ModularResult) -> dict[str, object]:
    """What the second checker saw, as evidence: the instances at which it agreed, and what is known of the chance.

    sizes: instances of which error_probability bounds the chance that a false equality passes; both are absent where
    no instance has a bound. sizes_without_bound: the others. second_checker: both in words.
    """
    evidence: dict[str, object] = {}
    without = tuple(one for one in second.agreed_at if one not in second.sizes)
    chances = []
    if second.sizes:
        evidence |= {"sizes": second.sizes, "error_probability": second.error_probability}
        chance = Context(prec=1, rounding=ROUND_CEILING).create_decimal(second.error_probability)
        chances.append(f"a false equality passes with a chance of at most {chance:g}")
    if without:
        evidence["sizes_without_bound"] = without
        chances.append("no bound on the chance" + (f" for {len(without)} more" if second.sizes else ""))
    words = f"agrees {_draws(second.sizes or without)}: {'; '.join(chances)}"
    return {**evidence, "second_checker": words}


def _draws(sizes: Sequence[Mapping[str, int]]) -> str:
    """The sizes that were drawn, in words; the first two in full."""
    named = list(dict.fromkeys(show(one) for one in sizes if one))
    if not named:
        return "at drawn values"
    more = f" and {len(named) - 2} more" if len(named) > 2 else ""
    return f"at drawn sizes ({'; '.join(named[:2])}{more})"


def second_checker(lhs: Any, rhs: Any, assumptions: Iterable[Any] = ()) -> modular.ModularResult:
    """Exact arithmetic modulo a prime at drawn sizes, and at every way in which free indices of one range can coincide.

    A case that only some coincidence reaches (a delta, a branch of a Piecewise) is met for certain, and not by luck.
    """
    conditions = tuple(assumptions)
    result = modular.check(lhs, rhs, conditions)
    for pattern in coincidences(lhs, rhs, conditions):
        if not result.agrees:
            break
        try:
            more = modular.check(lhs, rhs, (*pattern, *conditions), draws=2)
        except StatementError:
            continue  # the conditions exclude this pattern, or leave no size for it
        result = _both(result, more)
    return result


def _both(one: modular.ModularResult, more: modular.ModularResult) -> modular.ModularResult:
    """Two runs as one: what was seen by either. An instance with a bound in either has one, at most the sum of both."""
    sizes = (*one.sizes, *(x for x in more.sizes if x not in one.sizes))
    unbounded = dict.fromkeys(tuple(sorted(x.items())) for x in (*one.unbounded, *more.unbounded))
    return dataclasses.replace(
        more,
        error_probability=sum(x.error_probability for x in (one, more) if x.sizes) if sizes else 1.0,
        sizes=sizes,
        unbounded=tuple(dict(x) for x in unbounded),
        uninterpreted=tuple(sorted({*one.uninterpreted, *more.uninterpreted})),
    )


def coincidences(lhs: Any, rhs: Any, assumptions: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Conditions that make free indices of one range equal or different in each possible way."""
    free = lhs.free_symbols | rhs.free_symbols
    groups: dict[tuple[Any, Any], list[InRange]] = {}
    for a in assumptions:
        if isinstance(a, InRange) and a.index in free:
            groups.setdefault((a.lower, a.upper), []).append(a)
    patterns: list[tuple[Any, ...]] = []
    for group in groups.values():
        if not 2 <= len(group) <= 4:
            continue
        for blocks in _partitions([a.index for a in group]):
            conditions: list[Any] = [InRange(block[0], group[0].lower, group[0].upper) for block in blocks]
            conditions += [InRange(x, block[0], block[0]) for block in blocks for x in block[1:]]
            conditions += [Distinct(x[0], y[0]) for x, y in itertools.combinations(blocks, 2)]
            patterns.append(tuple(conditions))
    return patterns


def _partitions(items: list[Any]) -> Iterator[list[list[Any]]]:
    if not items:
        yield []
        return
    head, *rest = items
    for blocks in _partitions(rest):
        yield [[head], *blocks]
        for k, block in enumerate(blocks):
            yield [*blocks[:k], [head, *block], *blocks[k + 1 :]]


def _only_refute(lhs: Any, rhs: Any, relation: Relation, conditions: tuple[Any, ...]) -> Verdict:
    reason = f"no single rule proves a statement with {relation!r}: write its steps with the rules of derive.rules"
    return refuted(lhs, rhs, relation, conditions) or Verdict.unknown(reason)


def refuted(lhs: Any, rhs: Any, relation: Relation, conditions: tuple[Any, ...]) -> Verdict | None:
    """Refuted at a drawn instance that meets every condition, with the witness; None where none was found."""
    try:
        witness = intervals.refute(lhs, rhs, relation, conditions)
    except StatementError:
        return None  # intervals can't evaluate it; that decides nothing
    if witness is None:
        return None
    return Verdict.refuted(brief(witness.sizes, witness.values, witness.lhs, witness.rhs), witness=witness)


@rule("normal-form")
def normal_form(step: Step) -> Verdict:
    """Equality for all sizes: the normal form of lhs − rhs is empty, and exact arithmetic modulo a prime agrees.

    Sound because each rewriting of the normal form keeps the value, and it uses nothing but the step's assumptions.
    Needs: relation "=". data["opaque"] names defined arrays to keep as they are; a softmax among them is then
    differentiated by the lemma "softmax.jacobian", which the step must name as a premise.
    """
    if step.relation != "=":
        return Verdict.unknown("the normal form decides equalities only")
    opaque = tuple(step.data.get("opaque", ()))
    if opaque and "softmax.jacobian" not in step.premises and _differentiates(step):
        raise DeriveError("a step that differentiates an opaque softmax must name the premise softmax.jacobian")
    return decide(step.lhs, step.rhs, step.assumptions, opaque=opaque)


def _differentiates(step: Step) -> bool:
    return bool(step.lhs.has(Diff) or step.rhs.has(Diff))
