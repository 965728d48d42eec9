"""`verify.study(name, ...)`: the studies by name.

Guarantees: a name is loaded only when it is asked for. Does not: print.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from verify.errors import UsageError
from verify.studies.options import checked

if TYPE_CHECKING:
    from verify.studies.study import StudyResult

STUDIES = {
    "variance": "the spread of q·k against d_k, unscaled and scaled, on drawn queries and keys",
    "saturation": "how far softmax saturates against d_k at three scales: mean and median beside their laws",
    "path": "how far a signal carries: attention against a linear RNN and an LSTM",
    "weights": "the spread of scores on the heads of a real model, against the exact identity and the isotropic law",
}


def study(name: str, **options: Any) -> StudyResult:
    """Run a study and return its `StudyResult` (points, tests, tables, outcome, to_json()).

    name: one of "variance", "saturation", "path", "weights"; options are those of `verify.studies.<name>.study_<name>`.
    Raises UsageError for an unknown name or option and for values of the wrong kind, and what the study raises.
    """
    if not isinstance(name, str) or name not in STUDIES:
        near = difflib.get_close_matches(str(name), STUDIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown study {name!r}: expected one of {', '.join(STUDIES)}{hint}")
    function = getattr(importlib.import_module(f"verify.studies.{name}"), f"study_{name}")
    result: StudyResult = function(**checked(name, function, options))
    return result
