"""Second route for Gaussian vectors of any covariance: cumulants of a quadratic form are traces.

For z ~ N(0, Σ) and a symmetric A, κ_r(zᵀ A z) = 2^(r−1) (r−1)! tr((A Σ)^r). A score q·k is zᵀ A z for z = (q, k) with
A = ½ [[0, 1], [1, 0]] in blocks, so κ_r = (r−1)!/2 · tr((J Σ)^r), where J exchanges the two blocks.

Guarantees: exact for every size; pairs nothing, unlike the diagrams.
Does not: cover products of different scores, or scores with other factors (`NotLayered`).
"""

from __future__ import annotations

from itertools import product as choices
from typing import Any

import sympy

from derive.errors import MomentError
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.model import GaussianField, Model
from derive.moments.nodes import raw_moments_of
from derive.moments.reader import Piece, Polynomial, Product, read


class NotLayered(MomentError):
    """The statement is not of the kind that the route by cumulants covers, so that route can't check it."""


def expect_by_traces(polynomial: Polynomial, model: Model) -> Any:
    """E of a polynomial in one score of Gaussian vectors, expanded. Raises NotLayered for anything else."""
    terms = [value * _expect_power(product, model) for product, value in polynomial.items() if value != 0]
    return sympy.expand(sympy.Add(*terms))


def _expect_power(product: Product, model: Model) -> Any:
    if not product:
        return sympy.S.One
    if len(product) != 1:
        raise NotLayered("different scores of dependent components in one product")
    ((piece, order),) = product
    field, members = _score(piece, model)
    cumulants = [sympy.S.Zero, *(_cumulant(r, field, members, piece.sizes[0], model) for r in range(1, order + 1))]
    return raw_moments_of(cumulants)[order]


def _score(piece: Piece, model: Model) -> tuple[GaussianField, tuple[int, int]]:
    """The field and the two members of Σ_c x(c) y(c)."""
    places = [model.place(f.array) for f in piece.factors]
    if len(places) != 2 or None in places or any(f.indices != (0,) for f in piece.factors):
        raise NotLayered("expected the product of two vectors of a Gaussian field")
    (one, m), (other, p) = (place for place in places if place is not None)
    law = model.families[one].law
    if one != other or not isinstance(law, GaussianField):
        raise NotLayered("expected two vectors of one Gaussian field")
    return law, (m, p)


def _cumulant(order: int, field: GaussianField, members: tuple[int, int], size: Any, model: Model) -> Any:
    m, p = members
    if m == p:
        factor = 2 ** (order - 1) * sympy.factorial(order - 1)
        return factor * _trace([(m, m)] * order, field, size, model)
    exchanged = {m: p, p: m}
    blocks = choices((m, p), repeat=order)
    words = ([(exchanged[a], b) for a, b in zip(word, (*word[1:], word[0]), strict=True)] for word in blocks)
    return sympy.factorial(order - 1) / 2 * sympy.Add(*(_trace(word, field, size, model) for word in words))


def _trace(word: list[tuple[int, int]], field: GaussianField, size: Any, model: Model) -> Any:
    """tr of the product of covariance blocks; the block below the diagonal is the transpose of the one above."""
    binders = [sympy.Dummy(f"t{place}", integer=True) for place in range(len(word))]
    entries = []
    for (m, p), row, column in zip(word, binders, (*binders[1:], binders[0]), strict=True):
        entries.append(field.covariances[m, p][row, column] if m <= p else field.covariances[p, m][column, row])
    whole = sympy.Sum(sympy.Mul(*entries), *((b, 0, size - 1) for b in binders))
    return expect_by_diagrams(read(whole), model)
