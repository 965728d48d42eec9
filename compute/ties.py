"""Outputs that are rational because scores are exactly equal: the entries no precision can decide.

Guarantees: where `exact_entry` answers, it is the exact output: keys are grouped by exactly equal scores, and if the
plain means of the values of all groups agree, that mean is the output, whatever the weights.
Does not: find every rational output; it answers None where the rule doesn't apply.
"""

from __future__ import annotations

from fractions import Fraction

from compute.heads import Head


def group_keys(head: Head, row: int) -> list[list[int]] | None:
    """Live keys of a row in groups of exactly equal scores; None where scores aren't rational numbers.

    With a softcap, equal arguments and equal biases make equal scores, which is all that is used of it.
    """
    problem, at = head.part.problem, (*head.part.batch, head.part.head)
    if problem.slopes is not None:
        return None
    keep = head.keep(slice(row, row + 1))
    q = [Fraction(x) for x in head.q[row].tolist()]
    groups: dict[tuple[Fraction, Fraction], list[int]] = {}
    for j in range(head.m):
        if keep is not None and not keep[0, j]:
            continue
        dot = sum((a * Fraction(b) for a, b in zip(q, head.k[j].tolist(), strict=True) if a and b), Fraction(0))
        bias = Fraction(0)
        if not head.means[row]:
            bias = sum((Fraction(float(x[(*at, row, j)])) for x in problem.additive), Fraction(0))
        groups.setdefault((dot, bias), []).append(j)
    return list(groups.values())


def exact_entry(head: Head, groups: list[list[int]], column: int) -> Fraction | None:
    """The exact output of one entry, if all groups have the same mean value (0, if there is a sink)."""
    means = {sum((Fraction(float(head.v[j, column])) for j in g), Fraction(0)) / len(g) for g in groups}
    if head.sink is not None:
        means.add(Fraction(0))
    return means.pop() if len(means) == 1 else None


def as_pair(x: Fraction) -> tuple[float, float, float]:
    """(mid, low, rad) of a rational number: rad is 0 where mid + low is exact."""
    mid = float(x)
    low = float(x - Fraction(mid))
    rest = abs(x - Fraction(mid) - Fraction(low))
    return mid, low, 0.0 if rest == 0 else max(float(rest) * (1 + 2.0**-50), 2.0**-1074)
