"""Rules that turn an equality into a bound: a sum of non-negative terms, and a rank from a factorisation.

Guarantees: the equality behind the bound is checked by both checkers where it is one.
Does not: search for a bound; the step states it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from derive import intervals
from derive.errors import DeriveError, StatementError
from derive.importer import Importer, Unestablished
from derive.index import Facts, Ix
from derive.inequalities import Context, read, vacuous_indices
from derive.language import total
from derive.normal import NotShown
from derive.prover import prove
from derive.rules import rule
from derive.signs import is_nonnegative, is_positive, nonempty
from derive.step import Step
from derive.terms import Mono
from derive.verdict import Verdict, weakest


@rule("nonnegative-difference")
def nonnegative_difference(step: Step) -> Verdict:
    """lhs ≤ rhs (or <) because rhs − lhs is built from terms that the assumptions make ≥ 0 (or > 0).

    Sound because sums, sums over non-empty ranges and products of positive terms are positive. data["as"], if given, is
    an expression proved equal to rhs − lhs by both checkers, whose own terms are judged.
    """
    if step.relation not in ("<=", "<"):
        return Verdict.unknown("this rule proves ≤ and < only")
    difference = sympy.sympify(step.rhs, strict=True) - sympy.sympify(step.lhs, strict=True)
    verdicts = []
    if "as" in step.data:
        other = read(step.data["as"])
        if extra := vacuous_indices(Context.of(step), other):
            return Verdict.unknown(f'data["as"] needs {", ".join(sorted(map(str, extra)))}, which may have no value')
        verdicts.append(prove(difference, other, step.assumptions))
        difference = other
    try:
        importer = Importer(step.assumptions, statement=(step.lhs, step.rhs, difference))
        shown = has_sign(importer, difference, {}, importer.facts, strict=step.relation == "<")
    except (Unestablished, NotShown) as reason:
        return Verdict.unknown(str(reason))
    if not shown:
        return _refuted(step) or Verdict.unknown("the difference isn't built from terms known to be non-negative")
    return weakest([*verdicts, Verdict.proved("all sizes", checkers=("signs of its terms",))])


def has_sign(importer: Importer, expr: Any, scope: Mapping[Any, Ix], facts: Facts, *, strict: bool) -> bool:
    """True when expr > 0 (strict) or ≥ 0 follows, by its normal form or by the signs of what it is built from."""
    test = is_positive if strict else is_nonnegative
    form = importer.normaliser.normal(importer.unfold(importer.term(expr, scope, facts), frozenset()), facts)
    if importer.normaliser.holds_in_all_cases(test, form, facts):
        return True
    if isinstance(expr, sympy.Sum):
        inner, known, opened = importer.open_sum(expr, scope, facts)
        brackets = Mono(tuple(n for n, _ in opened), (b for _, bounds in opened for b in bounds))
        if strict and not nonempty(brackets, facts):
            return False
        return has_sign(importer, expr.function, inner, known, strict=strict)
    if isinstance(expr, sympy.Mul):
        return all(has_sign(importer, x, scope, facts, strict=strict) for x in expr.args)
    if isinstance(expr, sympy.Add):
        weak = all(has_sign(importer, x, scope, facts, strict=False) for x in expr.args)
        return weak and (not strict or any(has_sign(importer, x, scope, facts, strict=True) for x in expr.args))
    return False


def _refuted(step: Step) -> Verdict | None:
    try:
        witness = intervals.refute(step.lhs, step.rhs, step.relation, step.assumptions)
    except StatementError:
        return None
    return None if witness is None else Verdict.refuted("false at a witness", witness=witness)


@rule("rank-factorisation")
def rank_factorisation(step: Step) -> Verdict:
    """The matrix M[rows, columns] = Σ_{inner < r} left · right has rank ≤ r.

    Sound because `left` must not mention the column index, nor `right` the row index, so M is a product of a matrix
    with r columns and one with r rows. Needs data: rows, columns, left, right, inner; the equality passes both
    checkers.
    """
    if step.relation != "rank":
        return Verdict.unknown("this rule proves a rank only")
    missing = {"rows", "columns", "left", "right", "inner"} - step.data.keys()
    if missing:
        raise DeriveError(f"rank-factorisation needs data for {', '.join(sorted(missing))}")
    rows, columns, left, right, inner = (read(step.data[k]) for k in ("rows", "columns", "left", "right", "inner"))
    bound = read(step.rhs)
    if columns in left.free_symbols or rows in right.free_symbols:
        return Verdict.unknown("a factor mentions the index of the other side, so it is no factorisation")
    if bound.has(rows) or bound.has(columns):
        return Verdict.unknown("the bound on the rank depends on an index of the matrix")
    return prove(step.lhs, total(left * right, inner, bound), step.assumptions)
