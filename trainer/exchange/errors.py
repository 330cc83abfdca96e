"""What goes wrong between ranks."""


class SyncError(RuntimeError):
    """Ranks do not fit together, or one did not answer in time; the message says what was waited for, or what
    differs."""
