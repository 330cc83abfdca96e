"""The record of a run's data, in its folder: the sources that it read, the samples held out, and its recipes."""

import gzip
import hashlib
import json
import os
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.remote.urls import as_url
from augpipe.datasets.remote.urls import shown as without_secrets
from augpipe.recipes.recipe import PIXELS, Recipe
from augpipe.recipes.toml_file import validated
from augpipe.sources import Subset
from augpipe.sources.identity import SourceIdentity, identity_of, stored_names
from augpipe.sources.protocol import Source, has_stored_names
from augpipe.trainer.config.tables import DataConfig, RunConfig
from augpipe.trainer.loop.data import evaluation_recipe, training_schedule
from augpipe.validation.plural import count

DATA, NAMES = "data.json", "held-out.txt.gz"
"""The files in a run's folder."""
_VERSION = 1
_MOST_CHANGES = 3
"""Changes of a recipe that a message names."""
_SAYS_NOTHING = re.compile(r"(stages\[\d+\]\.recipe\.)?(name|pixels)")
"""Where a recipe says what people call it, and which release's pixels are meant, which is compared apart."""


@dataclass(frozen=True, kw_only=True)
class KeptSource:
    """A source as it was when the run last began."""

    place: str
    """A URL, or an absolute path."""
    identity: SourceIdentity
    split: str | None = None
    """The part of it that is meant; None for all of it."""


@dataclass(frozen=True, kw_only=True)
class KeptRecipe:
    """A recipe as it was when the run last began."""

    place: str
    """Its name, or the absolute path of its file; empty for one that was made of the training's."""
    toml: str


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a run read, from its last start on."""

    source: KeptSource
    """data.source, or its part data.split, with what is held out of it."""
    held_out: KeptSource | None
    """What is evaluated: images of data.eval_source or data.eval_split, or those held out of `source`; None for
    nothing."""
    eval_fraction: float
    """The share of `source` that was held out; 0 for none of it."""
    seed: int
    """By which that share was drawn."""
    num_trained_on: int
    """Images of `held_out` that are trained on as well, as far as names tell."""
    recipe: KeptRecipe
    """The schedule of recipes for training."""
    eval_recipe: KeptRecipe
    """What evaluated images go through."""
    classes: tuple[str, ...] = ()
    """Their names in order; none in the record of an older augpipe."""
    names_sha256: str = ""
    """Of the names in `NAMES`; empty where images have no names of their own."""

    @staticmethod
    def of(config: RunConfig, source: Source, held_out: Source | None) -> "RunData":
        """What a run of these sources, as `open_sources` gives them, is to keep."""
        data = config.data
        is_share = data.eval_fraction > 0 and isinstance(source, Subset)
        whole = source.whole if isinstance(source, Subset) and is_share else source
        place = absolute_place(data.source)
        kept = None
        if held_out is not None:
            held_place = place if data.eval_source is None else absolute_place(data.eval_source)
            split = data.split if data.eval_fraction > 0 else data.eval_split
            kept = KeptSource(place=held_place, identity=identity_of(held_out), split=split)
        return RunData(
            source=KeptSource(place=place, identity=identity_of(whole), split=data.split),
            held_out=kept,
            eval_fraction=data.eval_fraction,
            seed=config.seed,
            num_trained_on=0 if held_out is None else _num_shared(data, source, held_out),
            recipe=KeptRecipe(place=_recipe_place(data.recipe), toml=training_schedule(data).to_toml()),
            eval_recipe=KeptRecipe(
                place="" if data.eval_recipe is None else _recipe_place(data.eval_recipe),
                toml=evaluation_recipe(data).to_toml(),
            ),
            classes=tuple(source.classes),
            names_sha256="" if held_out is None or not has_stored_names(held_out) else _sha256(_names_text(held_out)),
        )

    @property
    def evaluated(self) -> str:
        """How lines call the images that are evaluated."""
        if not self.num_trained_on:
            return "held out"
        assert self.held_out is not None
        return "trained on too" if self.num_trained_on == self.held_out.identity.num_samples else "evaluated"

    @property
    def trained_on_text(self) -> str:
        """What is to be said where images are evaluated that are trained on; empty where none are."""
        if not self.num_trained_on or self.held_out is None:
            return ""
        num, total = self.num_trained_on, self.held_out.identity.num_samples
        which = f"all {count(total, 'photograph')}" if num == total else f"{num} of the {count(total, 'photograph')}"
        field = "data.eval_split" if self.held_out.split else "data.eval_source"
        field = "data.eval_fraction" if self.eval_fraction else field
        return f"{which} of {field} are trained on, too: their evaluation says little of new photographs"

    def as_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        return {
            "version": _VERSION,
            "source": _source_json(self.source),
            "held_out": None if self.held_out is None else _source_json(self.held_out),
            "eval_fraction": self.eval_fraction,
            "seed": self.seed,
            "num_trained_on": self.num_trained_on,
            "recipe": vars(self.recipe),
            "eval_recipe": vars(self.eval_recipe),
            "classes": list(self.classes),
            "names_sha256": self.names_sha256,
        }

    @staticmethod
    def from_json(noted: Mapping[str, Any]) -> "RunData":
        """What `as_json` gave; ValueError, KeyError or TypeError where it is something else."""
        held_out = noted["held_out"]
        return RunData(
            source=_kept_source(noted["source"]),
            held_out=None if held_out is None else _kept_source(held_out),
            eval_fraction=float(noted["eval_fraction"]),
            seed=int(noted["seed"]),
            num_trained_on=int(noted["num_trained_on"]),
            recipe=KeptRecipe(**noted["recipe"]),
            eval_recipe=KeptRecipe(**noted["eval_recipe"]),
            classes=tuple(noted.get("classes", ())),
            names_sha256=str(noted["names_sha256"]),
        )

    def write(self, folder: Path, held_out: Source | None) -> None:
        """Put it down in a run's folder, with the names of the images held out, where those have any."""
        if self.names_sha256:
            assert held_out is not None
            text = gzip.compress(_names_text(held_out), mtime=0)
            write_atomically(str(folder / NAMES), text)
        write_atomically(str(folder / DATA), (json.dumps(self.as_json(), indent=1) + "\n").encode())

    def names(self, folder: Path) -> list[str] | None:
        """The names of the images held out; None where they have none of their own.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.names_sha256:
            return None
        path = folder / NAMES
        try:
            text = gzip.decompress(path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(_damaged(path)) from error
        if _sha256(text) != self.names_sha256:
            raise ValueError(_damaged(path))
        return [json.loads(line) for line in text.splitlines()]

    def check_goes_on(self, now: "RunData", out: str, config: RunConfig) -> list[str]:
        """What a run that kept this and goes on is to say of what is otherwise now, and may be.

        Raises:
            ValueError: it would not go on with the images and recipe that it was trained on.
        """
        differences = self.source.identity.differences(now.source.identity)
        if differences:
            raise ValueError(
                f"data.source={config.data.source!r} is not what the run in {out} was trained on "
                f"({'; '.join(differences)}): photographs would be lost, repeated, or evaluated after they were "
                f"trained on. {_moved(self.source.place, now.source.place)}Put it back, or choose another out."
            )
        share = [("data.eval_fraction", self.eval_fraction, now.eval_fraction)]
        if self.eval_fraction and now.eval_fraction:
            share.append(("seed", self.seed, now.seed))
        changed = [f"{name}: {before:g}, now {after:g}" for name, before, after in share if before != after]
        if changed:
            raise ValueError(
                f"{'; '.join(changed)}: other photographs would be held out than the run in {out} did, among them some "
                "that it was trained on. Set it back, or choose another out."
            )
        pixels = _pixels(self.recipe.toml), _pixels(now.recipe.toml)
        if pixels[0] != pixels[1]:
            raise ValueError(
                f"the run in {out} was begun with pixels = {pixels[0]}, and this augpipe makes pixels = {pixels[1]}: "
                "the same recipe and seed give other images (CHANGELOG.md says what changed). Resume with the augpipe "
                "that began it, or choose another out."
            )
        changed = _recipe_changes(self.recipe.toml, now.recipe.toml)
        if changed:
            raise ValueError(
                f"data.recipe={config.data.recipe!r} is not the recipe that the run in {out} was begun with: "
                f"{'; '.join(changed)}. Put it back ({DATA} there holds its text), or choose another out."
            )
        lines = []
        if self.source.place != now.source.place:
            places = without_secrets(now.source.place), without_secrets(self.source.place)
            lines.append("data.source is {} now, and was {}: it has the same names and labels".format(*places))
        if self.held_out is None or now.held_out is None:
            return lines
        changed = _recipe_changes(self.eval_recipe.toml, now.eval_recipe.toml)
        differences = self.held_out.identity.differences(now.held_out.identity)
        if differences:
            lines.append(f"data.eval_source is evaluated otherwise than before: {'; '.join(differences)}")
        if changed:
            lines.append(f"photographs are evaluated by another recipe than before: {'; '.join(changed)}")
        return lines


def read_data(folder: Path) -> RunData | None:
    """What a run has kept of its data; None in the folder of one that was made before runs did.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / DATA
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return RunData.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(_damaged(path)) from error


def kept_recipe(folder: Path, data: RunData) -> Recipe:
    """The recipe for evaluation that a run has kept.

    Raises:
        ValueError: it is damaged, or this version does not take it.
    """
    try:
        content = tomllib.loads(data.eval_recipe.toml)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_damaged(folder / DATA)) from error
    return validated(Recipe, content, folder / DATA, "recipe")


def absolute_place(path: str) -> str:
    """Where a source lies, whatever the current folder is."""
    return path if as_url(path) is not None else os.path.abspath(path)


def is_same_place(first: str, other: str) -> bool:
    """Whether two paths or URLs lead to the same."""
    return first == other or (as_url(first) is None and os.path.realpath(first) == os.path.realpath(other))


def found_by_name(source: Source, names: Sequence[str]) -> Subset | None:
    """The images of these names, as many of each as are named, in the source's order; None where there is none."""
    left = Counter(names)
    found = []
    for sample_id, name in enumerate(stored_names(source)):
        if left[name] > 0:
            left[name] -= 1
            found.append(sample_id)
    return Subset(source, found) if found else None


def _num_shared(data: DataConfig, source: Source, held_out: Source) -> int:
    """Images that are in both."""
    is_apart = data.eval_fraction > 0 or data.split != data.eval_split
    if not is_apart and is_same_place(data.source, data.eval_source or data.source):
        return len(held_out)
    if not (has_stored_names(source) and has_stored_names(held_out)):
        return 0  # what is called by its number is called so in any file
    held = Counter(os.path.abspath(held_out.name(i)) for i in range(len(held_out)))  # lists may name a file in two ways
    shared = {name for i in range(len(source)) if (name := os.path.abspath(source.name(i))) in held}
    return sum(held[name] for name in shared)


def _names_text(source: Source) -> bytes:
    """A line each, as JSON has texts: a name may hold a line's end, or bytes that are not UTF-8."""
    return "".join(json.dumps(name) + "\n" for name in stored_names(source)).encode()


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _source_json(kept: KeptSource) -> dict[str, Any]:
    return {"place": kept.place, "split": kept.split, "identity": kept.identity.to_json()}


def _kept_source(noted: Any) -> KeptSource:
    identity = SourceIdentity.from_json(noted["identity"])
    return KeptSource(place=str(noted["place"]), identity=identity, split=noted.get("split"))


def _recipe_place(name: str) -> str:
    return os.path.abspath(name) if name.endswith(".toml") else name


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: what the run was trained on is not known. Take it from a copy, or remove {DATA} to do "
        "without it."
    )


def _moved(before: str, now: str) -> str:
    return "" if before == now else f"The run's was {without_secrets(before)}. "


def _recipe_changes(before: str, now: str) -> list[str]:
    """In words, the first of the values in which two recipes differ."""
    try:
        then, today = (dict(_flat(tomllib.loads(text))) for text in (before, now))
    except tomllib.TOMLDecodeError:
        return ["what is kept of it is damaged"]
    places = [
        place
        for place in {**then, **today}
        if then.get(place) != today.get(place) and not _SAYS_NOTHING.fullmatch(place)
    ]
    texts = [f"{_short(place, then)}: {_value(then, place)}, now {_value(today, place)}" for place in places]
    more = len(texts) - _MOST_CHANGES
    return texts[:_MOST_CHANGES] + ([f"and {more} more"] if more > 0 else [])


def _pixels(text: str) -> int:
    """Which release's pixels a kept recipe means; 1 where it does not say."""
    try:
        flat = dict(_flat(tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return PIXELS  # that it is damaged is said where it is read
    found = [pixels for place, pixels in flat.items() if re.fullmatch(r"(stages\[\d+\]\.recipe\.)?pixels", place)]
    return int(max(found, default=1))


def _flat(data: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _flat(value, f"{place}.{name}" if place else name)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _flat(value, f"{place}[{number}]")
    else:
        yield place, data


def _short(place: str, then: dict[str, Any]) -> str:
    """Without the stage, where there is only one."""
    return place if any(name.startswith("stages[1]") for name in then) else place.removeprefix("stages[0].recipe.")


def _value(values: dict[str, Any], place: str) -> str:
    return repr(values[place]) if place in values else "left out"
