"""Rules that put a statement beside the exact oracle: never a proof, and always with the grid and the worst error.

Guarantees: `Numeric` from here names the grid, the worst point and how much of the stated error it used; a point that
breaks the statement refutes it and is the witness. Numbers come from `derive.oracle` (quadrature, about 1e-12), so
there is no statistical error.
Does not: prove anything beyond the points of the grid.

A step's data: grid, a sequence of {symbol name: number}; and for a limit the stated relative error, `error`, an
expression in the same symbols. "Worst" is the largest ratio of error found to error allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import wraps
from typing import Any

import sympy

from derive.errors import StatementError
from derive.row_nodes import LargeN, Taylor
from derive.row_numbers import numeric
from derive.rules import Rule, rule
from derive.step import Step
from derive.verdict import Kind, Verdict

EXACT = 1e-10  # relative agreement asked of two expressions that are said to be equal
_ORACLE = 1e-11  # relative error allowed to the oracle itself when a bound is compared


def guarded(check: Rule) -> Rule:
    """A rule that answers Unknown for sides it can't read as polynomials, instead of raising."""

    @wraps(check)
    def safely(step: Step) -> Verdict:
        try:
            return check(step)
        except (sympy.PolynomialError, sympy.CoercionFailed, StatementError) as error:
            return Verdict.unknown(f"a side can't be read by this rule: {error}")

    return safely


@rule("oracle-grid")
@guarded
def oracle_grid(step: Step) -> Verdict:
    """Both sides are evaluated at every point of the grid, means by the exact oracle.

    "=": relative difference at most 1e-10. "<=": lhs ≤ rhs. "limit": |lhs/rhs - 1| at most the stated error, which
    must itself be below 1 and fall along the grid's last ray.
    """
    grid = step.data.get("grid")
    if not grid:
        return Verdict.unknown("no grid: nothing would be compared")
    if step.relation == "limit":
        return grid_of_limit(step, grid)
    worst, where = -math.inf, None
    for point in grid:
        left, right = numeric(step.lhs, point), numeric(step.rhs, point)
        size = max(abs(left), abs(right), 1e-300)
        used = abs(left - right) / (EXACT * size) if step.relation == "=" else (left - right) / (_ORACLE * size)
        if not math.isfinite(used):
            return Verdict.unknown(f"a side is not a finite number at {_words(point)}", point=dict(point))
        if used > 1:
            return Verdict.refuted(f"the statement fails at {_words(point)}", point=dict(point), lhs=left, rhs=right)
        if used > worst:
            worst, where = used, point
    assert where is not None
    worst_error = worst * EXACT if step.relation == "=" else None
    return Verdict.numeric(
        f"{len(grid)} points against the oracle", points=len(grid), tolerance=EXACT, worst=worst_error, at=_words(where)
    )


def grid_of_limit(step: Step, grid: Any) -> Verdict:
    """The verdict of a limit on its grid: Numeric with the worst share of the stated error, or Refuted."""
    error = step.data.get("error")
    if error is None:
        return Verdict.unknown("a limit needs its stated error: data['error']")
    worst, where, largest = 0.0, None, 0.0
    for point in grid:
        found, allowed = law_error(exact_side(step.lhs), step.rhs, error, point)
        if not 0 < allowed < 1:
            return Verdict.unknown(f"the stated error is {allowed:.3g} at {_words(point)}: it says nothing there")
        if not math.isfinite(found):
            return Verdict.unknown(f"a side is not a finite number at {_words(point)}", point=dict(point))
        if abs(found) > allowed + _ORACLE:
            return Verdict.refuted(
                f"the law is off by {found:+.3g} at {_words(point)}, stated is {allowed:.3g}",
                point=dict(point),
                found=found,
                allowed=allowed,
            )
        largest = max(largest, abs(found))
        if abs(found) / allowed >= worst:
            worst, where = abs(found) / allowed, point
    assert where is not None
    return Verdict.numeric(
        f"{len(grid)} points against the oracle, each within the stated error",
        points=len(grid),
        worst=largest,
        tolerance=str(error),
        share_of_stated_error=worst,
        at=_words(where),
    )


def with_stated_error(step: Step, proved: Verdict) -> Verdict:
    """A proved limit, with what its stated error came to on the grid; refuted if the stated error is wrong."""
    grid = step.data.get("grid")
    if not grid or not proved.is_proved:
        return proved
    checked = grid_of_limit(step, grid)
    if checked.kind is not Kind.NUMERIC:
        return checked
    evidence = {**proved.evidence, "stated error (numeric)": dict(checked.evidence)}
    return Verdict.proved(f"{proved.scope}; its stated error is numeric, {checked.scope}", **evidence)


def exact_side(lhs: Any) -> Any:
    """What the law approximates: the left side, or the mean inside an expansion."""
    return lhs.args[0] if isinstance(lhs, (LargeN, Taylor)) else lhs


def law_error(exact: Any, law: Any, error: Any, point: Mapping[str, float]) -> tuple[float, float]:
    """(law/exact - 1, stated relative error) at one point."""
    value = numeric(exact, dict(point))
    if value == 0:
        raise StatementError(f"{exact} is 0 at {_words(point)}: a relative error means nothing there")
    return numeric(law, dict(point)) / value - 1, numeric(error, dict(point))


def _words(point: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in point.items())
