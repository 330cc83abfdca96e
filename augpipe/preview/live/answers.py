"""What the live page asks for, as plain data: photographs, pictures, recipes in texts, and a recipe's speed."""

import base64
import io
import itertools
import json
import re
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, cast

from augpipe import ops
from augpipe.bench import measure
from augpipe.gpu_ops.compiled import background
from augpipe.native.compile_ahead import start_compiling
from augpipe.ops.draws import Number
from augpipe.ops.op import KINDS, Op
from augpipe.planning.output_format import OutputFormat
from augpipe.preview.live.pictures import Held, PicturesAsked, check_ids, file_name, pictures_of
from augpipe.preview.whole_image import whole_image
from augpipe.recipes.imported import from_text
from augpipe.recipes.recipe import Recipe
from augpipe.reports.page import thumbnail
from augpipe.sources.protocol import Source
from augpipe.sources.targets import has_targets
from augpipe.validation.models import FieldError

THUMBNAIL_PX = (128, 96)
NUM_THUMBNAILS = 24
"""Photographs that are listed at once."""
SPEED_S = 2.0
"""How long a recipe's speed is measured."""
FORM = OutputFormat(dtype="uint8", layout="NHWC", framework="numpy")


class Answers:
    """Answers to the page's questions about one source; several threads may ask, and one at a time is drawn for.

    Args:
        source: the photographs.
        recipe: what the page begins with.
        title: the source's name on the page.
        samples: ids of the photographs that are shown first; none: the first one.
        seed: of the first pictures.
        epoch: of the first picture.

    Raises:
        ValueError: a number is out of range, or the source is empty.
    """

    def __init__(
        self, source: Source, recipe: Recipe, *, title: str, samples: Sequence[int] = (), seed: int = 0, epoch: int = 0
    ) -> None:
        ids = list(dict.fromkeys(samples)) or [0]
        check_ids(source, ids)
        self._first = PicturesAsked(samples=ids, seed=seed, epoch=epoch)
        self._source: Source = cast("Source", Held(source))
        self._recipe = recipe
        self._title = title
        self._tickets = itertools.count(1)
        self._newest = 0
        self._counting = threading.Lock()
        self._drawing = threading.Lock()
        self._decoding = threading.Semaphore(2)
        self._compiling = start_compiling(FORM, [recipe], decodes=True)

    def about(self) -> dict[str, Any]:
        """What the page begins with: the schema of recipes, the first recipe, and what there is to look at."""
        return {
            "title": self._title,
            "schema": Recipe.json_schema(),
            "steps": {kind: steps for kind, op in KINDS.items() if (steps := _steps_of(op))},
            "recipe": _plain(self._recipe),
            "num_photographs": len(self._source),
            "num_thumbnails": NUM_THUMBNAILS,
            "has_targets": has_targets(self._source),
            **self._first.model_dump(include={"samples", "seed", "epoch"}),
        }

    def photographs(self, first: int) -> list[dict[str, Any]]:
        """Ids and names of the photographs from `first` on, as many as the page lists at once."""
        ids = range(max(0, first), min(len(self._source), first + NUM_THUMBNAILS))
        return [{"id": sample_id, "name": file_name(self._source, sample_id)} for sample_id in ids]

    def thumbnail(self, sample_id: int) -> bytes:
        """A small JPEG of a photograph.

        Raises:
            ValueError: there is none of this id, or it cannot be decoded.
            OSError: it cannot be read.
        """
        check_ids(self._source, [sample_id])
        file = io.BytesIO()
        with self._decoding:
            thumbnail(whole_image(self._source, sample_id), THUMBNAIL_PX).save(file, "JPEG", quality=85)
        return file.getvalue()

    def pictures(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Pictures, as `PicturesAsked` says; `superseded` where a later question came while this one waited."""
        with self._counting:
            self._newest = ticket = next(self._tickets)
        with self._drawing:
            return {"superseded": True} if ticket != self._newest else _or_problems(lambda: self._pictures(asked))

    def open(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The recipe in a text: TOML, an address of the page, or calls of torchvision, albumentations, kornia or timm.

        Calls that have no counterpart are left out; `rows` say what became of each.
        """
        return _or_problems(lambda: _opened(str(asked.get("text", ""))))

    def speed(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Images a second of a loader with this recipe, on one thread and on all, and of decoding without it."""
        with self._drawing:
            return _or_problems(lambda: self._speed(_as_recipe(asked.get("recipe"))))

    def finish(self, timeout_s: float) -> None:
        """Wait for what is being drawn or measured, but no longer than this; nothing is drawn from then on."""
        self._drawing.acquire(timeout=timeout_s)

    def _pictures(self, asked: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        wanted = PicturesAsked.model_validate(asked)
        recipe = _of_toml(wanted.toml) if wanted.recipe is None else _as_recipe(wanted.recipe)
        background.wait(self._compiling)
        made = pictures_of(self._source, recipe, wanted)
        texts = {"toml": recipe.to_toml(), "python": _python_of(recipe)}
        return {**made, "recipe": _plain(recipe), **texts, "ms": round(1000.0 * (time.perf_counter() - began), 1)}

    def _speed(self, recipe: Recipe) -> dict[str, Any]:
        report = measure(self._source, recipe, seconds=SPEED_S, on_error="skip")
        most = report.threads[-1]
        return {
            "loader": report.rate("loader_disk", most),
            "one_thread": report.rate("loader_disk", 1),
            "decode": report.rate("decode", most),
            "threads": most,
            "cpu": report.machine["cpu"],
        }


def _steps_of(op: type[Op]) -> dict[str, str | float]:
    """Field -> the field that says in which steps its range is drawn from, or the step itself: so go its sliders."""
    found: dict[str, str | float] = {}
    for draw in op.draws:
        if isinstance(draw, Number) and draw.step is not None and not draw.log:
            found[draw.field] = draw.step
        elif draw.scaled and draw.scaled[-1] == "step":
            found |= dict.fromkeys(draw.scaled[:-1], "step")
    return found


def _or_problems(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns; else `problems`, each with its place in the recipe, its text there, and as a line."""
    try:
        return make()
    except FieldError as error:
        told = [(place, _at_its_field(place, text)) for place, text in error.problems]
        lines = zip(told, error.lines, strict=True)
        return {"problems": [{"place": place, "text": text, "line": line} for (place, text), line in lines]}
    except (ValueError, OSError, RecursionError) as error:
        text = "the recipe is nested too deeply." if isinstance(error, RecursionError) else str(error)
        return {"problems": [{"place": "", "text": text, "line": text}]}


def _at_its_field(place: str, text: str) -> str:
    return text.lstrip(": ") if text.startswith(":") else place.rpartition(".")[2] + text


def _plain(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json")


def _as_recipe(given: Any) -> Recipe:
    if not isinstance(given, dict):
        raise ValueError("a recipe is a table of fields, and there is none. Load the page again.")
    return Recipe.model_validate(given)


def _of_toml(text: str) -> Recipe:
    try:
        return Recipe.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}.") from error


def _of_address(code: str) -> Recipe:
    try:
        data = json.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
    except (ValueError, RecursionError) as error:
        raise ValueError("the recipe in the address is damaged: a part may be missing. Copy it again.") from error
    return _as_recipe(data)


def _opened(text: str) -> dict[str, Any]:
    """The recipe in a text, and what became of each call of another library."""
    rows: list[list[str]] = []
    if not text.strip():
        raise ValueError("the text is empty. Paste calls as A.Compose([...]), a recipe's TOML, or this page's address.")
    if found := re.search(r"#recipe=([\w-]+)", text):
        recipe = _of_address(found[1])
    elif re.search(r"^\s*\[\[(ops|views|mixing)", text, re.MULTILINE):
        recipe = _of_toml(text)
    else:
        imported = from_text(text, strict=False)
        recipe = imported.recipe
        rows = [[row.name, row.became or "-", row.verdict, row.note] for row in imported.rows]
    return {"recipe": _plain(recipe), "rows": rows}


def _python_of(recipe: Recipe) -> str:
    """A script that makes the recipe."""
    text = repr(recipe)
    called = set(re.findall(r"\b([A-Z]\w*)\(", text))
    imports = [f"from augpipe import {', '.join(sorted(called & {'Recipe', 'View'}))}"]
    if used := sorted(called & set(dir(ops))):
        imports.append(f"from augpipe.ops import {', '.join(used)}")
    return "\n".join([*imports, "", f"recipe = {text}", ""])
