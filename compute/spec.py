"""What "attention" means in one call, as pure data.

Guarantees: a Spec holds no arrays, is hashable, and is checked when made; two calls with equal Specs and equal
arrays mean the same thing whatever algorithm computes them.
Does not: say how the result is computed (that is `algorithm=`), nor hold masks, biases, sinks, slopes or lengths:
those are arguments of the call, and Spec says how they are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, Literal

from compute.checks import choice, number, shown, whole
from compute.errors import InputError

Causal = Literal["none", "top-left", "bottom-right"]
EmptyRow = Literal["zero", "mean", "nan", "error"]
RopeLayout = Literal["interleaved", "half"]
Alibi = Literal["linear", "distance"]


MOST_PAST = 2**62


def _fraction(value: Any) -> Fraction:
    """A finite real number of any type, exactly."""
    if isinstance(value, Rational):  # ints of Python and NumPy, and Fractions
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(*map(int, value.as_integer_ratio()))


def as_float(name: str, value: Any) -> float:
    """A finite real number as the float64 that it is. Raises InputError where none is it."""
    near = number(name, value, "a number")
    if _fraction(value) != Fraction(near):
        raise InputError(f"{name} is {shown(value)}, which no float64 holds: expected a float, as {near!r}")
    return near


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (Su et al. 2021, RoFormer, section 3.2.2).

    layout: "interleaved" turns channels (2c, 2c+1), "half" turns (c, c + d/2). base: of the frequencies
    base^(-2c/d). q_offset, k_offset: position of the first query and of the first key. dims: how many leading
    channels turn (None: all).
    """

    layout: RopeLayout = "half"
    base: float = 10000.0
    q_offset: int = 0
    k_offset: int = 0
    dims: int | None = None

    def __post_init__(self) -> None:
        choice("rope layout", self.layout, ("interleaved", "half"))
        if number("rope base", self.base, "a positive number") <= 0:
            raise InputError(f"rope base is {self.base}: expected a positive finite number")
        for name in ("q_offset", "k_offset"):
            if not _whole(getattr(self, name)):
                raise InputError(f"rope {name} is {shown(getattr(self, name))}: expected a position, a whole number")
        if self.dims is not None and whole("rope dims", self.dims, 1, "a positive even number") % 2:
            raise InputError(f"rope dims is {self.dims}: expected a positive even number")


@dataclass(frozen=True)
class Spec:
    """The meaning of a call.

    scale: multiplies q·k; None means 1/sqrt(d_k); a Fraction is exact, a float is itself.
    causal: "none", "top-left" (query i sees keys j ≤ i + past) or "bottom-right" (j ≤ i + m − n);
    True means "top-left", False "none".
    window: (left, right), inclusive, around the diagonal of the causal corner; None in a place is unlimited.
    rope: rotary embedding of q and k. softcap: c·tanh(s/c), before bias and mask; None for none.
    groups: query heads a key-value head; query head i reads key-value head i // groups. None: h // h_kv.
    empty_row: what a row without any key gives: "zero" (log-sum-exp −inf), "mean" of all values, "nan", "error".
    lse_base: base of a returned log-sum-exp (e by default; 2 is the other one met in kernels).
    past: number of keys before the first query, for the top-left corner.
    dropout: probability with which the given boolean dropout_mask drops a weight; kept ones are divided by
    1 − dropout. Without a dropout_mask nothing is dropped.
    alibi: how slopes act on key j of the query at position p: "linear" slope·(j − p) (Press et al. 2022, section 3),
    "distance" −slope·|j − p|; the two are one where no later key is seen.

    Raises InputError when a field is out of range.
    """

    scale: float | Fraction | None = None
    causal: Causal | bool = "none"
    window: tuple[int | None, int | None] | None = None
    rope: Rope | None = None
    softcap: float | None = None
    groups: int | None = None
    empty_row: EmptyRow = "zero"
    lse_base: float = math.e
    past: int = 0
    dropout: float | None = None
    alibi: Alibi = "linear"

    def __post_init__(self) -> None:
        if isinstance(self.causal, bool):
            object.__setattr__(self, "causal", "top-left" if self.causal else "none")
        choice("causal", self.causal, ("none", "top-left", "bottom-right"))
        if self.rope is not None and not isinstance(self.rope, Rope):
            raise InputError(f"rope is {shown(self.rope)}: expected a compute.Rope, or None for none")
        self._check_scale()
        self._check_window()
        if self.softcap is not None:
            if number("softcap", self.softcap, "a positive number, or None for no cap") <= 0:
                raise InputError(f"softcap is {self.softcap}: expected a positive finite number, or None for no cap")
            object.__setattr__(self, "softcap", as_float("softcap", self.softcap))
        if self.groups is not None:
            whole("groups", self.groups, 1, "query heads a key-value head")
        choice("empty_row", self.empty_row, ("zero", "mean", "nan", "error"))
        if number("lse_base", self.lse_base, "a number above 1, as e or 2") <= 1:
            raise InputError(f"lse_base is {self.lse_base}: expected a finite number above 1, as e or 2")
        object.__setattr__(self, "lse_base", as_float("lse_base", self.lse_base))
        if whole("past", self.past, 0, "keys before the first query") > MOST_PAST:
            raise InputError(f"past is {self.past}: expected at most 2^62 keys before the first query")
        if self.dropout is not None and not 0 <= number("dropout", self.dropout, "a probability") < 1:
            raise InputError(f"dropout is {self.dropout}: expected a probability, at least 0 and below 1")
        choice("alibi", self.alibi, ("linear", "distance"))

    def _check_scale(self) -> None:
        if self.scale is None:
            return
        near = number("scale", self.scale, "a number, a Fraction, or None for 1/sqrt(d_k)")
        exact = _fraction(self.scale)
        if exact != Fraction(near) and not 2.0**-900 <= abs(near) <= 2.0**900:
            raise InputError(
                f"scale is {shown(self.scale)}, which no float64 holds: expected a size between 2^-900 and 2^900; "
                "scale q or k by a power of two instead"
            )
        # a Fraction stays one; any other number is the float that it is, or the Fraction
        if not isinstance(self.scale, Fraction):
            object.__setattr__(self, "scale", near if exact == Fraction(near) else exact)

    def _check_window(self) -> None:
        if self.window is None:
            return
        pair = isinstance(self.window, (tuple, list)) and len(self.window) == 2
        if not pair or any(w is not None and (not _whole(w) or w < 0) for w in self.window):
            raise InputError(
                f"window is {shown(self.window)}: expected (left, right), each at least 0 or None for unlimited"
            )
        object.__setattr__(self, "window", tuple(self.window))

    def with_(self, **changes: Any) -> Spec:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def scale_value(self, d_k: int) -> float:
        """The scale as the nearest float64."""
        return 1.0 / math.sqrt(d_k) if self.scale is None else float(self.scale)
