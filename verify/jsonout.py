"""`--json FILE` of every command: documents under versioned schemas that ship in the package.

Guarantees: a file is written whole or not at all; `-` is standard output; a document names its schema.
Does not: validate against the schema at run time (the tests do, with jsonschema).
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify.errors import UsageError

SCHEMAS = Path(__file__).parent / "schemas"


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema called `name`, as "check-1"."""
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def document(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with its schema's name in front."""
    return {"schema": f"attnproof/{name}", **body}


def emit(doc: Mapping[str, Any], where: str) -> None:
    """Write a document to a file, or to standard output for "-"."""
    text = json.dumps(_finite(doc), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(where), text)


def write_whole(path: Path, text: str) -> None:
    """Write a text file by way of a temporary one beside it, so that no reader ever sees half of it."""
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: folder {path.parent} does not exist; make it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _finite(value: Any) -> Any:
    """JSON has no inf or NaN: they are written as the strings "inf", "-inf", "nan"."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        return _finite(value.item())
    return value
