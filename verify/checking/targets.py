"""What is to be judged: `file.py:function`, `module:function`, `model.onnx`, or a known name.

Guarantees: reading a target's text runs no code; loading it does, and is meant for the child process only.
Does not: search for targets, or run an ONNX file outside onnxruntime.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.checking.profiles import LIBRARIES, Profile, read_parameters
from verify.errors import MissingError, UsageError

# known name -> (module, attribute, library, what must be installed)
KNOWN: dict[str, tuple[str, str, str]] = {
    "torch.sdpa": ("verify.peers.torch_sdpa", "sdpa", "torch"),
    "torch.sdpa.math": ("verify.peers.torch_sdpa", "sdpa_math", "torch"),
    "torch.sdpa.flash": ("verify.peers.torch_sdpa", "sdpa_flash", "torch"),
    "torch.mha": ("verify.peers.torch_mha", "mha", "torch"),
    "jax.dot_product_attention": ("verify.peers.jax_attention", "dot_product_attention", "jax"),
    "onnxruntime": ("verify.peers.onnx_runtime", "attention", "numpy"),
    "cupy": ("verify.peers.own", "attention", "cupy"),
    "compute": ("verify.peers.own", "attention", "numpy"),
}
ONNX_LIMIT = 2 << 30


@dataclass(frozen=True)
class Target:
    """Where the target is and how it wants to be called. Pure data; travels to the child as JSON."""

    text: str
    kind: str
    where: str
    attribute: str
    like: str = "numpy"
    layout: str = "bhnd"
    device: str = "cpu"
    compiled: bool = False
    backward: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "renamed": dict(self.renamed)}


def parse_target(text: str, *, like: str | None = None, **options: Any) -> Target:
    """Read a target's text. Raises UsageError when it names nothing that can be there."""
    if like is not None and like not in LIBRARIES:
        raise UsageError(f"--like {like}: expected one of {', '.join(LIBRARIES)}")
    if not all(part.isidentifier() for part in options.get("backward", "").split(".")) and options.get("backward"):
        raise UsageError(
            f"--backward {options['backward']!r}: expected the name of a function beside the target, in the same file"
            f" or module, as --backward {options['backward'].rpartition(':')[2] or 'gradients'}"
        )
    if text in KNOWN:
        module, attribute, library = KNOWN[text]
        return Target(text, "module", module, attribute, library, **options)
    if text.endswith(".onnx"):
        path = Path(text)
        if not path.is_file():
            raise UsageError(f"no file {text}: expected an ONNX model")
        if path.stat().st_size > ONNX_LIMIT:
            raise UsageError(f"{text} has {path.stat().st_size} bytes: a model above {ONNX_LIMIT} bytes is refused")
        return Target(text, "onnx", str(path.resolve()), "", like or "numpy", **options)
    where, colon, attribute = text.rpartition(":")
    if text.removesuffix(":").endswith(".py"):
        name = text.removesuffix(":")
        raise UsageError(f"target {text!r}: a file holds many functions; expected FILE.py:FUNCTION{_functions(name)}")
    if not colon or not where or not attribute:
        near = difflib.get_close_matches(text, KNOWN, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; known names: {', '.join(KNOWN)}"
        raise UsageError(
            f"target {text!r}: expected FILE.py:FUNCTION, MODULE:FUNCTION, MODEL.onnx or a known name{hint}"
        )
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise UsageError(f"no file {where}: expected a Python file before ':' in {text!r}")
        return Target(text, "file", str(path.resolve()), attribute, like or "numpy", **options)
    if not all(part.isidentifier() for part in where.split(".")):
        raise UsageError(f"target {text!r}: {where!r} is neither a .py file nor the name of a module")
    return Target(text, "module", where, attribute, like or "numpy", **options)


def _functions(path: str) -> str:
    """The functions at the top of a file, read without running it, as ", as x.py:f"; "" where none can be read."""
    try:
        body = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return f", as {path}:{names[0]} (found there: {', '.join(names[:8])}{', ...' * (len(names) > 8)})" if names else ""


def load(target: Target) -> tuple[Any, Any, Profile]:
    """Import the target: (function, backward or None, profile). Runs the target's module.

    Raises UsageError (no such function, raises at import) or MissingError (a module it needs is not installed).
    """
    if target.kind == "onnx":
        from verify.peers.onnx_runtime import model_function

        function, parameters, layout = model_function(target.where)
        return function, None, Profile(target.text, target.like, layout, parameters=parameters)
    module = _module(target)
    function = _attribute(module, target.attribute, target.text)
    backward = _attribute(module, target.backward, target.text, "--backward") if target.backward else None
    own = getattr(function, "attention_profile", None)
    parameters = read_parameters(function, target.renamed)
    profile = Profile(
        name=target.text,
        like=target.like,
        layout=target.layout,
        device=target.device,
        compiled=target.compiled,
        parameters=parameters,
        gradients=backward is not None or target.like in ("torch", "jax"),
    )
    if isinstance(own, Mapping):
        profile = replace(profile, **own)
    if target.compiled:
        if target.like != "torch":
            raise UsageError("--compile is for torch targets")
        function = importlib.import_module("torch").compile(function)
    return function, backward, profile


def _module(target: Target) -> Any:
    try:
        if target.kind == "module":
            return importlib.import_module(target.where)
        path = Path(target.where)
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{target.where} can't be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except (UsageError, MissingError):
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or str(error)).split(".")[0]
        if target.kind == "module" and missing == target.where.split(".")[0]:
            raise UsageError(f"no module {missing!r} for target {target.text!r}: is it on the path?") from error
        raise MissingError(f"{target.text} needs {missing!r}, which is not installed: pip install {missing}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(f"{target.where} raises when imported: {type(error).__name__}: {error}") from error
    return module


def refuse_class(found: Any) -> None:
    """Raise UsageError for a class: calling it makes an instance and gives no attention."""
    if inspect.isclass(found):
        raise UsageError(
            f"{found.__name__} is a class: expected a function or an instance, as `attention = {found.__name__}(...)`"
        )


def _attribute(module: Any, name: str, text: str, option: str = "") -> Any:
    """A function by its name. option: the option that gave the name, where it is not the target's own."""
    asked = f"{option} {name!r}, beside target {text!r}" if option else f"target {text!r}"
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n in dir(found) if callable(getattr(found, n, None)) and not n.startswith("_")]
            near = difflib.get_close_matches(part, names, n=3, cutoff=0.6)
            listed = f"did you mean {', '.join(near)}? " if near else ""
            count = f"{len(names)} callable{'s' * (len(names) != 1)} found there"
            others = f": {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names and not near else ""
            raise UsageError(f"{asked}: no function {part!r} there; {listed}{count}{others}")
        found = getattr(found, part)
    refuse_class(found)
    if not callable(found):
        raise UsageError(f"{asked}: {name} is a {type(found).__name__}, expected a function")
    return found
