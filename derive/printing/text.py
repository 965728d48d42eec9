"""Plain text of statements for a terminal: Σ_{j=0}^{m-1} α[i, j]·V[j, c].

Guarantees: one line, Unicode, the structure of the SymPy object, one letter a binder.
Does not: break lines; the console wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derive.printing.layout import Layout
from derive.printing.names import name_text

_RELATIONS = {"==": "=", "!=": "≠", "<=": "≤", "<": "<", ">=": "≥", ">": ">"}

_FUNCTIONS = {"Abs": "abs", "Max": "max", "Min": "min"}


class TextStyle:
    """Markup in Unicode text."""

    hook = "_sympystr"

    def name(self, name: str) -> str:
        return name_text(name)

    def number(self, numerator: int, denominator: int) -> str:
        return str(numerator) if denominator == 1 else f"{numerator}/{denominator}"

    def entry(self, array: str, indices: Sequence[str]) -> str:
        return f"{name_text(array)}[{', '.join(indices)}]"

    def total(self, binder: str, low: str, high: str, body: str) -> str:
        return f"Σ_{{{binder}={low.replace(' ', '')}}}^{{{high.replace(' ', '')}}} {body}"

    def fraction(self, top: str, bottom: str) -> str:
        return f"{_grouped(top)}/{_grouped(bottom)}"

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^{exponent if exponent.isalnum() else f'({exponent})'}"

    def root(self, base: str) -> str:
        return f"√{base}" if base.replace("_", "").isalnum() else f"√({base})"

    def call(self, function: str, arguments: Sequence[str]) -> str:
        if function == "Mod":
            return f"({arguments[0]} mod {arguments[1]})"
        return f"{_FUNCTIONS.get(function, function)}({', '.join(arguments)})"

    def infinity(self, *, negative: bool) -> str:
        return "-∞" if negative else "∞"

    def limit(self, variable: str, target: str, body: str) -> str:
        return f"lim_{{{variable} → {target}}} {body}"

    def repeated(self, kind: str, binder: str, low: str, high: str, body: str) -> str:
        if kind == "product":
            return f"Π_{{{binder}={low.replace(' ', '')}}}^{{{high.replace(' ', '')}}} {body}"
        return f"∫_{{{low}}}^{{{high}}} {body} d{binder}"

    def floor(self, argument: str) -> str:
        return f"⌊{argument}⌋"

    def exponential(self, argument: str) -> str:
        return f"exp({argument})"

    def delta(self, indices: Sequence[str]) -> str:
        return f"δ[{', '.join(indices)}]"

    def cases(self, rows: Sequence[tuple[str, str]], last: str) -> str:
        return "{" + "; ".join([*(f"{v} if {c}" for v, c in rows), f"{last} otherwise"]) + "}"

    def relation(self, left: str, sign: str, right: str) -> str:
        return f"{left} {_RELATIONS[sign]} {right}"

    def logic(self, word: str, parts: Sequence[str]) -> str:
        return f"not {parts[0]}" if word == "not" else f" {word} ".join(parts)

    def derivative(self, top: str, bottom: str, *, short: bool) -> str:
        return f"∂{top}/∂{bottom}" if short else f"∂/∂{bottom} [{top}]"

    def product(self, factors: Sequence[str]) -> str:
        return "·".join(factors)

    def node(self, name: str, arguments: Sequence[str]) -> str:
        return f"{name}[{', '.join(arguments)}]"


def _grouped(text: str) -> str:
    """In parentheses unless it is one name, number, entry, root or call."""
    depth = 0
    for ch in text:
        depth += (ch in "([{") - (ch in ")]}")
        if depth == 0 and ch in " ·/+-":
            return f"({text})"
    return text


def to_text(expr: Any) -> str:
    """One line of Unicode text for a terminal.

    >>> from derive.language import array, index, size, total
    >>> n, i = size("n"), index("i")
    >>> to_text(total(array("alpha", n)[i] ** 2, i, n) / sympy.sqrt(n))
    '(Σ_{i=0}^{n-1} α[i]^2)/√n'
    """
    expr = sympy.sympify(expr, strict=True)
    return Layout(TextStyle(), expr).show(expr, {})
