"""What goes wrong between ranks."""


class SyncError(RuntimeError):
    """Ranks do not fit together, or one did not answer in time; the message says what was waited for, or what
    differs."""


def not_answered(name: str, what: str, timeout_s: float, error: Exception) -> SyncError:
    """The error of an exchange whose other ranks did not do their part; `error` is what the backend said."""
    found = SyncError(
        f"{name}: waited for the {what}, at most {timeout_s:g} s, and got: {error}. "
        "A rank has died, hangs, or does something else; its own log says what."
    )
    found.__cause__ = error
    return found
