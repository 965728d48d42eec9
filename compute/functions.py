"""Formulas as functions: an operation tree (plain data) becomes a function of arrays and numbers.

Guarantees: only whitelisted operations run (compute.optree), no text is executed; the array library follows the
arguments; sizes are bound from the arrays' axes and must agree. On CuPy arrays an elementwise tree runs as one
kernel (compute.kernels.emit); sums run on CuPy's products and reductions.
Does not: differentiate, simplify, or keep the tree's order of summation.

>>> tree = {"version": 1, "inputs": [{"name": "Q", "axes": ["n", "d"]}, {"name": "K", "axes": ["m", "d"]}],
...         "output": [["i", "n"], ["j", "m"]],
...         "body": ["sum", "c", ["num", 0, 1], ["add", ["sym", "d"], ["num", -1, 1]],
...                  ["mul", ["at", "Q", [["sym", "i"], ["sym", "c"]]], ["at", "K", [["sym", "j"], ["sym", "c"]]]]]}
>>> import numpy as np
>>> function_from(tree)(Q=np.eye(2), K=np.array([[1.0, 2.0]])).tolist()
[[1.0], [2.0]]
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Rational, Real
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, device_errors, is_float, namespace
from compute.checks import required, shown
from compute.errors import InputError
from compute.evaluate import Evaluator
from compute.optree import Tree, check, operations

_FEWER = "evaluate fewer output entries a call"


class Function:
    """A callable formula. `inputs` lists its arguments; call it by position or by name.

    Arrays may be float16 to float64 or integers; the arithmetic is float64 unless every array is float32. A scalar
    result from NumPy is a float. Raises InputError for arguments that don't fit the tree.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.tree = check(data)
        self._data = data
        self._kernels: dict[tuple[str, int], Any] = {}

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.tree.inputs)

    def __repr__(self) -> str:
        return f"<function of {', '.join(self.inputs) or 'nothing'}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = self._named(args, named)
        arrays = {i.name: given[i.name] for i in self.tree.inputs if i.axes}
        xp = namespace(**arrays)
        sizes = self._sizes(arrays)
        scalars = {i.name: _number(i.name, given[i.name], xp) for i in self.tree.inputs if not i.axes}
        for name in set(scalars) & set(sizes):
            if scalars[name] != sizes[name]:
                raise InputError(f"{name} is {scalars[name]}, and an array has {sizes[name]} entries along {name}")
        float32 = bool(arrays) and all(str(a.dtype) == "float32" for a in arrays.values())
        if xp is not np and self.elementwise:
            with device_errors(xp, _FEWER):
                return self.kernel("float32" if float32 else "float64")(**arrays, **scalars)
        evaluator = Evaluator(
            xp, self.tree, arrays, scalars, sizes | _whole(self.tree, scalars), np.float32 if float32 else np.float64
        )
        with np.errstate(all="ignore"), device_errors(xp, _FEWER):
            out = evaluator.run()
        return float(out) if xp is np and not self.tree.output else out

    @property
    def elementwise(self) -> bool:
        """Whether each output entry is a formula of single entries, without sums, that a kernel can hold."""
        return bool(self.tree.output) and self.tree.depth == 0 and "digamma" not in operations(self.tree.body)

    def kernel(self, fmt: str = "float64", backend: Any = None) -> Any:
        """The compiled kernel of this tree (compute.kernels.emit.Formula), by default on the current device.

        An entry outside an array reads as NaN there. Raises DeviceError or NotInstalled without a device.
        """
        from compute.kernels.bridge import device
        from compute.kernels.emit import Formula

        if backend is not None:
            return Formula(self._data, backend, fmt)
        current = device()
        key = (fmt, int(getattr(current, "number", 0)))  # a loaded kernel belongs to one device
        if key not in self._kernels:
            self._kernels[key] = Formula(self._data, current, fmt)
        return self._kernels[key]

    def _named(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = self.inputs
        if len(args) > len(names):
            raise InputError(f"{len(args)} arguments: expected at most {len(names)}: {', '.join(names)}")
        given = dict(zip(names, args, strict=False))
        if twice := set(given) & set(named):
            raise InputError(f"{', '.join(sorted(twice))} given by position and by name")
        given |= named
        missing, extra = [n for n in names if n not in given], sorted(set(given) - set(names))
        if missing or extra:
            raise InputError(f"expected the arguments {', '.join(names)}; missing {missing}, not known {extra}")
        return given

    def _sizes(self, arrays: dict[str, Array]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for entry in self.tree.inputs:
            if not entry.axes:
                continue
            array = arrays[entry.name]
            required(**{entry.name: array})
            if array.dtype.kind not in "iu" and not is_float(array.dtype):
                raise InputError(f"{entry.name} has dtype {array.dtype}: expected real numbers")
            if array.ndim != len(entry.axes):
                raise InputError(f"{entry.name} has shape {tuple(array.shape)}: expected axes {entry.axes}")
            for axis, length in zip(entry.axes, array.shape, strict=True):
                if sizes.setdefault(axis, int(length)) != length:
                    raise InputError(f"{entry.name} has {axis}={length}, another array has {axis}={sizes[axis]}")
        return sizes


def function_from(tree: Mapping[str, Any]) -> Function:
    """A function from an operation tree (see compute.optree for its form). Raises InputError for a faulty tree."""
    return Function(tree)


def _number(name: str, value: Any, xp: Namespace) -> Any:
    if isinstance(value, (bool, np.bool_)) or not (isinstance(value, (Real, Rational)) or _zero_dim(value)):
        raise InputError(f"{name} is a {type(value).__name__}: expected one number")
    try:
        found = float(value)
    except OverflowError:
        raise InputError(f"{name} is {shown(value)}: expected a number within float64's range") from None
    return value if isinstance(value, (int, float)) else found


def _zero_dim(value: Any) -> bool:
    return getattr(value, "ndim", None) == 0 and (is_float(value.dtype) or value.dtype.kind in "iu")


def _whole(tree: Tree, scalars: dict[str, Any]) -> dict[str, int]:
    """Sizes of output axes that no array carries: scalar inputs, which must be whole."""
    sizes = {}
    for index, length in tree.output:
        if isinstance(length, str) and length in scalars:
            if not float(scalars[length]).is_integer() or scalars[length] < 0:
                raise InputError(f"{length} is {scalars[length]}, the size of index {index}: expected a whole number")
            sizes[length] = int(scalars[length])
    return sizes
