"""Observables of a row of softmax attention over Gaussian scores, as integrals over a `Table`.

Guarantees: each is a sum of positive terms, so it keeps its relative accuracy however small it is; the definition is
the first line of each docstring.
Does not: estimate errors (`derive.oracle_points`).

n E Σ α^k = ∫ A_k A_0^(n-1) du / Γ(k), and products over distinct keys are products of the A_k: see
`derive.oracle_gaussian` for the functions A.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from derive.oracle_gaussian import DIGAMMA_1, Moments, Table


def sum_alpha(t: Table) -> float:
    """E Σ α = 1: the check that every result carries."""
    return t.integral(t.a1, 1)


def p2(t: Table) -> float:
    """E Σ α²."""
    return t.integral(t.a2, 1)


def p3(t: Table) -> float:
    """E Σ α³."""
    return t.integral(t.a3, 1) / 2


def p4(t: Table) -> float:
    """E Σ α⁴."""
    return t.integral(t.a4, 1) / 6


def trace(t: Table) -> float:
    """E tr J = E Σ_{i≠j} α_i α_j = 1 - E Σ α²."""
    return _distinct(t.n, 2) * t.integral(t.a1**2, 2)


def p2_squared(t: Table) -> float:
    """E (Σ α²)²."""
    return p4(t) + _distinct(t.n, 2) * t.integral(t.a2**2, 2) / 6


def jacobian(t: Table) -> float:
    """E ‖J‖_F², J = diag(α) - ααᵀ: Σ_i α_i² (1 - α_i)² + Σ_{i≠j} α_i² α_j², and 1 - α_i = Σ_{j≠i} α_j."""
    pairs = 2 * _distinct(t.n, 2) * t.integral(t.a2**2, 2)
    return (pairs + _distinct(t.n, 3) * t.integral(t.a2 * t.a1**2, 3)) / 6


def trace_squared(t: Table) -> float:
    """E (tr J)² = E (Σ_{i≠j} α_i α_j)²: the two pairs share two indices, one or none."""
    two = 2 * _distinct(t.n, 2) * t.integral(t.a2**2, 2)
    one = 4 * _distinct(t.n, 3) * t.integral(t.a2 * t.a1**2, 3)
    return (two + one + _distinct(t.n, 4) * t.integral(t.a1**4, 4)) / 6


def jacobian_direction(t: Table) -> float:
    """E ‖J z‖², z = x/σ: Σ_i α_i² (Σ_j α_j (z_i - z_j))².

    Under weights y² e^(-y) for i and y e^(-y) for j ≠ l: the pair j = l gives 2 A_2² Var_2 z, distinct j, l give
    A_2 A_1² (Var_2 z + (mean_2 z - mean_1 z)²).
    """
    m = _needed(t)
    pairs = 2 * _distinct(t.n, 2) * t.integral(t.a2**2 * m.var2, 2)
    return (pairs + _distinct(t.n, 3) * t.integral(t.a2 * t.a1**2 * (m.var2 + m.gap**2), 3)) / 6


def direction_form(t: Table) -> float:
    """E zᵀJz, the variance of z under α: ½ Σ_{i≠j} α_i α_j (z_i - z_j)²."""
    return _distinct(t.n, 2) * t.integral(t.a1**2 * _needed(t).var1, 2)


def mean_squared(t: Table) -> float:
    """E (Σ α_j z_j)², z = x/σ."""
    m = _needed(t)
    one = t.integral(t.a2 * (m.var2 + (m.mean1 + m.gap) ** 2), 1)
    return one + _distinct(t.n, 2) * t.integral((t.a1 * m.mean1) ** 2, 2)


def direction_form_squared(t: Table) -> float:
    """E (zᵀJz)² = ¼ E Σ α_i α_j α_k α_l (z_i - z_j)² (z_k - z_l)²: the pairs share two indices, one or none."""
    m = _needed(t)
    if m.third2 is None or m.fourth2 is None:
        raise ValueError("this observable needs a table made with moments=4")
    two = _distinct(t.n, 2) * t.integral(t.a2**2 * (m.fourth2 + 3 * m.var2**2), 2)
    about1 = m.fourth2 + 4 * m.third2 * m.gap + 6 * m.var2 * m.gap**2 + m.gap**4
    shared = m.var1**2 + 2 * m.var1 * (m.var2 + m.gap**2) + about1
    one = _distinct(t.n, 3) * t.integral(t.a2 * t.a1**2 * shared, 3)
    return (two + one + _distinct(t.n, 4) * t.integral(t.a1**4 * m.var1**2, 4)) / 6


def _needed(t: Table) -> Moments:
    if t.moments is None:
        raise ValueError("this observable needs a table made with moments=2 or 4")
    return t.moments


def entropy(t: Table) -> float:
    """E H, H = -Σ α log α: α_i (log Z - x_i) = ∫ (ψ(1) - w_i) y_i e^(-Σy) du. Exactly 0 at n = 1."""
    return t.integral(t.entropy, 1) if t.n > 1 else 0.0


def log_z(t: Table) -> float:
    """E log Z = E H + σ² E tr J (H = log Z - α·x, and Stein's identity E α·x = σ² E tr J)."""
    return entropy(t) + t.sigma**2 * trace(t)


def log_z_direct(t: Table) -> float:
    """E log Z = -γ - c + ∫ (S(u - c) - A_0^n) du, which uses no identity: an independent check of `log_z`.

    ∫ (1[t < e^c] - e^(-tZ)) dt/t = log Z + γ + c, and the step at c may be smoothed by any symmetric law; here a
    normal one, as wide as the grid allows, at the middle of the fall of A_0^n.
    """
    power = np.exp(t.n * t.log_a0)
    centre = float(t.u[np.searchsorted(-power, -0.5)])
    width = min(centre - t.u[0], t.u[-1] - centre) / 8.5
    return DIGAMMA_1 - centre + float(np.sum(ndtr((centre - t.u) / width) - power)) * t.step


def _distinct(n: float, count: int) -> float:
    """n (n-1) … (n-count+1) / n^count: ordered choices of distinct keys, over the powers of n kept in the table."""
    return math.prod(1.0 - k / n for k in range(count))


OBSERVABLES: dict[str, Callable[[Table], float]] = {
    "sum_alpha": sum_alpha,
    "p2": p2,
    "p3": p3,
    "p4": p4,
    "trace": trace,
    "trace_squared": trace_squared,
    "p2_squared": p2_squared,
    "jacobian": jacobian,
    "jacobian_direction": jacobian_direction,
    "direction_form": direction_form,
    "mean_squared": mean_squared,
    "direction_form_squared": direction_form_squared,
    "entropy": entropy,
    "log_z": log_z,
}

NEED_MOMENTS = {"jacobian_direction": 2, "direction_form": 2, "mean_squared": 2, "direction_form_squared": 4}
