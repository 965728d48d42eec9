"""Subjects: a target in a spawned child process with limits, or a function in this process.

Guarantees: a target in a child can hang, crash or eat memory without harm to the check; each is a Reply with a fault.
After a hang or a crash a fresh child answers the next question.
Does not: limit a function that runs in this process (`isolated` says which one it is).
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from verify.checking.calls import Call, Reply
from verify.checking.invoke import invoke
from verify.checking.libraries import Library, library
from verify.checking.profiles import Profile, read_parameters
from verify.checking.specs import spec_to_json
from verify.checking.targets import Target
from verify.checking.wire import receive, send
from verify.errors import MissingError, UsageError

TIMEOUT = 60.0
MEMORY = 8 << 30


class Local:
    """A function in this process: no time or memory limit, but closures and fixtures work."""

    isolated = False

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        like: str = "numpy",
        layout: str = "bhnd",
        device: str = "cpu",
        backward: Callable[..., Any] | None = None,
        renamed: dict[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self._function, self._backward = function, backward
        self._library: Library = library(like, device)
        self.switches = self._library.describe()
        self.profile = Profile(
            name=name or str(getattr(function, "__qualname__", type(function).__name__)),
            like=like,
            layout=layout,
            device=device,
            parameters=read_parameters(function, renamed or {}),
            gradients=backward is not None or like in ("torch", "jax"),
        )

    def ask(self, call: Call) -> Reply:
        """Put one question."""
        return invoke(self._function, self.profile, self._library, call, self._backward)

    def close(self) -> None:
        """Nothing to end."""


class Isolated:
    """A target in a spawned child process. timeout: seconds a call (and the import) may take. memory: bytes."""

    isolated = True

    def __init__(self, target: Target, *, timeout: float = TIMEOUT, memory: int = MEMORY) -> None:
        self._target, self._timeout, self._memory = target, timeout, memory
        self._child: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()
        self.profile, self.switches = self._start()

    def ask(self, call: Call) -> Reply:
        """Put one question; a hang or a crash becomes a Reply."""
        if self._child is None:
            self._start()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        header = {
            "spec": spec_to_json(call.spec),
            "lse": call.lse,
            "scale_gradient": call.scale_gradient,
            "memory": list(call.memory),
            "options": list(call.options),
        }
        try:
            send(child.stdin, header, call.arrays())
        except OSError:
            return self._died()
        answer = self._next()
        if answer is None:
            self.close()
            return Reply(fault="hang", message=f"no answer within {self._timeout:g} s", seconds=self._timeout)
        if isinstance(answer, EOFError):
            return self._died()
        body, arrays = answer
        return Reply(
            output=arrays.get("output"),
            lse=arrays.get("lse"),
            gradients={n.removeprefix("gradient."): a for n, a in arrays.items() if n.startswith("gradient.")},
            fault=body["fault"],
            message=body["message"],
            mutated=tuple(body["mutated"]),
            state=tuple(body["state"]),
            seconds=body["seconds"],
        )

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            self._listener.join(timeout=5)
            for stream in (child.stdin, child.stdout, self._errors):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what was still to be sent has nobody to read it
                        stream.close()

    def _start(self) -> tuple[Profile, dict[str, str]]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        child = subprocess.Popen(
            [sys.executable, "-m", "verify.checking.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
        )
        self._child = child
        self._answers = queue.Queue()
        self._listener = threading.Thread(target=_listen, args=(child.stdout, self._answers), daemon=True)
        self._listener.start()
        assert child.stdin is not None
        try:
            send(child.stdin, {"target": self._target.to_json(), "path": sys.path, "memory": self._memory})
        except OSError as error:
            tail = self._end()[1]
            raise UsageError(f"the process for {self._target.text} did not start: {tail}") from error
        answer = self._next()
        if answer is None:
            self.close()
            raise UsageError(f"importing {self._target.text} took more than {self._timeout:g} s: raise --timeout?")
        if isinstance(answer, EOFError):
            code, tail = self._end()
            raise UsageError(f"the process died while importing {self._target.text} (exit {code}): {tail}")
        body, _ = answer
        if "error" in body:
            self.close()
            raise (MissingError if body["missing"] else UsageError)(body["error"])
        return Profile.from_json(body["profile"]), body["switches"]

    def _next(self) -> Any:
        try:
            return self._answers.get(timeout=self._timeout)
        except queue.Empty:
            return None

    def _died(self) -> Reply:
        code, tail = self._end()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return Reply(fault="died", message=f"the process ended ({how}){': ' + tail if tail else ''}")

    def _end(self) -> tuple[int | None, str]:
        code = None
        if self._child is not None:
            try:
                code = self._child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                code = None
        tail = self._tail()
        self.close()
        return code, tail

    def _tail(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _listen(stream: Any, answers: queue.Queue[Any]) -> None:
    while True:
        try:
            answers.put(receive(stream))
        except EOFError as error:
            answers.put(error)
            return
        except (OSError, ValueError):
            answers.put(EOFError("closed"))
            return


def _environment() -> dict[str, str]:
    import os

    # The check itself must be importable in the child, from a source tree too.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root, *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


Subject = Local | Isolated
