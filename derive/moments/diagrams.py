"""First route: set partitions weighted by joint cumulants, over index diagrams.

E of a product of entries is the sum over all ways to group the entries of each family into blocks, of the product of
the blocks' joint cumulants; a block is non-zero only if all its entries stand at one place, so it joins their
indices. Each class of joined summed indices then contributes the size of its axis, or, where fixed arrays stand on
it, a sum over those arrays (`PowerSum`, the Gram entry for two rows).

Guarantees: exact for every value of the sizes, since Σ over indices of Π δ is the product of the class sizes.
Does not: use the other two routes or share their code beyond the reading of the statement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from math import comb
from typing import Any

import sympy

from derive.errors import MomentError
from derive.moments.model import Family, GaussianField, Model
from derive.moments.nodes import PowerSum
from derive.moments.reader import Factor, Polynomial, Product

_Union = tuple[int, int]


@dataclass(frozen=True)
class _Slot:
    """One random entry: the copy of the piece it stands in, its member in the family, its index nodes.

    number: its own, since an entry that is squared stands there twice, alike in all else.
    """

    number: int
    copy: int
    member: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class _Grouping:
    """One way to group a family's entries: what it joins, its cumulants, and how many ways are like it.

    entries: covariances between places that it brings in, as entries of fixed arrays.
    """

    joins: tuple[_Union, ...]
    cumulants: tuple[tuple[int, ...], ...]
    ways: int = 1
    entries: tuple[tuple[Any, tuple[int, ...]], ...] = ()


def expect_by_diagrams(polynomial: Polynomial, model: Model) -> Any:
    """E of a polynomial in pieces, expanded. Raises MomentError where a cumulant that is needed isn't there."""
    for product in polynomial:
        model.check_order(product)
    terms = [value * _expect_product(product, model) for product, value in polynomial.items() if value != 0]
    return sympy.expand(sympy.Add(*terms))


class _Diagram:
    """The index nodes of one product of pieces: summed indices and row labels, numbered."""

    def __init__(self, product: Product, model: Model) -> None:
        self.model = model
        self.sizes: list[Any] = []
        self.labels: dict[int, Any] = {}
        self.colour: list[int] = []
        self.slots: dict[int, list[_Slot]] = defaultdict(list)
        self.fixed: list[tuple[Any, tuple[int, ...]]] = []
        label_node: dict[Any, int] = {}
        for colour, (piece, times) in enumerate(sorted(product, key=lambda item: str(item[0]))):
            for _ in range(times):
                first = len(self.sizes)
                self.sizes += list(piece.sizes)
                for factor in piece.factors:
                    nodes = tuple(
                        first + i if isinstance(i, int) else self._label(i, label_node) for i in factor.indices
                    )
                    self._add(factor, nodes, len(self.colour))
                self.colour.append(colour)

    def _label(self, label: Any, known: dict[Any, int]) -> int:
        if label not in known:
            known[label] = len(self.sizes)
            self.sizes.append(None)
            self.labels[known[label]] = label
        return known[label]

    def _add(self, factor: Factor, nodes: tuple[int, ...], copy: int) -> None:
        place = self.model.place(factor.array)
        if place is None:
            self.fixed.append((factor.array, nodes))
        else:
            family, member = place
            self.slots[family].append(_Slot(len(self.slots[family]), copy, member, nodes))

    def can_join(self, a: _Slot, b: _Slot) -> bool:
        """False when the entries stand in rows that are known to differ."""
        return all(
            x == y or x not in self.labels or y not in self.labels or self.model.same(self.labels[x], self.labels[y])
            for x, y in zip(a.nodes, b.nodes, strict=True)
        )


def _expect_product(product: Product, model: Model) -> Any:
    diagram = _Diagram(product, model)
    order = sorted(diagram.slots, key=lambda f: _one_a_copy(diagram, f), reverse=True)
    groupings = []
    for rank, number in enumerate(order):
        slots, family = diagram.slots[number], model.families[number]
        if isinstance(family.law, GaussianField):
            groupings.append(list(_pairings(slots, family.law)))
            continue
        symmetric = rank == 0 and _one_a_copy(diagram, number)
        listed = _grouped_by_type(slots, family, diagram) if symmetric else list(_all_groupings(slots, family, diagram))
        groupings.append(listed)
    counts: Counter[tuple[Any, ...]] = Counter()
    _walk(diagram, groupings, list(range(len(diagram.sizes))), (), (), 1, counts)
    return sympy.Add(*(times * _value(key, model, order) for key, times in counts.items()))


def _one_a_copy(diagram: _Diagram, family: int) -> bool:
    copies = [slot.copy for slot in diagram.slots[family]]
    return len(set(copies)) == len(copies)


def _walk(
    diagram: _Diagram,
    groupings: list[list[_Grouping]],
    leader: list[int],
    chosen: tuple[tuple[tuple[int, ...], ...], ...],
    entries: tuple[tuple[Any, tuple[int, ...]], ...],
    ways: int,
    counts: Counter[tuple[Any, ...]],
) -> None:
    """Choose a grouping for one family after the other, joining indices as we go; stop where two rows would meet."""
    if len(chosen) == len(groupings):
        counts[(chosen, _classes(diagram, leader, entries))] += ways
        return
    for grouping in groupings[len(chosen)]:
        joined = _joined(diagram, leader, grouping.joins)
        if joined is not None:
            more = (*entries, *grouping.entries)
            _walk(diagram, groupings, joined, (*chosen, grouping.cumulants), more, ways * grouping.ways, counts)


def _joined(diagram: _Diagram, leader: list[int], joins: tuple[_Union, ...]) -> list[int] | None:
    """Leaders after the joins; a class that holds a row label is led by it. None if two different rows meet."""
    leader = leader.copy()
    for a, b in joins:
        while leader[a] != a:
            a = leader[a]
        while leader[b] != b:
            b = leader[b]
        if a == b:
            continue
        if b in diagram.labels:
            if a in diagram.labels and not diagram.model.same(diagram.labels[a], diagram.labels[b]):
                return None
            leader[a] = b
        else:
            leader[b] = a
    return leader


def _all_groupings(slots: list[_Slot], family: Family, diagram: _Diagram) -> Iterator[_Grouping]:
    """Every grouping whose cumulants are not 0."""
    if not slots:
        yield _Grouping((), ())
        return
    first, rest = slots[0], [s for s in slots[1:] if diagram.can_join(slots[0], s)]
    for extra in range(len(rest) + 1):
        for others in combinations(rest, extra):
            block = (first, *others)
            counts = _counts(block, family)
            if _cumulant(family, counts) == 0:
                continue
            left = [s for s in slots[1:] if s not in others]
            for tail in _all_groupings(left, family, diagram):
                yield _Grouping(_block_joins(block) + tail.joins, tuple(sorted((counts, *tail.cumulants))))


def _pairings(slots: list[_Slot], field: GaussianField) -> Iterator[_Grouping]:
    """Every way to pair the entries of a Gaussian field (Isserlis); a pair joins nothing and brings its covariance."""
    if not slots:
        yield _Grouping((), ())
        return
    for partner in slots[1:]:
        one, other = sorted((slots[0], partner), key=lambda s: s.member)
        entry = (field.covariances[one.member, other.member], one.nodes + other.nodes)
        left = [s for s in slots[1:] if s is not partner]
        for tail in _pairings(left, field):
            yield _Grouping((), (), 1, (entry, *tail.entries))


def _grouped_by_type(slots: list[_Slot], family: Family, diagram: _Diagram) -> list[_Grouping]:
    """One grouping of each type, with the number of groupings of that type.

    Sound where the family has one entry a copy: copies of one piece can be exchanged without changing the sum over
    all groupings of the other families, so of the ways to choose a block with given numbers of each colour, the
    first one stands for all of them.
    """
    found: dict[tuple[Any, ...], _Grouping] = {}

    def extend(left: list[_Slot], blocks: tuple[tuple[_Slot, ...], ...], ways: int) -> None:
        if not left:
            key = tuple(sorted(tuple(sorted(diagram.colour[s.copy] for s in b)) for b in blocks))
            joins = tuple(j for b in blocks for j in _block_joins(b))
            before = found[key].ways if key in found else 0
            cumulants = tuple(sorted(_counts(b, family) for b in blocks))
            found[key] = _Grouping(found[key].joins if key in found else joins, cumulants, before + ways)
            return
        first = left[0]
        pools: dict[int, list[_Slot]] = defaultdict(list)
        for slot in left[1:]:
            pools[diagram.colour[slot.copy]].append(slot)
        for picked, times in _picks(list(pools.values())):
            block = (first, *picked)
            if not all(diagram.can_join(first, s) for s in picked) or _cumulant(family, _counts(block, family)) == 0:
                continue
            extend([s for s in left[1:] if s not in picked], (*blocks, block), ways * times)

    extend(list(slots), (), 1)
    return list(found.values())


def _picks(pools: list[list[_Slot]]) -> Iterator[tuple[tuple[_Slot, ...], int]]:
    if not pools:
        yield (), 1
        return
    for tail, times in _picks(pools[1:]):
        for size in range(len(pools[0]) + 1):
            yield (*pools[0][:size], *tail), times * comb(len(pools[0]), size)


def _counts(block: tuple[_Slot, ...], family: Family) -> tuple[int, ...]:
    members = [slot.member for slot in block]
    return tuple(members.count(m) for m in range(len(family.members)))


@lru_cache(maxsize=4096)
def _cumulant(family: Family, counts: tuple[int, ...]) -> Any:
    return family.joint_cumulant(counts)


def _block_joins(block: tuple[_Slot, ...]) -> tuple[_Union, ...]:
    head = block[0].nodes
    return tuple((a, b) for slot in block[1:] for a, b in zip(head, slot.nodes, strict=True))


def _classes(diagram: _Diagram, leader: list[int], entries: tuple[tuple[Any, tuple[int, ...]], ...]) -> tuple[Any, ...]:
    """What the joined indices come to: sizes of free classes, and sums over the fixed arrays."""

    def lead(node: int) -> int:
        while leader[node] != node:
            node = leader[node]
        return node

    networks: dict[Any, list[tuple[Any, tuple[int, ...]]]] = defaultdict(list)
    fixed = [(array, tuple(lead(node) for node in nodes)) for array, nodes in (*diagram.fixed, *entries)]
    component = _components(fixed, diagram)
    for number, factor in enumerate(fixed):
        networks[component[number]].append(factor)
    touched = {node for _, nodes in fixed for node in nodes}
    lone = [
        diagram.sizes[r]
        for r in sorted({lead(node) for node in range(len(leader))})
        if r not in touched and r not in diagram.labels
    ]
    atoms = [_network(diagram, factors) for factors in networks.values()]
    return tuple(sorted(lone, key=str)), tuple(sorted(atoms, key=str))


def _components(fixed: list[tuple[Any, tuple[int, ...]]], diagram: _Diagram) -> list[int]:
    """For each fixed factor the number of the component it hangs in, by shared summed indices."""
    component = list(range(len(fixed)))
    for a, b in combinations(range(len(fixed)), 2):
        shared = set(fixed[a][1]) & set(fixed[b][1]) - set(diagram.labels)
        if shared and component[a] != component[b]:
            old, new = component[b], component[a]
            component = [new if c == old else c for c in component]
    return component


def _network(diagram: _Diagram, factors: list[tuple[Any, tuple[int, ...]]]) -> Any:
    """The sum over all summed indices of a product of fixed entries, in one canonical form."""
    bound = sorted({node for _, nodes in factors for node in nodes} - set(diagram.labels))
    if len(bound) == 1 and all(
        array == factors[0][0] and len(nodes) == 2 and nodes[0] in diagram.labels and nodes[1] == bound[0]
        for array, nodes in factors
    ):
        return PowerSum(factors[0][0], diagram.sizes[bound[0]], *(diagram.labels[nodes[0]] for _, nodes in factors))
    if len(bound) > 5:
        raise MomentError(
            f"a sum over {len(bound)} joint indices of fixed arrays is more than the diagrams put in order"
        )
    symmetric = diagram.model.symmetric
    candidates = []
    for order in permutations(bound):
        number = {node: place for place, node in enumerate(order)}
        shape = tuple(str(diagram.sizes[node]) for node in order)
        named = (
            (array, [f"#{number[n]}" if n in number else str(diagram.labels[n]) for n in nodes])
            for array, nodes in factors
        )
        text = sorted((str(a), tuple(sorted(names) if a in symmetric else names)) for a, names in named)
        candidates.append((shape, text, order))
    _, _, order = min(candidates, key=lambda c: (c[0], c[1]))
    binder = {node: sympy.Symbol(f"a_{place}", integer=True) for place, node in enumerate(order)}
    taken = {str(label) for label in diagram.labels.values()}
    if taken & {str(b) for b in binder.values()}:
        raise MomentError("row labels named a_0, a_1, … are taken by the sums over fixed arrays: rename the rows")

    def entry(array: Any, nodes: tuple[int, ...]) -> Any:
        indices = [binder.get(n, diagram.labels.get(n)) for n in nodes]
        return array[tuple(sorted(indices, key=str) if array in symmetric else indices)]

    body = sympy.Mul(*(entry(array, nodes) for array, nodes in factors))
    limits = [(binder[node], 0, diagram.sizes[node] - 1) for node in order]
    return sympy.Sum(body, *limits) if limits else body


def _value(key: tuple[Any, ...], model: Model, order: list[int]) -> Any:
    chosen, (sizes, atoms) = key
    weights = [
        _cumulant(model.families[number], counts)
        for number, cumulants in zip(order, chosen, strict=True)
        for counts in cumulants
    ]
    return sympy.Mul(*weights, *sizes, *atoms)
