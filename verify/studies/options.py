"""The options of studies, checked before anything is run.

Guarantees: an option that no study knows, or a value of the wrong kind, is a UsageError that says what was expected,
what was got, and the likely mend. Does not: know what a study makes of them.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from verify.errors import UsageError


def checked(study: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the study takes them. Raises UsageError."""
    known = list(inspect.signature(function).parameters)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"the study {study} has no option {name!r}: it takes {', '.join(known)}{hint}")
    return {name: _CHECKS[name](name, value) if name in _CHECKS else value for name, value in options.items()}


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (str, bytes)) or value is None else str(value)


def _whole(least: int, optional: bool = False) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if optional and value is None:
            return None
        try:
            number = None if isinstance(value, (bool, str)) else value.__index__()
        except AttributeError:
            number = None
        if number is None or number < least:
            raise UsageError(f"{name}: expected a whole number of at least {least}, got {_shown(value)}")
        return number

    return check


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    mend = f"write {name}=(4, 16, 64)"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise UsageError(f"{name}: expected several whole numbers, got {_shown(value)}; {mend}")
    one = _whole(1)
    found = tuple(one(f"each of {name}", x) for x in value)
    if not found:
        raise UsageError(f"{name}: expected at least one whole number, got none; {mend}")
    return found


def _real(low: float, high: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, (bool, str)) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not low <= number <= high or math.isinf(number):
            within = "a finite number" if math.isinf(high) and low == -high else f"a number from {low:g} to {high:g}"
            raise UsageError(f"{name}: expected {within}, got {_shown(value)}")
        return number

    return check


def _file(name: str, value: Any) -> Path | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise UsageError(f"{name}: expected the path of a safetensors file, got {_shown(value)}")
    return None if value is None else Path(value)


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise UsageError(f"{name}: expected a function of one text, got {_shown(value)}; leave it out for none")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("d_k", "lengths"), _sizes),
    **dict.fromkeys(("n", "rows", "products", "width", "block"), _whole(1)),
    "seed": _whole(0),
    **dict.fromkeys(("heads", "kv_heads"), _whole(1, optional=True)),
    **dict.fromkeys(("q_mean", "k_mean"), _real(-math.inf, math.inf)),
    **dict.fromkeys(("q_sd", "k_sd", "gain"), _real(1e-100, 1e100)),
    "precision": _real(1e-5, 0.5),
    "model": _file,
    "progress": _callable,
}
