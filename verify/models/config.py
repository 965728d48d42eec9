"""A model's numbers that its weight file doesn't hold: heads, eps, activation. From config.json beside the file.

Guarantees: what the layout cannot do without is asked for by name; unknown activations and position schemes are
refused rather than guessed.
Does not: download anything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verify.errors import UsageError


class Config:
    """Values of a config.json, with `heads` from the command line taking precedence."""

    def __init__(self, values: dict[str, Any], heads: int | None = None, kv_heads: int | None = None) -> None:
        self.values, self._heads, self._kv_heads = values, heads, kv_heads

    @classmethod
    def beside(cls, path: Path, heads: int | None = None, kv_heads: int | None = None) -> Config:
        """Read config.json in the folder of a weight file; without one, only `heads` is known."""
        place = path.parent / "config.json"
        if not place.is_file():
            return cls({}, heads, kv_heads)
        try:
            values = json.loads(place.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UsageError(f"{place} is not JSON ({error})") from error
        if not isinstance(values, dict):
            raise UsageError(f"{place} holds no JSON object")
        return cls(values, heads, kv_heads)

    def heads(self, *keys: str) -> int:
        """The number of query heads."""
        found = (
            self._heads if self._heads is not None else next((self.values[k] for k in keys if k in self.values), None)
        )
        if not isinstance(found, int) or found < 1:
            raise UsageError(
                f"the number of heads is {found!r}: a weight file does not hold it; give --heads N, or put the "
                f"model's config.json (with {keys[0]}) beside the file"
            )
        return found

    def kv_heads(self, key: str, default: int) -> int:
        """The number of key-value heads."""
        found = self._kv_heads if self._kv_heads is not None else self.values.get(key, default)
        if not isinstance(found, int) or found < 1:
            raise UsageError(f"{key} is {found!r}: expected a positive integer")
        return found

    def number(self, key: str, default: float) -> float:
        found = self.values.get(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise UsageError(f"config.json: {key} is {found!r}: expected a number")
        return float(found)

    def word(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        found = self.values.get(key, default)
        if found not in allowed:
            raise UsageError(f"config.json: {key} is {found!r}: expected one of {', '.join(allowed)}")
        return str(found)
