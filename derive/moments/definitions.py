"""Opening abbreviations: S[i, j] written out by its `Defined` assumption, without capture.

Guarantees: every sum of the body gets a binder that occurs nowhere else before indices are put in, so no index is
caught by a sum; definitions may use definitions that stand before them.
Does not: abbreviate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from derive.assumptions import Defined
from derive.errors import StatementError


def opened(expr: Any, assumptions: Iterable[Any]) -> Any:
    """The expression with every abbreviated entry written out."""
    definitions = {d.array: d for d in assumptions if isinstance(d, Defined)}
    return _opened(sympy.sympify(expr, strict=True), definitions, 0)


def _opened(expr: Any, definitions: dict[Any, Defined], depth: int) -> Any:
    if depth > len(definitions):
        raise StatementError("definitions refer to each other in a circle")
    if isinstance(expr, sympy.Indexed) and expr.base in definitions:
        definition = definitions[expr.base]
        if len(expr.indices) != len(definition.indices):
            raise StatementError(f"{expr}: expected {len(definition.indices)} indices, got {len(expr.indices)}")
        put = dict(zip(definition.indices, expr.indices, strict=True))
        return _opened(with_fresh_binders(definition.body).xreplace(put), definitions, depth + 1)
    if not getattr(expr, "args", ()) or isinstance(expr, (sympy.Indexed, sympy.IndexedBase)):
        return expr
    changed = [_opened(a, definitions, depth) for a in expr.args]
    return expr if all(a is b for a, b in zip(changed, expr.args, strict=True)) else expr.func(*changed)


def with_fresh_binders(expr: Any) -> Any:
    """The expression with every sum's binders replaced by new ones."""
    if not getattr(expr, "args", ()) or isinstance(expr, (sympy.Indexed, sympy.IndexedBase)):
        return expr
    inside = [with_fresh_binders(a) for a in expr.args]
    if not isinstance(expr, sympy.Sum):
        return expr.func(*inside)
    body, limits = inside[0], list(expr.limits)
    # Innermost first, as SymPy lists them: once renamed, an outer binder of the same name can't reach inside.
    for place, (binder, low, high) in enumerate(limits):
        fresh = sympy.Dummy(binder.name, integer=True)
        body = body.xreplace({binder: fresh})
        limits[:place] = [
            (b, lo.xreplace({binder: fresh}), hi.xreplace({binder: fresh})) for b, lo, hi in limits[:place]
        ]
        limits[place] = (fresh, low, high)
    return sympy.Sum(body, *limits)
