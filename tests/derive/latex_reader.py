"""A reader of the LaTeX that `derive.printing` writes, written apart from it: index form and matrix form to SymPy.

It knows the names by a table of literal LaTeX, and binds each \\sum's letter for the rest of its product.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from derive.language import Diff

_TOKEN = re.compile(
    r"\\frac\{\\partial\}|\\begin\{cases\}|\\end\{cases\}|\\text\{otherwise\}|\\operatorname\{\w+\}|\\mathrm\{\w+\}"
    r"|\\[A-Za-z]+|\\\\|\d+|[A-Za-z]|[-+^_=(){}\[\]&,<>'/|]"
)
_FUNCTIONS = {"\\log": sympy.log, "\\tanh": sympy.tanh, "\\exp": sympy.exp}


class Reader:
    """arrays: LaTeX of a name → IndexedBase; scalars: LaTeX of a name → symbol; indices: letter → free index."""

    def __init__(self, arrays: Mapping[str, Any], scalars: Mapping[str, Any], indices: Mapping[str, Any]) -> None:
        self.arrays = {tuple(_TOKEN.findall(k)): v for k, v in arrays.items()}
        self.scalars = {tuple(_TOKEN.findall(k)): v for k, v in scalars.items()}
        self.indices = dict(indices)
        self.tokens: list[str] = []
        self.at = 0
        self.count = 0

    def read(self, tex: str) -> Any:
        self.tokens = _TOKEN.findall(tex)
        assert "".join(self.tokens) == tex.replace(" ", ""), f"unread characters in {tex}"
        self.at = 0
        value = self.expression(self.indices)
        assert self.at == len(self.tokens), f"stopped at {self.tokens[self.at :]}"
        return value

    # ---- tokens ---------------------------------------------------------------------------------------------------

    def peek(self, *wanted: str) -> bool:
        return tuple(self.tokens[self.at : self.at + len(wanted)]) == wanted

    def take(self, *wanted: str) -> None:
        assert self.peek(*wanted), f"expected {wanted} at {self.tokens[self.at :]}"
        self.at += len(wanted)

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def named(self, table: Mapping[tuple[str, ...], Any]) -> Any:
        """The longest name of the table that starts here."""
        for name in sorted(table, key=len, reverse=True):
            if self.peek(*name):
                self.at += len(name)
                return table[name]
        return None

    def group(self, scope: Mapping[str, Any]) -> Any:
        """{…}, or the one token that needs no braces."""
        if not self.peek("{"):
            token = self.next()
            return sympy.Integer(token) if token.isdigit() else scope[token]
        self.take("{")
        value = self.expression(scope)
        self.take("}")
        return value

    # ---- grammar --------------------------------------------------------------------------------------------------

    def expression(self, scope: Mapping[str, Any]) -> Any:
        total = sympy.Integer(0)
        sign = 1
        if self.peek("-"):
            self.take("-")
            sign = -1
        while True:
            total = total + sign * self.product(scope)
            if self.peek("+"):
                self.take("+")
                sign = 1
            elif self.peek("-"):
                self.take("-")
                sign = -1
            else:
                return total

    def product(self, scope: Mapping[str, Any]) -> Any:
        value = sympy.Integer(1)
        while self.at < len(self.tokens) and self.tokens[self.at] not in "+-)}]&,=<" and not self.peek("\\\\"):
            if self.tokens[self.at] in ("\\le", "\\ne", "\\land", "\\end{cases}"):
                break
            value = value * self.factor(scope)
        return value

    def factor(self, scope: Mapping[str, Any]) -> Any:
        base = self.primary(scope)
        if self.peek("^"):
            self.take("^")
            base = base ** self.group(scope)
        return base

    def primary(self, scope: Mapping[str, Any]) -> Any:
        array = self.named(self.arrays)
        if array is not None:
            return self.entry(array, scope)
        scalar = self.named(self.scalars)
        if scalar is not None:
            return scalar
        token = self.next()
        special: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "\\sum": self.total,
            "\\frac": self.fraction,
            "\\frac{\\partial}": self.derivative,
            "\\delta": self.delta,
            "\\begin{cases}": self.cases,
        }
        if token in special:
            return special[token](scope)
        if token == "\\sqrt":
            return sympy.sqrt(self.group(scope))
        if token == "(":
            value = self.expression(scope)
            self.take(")")
            return value
        if token == "e" and self.peek("^"):
            self.take("^")
            return sympy.exp(self.group(scope))
        if token in _FUNCTIONS:
            self.take("(")
            value = self.expression(scope)
            self.take(")")
            return _FUNCTIONS[token](value)
        if token.isdigit():
            return sympy.Integer(token)
        return scope[token]

    def entry(self, array: Any, scope: Mapping[str, Any]) -> Any:
        if self.peek(")"):  # (d_x)_{i}: a name with a subscript of its own
            self.take(")")
        self.take("_", "{")
        indices = []
        while not self.peek("}"):
            if self.peek(","):
                self.take(",")
            indices.append(self.index_expression(scope, len(array.shape)))
        self.take("}")
        return array[tuple(indices)]

    def index_expression(self, scope: Mapping[str, Any], rank: int) -> Any:
        """One index: a letter where indices stand side by side, an expression where commas part them."""
        rest = self.tokens[self.at :]
        inside = rest[: rest.index("}")]
        if "," in inside or rank == 1 or any(t in inside for t in "+-"):
            return self.expression(scope)
        return scope[self.next()]

    def total(self, scope: Mapping[str, Any]) -> Any:
        self.take("_", "{")
        letter = self.next()
        self.take("=")
        low = self.expression(scope)
        self.take("}", "^")
        high = self.group(scope)
        self.count += 1
        binder = sympy.Symbol(f"bound{self.count}", integer=True)
        body = self.product({**scope, letter: binder})
        return sympy.Sum(body, (binder, low, high))

    def fraction(self, scope: Mapping[str, Any]) -> Any:
        if self.peek("{", "\\partial"):
            self.take("{", "\\partial")
            top = self.expression(scope)
            self.take("}", "{", "\\partial")
            bottom = self.expression(scope)
            self.take("}")
            return Diff(top, bottom)
        top = self.group(scope)
        return top / self.group(scope)

    def derivative(self, scope: Mapping[str, Any]) -> Any:
        self.take("{", "\\partial")
        entry = self.expression(scope)
        self.take("}", "[")
        inside = self.expression(scope)
        self.take("]")
        return Diff(inside, entry)

    def delta(self, scope: Mapping[str, Any]) -> Any:
        self.take("_", "{")
        first = self.index_expression(scope, 2)
        if self.peek(","):
            self.take(",")
        second = self.index_expression(scope, 2)
        self.take("}")
        return sympy.KroneckerDelta(first, second)

    def cases(self, scope: Mapping[str, Any]) -> Any:
        rows = []
        while True:
            value = self.expression(scope)
            self.take("&")
            if self.peek("\\text{otherwise}"):
                self.take("\\text{otherwise}", "\\end{cases}")
                return sympy.Piecewise(*rows, (value, True))
            rows.append((value, self.condition(scope)))
            self.take("\\\\")

    def condition(self, scope: Mapping[str, Any]) -> Any:
        parts = [self.relation(scope)]
        while self.peek("\\land"):
            self.take("\\land")
            parts.append(self.relation(scope))
        return sympy.And(*parts)

    def relation(self, scope: Mapping[str, Any]) -> Any:
        bracket = self.peek("(")
        if bracket:
            self.take("(")
        left = self.expression(scope)
        sign = self.next()
        right = self.expression(scope)
        if bracket:
            self.take(")")
        relations = {"=": sympy.Eq, "<": sympy.StrictLessThan, "\\le": sympy.LessThan, "\\ne": sympy.Ne}
        return relations[sign](left, right)


# ---- matrix form --------------------------------------------------------------------------------------------------


class MatrixReader(Reader):
    """Matrix form to an entry: products, ∘, transposes and row sums written out with indices."""

    def entry_of(self, tex: str, row: Any, column: Any) -> Any:
        self.tokens = _TOKEN.findall(tex)
        assert "".join(self.tokens) == tex.replace(" ", "")
        self.at = 0
        value, _ = self.matrix_sum()
        assert self.at == len(self.tokens)
        return value(row, column)

    def fresh(self) -> Any:
        self.count += 1
        return sympy.Symbol(f"bound{self.count}", integer=True)

    def matrix_sum(self) -> tuple[Any, Any]:
        terms = []
        sign = 1
        if self.peek("-"):
            self.take("-")
            sign = -1
        while True:
            value, shape = self.matrix_term()
            terms.append((sign, value, shape))
            if self.peek("+") or self.peek("-"):
                sign = 1 if self.next() == "+" else -1
                continue
            shapes = [s for _, _, s in terms if s[1] is not None]
            return (lambda r, c: sum(s * v(r, c) for s, v, _ in terms)), (shapes or [terms[0][2]])[0]

    def matrix_term(self) -> tuple[Any, Any]:
        value, shape = self.matrix_chain()
        while self.at < len(self.tokens):
            if self.peek("\\circ"):
                self.take("\\circ")
                other, _ = self.matrix_chain()
                value = (lambda f, g: lambda r, c: f(r, c) * g(r, c))(value, other)
            elif self.peek("/"):
                self.take("/")
                below = self.factor({})
                value = (lambda f, x: lambda r, c: f(r, c) / x)(value, below)
            else:
                break
        return value, shape

    def matrix_chain(self) -> tuple[Any, Any]:
        value, shape = self.matrix_factor()
        while self.at < len(self.tokens) and self.tokens[self.at] not in ("+", "-", ")", "/", "\\circ"):
            other, right = self.matrix_factor()
            binder = self.fresh()
            assert shape[1] == right[0], "the inner sizes of a product differ"
            value = (lambda f, g, b, size: lambda r, c: sympy.Sum(f(r, b) * g(b, c), (b, 0, size - 1)))(
                value, other, binder, shape[1]
            )
            shape = (shape[0], right[1])
        return value, shape

    def matrix_factor(self) -> tuple[Any, Any]:
        array = self.named(self.arrays)
        if array is not None:
            if len(array.shape) == 1:
                value, shape = (lambda r, c: array[r]), (array.shape[0], None)
            else:
                value, shape = (lambda r, c: array[r, c]), tuple(array.shape)
        elif self.peek("\\operatorname{rowsum}"):
            self.take("\\operatorname{rowsum}", "(")
            inner, inside = self.matrix_sum()
            self.take(")")
            binder = self.fresh()
            value, shape = (lambda r, c: sympy.Sum(inner(r, binder), (binder, 0, inside[1] - 1))), (inside[0], None)
        else:
            self.take("(")
            value, shape = self.matrix_sum()
            self.take(")")
        if self.peek("^", "\\top"):
            self.take("^", "\\top")
            return (lambda f: lambda r, c: f(c, r))(value), (shape[1], shape[0])
        return value, shape
