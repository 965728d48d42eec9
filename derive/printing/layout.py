"""How an expression is laid out, shared by LaTeX and plain text; a style says how each piece is marked up.

Guarantees: what is printed has the structure of the SymPy object; nothing is evaluated or simplified on the way. A sum
reaches to the end of its product, and its body stands in parentheses when it is itself a sum of terms.
Does not: know LaTeX or Unicode; see `latex` and `text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import sympy

from derive.errors import StatementError
from derive.language import Diff
from derive.printing.names import GREEK, Scope, array_name, letter, taken_names

ADD, MUL, POWER, ATOM = 1, 2, 3, 4
# Nodes that reach to the end of their product, so they stand last in it or in parentheses.
_REACHING = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative, Diff)


class Style(Protocol):
    """Markup of the pieces. Every method gets pieces that are printed already."""

    def name(self, name: str) -> str: ...
    def number(self, numerator: int, denominator: int) -> str: ...
    def entry(self, array: str, indices: Sequence[str]) -> str: ...
    def total(self, binder: str, low: str, high: str, body: str) -> str: ...
    def fraction(self, top: str, bottom: str) -> str: ...
    def power(self, base: str, exponent: str) -> str: ...
    def root(self, base: str) -> str: ...
    def call(self, function: str, arguments: Sequence[str]) -> str: ...
    def exponential(self, argument: str) -> str: ...
    def delta(self, indices: Sequence[str]) -> str: ...
    def cases(self, rows: Sequence[tuple[str, str]], last: str) -> str: ...
    def relation(self, left: str, sign: str, right: str) -> str: ...
    def logic(self, word: str, parts: Sequence[str]) -> str: ...
    def derivative(self, top: str, bottom: str, *, short: bool) -> str: ...
    def product(self, factors: Sequence[str]) -> str: ...
    def node(self, name: str, arguments: Sequence[str]) -> str: ...
    def infinity(self, *, negative: bool) -> str: ...
    def limit(self, variable: str, target: str, body: str) -> str: ...
    def repeated(self, kind: str, binder: str, low: str, high: str, body: str) -> str: ...
    def floor(self, argument: str) -> str: ...

    # The method by which a node of our own prints itself in this style.
    hook: str


class Layout:
    """Prints one expression in a style. Letters are given to binders as they are met."""

    def __init__(self, style: Style, expr: Any) -> None:
        self.style = style
        self.taken = taken_names(expr)

    def show(self, expr: Any, scope: Scope, level: int = 0) -> str:
        """The expression, in parentheses when it binds less tightly than its place needs."""
        text, own = self._show(expr, scope)
        return f"({text})" if own < level else text

    def _show(self, expr: Any, scope: Scope) -> tuple[str, int]:
        style = self.style
        if hasattr(expr, style.hook) and not type(expr).__module__.startswith("sympy.") and not isinstance(expr, Diff):
            return str(getattr(expr, style.hook)(_Inside(self, scope))), ATOM
        if expr in (sympy.oo, -sympy.oo):
            return style.infinity(negative=expr == -sympy.oo), ATOM
        if expr.is_Rational:
            own = ATOM if expr.is_Integer and expr >= 0 else MUL
            return style.number(int(expr.p), int(expr.q)), own
        if isinstance(expr, sympy.Symbol):
            return (scope[expr] if expr in scope else style.name(expr.name)), ATOM
        if expr in (sympy.pi, sympy.E, sympy.EulerGamma):
            return style.name({sympy.pi: "pi", sympy.E: "e", sympy.EulerGamma: "euler_gamma"}[expr]), ATOM
        if isinstance(expr, sympy.Indexed):
            return style.entry(array_name(expr.base), [self.show(x, scope) for x in expr.indices]), ATOM
        if expr.is_Add:
            return self._add(expr, scope), ADD
        if isinstance(expr, sympy.exp):
            return style.exponential(self.show(expr.args[0], scope)), POWER
        if expr.is_Mul or expr.is_Pow:
            return self._product(expr, scope)
        if isinstance(expr, (sympy.Sum, sympy.Product, sympy.Integral)):
            return self._repeated(expr, scope), MUL
        if isinstance(expr, sympy.Limit):
            body, variable, target = expr.args[:3]
            inside = self.show(body, scope, MUL)
            return style.limit(self.show(variable, scope), self.show(target, scope), inside), MUL
        if isinstance(expr, sympy.Derivative):
            text = self.show(expr.expr, scope)
            for variable in expr.variables:
                text = style.derivative(text, self.show(variable, scope), short=False)
            return text, MUL
        if isinstance(expr, sympy.floor):
            return style.floor(self.show(expr.args[0], scope)), ATOM
        if isinstance(expr, (sympy.Max, sympy.Min, sympy.Mod)):
            parts = expr.args if isinstance(expr, sympy.Mod) else sorted(expr.args, key=sympy.default_sort_key)
            return style.call(type(expr).__name__, [self.show(x, scope) for x in parts]), ATOM
        if isinstance(expr, sympy.KroneckerDelta):
            return style.delta([self.show(x, scope) for x in expr.args[:2]]), ATOM
        if isinstance(expr, sympy.Piecewise):
            return self._cases(expr, scope), ATOM
        if isinstance(expr, Diff):
            short = isinstance(expr.expr, (sympy.Indexed, sympy.Symbol))
            inside = self.show(expr.expr, scope)
            return style.derivative(inside, self.show(expr.entry, scope), short=short), MUL
        if isinstance(expr, (sympy.And, sympy.Or, sympy.Not)):
            word = {sympy.And: "and", sympy.Or: "or", sympy.Not: "not"}[expr.func]
            return style.logic(word, [self.show(x, scope, ATOM) for x in sorted(expr.args, key=str)]), 0
        if isinstance(expr, sympy.core.relational.Relational):
            left, right = self.show(expr.lhs, scope), self.show(expr.rhs, scope)
            return style.relation(left, expr.rel_op, right), 0
        if isinstance(expr, sympy.Function):
            return style.call(expr.func.__name__, [self.show(x, scope) for x in expr.args]), ATOM
        if isinstance(expr, sympy.Expr) and expr.args:
            name = getattr(expr, "latex_name", "") or type(expr).__name__
            return style.node(name, [self.show(x, scope) for x in expr.args if isinstance(x, sympy.Expr)]), ATOM
        raise StatementError(f"nothing here prints {type(expr).__name__}: {expr}")

    def _add(self, expr: Any, scope: Scope) -> str:
        return self.joined(self.terms(expr, scope))

    def terms(self, expr: Any, scope: Scope) -> list[tuple[str, str]]:
        """(sign, printed term) for each term of a sum of terms, in SymPy's order with a positive one first."""
        found = []
        for term in terms_in_order(expr):
            negative = term.could_extract_minus_sign()
            found.append(("-" if negative else "+", self.show(-term if negative else term, scope, MUL)))
        return found

    @staticmethod
    def joined(terms: Sequence[tuple[str, str]]) -> str:
        first = terms[0][1] if terms[0][0] == "+" else f"-{terms[0][1]}"
        return first + "".join(f" {sign} {text}" for sign, text in terms[1:])

    def _product(self, expr: Any, scope: Scope) -> tuple[str, int]:
        if expr.is_Mul and expr.could_extract_minus_sign():
            return f"-{self.show(-expr, scope, MUL)}", ADD
        top, bottom = [], []
        for factor in sympy.Mul.make_args(expr):
            base, exponent = factor.as_base_exp() if not isinstance(factor, sympy.exp) else (factor, sympy.Integer(1))
            if factor.is_Rational:
                top += [sympy.Integer(factor.p)] if factor.p != 1 else []
                bottom += [sympy.Integer(factor.q)] if factor.q != 1 else []
            elif exponent.is_Rational and exponent < 0:
                bottom.append(base**-exponent)
            else:
                top.append(factor)
        if not bottom:
            if len(top) == 1:
                return self._power(top[0], scope), (POWER if top[0].is_Pow else MUL)
            return self._factors(top, scope), MUL
        sums = [x for x in top if isinstance(x, _REACHING)]
        return self.style.fraction(self._factors(top, scope) if top else "1", self._factors(bottom, scope)), (
            MUL if sums or top else ATOM
        )

    def _factors(self, factors: Sequence[Any], scope: Scope) -> str:
        """A product: numbers and plain factors first, a sum last and alone without parentheses."""
        if len(factors) == 1:
            return self._power(factors[0], scope) if factors[0].is_Pow else self.show(factors[0], scope)
        sums = [x for x in factors if isinstance(x, _REACHING)]
        plain = sorted((x for x in factors if not isinstance(x, _REACHING)), key=_reading_order)
        printed = [self._power(x, scope) if x.is_Pow else self.show(x, scope, MUL) for x in plain]
        if sums:
            printed += [self.show(x, scope, POWER) for x in sums[:-1]] + [self.show(sums[-1], scope, MUL)]
        return self.style.product(printed)

    def _power(self, expr: Any, scope: Scope) -> str:
        if not expr.is_Pow:
            return self.show(expr, scope)
        base, exponent = expr.args
        if exponent == sympy.Rational(1, 2):
            return self.style.root(self.show(base, scope))
        return self.style.power(self.show(base, scope, ATOM), self.show(exponent, scope))

    def _repeated(self, expr: Any, scope: Scope) -> str:
        kind = {sympy.Sum: "sum", sympy.Product: "product", sympy.Integral: "integral"}[type(expr)]
        inner = dict(scope)
        opened = []
        for limit in reversed(expr.limits):
            if len(limit) != 3:
                raise StatementError(f"a {kind} without a range in {expr}")
            binder, low, high = limit
            ends = (self.show(low, inner), self.show(high, inner))
            inner[binder] = letter(binder, inner, self.taken)
            opened.append((inner[binder], *ends))
        text = self.show(expr.function, inner, MUL)
        for name, low_text, high_text in reversed(opened):
            if kind == "sum":
                text = self.style.total(name, low_text, high_text, text)
            else:
                text = self.style.repeated(kind, name, low_text, high_text, text)
        return text

    def _cases(self, expr: Any, scope: Scope) -> str:
        rows = [(self.show(v, scope), self.show(c, scope)) for v, c in expr.args if c != sympy.true]
        last = [self.show(v, scope) for v, c in expr.args if c == sympy.true]
        if not last:
            raise StatementError(f"{expr} leaves a case open: end it with (value, True)")
        return self.style.cases(rows, last[0])


class _Inside:
    """What a node of our own sees of the printer while it prints itself."""

    def __init__(self, layout: Layout, scope: Scope) -> None:
        self.layout, self.scope = layout, scope

    def doprint(self, expr: Any) -> str:
        return self.layout.show(sympy.sympify(expr, strict=True), self.scope)


def terms_in_order(expr: Any) -> list[Any]:
    """The terms of a sum of terms, a positive one first. (SymPy's own order evaluates coefficients as floats.)"""
    return sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), t.is_Rational, sympy.default_sort_key(t)))


def _reading_order(factor: Any) -> tuple[int, str]:
    """Numbers, symbols, weights, brackets, then matrices and gradients, as in α(dα − …)K."""
    base = factor.base if factor.is_Pow else factor
    if base.is_Rational:
        return (0, "")
    if isinstance(base, sympy.Symbol):
        return (1, str(base))
    if isinstance(base, sympy.Indexed):
        name = array_name(base.base)
        if name in GREEK or (name.islower() and not name.startswith("d")):
            return (2, str(base))
        gradient = name.startswith("d") and len(name) > 1
        return (6 if gradient else 5, str(base))
    return (4 if base.is_Add else 3, str(base))
