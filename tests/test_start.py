"""Starting is cheap: help and the bare imports load nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "scipy",
    "sympy",
    "mpmath",
    "matplotlib",
    "rich",
    "cupy",
    "torch",
    "tokenizers",
    "safetensors",
    "hypothesis",
)


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter holds after running some code."""
    program = f"{code}\nimport sys\nprint(*(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


HELP = """from verify.cli import main
try:
    main({words!r})
except SystemExit as stop:
    assert stop.code == 0
"""


@pytest.mark.parametrize(
    "code",
    [
        "import verify",
        "import derive",
        "import compute",
        "import verify.pytest_plugin",
        "from verify.cli import main\nassert main(['--version']) == 0",
        HELP.format(words=["--help"]),
        *(HELP.format(words=[command, "--help"]) for command in ("report", "derive", "study", "doctor")),
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded_by(code) == set()


def test_the_probe_sees_what_is_loaded() -> None:
    assert "numpy" in loaded_by("import numpy")
