"""Matrix form of index expressions: Σ_j f[a, j] g[j, b] becomes F G, products of entries become ∘, row sums rowsum.

Guarantees: a form is only made from an expression that has exactly that meaning entry by entry; what doesn't fit has
no matrix form (None), and is printed in index form. Tests read the form back and prove it equal.
Does not: simplify, or reorder sums.

Forms are nested tuples: ("matrix", name), ("T", F), ("mul", F, G), ("had", F…), ("add", (sign, F)…), ("rowsum", F),
("scale", scalar, F), ("over", F, scalar), ("exp", F), ("eye",), ("vector", name). A rowsum or a vector is a column
that is broadcast over its row.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.printing.latex import to_latex
from derive.printing.layout import terms_in_order
from derive.printing.names import array_name, name_latex

Form = tuple[Any, ...]
_ADD, _HAD, _MUL, _ATOM = 1, 2, 3, 4


def matrix_form(expr: Any, row: Any, column: Any) -> Form | None:
    """The matrix whose entry [row, column] is the expression, or None."""
    expr = sympy.sympify(expr, strict=True)
    if expr.is_Add:
        return _sum_of_terms(expr, row, column)
    if isinstance(expr, sympy.Indexed):
        return _entry(expr, row, column)
    if isinstance(expr, sympy.KroneckerDelta):
        return ("eye",) if set(expr.args[:2]) == {row, column} else None
    if isinstance(expr, sympy.exp):
        inner = matrix_form(expr.args[0], row, column)
        return None if inner is None else ("exp", inner)
    if isinstance(expr, sympy.Sum):
        return _contraction(expr, row, column)
    if expr.is_Mul:
        return _product(expr, row, column)
    return None


def _depends(expr: Any, index: Any) -> bool:
    return index in expr.free_symbols


def _entry(expr: Any, row: Any, column: Any) -> Form | None:
    name = array_name(expr.base)
    if tuple(expr.indices) == (row, column):
        return ("matrix", name)
    if tuple(expr.indices) == (column, row):
        return ("T", ("matrix", name))
    return None


def _sum_of_terms(expr: Any, row: Any, column: Any) -> Form | None:
    parts = []
    for term in terms_in_order(expr):
        negative = term.could_extract_minus_sign()
        body = -term if negative else term
        form = _column_vector(body, row) if not _depends(body, column) else matrix_form(body, row, column)
        if form is None:
            return None
        parts.append(("-" if negative else "+", form))
    return ("add", *parts) if any(form[0] not in ("rowsum", "vector") for _, form in parts) else None


def _column_vector(expr: Any, row: Any) -> Form | None:
    """A vector over rows, given or a row sum, that is broadcast over the columns."""
    if isinstance(expr, sympy.Indexed) and tuple(expr.indices) == (row,):
        return ("vector", array_name(expr.base))
    if not isinstance(expr, sympy.Sum) or len(expr.limits) != 1 or not _depends(expr, row):
        return None
    inner = matrix_form(expr.function, row, expr.limits[0][0])
    return None if inner is None else ("rowsum", inner)


def _product(expr: Any, row: Any, column: Any) -> Form | None:
    if expr.is_Mul and expr.could_extract_minus_sign():
        inner = matrix_form(-expr, row, column)
        return None if inner is None else ("scale", sympy.Integer(-1), inner)
    scalars, matrices = [], []
    for factor in sympy.Mul.make_args(expr):
        if not _depends(factor, row) and not _depends(factor, column):
            scalars.append(factor)
        else:
            matrices.append(factor)
    forms = [matrix_form(x, row, column) for x in sorted(matrices, key=_weights_first)]
    if not forms or any(f is None for f in forms):
        return None
    body: Form = ("had", *forms) if len(forms) > 1 else forms[0]  # type: ignore[assignment]
    scalar = sympy.Mul(*scalars)
    if scalar == 1:
        return body
    below = 1 / scalar
    simple = below.is_Symbol or below.is_Integer or (below.is_Pow and below.exp == sympy.Rational(1, 2))
    return ("over", body, below) if simple else ("scale", scalar, body)


def _weights_first(factor: Any) -> tuple[int, str]:
    return (0 if isinstance(factor, sympy.Indexed) else 1, str(factor))


def _contraction(expr: Any, row: Any, column: Any) -> Form | None:
    """Σ_b f[row, b] g[b, column] = F G."""
    if len(expr.limits) != 1:
        return None
    binder = expr.limits[0][0]
    left: list[Any] = []
    right: list[Any] = []
    for factor in sympy.Mul.make_args(expr.function):
        on_row, on_column = _depends(factor, row), _depends(factor, column)
        if on_row and on_column:
            return None
        (left if on_row or not on_column else right).append(factor)
    if not left or not right:
        return None
    f = _either_way(sympy.Mul(*left), row, binder)
    g = _either_way(sympy.Mul(*right), binder, column)
    return None if f is None or g is None else ("mul", f, g)


def _either_way(expr: Any, row: Any, column: Any) -> Form | None:
    """The form, or the transpose of the form read the other way round."""
    form = matrix_form(expr, row, column)
    if form is not None:
        return form
    turned = matrix_form(expr, column, row)
    return None if turned is None else ("T", turned)


def form_latex(form: Form, level: int = 0) -> str:
    """LaTeX of a matrix form, in plain delimiters."""
    text, own = _latex(form)
    return f"({text})" if own < level else text


def _latex(form: Form) -> tuple[str, int]:
    head, rest = form[0], form[1:]
    if head in ("matrix", "vector"):
        return name_latex(rest[0]), _ATOM
    if head == "eye":
        return "I", _ATOM
    if head == "T":
        name = form_latex(rest[0], _ATOM)
        return (f"({name})^\\top" if "^" in name else f"{name}^\\top"), _ATOM
    if head == "rowsum":
        return rf"\operatorname{{rowsum}}({form_latex(rest[0])})", _ATOM
    if head == "exp":
        return rf"\exp({form_latex(rest[0])})", _ATOM
    if head == "had":
        parts = [form_latex(x, _MUL) for x in rest]
        return parts[0] + "".join(rf"\circ{' ' if p[0].isalpha() else ''}{p}" for p in parts[1:]), _HAD
    if head == "mul":
        left, right = (form_latex(x, _MUL) for x in rest)
        glue = " " if left.rstrip("abcdefghijklmnopqrstuvwxyz").endswith("\\") and right[:1].isalpha() else ""
        return left + glue + right, _MUL
    if head == "scale":
        scalar = "-" if rest[0] == -1 else to_latex(rest[0])
        return f"{scalar}{form_latex(rest[1], _HAD if rest[0] == -1 else _MUL)}", _HAD if rest[0] != -1 else _ADD
    if head == "over":
        return f"{form_latex(rest[0], _MUL)}/{to_latex(rest[1])}", _HAD
    text = ""
    for sign, part in rest:
        text += (sign if sign == "-" or text else "") + form_latex(part, _HAD)
    return text, _ADD


def matrix_latex(expr: Any, row: Any, column: Any) -> str | None:
    """LaTeX of the matrix whose entry is the expression, or None when it has no matrix form."""
    form = matrix_form(expr, row, column)
    return None if form is None else form_latex(form)
