"""CUDA source printed from an operation tree: one thread an output entry, sums as loops in index order.

Guarantees: the same whitelist as `compute.optree`; constants are rounded once, to the kernel's type; an entry outside
an array reads as NaN; no text of the tree reaches the source (inputs and indices are numbered).
Does not: run anything (see `Formula`), or know digamma, which CUDA lacks: InputError.

Error: each operation is within 0.5 ulp (+ - * / sqrt) or what CUDA's double functions state (exp 1, log 1, tanh 2,
erf 2, pow 2, tgamma 10, lgamma 6 ulp outside (-10.001, -2.264)); sums add in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from compute.arrays import home, is_float, library, widened
from compute.errors import InputError
from compute.kernels.attention import Backend
from compute.kernels.sources import FORMATS
from compute.optree import Expr, Tree, check

_FUNCTIONS = {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "abs": "fabs",
    "erf": "erf",
    "gamma": "tgamma",
    "loggamma": "lgamma",
}
_CONSTANTS = {"pi": np.pi, "e": np.e, "euler_gamma": np.euler_gamma}
_PRELUDE = """
typedef long long integer;
__device__ __forceinline__ {t} nan_() {{ return ({t})__longlong_as_double(0x7ff8000000000000ll); }}
__device__ __forceinline__ {t} larger({t} a, {t} b) {{ return (a != a || a > b) ? a : b; }}
__device__ __forceinline__ {t} smaller({t} a, {t} b) {{ return (a != a || a < b) ? a : b; }}
"""


class _Printer:
    """Prints one body. Statements (loops) are gathered in `lines`; expressions are returned."""

    def __init__(self, tree: Tree, fmt: str, elementwise: bool) -> None:
        self.tree, self.type, self.elementwise = tree, FORMATS[fmt].storage, elementwise
        self.suffix = "f" if fmt == "float32" else ""
        self.real = np.float32 if fmt == "float32" else np.float64
        arrays = [i for i in tree.inputs if i.axes]
        self.array = {i.name: (f"a{k}", i.axes) for k, i in enumerate(arrays)}
        self.scalar = {i.name: f"s{k}" for k, i in enumerate(i for i in tree.inputs if not i.axes)}
        self.size = {name: f"n{k}" for k, name in enumerate(tree.sizes)}
        self.index: dict[str, str] = {}
        self.lines: list[str] = []
        self.fresh = 0

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def literal(self, number: float) -> str:
        value = self.real(number)
        if not np.isfinite(value):
            raise InputError(f"constant {number} does not fit {self.real.__name__}")
        text = repr(float(value)) if not self.suffix else np.format_float_scientific(value, unique=True)
        return f"({text}{self.suffix})" if text.startswith("-") else f"{text}{self.suffix}"

    def value(self, expr: Expr) -> str:
        op, args = expr[0], expr[1:]
        if op == "num":
            return self.literal(float(Fraction(args[0], args[1])))
        if op == "const":
            return self.literal(float(_CONSTANTS[args[0]]))
        if op == "sym":
            name = args[0]
            return f"({self.type}){self.whole(expr)}" if name in self.index or name in self.size else self.scalar[name]
        if op == "at":
            return self.entry(args[0], args[1])
        if op in ("sum", "product"):
            return self.reduce(op, args)
        if op == "where":
            condition, yes, no = self.condition(args[0]), self.value(args[1]), self.value(args[2])
            return f"({condition} ? {yes} : {no})"
        if op == "delta":
            return f"({self.compare('eq', args)} ? {self.literal(1)} : {self.literal(0)})"
        if op == "pow":
            return self.power(args[0], args[1])
        parts = [self.value(a) for a in args]
        if op in ("add", "mul"):
            return "(" + (" + " if op == "add" else " * ").join(parts) + ")"
        if op in ("max", "min"):
            out = parts[0]
            for part in parts[1:]:
                out = f"{'larger' if op == 'max' else 'smaller'}({out}, {part})"
            return out
        if op not in _FUNCTIONS:
            raise InputError(f"operation {op!r} has no CUDA function: evaluate this tree with NumPy")
        return f"{_FUNCTIONS[op]}{self.suffix}({parts[0]})"

    def power(self, base: Expr, exponent: Expr) -> str:
        x = self.value(base)
        if exponent[0] == "num":
            p = Fraction(exponent[1], exponent[2])
            if p.denominator == 1 and 1 <= abs(p) <= 3:
                held = self.name("x")
                self.lines.append(f"const {self.type} {held} = {x};")
                product = "(" + " * ".join([held] * abs(int(p))) + ")"
                return product if p > 0 else f"({self.literal(1)} / {product})"
            if abs(p) == Fraction(1, 2):
                root = f"sqrt{self.suffix}({x})"
                return root if p > 0 else f"({self.literal(1)} / {root})"
        return f"pow{self.suffix}({x}, {self.value(exponent)})"

    def entry(self, array: str, where: Expr) -> str:
        pointer, axes = self.array[array]
        held, checks, flat = [], [], "0"
        for axis, place in zip(axes, where, strict=True):
            at = self.name("at")
            self.lines.append(f"const integer {at} = {self.whole(place)};")
            held.append(at)
            checks.append(f"0 <= {at} && {at} < {self.size[axis]}")
            flat = f"({flat} * {self.size[axis]} + {at})"
        return f"({' && '.join(checks)} ? {pointer}[{flat}] : nan_())"

    def reduce(self, op: str, args: Expr) -> str:
        binder, low, high, body = args
        total, index, end = self.name("r"), self.name("i"), self.name("end")
        first = self.whole(low)
        self.lines.append(f"{self.type} {total} = {self.literal(0 if op == 'sum' else 1)};")
        self.lines.append(f"const integer {end} = {self.whole(high)};")
        self.lines.append(f"for (integer {index} = {first}; {index} <= {end}; ++{index}) {{")
        outer = self.index.get(binder)
        self.index[binder] = index
        term = self.value(body)
        self.lines.append(f"{total} {'+' if op == 'sum' else '*'}= {term};\n}}")
        if outer is None:
            del self.index[binder]
        else:
            self.index[binder] = outer
        return total

    def whole(self, expr: Expr) -> str:
        """An integer expression: indices, sizes, whole numbers, and sums, products, maxima of them."""
        op, args = expr[0], expr[1:]
        if op == "num" and Fraction(args[0], args[1]).denominator == 1:
            return f"({int(Fraction(args[0], args[1]))}ll)"
        if op == "sym":
            name = args[0]
            found = self.index.get(name) or self.size.get(name)
            return found or f"(integer){self.scalar[name]}"
        if op in ("add", "mul"):
            return "(" + (" + " if op == "add" else " * ").join(self.whole(a) for a in args) + ")"
        if op in ("max", "min"):
            out = self.whole(args[0])
            for a in args[1:]:
                b = self.whole(a)
                out = f"({out} {'>' if op == 'max' else '<'} {b} ? {out} : {b})"
            return out
        raise InputError(f"{expr!r} is used as an index or an end of a range: expected an integer expression")

    def condition(self, cond: Expr) -> str:
        op, args = cond[0], cond[1:]
        if op == "not":
            return f"(!{self.condition(args[0])})"
        if op in ("and", "or"):
            return "(" + (" && " if op == "and" else " || ").join(self.condition(a) for a in args) + ")"
        return self.compare(op, args)

    def compare(self, op: str, args: Expr) -> str:
        sign = {"lt": "<", "le": "<=", "eq": "=="}[op]
        integers = all(self.is_whole(a) for a in args)
        a, b = (self.whole(x) if integers else self.value(x) for x in args)
        return f"({a} {sign} {b})"

    def is_whole(self, expr: Expr) -> bool:
        if expr[0] == "num":
            return Fraction(expr[1], expr[2]).denominator == 1
        if expr[0] == "sym":
            return expr[1] in self.index or expr[1] in self.size
        return expr[0] in ("add", "mul", "max", "min") and all(self.is_whole(a) for a in expr[1:])


def emit(tree: Tree, fmt: str = "float64", *, elementwise: bool = False) -> str:
    """CUDA source with one kernel, `formula(out, count, arrays…, scalars…, sizes…)`.

    elementwise (scalar trees only): every scalar input is an array of `count` numbers.
    Raises InputError for operations CUDA lacks.
    """
    if fmt not in ("float64", "float32"):
        raise InputError(f"format is {fmt!r}: formulas are float64 or float32")
    if elementwise and (tree.output or any(i.axes for i in tree.inputs)):
        raise InputError("elementwise kernels are for trees of scalars")
    printer = _Printer(tree, fmt, elementwise)
    t = printer.type
    parameters = [f"{t}* __restrict__ out", "integer count"]
    parameters += [f"const {t}* __restrict__ {pointer}" for pointer, _ in printer.array.values()]
    parameters += [f"const {t}* __restrict__ p_{s}" if elementwise else f"{t} {s}" for s in printer.scalar.values()]
    parameters += [f"integer {n}" for n in printer.size.values()]
    if elementwise:
        printer.lines += [f"const {t} {s} = p_{s}[place];" for s in printer.scalar.values()]
    rest = "place"
    for index, length in reversed(tree.output):
        size = printer.size[length] if isinstance(length, str) else None
        if size is None:
            raise InputError("kernels need output sizes that an array carries")
        held = printer.name("o")
        printer.lines.append(f"const integer {held} = {rest} % {size};")
        rest = f"({rest} / {size})"
        printer.index[index] = held
    result = printer.value(tree.body)
    body = "\n".join(printer.lines)
    return (
        _PRELUDE.format(t=t)
        + f'extern "C" __global__ void formula({", ".join(parameters)}) {{\n'
        + "for (integer place = blockIdx.x * (integer)blockDim.x + threadIdx.x; place < count; "
        + "place += (integer)gridDim.x * blockDim.x) {\n"
        + f"{body}\nout[place] = {result};\n}}\n}}\n"
    )


def _of_type(value: Any, dtype: Any) -> Any:
    """An array in the kernel's type; to float64 exactly, where CuPy's own conversion would flush subnormal numbers."""
    if dtype == np.float64 and library(value) is not None and is_float(value.dtype):
        return widened(value)
    return value if getattr(value, "dtype", None) == dtype else home(value).asarray(value, dtype=dtype)


class Formula:
    """A compiled operation tree on a backend that can build source: call it with arrays and numbers by name."""

    def __init__(self, tree: Mapping[str, Any], backend: Backend, fmt: str = "float64", *, elementwise: bool = False):
        self.tree, self.backend, self.fmt, self.elementwise = check(tree), backend, fmt, elementwise
        self.source = emit(self.tree, fmt, elementwise=elementwise)
        self._kernel = backend.build(self.source, "formula")

    def __call__(self, **given: Any) -> Any:
        """The output array: shape of the tree's output, or of the inputs when elementwise."""
        xp, dtype = self.backend.xp, FORMATS[self.fmt].dtype
        expected = {i.name for i in self.tree.inputs}
        if set(given) != expected:
            raise InputError(f"expected the arguments {sorted(expected)}, got {sorted(given)}")
        arrays, scalars, sizes = [], [], dict[str, int]()
        for entry in self.tree.inputs:
            value = given[entry.name]
            if entry.axes or self.elementwise:
                array = xp.ascontiguousarray(_of_type(value, dtype))
                for axis, length in zip(entry.axes, array.shape, strict=not self.elementwise):
                    if sizes.setdefault(axis, int(length)) != length:
                        raise InputError(f"{entry.name} has {axis}={length}, another array has {axis}={sizes[axis]}")
                arrays.append(array)
            else:
                scalars.append(dtype.type(value))
        shape = arrays[0].shape if self.elementwise else tuple(sizes[str(length)] for _, length in self.tree.output)
        if self.elementwise and any(a.shape != shape for a in arrays):
            raise InputError(f"elementwise inputs have shapes {[a.shape for a in arrays]}: expected one shape")
        out = xp.full(shape, np.nan, dtype)
        lengths = [np.int64(sizes[name]) for name in self.tree.sizes]
        grid = min((max(out.size, 1) + 127) // 128, 4096)
        self._kernel((grid,), (128,), (out, np.int64(out.size), *arrays, *scalars, *lengths))
        return out
