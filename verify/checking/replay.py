"""The line that asks the same questions again: a command, or a call of `verify.check`.

Guarantees: carries everything that was given and is not the default, quoted for a POSIX shell.
Does not: name a function object, which has no text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from compute.spec import Spec
from verify.checking.runner import MEMORY, TIMEOUT

# keyword of verify.check -> its default
DEFAULTS: dict[str, Any] = {
    "like": None,
    "layout": "bhnd",
    "device": "cpu",
    "arg": {},
    "backward": None,
    "algorithm": None,
    "grad": False,
    "quick": False,
    "budget": None,
    "compile": False,
    "timeout": TIMEOUT,
    "memory": MEMORY,
}


def replay_line(target: str, dtypes: list[str], spec: Any, seed: int, given: Mapping[str, Any]) -> str:
    """target: its text, "" for a function object. given: keywords of verify.check. spec: as given, no iterator."""
    told = {name: value for name, value in given.items() if value != DEFAULTS[name]}
    if not target:
        if callable(told.get("backward")):
            told["backward"] = f"<function {getattr(told['backward'], '__name__', 'object')}>"
        all_told = {"dtype": dtypes, **({"spec": spec} if spec is not None else {}), **told, "seed": seed}
        return f"verify.check(<this function>, {', '.join(f'{name}={value!r}' for name, value in all_told.items())})"
    words = ["attnproof", "check", target, "--dtype", ",".join(dtypes)]
    for name, value in told.items():
        words += _option(name, value)
    shown = " ".join(shlex.quote(word) for word in [*words, "--seed", str(seed)])
    # last, since --spec takes every word after it
    return f"{shown} --spec {' '.join(shlex.quote(word) for word in _words(spec))}" if spec else shown


def _option(name: str, value: Any) -> list[str]:
    if name == "arg":
        return [word for feature, own in value.items() for word in ("--arg", f"{feature}={own}")]
    if value is True:
        return [f"--{name}"]
    if name == "memory":
        value = f"{value / 2**30:.12g}"
    return [f"--{name}", f"{value:.12g}" if isinstance(value, float) else str(value)]


def _words(spec: Spec | Mapping[str, Any] | Iterable[str] | str) -> list[str]:
    """The spec as the words of --spec; a Spec's own text where it is no list of words."""
    if isinstance(spec, str):
        return spec.split()
    if isinstance(spec, Spec):
        spec = _fields(spec)
    if isinstance(spec, Mapping):
        return [
            f"{key}={','.join(map(str, value)) if isinstance(value, (tuple, list)) else value}"
            for key, value in spec.items()
        ]
    return list(spec)


def _fields(spec: Spec) -> dict[str, Any]:
    """What a Spec says beyond the default one, under the keys of --spec."""
    plain = Spec()
    names = ("scale", "causal", "window", "softcap", "groups", "past")
    found = {name: getattr(spec, name) for name in names if getattr(spec, name) != getattr(plain, name)}
    if spec.empty_row != plain.empty_row:
        found["empty-row"] = spec.empty_row
    if spec.lse_base != plain.lse_base:
        found["lse-base"] = f"{spec.lse_base:g}"
    if spec.rope is not None:
        found["rope"] = f"{spec.rope.layout},base={spec.rope.base!r}"
    return found
