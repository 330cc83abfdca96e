"""Public names that are to go work for one release more, with a warning; CONTRIBUTING.md has the rule."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def warn_deprecated(old: str, new: str, ends_in: str, stacklevel: int = 2) -> None:
    """Warn that a public name, argument, field or option is to go; the command line prints it as one line.

    Args:
        old: what was written, as "augpipe.recipe" or "--skip-bad".
        new: what to write instead, as "augpipe.recipes.recipe" or "--on-error skip".
        ends_in: the release that no longer has it, as "0.2".
        stacklevel: how many calls above this function the user's own line is.
    """
    text = f"{old} is deprecated and ends in augpipe {ends_in}. Write {new} instead."
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)


def moved_module(old: str, new: str, ends_in: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that has moved: each name is looked up in the new one, with a warning."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):  # the import system asks for such names
            raise AttributeError(name)
        found = getattr(import_module(new), name)
        warn_deprecated(old, new, ends_in)
        return found

    return __getattr__
