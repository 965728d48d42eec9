"""Laws of entries: what is known of one random number, as cumulants of every order that exists.

Guarantees: a cumulant that does not exist (Student's t) or was not given raises MomentError and is never taken for 0.
Does not: sample. All parameters may be symbols.

Cumulants determine raw moments (complete Bell polynomials, `nodes.raw_moments_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from derive.errors import InputError, MomentError
from derive.moments import inputs
from derive.moments.nodes import cumulants_of, raw_moments_of


@dataclass(frozen=True, eq=False)
class Law:
    """The law of one entry. name: how it is printed. cumulant_of(r): the r-th cumulant, r ≥ 1; raises MomentError.

    Two laws are equal only when they are one object: names do not decide.
    """

    name: str
    cumulant_of: Callable[[int], Any] = field(repr=False)

    def cumulant(self, order: int) -> Any:
        """The cumulant of this order ≥ 1. Raises MomentError where it does not exist or is not known."""
        return self.cumulant_of(inputs.whole(order, "cumulant", 1))

    def moment(self, order: int) -> Any:
        """E[x^order]. Raises MomentError where it does not exist or is not known."""
        inputs.whole(order, "moment", 0)
        return raw_moments_of([sympy.S.Zero] + [self.cumulant(r) for r in range(1, order + 1)])[order]

    def __str__(self) -> str:
        return self.name


def from_cumulants(cumulants: Mapping[int, Any] | Sequence[Any], *, name: str = "", rest: Any = None) -> Law:
    """A law known by its cumulants: {1: mean, 2: variance, 3: …} or the sequence [mean, variance, …].

    Orders that were not given are unknown (MomentError when one is needed), or all equal to `rest` (0, say). Raises
    InputError for anything else, and for numbers that no law has.
    """
    if isinstance(cumulants, str) or not isinstance(cumulants, (Mapping, Sequence)) or not cumulants:
        got = "none" if cumulants == [] or cumulants == {} else inputs.shown(cumulants)
        raise InputError(f"cumulants: expected [mean, variance, …] or {{1: mean, 2: variance, …}}, got {got}")
    if not isinstance(cumulants, Mapping):
        cumulants = dict(enumerate(cumulants, start=1))
    orders = {inputs.whole(r, "cumulants: orders from 1 up", 1): value for r, value in cumulants.items()}
    table = {r: inputs.exact(value, f"cumulant {r}") for r, value in orders.items()}
    others = None if rest is None else inputs.exact(rest, "rest")
    if name:
        inputs.name(name, "name of the law")
    _check_possible(table)
    text = name or "cumulants " + ", ".join(f"κ{r} = {table[r]}" for r in sorted(table))

    def value(order: int) -> Any:
        if order in table:
            return table[order]
        if others is not None:
            return others
        raise MomentError(f"the cumulant of order {order} is needed, but only {sorted(table)} were given ({text})")

    return Law(text, value)


def _check_possible(table: Mapping[int, Any]) -> None:
    """Refuse numbers that no law has: a negative variance, or κ₄ κ₂ < κ₃² − 2 κ₂³ (kurtosis ≥ skewness² + 1)."""
    variance, third, fourth = (table.get(r) for r in (2, 3, 4))
    if variance is not None and (variance.is_negative or (variance.is_nonpositive and not variance.is_zero)):
        raise InputError(f"variance: expected a number of at least 0, got {variance}")
    if variance is None or fourth is None:
        return
    # An unknown κ₃ only makes the left side smaller.
    slack = fourth * variance - (third or 0) ** 2 + 2 * variance**3
    if slack.is_negative:
        told = f"κ2 = {variance}, " + (f"κ3 = {third}, " if third is not None else "") + f"κ4 = {fourth}"
        raise InputError(f"no law has the cumulants {told}: κ4 κ2 ≥ κ3² − 2 κ2³")


def mean_variance(mean: Any, variance: Any) -> Law:
    """Any law with this mean and variance; nothing is known beyond them."""
    name = f"mean {mean} and variance {variance}"
    return from_cumulants({1: mean, 2: variance}, name=name)


def gaussian(mean: Any = 0, variance: Any = 1) -> Law:
    """N(mean, variance): cumulants above the second are 0."""
    return from_cumulants({1: mean, 2: variance}, rest=0, name=f"N({mean}, {variance})")


def shaped(mean: Any, variance: Any, skewness: Any = None, excess_kurtosis: Any = None) -> Law:
    """A law by mean, variance, skewness and excess kurtosis (kurtosis − 3); what is None is unknown.

    κ₃ = skewness · variance^(3/2), κ₄ = excess_kurtosis · variance².
    """
    variance = inputs.exact(variance, "variance")
    table = {1: mean, 2: variance}
    text = [f"mean {mean}", f"variance {variance}"]
    if skewness is not None:
        table[3] = inputs.exact(skewness, "skewness") * sympy.sqrt(variance) ** 3
        text.append(f"skewness {skewness}")
    if excess_kurtosis is not None:
        table[4] = inputs.exact(excess_kurtosis, "excess_kurtosis") * variance**2
        text.append(f"excess kurtosis {excess_kurtosis}")
    return from_cumulants(table, name=", ".join(text))


def rademacher(scale: Any = 1) -> Law:
    """±scale with probability 1/2 each. κ_r = scale^r 2^r (2^r − 1) B_r / r, from log cosh."""
    s = inputs.exact(scale, "scale")

    def value(order: int) -> Any:
        if order % 2:
            return sympy.S.Zero
        return s**order * 2**order * (2**order - 1) * sympy.bernoulli(order) / order

    return Law("Rademacher" if s == 1 else f"±{s} with equal chance", value)


def uniform(low: Any = -1, high: Any = 1) -> Law:
    """Uniform on [low, high]: κ₁ = (low + high)/2, κ_r = B_r (high − low)^r / r."""
    a, b = inputs.exact(low, "low"), inputs.exact(high, "high")
    if (b - a).is_nonpositive:
        raise InputError(f"uniform: expected low < high, got {a} and {b}")

    def value(order: int) -> Any:
        return (a + b) / 2 if order == 1 else sympy.bernoulli(order) * (b - a) ** order / order

    return Law(f"uniform on [{a}, {b}]", value)


def laplace(location: Any = 0, scale: Any = 1) -> Law:
    """Density e^(−|x − location|/scale)/(2 scale): κ_r = 2 (r−1)! scale^r for even r."""
    m, b = inputs.exact(location, "location"), inputs.positive(scale, "scale")

    def value(order: int) -> Any:
        if order == 1:
            return m
        return sympy.S.Zero if order % 2 else 2 * sympy.factorial(order - 1) * b**order

    return Law(f"Laplace({m}, {b})", value)


def shifted_exponential(scale: Any = 1, shift: Any = 0) -> Law:
    """shift + an exponential of mean `scale`: κ₁ = scale + shift, κ_r = (r−1)! scale^r."""
    b, a = inputs.positive(scale, "scale"), inputs.exact(shift, "shift")

    def value(order: int) -> Any:
        return b + a if order == 1 else sympy.factorial(order - 1) * b**order

    return Law(f"{a} + exponential of mean {b}", value)


def student(dof: Any, scale: Any = 1) -> Law:
    """scale · Student's t with dof degrees of freedom. Moments of order ≥ dof do not exist: MomentError.

    E t^(2r) = dof^r Γ(r + 1/2) Γ(dof/2 − r) / (√π Γ(dof/2)) = dof^r Π_{i=1..r} (2i−1)/(dof − 2i).
    """
    nu, s = inputs.exact(dof, "dof"), inputs.exact(scale, "scale")
    if not nu.is_number:
        raise InputError(
            f"student: expected a number of degrees of freedom, got {dof}: which moments exist depends on it"
        )
    if not nu.is_positive:
        raise InputError(f"student: expected degrees of freedom above 0, got {nu}")

    def raw(order: int) -> Any:
        if order % 2:
            return sympy.S.Zero
        factors = [(2 * i - 1) * nu / (nu - 2 * i) for i in range(1, order // 2 + 1)]
        return s**order * sympy.Mul(*factors)

    def value(order: int) -> Any:
        if not order < nu:
            raise MomentError(
                f"the moment of order {order} of Student's t with {nu} degrees of freedom does not exist: "
                f"only orders below {nu} do"
            )
        return cumulants_of([raw(r) for r in range(order + 1)])[order]

    return Law(f"Student t, {nu} degrees of freedom" + ("" if s == 1 else f", times {s}"), value)


def truncated_gaussian(deviation: Any, cut: Any = 2) -> Law:
    """deviation · a standard normal conditioned on |z| ≤ cut (cut in units of `deviation`, as initialisers draw it).

    Raw even moments by parts: m_r = (r−1) m_{r−2} − 2 cut^(r−1) φ(cut) / erf(cut/√2).
    """
    s, c = inputs.exact(deviation, "deviation"), inputs.positive(cut, "cut")
    edge = 2 * sympy.exp(-(c**2) / 2) / sympy.sqrt(2 * sympy.pi) / sympy.erf(c / sympy.sqrt(2))

    def raw(order: int) -> Any:
        if order == 0:
            return sympy.S.One
        return sympy.S.Zero if order % 2 else (order - 1) * raw(order - 2) - c ** (order - 1) * edge

    def value(order: int) -> Any:
        return s**order * cumulants_of([raw(r) for r in range(order + 1)])[order]

    return Law(f"N(0, {s**2}) cut at ±{c} deviations", value)


@dataclass(frozen=True, eq=False)
class Uncorrelated:
    """Entries known to second order: mean 0, this variance, any two at different places uncorrelated.

    That is weaker than independence, and all a statement needs that uses at most two entries of the array in a term.
    Haar-distributed matrices with orthonormal columns are of this kind, with variance 1/rows: changing the sign of a
    row or a column, or exchanging rows or columns, leaves their law as it is, and each column has length 1.
    """

    variance: Any
    name: str = ""

    def joint_cumulant(self, counts: tuple[int, ...]) -> Any:
        if sum(counts) > 2:
            raise MomentError(f"{self}: nothing is known of more than two entries in one product")
        return sympy.S.Zero if sum(counts) == 1 else sympy.sympify(self.variance, strict=True)

    def __str__(self) -> str:
        return self.name or f"mean 0, variance {self.variance}, uncorrelated"


def orthogonal(rows: Any) -> Uncorrelated:
    """Haar-distributed with orthonormal columns, `rows` rows: known to second order, E W_ac W_be = δ_ab δ_ce / rows."""
    size = inputs.size(rows, "rows", 1)
    return Uncorrelated(1 / size, f"Haar-distributed with orthonormal columns (variance 1/{size}, uncorrelated)")


def xavier(rows: Any, columns: Any, *, shape: str = "normal") -> Law:
    """Glorot's weights, variance 2/(rows + columns); shape: "normal", or "uniform" on ±√(6/(rows + columns))."""
    return _weights(2 / (inputs.size(rows, "rows", 1) + inputs.size(columns, "columns", 1)), shape)


def lecun(rows: Any, *, shape: str = "normal") -> Law:
    """LeCun's weights, variance 1/rows; shape: "normal", or "uniform" on ±√(3/rows)."""
    return _weights(1 / inputs.size(rows, "rows", 1), shape)


def he(rows: Any, *, shape: str = "normal") -> Law:
    """He's weights, variance 2/rows; shape: "normal", or "uniform" on ±√(6/rows)."""
    return _weights(2 / inputs.size(rows, "rows", 1), shape)


def inverse_root(rows: Any) -> Law:
    """Uniform on ±1/√rows, the default of many libraries' linear layers: variance 1/(3 rows)."""
    return _weights(1 / (3 * inputs.size(rows, "rows", 1)), "uniform")


def _weights(variance: Any, shape: str) -> Law:
    if shape == "normal":
        return gaussian(0, variance)
    if shape == "uniform":
        edge = sympy.sqrt(3 * variance)
        return uniform(-edge, edge)
    raise InputError(f'shape of the weights: expected "normal" or "uniform", got {shape!r}')


@dataclass(frozen=True)
class Support:
    """A finite law: values with weights that sum to 1, for exact enumeration.

    Weights may be negative: an expectation is linear in the law of each entry, so a signed law with the right
    moments up to the order that appears gives the same expectation as any other law with those moments.
    """

    values: tuple[Any, ...]
    weights: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.weights) or sum(self.weights) != 1:
            raise InputError(f"Support: expected as many weights as values, summing to 1, got {self}")

    def moment(self, order: int) -> Any:
        return sum(w * v**order for v, w in zip(self.values, self.weights, strict=True))

    def cumulant(self, order: int) -> Any:
        return cumulants_of([sympy.sympify(self.moment(r), strict=True) for r in range(order + 1)])[order]

    def law(self) -> Law:
        return Law(f"finite support {self.values}", self.cumulant)
