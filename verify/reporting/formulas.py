"""Formulas as text and as LaTeX, by derive's own printers.

Guarantees: what is printed is the object that was checked; GitHub's `$$` blocks come on lines of their own.
Does not: typeset.
"""

from __future__ import annotations

from typing import Any

from verify.reporting.github import safe

_LATEX = {"=": "=", "<=": r"\le", "<": "<", "limit": r"\sim", "rank": r"\text{ has rank at most }"}
_WORDS = {"=": "=", "<=": "≤", "<": "<", "limit": "~", "rank": "has rank at most"}


def latex(expr: Any, *, width: int | None = None) -> str:
    """An expression as LaTeX; a sum of terms wider than `width` characters is broken over lines."""
    from derive.printing.latex import to_latex

    return str(_limit(expr, to_latex, r"\lim_{{{} \to {}}} {}", r"\infty") or to_latex(expr, width=width))


def text(expr: Any) -> str:
    """An expression as one line of text."""
    from derive.printing.text import to_text

    return str(_limit(expr, to_text, "lim_{{{} → {}}} {}", "∞") or to_text(expr))


def _limit(expr: Any, printed: Any, form: str, infinity: str) -> str | None:
    """A limit, with the variable and its target under it; None for anything else."""
    import sympy

    if not isinstance(expr, sympy.Limit):
        return None
    body, variable, target = expr.args[:3]
    return form.format(printed(variable), infinity if target == sympy.oo else printed(target), printed(body))


def relation(lhs: Any, name: str, *, words: bool = False) -> str:
    """The sign between two sides. A limit equals its value; any other law of this kind is asymptotic, "~"."""
    import sympy

    known = _WORDS if words else _LATEX
    return known["=" if name == "limit" and isinstance(lhs, sympy.Limit) else name]


def statement(lhs: Any, name: str, rhs: Any) -> str:
    """lhs REL rhs as one line of text."""
    return f"{text(lhs)} {relation(lhs, name, words=True)} {text(rhs)}"


def block(lhs: Any, name: str, rhs: Any) -> str:
    """A displayed formula lhs REL rhs for GitHub."""
    return f"$$\n{safe(f'{latex(lhs)} {relation(lhs, name)} {latex(rhs)}')}\n$$"


def condition(one: Any) -> str:
    """A side condition for a page: a formula where it is data, its own words where it is not."""
    from derive.assumptions import ZeroOne

    if isinstance(one, ZeroOne):
        return f"every entry of `{one.array}` is 0 or 1"
    form = condition_latex(one)
    # Words may hold underscores and stars that Markdown would read as emphasis.
    return f"`{one}`" if form is None else f"${safe(form)}$"


def condition_latex(one: Any) -> str | None:
    """A side condition as a formula, or None where it is words."""
    return _condition(one, latex, r"\le", r"\ge", r"\ne")


def condition_text(one: Any) -> str:
    """A side condition as one line of text. (A law's parameters are written by SymPy.)"""
    return _condition(one, text, "≤", "≥", "≠") or str(one).replace("**", "^")


def _condition(one: Any, show: Any, at_most: str, at_least: str, differs: str) -> str | None:
    from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive

    if isinstance(one, InRange):
        return f"{show(one.lower)} {at_most} {show(one.index)} {at_most} {show(one.upper)}"
    if isinstance(one, AtLeast):
        return f"{show(one.size)} {at_least} {one.least}"
    if isinstance(one, Positive):
        return f"{show(one.expr)} > 0"
    if isinstance(one, Ordered):
        return f"{show(one.lower)} {at_most} {show(one.middle)} {at_most} {show(one.upper)}"
    if isinstance(one, Distinct):
        return f"{show(one.first)} {differs} {show(one.second)}"
    if isinstance(one, Defined):
        return f"{show(one.array[one.indices])} := {show(one.body)}"
    return None


def matrix_form(claim: Any) -> str | None:
    """The right side in matrix form as a displayed formula for GitHub, or None where it has none."""
    form = matrix_latex(claim)
    return None if form is None else f"$$\n{safe(form)}\n$$"


def matrix_latex(claim: Any) -> str | None:
    """The right side in matrix form, where its two free indices are the row and the column of one."""
    from derive.assumptions import InRange
    from derive.printing.matrix_form import matrix_latex as printed

    free = [a.index for a in claim.assumptions if isinstance(a, InRange)]
    if len(free) != 2 or claim.relation != "=":
        return None
    return printed(claim.rhs, *free)
