"""Rules for what attention does to a set of tokens, layer by layer, at initialisation.

Guarantees: each rule's docstring is the theorem it applies.
Does not: treat training, or tokens that are not exchangeable.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.oracle_rules import grid_of_limit, guarded
from derive.power_sums import N, V
from derive.refutation import at_points
from derive.row_nodes import RowMean, RowOverlap, p
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

RHO = sympy.Symbol("rho", nonnegative=True)
WEIGHT = sympy.Symbol("alpha_j", positive=True)  # the weight of one named key


@rule("exchangeable")
@guarded
def exchangeable(step: Step) -> Verdict:
    """I.i.d. scores have exchangeable weights, so E α_j^k is the same for every key j: E p_k / n, and E p_1 = 1.

    Nothing in the row knows where a key stands; only masks and positions do.
    """
    left = step.lhs.replace(
        lambda x: isinstance(x, RowMean) and x.args[0].has(WEIGHT), lambda x: _one_key(x.args[0], x.args[1], x.args[2])
    )
    if left.has(WEIGHT):
        return Verdict.unknown("expected means of powers of one weight, RowMean(alpha_j**k, n, v)")
    if sympy.expand((left - step.rhs) * N).is_zero:
        return Verdict.proved("every n ≥ 1, every key")
    return Verdict.unknown(f"exchangeability gives {left}, not {step.rhs}")


def _one_key(body: Any, n: Any, v: Any) -> Any:
    out = sympy.Integer(0)
    for (power,), coefficient in sympy.Poly(body, WEIGHT).terms():
        average = RowMean(p(power), n, v) / n if power > 1 else sympy.Integer(1) / n if power else sympy.Integer(1)
        out += coefficient * average
    return out


@rule("power-mean")
@guarded
def power_mean(step: Step) -> Verdict:
    """p_k ≥ n^(1-k) for n non-negative weights that sum to 1 (Jensen), so its mean is at least that."""
    if step.relation != "<=" or not isinstance(step.rhs, RowMean) or step.rhs.args[1:] != (N, V):
        return Verdict.unknown("expected n^(1-k) <= RowMean(p_k, n, v)")
    for k in range(2, 9):
        if step.rhs.args[0] == p(k) and sympy.expand(step.lhs - N ** (1 - k)).is_zero:
            return Verdict.proved("every n ≥ 1 and v")
    return Verdict.unknown("the bound is not n^(1-k)")


@rule("two-rows")
@guarded
def two_rows(step: Step) -> Verdict:
    """n E Σ_k α_k β_k → e^(ρv) as n → ∞ at fixed v.

    (1/n) Σ e^(x_k + x'_k) tends to e^(v + ρv), and (1/n) Z of each row to e^(v/2). The stated error is put beside the
    exact two-row oracle.
    """
    mean = RowOverlap(N, V, RHO)
    if step.relation != "limit" or step.lhs != N * mean:
        return Verdict.unknown("expected the limit of n RowOverlap(n, v, rho)")
    lead = step.rhs
    if not isinstance(lead, sympy.exp) or not sympy.expand(lead.args[0] - RHO * V).is_zero:
        if lead.has(N):
            return Verdict.unknown("the right side depends on n, which tends to infinity")
        half = sympy.Rational(1, 2)
        return at_points(sympy.exp(RHO * V), lead, [{RHO: half, V: 1}, {RHO: 0, V: 2}], "the limit is exp(rho v)")
    try:
        return grid_of_limit(step, step.data.get("grid") or ())
    except StatementError as error:
        return Verdict.unknown(str(error))
