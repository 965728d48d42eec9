"""The process in which a target runs: `python -m verify.checking.child`.

Guarantees: answers over its own pipe, so that what the target prints can't be mistaken for an answer; ends when the
pipe closes. Memory is limited where the system has RLIMIT_DATA.
Does not: limit time (the runner does), or keep a hostile target from the file system.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from verify.checking.calls import ARRAYS, Array, Call
from verify.checking.invoke import invoke
from verify.checking.libraries import library
from verify.checking.specs import spec_from_json
from verify.checking.targets import Target, load
from verify.checking.wire import receive, send
from verify.errors import MissingError, UsageError


def main() -> None:
    """Serve one target until the pipe closes."""
    answers = os.fdopen(os.dup(1), "wb")
    questions = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    body, _ = receive(questions)
    try:
        limit_memory(int(body["memory"]))
        sys.path[:] = [*dict.fromkeys([*sys.path, *body["path"]])]
        target = Target(**body["target"])
        shelf = library(target.like, target.device)
        function, backward, profile = load(target)
    except (UsageError, MissingError) as error:
        send(answers, {"error": str(error), "missing": isinstance(error, MissingError)})
        return
    switches = {"python": sys.version.split()[0], **shelf.describe()}
    send(answers, {"profile": profile.to_json(), "switches": switches})
    while True:
        try:
            body, arrays = receive(questions)
        except EOFError:
            return
        reply = invoke(function, profile, shelf, _call(body, arrays), backward)
        found: dict[str, Array] = {f"gradient.{name}": value for name, value in reply.gradients.items()}
        found |= {n: value for n in ("output", "lse") if (value := getattr(reply, n)) is not None}
        plain = {n: getattr(reply, n) for n in ("fault", "message", "mutated", "state", "seconds")}
        try:
            send(answers, plain, found)
        except BrokenPipeError:
            return


def _call(body: dict[str, Any], arrays: dict[str, Array]) -> Call:
    return Call(
        spec=spec_from_json(body["spec"]),
        lse=body["lse"],
        scale_gradient=body["scale_gradient"],
        memory=tuple((name, how) for name, how in body["memory"]),
        options=tuple((name, value) for name, value in body["options"]),
        **{name: arrays[name] for name in ARRAYS if name in arrays},
    )


def limit_memory(size: int) -> None:
    """Hold this process's private memory to `size` bytes where the system can; 0 is no limit."""
    try:
        import resource
    except ImportError:
        return
    if size:
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


if __name__ == "__main__":
    main()
