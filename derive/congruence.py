"""Rules that rewrite inside an expression: equals for equals, and a flat index as a pair.

Guarantees: what is put in place is proved equal by both checkers, at a place where no sum binds its indices; the
statement as a whole is evaluated modulo a prime at drawn sizes besides.
Does not: search for the place; the step names it.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive import modular
from derive.errors import CheckersDisagree, DeriveError
from derive.instances import free_symbols
from derive.language import Diff
from derive.prover import decide, proved_twice, refuted
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict


@rule("equals-for-equals")
def equals_for_equals(step: Step) -> Verdict:
    """lhs and rhs differ only in that data["old"] stands where data["new"] does, and old = new is proved.

    Sound because equal things may replace each other; the place lies outside every sum that binds an index of theirs,
    so nothing is captured.
    """
    if step.relation != "=":
        return Verdict.unknown("this rule shows equalities only")
    old, new = step.data.get("old"), step.data.get("new")
    if old is None or new is None:
        raise DeriveError("equals-for-equals needs data for old and new")
    if replaced(step.lhs, old, new) != step.rhs:
        return Verdict.unknown("the sides differ in something else than what is replaced")
    inner = decide(old, new, step.assumptions)
    if not inner.is_proved:
        reason = f"the replacement isn't shown: {inner}"
        return refuted(step.lhs, step.rhs, "=", step.assumptions) or Verdict.unknown(reason)
    return and_at_sizes(step, "equals for equals")


def replaced(expr: Any, old: Any, new: Any) -> Any:
    """expr with every occurrence of `old` replaced that no sum around it reaches into, and none inside a derivative:
    two expressions that agree for a mask of zeros and ones need not have equal derivatives."""
    if expr == old:
        return new
    if isinstance(expr, (sympy.Sum, sympy.Product)):
        bound = {limit[0] for limit in expr.limits}
        if bound & (free_symbols(old) | free_symbols(new)):
            return expr
        return expr.func(replaced(expr.function, old, new), *expr.limits)
    if isinstance(expr, (sympy.Indexed, Diff)) or not expr.args:
        return expr
    return expr.func(*(replaced(a, old, new) for a in expr.args))


@rule("flat-index")
def flat_index(step: Step) -> Verdict:
    """Σ_{u=0}^{hd−1} f(u) = Σ_{g=0}^{h−1} Σ_{c=0}^{d−1} f(g·d + c): every u below h·d is g·d + c in exactly one way.

    Sound by division with remainder: ⌊(gd + c)/d⌋ = g and (gd + c) mod d = c for 0 ≤ c < d. Needs d ≥ 1. The sums may
    stand inside equal expressions on both sides; there the bodies must match after that reading.
    """
    if step.relation != "=" or not isinstance(step.lhs, sympy.Sum) or not isinstance(step.rhs, sympy.Sum):
        return Verdict.unknown("this rule splits one sum into a double sum")
    inner_sum = step.rhs.function
    limits = step.rhs.limits
    if len(limits) == 2:
        (c, c_low, d_less), (g, g_low, h_less) = limits
        body = inner_sum
    else:
        return Verdict.unknown("the right side is not a double sum")
    if len(step.lhs.limits) != 1:
        return Verdict.unknown("the left side is not a single sum")
    u, low, high = step.lhs.limits[0]
    d, h = d_less + 1, h_less + 1
    if (low, c_low, g_low) != (0, 0, 0) or sympy.expand(high + 1 - h * d) != 0:
        return Verdict.unknown("the ranges are not 0 … h·d − 1 and 0 … h − 1, 0 … d − 1")
    if {u, c, g} & (free_symbols(d) | free_symbols(h)) or u in free_symbols(body) or c == g:
        return Verdict.unknown("a range depends on a bound index")
    if {c, g} & free_symbols(step.lhs.function):
        return Verdict.unknown("the single sum already uses a name of the pair")
    if _paired(step.lhs.function, u, g, c, d) != body:
        return Verdict.unknown("the bodies don't match with u = g·d + c")
    return and_at_sizes(step, "division with remainder")


def _paired(expr: Any, u: Any, g: Any, c: Any, d: Any) -> Any:
    """expr at u = g·d + c, with the quotient and the remainder by d read off."""
    if expr == sympy.floor(u / d):
        return g
    if expr == sympy.Mod(u, d):
        return c
    if expr == u:
        return g * d + c
    if isinstance(expr, sympy.Indexed):
        return expr.base[tuple(_paired(place, u, g, c, d) for place in expr.indices)]
    if isinstance(expr, sympy.Sum):
        bound = {limit[0] for limit in expr.limits}
        if bound & {u, g, c}:
            return None
        inner = _paired(expr.function, u, g, c, d)
        ends = [(b, _paired(lo, u, g, c, d), _paired(hi, u, g, c, d)) for b, lo, hi in expr.limits]
        return None if inner is None else sympy.Sum(inner, *ends)
    if not expr.args or u not in free_symbols(expr):
        return expr
    parts = [_paired(a, u, g, c, d) for a in expr.args]
    return None if any(p is None for p in parts) else expr.func(*parts)


def and_at_sizes(step: Step, name: str) -> Verdict:
    """Proved by the named argument, if the second checker agrees on the statement itself."""
    try:
        second = modular.check(step.lhs, step.rhs, step.assumptions)
    except modular.Outside as outside:
        return Verdict.unknown(f"the second checker can't read the statement: {outside}")
    if not second.agrees:
        raise CheckersDisagree(
            f"{name} gives {step.lhs} = {step.rhs}, arithmetic modulo a prime says no at {second.witness}"
        )
    return proved_twice(name, second)
