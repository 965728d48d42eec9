"""Interval numbers at 120 bits, rounded outwards: what `derive.intervals` computes with.

Guarantees: every operation returns an interval that holds every exact result; library functions are widened by far
more than their rounding. No global precision is read or set.
Does not: keep track of how two intervals depend on each other (x − x is not 0).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import libmp
from mpmath.libmp import libmpi

PRECISION = 120
_ROOM = libmp.from_man_exp(1, 20 - PRECISION)
_ZERO = libmp.fzero
_ONE = (libmp.fone, libmp.fone)


class Undefined(Exception):
    """A division by an interval that holds 0, a root or log of one that is not positive."""


class Interval:
    """All reals between two raw mpmath numbers."""

    __slots__ = ("ends",)

    def __init__(self, ends: tuple[Any, Any]) -> None:
        self.ends = ends

    @classmethod
    def of(cls, value: Fraction) -> Interval:
        """The tightest interval around a rational number."""
        p, q = value.numerator, value.denominator
        return cls((libmp.from_rational(p, q, PRECISION, "f"), libmp.from_rational(p, q, PRECISION, "c")))

    @classmethod
    def between(cls, low: Fraction, high: Fraction) -> Interval:
        """All reals from low to high."""
        return cls((cls.of(low).ends[0], cls.of(high).ends[1]))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Interval):
            return NotImplemented
        return Interval(libmpi.mpi_add(self.ends, other.ends, PRECISION))

    def __neg__(self) -> Interval:
        return Interval(libmpi.mpi_neg(self.ends, PRECISION))

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Interval):
            return NotImplemented
        return Interval(libmpi.mpi_mul(self.ends, other.ends, PRECISION))

    def inverse(self) -> Interval:
        low, high = self.ends
        if libmp.mpf_sign(low) * libmp.mpf_sign(high) <= 0:
            raise Undefined("division by an interval that holds 0")
        return Interval(libmpi.mpi_div(_ONE, self.ends, PRECISION))

    def exp(self) -> Interval:
        return self._widened(libmpi.mpi_exp)

    def log(self) -> Interval:
        if libmp.mpf_sign(self.ends[0]) <= 0:
            raise Undefined("log of an interval that is not positive")
        return self._widened(libmpi.mpi_log)

    def sqrt(self) -> Interval:
        if libmp.mpf_sign(self.ends[0]) < 0:
            raise Undefined("root of an interval that is not positive")
        return self._widened(libmpi.mpi_sqrt)

    def sin(self) -> Interval:
        return self._widened(libmpi.mpi_sin)

    def cos(self) -> Interval:
        return self._widened(libmpi.mpi_cos)

    def __abs__(self) -> Interval:
        return Interval(libmpi.mpi_abs(self.ends, PRECISION))

    def below(self, other: Interval) -> bool:
        """Every number here is less than every number there."""
        return bool(libmp.mpf_lt(self.ends[1], other.ends[0]))

    def at_most(self, other: Interval) -> bool:
        """Every number here is at most every number there."""
        return bool(libmp.mpf_le(self.ends[1], other.ends[0]))

    def positive(self) -> bool:
        return bool(libmp.mpf_sign(self.ends[0]) > 0)

    def nonnegative(self) -> bool:
        return bool(libmp.mpf_sign(self.ends[0]) >= 0)

    def _widened(self, function: Any) -> Interval:
        """f of the interval, with 2⁻¹⁰⁰ of relative room at an end that is positive, and of absolute room too else."""
        low, high = function(self.ends, PRECISION)
        return Interval((
            libmp.mpf_sub(low, _room(low), PRECISION, "f"),
            libmp.mpf_add(high, _room(high), PRECISION, "c"),
        ))  # fmt: skip

    def decimal(self) -> tuple[str, str]:
        """Both ends with 17 digits, moved outwards by a unit of the last one where they are not exact."""
        low, high = self.ends
        if low == high:
            return (libmp.to_str(low, 25),) * 2
        tiny = libmp.from_rational(1, 10**17, PRECISION, "c")
        step = [libmp.mpf_mul(libmp.mpf_abs(end), tiny, PRECISION, "c") for end in self.ends]
        return (
            libmp.to_str(libmp.mpf_sub(low, step[0], PRECISION, "f"), 18),
            libmp.to_str(libmp.mpf_add(high, step[1], PRECISION, "c"), 18),
        )


def _room(end: Any) -> Any:
    size = libmp.mpf_abs(end)
    return libmp.mpf_mul(_ROOM, size if libmp.mpf_sign(end) > 0 else libmp.mpf_add(size, libmp.fone), PRECISION, "c")


PI = Interval((libmp.mpf_pi(PRECISION, "f"), libmp.mpf_pi(PRECISION, "c")))
EULER_GAMMA = Interval((libmp.mpf_euler(PRECISION, "f"), libmp.mpf_euler(PRECISION, "c")))
