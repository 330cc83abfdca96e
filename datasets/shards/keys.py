"""The name of a sample in its shard: unique, and safe in every tar reader and file system."""

import os
import re

MAX_KEY_BYTES = 80
_KEY = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_KEY_BYTES}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_STEM_LETTERS = 60


def sample_key(position: int, name: str) -> str:
    """The key of the sample at `position` of a data set, e.g. `000001234-tabby_cat` from "cats/tabby cat.jpeg".

    The position makes it unique; the rest is the name's last part, without its extension and with "_" for every
    character but ASCII letters, digits, "_" and "-", so that people recognise it.
    """
    stem = os.path.splitext(os.path.basename(name))[0]
    return f"{position:09}-{_UNSAFE.sub('_', stem)[:_STEM_LETTERS]}"


def check_key(key: str) -> None:
    """Refuse a key that some reader of WebDataset tar files would take for something else.

    Raises:
        ValueError: it holds other characters than ASCII letters, digits, "_" and "-" (a dot would end it, a slash make
            a folder), or is empty or longer than `MAX_KEY_BYTES`.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"key={key!r} is no key: 1 to {MAX_KEY_BYTES} ASCII letters, digits, '_' and '-' are. "
            "Use augpipe.datasets.shards.keys.sample_key(position, name)."
        )
