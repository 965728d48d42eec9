"""Errors that `compute` raises on purpose.

Each message says what was expected, what was got, and the likely mend.
"""


class ComputeError(Exception):
    """Base of every error that compute raises on purpose."""


class InputError(ComputeError, ValueError):
    """Arguments that don't fit together: shapes, dtypes, values, a mask that can't be read."""


class NotInstalled(ComputeError, ImportError):
    """An optional package is needed; the message names it and the line that installs it."""


class DeviceError(ComputeError, RuntimeError):
    """A GPU was asked for and can't do it: none found, no driver, too old, out of memory."""


class CanaryFailed(ComputeError, RuntimeError):
    """This machine's arithmetic is not what a certificate would assume; nothing is certified."""
