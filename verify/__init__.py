"""Where laws and numbers meet: cross-checks, checks of implementations, studies, reports, and the command line.

Guarantees: this is the only package that imports both `derive` and `compute`, and importing it is cheap.
Does not: derive a law or compute attention itself.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it. No module is called like a public name, so neither can hide the other.
_HOMES: dict[str, str] = {
    "check": "verify.checking.api",
    "assert_attention": "verify.checking.api",
    "CheckResult": "verify.checking.result",
    "scale_audit": "verify.checking.audit",
    "Finding": "verify.checking.result",
    "crosscheck": "verify.crosschecks",
    "CrossCheck": "verify.crosschecks",
    "study": "verify.studies.run",
    "StudyResult": "verify.studies.study",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'verify' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
