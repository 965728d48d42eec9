"""Nodes for statements about random arrays: expectation, variance, covariance, cumulant, skewness, excess kurtosis.

Guarantees: the nodes are opaque; SymPy never evaluates them, and `in_expectations` rewrites each by its definition
into `Expect` alone, so that every engine has one node to understand. `PowerSum` names the one kind of number that
fixed inputs leave behind, and `opened` writes it out as a sum.
Does not: know any law; that is `derive.moments.laws`, given beside the statement.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError


class _Node(sympy.Expr):
    """A function of random expressions that SymPy must not look into."""

    # Commutative and real by construction: each is a number.
    is_commutative = True
    is_real: bool | None = True
    latex_name = ""

    def __new__(cls, *args: Any) -> Any:
        return sympy.Expr.__new__(cls, *(sympy.sympify(a, strict=True) for a in args))

    def _latex(self, printer: Any) -> str:
        return rf"\operatorname{{{self.latex_name}}}\left[{', '.join(printer.doprint(a) for a in self.args)}\right]"

    def in_expectations(self) -> Any:
        """The node by its definition, in `Expect` only."""
        raise NotImplementedError


class Expect(_Node):
    """Expect(f): the mean of f over every random array in it."""

    latex_name = "E"

    def _latex(self, printer: Any) -> str:
        return rf"\mathbb{{E}}\left[{printer.doprint(self.args[0])}\right]"

    def in_expectations(self) -> Any:
        return self


class Covariance(_Node):
    """Covariance(f, g) = E[fg] − E[f] E[g]."""

    latex_name = "Cov"

    def in_expectations(self) -> Any:
        f, g = self.args
        return Expect(f * g) - Expect(f) * Expect(g)


class Variance(_Node):
    """Variance(f) = E[f²] − E[f]²."""

    latex_name = "Var"

    def in_expectations(self) -> Any:
        (f,) = self.args
        return Expect(f**2) - Expect(f) ** 2


class Cumulant(_Node):
    """Cumulant(f, r): the r-th cumulant, r = 1 … 8; the third is the third central moment."""

    latex_name = "Cum"

    def __new__(cls, f: Any, order: Any) -> Any:
        r = sympy.sympify(order, strict=True)
        if not (r.is_Integer and 1 <= r <= 8):
            raise StatementError(f"Cumulant: expected an order from 1 to 8, got {order}")
        return _Node.__new__(cls, f, r)

    @property
    def order(self) -> int:
        return int(self.args[1])

    def _latex(self, printer: Any) -> str:
        return rf"\kappa_{{{self.order}}}\left[{printer.doprint(self.args[0])}\right]"

    def in_expectations(self) -> Any:
        moments = [sympy.S.One] + [Expect(self.args[0] ** r) for r in range(1, self.order + 1)]
        return cumulants_of(moments)[self.order]


class Skewness(_Node):
    """Skewness(f) = κ₃ / κ₂^(3/2)."""

    latex_name = "Skew"

    def in_expectations(self) -> Any:
        (f,) = self.args
        return Cumulant(f, 3).in_expectations() / sympy.sqrt(Variance(f).in_expectations()) ** 3


class ExcessKurtosis(_Node):
    """ExcessKurtosis(f) = κ₄ / κ₂² = E[(f − E f)⁴] / Var(f)² − 3: 0 for a Gaussian."""

    latex_name = "ExKurt"

    def in_expectations(self) -> Any:
        (f,) = self.args
        return Cumulant(f, 4).in_expectations() / Variance(f).in_expectations() ** 2


def cumulants_of(moments: list[Any]) -> list[Any]:
    """Cumulants κ₀ = 0, κ₁ … from raw moments m₀ = 1, m₁ …: m_r = Σ_s C(r−1, s−1) κ_s m_{r−s}."""
    found = [sympy.S.Zero]
    for r in range(1, len(moments)):
        rest = [sympy.binomial(r - 1, s - 1) * found[s] * moments[r - s] for s in range(1, r)]
        found.append(sympy.expand(moments[r] - sympy.Add(*rest)))
    return found


def raw_moments_of(cumulants: list[Any]) -> list[Any]:
    """Raw moments m₀ = 1, m₁ … from cumulants κ₀ (unused), κ₁ …: the complete Bell polynomials."""
    found = [sympy.S.One]
    for r in range(1, len(cumulants)):
        terms = [sympy.binomial(r - 1, s - 1) * cumulants[s] * found[r - s] for s in range(1, r + 1)]
        found.append(sympy.expand(sympy.Add(*terms)))
    return found


class PowerSum(sympy.Expr):
    """PowerSum(X, D, i, j, …) = Σ_a X[i,a] X[j,a] … over a = 0 … D−1, for a fixed X.

    With two rows it is the Gram entry ⟨x_i, x_j⟩. Rows are unordered: they are kept in one canonical order.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, base: Any, count: Any, *rows: Any) -> Any:
        if not rows:
            raise StatementError("PowerSum: expected at least one row, got none")
        ordered = sorted((sympy.sympify(r, strict=True) for r in rows), key=sympy.default_sort_key)
        return sympy.Expr.__new__(cls, base, sympy.sympify(count, strict=True), *ordered)

    @property
    def base(self) -> Any:
        return self.args[0]

    @property
    def count(self) -> Any:
        return self.args[1]

    @property
    def rows(self) -> tuple[Any, ...]:
        return tuple(self.args[2:])

    def opened(self) -> Any:
        """The sum written out with a binder of its own."""
        a = sympy.Dummy("a", integer=True)
        body = sympy.Mul(*(self.base[row, a] for row in self.rows))
        return sympy.Sum(body, (a, 0, self.count - 1))

    def _sympystr(self, printer: Any) -> str:
        return f"<{', '.join(printer.doprint(r) for r in self.rows)}>"

    def _latex(self, printer: Any) -> str:
        name = printer.doprint(self.base.label).lower()
        inside = ", ".join(f"{name}_{{{printer.doprint(r)}}}" for r in self.rows)
        return rf"\left\langle {inside} \right\rangle"


class Density(_Node):
    """Density(f, z): the probability density of f at z."""

    latex_name = "PDF"


class Distribution(_Node):
    """Distribution(f, z) = P(f ≤ z)."""

    latex_name = "CDF"

    def _latex(self, printer: Any) -> str:
        return rf"\mathbb{{P}}\left[{printer.doprint(self.args[0])} \le {printer.doprint(self.args[1])}\right]"


class CharacteristicFunction(_Node):
    """CharacteristicFunction(f, t) = E e^(itf)."""

    is_real = None
    latex_name = "CF"

    def _latex(self, printer: Any) -> str:
        f, t = (printer.doprint(a) for a in self.args)
        return rf"\mathbb{{E}}\left[e^{{i {t} {f}}}\right]"


class KolmogorovDistance(_Node):
    """KolmogorovDistance(f) = sup_x |P(f ≤ x) − Φ(x)|, to the standard normal."""

    latex_name = "KS"


class WassersteinDistance(_Node):
    """WassersteinDistance(f) = ∫ |P(f ≤ x) − Φ(x)| dx, to the standard normal."""

    latex_name = "W1"


class TotalVariationDistance(_Node):
    """TotalVariationDistance(f) = ½ ∫ |p_f − φ|, to the standard normal."""

    latex_name = "TV"


NODES = (Expect, Covariance, Variance, Cumulant, Skewness, ExcessKurtosis)


def in_expectations(statement: Any) -> Any:
    """The statement with every node replaced by its definition in `Expect`. Inner nodes come first."""
    if not getattr(statement, "args", ()):
        return statement
    if not statement.has(*NODES):
        return statement
    rebuilt = statement.func(*(in_expectations(a) for a in statement.args))
    return rebuilt.in_expectations() if isinstance(rebuilt, NODES) else rebuilt
