"""What is true of attention: claims, proofs, moments and laws, in SymPy.

Guarantees: every public statement is a SymPy expression; every `Proved` passed two independent checkers; nothing
here evaluates text. `derive` never imports `compute` or `verify`.
Does not: compute attention on numbers (that is `compute`), or judge an implementation (`verify`).

Importing this package is cheap: SymPy is loaded when a claim is first looked at.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derive.catalogue import Claim as Claim
    from derive.catalogue import claim as claim
    from derive.catalogue import claims as claims
    from derive.catalogue import family_names as family_names
    from derive.prover import prove as prove
    from derive.source import Source as Source
    from derive.step import Step as Step
    from derive.verdict import Kind as Kind
    from derive.verdict import Verdict as Verdict

_HOMES = {
    "Claim": "derive.catalogue",
    "claim": "derive.catalogue",
    "claims": "derive.catalogue",
    "family_names": "derive.catalogue",
    "prove": "derive.prover",
    "Source": "derive.source",
    "Step": "derive.step",
    "Kind": "derive.verdict",
    "Verdict": "derive.verdict",
}


# Modules that are part of the public face, loaded when first named.
_MODULES = ("assumptions", "language", "moments", "oracle")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"derive.{name}")
    raise AttributeError(f"module 'derive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
