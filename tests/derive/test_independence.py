"""The two checkers share no code: one wrong importer would fool both."""

import ast
from pathlib import Path

import derive

ROOT = Path(derive.__file__).parent
SECOND = ("modular", "intervals")
# What both may use: the nouns of statements, and the errors.
COMMON = {"derive", "derive.assumptions", "derive.errors", "derive.language"}


def imports(module: str) -> set[str]:
    path = ROOT.parent / Path(*module.split(".")).with_suffix(".py")
    if not path.exists():
        return set()
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # "from derive import jets" imports a module, "from derive.jets import Jet" a name of one.
            names = {f"{node.module}.{a.name}" for a in node.names} if node.module == "derive" else {node.module}
            found |= names
    return {name for name in found if name.split(".")[0] == "derive"}


def reached(module: str) -> set[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        one = todo.pop()
        if one not in seen and one not in COMMON:
            seen.add(one)
            todo += imports(one)
    return seen


def test_the_checkers_share_no_module() -> None:
    # The prover is where they meet, so the first checker is what its importer and normal form reach.
    first = reached("derive.importer") | reached("derive.normal")
    assert {"derive.terms", "derive.normal", "derive.index"} <= first
    for name in SECOND:
        mine = reached(f"derive.{name}")
        assert {"derive.at_sizes", "derive.instances", "derive.jets"} <= mine
        assert not mine & first, mine & first
        assert "derive.prover" not in mine
