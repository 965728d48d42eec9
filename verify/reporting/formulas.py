"""Formulas as text and as LaTeX, by derive's own printers.

Guarantees: what is printed is the object that was checked; GitHub's `$$` blocks come on lines of their own.
Does not: typeset.
"""

from __future__ import annotations

from typing import Any

RELATIONS = {"=": "=", "<=": r"\le", "<": "<", "limit": r"\to", "rank": r"\le"}
WORDS = {"=": "=", "<=": "≤", "<": "<", "limit": "→", "rank": "rank ≤"}


def latex(expr: Any) -> str:
    """An expression as LaTeX."""
    import sympy

    return str(sympy.latex(expr))


def block(lhs: Any, relation: str, rhs: Any) -> str:
    """A displayed formula lhs REL rhs for GitHub."""
    return f"$$\n{latex(lhs)} {RELATIONS[relation]} {latex(rhs)}\n$$"
