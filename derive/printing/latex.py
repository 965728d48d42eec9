"""LaTeX of statements: one letter a binder, plain delimiters, long sums of terms broken over lines.

Guarantees: the output has the structure of the SymPy object; tests re-parse what is printed. No \\left or \\right.
Does not: choose between index form and matrix form; see `matrix_form`.

>>> from derive.language import array, index, size, total
>>> n, i = size("n"), index("i")
>>> x = array("x", n)
>>> to_latex(total(x[i] ** 2, i, n))
'\\\\sum_{i=0}^{n-1}x_{i}^{2}'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy

from derive.printing.layout import MUL, Layout
from derive.printing.names import letter, name_latex

_RELATIONS = {"==": "=", "!=": r"\ne", "<=": r"\le", "<": "<", ">=": r"\ge", ">": ">"}
_FUNCTIONS = {
    "log": r"\log",
    "tanh": r"\tanh",
    "sinh": r"\sinh",
    "cosh": r"\cosh",
    "sin": r"\sin",
    "cos": r"\cos",
    "gamma": r"\Gamma",
    "Max": r"\max",
    "Min": r"\min",
    "atan": r"\arctan",
}


class LatexStyle:
    """Markup in LaTeX."""

    hook = "_latex"

    def name(self, name: str) -> str:
        return name_latex(name)

    def number(self, numerator: int, denominator: int) -> str:
        if denominator == 1:
            return str(numerator)
        sign = "-" if numerator < 0 else ""
        return rf"{sign}\frac{{{abs(numerator)}}}{{{denominator}}}"

    def entry(self, array: str, indices: Sequence[str]) -> str:
        name = name_latex(array)
        short = all(len(x) == 1 for x in indices)
        subscript = ("" if short else ",").join(_tight(x) for x in indices)
        if "_" in name:
            name = f"({name})"
        return f"{name}_{{{subscript}}}"

    def total(self, binder: str, low: str, high: str, body: str) -> str:
        return rf"\sum_{{{binder}={_tight(low)}}}^{{{_tight(high)}}}{body}"

    def fraction(self, top: str, bottom: str) -> str:
        return rf"\frac{{{top}}}{{{bottom}}}"

    def power(self, base: str, exponent: str) -> str:
        # TeX takes no second superscript, and a prime is one.
        whole = base if not ("^" in base or "'" in base) or base.startswith("(") else f"({base})"
        return f"{whole}^{{{_tight(exponent)}}}"

    def root(self, base: str) -> str:
        return rf"\sqrt{{{base}}}"

    def call(self, function: str, arguments: Sequence[str]) -> str:
        if function == "Abs":
            return f"|{arguments[0]}|"
        if function == "Mod":
            return rf"({arguments[0]}\bmod {arguments[1]})"
        head = _FUNCTIONS.get(function, rf"\operatorname{{{function}}}")
        return f"{head}({', '.join(arguments)})"

    def infinity(self, *, negative: bool) -> str:
        return r"-\infty" if negative else r"\infty"

    def limit(self, variable: str, target: str, body: str) -> str:
        return rf"\lim_{{{variable}\to {target}}}{body}"

    def repeated(self, kind: str, binder: str, low: str, high: str, body: str) -> str:
        if kind == "product":
            return rf"\prod_{{{binder}={_tight(low)}}}^{{{_tight(high)}}}{body}"
        return rf"\int_{{{low}}}^{{{high}}}{body}\,d{binder}"

    def floor(self, argument: str) -> str:
        return rf"\lfloor {argument}\rfloor"

    def exponential(self, argument: str) -> str:
        return f"e^{{{argument}}}"

    def delta(self, indices: Sequence[str]) -> str:
        short = all(len(x) == 1 for x in indices)
        return rf"\delta_{{{('' if short else ',').join(_tight(x) for x in indices)}}}"

    def cases(self, rows: Sequence[tuple[str, str]], last: str) -> str:
        lines = [rf"{value} & {condition}" for value, condition in rows]
        return r"\begin{cases}" + r" \\ ".join([*lines, rf"{last} & \text{{otherwise}}"]) + r"\end{cases}"

    def relation(self, left: str, sign: str, right: str) -> str:
        return f"{left} {_RELATIONS[sign]} {right}"

    def logic(self, word: str, parts: Sequence[str]) -> str:
        sign = {"and": r" \land ", "or": r" \lor ", "not": ""}[word]
        return rf"\lnot {parts[0]}" if word == "not" else sign.join(parts)

    def derivative(self, top: str, bottom: str, *, short: bool) -> str:
        if short:
            return rf"\frac{{\partial {top}}}{{\partial {bottom}}}"
        return rf"\frac{{\partial}}{{\partial {bottom}}}[{top}]"

    def product(self, factors: Sequence[str]) -> str:
        text = ""
        for factor in factors:
            glue = " " if text and _needs_space(text, factor) else ""
            text += glue + factor
        return text

    def node(self, name: str, arguments: Sequence[str]) -> str:
        head = rf"\mathbb{{{name}}}" if len(name) == 1 else rf"\operatorname{{{name}}}"
        return f"{head}[{', '.join(arguments)}]"


def _needs_space(before: str, after: str) -> bool:
    """A command that ends in a letter must not run into a letter, nor a digit into a digit."""
    if re.search(r"\\[A-Za-z]+$", before) and after[:1].isalpha():
        return True
    return before[-1].isdigit() and after[:1].isdigit()


def _tight(text: str) -> str:
    return text.replace(" + ", "+").replace(" - ", "-")


def to_latex(expr: Any, *, width: int | None = None) -> str:
    """LaTeX of an expression (without dollar signs).

    width: if given, a sum of terms that is wider than this many visible characters is broken before its terms, inside
    an `aligned` environment.
    """
    expr = sympy.sympify(expr, strict=True)
    layout = Layout(LatexStyle(), expr)
    whole = layout.show(expr, {})
    if width is None or visible_width(whole) <= width:
        return whole
    lines = _broken(layout, expr, width)
    if len(lines) < 2:
        return whole
    return r"\begin{aligned}" + r" \\ ".join(lines) + r"\end{aligned}"


def _broken(layout: Layout, expr: Any, width: int) -> list[str]:
    """Lines of a long sum of terms; a long product or sum that ends in a bracket of terms breaks inside it."""
    if expr.is_Add:
        return _lines(layout, "", layout.terms(expr, {}), "", width)
    whole = layout.show(expr, {}, MUL)
    for inner, scope in _brackets(layout, expr):
        terms = layout.terms(inner, scope)
        bracket = f"({layout.joined(terms)})"
        if whole.endswith(bracket):
            return _lines(layout, whole[: -len(bracket)] + "(", terms, ")", width)
    return ["&" + whole]


def _brackets(layout: Layout, expr: Any) -> list[tuple[Any, dict[Any, str]]]:
    """Sums of terms that may stand last in a product, or be the body of a sum, with the binder's letter."""
    if expr.is_Mul:
        return [(factor, {}) for factor in expr.args if factor.is_Add]
    if isinstance(expr, sympy.Sum) and len(expr.limits) == 1 and expr.function.is_Add:
        binder = expr.limits[0][0]
        return [(expr.function, {binder: letter(binder, {}, layout.taken)})]
    return []


def _lines(layout: Layout, head: str, terms: Sequence[tuple[str, str]], tail: str, width: int) -> list[str]:
    """As many terms on a line as fit beside each other, the first line after the head."""
    lines: list[list[tuple[str, str]]] = [[]]
    for sign, text in terms:
        used = sum(visible_width(t) + 3 for _, t in lines[-1]) + (visible_width(head) if len(lines) == 1 else 0)
        if lines[-1] and used + visible_width(text) > width:
            lines.append([])
        lines[-1].append((sign, text))
    shown = [f"&{head}{layout.joined(lines[0])}"]
    shown += [r"&\quad{} " + " ".join(f"{s} {t}" for s, t in line) for line in lines[1:]]
    return [*shown[:-1], shown[-1] + tail]


def visible_width(tex: str) -> int:
    """Roughly how many characters wide LaTeX is when set: commands count one, braces and scripts' marks nothing."""
    tex = re.sub(r"\\(operatorname|mathrm|text|mathbb)\{([^}]*)\}", r"\2", tex)
    tex = re.sub(r"\\(frac|begin|end|quad|partial)", "", tex)
    tex = re.sub(r"\\[A-Za-z]+", "x", tex)
    return len(re.sub(r"[{}_^\\ ]", "", tex))
