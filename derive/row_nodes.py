"""Nodes for statements about one row of softmax attention with random scores.

Guarantees: the nodes are opaque to SymPy, carry every parameter their value depends on, and evaluate to the exact
oracle's numbers (`evalf`); a right side built from them is a function of its free symbols.
Does not: know any law.

RowMean(f, n, v): mean of f over n i.i.d. N(0, v) scores. HeadMean(f, n, d_k, s): over scores s q·k with independent
standard normal queries and keys. SelfMean: self-attention from one X (see `derive.oracle_self_attention`). f is an
expression in the symbols below, for one row:

p(k) = Σ_j α_j^k; LOG_Z; H, the entropy; M1 = Σ_j α_j x_j, x the scores; TOP = max_j α_j; and for J = diag(α) - ααᵀ
and the standardised scores z: TR = tr J, J2 = ‖J‖_F², NORM_J its root, JZ2 = ‖Jz‖², ZJZ = zᵀJz, AZ2 = (α·z)².
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError

_TEX = {
    "log_Z": r"\log Z",
    "H": "H",
    "alpha_max": r"\max_j\alpha_j",
    "alpha_dot_x": r"\alpha\cdot x",
    "tr_J": r"\operatorname{tr}J",
    "norm2_J": r"\|J\|_F^2",
    "norm_J": r"\|J\|_F",
    "norm2_Jz": r"\|Jz\|^2",
    "cos": r"\cos",
    "zJz": r"z^{\top}\!Jz",
    **{of: of for of in ("q", "k", "v", "S")},
    "alpha_z_squared": r"(\alpha\cdot z)^2",
    "W_Q": "W^Q",
    "W_V": "W^V",
    "W_K": "W^K",
}


class RowSymbol(sympy.Symbol):
    """A number of one random row, printed as it is written on paper."""

    def _latex(self, printer: Any) -> str:
        return _TEX[self.name]


def p(k: int) -> Any:
    """Σ_j α_j^k; p(1) is 1."""
    if k < 1:
        raise StatementError(f"p({k}): expected a power of at least 1")
    return sympy.Integer(1) if k == 1 else sympy.Symbol(f"p_{k}", positive=True)


LOG_Z = RowSymbol("log_Z", real=True)
H = RowSymbol("H", real=True)
TOP = RowSymbol("alpha_max", positive=True)
COS = RowSymbol("cos", real=True)
M1 = RowSymbol("alpha_dot_x", real=True)
TR = RowSymbol("tr_J", real=True)
J2 = RowSymbol("norm2_J", real=True)
NORM_J = RowSymbol("norm_J", positive=True)
JZ2 = RowSymbol("norm2_Jz", real=True)
ZJZ = RowSymbol("zJz", real=True)
AZ2 = RowSymbol("alpha_z_squared", nonnegative=True)

# What the names abbreviate, in power sums, log Z and α·x. H = log Z - α·x because -log α_j = log Z - x_j.
DEFINITIONS = {TR: 1 - p(2), J2: p(2) - 2 * p(3) + p(2) ** 2, H: LOG_Z - M1}

_ORACLE = {
    p(2): "p2",
    p(3): "p3",
    p(4): "p4",
    p(2) ** 2: "p2_squared",
    LOG_Z: "log_z",
    H: "entropy",
    TOP: "maximum",
    1 - TOP: "one_minus_maximum",
    TR: "trace",
    1 - p(2): "trace",
    TR**2: "trace_squared",
    J2: "jacobian",
    JZ2: "jacobian_direction",
    ZJZ: "direction_form",
    AZ2: "mean_squared",
    ZJZ**2: "direction_form_squared",
}


class Mean(sympy.Function):
    """A mean over a random row; SymPy must not look into its first argument."""

    is_commutative = True
    is_real = True
    averaged = 1  # leading arguments whose symbols are averaged over, and so are not parameters of the number

    @property
    def free_symbols(self) -> set[Any]:
        return set().union(*(a.free_symbols for a in self.args[self.averaged :]))

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body, under = printer.doprint(self.args[0]), ",".join(printer.doprint(a) for a in self._shown())
        text = rf"\mathbb{{E}}_{{{under}}}\left[{self._weight(printer)}{body}\right]"
        return text if exp is None else f"{text}^{{{exp}}}"

    def _shown(self) -> tuple[Any, ...]:
        """Parameters written under the E: all but n."""
        return tuple(self.args[2:])

    def _weight(self, printer: Any) -> str:
        return ""

    def setting(self) -> dict[str, Any] | None:
        """Arguments of `derive.oracle.expect`, or None while a parameter is symbolic."""
        raise NotImplementedError

    def _eval_evalf(self, prec: int) -> Any:
        setting = self.setting()
        return None if setting is None else sympy.Float(row_value(self.args[0], setting))


class RowMean(Mean):
    """RowMean(f, n, v): mean over n i.i.d. scores N(0, v)."""

    nargs = 3

    def setting(self) -> dict[str, Any] | None:
        values = floats(self.args[1:])
        return None if values is None else {"n": values[0], "sigma": values[1] ** 0.5}


class HeadMean(Mean):
    """HeadMean(f, n, d_k, s): mean over scores s q·k, q and n keys independent, standard normal, of size d_k."""

    nargs = 4

    def setting(self) -> dict[str, Any] | None:
        values = floats(self.args[1:])
        return None if values is None else dict(zip(("n", "d_k", "scale"), values, strict=True))


class SelfMean(Mean):
    """SelfMean(f, n, d_k, s, d_model, a, b): the same for self-attention from one X, with weights N(0, 1/d_model).

    a, b: degrees of freedom added to ‖u‖² and to ‖x_i‖² (see `derive.oracle_self_attention`): a mean weighted by
    ‖u‖², E[‖u‖² f], is the mean with a = 2, because χ²_D times the density of χ²_D is D times that of χ²_{D+2}.
    """

    nargs = 7

    def _shown(self) -> tuple[Any, ...]:
        return tuple(self.args[2:5])

    def _weight(self, printer: Any) -> str:
        width, along, row = self.args[4:]
        token = rf"\tfrac{{\|x_i\|^2}}{{{printer.doprint(width)}}}" if row == 2 else ""
        return (r"\|u\|^2" if along == 2 else "") + token

    def setting(self) -> dict[str, Any] | None:
        values = floats(self.args[1:])
        names = ("n", "d_k", "scale", "d_model", "along", "row")
        return None if values is None else dict(zip(names, values, strict=True))


def floats(arguments: tuple[Any, ...]) -> tuple[float, ...] | None:
    """The arguments as numbers, or None while one is symbolic."""
    numbers = [a.evalf(20) for a in arguments]
    return tuple(float(a) for a in numbers) if all(a.is_number for a in numbers) else None


def row_value(body: Any, setting: dict[str, Any]) -> float:
    """The oracle's value of a linear combination of the observables it knows."""

    def mean(name: str) -> float:
        from derive import oracle, oracle_self_attention

        if "along" in setting:
            return oracle_self_attention.row_mean(name, **setting)
        return float(oracle.expect(name, **setting).value)

    if body in _ORACLE:
        return mean(_ORACLE[body])
    total = 0.0
    for term in sympy.Add.make_args(sympy.expand(body)):
        factor, rest = term.as_coeff_Mul()
        if rest == 1:
            total += float(factor)
        elif rest in _ORACLE:
            total += float(factor) * mean(_ORACLE[rest])
        else:
            raise StatementError(f"the oracle has no value for {rest}; it knows {', '.join(map(str, _ORACLE))}")
    return total


class RowMedian(Mean):
    """RowMedian(f, n, v): median of f over n i.i.d. N(0, v) scores."""

    nargs = 3

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\operatorname{{median}}\left[{printer.doprint(self.args[0])}\right]"
        return text if exp is None else f"{text}^{{{exp}}}"

    def setting(self) -> dict[str, Any] | None:
        return None

    def _eval_evalf(self, prec: int) -> Any:
        return None  # no oracle: a median is not a mean


class RowShare(Mean):
    """RowShare(f, level, n, v): probability that f ≥ level, over n i.i.d. N(0, v) scores."""

    nargs = 4

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return rf"\mathbb{{P}}\left[{printer.doprint(self.args[0])}\ge {printer.doprint(self.args[1])}\right]"

    def setting(self) -> dict[str, Any] | None:
        return None

    def _eval_evalf(self, prec: int) -> Any:
        return None


class RowOverlap(Mean):
    """RowOverlap(n, v, rho): mean of Σ_k α_k β_k over two rows of n scores N(0, v), x_k and x'_k of correlation rho."""

    nargs = 3
    averaged = 0

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        under = ",".join(printer.doprint(a) for a in self.args[1:])
        return rf"\mathbb{{E}}_{{{under}}}\left[{{\textstyle\sum_k}}\alpha_k\beta_k\right]"

    def setting(self) -> dict[str, Any] | None:
        values = floats(self.args)
        return None if values is None else {"n": values[0], "sigma": values[1] ** 0.5, "correlation": values[2]}

    def _eval_evalf(self, prec: int) -> Any:
        from derive.oracle import expect

        setting = self.setting()
        return None if setting is None else sympy.Float(float(expect("overlap", **setting).value))


class CosMean(Mean):
    """CosMean(f, d): mean of f over c = cos of the angle between two independent uniform directions in d dimensions.

    f is a polynomial in the symbol `COS`.
    """

    nargs = 2

    def _shown(self) -> tuple[Any, ...]:
        return tuple(self.args[1:])

    def setting(self) -> dict[str, Any] | None:
        return None

    def _eval_evalf(self, prec: int) -> Any:
        return None


class Taylor(sympy.Function):
    """Taylor(f, v, order): the Taylor polynomial of f in v at 0, to v^order."""

    nargs = 3

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        f, v, order = (printer.doprint(a) for a in self.args)
        return rf"\mathcal{{T}}^{{{order}}}_{{{v}}}\!\left({f}\right)"


class LargeN(sympy.Function):
    """LargeN(f, n, order): the expansion of f in 1/n at fixed v, to relative order n^-order."""

    nargs = 3

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        f, n, order = (printer.doprint(a) for a in self.args)
        return rf"\mathcal{{A}}^{{{order}}}_{{1/{n}}}\!\left({f}\right)"
