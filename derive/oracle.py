"""The exact oracle: what softmax attention does in expectation, at any size, by quadrature.

Guarantees: every value comes with an estimate of its own absolute error (second grid, the check E Σα = 1, decay of
coefficients), about 1e-12 relative or better (entropy above σ = 1e4: 1e-14 absolute); milliseconds a point; n up to
1e6 and far beyond.
Does not: simulate; use a limit or a series; treat scores that aren't Gaussian given the query.

>>> print(expect("p2", 512, sigma=1.0))
0.005234592433127... ± ...
>>> float(expect("jacobian", 64, d_k=64, scale=1.0).value.round(12))
0.073487110148

Three settings, chosen by the arguments:

- `sigma`: n i.i.d. scores N(0, σ²) in a row.
- `d_k` (and `scale`, 1/√d_k if left out): scores scale * q·k with standard normal components, q and keys independent.
- `d_k` and `d_model`: self-attention from one X with standard normal entries and weights N(0, 1/d_model), the
  setting of `derive.oracle_self_attention`, which states its one approximation; the error includes it.

Observables of one row: sum_alpha, p2, p3, p4, p2_squared (E (Σα²)²), trace (E tr J = 1 - E p2), trace_squared,
jacobian (E ‖J‖_F²), jacobian_direction (E ‖Jz‖², z the standardised scores), direction_form, direction_form_squared
(E zᵀJz and its square), mean_squared (E (α·z)²), entropy, log_z, maximum (E max α), one_minus_maximum.
overlap (E Σ_k α_k β_k of two rows with correlated scores) takes sigma and correlation.
With d_k also, for upstream gradients G i.i.d. N(0, 1) and values V i.i.d. N(0, 1), per row and per unit of d_v:
gradient_scores (‖dL/dS_i‖²), gradient_q, gradient_k, gradient_v; with d_model gradient_w_q, gradient_w_k and
gradient_w_v (‖dL/dW‖_F² divided by n d_v).
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from derive import oracle_mixture, oracle_order, oracle_pairs, oracle_self_attention
from derive.errors import StatementError
from derive.oracle_points import MAXIMA, check_sizes, check_spread, check_tail, mixed, numbers, relative_error, rows
from derive.oracle_rows import OBSERVABLES

Array = NDArray[np.float64]

GRADIENTS = ("gradient_scores", "gradient_q", "gradient_k", "gradient_v")
WEIGHT_GRADIENTS = ("gradient_w_q", "gradient_w_k", "gradient_w_v")


@dataclass(frozen=True)
class Expectation:
    """value and error (absolute, estimated), arrays of one shape (0-d for a single point)."""

    value: Array
    error: Array

    def __str__(self) -> str:
        if self.value.ndim == 0:
            return f"{float(self.value)!r} ± {float(self.error):.1e}"
        return f"{self.value} ± {self.error}"


def observables() -> tuple[str, ...]:
    """Names that `expect` knows."""
    return (*OBSERVABLES, *MAXIMA, *GRADIENTS, *WEIGHT_GRADIENTS, "overlap")


def expect(
    observable: str,
    n: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    d_model: ArrayLike | None = None,
    correlation: ArrayLike | None = None,
    own_key: bool = True,
) -> Expectation:
    """The expectation of an observable (see the module's list) at every point of the broadcast arguments.

    n: number of keys, a whole number from 1 to 1e120. sigma: standard deviation of the scores, ≥ 0 and at most
    1e150 (1e70 for observables of z, 1e45 for direction_form_squared: beyond, integrals underflow). d_k: size of
    the head, > 0. scale: factor on q·k, 1/√d_k when left out. d_model: width of X. correlation: of the two rows'
    scores, for "overlap" alone.
    own_key: with d_model, whether the token's own key is among the n (False: exact; True: to order 1/(n d_model), the
    next order being part of the error). Raises StatementError for an unknown observable, an impossible size, or
    arguments that don't name one of the three settings.
    """
    if not isinstance(observable, str):
        raise StatementError(f'expected the name of an observable, as "p2", got {observable!r}')
    if observable not in observables():
        near = difflib.get_close_matches(observable, observables(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(observables())}"
        raise StatementError(f"no observable {observable!r}; {hint}")
    if observable == "overlap" and sigma is None:
        raise StatementError("overlap is known for Gaussian scores: give sigma and correlation")
    if observable != "overlap" and correlation is not None:
        raise StatementError(f"{observable} is a number of one row: correlation belongs to overlap")
    if (sigma is None) == (d_k is None):
        raise StatementError("expected exactly one of sigma (Gaussian scores) and d_k (scores of a random query)")
    if not isinstance(own_key, (bool, np.bool_)):
        raise StatementError(f"own_key: expected True or False, got {own_key!r}")
    if sigma is not None:
        if scale is not None or d_model is not None:
            raise StatementError("scale and d_model belong to d_k; with sigma the scores' deviation is already given")
        if observable == "overlap":
            if correlation is None:
                raise StatementError("overlap is of two rows: give the correlation of their scores, from 0 to 1")
            return _vectorised(_overlap_point, n=n, sigma=sigma, correlation=correlation)
        if observable in GRADIENTS + WEIGHT_GRADIENTS:
            raise StatementError(f"{observable} depends on d_k: give d_k (and scale) instead of sigma")
        return _vectorised(lambda n, s: _gaussian_point(observable, n, s), n=n, sigma=sigma)
    d_k = numbers(d_k, "d_k")
    if not np.all(np.isfinite(d_k) & (d_k > 0)):
        raise StatementError(f"d_k must be finite and positive, got {d_k}")
    if scale is None:
        scale = 1 / np.sqrt(d_k)
    if d_model is None and observable in WEIGHT_GRADIENTS:
        raise StatementError(f"{observable} is of self-attention from one X: give d_model")
    if d_model is None:
        return _vectorised(lambda n, d, s: _finite_d_point(observable, n, d, s), n=n, d_k=d_k, scale=scale)
    return _vectorised(
        lambda n, d, s, m: oracle_self_attention.point(observable, n, d, s, m, bool(own_key)),
        n=n,
        d_k=d_k,
        scale=scale,
        d_model=d_model,
    )


@dataclass(frozen=True)
class Median:
    """Median of ‖J‖_F: value, proven bounds, and whether the value itself is exact (n = 2) or the leading law."""

    value: float
    lower: float
    upper: float
    exact: bool


def median_jacobian(n: float, sigma: float) -> Median:
    """Median of ‖J‖_F over rows of n ≥ 2 Gaussian scores of deviation sigma.

    1/(1 + cosh(σ gap_median)): exact for two keys, otherwise good once σ gap_median is about 3 or more. The bounds hold
    always (claims saturation.median_lower and median_upper), and ‖J‖_F ≤ 1/√2. Raises StatementError for n < 2.
    """
    if numbers(n, "n").ndim or numbers(sigma, "sigma").ndim:
        raise StatementError("the median Jacobian is of one point: expected two numbers, got an array")
    n, sigma = float(n), float(sigma)
    check_sizes(n)
    if n < 2 or not (math.isfinite(sigma) and sigma >= 0):
        raise StatementError(f"the median Jacobian needs n ≥ 2 and a finite sigma ≥ 0, got n = {n}, sigma = {sigma}")
    gap = sigma * oracle_order.gap_median(n)
    value = 2 * math.exp(-gap) / (1 + math.exp(-gap)) ** 2  # 1/(1 + cosh gap), without overflow
    if n == 2:
        return Median(value, value, value, True)
    return Median(value, math.exp(-gap) / n**2, min(math.sqrt(0.5), 2 * (n - 1) * math.exp(-gap)), False)


def _vectorised(function: Any, **given: ArrayLike) -> Expectation:
    """function at every point of the broadcast arguments, in their order."""
    arrays = [numbers(value, name) for name, value in given.items()]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(given, arrays, strict=True))
        raise StatementError(f"the arguments don't broadcast to one shape: {shapes}") from None
    values, errors = np.empty(arrays[0].shape), np.empty(arrays[0].shape)
    for where in np.ndindex(arrays[0].shape):
        values[where], errors[where] = function(*(float(a[where]) for a in arrays))
    return Expectation(values, errors)


def _overlap_point(n: float, sigma: float, correlation: float) -> tuple[float, float]:
    check_sizes(n)
    if not (math.isfinite(sigma) and sigma >= 0 and 0 <= correlation <= 1):
        raise StatementError(f"overlap needs sigma ≥ 0 and 0 ≤ correlation ≤ 1, got {sigma}, {correlation}")
    return oracle_pairs.overlap(n, sigma, correlation)


def _gaussian_point(observable: str, n: float, sigma: float) -> tuple[float, float]:
    check_sizes(n)
    if not (math.isfinite(sigma) and sigma >= 0):
        raise StatementError(f"sigma must be finite and at least 0, got {sigma}")
    value = float(rows(n, (observable,))(sigma)[0])
    return value, abs(value) * relative_error(n, sigma, observable)


def _finite_d_point(observable: str, n: float, d: float, scale: float) -> tuple[float, float]:
    check_sizes(n, d_k=d, scale=scale)
    names, combine = _combination(observable, d, scale)
    law = oracle_mixture.chi(d, oracle_mixture.step_for(d)).scaled(scale)
    for name in names:
        check_spread(name, scale * math.sqrt(d))
        check_tail(name, d, scale * math.sqrt(d))
    value, error = mixed(n, (law,), names, combine)
    return float(value[0, 0]), float(error[0, 0])


def _combination(observable: str, d: float, scale: float) -> tuple[tuple[str, ...], Any]:
    """Row observables needed, and the function (values, σ) -> integrand.

    gradient_q: dL/dq_i = scale Kᵀ J_i V g_i. Given q, K splits into its part along q (the scores) and d - 1
    independent ones: E ‖dL/dq_i‖² = scale² d_v E[(d-1) ‖J‖_F² + ‖Jz‖²].
    gradient_k, per key: scale² d_v E[‖q‖² ‖J‖_F²], and scale² ‖q‖² = σ². gradient_v, per key: d_v E Σα².
    """
    if observable == "gradient_q":
        return ("jacobian", "jacobian_direction"), lambda v, s: scale**2 * ((d - 1) * v[0] + v[1])
    if observable == "gradient_k":
        return ("jacobian",), lambda v, s: s * s * v[0]
    name = {"gradient_scores": "jacobian", "gradient_v": "p2"}.get(observable, observable)
    return (name,), lambda v, s: v[0]
