"""How remote files are read and kept: limits of time, attempts and room."""

import os
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from augpipe.validation.arguments import parse_bytes
from augpipe.validation.models import Checked

CACHE_VARIABLE = "AUGPIPE_REMOTE_CACHE"
BYTES_VARIABLE = "AUGPIPE_REMOTE_CACHE_BYTES"


def default_cache_folder() -> str:
    """`$AUGPIPE_REMOTE_CACHE`, else a folder below the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    return str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "augpipe" / "remote")


def default_cache_bytes() -> int:
    """`$AUGPIPE_REMOTE_CACHE_BYTES` (`200GB`), else 20 GB.

    Raises:
        ValueError: the variable is not a number of bytes.
    """
    text = os.environ.get(BYTES_VARIABLE)
    if not text:
        return 20_000_000_000
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ValueError(f"the environment variable {BYTES_VARIABLE}: {error}") from error


class RemoteSettings(Checked):
    """What a source of remote files may be told; it travels with the source to worker processes."""

    model_config = ConfigDict(strict=True, defer_build=True)

    cache_folder: str = Field(default_factory=default_cache_folder)
    """Where parts of remote files are kept; shared by any number of processes and of data sets."""
    cache_bytes: int = Field(default_factory=default_cache_bytes, ge=0)
    """The most that it may hold; what was not read for longest goes first. 0 keeps indices alone."""
    block_bytes: int = Field(default=256 << 10, ge=4096, le=64 << 20)
    """What is asked for and kept at once, and an image takes one or two of them. More makes fewer requests where
    the cache holds the whole data set; less wastes less where it does not. Of two settings, neither reads the other's
    blocks."""
    read_ahead_blocks: int = Field(default=16, ge=0, le=1024)
    """How many more blocks one request fetches at most, where a file is read from its begin to its end."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """For a connection to be made."""
    stall_timeout_s: float = Field(default=30.0, gt=0)
    """For the next byte of an answer."""
    total_timeout_s: float = Field(default=120.0, gt=0)
    """For one read, all attempts and the pauses between them together."""
    max_attempts: int = Field(default=6, ge=1)
    """How often one read is tried."""
    first_pause_s: float = Field(default=0.5, gt=0)
    """After the first failed attempt; it doubles after each, and each is cut by up to a half, at random, so that many
    readers do not come back at the same moment."""
    max_pause_s: float = Field(default=15.0, gt=0)
    """The longest pause, before it is cut."""
    storage_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """For fsspec's file system, e.g. `{"anon": True}` for public S3 buckets; may hold secrets, and is not printed."""

    def key(self) -> str:
        """The same for the same settings."""
        return repr(sorted(self.model_dump().items(), key=lambda item: item[0]))
