"""Names of many files in one: `shard-{000000..000009}.tar` as WebDataset writes it, and `*` and `?` as a shell does."""

import glob
import os
import re
from collections.abc import Iterator

from augpipe.datasets.metadata.names import listed, printable
from augpipe.validation.plural import count

MAX_FILES = 100_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def is_pattern(path: str) -> bool:
    """Whether a path that does not exist under this very name may stand for several files."""
    return any(letter in path for letter in "*?[") or _BRACES.search(path) is not None


def expand(pattern: str) -> list[str]:
    """The files that a pattern names: braces in the order written, then `*`, `?` and `[...]` sorted by bytes.

    `{000..123}` counts with leading zeros as written, `{a,b}` lists; several braces give every combination, the last
    one counting fastest.

    Raises:
        ValueError: no file has such a name, one that the braces name is missing, or they name more than 100,000.
    """
    paths: list[str] = []
    missing: list[str] = []
    for path in braces(pattern):
        if any(letter in path for letter in "*?["):
            found = sorted(glob.glob(path), key=os.fsencode)
        else:
            found = [path] if os.path.lexists(path) else []
        paths += found
        if not found:
            missing.append(path)
        if len(paths) + len(missing) > MAX_FILES:
            raise ValueError(f"{printable(pattern)!r} names more than {MAX_FILES} files. Check the numbers in it.")
    if missing == [pattern]:
        here = printable(os.getcwd())
        what = "matches no file" if is_pattern(pattern) else "does not exist"
        raise ValueError(f"{printable(pattern)!r} {what} (the current folder is {here}). Check the spelling.")
    if missing:
        num_files = count(len(paths) + len(missing), "file")
        are = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"{printable(pattern)!r} names {num_files}, and {len(missing)} of them {are} not there: {listed(missing)}. "
            "Check the numbers in it, and that all files have arrived."
        )
    return paths


def braces(pattern: str) -> Iterator[str]:
    """The names that a pattern's braces give, in the order written; one without braces is its own.

    Raises:
        ValueError: what stands in braces is neither a range nor a list.
    """
    match = _BRACES.search(pattern)
    if match is None:
        yield pattern
        return
    before, after = pattern[: match.start()], pattern[match.end() :]
    for choice in _choices(pattern, match.group(1)):
        for rest in braces(after):
            yield f"{before}{choice}{rest}"


def _choices(pattern: str, inside: str) -> Iterator[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        if "," not in inside:
            raise ValueError(
                f"{printable(pattern)!r}: {{{printable(inside)}}} is neither a range such as {{000..123}} nor a list "
                "such as {a,b}. Write one of them."
            )
        yield from inside.split(",")
        return
    first, last = numbers.groups()
    if int(first) > int(last):
        raise ValueError(f"{printable(pattern)!r}: the range {{{inside}}} counts down. Write {{{last}..{first}}}.")
    width = len(first) if first.startswith("0") else 0
    for number in range(int(first), int(last) + 1):
        yield f"{number:0{width}}"
