"""Exact algebra for verdicts: polynomials over the rationals in named generators, and fractions of them.

Guarantees: `same` answers True only when both sides have equal coefficients after cross-multiplication, with square
roots reduced by (√r)² = r. No simplification heuristics, no floating point.
Does not: see identities between opaque generators (exp(x)·exp(−x) = 1): then it answers False, which means
"not shown equal" and is never evidence of a difference; `difference_at` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from typing import Any

import sympy

from derive.errors import StatementError

Monomial = frozenset[tuple[Any, int]]
Poly = dict[Monomial, Fraction]
_ONE: Monomial = frozenset()


class Root:
    """The generator √inside; its square is reduced to `inside`. inside: a polynomial, as a frozen set of its terms."""

    __slots__ = ("inside",)

    def __init__(self, inside: Poly) -> None:
        self.inside = frozenset(inside.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Root) and self.inside == other.inside

    def __hash__(self) -> int:
        return hash(("root", self.inside))


def constant(value: Any) -> Poly:
    number = Fraction(value)
    return {_ONE: number} if number else {}


def generator(name: Any, exponent: int = 1) -> Poly:
    return {frozenset([(name, exponent)]): Fraction(1)}


def add(*terms: Poly) -> Poly:
    total: Poly = {}
    for poly in terms:
        for monomial, value in poly.items():
            total[monomial] = total.get(monomial, Fraction(0)) + value
    return {m: v for m, v in total.items() if v}


def scale(poly: Poly, value: Any) -> Poly:
    return {m: v * value for m, v in poly.items()} if value else {}


def multiply(a: Poly, b: Poly) -> Poly:
    total: Poly = {}
    squares: list[Poly] = []
    for p, x in a.items():
        for q, y in b.items():
            monomial = _merged(p, q)
            if any(isinstance(g, Root) and e > 1 for g, e in monomial):
                squares.append(_reduced(monomial, x * y))
            else:
                total[monomial] = total.get(monomial, Fraction(0)) + x * y
    return add(total, *squares)


def _merged(p: Monomial, q: Monomial) -> Monomial:
    if not p or not q:
        return p or q
    powers = dict(p)
    for g, e in q:
        powers[g] = powers.get(g, 0) + e
    return frozenset(powers.items())


def _reduced(monomial: Monomial, value: Fraction) -> Poly:
    result: Poly = {
        frozenset(
            (g, e % 2 if isinstance(g, Root) else e) for g, e in monomial if not isinstance(g, Root) or e % 2
        ): value
    }
    for g, e in monomial:
        if isinstance(g, Root):
            result = multiply(result, power(dict(g.inside), e // 2))
    return result


def power(poly: Poly, exponent: int) -> Poly:
    result = constant(1)
    for _ in range(exponent):
        result = multiply(result, poly)
    return result


def fraction_of(expr: Any) -> tuple[Poly, Poly]:
    """(numerator, denominator) of a SymPy expression; what is neither +, ·, power nor number is a generator."""
    if expr.is_Rational:
        return constant(Fraction(int(expr.p), int(expr.q))), constant(1)
    if expr.is_Float:
        raise StatementError(f"expected exact numbers, got the floating-point number {expr}")
    if expr.is_Add:
        return _sum_of([fraction_of(a) for a in expr.args])
    if expr.is_Mul:
        tops, bottoms = zip(*(fraction_of(a) for a in expr.args), strict=True)
        return _product_of(tops), _product_of(bottoms)
    if expr.is_Pow and expr.exp.is_Integer:
        return _to_power(fraction_of(expr.base), int(expr.exp), expr)
    if expr.is_Pow and expr.exp.is_Rational and expr.exp.q == 2:
        root = _square_root(expr.base)
        return _to_power(root, int(expr.exp.p), expr)
    return generator(expr), constant(1)


def _sum_of(parts: list[tuple[Poly, Poly]]) -> tuple[Poly, Poly]:
    top, bottom = parts[0]
    for n, d in parts[1:]:
        if d == bottom:
            top = add(top, n)
        else:
            top, bottom = add(multiply(top, d), multiply(n, bottom)), multiply(bottom, d)
    return top, bottom


def _product_of(polys: tuple[Poly, ...]) -> Poly:
    result = constant(1)
    for one in polys:
        result = multiply(result, one)
    return result


def _to_power(pair: tuple[Poly, Poly], exponent: int, expr: Any) -> tuple[Poly, Poly]:
    top, bottom = pair if exponent >= 0 else (pair[1], pair[0])
    if not bottom:
        raise StatementError(f"{expr} divides by 0")
    return power(top, abs(exponent)), power(bottom, abs(exponent))


def _square_root(base: Any) -> tuple[Poly, Poly]:
    """√base as a fraction in roots. Factors are taken out only where they are ≥ 0: √(ab) = √a √b needs a ≥ 0."""
    top, bottom = fraction_of(base)
    if any(not _nonnegative(g) for m in bottom for g, _ in m) or any(v < 0 for v in bottom.values()):
        return generator(sympy.sqrt(base)), constant(1)
    inside = multiply(top, bottom)
    if not inside:
        return {}, constant(1)
    content, shared, rest = _content(inside)
    result = _root_of_number(content)
    for g, e in shared:
        result = multiply(
            result,
            multiply(
                generator(g, e // 2) if e > 1 else constant(1), generator(Root(generator(g))) if e % 2 else constant(1)
            ),
        )
    if rest != constant(1):
        result = multiply(result, generator(Root(rest)))
    return result, bottom


def _nonnegative(g: Any) -> bool:
    return isinstance(g, Root) or bool(getattr(g, "is_nonnegative", False))


def _content(poly: Poly) -> tuple[Fraction, list[tuple[Any, int]], Poly]:
    """poly = content · Π shared · rest, content a positive number, shared the generators ≥ 0 that all terms have."""
    top = gcd(*(abs(v.numerator) for v in poly.values()))
    bottom = 1
    for v in poly.values():
        bottom = bottom * v.denominator // gcd(bottom, v.denominator)
    content = Fraction(top, bottom)
    monomials = [dict(m) for m in poly]
    names = [g for g in monomials[0] if _nonnegative(g) and all(g in m for m in monomials)]
    shared = [(g, min(m[g] for m in monomials)) for g in names if not isinstance(g, Root)]
    lowered = dict(shared)
    rest = {
        frozenset((g, e - lowered.get(g, 0)) for g, e in m if e != lowered.get(g, 0)): v / content
        for m, v in poly.items()
    }
    return content, shared, rest


def _root_of_number(value: Fraction) -> Poly:
    inside, outside = value.numerator * value.denominator, 1
    for prime, times in sympy.factorint(inside).items():
        outside *= int(prime) ** (int(times) // 2)
    left = inside // outside**2
    result = constant(Fraction(outside, value.denominator))
    return result if left == 1 else multiply(result, generator(Root(constant(left))))


def polynomial_of(expr: Any) -> Poly:
    """A SymPy expression as a polynomial. Raises StatementError where it has a denominator that is not a number."""
    top, bottom = fraction_of(sympy.sympify(expr, strict=True))
    if set(bottom) != {_ONE}:
        raise StatementError(f"expected a polynomial, got {expr}")
    return scale(top, 1 / bottom[_ONE])


def expression_of(poly: Poly) -> Any:
    """The polynomial as a SymPy expression, expanded."""
    return sympy.Add(*(sympy.Rational(v.numerator, v.denominator) * _monomial_expression(m) for m, v in poly.items()))


def _monomial_expression(monomial: Monomial) -> Any:
    return sympy.Mul(
        *((sympy.sqrt(expression_of(dict(g.inside))) if isinstance(g, Root) else g) ** e for g, e in monomial)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two expressions are shown to be equal wherever both are defined."""
    a, b = fraction_of(sympy.sympify(one, strict=True)), fraction_of(sympy.sympify(other, strict=True))
    return multiply(a[0], b[1]) == multiply(b[0], a[1])


def difference_at(one: Any, other: Any, values: Mapping[Any, Any]) -> Any:
    """one − other with exact numbers put in; 0 or a number that shows they differ."""
    return (sympy.sympify(one, strict=True) - sympy.sympify(other, strict=True)).xreplace(dict(values))


def leading_term(expr: Any, size: Any) -> Any:
    """The term of the highest power of size, as size → ∞, of a fraction of polynomials in size and √size."""
    numerator, denominator, power_of_size = leading(expr, size)
    if not numerator:
        return sympy.S.Zero
    return sympy.factor(expression_of(numerator) / expression_of(denominator)) * size**power_of_size


def leading(expr: Any, size: Any) -> tuple[Poly, Poly, Any]:
    """(a, b, p) with expr ~ a/b · size^p as size → ∞; a is empty when expr is 0."""
    top, bottom = fraction_of(expr)
    if not top:
        return {}, constant(1), sympy.S.Zero
    high, numerator = _highest(top, size)
    low, denominator = _highest(bottom, size)
    return numerator, denominator, sympy.Rational(high - low, 2)


def _highest(poly: Poly, size: Any) -> tuple[int, Poly]:
    """(twice the highest power of size, its coefficient)."""
    root = Root(generator(size))
    parts: dict[int, Poly] = {}
    for monomial, value in poly.items():
        twice = sum(2 * e if g == size else e for g, e in monomial if g in (size, root))
        rest = frozenset((g, e) for g, e in monomial if g not in (size, root))
        if any(size in _symbols(g) for g, _ in rest):
            raise StatementError(f"the growth of {[g for g, _ in rest]} with {size} is not known here")
        parts.setdefault(twice, {})[rest] = value
    top = max(parts)
    return top, parts[top]


def _symbols(g: Any) -> set[Any]:
    if isinstance(g, Root):
        return {s for m, _ in g.inside for h, _ in m for s in _symbols(h)}
    return set(g.free_symbols)
