"""Rules that turn an equality into a bound: a certificate for ≤ and <, a factorisation for a rank.

Guarantees: lhs ≤ rhs is accepted only where rhs − lhs equals, by both checkers, an expression whose sign its structure
shows. Cauchy–Schwarz, Popoviciu and Gershgorin are never invoked by name: their certificates are sums of squares,
written out and checked.
Does not: search for a bound or a certificate; the step states it.
"""

from __future__ import annotations

from dataclasses import replace

from derive.assumptions import Ordered
from derive.errors import DeriveError
from derive.inequalities import Context, Sign, of_reals, read, sign, vacuous_indices
from derive.instances import free_symbols
from derive.language import total
from derive.prover import decide, refuted
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict, weakest


@rule("certified-difference")
def certified_difference(step: Step) -> Verdict:
    """lhs ≤ rhs because rhs − lhs is a sum of terms that can't be negative.

    Sound because rhs − lhs = certificate is proved as an equality by both checkers, and the certificate is built from
    squares, exponentials and what the conditions state to be non-negative. data["certificate"]: that expression;
    without it, rhs − lhs itself. For "<" it must be positive.
    """
    if step.relation not in ("<=", "<"):
        return Verdict.unknown("this rule shows ≤ and < only")
    needed = Sign.POSITIVE if step.relation == "<" else Sign.NONNEGATIVE
    certificate = read(step.data.get("certificate", step.rhs - step.lhs))
    context = Context.of(step)
    if extra := vacuous_indices(context, certificate):
        return Verdict.unknown(f"the certificate needs {', '.join(sorted(map(str, extra)))}, which may have no value")
    context = replace(context, fixed=context.fixed | free_symbols(certificate))
    if sign(certificate, context) < needed:
        reason = f"the certificate is not shown to be {needed.name.lower()}"
        return refuted(step.lhs, step.rhs, step.relation, step.assumptions) or Verdict.unknown(reason)
    conditions = tuple(a for a in step.assumptions if not (isinstance(a, Ordered) and of_reals(a)))
    if certificate == step.rhs - step.lhs:
        # Nothing to prove of the difference; the statement itself must still be one that can be read.
        return weakest([decide(side, side, conditions) for side in (step.lhs, step.rhs)])
    equality = decide(step.rhs - step.lhs, certificate, conditions)
    if equality.is_proved:
        return equality
    reason = f"the difference is not shown to equal the certificate ({equality})"
    return refuted(step.lhs, step.rhs, step.relation, step.assumptions) or Verdict.unknown(reason)


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
    equality = decide(step.lhs, total(left * right, inner, bound), step.assumptions)
    return equality if equality.is_proved else Verdict.unknown(f"the factorisation isn't shown: {equality}")
