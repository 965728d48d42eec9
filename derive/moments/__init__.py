"""Moments of attention scores at symbolic sizes: mean, variance, covariance, cumulants, any power.

>>> from derive import moments
>>> from derive.language import size
>>> d_k = size("d_k")
>>> q = moments.vector("q", d_k, law=moments.gaussian())
>>> k = moments.vector("k", d_k, law=moments.gaussian())
>>> moments.expect((q @ k) ** 4)
3*d_k**2 + 6*d_k
>>> moments.excess_kurtosis(q @ k)
6/d_k

Guarantees: results are exact for every value of the sizes. `expect` works by additive cumulants where they apply and
by index diagrams elsewhere; `method="both"` runs both and raises CheckersDisagree if they differ. Claims about moments
are judged by the rule "moment-routes" (`derive.moments.checking`).
Does not: simulate, or know a distribution (`derive.distributions` does, for Gaussian components).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import sympy

from derive.assumptions import Assumption
from derive.errors import CheckersDisagree, InputError
from derive.moments import algebra, inputs
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.laws import (
    Law,
    from_cumulants,
    gaussian,
    he,
    inverse_root,
    laplace,
    lecun,
    mean_variance,
    orthogonal,
    rademacher,
    shaped,
    shifted_exponential,
    student,
    truncated_gaussian,
    uniform,
    xavier,
)
from derive.moments.layers import expect_by_layers
from derive.moments.model import Model, model_of
from derive.moments.nodes import (
    Covariance,
    Cumulant,
    ExcessKurtosis,
    Expect,
    PowerSum,
    Skewness,
    Variance,
    cumulants_of,
)
from derive.moments.objects import Array, Quantity, correlated, fixed, matrix, vector
from derive.moments.reader import read
from derive.moments.traces import NotLayered
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Verdict

Method = Literal["auto", "diagrams", "cumulants", "both"]

__all__ = [
    "Array",
    "Law",
    "Quantity",
    "correlated",
    "covariance",
    "cumulant",
    "excess_kurtosis",
    "expect",
    "fixed",
    "from_cumulants",
    "gaussian",
    "he",
    "inverse_root",
    "laplace",
    "large",
    "lecun",
    "matrix",
    "mean_variance",
    "opened",
    "orthogonal",
    "rademacher",
    "shaped",
    "shifted_exponential",
    "skewness",
    "student",
    "truncated_gaussian",
    "uniform",
    "variance",
    "vector",
    "verdict",
    "xavier",
]


def expect(quantity: Quantity, *, method: Method = "auto") -> Any:
    """E of a random quantity, expanded, exact in every size.

    method: "cumulants" (fast; needs a sum of independent terms over one axis), "diagrams" (any polynomial), "auto",
    or "both". Raises MomentError where a moment that is needed does not exist or was not given.
    """
    _checked(quantity, "expect")
    if method not in get_args(Method):
        raise InputError(f"method: expected one of {', '.join(get_args(Method))}, got {inputs.shown(method)}")
    return _expected(quantity.expr, model_of(quantity.assumptions()), method)


def _checked(quantity: Any, what: str) -> None:
    if isinstance(quantity, Array):
        raise InputError(f"{what}: expected a random quantity, got an array: take a product, q @ k, or an entry, q[0]")
    if not isinstance(quantity, Quantity):
        raise InputError(f"{what}: expected a random quantity such as (q @ k) ** 2, got {inputs.shown(quantity)}")


def _expected(expr: Any, model: Model, method: Method) -> Any:
    polynomial = read(expr)
    if method == "diagrams":
        return expect_by_diagrams(polynomial, model)
    if method == "cumulants":
        return expect_by_layers(polynomial, model)
    try:
        found = expect_by_layers(polynomial, model)
    except NotLayered:
        if method == "both":
            raise
        return expect_by_diagrams(polynomial, model)
    if method == "both":
        other = expect_by_diagrams(polynomial, model)
        if not algebra.same(found, other):
            raise CheckersDisagree(f"additive cumulants give {found}, diagrams {other} for {expr}")
    return found


def covariance(one: Quantity, other: Quantity) -> Any:
    """E[xy] − E[x] E[y]."""
    _checked(one, "covariance")
    _checked(other, "covariance")
    return sympy.expand(expect(one * other) - expect(one) * expect(other))


def variance(quantity: Quantity) -> Any:
    """E[x²] − E[x]²."""
    _checked(quantity, "variance")
    return covariance(quantity, quantity)


def cumulant(quantity: Quantity, order: int) -> Any:
    """The cumulant of this order, 1 to 10; the second is the variance, the third the third central moment."""
    _checked(quantity, "cumulant")
    order = inputs.whole(order, "order of a cumulant", 1, 10)
    return cumulants_of([sympy.S.One] + [expect(quantity**r) for r in range(1, order + 1)])[order]


def skewness(quantity: Quantity) -> Any:
    """κ₃ / κ₂^(3/2)."""
    return sympy.factor(cumulant(quantity, 3)) / sympy.sqrt(sympy.factor(variance(quantity))) ** 3


def excess_kurtosis(quantity: Quantity) -> Any:
    """κ₄ / κ₂²: kurtosis − 3, which is 0 for a Gaussian."""
    return sympy.cancel(cumulant(quantity, 4) / variance(quantity) ** 2)


def opened(result: Any) -> Any:
    """A result with every Gram entry and power sum of a fixed array written out as a SymPy Sum over its entries."""
    if not isinstance(result, sympy.Basic):
        raise InputError(f"opened: expected a result, as expect(…) gives it, got {inputs.shown(result)}")
    return result.xreplace({node: node.opened() for node in result.atoms(PowerSum)})


def verdict(of: Callable[..., Any], *quantities: Any, equals: Any, assuming: tuple[Assumption, ...] = ()) -> Verdict:
    """Judge a formula of the reader's own by the rule "moment-routes".

    of: expect, variance, covariance, cumulant, skewness or excess_kurtosis; quantities: its arguments; equals: the
    formula. assuming: further conditions, as AtLeast(d_k, 1) for a formula that divides by d_k.

    >>> from derive.language import size
    >>> d = size("d_k")
    >>> q, k = (vector(name, d, law=gaussian()) for name in "qk")
    >>> str(verdict(variance, q @ k, equals=d))
    'Proved: all sizes'
    >>> verdict(variance, q @ k, equals=d**2).evidence["values"]
    {'d_k': '2'}
    """
    nodes: dict[Callable[..., Any], Any] = {
        expect: Expect,
        variance: Variance,
        covariance: Covariance,
        cumulant: Cumulant,
        skewness: Skewness,
        excess_kurtosis: ExcessKurtosis,
    }
    if of not in nodes:
        known = ", ".join(f.__name__ for f in nodes)
        raise InputError(f"verdict: expected one of the functions {known}, got {of!r}")
    wanted = {covariance: "two random quantities", cumulant: "a random quantity and an order"}.get(of)
    if len(quantities) != (2 if wanted else 1):
        told = wanted or "one random quantity, such as q @ k"
        raise InputError(f"verdict: {of.__name__} takes {told}; got {len(quantities)} arguments")
    random = list(quantities[: 1 if of is cumulant else None])
    for one in random:
        _checked(one, "verdict")
    order = () if of is not cumulant else (sympy.Integer(inputs.whole(quantities[1], "order of a cumulant", 1, 10)),)
    if isinstance(assuming, Assumption) or not all(isinstance(a, Assumption) for a in _listed(assuming)):
        raise InputError(
            f"assuming: expected a tuple of conditions, as (AtLeast(d_k, 1),), got {inputs.shown(assuming)}"
        )
    whole = sum(random[1:], random[0])
    lhs = nodes[of](*(x.expr for x in random), *order)
    formula = inputs.exact(equals, "equals")
    return check_step(Step(lhs, formula, "moment-routes", assumptions=(*whole.assumptions(), *assuming)))


def large(expr: Any, size: Any, *, terms: int = 1) -> Any:
    """The first `terms` terms of an expression for large size, in falling powers of it.

    >>> from derive.language import size
    >>> d = size("d_k")
    >>> large(3 + 6 / d, d), large(3 * d * (d + 2), d, terms=2)
    (3, 3*d_k**2 + 6*d_k)
    """
    whole = inputs.exact(expr, "expression")
    if not isinstance(size, sympy.Symbol):
        raise InputError(f'large: expected the size that grows, as size("d_k"), got {inputs.shown(size)}')
    found = sympy.S.Zero
    for _ in range(inputs.whole(terms, "terms", 1)):
        found += algebra.leading_term(whole - found, size)
    return found


def _listed(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)
