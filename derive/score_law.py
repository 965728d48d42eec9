"""The rule "score-law": exact laws of a Gaussian score, and limits for large d_k, against numbers of another origin.

Guarantees: the right side, evaluated in 30-digit arithmetic, is compared with an integral over the length of q (given
q the score is Gaussian), which uses none of the formulas in `derive.distributions`. The verdict is never Proved: it is
Numeric, Refuted where a difference is far beyond every error, with the point and both numbers, or Unknown between.
Does not: take any other statement than one node about Σ_c q_c k_c with centred Gaussian components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import mpmath
import sympy

from derive import distributions
from derive.assumptions import RandomEntries
from derive.errors import MomentError
from derive.moments.laws import Law
from derive.moments.nodes import (
    CharacteristicFunction,
    Density,
    Distribution,
    KolmogorovDistance,
    TotalVariationDistance,
    WassersteinDistance,
)
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

_DIGITS = 30
# Agreement asked for: two thirds of the working digits. Rounding loses a few of them, quadrature says how many more.
_RESOLUTION = mpmath.mpf(10) ** -20
# A difference this many times what is allowed refutes. The quadrature's error is an estimate, and so is, more so, that
# of an extrapolation: between agreement and refutation the verdict is Unknown.
_CLEARLY = 10**6
_FAR = 20
# Relative accuracy that an extrapolated limit is told with, at least ten times coarser than its tolerance.
_SHARPNESS = 2e-4
_DISTANCES: dict[type, Callable[[int], Any]] = {
    KolmogorovDistance: distributions.kolmogorov,
    WassersteinDistance: distributions.wasserstein,
    TotalVariationDistance: distributions.total_variation,
}
_GRID = (32, 128, 512)


@rule("score-law")
def score_law(step: Step) -> Verdict:
    """The right side agrees with integrals over the length of the query to 20 digits on a grid, or with the limit.

    Given q, a score is N(0, σ_k² ‖q‖²), and ‖q‖/σ_q is χ-distributed: density, CDF and characteristic function are
    one-dimensional integrals of textbook functions. A limit for d_k → ∞ is compared with the exact distance at
    d_k = 32, 128, 512, extrapolated in 1/d_k; the last correction of the extrapolation is the tolerance. Needs the
    law of q and k as `RandomEntries` with centred Gaussian components.
    """
    try:
        deviations = _deviations(step)
    except MomentError as reason:
        return Verdict.unknown(str(reason))
    if step.relation == "limit":
        return _limit(step, deviations)
    if step.relation != "=":
        return Verdict.unknown(f"the rule score-law does not check {step.relation!r}")
    with mpmath.workdps(_DIGITS):
        return _pointwise(step, deviations)


def _deviations(step: Step) -> tuple[Any, Any]:
    """σ_q and σ_k. Raises MomentError unless the laws are centred Gaussian."""
    found = []
    for entry in step.assumptions:
        if isinstance(entry, RandomEntries):
            if not isinstance(entry.law, Law) or len(entry.arrays) != 1:
                raise MomentError("expected independent components with one Law each")
            cumulants = [entry.law.cumulant(r) for r in (1, 2, 3, 4)]
            if cumulants[0] != 0 or any(c != 0 for c in cumulants[2:]):
                raise MomentError(f"expected centred Gaussian components, got {entry.law}")
            found.append(sympy.sqrt(cumulants[1]))
    if len(found) != 2:
        raise MomentError(f"expected the laws of q and k, got {len(found)}")
    return found[0], found[1]


def _is_score(expr: Any, step: Step) -> bool:
    """Whether an expression is Σ_c q[c] k[c] for the two arrays of the laws, over step.data["size"] components."""
    arrays = [entry.arrays[0] for entry in step.assumptions if isinstance(entry, RandomEntries)]
    if not isinstance(expr, sympy.Sum) or len(expr.limits) != 1:
        return False
    binder, first, last = expr.limits[0]
    whole = first == 0 and last == step.data["size"] - 1
    return bool(whole and arrays[0] != arrays[1] and expr.function == arrays[0][binder] * arrays[1][binder])


def _chi_mean(d_k: int, f: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(E f(R), error estimate) for R ~ χ with d_k degrees of freedom; the integrand is split around its mass."""
    below = mpmath.gamma(mpmath.mpf(d_k) / 2) * mpmath.mpf(2) ** (mpmath.mpf(d_k) / 2 - 1)
    centre = mpmath.sqrt(d_k)
    parts = [0, centre / 4, centre / 2, centre, centre + 2, centre + 5, centre + 14]
    value, error = mpmath.quad(
        lambda r: f(r) * r ** (d_k - 1) * mpmath.exp(-r * r / 2) / below, parts, error=True, maxdegree=10
    )
    return value, error


def _reference(node: Any, d_k: int, scale: Any, at: Any) -> tuple[Any, Any]:
    if isinstance(node, CharacteristicFunction):
        return _chi_mean(d_k, lambda r: mpmath.exp(-((scale * at * r) ** 2) / 2))
    if isinstance(node, Density):
        return _chi_mean(d_k, lambda r: mpmath.npdf(at / (scale * r)) / (scale * r) if r else mpmath.mpf(0))
    return _chi_mean(d_k, lambda r: mpmath.ncdf(at / (scale * r)) if r else mpmath.mpf(at >= 0))


def _pointwise(step: Step, deviations: tuple[Any, Any]) -> Verdict:
    node = step.lhs
    if not isinstance(node, (CharacteristicFunction, Density, Distribution)):
        return Verdict.unknown(f"the rule score-law does not know {type(node).__name__}")
    if not _is_score(node.args[0], step):
        return Verdict.unknown("expected the sum of q_c k_c over all components")
    worst, bound, points = mpmath.mpf(0), _RESOLUTION, 0
    for values, d_k, scale, at in _points(step, deviations):
        expected, error = _reference(node, d_k, scale, at)
        got = _number(step.rhs, values)
        difference, allowed = abs(got - expected), max(10 * error, _RESOLUTION)
        if not difference <= allowed:  # so that a number that is none is refused too
            shown = {str(s): str(v) for s, v in values.items()}
            numbers = {"values": shown, "left": str(expected), "right": str(got), "error": str(error)}
            if difference > _CLEARLY * allowed:
                return Verdict.refuted("a point of the grid differs", **numbers)
            return Verdict.unknown("a point of the grid neither agrees nor clearly differs", **numbers)
        worst, bound, points = max(worst, difference), max(bound, allowed), points + 1
    # The scope says what was asked, which no rounding moves; what came out is evidence.
    asked = f"{float(_RESOLUTION):g}"
    within = asked if bound == _RESOLUTION else f"{asked} or ten times the error of the quadrature"
    return Verdict.numeric(f"{points} points, each within {within}", points=points, worst=str(worst))


def _points(step: Step, deviations: tuple[Any, Any]) -> Iterator[tuple[Mapping[Any, Any], int, Any, Any]]:
    """Numbers for d_k, σ_q, σ_k and the argument. Even d_k only where the statement holds for d_k = 2m."""
    size, argument = step.data["size"], step.lhs.args[1]
    fixed = None if isinstance(size, sympy.Symbol) else int(size)
    for d_k in (fixed,) if fixed is not None else (2, 3, 5, 8, 16):
        for s, u in ((1, 1), (sympy.Rational(3, 2), sympy.Rational(2, 3)), (sympy.Rational(1, 2), 3)):
            for at in (sympy.Rational(1, 3), sympy.Rational(3, 2), sympy.Integer(4), sympy.Rational(-5, 4)):
                values = {argument: at, deviations[0]: sympy.Rational(s), deviations[1]: sympy.Rational(u)}
                if fixed is None:
                    values[size] = sympy.Integer(d_k)
                scale = mpmath.mpf(sympy.Rational(s).p) / sympy.Rational(s).q
                scale *= mpmath.mpf(sympy.Rational(u).p) / sympy.Rational(u).q
                yield values, d_k, scale, mpmath.mpf(at.p) / at.q


def _number(expr: Any, values: Mapping[Any, Any]) -> Any:
    """An expression at exact numbers, as an mpmath number of the working precision."""
    value = expr.xreplace(dict(values)).evalf(_DIGITS + 10)
    return mpmath.mpmathify(str(value))


def _limit(step: Step, deviations: tuple[Any, Any]) -> Verdict:
    """lhs = d_k · distance(q·k/√d_k), rhs its limit: Richardson's extrapolation in 1/d_k from three exact values."""
    nodes = list(step.lhs.atoms(*_DISTANCES))
    size = step.data["size"]
    if len(nodes) != 1 or step.lhs != size * nodes[0] or not _is_score(nodes[0].args[0] * sympy.sqrt(size), step):
        return Verdict.unknown("expected d_k times one distance of q·k/√d_k to the normal")
    if deviations != (1, 1):
        return Verdict.unknown("expected components of variance 1")
    distance = _DISTANCES[type(nodes[0])]
    values = [d * distance(d) for d in _GRID]
    # Each value is limit + a/d + b/d² + …; steps of 4 in d.
    first = [(4 * b - a) / 3 for a, b in pairwise(values)]
    second = (16 * first[1] - first[0]) / 15
    tolerance = abs(second - first[1])
    claimed = _number(step.rhs, {})
    off = abs(second - claimed)
    if not tolerance <= _SHARPNESS * abs(second) / 10:  # so that no rounding reaches the level that is told
        return Verdict.unknown(f"the extrapolation moves by {mpmath.nstr(tolerance, 2)}: too much to tell")
    if not off <= tolerance:
        numbers = {
            "values": {str(d): mpmath.nstr(v, 10) for d, v in zip(_GRID, values, strict=True)},
            "limit": mpmath.nstr(second, 10),
            "right": str(claimed),
        }
        if off > _FAR * tolerance:
            return Verdict.refuted("the extrapolated limit differs", **numbers)
        return Verdict.unknown("the extrapolated limit neither agrees nor clearly differs", **numbers)
    rows = {str(d): mpmath.nstr(v / claimed - 1, 3) for d, v in zip(_GRID, values, strict=True)}
    places = ", ".join(map(str, _GRID))
    return Verdict.numeric(
        f"extrapolated from d_k = {places}, within {_SHARPNESS:g} of the limit, relatively",
        limit=mpmath.nstr(second, 10),
        tolerance=mpmath.nstr(tolerance, 2),
        relative_error_at_d_k=rows,
    )
