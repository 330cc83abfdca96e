"""Pictures of a recipe for the live page: twelve draws at once, with the numbers of their plans."""

import base64
import contextlib
import io
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import simplejpeg
from PIL import Image
from pydantic import Field

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.gpu_ops.random.philox import MAX_SEED, MAX_WORD
from augpipe.ops.groups import Group
from augpipe.planning.fields import not_followed
from augpipe.planning.look_up import looked_at
from augpipe.planning.plan import Plan
from augpipe.preview.contents import Cell, over_epochs
from augpipe.preview.draw_targets import colour_of, tinted
from augpipe.preview.shown_targets import ShownTargets
from augpipe.recipes.parts import only_ops, without_normalize
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Pixels, Source
from augpipe.sources.targets import LabelMap, has_targets
from augpipe.validation.models import Checked
from augpipe.validation.plural import count

NUM_PICTURES = 12
"""Pictures that are drawn at once: of one photograph, or shared out among several."""
MOST_VIEWS = 64
MOST_PX = 48_000_000
"""Pixels of all pictures together, so that a few numbers of a recipe cannot fill the memory: fewer are drawn of large
ones."""
SHOWN_PX = 512
"""The longer side of a picture on the page at most."""
LOSSLESS_PX = 96**2
"""Pictures of so many pixels are sent as PNG; larger ones as JPEG of quality 95, in a tenth of the time."""


HELD_BYTES = 2**28
"""What decoded images may take; the last one is kept however large it is."""


class PicturesAsked(Checked):
    """Which pictures the page asks for."""

    recipe: dict[str, Any] | None = None
    """A recipe as the page's controls have it, or None for `toml`."""
    toml: str = ""
    """A recipe as it was typed."""
    samples: Annotated[list[int], Field(min_length=1, max_length=NUM_PICTURES)]
    """Ids of the photographs."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    epoch: Annotated[int, Field(ge=0, le=MAX_WORD - NUM_PICTURES)] = 0
    """The epoch of the first draw; those after it follow."""
    targets: bool = False
    """Whether boxes, outlines, key points and label maps are drawn over the pictures."""
    before: bool = False
    """Whether each picture comes with what its crop alone shows."""


class Held:
    """A source whose files that are not JPEGs are decoded once, and not for each of twelve draws."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._decoded: dict[int, Pixels] = {}

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    @property
    def _num_bytes(self) -> int:
        return sum(pixels.nbytes for pixels in self._decoded.values())

    def read(self, sample_id: int) -> bytes | Pixels:
        """The pixels, or the file where it is a JPEG or damaged."""
        with self._lock:
            if sample_id in self._decoded:
                return self._decoded[sample_id]
            content = self._source.read(sample_id)
            if isinstance(content, bytes) and not content.startswith(b"\xff\xd8"):
                with contextlib.suppress(ValueError):
                    content = decode(content, probe(content, max_pixels=MAX_PIXELS))
                    while self._decoded and content.nbytes + self._num_bytes > HELD_BYTES:
                        self._decoded.pop(next(iter(self._decoded)))
                    self._decoded[sample_id] = content
            return content


def pictures_of(source: Source, recipe: Recipe, asked: PicturesAsked) -> dict[str, Any]:
    """The pictures as plain data, sample by sample and draw by draw, and how many draws of each sample they are.

    Raises:
        ValueError: a sample id is out of range, or the pictures are too large for the page.
        SampleError: a photograph cannot be used.
    """
    check_ids(source, asked.samples)
    draws = _num_draws(source, recipe, asked.samples)
    shown = _cells(source, recipe, asked, draws)
    before = _cells(source, _crops_of(recipe), asked, draws) if asked.before else {}
    made = []
    for sample_id, cells in shown.items():
        others = before.get(sample_id, ())
        for number, cell in enumerate(cells):
            # of a crop that draws nothing there is one epoch only
            other = others[number % len(others)] if others else None
            made.append(
                {
                    "sample": sample_id,
                    "name": file_name(source, sample_id),
                    "epoch": asked.epoch + number // len(recipe.all_views),
                    "view": cell.view,
                    "after": _layer(cell, asked.targets),
                    "before": None if other is None else _layer(other, asked.targets),
                    "captions": cell.captions,
                    "numbers": [] if cell.plan is None else list(_numbers(cell.plan, cell.view)),
                }
            )
    has_maps = has_targets(source) and source.has_label_maps
    not_shown = not_followed(recipe, has_label_maps=has_maps) if asked.targets else ()
    return {"pictures": made, "draws": draws, "targets_do_not_follow": list(not_shown)}


def check_ids(source: Source, sample_ids: Sequence[int]) -> None:
    """Raise ValueError where a sample id is not one of the source's."""
    for sample_id in sample_ids:
        if not 0 <= sample_id < len(source):
            raise ValueError(
                f"sample {sample_id} is out of range: the source holds {count(len(source), 'photograph')}, with the "
                f"ids 0..{len(source) - 1}."
            )


def file_name(source: Source, sample_id: int) -> str:
    """The last part of a sample's name."""
    return source.name(sample_id).replace("\\", "/").rsplit("/", 1)[-1]


def _cells(source: Source, recipe: Recipe, asked: PicturesAsked, draws: int) -> dict[int, tuple[Cell, ...]]:
    """Sample id -> its pictures, those of all views of a draw next to each other."""
    contents = over_epochs(
        source,
        recipe,
        samples=asked.samples,
        cols=draws * len(recipe.all_views),
        seed=asked.seed,
        epoch=asked.epoch,
        originals=False,
    )
    return {row.sample_id: row.cells for row in contents.rows}


def _num_draws(source: Source, recipe: Recipe, samples: Sequence[int]) -> int:
    """How many draws of each photograph are shown: fewer of large pictures.

    Raises:
        ValueError: one of each is too much.
    """
    num_views = len(recipe.all_views)
    if num_views > MOST_VIEWS:
        raise ValueError(f"the recipe has {num_views} views, and this page shows {MOST_VIEWS} at most. Lower count.")
    total_px = 0
    for sample_id in samples:
        whole = _size(source, sample_id)
        for view in recipe.all_views:
            height, width = whole
            for op in view.crops:
                height, width = (int(side) for side in op.sides(height, width))
            total_px += height * width
    if total_px > MOST_PX:
        raise ValueError(
            f"one draw has {total_px:,} pixels, and this page draws {MOST_PX:,} at most. Lower the size, or choose "
            "fewer photographs."
        )
    wanted = NUM_PICTURES // (len(samples) * num_views)
    return max(1, min(wanted, MOST_PX // total_px))


def _size(source: Source, sample_id: int) -> tuple[int, int]:
    """Height and width; of a file that is damaged any, as drawing it says what is wrong."""
    content = source.read(sample_id)
    if not isinstance(content, bytes):
        return content.shape[0], content.shape[1]
    try:
        header = probe(content, max_pixels=MAX_PIXELS)
    except ValueError:
        return 1, 1
    return header.height, header.width


def _crops_of(recipe: Recipe) -> Recipe:
    """The recipe's crops alone, drawn as in the whole: what pictures show before anything else is done to them."""
    made = without_normalize(recipe)
    for view in range(len(made.views)):
        made = only_ops(made, view, ())
    return made


def _numbers(plan: Plan, view: int) -> Iterator[tuple[str, str]]:
    """What the plan says of a picture: where it is cut from, and each op's draws in words and in numbers."""
    row, described = plan.views[view][0], plan.recipe.all_views[view]
    yield "photograph", f"{row['width']}x{row['height']} px"
    left, top, right, bottom = (f"{edge:.4g}" for edge in looked_at(plan.views[view][:1])[0].tolist())
    yield "looks at", f"x {left} to {right}, y {top} to {bottom}"
    yield "becomes", f"{row['out_width']}x{row['out_height']} px"
    captions = dict(plan.captions(0, view))
    for key, op in described.keyed_ops:
        if not op.record.names:
            continue
        said, drawn = captions.pop(key, "unchanged"), row["drawn"][key]
        if isinstance(op, Group):  # its record holds those of all its ops, drawn or not
            yield key, said
        else:
            yield key, f"{said} ({', '.join(f'{name} = {_number(drawn[name])}' for name in op.record.names)})"
    yield from captions.items()


def _number(value: Any) -> str:
    if value.dtype.names:
        return f"({', '.join(f'{name} = {_number(value[name])}' for name in value.dtype.names)})"
    listed = value.tolist()
    if isinstance(listed, list):
        return f"[{', '.join(f'{one:.4g}' for one in value.reshape(-1).tolist())}]"
    return str(listed).lower() if isinstance(listed, bool) else f"{listed:.4g}"


def _layer(cell: Cell, shows_targets: bool) -> dict[str, Any]:
    """A picture as an address that holds it, and its objects, which the page draws over it."""
    height, width = cell.image.shape[:2]
    targets = cell.targets if shows_targets else None
    label_map = None if targets is None else targets.label_map
    objects = [] if targets is None else list(_objects(targets))
    return {"image": _encoded(cell.image, label_map), "width": width, "height": height, "objects": objects}


def _encoded(pixels: Pixels, label_map: LabelMap | None) -> str:
    if label_map is not None or max(pixels.shape) > SHOWN_PX:
        image = Image.fromarray(pixels)
        image.thumbnail((SHOWN_PX, SHOWN_PX), Image.Resampling.LANCZOS, reducing_gap=3.0)
        pixels = np.asarray(image if label_map is None else tinted(image, label_map))
    if pixels.shape[0] * pixels.shape[1] > LOSSLESS_PX:
        shown = np.ascontiguousarray(pixels)
        kind, content = "jpeg", simplejpeg.encode_jpeg(shown, quality=95, colorspace="RGB", colorsubsampling="444")
    else:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        kind, content = "png", file.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _objects(targets: ShownTargets) -> Iterator[dict[str, Any]]:
    """Each object: name, colour, box, whether its ring is drawn instead, rings and visible key points, in pixels of the
    picture."""
    for number, kind in enumerate(targets.classes):
        points = [] if targets.keypoints is None else _rounded(targets.keypoints[number])
        yield {
            "name": targets.names[number],
            "colour": "#{:02x}{:02x}{:02x}".format(*colour_of(max(kind, 0))),
            "box": None if targets.boxes is None else _rounded(targets.boxes[number]),
            "is_rotated": targets.are_rotated,
            "rings": [_rounded(ring) for ring in targets.polygons[number]],
            "points": [point for point in points if point[2] > 0],
        }


def _rounded(numbers: Any) -> Any:
    return np.round(np.asarray(numbers, np.float64), 1).tolist()
