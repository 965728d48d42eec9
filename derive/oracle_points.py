"""One point of the exact oracle: observables of a row with their error estimates, and mixtures over the row's spread.

Guarantees: every value has an estimate of its own error: the difference from a second, coarser grid (whose error is
about the square root of the first's), the check E Σα = 1, and for mixtures the decay of coefficients.
Does not: read or check the arguments of `derive.oracle.expect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive import oracle_gaussian, oracle_maximum, oracle_mixture
from derive.errors import StatementError
from derive.oracle_rows import NEED_MOMENTS, OBSERVABLES, sum_alpha

Array = NDArray[np.float64]
Combine = Callable[[Array, float], Any]

MOST_KEYS = 1e120
# Largest deviation σ of the scores: beyond, products of the functions A, each about 1/σ, leave the range of floats.
# A_2² Var² is about σ^-6, A_2² Var and A_2 gap² about σ^-4, A_2² and σ² itself σ^-2 and σ².
MOST_SIGMA = 1e150
_MOST_SIGMA = {2: 1e70, 4: 1e45}  # by the order of the moments needed
_LEFT_OUT = 42.0  # -log of the probability that a law of σ leaves out
_NO_DECAY = ("sum_alpha", "p2", "p3", "p4", "p2_squared", "maximum", "log_z", "mean_squared")
MAXIMA = ("maximum", "one_minus_maximum")
_ROUNDING = 1e-14  # relative: sums of a few hundred positive terms, each accurate to a few units of rounding


def numbers(value: Any, what: str) -> Array:
    """A number, or an array of numbers, as float64. Raises StatementError for text, truth values, and what is none."""
    try:
        given = np.asarray(value)
        text_or_truth = given.dtype.kind in "USb" or any(
            x is None or isinstance(x, (str, bytes, bool)) for x in given.flat
        )
        found = None if text_or_truth or given.dtype.kind == "c" else given.astype(np.float64)
    except (TypeError, ValueError):
        found = None
    if found is None:
        shown = repr(value) if isinstance(value, (str, bytes, bool, complex)) or value is None else str(value)
        raise StatementError(f"{what}: expected a number or an array of numbers, got {shown}")
    return found


def check_sizes(n: float, **positive: float) -> None:
    """Raises StatementError unless n is a whole number from 1 to 1e120, and the others are finite and > 0."""
    if not (math.isfinite(n) and n >= 1):
        raise StatementError(f"n is the number of keys and must be at least 1, got {n}")
    if n != math.floor(n):
        raise StatementError(f"n is the number of keys: expected a whole number, as {math.floor(n)}, got {n}")
    if n > MOST_KEYS:
        raise StatementError(f"n is at most {MOST_KEYS:g} here, got {n:g}: beyond, use the laws for large n")
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise StatementError(f"{name} must be finite and positive, got {value}")


def check_spread(name: str, sigma: float) -> None:
    """Raises StatementError where σ is so large that the integrals of this observable underflow."""
    most = _MOST_SIGMA.get(NEED_MOMENTS.get(name, 0), MOST_SIGMA)
    if not sigma <= most:
        raise StatementError(
            f"{name} is known for scores of deviation sigma up to {most:g}, got {sigma:g}: beyond, products of small "
            "factors underflow in its integrals; use its power law in sigma"
        )


def check_tail(name: str, d: float, spread: float) -> None:
    """Raises StatementError where small χ_d carry the mean: `oracle_mixture.chi` leaves out probability e^-42 there.

    spread: typical σ. An observable that falls as σ^-p is larger in the part left out by at most spread^min(p, d), and
    for p < d by at most e^(42p/d) d/(d - p), as that part ends at e^(-42/d).
    """
    power = 0 if name in _NO_DECAY else {0: 1, 2: 3, 4: 5}[NEED_MOMENTS.get(name, 0)]
    growth = min(power, d) * math.log(max(spread, 1.0))
    if power < d:
        growth = min(growth, _LEFT_OUT * power / d + math.log(d / (d - power)))
    if growth > _LEFT_OUT + math.log(1e-12):
        raise StatementError(
            f"{name} with {d:g} degrees of freedom and scores of deviation about {spread:g}: its mean comes from "
            "queries so small that the law kept here leaves them out; take a smaller scale"
        )


def rows(n: float, names: tuple[str, ...]) -> Any:
    """σ -> the named observables of a row of n Gaussian scores, as an array."""

    order = max(NEED_MOMENTS.get(name, 0) for name in names)

    def one(name: str, sigma: float) -> float:
        check_spread(name, sigma)
        if name in MAXIMA:
            return _maximum(n, sigma, 1.0)[MAXIMA.index(name)]
        return OBSERVABLES[name](_cached_table(n, sigma, oracle_gaussian.STEP, order))

    return lambda sigma: np.array([one(name, sigma) for name in names])


_cached_table = lru_cache(maxsize=512)(
    lambda n, sigma, step, moments: oracle_gaussian.table(n, sigma, step, moments=moments)
)
_maximum = lru_cache(maxsize=512)(oracle_maximum.maximum)


def relative_error(n: float, sigma: float, name: str, order: int = 0) -> float:
    """Estimated relative error of one Gaussian point: |E Σα - 1|, and the difference from a coarser second grid.

    order: of the moments in the tables looked at, where that is more than the observable needs. The second grid is
    coarser, so its own error, about the square root of the first's, makes the estimate safe.
    """
    if name in MAXIMA:
        fine, coarse = _maximum(n, sigma, 1.0), _maximum(n, sigma, 0.8)
        k = MAXIMA.index(name)
        change = abs(fine[k] / coarse[k] - 1) if coarse[k] else 0.0
        rounding = _ROUNDING * (2 + 0.2 * math.log(n))  # of I^(n-1), more nodes for more keys
        return rounding + abs(fine[0] + fine[1] - 1) + change
    observable = OBSERVABLES[name]
    order = max(order, NEED_MOMENTS.get(name, 0))
    table = _cached_table(n, sigma, oracle_gaussian.STEP, order)
    second = observable(_cached_table(n, sigma, oracle_gaussian.COARSE_STEP, order))
    change = abs(observable(table) / second - 1) if second else 0.0
    rounding = 10 * _ROUNDING if name in NEED_MOMENTS else _ROUNDING  # up to two digits cancel there
    if name == "entropy" and sigma > 1e4 and second:
        # Its integrand has both signs and a size of order one, where E H is of order 1/σ.
        rounding += _ROUNDING / abs(second)
    return rounding + abs(sum_alpha(table) - 1) + change


def mixed(
    n: float, laws: Sequence[oracle_mixture.ScaleLaw], names: tuple[str, ...], combine: Combine | None = None
) -> tuple[Array, Array]:
    """E combine(row observables at σ, σ) over each of several laws of σ on one grid, and the estimated errors.

    combine: (observables, σ) -> array, the observables themselves when left out; its terms must be positive. Answers
    two arrays, rows by law.
    """
    tops = [law.shift + law.step * (law.first + law.weights.size - 1) for law in laws]  # log σ
    for name in names:
        check_spread(name, math.exp(max(tops)) if max(tops) < 700 else math.inf)
    at = rows(n, names)
    function = at if combine is None else lambda s: np.atleast_1d(combine(at(s), s))
    # The largest weight of a row stops being small near σ = √(2 log n): observables change on that scale.
    value, slip = oracle_mixture.mix(function, laws, max(1.0, 0.5 * math.sqrt(2 * math.log(n))))
    first = laws[0]
    typical = float(np.exp(np.dot(np.log(first.sigma()), first.weights)))
    order = max(NEED_MOMENTS.get(name, 0) for name in names)
    relative = max(relative_error(n, typical, name, order) for name in names)
    return value, slip + np.abs(value) * (relative + _ROUNDING)
