"""`--spec` and `--algorithm` as text, and Specs as JSON.

Guarantees: every field is checked; an unknown key is an error that lists the known ones.
Does not: evaluate anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from compute.errors import InputError
from compute.spec import Rope, Spec
from verify.errors import UsageError

# conventions that a target may be declared to follow; undeclared ones are named, not failed
CONVENTIONS: dict[str, tuple[str, ...]] = {
    "causal": ("top-left", "bottom-right"),
    "empty-row": ("zero", "mean", "nan"),
    "finfo-row": ("exact", "mean", "empty"),
    "mask": ("keep", "drop"),
    "behind-mask": ("inert", "reaches"),
    "group-order": ("blocked", "tiled"),
    "window-ends": ("inclusive", "exclusive"),
    "softcap-order": ("before", "after"),
    "alibi-ahead": ("distance", "rising"),
    "lse-base": ("e", "2"),
    "empty-lse": ("-inf", "+inf", "nan"),
    "deterministic": ("yes", "no"),
}
_KEYS = (
    "scale",
    "causal",
    "window",
    "softcap",
    "groups",
    "rope",
    "past",
    "alibi",
    *[c for c in CONVENTIONS if c != "causal"],
)


@dataclass(frozen=True)
class Declared:
    """What the user says of the target: the meaning (a Spec, with what is built in) and the conventions."""

    spec: Spec = field(default_factory=Spec)
    fields: frozenset[str] = frozenset()
    conventions: Mapping[str, str] = field(default_factory=dict)


def parse_spec(words: Iterable[str] | Mapping[str, Any] | Spec | str | None) -> Declared:
    """From `["causal=bottom-right", "window=128,0", ...]`, one such string, a mapping, or a Spec."""
    if words is None:
        return Declared()
    if isinstance(words, Spec):
        return _from_spec(words)
    if isinstance(words, str):
        words = words.split()
    pairs = words.items() if isinstance(words, Mapping) else [_pair(w) for w in words]
    changes: dict[str, Any] = {}
    conventions: dict[str, str] = {}
    fields = set()
    for key, raw in pairs:
        value = str(raw).strip() if not isinstance(raw, (tuple, list)) else ",".join(map(str, raw))
        fields.add(key)
        if key in CONVENTIONS:
            if key == "causal" and value.lower() in ("true", "yes", "1"):
                changes["causal"] = "top-left"
                continue
            if value not in CONVENTIONS[key]:
                raise UsageError(f"--spec {key}={value}: expected one of {', '.join(CONVENTIONS[key])}")
            conventions[key] = value
        changes |= _field(key, value)
    try:
        return Declared(Spec(**changes), frozenset(fields), conventions)
    except InputError as error:
        raise UsageError(f"--spec: {error}") from error


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--spec {word}: expected KEY=VALUE, with KEY one of {', '.join(_KEYS)}")
    return key, value


def _field(key: str, value: str) -> dict[str, Any]:
    try:
        if key == "scale":
            return {"scale": float(Fraction(value)) if "/" in value else float(value)}
        if key == "causal":
            return {"causal": value}
        if key == "window":
            left, right = (None if w.strip().lower() in ("none", "inf", "") else int(w) for w in value.split(","))
            return {"window": (left, right)}
        if key == "softcap":
            return {"softcap": float(value)}
        if key in ("groups", "past"):
            return {key: int(value)}
        if key == "rope":
            layout, *more = value.split(",")
            options = dict(w.split("=") for w in more)
            return {"rope": Rope(layout=layout, base=float(options.get("base", 10000.0)))}  # type: ignore[arg-type]
        if key == "empty-row":
            return {"empty_row": value}
        if key == "lse-base":
            return {"lse_base": math.e if value == "e" else 2.0}
    except (ValueError, ZeroDivisionError, InputError) as error:
        raise UsageError(f"--spec {key}={value}: {error}") from error
    if key in CONVENTIONS or (key == "alibi" and value == "standard"):
        return {}
    raise UsageError(f"--spec {key}={value}: unknown key; expected one of {', '.join(_KEYS)}")


def _from_spec(spec: Spec) -> Declared:
    plain = Spec()
    fields = {
        n
        for n in ("scale", "causal", "window", "softcap", "groups", "rope", "past")
        if getattr(spec, n) != getattr(plain, n)
    }
    conventions = {}
    if spec.causal != "none":
        conventions["causal"] = str(spec.causal)
    if spec.empty_row != "zero":
        conventions["empty-row"] = str(spec.empty_row)
    return Declared(spec, frozenset(fields), conventions)


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """A Spec as plain data."""
    found = asdict(spec)
    if isinstance(spec.scale, Fraction):
        found["scale"] = f"{spec.scale.numerator}/{spec.scale.denominator}"
    return found


def spec_from_json(found: Mapping[str, Any]) -> Spec:
    """The Spec that `spec_to_json` wrote."""
    values = dict(found)
    if isinstance(values.get("scale"), str):
        values["scale"] = Fraction(values["scale"])
    if values.get("window") is not None:
        values["window"] = tuple(values["window"])
    if values.get("rope") is not None:
        values["rope"] = Rope(**values["rope"])
    return Spec(**values)
