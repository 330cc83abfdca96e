"""Did you mean: the name that was meant, among those that there are and those of other libraries."""

import difflib
import sys
from collections.abc import Iterable, Mapping
from opcode import opmap
from pathlib import Path

OTHER_NAMES = {
    "angle": "max_deg",
    "batch": "batch_size",
    "bs": "batch_size",
    "dataset": "source",
    "degrees": "max_deg",
    "folder": "source",
    "grad_clip": "clip_norm",
    "image_size": "size",
    "img_size": "size",
    "learning_rate": "lr",
    "max_norm": "clip_norm",
    "num_workers": "num_threads",
    "output_dir": "out",
    "path": "source",
    "pretrained": "weights",
    "prob": "p",
    "probability": "p",
    "save_dir": "out",
    "wd": "weight_decay",
    "workers": "num_threads",
}
"""What fields are called elsewhere -> their name here, where difflib finds another one or none."""


def plain(name: str) -> str:
    """A name without what spellings differ in: case, underscores and hyphens."""
    return name.lower().replace("_", "").replace("-", "")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that is called `name` elsewhere, or that is written most like it; None where there is none near."""
    by_plain = {plain(one): one for one in reversed(list(known))}
    other = OTHER_NAMES.get(name)
    if other in by_plain.values():
        return other
    if plain(name).removeprefix("random") in by_plain:
        return by_plain[plain(name).removeprefix("random")]
    cutoff = 0.6 if len(name) > 2 else 0.5  # difflib's own is too much for two letters that changed places
    near = difflib.get_close_matches(plain(name), by_plain, n=1, cutoff=cutoff)
    return by_plain[near[0]] if near else None


def nearest_file(path: Path) -> str:
    """A question that names the file next to `path` that is called most like it; empty where there is none near."""
    beside = [found.stem for found in path.parent.glob(f"*{path.suffix}")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.stem, beside, n=1)
    return f" Did you mean {path.parent / (near[0] + path.suffix)}?" if near else ""


def elsewhere(name: str, answers: Mapping[str, str]) -> str | None:
    """What to write for a name of another library; None where it is unknown.

    Args:
        name: in any spelling, as RandomHorizontalFlip or random_horizontal_flip.
        answers: names as `plain` gives them, without "random" in front where that says no more.
    """
    return answers.get(plain(name)) or answers.get(plain(name).removeprefix("random"))


def missing(module: str, name: str, known: Iterable[str], answers: Mapping[str, str] | None = None) -> Exception:
    """The error for a name that a module does not have, for its `__getattr__` to raise.

    Args:
        module: its `__name__`.
        name: what was asked for.
        known: what it has.
        answers: names of other libraries, see `elsewhere`.
    """
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    instead, near = elsewhere(name, answers or {}), nearest(name, known)
    hint = f"Write {instead}." if instead else f"Did you mean {near}?" if near else f"dir({module}) lists its names."
    text = f"{module} has no {name}. {hint}"
    asking = sys._getframe(2)
    if asking.f_code.co_code[asking.f_lasti] == opmap["IMPORT_FROM"]:
        # of `from module import name` Python makes an error of its own, and drops the text of an AttributeError
        return ImportError(text, name=module)
    return AttributeError(text, name=name, obj=None)  # without obj Python adds no suggestion of its own
