"""The parts of the normal form by themselves: bounds, binders, ranges, signs, against brute force."""

import itertools
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from derive.binders import canonical, name_binders
from derive.calculus import derivative
from derive.cases import split_case
from derive.index import Facts, Ix
from derive.normal import Normaliser
from derive.powers import rational_power
from derive.ranges import count_binder, join, reduce_bounds
from derive.reduction import absorb
from derive.signs import Environment, is_positive, nonempty
from derive.terms import Atom, Mono, Poly, Power, substitute, times

NAMES = ("n", "i", "j", "k")
CUBE = [dict(zip(NAMES, values, strict=True)) for values in itertools.product(range(-3, 6), repeat=4)]


def value(bound: Ix, point: dict[str, int]) -> int:
    total = 0
    for word, c in bound.terms:
        part = c
        for v in word:
            part *= point[v]
        total += part
    return total


linear = st.builds(
    lambda cs, c: Ix.of({**{(v,): k for v, k in zip(NAMES, cs, strict=True)}, (): c}),
    st.tuples(*[st.integers(-2, 2)] * 4),
    st.integers(-4, 4),
)
quadratic = st.builds(
    lambda a, b, c: a + Ix.of({("i", "j"): b, ("j", "n"): c}), linear, st.integers(-1, 1), st.integers(-1, 1)
)
bounds = st.lists(st.one_of(linear, linear, quadratic), min_size=1, max_size=5)


@settings(max_examples=150)
@given(bounds, st.one_of(linear, quadratic))
def test_what_facts_imply_holds_at_every_point(facts: list[Ix], goal: Ix) -> None:
    """A bound that "follows" is met by every integer point that meets the facts."""
    if Facts(facts).implies(goal):
        for point in CUBE:
            assert any(value(f, point) < 0 for f in facts) or value(goal, point) >= 0


@settings(max_examples=100)
@given(bounds)
def test_contradictory_facts_have_no_point(facts: list[Ix]) -> None:
    if Facts(facts).contradictory:
        assert all(any(value(f, point) < 0 for f in facts) for point in CUBE)


def test_what_index_reasoning_must_find() -> None:
    n, i, g, r, t = (Ix.var(v) for v in ("n", "i", "g", "r", "t"))
    assert Facts([i, (n - i).plus(-1)]).implies(n.plus(-1))
    assert not Facts([i]).implies(n)
    assert Facts([Ix.of({("i",): 2, (): -1})]).implies(i.plus(-1))  # 2i ≥ 1 means i ≥ 1 for integers
    total = Ix.of({("G", "r"): 1})
    groups = [g, Ix.var("G").plus(-1) - g, t, r.plus(-1) - t, r]
    assert Facts(groups).implies((total - Ix.of({("g", "r"): 1}) - t).plus(-1))


def entry(name: str, *indices: Ix | str) -> Poly:
    return Poly.atom(Atom("at", name, tuple(Ix.var(x) if isinstance(x, str) else x for x in indices)))


def summed(body: Poly, binder: str, count: str = "n") -> Poly:
    return body.summed(binder, (Ix.var(binder), (Ix.var(count) - Ix.var(binder)).plus(-1)))


def test_substitution_can_not_be_captured() -> None:
    """Σ_j A[i, j] with i := j is Σ_k A[j, k], not the trace."""
    row = summed(entry("A", "i", "j"), "j")
    moved = canonical(row.substitute({"i": Ix.var("j")}))
    assert moved == canonical(summed(entry("A", "j", "k"), "k"))
    assert moved != canonical(summed(entry("A", "j", "j"), "j"))


def test_a_product_keeps_binders_apart() -> None:
    total = summed(entry("x", "j"), "j")
    assert canonical(total.times(total)) == canonical(summed(summed(entry("x", "a").times(entry("x", "b")), "a"), "b"))
    assert canonical(total.times(total)) != canonical(summed(entry("x", "j").times(entry("x", "j")), "j"))


def test_substitution_inside_a_power_can_not_be_captured() -> None:
    """1/Σ_j A[i, j], summed over i after i := j, keeps its own j."""
    inverse = Poly.atom(Atom("pow", parts=(summed(entry("A", "i", "j"), "j"),)), -1)
    (mono, _), *_ = inverse.terms
    moved = substitute(mono, {"i": Ix.var("j")})
    wanted = Poly.atom(Atom("pow", parts=(summed(entry("A", "j", "k"), "k"),)), -1)
    assert canonical(moved) == canonical(wanted)


@settings(max_examples=60)
@given(
    st.permutations(["a", "b", "c", "d"]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6),
)
def test_canonical_names_forget_the_names(order: list[str], edges: list[tuple[int, int]]) -> None:
    """A graph's edges as factors: the same graph under any naming of its nodes has one key."""

    def term(names: list[str]) -> Mono:
        factors: dict[Atom, Power] = {}
        for u, v in edges:
            atom = Atom("at", "A", (Ix.var(names[u]), Ix.var(names[v])))
            factors[atom] = factors.get(atom, Power(0)) + 1
        limits = [x for v in names for x in (Ix.var(v), (Ix.var("n") - Ix.var(v)).plus(-1))]
        return Mono(tuple(names), limits, (), factors.items())

    assert name_binders(term(order)).key == name_binders(term(["a", "b", "c", "d"])).key


def test_joining_is_only_for_ranges_that_meet() -> None:
    facts = Facts([Ix.var("m"), Ix.var("n") - Ix.var("m")])
    m, n, j = Ix.var("m"), Ix.var("n"), Ix.var("j")
    low = Mono(("j",), [j, (m - j).plus(-1)], (), entry("x", "j").terms[0][0].factors)
    high = Mono(("j",), [j - m, (n - j).plus(-1)], (), entry("x", "j").terms[0][0].factors)
    apart = Mono(("j",), [(j - m).plus(-1), (n - j).plus(-1)], (), entry("x", "j").terms[0][0].factors)
    joined = join({low: Fraction(1), high: Fraction(1)}, facts)
    assert joined is not None
    assert len(joined) == 1
    assert join({low: Fraction(1), apart: Fraction(1)}, facts) is None
    assert join({low: Fraction(1), high: Fraction(1)}, Facts()) is None  # nothing says that m ≤ n


def test_counting_keeps_the_bracket_that_keeps_a_term_defined() -> None:
    j, d = Ix.var("j"), Ix.var("d")
    inside = Mono(("j",), [j, (d - j).plus(-1)], (), [(Atom("var", "d"), Power(-1))])
    plain = Mono(("j",), [j, (d - j).plus(-1)], (), [(Atom("var", "s"), Power(1))])
    facts = Facts([d])
    counted = count_binder(inside, facts, Environment(facts=facts))
    assert counted is not None
    assert all(m.bounds for m, _ in counted.terms)
    free = count_binder(plain, facts, Environment(facts=facts))
    assert free is not None
    assert not any(m.bounds for m, _ in free.terms)


def test_a_denominator_is_absorbed_only_where_it_is_not_zero() -> None:
    weights = Mono(("j",), [Ix.var("j"), (Ix.var("n") - Ix.var("j")).plus(-1)], (), (), entry("x", "j"))
    inverse = Mono(factors=[(Atom("pow", parts=(Poly.mono(weights),)), Power(-1))])
    product = times(weights, inverse)
    some = Facts([Ix.var("n").plus(-1)])
    assert absorb(product, some, Environment(facts=some)) == Poly.const(1)
    maybe = Facts([Ix.var("n")])
    result = absorb(product, maybe, Environment(facts=maybe))
    assert result is not None
    assert result != Poly.const(1)
    assert all(m.bounds for m, _ in result.terms)  # [n ≥ 1], not 1


def test_signs() -> None:
    facts = Facts([Ix.var("n")])
    env = Environment(facts=facts, positive=frozenset({"p"}))
    row = Poly.mono(Mono(("j",), [Ix.var("j"), (Ix.var("n") - Ix.var("j")).plus(-1)], (), (), entry("x", "j")))
    assert not is_positive(row, env, facts)
    assert is_positive(row, env, facts.given([Ix.var("n").plus(-1)]))
    assert is_positive(row + Poly.atom(Atom("var", "p")), env, facts)
    assert not is_positive(row - Poly.atom(Atom("var", "p")), env, facts)
    assert is_positive(Poly.atom(Atom("at", "x", (Ix.var("n"),)), 2) + Poly.const(1), env, facts)
    assert not is_positive(Poly.atom(Atom("at", "x", (Ix.var("n"),)), 2), env, facts)
    triangle = Mono(("i", "j"), [Ix.var("i"), Ix.var("j") - Ix.var("i"), (Ix.var("n") - Ix.var("j")).plus(-1)])
    assert not nonempty(triangle, facts)
    assert nonempty(triangle, facts.given([Ix.var("n").plus(-1)]))


def test_reduced_bounds_keep_the_set() -> None:
    i, j, n = (Ix.var(v) for v in ("i", "j", "n"))
    mono = Mono(("i", "j"), [i, (n - i).plus(-1), j, i - j, (n - j).plus(-1)])
    kept = reduce_bounds(mono, Facts([n])).bounds
    assert len(kept) == 3
    for point in CUBE:
        if point["n"] >= 0:
            assert all(value(b, point) >= 0 for b in kept) == all(value(b, point) >= 0 for b in mono.bounds)


def test_cases_add_up() -> None:
    """exp([i = a] s + t) = exp(t) + [i = a](exp(s + t) − exp(t))."""
    equal = Poly.mono(Mono(equations=[Ix.var("i") - Ix.var("a")]))
    s, t = Poly.atom(Atom("var", "s")), Poly.atom(Atom("var", "t"))
    split = split_case(Mono(argument=equal.times(s) + t))
    assert split is not None
    here = Mono(argument=s + t)
    there = Mono(argument=t)
    bracket = frozenset({Ix.var("i") - Ix.var("a")})
    wanted = (
        Poly.mono(there)
        + Poly.mono(Mono(equations=bracket, argument=s + t))
        - Poly.mono(Mono(equations=bracket, argument=t))
    )
    assert split == wanted
    assert here != there


def test_roots_of_rationals() -> None:
    root = rational_power(Fraction(12), Fraction(1, 2))
    assert root == Poly.atom(Atom("prime", "3"), Fraction(1, 2)).scaled(2)
    assert rational_power(Fraction(4, 9), Fraction(-1, 2)) == Poly.const(Fraction(3, 2))
    square = Normaliser(Environment()).normal(root.times(root))
    assert square == Poly.const(12)


def test_the_derivative_of_an_entry_is_two_deltas() -> None:
    slope = derivative(entry("X", "i", "j"), "X", (Ix.var("a"), Ix.var("b")))
    (mono, c), *rest = slope.terms
    assert c == 1
    assert not rest
    assert mono.equations == {Ix.var("i") - Ix.var("a"), Ix.var("j") - Ix.var("b")}
    assert derivative(entry("Y", "i", "j"), "X", (Ix.var("a"), Ix.var("b"))).is_zero
