"""Structural mutations of claims: what a slip of the pen, a wrong index or a capturing renaming makes of a statement.

`mutants` keeps only mutations that interval arithmetic confirmed to be false, so a checker that accepts one is wrong.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import sympy
from sympy.functions.elementary.piecewise import ExprCondPair

from derive.assumptions import Assumption, Defined
from derive.catalogue import Claim
from derive.errors import StatementError
from derive.inequalities import Context
from derive.intervals import refute
from derive.language import Diff
from derive.limits import limit_of
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Verdict


def _machine(step: Step) -> tuple[Assumption, ...]:
    """A step's conditions without those in words, under which nothing can be refuted."""
    return tuple(a for a in step.assumptions if not isinstance(a, str))


def mutated_steps(claim: Claim, count: int, seed: int = 0, where: str = "") -> list[tuple[str, Step]]:
    """Up to `count` false variants of the claim's statement, as its last step with one side mutated.

    For a bound the certificate is mutated as well: a wrong certificate is a wrong proof. where: "rhs", say, to mutate
    that side alone.
    """
    last = claim.steps[-1]
    rng = random.Random(f"{claim.id} {seed}")
    found: list[tuple[str, Step]] = []
    seen: set[Any] = set()
    candidates = [one for one in _candidates(last) if one[0].startswith(where)]
    rng.shuffle(candidates)
    for name, step in candidates:
        if len(found) >= count:
            break
        key = (step.lhs, step.rhs, tuple(sorted((k, str(v)) for k, v in step.data.items())))
        if key not in seen and _is_false(step, name):
            seen.add(key)
            found.append((name, step))
    return found


def verdict_on(step: Step) -> Verdict:
    """The rule's verdict; a statement that can't be read is refused by an error, here shown as Unknown."""
    try:
        return check_step(step)
    except StatementError as error:
        return Verdict.unknown(f"refused: {error}")


def _candidates(step: Step) -> Iterator[tuple[str, Step]]:
    names = _index_names(step)
    for side in ("rhs", "lhs"):
        before = getattr(step, side)
        if isinstance(before, sympy.Limit):
            continue
        for name, after in _mutations(before, names):
            if after != before:
                yield f"{side}: {name}", dataclasses.replace(step, **{side: after})
    for number, definition in enumerate(step.assumptions):
        if isinstance(definition, Defined):
            for name, after in _mutations(definition.body, names):
                if after != definition.body:
                    changed = dataclasses.replace(definition, body=after)
                    assumptions = (*step.assumptions[:number], changed, *step.assumptions[number + 1 :])
                    yield (
                        f"definition of {definition.array}: {name}",
                        dataclasses.replace(step, assumptions=assumptions),
                    )
    for shift in (-2, -1, sympy.Rational(-1, 2), 1):
        yield f"rhs: {shift} added", dataclasses.replace(step, rhs=step.rhs + shift)
        yield f"rhs: {shift} times", dataclasses.replace(step, rhs=2 * shift * step.rhs)
    for what in ("certificate", "form"):
        if isinstance(step.data.get(what), sympy.Basic):
            for name, after in _mutations(step.data[what], names):
                if after != step.data[what]:
                    yield f"{what}: {name}", dataclasses.replace(step, data={**step.data, what: after})


def _draws(step: Step) -> int:
    """How long to look for a witness: less where one evaluation costs much."""
    return 40 if step.lhs.count_ops() + step.rhs.count_ops() < 80 else 10


def _is_false(step: Step, name: str) -> bool:
    try:
        if name.startswith("certificate"):
            return (
                refute(step.rhs - step.lhs, step.data["certificate"], "=", _machine(step), draws=_draws(step))
                is not None
            )
        if name.startswith("form"):
            return refute(step.lhs.args[0], step.data["form"], "=", _machine(step), draws=40) is not None
        if step.relation == "limit":
            expr, variable, point = step.lhs.args[:3]
            value = limit_of(step.data.get("form", expr), variable, point, Context.of(step))
            return value is not None and refute(value, step.rhs, "=", _machine(step), draws=_draws(step)) is not None
        return refute(step.lhs, step.rhs, step.relation, _machine(step), draws=_draws(step)) is not None
    except StatementError:
        return False


def _index_names(step: Step) -> list[Any]:
    """All index symbols of the statement, bound or free: the stock for wrong and captured indices."""
    found: set[Any] = set()
    for side in (step.lhs, step.rhs, *(a.body for a in step.assumptions if isinstance(a, Defined))):
        for node in sympy.preorder_traversal(side):
            if isinstance(node, sympy.Indexed):
                for place in node.indices:
                    found |= {s for s in place.free_symbols if s.is_integer and not s.is_nonnegative}
    return sorted(found, key=str)


def _mutations(expr: Any, names: list[Any]) -> Iterator[tuple[str, Any]]:
    """Every expression that differs from expr by one mutation at one place."""
    if isinstance(expr, ExprCondPair):
        for name, after in _mutations(expr.expr, names):
            yield name, (after, expr.cond)
        return
    yield from _here(expr, names)
    if isinstance(expr, sympy.Indexed) or not expr.args:
        return
    for at, argument in enumerate(expr.args):
        if isinstance(expr, (sympy.Sum, sympy.Product, sympy.Piecewise)) and at > 0:
            continue
        for name, after in _mutations(argument, names):
            args = list(expr.args)
            args[at] = after
            if isinstance(expr, Diff) and at == 1 and not isinstance(after, sympy.Indexed):
                continue
            try:
                yield name, expr.func(*args)
            except (ValueError, TypeError):
                continue  # SymPy refuses to build it


def _here(expr: Any, names: list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(expr, sympy.Indexed):
        for at, place in enumerate(expr.indices):
            for new in names:
                if new != place:
                    yield "wrong index", expr.base[(*expr.indices[:at], new, *expr.indices[at + 1 :])]
        if len(expr.indices) == 2:
            yield "transposed", expr.base[tuple(reversed(expr.indices))]
        yield "squared", expr**2
    elif isinstance(expr, sympy.KroneckerDelta):
        yield "delta dropped", sympy.Integer(1)
        yield "delta negated", -expr
    elif isinstance(expr, sympy.Add):
        for at, term in enumerate(expr.args):
            rest = [a for k, a in enumerate(expr.args) if k != at]
            yield "sign of a term", sympy.Add(*rest, -term)
            yield "term dropped", sympy.Add(*rest)
            yield "term doubled", sympy.Add(*rest, 2 * term)
    elif isinstance(expr, sympy.Pow):
        yield "power dropped", expr.base
        yield "power inverted", expr.base ** (-expr.exp)
        yield "power raised", expr * expr.base
    elif isinstance(expr, sympy.exp):
        yield "exponent negated", sympy.exp(-expr.args[0])
        yield "exponent doubled", sympy.exp(2 * expr.args[0])
    elif isinstance(expr, (sympy.Sum, sympy.Product)):
        (j, low, high), *rest = expr.limits
        yield "last term dropped", expr.func(expr.function, (j, low, high - 1), *rest)
        yield "first term dropped", expr.func(expr.function, (j, low + 1, high), *rest)
        for new in names:
            if new != j and new in expr.function.free_symbols:
                yield "captured index", expr.func(expr.function.xreplace({j: new}), (new, low, high), *rest)
    elif expr.is_Symbol and not expr.is_integer:
        yield "scalar negated", -expr
        yield "scalar doubled", 2 * expr
    elif expr.is_Symbol and expr.is_nonnegative:
        yield "size plus one", expr + 1
    if expr.is_Number:
        yield "number plus one", expr + 1
        yield "number minus one", expr - 1
        yield "number doubled", 2 * expr
        yield "number minus a half", expr - sympy.Rational(1, 2)
    elif not expr.is_Symbol:
        yield "negated", -expr
        yield "doubled", 2 * expr
