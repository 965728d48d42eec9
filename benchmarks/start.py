"""How long `attnproof --help` and `import verify` take: median of ten, after one run that warms the caches.

python benchmarks/start.py        (wall time of a whole process; the bar is 0.15 s; exit code 1 above it)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMANDS = {"attnproof --help": ["-m", "verify", "--help"], "import verify": ["-c", "import verify"]}
BAR = 0.15


def seconds(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    slow = False
    for name, words in COMMANDS.items():
        seconds(words)
        median = statistics.median(seconds(words) for _ in range(10))
        slow |= median > BAR
        print(f"{name}: {median:.3f} s (bar {BAR} s)")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
