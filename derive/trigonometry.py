"""Angles: the addition theorems, as a rule that turns a statement in sums of angles into one that algebra decides.

Guarantees: only sin(a ± b), cos(a ± b), sin(k a) for whole k, oddness, evenness and cos² + sin² = 1 are used, and what
is left is proved by both checkers with sin and cos of the single angles as unknown functions.
Does not: know any other identity, or any value of sin and cos but those at 0.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.prover import decide
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict


@rule("angle-addition")
def angle_addition(step: Step) -> Verdict:
    """lhs = rhs after sin and cos of sums of angles are opened by the addition theorems and sin² becomes 1 − cos².

    Sound because these hold for all real angles; the opened statement is then proved by both checkers.
    """
    if step.relation != "=":
        return Verdict.unknown("this rule shows equalities only")
    return decide(opened(step.lhs), opened(step.rhs), step.assumptions)


def opened(expr: Any) -> Any:
    """expr with every sin and cos of a sum written in those of its terms, products expanded, and no sin² left."""
    if isinstance(expr, (sympy.Indexed, sympy.Symbol)) or not expr.args:
        return expr
    if isinstance(expr, (sympy.sin, sympy.cos)):
        sine, cosine = _of_sum(sympy.expand(expr.args[0]))
        return _without_squares(sine if isinstance(expr, sympy.sin) else cosine)
    if isinstance(expr, sympy.Sum):
        return sympy.Sum(opened(expr.function), *expr.limits)
    parts = [opened(a) for a in expr.args]
    return _without_squares(sympy.expand(expr.func(*parts)))


def _of_sum(angle: Any) -> tuple[Any, Any]:
    """(sin, cos) of a sum of angles, by the addition theorems, one term at a time."""
    sine, cosine = sympy.Integer(0), sympy.Integer(1)
    for term in sympy.Add.make_args(angle):
        factor, rest = term.as_coeff_Mul()
        times = abs(int(factor)) if factor.is_Integer else 1
        sign = -1 if factor.is_negative else 1
        single = rest if factor.is_Integer else abs(factor) * rest
        for _ in range(times):
            s, c = sign * sympy.sin(single), sympy.cos(single)
            sine, cosine = sympy.expand(sine * c + cosine * s), sympy.expand(cosine * c - sine * s)
    return sine, cosine


def _without_squares(expr: Any) -> Any:
    """sin^(2k + r) as (1 − cos²)^k sin^r, wherever it stands as a factor."""

    def reduce(power: Any) -> Any:
        angle, exponent = power.base.args[0], int(power.exp)
        return (1 - sympy.cos(angle) ** 2) ** (exponent // 2) * sympy.sin(angle) ** (exponent % 2)

    def is_square(node: Any) -> bool:
        return isinstance(node, sympy.Pow) and isinstance(node.base, sympy.sin) and node.exp.is_Integer and node.exp > 1

    if isinstance(expr, sympy.Sum) or not expr.args:
        return expr
    if is_square(expr):
        return sympy.expand(reduce(expr))
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        return sympy.expand(expr.func(*(_without_squares(a) for a in expr.args)))
    return expr
