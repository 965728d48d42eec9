"""Arithmetic modulo a safe prime in which exp is an exact homomorphism: exp(a + b) = exp(a)·exp(b), without tolerance.

A number carries two independent things: its value in F_p, and its exponential. p = 2r + 1 with r prime, and exp goes
to the subgroup of order r, so exponents live in the prime field F_r: 1/√d exists among them, and exp(xy) = 1 is no
more likely than x·y = 0 (modulo p − 1 of a smooth p − 1 it would be thousands of times likelier).

The prime has 256 bits, and is one for which 2, 3, 5, 7, 11 and 13 are squares modulo p and modulo r: every size made
of them has a square root in both fields, √(ab) = √a·√b holds, and no size has to be a square. 61 bits would leave no
valid error bound for products inside exponents; 256 bits leave one below 2⁻⁴⁰ a draw for the statements of attention.

Guarantees: `certify_prime` proves p and r prime (Pocklington, from factors below 2⁶³) and the generator's order.
Does not: know logs, tanh, sin and cos. They are uninterpreted functions: a fresh random number for each argument, with
the derivative stated in `derive.jets`, exp(log x) = x, tanh and sin odd, cos even, and cos² + sin² = 1.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from derive.errors import StatementError

R = 28948022309329049710951698269466616928379277470321129223454721794174361271439
P = 2 * R + 1
# A prime factor of R − 1 above √R, with the prime factors of itself − 1.
_S = 1361129467683753894058177138377040603427
_S_FACTORS = (2, 53, 492053, 5658768872063, 4611686018427388039)
SMOOTH_PRIMES = (2, 3, 5, 7, 11, 13)


class Outside(StatementError):
    """The statement is outside the domain of the modular checker, as an exponential inside an exponential."""


class Undefined(Exception):
    """A draw met a division by zero or a number without a root: the draw is repeated, with other values."""


@cache
def certify_prime() -> bool:
    """Prove that P and R are prime, P = 2R + 1, and that 2..13 are squares modulo both. Raises AssertionError.

    Pocklington: N is prime if N − 1 = F·G with F > √N, all prime factors f of F known, and some a with
    a^(N−1) = 1 and gcd(a^((N−1)/f) − 1, N) = 1 for each f. The chain ends in factors below 2⁶³, which trial division
    and Miller–Rabin with the first twelve primes as bases decide for certain.
    """
    ok = (
        all(_is_prime_64(f) for f in _S_FACTORS)
        and math.prod(_S_FACTORS) == _S - 1
        and _pocklington(_S, _S_FACTORS)
        and _pocklington(R, (_S,))
        and _pocklington(P, (R,))
        and all(pow(q, R, P) == 1 and pow(q, (R - 1) // 2, R) == 1 for q in SMOOTH_PRIMES)
    )
    if not ok:
        raise AssertionError("the modulus of the second checker is not the safe prime it must be")
    return True


def _pocklington(n: int, factors: tuple[int, ...], base: int = 2) -> bool:
    if math.prod(factors) ** 2 <= n or any((n - 1) % f for f in factors):
        return False
    return pow(base, n - 1, n) == 1 and all(math.gcd(pow(base, (n - 1) // f, n) - 1, n) == 1 for f in factors)


def _is_prime_64(n: int) -> bool:
    """Miller–Rabin with twelve bases: exact below 3.3·10²⁴ (Sorenson and Webster, 2015)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if n < 2 or any(n % b == 0 for b in bases):
        return n in bases
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for b in bases:
        x = pow(b, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def generator(rng: random.Random) -> int:
    """A uniform generator of the subgroup of order R. Its order is asserted: R is prime, so 1 is the only exception."""
    certify_prime()
    while True:
        g = pow(rng.randrange(2, P - 1), 2, P)
        if g != 1:
            assert pow(g, R, P) == 1, "the generator's order is not R"
            return g


class Residue:
    """value v in F_p; exponential g^e·m, with e in F_r, or e None where it isn't known."""

    __slots__ = ("e", "m", "v")

    def __init__(self, v: int, e: int | None, m: int = 1) -> None:
        self.v, self.e, self.m = v, e, m

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Residue):
            return NotImplemented
        if self.e is None or other.e is None:
            return Residue((self.v + other.v) % P, None)
        m = self.m * other.m % P if self.m != 1 or other.m != 1 else 1
        return Residue((self.v + other.v) % P, (self.e + other.e) % R, m)

    def __neg__(self) -> Residue:
        return Residue(-self.v % P, None if self.e is None else -self.e % R, _inverse(self.m) if self.m != 1 else 1)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Residue):
            return NotImplemented
        v = self.v * other.v % P
        if self.e is None or other.e is None:
            # exp(0·x) = 1 whatever x is; any other product with an unknown exponential is unknown.
            return Residue(0, 0) if _is_zero(self) or _is_zero(other) else Residue(v, None)
        if self.m == 1 and other.m == 1:
            return Residue(v, self.e * other.e % R)
        for factor, rest in ((self, other), (other, self)):
            count = _small_integer(factor)
            exponent = rest.e
            if count is not None and exponent is not None:
                return Residue(v, exponent * count % R, pow(rest.m, count, P))
        return Residue(v, None)


def _is_zero(x: Residue) -> bool:
    return x.v == 0 and x.e == 0 and x.m == 1


def _small_integer(x: Residue) -> int | None:
    """The integer that value and exponent both stand for, if it is a small one: then exp(k·x) = exp(x)^k."""
    if x.e is None or x.m != 1:
        return None
    v = x.v if x.v < P // 2 else x.v - P
    return v if abs(v) < 2**20 and v % R == x.e else None


def _inverse(v: int) -> int:
    if v == 0:
        raise Undefined("division by zero")
    return pow(v, -1, P)


class Field:
    """The values of one draw: entries, scalars and uninterpreted functions, all from one seed, drawn on demand.

    exponent_bits: exponents of drawn variables are uniform below 2^exponent_bits, so that exponents of exponents'
    polynomials stay small integers and the error bound of `derive.modular_bound` holds.
    """

    splits_logs = True

    def __init__(
        self,
        seed: int,
        exponent_bits: int,
        *,
        zero_one: frozenset[str] = frozenset(),
        powers: Mapping[Any, int] | None = None,
    ) -> None:
        self.seed, self.bits = seed, exponent_bits
        self.zero_one, self.powers = zero_one, powers or {}
        self.g = generator(random.Random(f"g{seed}"))
        self.used: set[str] = set()
        self._entries: dict[Any, Residue] = {}
        self._exps: dict[tuple[int, int], int] = {}

    def lift(self, value: Fraction) -> Residue:
        v = value.numerator * _inverse(value.denominator) if value.denominator != 1 else value.numerator
        e = value.numerator * pow(value.denominator, -1, R) if value.denominator != 1 else value.numerator
        return Residue(v % P, e % R)

    def entry(self, label: str, place: tuple[int, ...]) -> Residue:
        key = (label, place)
        if key not in self._entries:
            if label in self.zero_one:
                self._entries[key] = self.lift(Fraction(self._draw("bit", key, 2)))
            else:
                self._entries[key] = self._fresh(key, 1)
        return self._entries[key]

    def bits_drawn(self) -> dict[str, int]:
        """The entries of arrays of zeros and ones that this draw met: a statement may hold for some masks only."""
        return {
            f"{key[0]}[{', '.join(map(str, key[1]))}]": x.v
            for key, x in self._entries.items()
            if isinstance(key, tuple) and key[0] in self.zero_one
        }

    def scalar(self, symbol: Any) -> Residue:
        """A scalar; one that stands under an n-th root is drawn as an n-th power, so that the root exists."""
        if symbol not in self._entries:
            self._entries[symbol] = self._fresh(("scalar", str(symbol)), self.powers.get(symbol, 1))
        return self._entries[symbol]

    def constant(self, atom: Any) -> Residue:
        """π and its like: a free variable, which is sound and knows no identity of theirs."""
        self.used.add(str(atom))
        return self.scalar(atom)

    def _fresh(self, key: Any, power: int) -> Residue:
        # One integer below p·2^bits gives both parts, so that value and exponent are independent and uniform.
        drawn = self._draw("entry", key, P << self.bits)
        v, e = drawn >> self.bits, drawn & ((1 << self.bits) - 1)
        if power > 1:
            # an even power of a square is reached again by the root that is a square itself
            v = v * v % P if power % 2 == 0 else v
        return Residue(pow(v, power, P), pow(e, power, R))

    def _draw(self, purpose: str, key: Any, below: int) -> int:
        digest = hashlib.blake2b(f"{self.seed}|{purpose}|{key}".encode(), digest_size=64).digest()
        stream = digest + hashlib.blake2b(digest, digest_size=64).digest()
        return int.from_bytes(stream, "big") % below  # 1024 bits: the bias is below 2⁻²⁵⁰

    def inverse(self, x: Residue) -> Residue:
        v = _inverse(x.v)
        if x.e and x.m == 1:
            return Residue(v, pow(x.e, -1, R))
        return Residue(v, None)

    def root(self, x: Residue, degree: int) -> Residue:
        """The root that is itself a square (p = 3 mod 4): √a·√b = √(ab), and √a is positive for a size."""
        v = _group_root(x.v, degree, P)
        e = None
        if x.e is not None and x.m == 1:
            try:
                e = _group_root(x.e, degree, R)
            except Undefined:
                e = None  # the value has a root, the exponent has none: it may not stand in an exponent
        return Residue(v, e)

    def function(self, name: str, x: Residue) -> Residue:
        if name == "exp":
            return self._exp(x)
        self.used.add(name)
        if name == "log":
            if x.v == 0:
                raise Undefined("log of zero")
            drawn = self._fresh(("log", x.v), 1)
            return Residue(drawn.v, 0, x.v)  # exp(log x) = x, and nothing else is known of log
        if name == "tanh":
            if x.v == 0:
                return self.lift(Fraction(0))
            drawn = self._fresh(("tanh", _odd(x.v)), 1)
            return drawn if x.v == _odd(x.v) else -drawn
        if name in ("sin", "cos"):
            return self._circular(name, x)
        raise Outside(f"{name} is outside the modular checker; it reads exp, log, tanh, sin and cos")

    def _circular(self, name: str, x: Residue) -> Residue:
        """cos and sin as a random rational point of the circle for each angle, even and odd: cos² + sin² = 1 holds,
        and no other identity of theirs."""
        if x.v == 0:
            return self.lift(Fraction(int(name == "cos")))
        u = self._fresh(("angle", _odd(x.v)), 1).v
        below = _inverse(1 + u * u)
        if name == "cos":
            return Residue((1 - u * u) * below % P, None)
        return Residue((2 * u if x.v == _odd(x.v) else -2 * u) * below % P, None)

    def absolute(self, x: Residue) -> Residue:
        raise Outside("an absolute value has no meaning modulo a prime")

    def _exp(self, x: Residue) -> Residue:
        if x.e is None:
            raise Outside("an exponent that is not a polynomial in the variables (an exponential in an exponent, say)")
        key = (x.e, x.m)
        if key not in self._exps:
            self._exps[key] = pow(self.g, x.e, P) * x.m % P
        return Residue(self._exps[key], None)


def exponential(x: Residue, g: int) -> int | None:
    """exp(x) as a residue, or None where it isn't known."""
    return None if x.e is None else pow(g, x.e, P) * x.m % P


def _odd(v: int) -> int:
    """One of v and −v, the same for both: tanh is odd."""
    return min(v, P - v)


def _group_root(v: int, degree: int, modulus: int) -> int:
    """The root inside the group of squares modulo a prime that is 3 mod 4; Undefined where v is no such power."""
    if v == 0:
        return 0
    order = (modulus - 1) // 2
    if pow(v, order, modulus) != 1 or math.gcd(degree, order) != 1:
        raise Undefined("no root in the group of squares")
    return pow(v, pow(degree, -1, order), modulus)
