"""Lines that a process logs once, however many loaders, files or recipes they are about."""

import logging

logger = logging.getLogger("augpipe")

_LOGGED: set[str] = set()
"""The keys of the lines that this process has logged."""


def log_once(level: int, text: str, *values: object, key: str | None = None) -> None:
    """Log a line, unless nobody listens at its level or one of its `key` was logged, which is by itself `text`."""
    key = text if key is None else key
    if key not in _LOGGED and logger.isEnabledFor(level):
        _LOGGED.add(key)
        logger.log(level, text, *values)
