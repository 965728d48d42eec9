"""Limits: a named rule that reduces them to equalities that both checkers prove.

Guarantees: a limit is taken only through the laws listed in `limit_of`, after the expression was proved equal to a form
in which those laws apply.
Does not: find the form, or take a limit under a sum whose range grows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from derive.inequalities import Context, Sign, positive_denominators, read, sign, vacuous_indices
from derive.instances import free_symbols
from derive.prover import decide
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict, weakest


def limit_of(expr: Any, variable: Any, point: Any, context: Context) -> Any:
    """The limit of expr as variable → point by the laws of limits, or None where they don't settle it.

    Laws: sums (over a range that doesn't move), products and integer powers of finite limits; quotients whose
    denominator tends to something positive; continuity of exp and tanh, and of log at a positive number; at ∞:
    exp(a − bx) → 0 and tanh(bx) → 1 for b > 0, and 1/x → 0.
    """
    if variable not in free_symbols(expr):
        return expr
    if expr == variable:
        return None if point in (sympy.oo, -sympy.oo) else point
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        parts = [limit_of(a, variable, point, context) for a in expr.args]
        return None if any(p is None for p in parts) else expr.func(*parts)
    if isinstance(expr, sympy.Sum):
        if any(variable in free_symbols(e) for _, *ends in expr.limits for e in ends):
            return None
        inner = context.given(*(tuple(limit) for limit in reversed(expr.limits)))
        body = limit_of(expr.function, variable, point, inner)
        return None if body is None else sympy.Sum(body, *expr.limits)
    if isinstance(expr, (sympy.exp, sympy.tanh)):
        return _saturating(expr, variable, point, context)
    if isinstance(expr, sympy.log):
        inside = limit_of(expr.args[0], variable, point, context)
        return sympy.log(inside) if inside is not None and sign(inside, context) is Sign.POSITIVE else None
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer:
        if expr == 1 / variable and point is sympy.oo:
            return sympy.Integer(0)
        inside = limit_of(expr.base, variable, point, context)
        if inside is None or (expr.exp < 0 and sign(inside, context) is not Sign.POSITIVE):
            return None
        return inside**expr.exp
    return None


def _saturating(expr: Any, variable: Any, point: Any, context: Context) -> Any:
    argument = expr.args[0]
    if point is sympy.oo:
        collected = sympy.collect(sympy.expand(argument), variable, evaluate=False)
        slope = collected.get(variable)
        if slope is not None and set(collected) <= {variable, sympy.Integer(1)}:
            if isinstance(expr, sympy.exp) and _factored_sign(-slope, context) is Sign.POSITIVE:
                return sympy.Integer(0)
            if isinstance(expr, sympy.tanh) and _factored_sign(slope, context) is Sign.POSITIVE:
                return sympy.Integer(1)
    inside = limit_of(argument, variable, point, context)
    return None if inside is None else expr.func(inside)


def _factored_sign(expr: Any, context: Context) -> Sign:
    return max(sign(expr, context), sign(sympy.factor_terms(expr), context))


@rule("limit-laws")
def limit_laws(step: Step) -> Verdict:
    """lim f = rhs by the laws of limits (sums, products, quotients, continuity, exp(−bx) → 0).

    Sound because f is first proved equal to data["form"] (f itself unless given) for every value of the variable by
    both checkers, the laws of `limit_of` apply to that form one by one, and what they come to is proved equal to rhs.
    The step's lhs is a SymPy Limit.
    """
    if step.relation != "limit" or not isinstance(step.lhs, sympy.Limit):
        return Verdict.unknown("this rule takes the limit of a SymPy Limit")
    expr, variable, point = step.lhs.args[:3]
    form = read(step.data.get("form", expr))
    context = Context.of(step)
    if extra := vacuous_indices(context, form):
        return Verdict.unknown(f"the form needs {', '.join(sorted(map(str, extra)))}, which may have no value")
    context = replace(context, fixed=context.fixed | free_symbols(form))
    equal = decide(expr, form, (*step.assumptions, *positive_denominators(context, expr, form)))
    if not equal.is_proved:
        return Verdict.unknown(f"the form isn't shown to be equal: {equal}")
    value = limit_of(form, variable, point, context)
    if value is None:
        return Verdict.unknown("the laws of limits don't settle the form")
    return weakest([equal, decide(value, step.rhs, step.assumptions)])
