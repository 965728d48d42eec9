"""The rule for mean squared gradients at random inputs.

Guarantees: `Proved` means that the stated right side has, observable by observable, the coefficients that the traces in
`derive.gradient_words` give, as rational functions of n, d_k, d_model and s. Other coefficients are Refuted only where
the oracle's numbers separate the sides at a point: two forms may be one number, as ‖J‖_F² and p_2 - 2p_3 + p_2² are.
Does not: evaluate them; that is the oracle's part.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.gradient_nodes import Gradient, OwnKeyGradient, SelfGradient
from derive.gradient_words import Key, from_one_input, independent, same
from derive.oracle_rules import guarded, with_stated_error
from derive.power_sums import N
from derive.refutation import at_points
from derive.row_nodes import HeadMean, SelfMean
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

_KINDS = {False: ("q", "k", "v", "S"), True: ("q", "k", "v", "S", "W_Q", "W_K", "W_V")}


@rule("gradient-traces")
@guarded
def gradient_traces(step: Step) -> Verdict:
    """Mean squared gradients are traces of J, the values' and the keys' Gram matrices; Wick pairing gives their means.

    Given the query, a row sees one direction of the keys only; everything across it is an independent Gaussian matrix,
    of which a Wishart matrix remains: E B = mI, E BAB = m²A + mAᵀ + m tr(A) I. See `derive.gradient_words`.
    """
    node = step.lhs
    shared = isinstance(node, SelfGradient)
    if not isinstance(node, Gradient) or node.args[0].name not in _KINDS[shared]:
        return Verdict.unknown("expected Gradient(q | k | v | S, …), or SelfGradient of these or a weight, on the left")
    of, sizes = node.args[0].name, node.args[1:]
    known = from_one_input(of, *sizes) if shared else independent(of, *sizes)
    try:
        stated = _read(step.rhs, SelfMean if shared else HeadMean, sizes)
    except StatementError as error:
        return Verdict.unknown(str(error))
    wrong = same(known, stated)
    if wrong:
        kind = SelfMean if shared else HeadMean
        theirs = sum((c * _mean(kind, key, sizes) for key, c in known.items()), sympy.Integer(0))
        return at_points(theirs, step.rhs, _points(sizes), wrong[0])
    scope = "all n, d_k, s and d_model, for keys of other tokens" if shared else "all n, d_k and s"
    return with_stated_error(step, Verdict.proved(scope, checkers=["coefficients of the traces"]))


@rule("own-key")
@guarded
def own_key(step: Step) -> Verdict:
    """What the token's own key adds to a mean squared gradient: n d_model times it tends to the right side.

    ‖x_i‖² = z_i² + B_ii scales the whole row, z_i being the own standardised score and B_ii the own entry of the
    Wishart matrix. To first order in 1/D the mean changes by Cov(‖x_i‖²/D, ·) of its slope in log σ² =: ∂. With
    E[(z² - 1) f(z)] = E f''(z), E[(χ²_m - m) f] = 2 E[χ²_m f'], and all keys alike, E Σ_l ∂²/∂z_l² = 2(∂ + b) for a
    part of degree 2b in z, and the Wishart part has degree a - b: together (2/(nD)) (∂ + w)(∂ + a) M, for a quantity of
    degree 2a in the tokens that is weighed by ‖x_i‖^(2w). At D = ∞ the mean M is that of independent Q, K, V.
    ∂ = (s/2) d/ds at fixed prefactors. (a, w): v (0, 0); S (1, 0); q (2, 0); k (1, 1);
    W_Q/D (2, 1); W_K/D (2, 1); W_V/D (1, 0).
    """
    if step.relation != "limit" or len(step.lhs.atoms(OwnKeyGradient)) != 1:
        return Verdict.unknown("expected the limit of n d_model (OwnKeyGradient - SelfGradient)")
    (node,) = step.lhs.atoms(OwnKeyGradient)
    of, n, d, s, width = node.args
    if n != N or sympy.expand(step.lhs - N * width ** _WIDTH_POWER[of.name] * (node - SelfGradient(*node.args))) != 0:
        return Verdict.unknown(
            "expected n d_model (OwnKeyGradient - SelfGradient), over d_model for weights' gradients"
        )
    a, w = _DEGREES[of.name]
    known = sympy.Integer(0)
    for (body, _, _, query), coefficient in independent(_ALONE[of.name], n, d, s).items():
        mean = HeadMean(body, n, d + query, s)
        slope, curve = sympy.Derivative(mean, s), sympy.Derivative(mean, (s, 2))
        step_twice = s**2 / 4 * curve + s / 4 * slope
        known += 2 * coefficient * (step_twice + (w + a) * s / 2 * slope + w * a * mean)
    if _same_linear(known, step.rhs):
        return Verdict.proved("d_model → ∞ at fixed n, d_k and s", checkers=["coefficients of means and their slopes"])
    return Verdict.unknown(
        "not shown to be equal, nor to differ: derivatives of means have no interval here", derived=str(known)
    )


# Degrees (a, w) of the rule, the power of d_model that keeps the limit finite, and the gradient at D = ∞: those of the
# weights, over D, tend to the gradients of queries and keys, the latter with the queries' weight.
_DEGREES = {"v": (0, 0), "S": (1, 0), "q": (2, 0), "k": (1, 1), "W_Q": (2, 1), "W_K": (2, 1), "W_V": (1, 0)}
_WIDTH_POWER = {"v": 1, "S": 1, "q": 1, "k": 1, "W_Q": 0, "W_K": 0, "W_V": 0}
_ALONE = {"v": "v", "S": "S", "q": "q", "k": "k", "W_Q": "q", "W_K": "k", "W_V": "v"}


def _same_linear(a: Any, b: Any) -> bool:
    """Equality of two linear combinations of means and their derivatives, coefficients rational in the sizes."""
    atoms = sorted((a - b).atoms(HeadMean, sympy.Derivative), key=sympy.default_sort_key)
    derivatives = [x for x in atoms if isinstance(x, sympy.Derivative)]
    means = [x for x in atoms if isinstance(x, HeadMean)]
    plain = sympy.expand(a - b).xreplace({x: sympy.Dummy() for x in derivatives})
    plain = plain.xreplace({x: sympy.Dummy() for x in means})
    numerator = sympy.expand(sympy.fraction(sympy.together(plain))[0])
    gens = sorted(numerator.free_symbols, key=str)
    return bool(sympy.Poly(numerator, *gens).is_zero) if gens else bool(numerator == 0)


def _mean(kind: Any, key: Key, sizes: tuple[Any, ...]) -> Any:
    body, along, row, query = key
    n, d, s, *width = sizes
    return kind(body, n, d + query, s, *width, *((along, row) if width else ()))


def _points(sizes: tuple[Any, ...]) -> list[dict[Any, Any]]:
    """Values of the sizes that are symbols: n, d_k, s, and d_model for one input."""
    rows = ((4, 6, sympy.Rational(1, 2), 16), (9, 3, sympy.Rational(2, 3), 5))
    return [{x: value for x, value in zip(sizes, row, strict=False) if x.is_Symbol} for row in rows]


def _read(side: Any, kind: Any, sizes: tuple[Any, ...]) -> dict[Key, Any]:
    out: dict[Key, Any] = {}
    expanded = sympy.expand(side)
    for term in sympy.Add.make_args(expanded):
        means = [f for f in sympy.Mul.make_args(term) if isinstance(f, kind)]
        if len(means) != 1:
            raise StatementError(f"{term} is not a number times one mean of the setting of the left side")
        (mean,) = means
        body, n, d, s, *rest = mean.args
        along = row = 0
        if kind is SelfMean:
            width, along, row = rest
            if width != sizes[3]:
                raise StatementError(f"{mean}: the width must be {sizes[3]}")
        extra = sympy.expand(d - sizes[1])
        if (n, s) != (sizes[0], sizes[2]) or not all(x in (0, 2) for x in (extra, along, row)):
            raise StatementError(f"{mean} is a mean in another setting than the left side")
        key = (body, int(along), int(row), int(extra))
        out[key] = out.get(key, 0) + term / mean
    return out
