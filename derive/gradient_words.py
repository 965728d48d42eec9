"""Mean squared gradients of attention at random inputs, as traces of words in random matrices.

Guarantees: exact for all sizes, given the stated distribution; a word is a cyclic product of the row's Jacobian J, of
Z = zzᵀ (z the standardised scores), and of a Wishart matrix B that is independent of the row, and its mean over B is
taken by pairing the columns of B (Isserlis; Wick).
Does not: know the law of a row; what is left is the row's own ‖J‖_F², tr J, ‖Jz‖², zᵀJz, to be averaged by the oracle.

The gradients, for L with upstream gradient G (i.i.d. N(0, 1) entries, so that E over G turns g gᵀ into I):

    dL/dS_i = J_i V g_i,           E_G ‖dL/dS_i‖² = tr(J V Vᵀ J)
    dL/dq_i = s Kᵀ J_i V g_i,      E_G ‖dL/dq_i‖² = s² tr(J V Vᵀ J K Kᵀ)
    dL/dK = s Σ_i (J_i V g_i) q_iᵀ, E_G ‖dL/dK‖_F² = s² Σ_i ‖q_i‖² tr(J_i V Vᵀ J_i)   (g_i, g_j independent)
    dL/dV = Aᵀ G,                  E_G ‖dL/dV‖_F² = d_v Σ_i Σ_j α_ij²
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from derive.row_nodes import AZ2, J2, JZ2, TR, ZJZ, p

Key = tuple[Any, int, int, int]  # row observable; degrees of freedom added to ‖u‖², to ‖x_i‖², to ‖q_i‖²
Word = tuple[str, ...]
Words = dict[Word, Any]  # polynomial in letters: coefficient by word; () is the identity


def product(*factors: Words) -> Words:
    """The product of polynomials in non-commuting letters."""
    out: Words = {(): sympy.Integer(1)}
    for factor in factors:
        step: Words = {}
        for left, a in out.items():
            for right, b in factor.items():
                step[left + right] = step.get(left + right, 0) + a * b
        out = step
    return out


def trace(words: Words, dof: Any) -> Any:
    """E_B tr(words), B Wishart with `dof` degrees of freedom and unit scale; in J2, TR, JZ2, ZJZ."""
    return sympy.expand(sum((c * _trace(word, dof) for word, c in words.items()), sympy.Integer(0)))


def _trace(word: Word, m: Any) -> Any:
    places = [k for k, letter in enumerate(word) if letter == "B"]
    if not places:
        return _row_trace(word)
    turned = word[places[0] + 1 :] + word[: places[0]]  # cyclic: B is now at the end
    if len(places) == 1:
        return m * _row_trace(turned)
    if len(places) > 2:
        raise ValueError("words with more than two Wishart letters don't occur in a squared gradient")
    second = turned.index("B")
    a, c = turned[:second], turned[second + 1 :]
    # tr(A B C B), B = Σ_k y_k y_kᵀ: m² from pairing each B with itself, m from the two crossed pairings.
    return m**2 * _row_trace(a + c) + m * _row_trace(a + c[::-1]) + m * _row_trace(a) * _row_trace(c)


def _row_trace(word: Word) -> Any:
    """tr of a word in J and Z = zzᵀ: cut at every Z into factors zᵀ(…)z."""
    if "Z" not in word:
        known = {1: TR, 2: J2}
        if len(word) not in known:
            raise ValueError(f"tr J^{len(word)} is not among the row's observables")
        return known[len(word)]
    first = word.index("Z")
    turned = word[first + 1 :] + word[: first + 1]
    out, run = sympy.Integer(1), 0
    for letter in turned:
        if letter == "J":
            run += 1
        else:
            out *= {1: ZJZ, 2: JZ2}[run]
            run = 0
    return out


def independent(of: str, n: Any, d: Any, s: Any) -> dict[Key, Any]:
    """Coefficients of means over a row for independent Q, K, V with N(0, 1) entries.

    Given q_i, K = z q̂ᵀ + its part across q̂, so E KKᵀ = Z + (d-1) I; E VVᵀ = d_v I. All is per unit of d_v.
    """
    j: Words = {("J",): sympy.Integer(1)}
    gram_k: Words = {("Z",): sympy.Integer(1), (): d - 1}
    if of == "v":
        return {(p(2), 0, 0, 0): sympy.Integer(1)}
    if of == "S":
        return _table(trace(product(j, j), 0))
    if of == "q":
        return _table(s**2 * trace(product(j, j, gram_k), 0))
    # ‖q‖² weighs the mean; E[χ²_d f(χ_d)] = d E f(χ_{d+2}).
    return _table(s**2 * d * trace(product(j, j), 0), query=2)


def from_one_input(of: str, n: Any, d: Any, s: Any, width: Any) -> dict[Key, Any]:
    """The same for Q = XW^Q, K = XW^K, V = XW^V with i.i.d. N(0, 1) X and N(0, 1/D) weights, D = width.

    Given q_i only u = W^K q̂ enters the row: XXᵀ = Z + B, B Wishart with D - 1 degrees of freedom, independent of the
    row; E VVᵀ = (d_v/D) XXᵀ; K = ‖u‖ z q̂ᵀ + X (the rest of W^K), so E KKᵀ = ‖u‖² Z + ((d-1)/D) XXᵀ; ‖q_i‖² is
    (‖x_i‖²/D) χ²_d. Takes the token's own key as independent of ‖x_i‖ (relative effect of order 1/(nD)). Weights:
    dL/dW^Q = Σ_i x_i (dL/dq_i)ᵀ and dL/dW^K = s Σ_i (Xᵀ J_i V g_i) q_iᵀ, whose terms have independent g_i;
    dL/dW^V = Σ_i Xᵀ α_i g_iᵀ.
    """
    j: Words = {("J",): sympy.Integer(1)}
    gram: Words = {("Z",): sympy.Integer(1), ("B",): sympy.Integer(1)}
    if of == "v":
        return {(p(2), 0, 0, 0): sympy.Integer(1)}
    if of == "W_V":  # αᵀ(Z + B)α
        return {(p(2), 0, 0, 0): width - 1, (AZ2, 0, 0, 0): sympy.Integer(1)}
    if of == "S":
        return _table(trace(product(j, gram, j), width - 1) / width)
    if of in ("q", "W_Q"):
        # ‖x_i‖² weighs the gradient of the weights: E[χ²_D f(χ_D)] = D E f(χ_{D+2}).
        factor, row = (s**2 * width, 2) if of == "W_Q" else (s**2, 0)
        across = _table(factor * (d - 1) / width**2 * trace(product(j, gram, j, gram), width - 1), row=row)
        only_z: Words = {("Z",): sympy.Integer(1)}
        along = _table(factor / width * trace(product(j, gram, j, only_z), width - 1), along=2, row=row)
        return {**across, **along}
    word = product(j, gram, j) if of == "k" else product(j, gram, j, gram)
    return _table(s**2 * d / width * trace(word, width - 1), row=2, query=2)


def _table(expression: Any, along: int = 0, row: int = 0, query: int = 0) -> dict[Key, Any]:
    out: dict[Key, Any] = {}
    names = (J2, TR, JZ2, ZJZ)
    poly = sympy.Poly(sympy.expand(expression), *names)
    for exponents, coefficient in poly.terms():
        body = sympy.Mul(*(name**e for name, e in zip(names, exponents, strict=True)))
        out[body, along, row, query] = coefficient
    return out


def same(known: Mapping[Key, Any], stated: Mapping[Key, Any]) -> list[str]:
    """Where two tables differ, in words; empty when every coefficient is the same rational function of the sizes."""
    wrong = []
    for key in [*known, *(k for k in stated if k not in known)]:
        difference = sympy.together(known.get(key, 0) - stated.get(key, 0))
        numerator = sympy.fraction(difference)[0]
        gens = sorted(numerator.free_symbols, key=str)
        zero = sympy.Poly(numerator, *gens).is_zero if gens else numerator == 0
        if not zero:
            wrong.append(f"the coefficient of E[{key[0]}] is {known.get(key, 0)}, not {stated.get(key, 0)}")
    return wrong
