"""A case: one call with a name and the kind of fault it is about; a setting: what a target can be asked.

Guarantees: a case is only built from features that the target has; what is built in holds in every call.
Does not: know what is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compute.spec import Spec
from verify.checking.calls import Array, Call, dtype_of
from verify.checking.profiles import Profile
from verify.checking.specs import Declared

Generator = np.random.Generator
BUILT_IN = ("scale", "causal", "window", "softcap", "rope", "past")


@dataclass(frozen=True, eq=False)
class Case:
    """about: the kind of fault that a failure here points to. together: features that a covering design turned on."""

    name: str
    about: str
    call: Call
    together: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Setting:
    """What a target can be asked in one dtype, and what is declared of it. quick: fewer cases are wanted.

    met_corner: the causal corner that a probe met, where none is declared.
    """

    profile: Profile
    declared: Declared
    dtype: str
    has: frozenset[str] = field(default_factory=frozenset)
    quick: bool = False
    met_corner: str | None = None

    @property
    def kind(self) -> np.dtype[Any]:
        return dtype_of(self.dtype)

    @property
    def base(self) -> Spec:
        """The Spec that every call has: what is declared and has no parameter."""
        plain, spec = Spec(), self.declared.spec
        built = {n: getattr(spec, n) for n in BUILT_IN if n in self.declared.fields and n not in self.has}
        return plain.with_(**built, groups=None, empty_row="zero", lse_base=spec.lse_base)

    @property
    def group(self) -> int:
        """Query heads a key-value head."""
        return self.declared.spec.groups or 1

    @property
    def corner(self) -> str | None:
        """The causal corner that is declared, else the one that a probe met, if any."""
        return self.declared.conventions.get("causal") or self.met_corner

    @property
    def single(self) -> bool:
        """Whether only one head and one batch item fit."""
        return self.profile.layout == "nd"

    @property
    def batches(self) -> bool:
        return self.profile.layout in ("bhnd", "bnhd") or "cu_seqlens" in self.has

    def can(self, *features: str) -> bool:
        """Whether the target can be asked all of these."""
        return all(f in self.has for f in features)

    def fits(self, call: Call) -> bool:
        """Whether the target can be asked this call."""
        built = {n for n in BUILT_IN if getattr(self.base, n) not in (None, "none", 0)}
        built |= {"groups"} if self.group > 1 else set()
        built |= {"alibi_slopes"} if "alibi" in self.declared.fields else set()
        b, h = call.q.shape[:2]
        if (self.single and b * h != 1) or (b != 1 and not self.batches):
            return False
        if self.profile.layout not in ("bhnd", "nd") and any(how == "expanded" for _, how in call.memory):
            return False
        if "cu_seqlens" in self.has and call.q.shape[2] != call.k.shape[2]:
            return False
        if h != call.k.shape[1] * self.group:
            return False
        corner = call.spec.causal != "none" or call.spec.window is not None
        if corner and call.q.shape[2] != call.k.shape[2] and call.spec.past == 0:
            # The corner that a probe met is causal's alone: windows, slopes and lengths may count from another.
            alone = call.spec.window is None and call.alibi_slopes is None and call.key_lengths is None
            if (self.corner if alone else self.declared.conventions.get("causal")) is None:
                return False
        if call.spec.past and "past" not in self.has | built:
            return False
        return call.features <= self.has | built

    def call(self, q: Any, k: Any, v: Any, spec: Spec | None = None, **more: Any) -> Call:
        """A call in this dtype: arrays (n, d) or (h, n, d) are brought to (b, h, n, d); q's heads are grouped."""
        arrays = [_four(x).astype(self.kind) for x in (q, k, v)]
        if self.group > 1 and arrays[0].shape[1] == arrays[1].shape[1]:
            arrays[0] = np.repeat(arrays[0], self.group, axis=1)
        for name in ("bias",):
            if more.get(name) is not None:
                more[name] = np.asarray(more[name]).astype(self.kind)
        if "alibi" in self.declared.fields:
            more.setdefault("alibi_slopes", standard_slopes(arrays[0].shape[1]))
        q4, k4, v4 = arrays
        return Call(q4, k4, v4, self.base if spec is None else spec, **more)

    def spec(self, **changes: Any) -> Spec:
        """The base Spec with some fields changed; causal=True takes the declared corner, or top-left."""
        if changes.get("causal") is True:
            changes["causal"] = self.corner or "top-left"
        return self.base.with_(**changes)

    def normal(self, rng: Generator, n: int, m: int, d: int, *, d_v: int | None = None, h: int = 2, b: int = 1,
               size: float = 1.0) -> tuple[Array, Array, Array]:  # fmt: skip
        """Normal q (b, h·group, n, d), k (b, h, m, d), v (b, h, m, d_v)."""
        if self.single:
            b = h = 1
        if not self.batches:
            b = 1
        shapes = ((b, h * self.group, n, d), (b, h, m, d), (b, h, m, d if d_v is None else d_v))
        q, k, v = (rng.standard_normal(shape) for shape in shapes)
        return q * size, k, v


def _four(x: Any) -> Array:
    array = np.asarray(x)
    while array.ndim < 4:
        array = array[None]
    return array


def standard_slopes(heads: int) -> Array:
    """ALiBi's slopes: 2^(−8(i+1)/h) for a power of two; else those of the power below, then every other one of the
    power above (Press et al. 2022, section 3 and its code)."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    rest = [2.0 ** (-8.0 * (i + 1) / (2 * power)) for i in range(0, 2 * (heads - power), 2)]
    return np.array(first + rest)


def direct(setting: Setting, scores: Any, values: Any, spec: Spec | None = None, **more: Any) -> Call:
    """A call whose scores are given: q = 1, k = scores, d = 1, so that the default scale is 1.

    scores (m,) for one query, or (n, m) with q = √n·I where n is 1, 4 or 16, so that the scale cancels exactly.
    """
    s = np.atleast_2d(np.asarray(scores, np.float64))
    v = np.asarray(values, np.float64)
    n = len(s)
    # One value a key, in n channels, so that d_v = d_k and every backend can be asked.
    v = np.repeat(v[:, None], n, axis=1) if v.ndim == 1 else v
    q = np.eye(n) * math.sqrt(n)
    return setting.call(q, s.T, v, spec, **more)


def as_features(profile: Profile, declared: Declared) -> frozenset[str]:
    """What can be asked: parameters of the signature, gradients, several heads a key-value head."""
    has = set(profile.parameters)
    if profile.gradients:
        has.add("grad")
    if declared.spec.groups:
        has.add("groups")
    return frozenset(has)


Maker = Callable[[Setting, Generator], Iterator[Case]]
