"""Second route: additive cumulants and complete Bell polynomials, one layer of a sum after the other.

A score is a sum over one axis (d_k) of terms that are independent and alike, given everything that does not have
that axis. Cumulants of such sums add: κ(Σ_c y_c) = d_k κ(y), jointly for several scores. Moments then follow by the
recursion that takes out the block of one element, and the moments of one term are again moments of sums (x W over
d_model), with cumulants κ_r(W) Σ_a x_a^r. What is left are power sums of X; with X random they are a third layer.

Guarantees: exact for every value of the sizes, because a cumulant of a sum of d independent copies is d times one
copy's. Joins no indices and knows no diagram: it shares only the reading of the statement with the first route.
Does not: cover statements that are not sums of independent terms over one axis (`NotLayered`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.utilities.iterables import multiset_partitions

from derive.errors import StatementError
from derive.moments import algebra
from derive.moments.algebra import Poly
from derive.moments.bell import Bag, bag_of, moments_from_cumulants, moments_of_sums
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.model import GaussianField, Model
from derive.moments.nodes import PowerSum
from derive.moments.reader import Factor, Piece, Polynomial, Product, in_pieces, read
from derive.moments.traces import NotLayered, expect_by_traces


@dataclass(frozen=True)
class _PowerSum:
    """Σ_a Π X[row, a] over the rows, with multiplicity: the number that one block of x·W leaves behind."""

    rows: tuple[tuple[Any, Any], ...]
    size: Any


@dataclass(frozen=True)
class _Form:
    """One linear form in a random array at a fixed place of the layer.

    row: the free row label of the entry, or None. weights: what multiplies it under its own sum, as (array, row)
    pairs, with the size of that sum; () for a plain entry.
    """

    family: int
    member: int
    row: Any
    weights: tuple[tuple[Any, Any], ...]
    size: Any


@dataclass(frozen=True)
class _Held:
    """An entry of a fixed array at a place of the layer. indices: its free indices, None where the layer's axis is."""

    array: Any
    indices: tuple[Any, ...]

    def at(self, place: Any) -> Any:
        return self.array[tuple(place if i is None else i for i in self.indices)]


def expect_by_layers(polynomial: Polynomial, model: Model) -> Any:
    """E of a polynomial in pieces, expanded. Raises NotLayered where the route does not apply.

    Gaussian vectors with any covariance go by the cumulants of quadratic forms (`traces`).
    """
    if any(isinstance(family.law, GaussianField) for family in model.families):
        return expect_by_traces(polynomial, model)
    for product in polynomial:
        model.check_order(product)
    terms = [value * _expect_term(product, model) for product, value in polynomial.items() if value != 0]
    return sympy.expand(sympy.Add(*terms))


def _expect_term(product: Product, model: Model) -> Any:
    """E of one product; where it is no layered sum as it stands, after sums over rows are split by which rows agree."""
    try:
        return algebra.expression_of(_expect_product(product, model))
    except NotLayered as reason:
        whole = _fixed_rows_summed(product, model)
        if whole is not None:
            return whole
        for size in sorted({s for piece, _ in product for s in piece.sizes}, key=str):
            try:
                split = _rows_split(product, size, model)
                terms = [value * _expect_term(one, model) for one, value in split.items()]
            except NotLayered:
                continue
            return sympy.Add(*terms)
        raise reason


def _fixed_rows_summed(product: Product, model: Model) -> Any:
    """Sums over rows of fixed arrays, taken outside the expectation: Σ_i E f(i) for a row i held fast.

    E is linear, and what row of a fixed array an index names never decides an expectation, so i may be any row, the
    same as another or not. Returns None where there is no such sum. The sum over i of power sums is put into the
    form of the diagrams, which here only sort: nothing random is left.
    """
    factors, sizes = _flat(product)
    random = {i for f in factors if model.place(f.array) is not None for i in _bound(f)}
    beside = {b for f in factors if model.place(f.array) is None for b in _bound(f)} - random
    # An index that only fixed arrays have: a row, unless nothing else is left to hold the piece together.
    if not beside:
        return None
    label = {b: sympy.Dummy(f"r{b}", integer=True) for b in sorted(beside)}
    placed = tuple(Factor(f.array, tuple(label.get(i, i) for i in f.indices)) for f in factors)
    split = in_pieces(sympy.S.One, placed, {b: s for b, s in sizes.items() if b not in label})
    held = sympy.expand(sympy.Add(*(value * _expect_term(one, model) for one, value in split.items())))
    opened = held.xreplace({node: node.opened() for node in held.atoms(PowerSum)})
    limits = [(label[b], 0, sizes[b] - 1) for b in label]
    # One term at a time: scalars such as 1/d_k stand outside what can be read as a sum over arrays.
    terms = (_separated(term) for term in sympy.Add.make_args(opened))
    return sympy.Add(*(scalar * expect_by_diagrams(read(sympy.Sum(body, *limits)), model) for scalar, body in terms))


def _separated(term: Any) -> tuple[Any, Any]:
    arrays = [f for f in sympy.Mul.make_args(term) if f.has(sympy.Indexed)]
    return sympy.Mul(*(f for f in sympy.Mul.make_args(term) if not f.has(sympy.Indexed))), sympy.Mul(*arrays)


def _flat(product: Product) -> tuple[list[Factor], dict[int, Any]]:
    """All factors of a product of pieces, with summed indices numbered through."""
    factors: list[Factor] = []
    sizes: dict[int, Any] = {}
    for piece, times in product:
        for _ in range(times):
            shift = len(sizes)
            sizes |= {shift + b: s for b, s in enumerate(piece.sizes)}
            factors += [
                Factor(f.array, tuple(i + shift if isinstance(i, int) else i for i in f.indices)) for f in piece.factors
            ]
    return factors, sizes


def _rows_split(product: Product, size: Any, model: Model) -> Polynomial:
    """Sums over rows of random arrays, as falling factorials times products at rows that differ.

    Σ over r row indices = Σ over set partitions of them into b classes of equal rows, N(N−1)…(N−b+1) ways each, since
    rows of arrays with independent, alike entries are exchangeable.
    """
    factors, sizes = _flat(product)
    rows = [b for b, s in sizes.items() if s == size]
    if any(model.place(f.array) is None for f in factors if set(_bound(f)) & set(rows)):
        raise NotLayered("rows of a fixed array are summed over")
    axes = {(_family(f, model), axis) for f in factors for axis, i in enumerate(f.indices) if i in rows}
    if any(not isinstance(f.indices[axis], int) for f in factors for own, axis in axes if own == _family(f, model)):
        raise NotLayered("a named row stands beside a sum over the rows of the same array")
    total: Polynomial = {}
    for blocks in multiset_partitions(rows):
        # Rows that are not rows of any array: no name can meet them.
        label = {b: sympy.Integer(-1 - rank) for rank, block in enumerate(blocks) for b in block}
        placed = tuple(Factor(f.array, tuple(label.get(i, i) for i in f.indices)) for f in factors)
        ways = sympy.Mul(*(size - rank for rank in range(len(blocks))))
        kept = {b: s for b, s in sizes.items() if b not in label}
        for one, value in in_pieces(sympy.S.One, placed, kept).items():
            total[one] = total.get(one, sympy.S.Zero) + ways * value
    return total


def _weight(cumulant: Any) -> Poly:
    """A cumulant as a polynomial; one with a denominator (1/d_model, say) is carried as a name."""
    try:
        return algebra.polynomial_of(cumulant)
    except StatementError:
        return algebra.generator(cumulant)


def _family(factor: Factor, model: Model) -> int | None:
    place = model.place(factor.array)
    return None if place is None else place[0]


def _expect_product(product: Product, model: Model) -> Poly:
    random = Counter({p: c for p, c in product if any(model.place(f.array) is not None for f in p.factors)})
    if len(random) < len(product):
        # Pieces of fixed arrays alone are numbers; the diagrams put them into one form.
        numbers = frozenset((p, c) for p, c in product if p not in random)
        value = algebra.polynomial_of(expect_by_diagrams({numbers: sympy.S.One}, model))
        return algebra.multiply(value, _expect_product(frozenset(random.items()), model))
    if not random:
        return algebra.constant(1)
    if all(not p.sizes for p in random):
        bag = bag_of(Counter({_entry_form(p, model): c for p, c in random.items()}))
        return _joint_moment(bag, model)
    size = _layer_size(random, model)
    forms = {piece: _forms(piece, size, model) for piece in random}

    def one(bag: Bag) -> Poly:
        flat: Counter[Any] = Counter()
        held = algebra.constant(1)
        for piece, times in bag:
            for form in forms[piece]:
                if isinstance(form, _Held):
                    held = algebra.multiply(held, algebra.generator(form, times))
                else:
                    flat[form] += times
        return algebra.multiply(held, _joint_moment(bag_of(flat), model))

    total = moments_of_sums(bag_of(random), lambda cumulant: _over_layer(cumulant, size, model), one)
    return _over_power_sums(total, model)


def _over_layer(poly: Poly, size: Any, model: Model) -> Poly:
    """Σ_c of a polynomial: `size` times each term, or the sum over c of the fixed entries that stand in it."""
    terms = []
    for monomial, value in poly.items():
        held = [(g, e) for g, e in monomial if isinstance(g, _Held)]
        rest: Poly = {frozenset((g, e) for g, e in monomial if not isinstance(g, _Held)): value}
        if held:
            place = sympy.Dummy("c", integer=True)
            body = sympy.Mul(*(g.at(place) ** e for g, e in held))
            whole = expect_by_diagrams(read(sympy.Sum(body, (place, 0, size - 1))), model)
            terms.append(algebra.multiply(rest, algebra.polynomial_of(whole)))
        else:
            terms.append(algebra.multiply(rest, algebra.polynomial_of(size)))
    return algebra.add(*terms)


def _entry_form(piece: Piece, model: Model) -> _Form:
    (factor,) = piece.factors
    return _plain(factor, model)


def _plain(factor: Factor, model: Model) -> _Form:
    place = model.place(factor.array)
    assert place is not None
    return _Form(*place, tuple(factor.indices), (), sympy.S.One)


def _layer_size(pieces: Counter[Piece], model: Model) -> Any:
    """The axis to sum over: one summed index of this size in every piece, standing alike in every random array."""
    candidates = sorted({s for p in pieces for s in p.sizes}, key=str)
    reasons = []
    for size in candidates:
        try:
            found = {form for piece in pieces for form in _forms(piece, size, model)}
            _check_apart(pieces, found, size, model)
            axes = {a for piece in pieces for a in _layer_axes(piece, size)}
        except NotLayered as reason:
            reasons.append(str(reason))
            continue
        if len(dict(axes)) != len(axes):
            reasons.append(f"an array is summed over {size} on two of its axes")
            continue
        return size
    raise NotLayered("; ".join(reasons) or "no summed index")


def _check_apart(pieces: Counter[Piece], forms: set[Any], size: Any, model: Model) -> None:
    """No array may stand inside the layer in one place and outside it in another: terms would not be independent."""
    inside = {form.family for form in forms if isinstance(form, _Form)}
    for piece in pieces:
        layer = _layer_index(piece, size)
        for factor in piece.factors:
            if layer not in _bound(factor) and _family(factor, model) in inside:
                raise NotLayered(f"{factor.array} stands both inside and outside the sum over {size}")


def _layer_index(piece: Piece, size: Any) -> int:
    found = [b for b, s in enumerate(piece.sizes) if s == size]
    if len(found) != 1:
        raise NotLayered(f"{len(found)} summed indices of size {size} in one piece, not one")
    return found[0]


def _layer_axes(piece: Piece, size: Any) -> set[tuple[Any, int]]:
    layer = _layer_index(piece, size)
    return {(f.array, f.indices.index(layer)) for f in piece.factors if layer in _bound(f)}


def _bound(factor: Factor) -> list[int]:
    return [i for i in factor.indices if isinstance(i, int)]


def _forms(piece: Piece, size: Any, model: Model) -> tuple[_Form | _Held, ...]:
    """The piece at one place of the layer, as a product of linear forms in the arrays that have the layer's axis."""
    layer = _layer_index(piece, size)
    inner = [f for f in piece.factors if layer in _bound(f)]
    outer = [f for f in piece.factors if layer not in _bound(f)]
    forms: list[_Form | _Held] = []
    claimed: list[Factor] = []
    for factor in inner:
        place = model.place(factor.array)
        if place is None:
            if len(_bound(factor)) != 1:
                raise NotLayered(f"the fixed array {factor.array} is summed over two indices")
            forms.append(_Held(factor.array, tuple(None if isinstance(i, int) else i for i in factor.indices)))
            continue
        others = [i for i in factor.indices if i is not layer and i != layer]
        bound = [i for i in others if isinstance(i, int)]
        if len(_bound(factor)) != len(bound) + 1 or len(others) > 1:
            raise NotLayered(f"{factor.array} is summed twice over one index, or has more than two axes")
        if not bound:
            forms.append(_Form(*place, tuple(others), (), sympy.S.One))
            continue
        beside = [f for f in outer if bound[0] in _bound(f)]
        claimed += beside
        forms.append(_Form(*place, None, _weights(beside, bound[0]), piece.sizes[bound[0]]))
        if sum(bound[0] in _bound(f) for f in inner) > 1:
            raise NotLayered("two random arrays share a second summed index")
    if len(claimed) != len(outer):
        raise NotLayered("an array without the layer's axis is not a weight of one linear form")
    return tuple(forms)


def _weights(beside: list[Factor], index: int) -> tuple[tuple[Any, Any], ...]:
    pairs = []
    for factor in beside:
        if len(factor.indices) != 2 or factor.indices[1] != index or isinstance(factor.indices[0], int):
            raise NotLayered(
                f"{factor.array}: expected a row of a matrix, as X[i, a], for the weights of a linear form"
            )
        pairs.append((factor.array, factor.indices[0]))
    return tuple(sorted(pairs, key=str))


def _joint_moment(forms: Bag, model: Model) -> Poly:
    """E of a product of linear forms: families are independent, and within one the cumulants of linear forms add."""
    result = algebra.constant(1)
    for family in sorted({form.family for form, _ in forms}):
        own = tuple((form, c) for form, c in forms if form.family == family)
        result = algebra.multiply(result, moments_from_cumulants(own, lambda block: _form_cumulant(block, model)))
    return result


def _form_cumulant(block: Bag, model: Model) -> Poly:
    forms = [form for form, _ in block]
    family = model.families[forms[0].family]
    counts = tuple(sum(c for form, c in block if form.member == m) for m in range(len(family.members)))
    plain = [not form.weights and form.row is not None for form in forms]
    if any(plain) and not all(plain):
        raise NotLayered("plain entries and sums of one array in one product")
    if all(plain):
        first = forms[0].row
        for form in forms[1:]:
            if not all(x == y or model.same(x, y) for x, y in zip(first, form.row, strict=True)):
                return {}
        return _weight(family.joint_cumulant(counts))
    weight = _weight(family.joint_cumulant(counts))
    if not weight:
        return {}
    rows = tuple(sorted((pair for form, c in block for pair in form.weights * c), key=str))
    return algebra.multiply(weight, algebra.generator(_PowerSum(rows, forms[0].size)))


def _over_power_sums(poly: Poly, model: Model) -> Poly:
    """Replace power sums by nodes where X is fixed, or take E of their monomials where it is random."""
    terms = []
    for monomial, value in poly.items():
        sums = Counter({g: e for g, e in monomial if isinstance(g, _PowerSum)})
        rest: Poly = {frozenset((g, e) for g, e in monomial if not isinstance(g, _PowerSum)): value}
        terms.append(algebra.multiply(rest, _expect_power_sums(sums, model)) if sums else rest)
    return algebra.add(*terms)


def _expect_power_sums(sums: Counter[_PowerSum], model: Model) -> Poly:
    fixed: Poly = algebra.constant(1)
    random: Counter[_PowerSum] = Counter()
    for one, times in sums.items():
        places = {model.place(array) for array, _ in one.rows}
        if not one.rows:
            fixed = algebra.multiply(fixed, algebra.power(algebra.polynomial_of(one.size), times))
        elif places == {None}:
            node = _node(one)
            fixed = algebra.multiply(fixed, algebra.generator(node, times))
        elif None not in places:
            random[one] += times
        else:
            raise NotLayered("fixed and random weights in one sum")
    if not random:
        return fixed
    sizes = {one.size for one in random}
    if len(sizes) != 1:
        raise NotLayered(f"power sums over {len(sizes)} different axes in one product")

    def one_copy(bag: Bag) -> Poly:
        entries: Counter[Any] = Counter()
        for power_sum, times in bag:
            for array, row in power_sum.rows:
                place = model.place(array)
                assert place is not None
                entries[_Form(*place, (row,), (), sympy.S.One)] += times
        return _joint_moment(bag_of(entries), model)

    size = algebra.polynomial_of(sizes.pop())
    return algebra.multiply(
        fixed, moments_of_sums(bag_of(random), lambda cumulant: algebra.multiply(size, cumulant), one_copy)
    )


def _node(one: _PowerSum) -> Any:
    arrays = {array for array, _ in one.rows}
    if len(arrays) != 1:
        raise NotLayered("rows of different fixed arrays in one sum")
    return PowerSum(arrays.pop(), one.size, *(row for _, row in one.rows))
