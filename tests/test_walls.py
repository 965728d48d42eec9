"""The house's own rules: who may import whom, and names that can't hide each other."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("derive", "compute", "verify")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} uses a relative import"
            found.add((node.module or "").split(".")[0])
    return found & set(ROOMS)


@pytest.mark.parametrize(("room", "forbidden"), [("derive", {"compute", "verify"}), ("compute", {"derive", "verify"})])
def test_derive_and_compute_stand_alone(room: str, forbidden: set[str]) -> None:
    modules = list((ROOT / room).rglob("*.py"))
    assert modules
    for path in modules:
        assert not imported_rooms(path) & forbidden, path


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_hides_a_public_name(room: str) -> None:
    package = importlib.import_module(room)
    modules = {p.stem for p in (ROOT / room).iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert not modules & set(package._HOMES)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_exists(room: str) -> None:
    package = importlib.import_module(room)
    for name in package._HOMES:
        assert getattr(package, name).__doc__, f"{room}.{name} has no docstring"
