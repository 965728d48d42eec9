"""Constants of the largest of n standard normals, as nodes of statements.

Guarantees: opaque to SymPy; `evalf` and `sympy.lambdify(…, modules=[NUMERIC_FUNCTIONS, "numpy"])` give the exact
numbers of `derive.oracle_order`.
Does not: know a closed form (there is none beyond n = 5).
"""

from __future__ import annotations

from typing import Any

import sympy

from derive import oracle_order
from derive.row_nodes import Mean, floats


class _Constant(sympy.Function):
    """A number that depends on n alone and has no closed form; evaluates by `derive.oracle_order`."""

    nargs = 1
    tex = ""

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"{self.tex}_{{{printer.doprint(self.args[0])}}}"
        return text if exp is None else f"{text}^{{{exp}}}"

    @staticmethod
    def number(n: float) -> float:
        raise NotImplementedError

    def _eval_evalf(self, prec: int) -> Any:
        values = floats(self.args)
        return None if values is None else sympy.Float(self.number(values[0]))


class mu(_Constant):
    """mu(n): the mean of the largest of n standard normals; mu(2) = 1/√π."""

    tex = r"\mu"

    @staticmethod
    def number(n: float) -> float:
        return oracle_order.expected_maximum(n)


class freezing(_Constant):
    """freezing(n) = b_n: n φ(b)/b = 1."""

    tex = "b"

    @staticmethod
    def number(n: float) -> float:
        return oracle_order.freezing_point(n)


class gap_median(_Constant):
    """gap_median(n): median of the gap between the two largest of n standard normals."""

    tex = r"\tilde\delta"

    @staticmethod
    def number(n: float) -> float:
        return oracle_order.gap_median(n)


class GapTail(Mean):
    """GapTail(t, n): probability that the two largest of n standard normals differ by more than t."""

    nargs = 2
    averaged = 0

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        t, n = (printer.doprint(a) for a in self.args)
        return rf"\mathbb{{P}}\left[\delta_{{{n}}} \ge {t}\right]"

    def setting(self) -> dict[str, Any] | None:
        return None

    def _eval_evalf(self, prec: int) -> Any:
        values = floats(self.args)
        return None if values is None else sympy.Float(oracle_order.gap_tail(*values))


# For sympy.lambdify(arguments, law, modules=[NUMERIC_FUNCTIONS, "numpy"]).
NUMERIC_FUNCTIONS = {c.__name__: c.number for c in (mu, freezing, gap_median)}
