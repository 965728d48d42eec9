"""The algebra of power sums p_k = Σ_j α_j^k of a softmax row: derivatives, the Laplacian, Stein's identity.

Guarantees: exact, for every n; the only facts typed in are ∂α_j/∂x_l = α_j (δ_jl - α_l) and ∂ log Z/∂x_l = α_l. From
them a function F of the power sums (and log Z) has

    ∂_l p_k = k (a^k - a p_k),   a = α_l,   and   ∂_l (a^j G) follows by the product rule with ∂_l a = a (1 - a),

so every derivative is a polynomial in a, p_2, p_3, …, and Σ_l turns a^j into p_j (a into 1, a^0 into n).
Does not: average anything. Polynomials here are dictionaries from exponent vectors to coefficients in Q[n, v].
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy
from sympy.polys.rings import PolyElement, PolyRing

from derive.errors import StatementError
from derive.row_nodes import DEFINITIONS, LOG_Z, M1, p

N = sympy.Symbol("n", positive=True)
V = sympy.Symbol("v", positive=True)


class PowerSums:
    """The ring Q[n, v][a, log_Z, m, p_2 … p_top] and its derivations. m stands for α·x."""

    def __init__(self, top: int) -> None:
        self.top = top
        symbols = [N, V, sympy.Symbol("a"), LOG_Z, M1, *(p(k) for k in range(2, top + 1))]
        self.ring = PolyRing([s.name for s in symbols], sympy.QQ, sympy.polys.orderings.lex)
        self.symbols = symbols
        gens = self.ring.gens
        self.n, self.v, self.a, self.log_z, self.m = gens[:5]
        self.sums = {1: self.ring.one, **{k: gens[3 + k] for k in range(2, top + 1)}}

    def read(self, expression: Any) -> PolyElement:
        """A SymPy expression as an element of the ring; abbreviations are written out. Raises StatementError."""
        known = {s.name: g for s, g in zip(self.symbols, self.ring.gens, strict=True)}
        expression = sympy.expand(sympy.sympify(expression, strict=True).subs(DEFINITIONS))
        strangers = {s.name for s in expression.free_symbols} - set(known)
        if strangers:
            raise StatementError(f"{expression}: {', '.join(sorted(strangers))} is no power sum, log_Z, n or v")
        try:
            poly = sympy.Poly(expression, *sorted(expression.free_symbols, key=str), domain=sympy.QQ)
        except (sympy.PolynomialError, sympy.CoercionFailed) as error:
            raise StatementError(f"{expression} is not a polynomial in power sums with rational numbers") from error
        except sympy.GeneratorsNeeded:
            return self.ring.one * sympy.QQ.from_sympy(expression)
        out = self.ring.zero
        gens = [known[s.name] for s in poly.gens]
        for exponents, coefficient in poly.terms():
            term = self.ring.one * sympy.QQ.from_sympy(coefficient)
            for gen, exponent in zip(gens, exponents, strict=True):
                term = term * gen**exponent
            out = out + term
        return out

    def by_score(self, f: PolyElement) -> PolyElement:
        """∂F/∂x_l for a polynomial in a = α_l, log Z and the power sums; α·x must not occur."""
        if f.diff(self.m):
            raise StatementError("α·x is removed by Stein's identity first; it can't be differentiated here")
        out = f.diff(self.a) * self.a * (1 - self.a) + f.diff(self.log_z) * self.a
        for k in range(2, self.top + 1):
            slope = f.diff(self.sums[k])
            if slope:
                out += slope * k * (self.a**k - self.a * self.sums[k])
        return out

    def over_keys(self, f: PolyElement) -> PolyElement:
        """Σ_l f, with a^j replaced by p_j."""
        index = self.ring.gens.index(self.a)
        out = self.ring.zero
        for exponents, coefficient in f.terms():
            power = exponents[index]
            if power > self.top:
                raise StatementError(f"needs p_{power}; the ring was made to p_{self.top}")
            rest = list(exponents)
            rest[index] = 0
            out += self.ring.term_new(tuple(rest), coefficient) * (self.n if power == 0 else self.sums[power])
        return out

    def laplacian(self, f: PolyElement) -> PolyElement:
        """ΔF = Σ_l ∂²F/∂x_l²."""
        return self.over_keys(self.by_score(self.by_score(f)))

    def stein(self, f: PolyElement) -> PolyElement:
        """Replace each (α·x) G by v Σ_l ∂_l (α_l G): they have the same mean when x_l are i.i.d. N(0, v).

        Gaussian integration by parts, E[x_l h(x)] = v E[∂_l h(x)], with h = α_l G, bounded with bounded derivatives.
        """
        index = self.ring.gens.index(self.m)
        out = self.ring.zero
        for exponents, coefficient in f.terms():
            power = exponents[index]
            rest = list(exponents)
            rest[index] = 0
            factor = self.ring.term_new(tuple(rest), coefficient)
            if power > 1:
                raise StatementError("Stein's identity is used here for expressions linear in α·x")
            out += self.v * self.over_keys(self.by_score(self.a * factor)) if power else factor
        return out

    def at_equal_scores(self, f: PolyElement) -> Any:
        """F at x = 0, where α_j = 1/n and p_k = n^(1-k): a SymPy expression in n, with log Z = log n."""
        total = sympy.Integer(0)
        for exponents, coefficient in f.terms():
            values = dict(zip(self.symbols, exponents, strict=True))
            term = sympy.QQ.to_sympy(coefficient) * N ** values[N] * V ** values[V] * sympy.log(N) ** values[LOG_Z]
            lost = sum((k - 1) * values[p(k)] for k in range(2, self.top + 1))
            total += term * N**-lost
        return sympy.expand(total)

    def write(self, f: PolyElement) -> Any:
        """An element of the ring as a SymPy expression."""
        return sympy.Add(
            *(
                sympy.QQ.to_sympy(c) * sympy.Mul(*(s**e for s, e in zip(self.symbols, exponents, strict=True)))
                for exponents, c in f.terms()
            )
        )


def highest(expression: Any) -> int:
    """The largest k of a p_k in an expression whose abbreviations are written out (at least 2)."""
    names = [s.name for s in sympy.sympify(expression, strict=True).subs(DEFINITIONS).free_symbols]
    return max([2, *(int(name[2:]) for name in names if name.startswith("p_") and name[2:].isdigit())])


@cache
def taylor(expression: Any, order: int) -> tuple[Any, ...]:
    """Coefficients of v^0 … v^order of E[expression] at v = 0, exact in n (log Z gives log n in the first).

    E F is infinitely differentiable in v ≥ 0 with derivatives 2^-k E Δ^k F (heat equation), so the coefficient of
    v^k is (Δ^k F)(0) / (2^k k!).
    """
    ring = PowerSums(highest(expression) + 2 * order + 2)
    f = ring.stein(ring.read(expression))
    out = [sympy.Integer(0)] * (order + 1)
    factor = sympy.Integer(1)
    for k in range(order + 1):
        # Stein's identity may have left explicit powers of v, which shift what they multiply.
        for power, coefficient in _by_power_of_v(ring.at_equal_scores(f)).items():
            if power + k <= order:
                out[power + k] += coefficient * factor
        f = ring.laplacian(f)
        factor /= 2 * (k + 1)
    return tuple(sympy.factor(c) if c.has(N) else c for c in out)


@cache
def remainder_bound(expression: Any, order: int) -> Any:
    """C with |E[expression] - its Taylor polynomial of degree order| ≤ C v^(order+1), at every n and v ≥ 0.

    Lagrange's remainder is at most sup |Δ^(order+1) F| / (2^(order+1) (order+1)!), and every power sum is at most 1.
    For polynomials in power sums alone.
    """
    ring = PowerSums(highest(expression) + 2 * order + 4)
    f = ring.read(expression)
    for _ in range(order + 1):
        f = ring.laplacian(f)
    if any(f.diff(g) for g in (ring.n, ring.v, ring.log_z, ring.m)):
        raise StatementError(f"{expression}: the bound is stated for polynomials in power sums")
    total = sum((abs(c) for _, c in f.terms()), sympy.QQ(0))
    return sympy.QQ.to_sympy(total) / (2 ** (order + 1) * sympy.factorial(order + 1))


def _by_power_of_v(expression: Any) -> dict[int, Any]:
    poly = sympy.Poly(expression, V)
    return {exponents[0]: coefficient for exponents, coefficient in poly.terms()}
