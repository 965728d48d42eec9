"""Exit codes, and the errors that the command line turns into them.

Guarantees: one meaning a code, the same for every command. Does not: print anything.
"""

from __future__ import annotations

AGREES = 0
DIFFERS = 1
USAGE = 2
NOT_INSTALLED = 3
INTERNAL = 4
INTERRUPTED = 130


class UsageError(Exception):
    """The call is wrong: an argument, a path, a name. Exit code 2."""


class MissingError(Exception):
    """Something needed is not installed or not there; the message names it and the line that installs it. Exit 3."""
