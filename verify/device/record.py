"""What a device check has found so far, written to its file after every section.

Guarantees: a run that is cut short leaves a whole JSON document with everything up to the last finished section; a
section that raises is recorded as failed and the next one runs; the kernel sources' hashes are in the document.
Does not: measure anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compute.kernels.sources import hashes
from verify import jsonout


class Record:
    """Rows and failures of one run. budget: seconds after which no further section is started."""

    def __init__(self, device: str, tiny: bool, budget: float, out: str | None, say: Callable[[str], None]) -> None:
        self.device, self.tiny, self.budget, self.out, self.say = device, tiny, budget, out, say
        self.facts: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()
        self._section = ""

    @property
    def left(self) -> float:
        return self.budget - (time.perf_counter() - self._start)

    def row(self, **found: Any) -> None:
        """One measurement; `ok` False makes the run fail."""
        self.rows.append({"section": self._section, **found})
        self.say("  " + ", ".join(f"{k} {_short(v)}" for k, v in found.items()))
        if found.get("ok") is False:
            self.failed.append(f"{self._section}: {found}")

    def section(self, name: str, work: Callable[[], None], need: float = 10.0) -> None:
        """Run one section if there is time for it."""
        self._section = name
        if self.left < need:
            self.failed.append(f"{name}: not run, {self.left:.0f} s were left and it needs {need:.0f}")
            return
        self.say(name)
        start = time.perf_counter()
        try:
            work()
        except Exception as error:
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
            self.say(f"  failed: {error}")
        self.seconds[name] = round(time.perf_counter() - start, 3)
        self.write()

    def attempt(self, what: str, work: Callable[[], None]) -> None:
        """Part of a section: a failure is recorded and the section goes on."""
        try:
            work()
        except Exception as error:
            self.failed.append(f"{self._section}, {what}: {type(error).__name__}: {error}")
            self.say(f"  {what} failed: {error}")

    def document(self) -> dict[str, Any]:
        return jsonout.document(
            "bench-1",
            {
                "device": self.device,
                "tiny": self.tiny,
                "facts": self.facts,
                "kernel_sources": hashes(),
                "seconds": self.seconds,
                "rows": self.rows,
                "failed": self.failed,
            },
        )

    def write(self) -> None:
        if self.out is not None and self.out != "-":
            Path(self.out).parent.mkdir(parents=True, exist_ok=True)
            jsonout.emit(self.document(), self.out)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
