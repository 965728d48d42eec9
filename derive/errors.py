"""Errors that `derive` raises on purpose.

Each message says what was expected, what was got, and the likely mend.
"""


class DeriveError(Exception):
    """Base of every error that derive raises on purpose."""


class StatementError(DeriveError, ValueError):
    """A statement can't be read: unbound index, mixed sizes, unsupported function, a sum without a range."""


class InputError(DeriveError, ValueError):
    """An argument can't be used: the message says what was expected, what was got, and the likely mend."""


class UnknownClaim(DeriveError, KeyError):
    """No claim has this id; the message offers the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown claim"


class MomentError(DeriveError, ValueError):
    """A moment that was asked for does not exist, or can't be derived from what was given."""


class CheckersDisagree(DeriveError):
    """Two independent checkers came to different answers: a fault of attnproof itself, never to be passed over."""
