"""The operation tree: formulas as plain data, checked against a whitelist before anything runs.

Guarantees: a tree that passes `check` holds only the operations below, with the right number of operands, and only
names that are declared and plain identifiers. No text of a tree is ever executed.
Does not: know what a formula means, or check index ranges (the evaluator does, with the sizes in hand).

    tree = {"version": 1, "inputs": [{"name": …, "axes": [size, …]}, …], "output": [[index, size], …], "body": EXPR}

Indices count from 0; sums and products have inclusive ends, and an empty range gives 0 or 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from compute.errors import InputError

Expr: TypeAlias = Sequence[Any]

UNARY = ("exp", "log", "sqrt", "tanh", "abs", "erf", "gamma", "loggamma", "digamma")
MANY = ("add", "mul", "max", "min")
REDUCERS = ("sum", "product")
COMPARE = ("lt", "le", "eq")
CONSTANTS = ("pi", "e", "euler_gamma")
DEEPEST = 300

_NAME = re.compile(r"[^\W\d]\w*\Z")


@dataclass(frozen=True)
class Input:
    """One argument: its name, and the name of the size of each axis (none for a scalar)."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """A checked operation tree. depth: how many sums and products are nested at most."""

    inputs: tuple[Input, ...]
    output: tuple[tuple[str, Any], ...]
    body: Expr
    depth: int

    @property
    def sizes(self) -> tuple[str, ...]:
        """Sizes that array axes carry, in order of appearance."""
        return tuple(dict.fromkeys(axis for i in self.inputs for axis in i.axes))


def check(data: Mapping[str, Any]) -> Tree:
    """A Tree from plain data. Raises InputError that names the place of the first fault."""
    if not isinstance(data, Mapping) or data.get("version") != 1:
        raise InputError("operation tree: expected a mapping with version 1")
    missing = {"inputs", "output", "body"} - set(data)
    if missing:
        raise InputError(f"operation tree lacks {', '.join(sorted(missing))}")
    inputs = tuple(_input(entry) for entry in data["inputs"])
    names = [i.name for i in inputs]
    if len(set(names)) != len(names):
        raise InputError(f"operation tree: inputs {names} are not all different")
    ranks = {i.name: len(i.axes) for i in inputs}
    known = {name for name, rank in ranks.items() if rank == 0} | {axis for i in inputs for axis in i.axes}
    checker = _Checker(ranks)
    output = tuple(_axis(entry) for entry in data["output"])
    for index, length in output:
        if index in known:
            raise InputError(f"operation tree: output index {index!r} has the name of an input or a size")
        if not isinstance(length, str):
            checker.visit(length, known, f"output.{index}", 0, 0)
        elif length not in known:
            raise InputError(f"operation tree: size {length!r} of output index {index!r} belongs to no input")
    if len({index for index, _ in output}) != len(output):
        raise InputError("operation tree: output indices are not all different")
    checker.visit(data["body"], known | {index for index, _ in output}, "body", 0, 0)
    return Tree(inputs, output, data["body"], checker.depth)


def operations(expr: Any) -> set[str]:
    """Every operation that a checked expression uses."""
    if isinstance(expr, str) or not isinstance(expr, Sequence) or not expr:
        return set()
    head = {expr[0]} if isinstance(expr[0], str) else set()
    return head.union(*(operations(part) for part in expr))


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise InputError(f"operation tree: {what} is {value!r}: expected a plain name")
    return value


def _input(entry: Any) -> Input:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "axes"}:
        raise InputError(f"operation tree: input {entry!r}: expected a mapping with name and axes")
    return Input(_name(entry["name"], "an input's name"), tuple(_name(a, "an axis") for a in entry["axes"]))


def _axis(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 2:
        raise InputError(f"operation tree: output axis {entry!r}: expected [index, size]")
    index, length = entry
    return _name(index, "an output index"), _name(length, "a size") if isinstance(length, str) else length


class _Checker:
    """Walks a body once; remembers the deepest nesting of sums."""

    def __init__(self, ranks: dict[str, int]) -> None:
        self.ranks = ranks
        self.depth = 0

    def visit(self, expr: Any, known: set[str], path: str, nested: int, level: int) -> None:
        if isinstance(expr, str) or not isinstance(expr, Sequence) or not expr or not isinstance(expr[0], str):
            raise InputError(f"operation tree at {path}: {expr!r}: expected [operation, …]")
        if level > DEEPEST:
            raise InputError(f"operation tree at {path}: nested more than {DEEPEST} deep")
        op, args = expr[0], list(expr[1:])
        here = f"{path}.{op}"
        if op == "num":
            if not (len(args) == 2 and all(isinstance(a, int) and not isinstance(a, bool) for a in args) and args[1]):
                raise InputError(f"operation tree at {here}: {args!r}: expected two integers, the second not 0")
        elif op == "const":
            if len(args) != 1 or args[0] not in CONSTANTS:
                raise InputError(f"operation tree at {here}: {args!r}: expected one of {', '.join(CONSTANTS)}")
        elif op == "sym":
            if len(args) != 1 or not isinstance(args[0], str) or args[0] not in known:
                raise InputError(f"operation tree at {here}: {args!r}: expected a scalar input, a size or an index")
        elif op == "at":
            self._at(args, known, here, nested, level)
        elif op in REDUCERS:
            self._reduce(args, known, here, nested, level)
        elif op == "where":
            self._count(args, 3, here)
            self._condition(args[0], known, here, nested, level + 1)
            self._all(args[1:], known, here, nested, level)
        else:
            self._count(args, self._operands(op, here), here)
            self._all(args, known, here, nested, level)

    def _operands(self, op: str, here: str) -> int | None:
        if op in UNARY:
            return 1
        if op in ("pow", "delta"):
            return 2
        if op in MANY:
            return None
        raise InputError(f"operation tree at {here}: {op!r} is not an operation that may run")

    def _count(self, args: list[Any], want: int | None, here: str) -> None:
        if (want is None and not args) or (want is not None and len(args) != want):
            raise InputError(f"operation tree at {here}: {len(args)} operands: expected {want or 'at least 1'}")

    def _all(self, args: list[Any], known: set[str], here: str, nested: int, level: int) -> None:
        for place, arg in enumerate(args):
            self.visit(arg, known, f"{here}[{place}]", nested, level + 1)

    def _at(self, args: list[Any], known: set[str], here: str, nested: int, level: int) -> None:
        self._count(args, 2, here)
        name, where = args
        if not isinstance(name, str) or not self.ranks.get(name):
            raise InputError(f"operation tree at {here}: {name!r} is not an array among the inputs")
        if isinstance(where, str) or not isinstance(where, Sequence) or len(where) != self.ranks[name]:
            raise InputError(f"operation tree at {here}: {name} has {self.ranks[name]} axes: expected as many indices")
        self._all(list(where), known, here, nested, level)

    def _reduce(self, args: list[Any], known: set[str], here: str, nested: int, level: int) -> None:
        self._count(args, 4, here)
        binder = _name(args[0], f"the binder at {here}")
        self._all(args[1:3], known, here, nested, level)
        self.depth = max(self.depth, nested + 1)
        self.visit(args[3], known | {binder}, f"{here}({binder})", nested + 1, level + 1)

    def _condition(self, cond: Any, known: set[str], here: str, nested: int, level: int) -> None:
        if isinstance(cond, str) or not isinstance(cond, Sequence) or not cond or level > DEEPEST:
            raise InputError(f"operation tree at {here}: condition {cond!r}: expected [lt, le, eq, and, or, not, …]")
        op, args = cond[0], list(cond[1:])
        if op in COMPARE:
            self._count(args, 2, f"{here}.{op}")
            self._all(args, known, f"{here}.{op}", nested, level)
        elif op in ("and", "or", "not"):
            self._count(args, 1 if op == "not" else None, f"{here}.{op}")
            for arg in args:
                self._condition(arg, known, f"{here}.{op}", nested, level + 1)
        else:
            raise InputError(f"operation tree at {here}: {op!r} is not a condition")
