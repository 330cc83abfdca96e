"""The gallery: a page for each family of ops, made from the ops themselves."""

import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe import Recipe, ops
from augpipe.datasets.annotations.run_lengths import read_counts
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.synthetic.scene import draw_scene, draw_scene_with_objects
from augpipe.datasets.synthetic.shapes import KINDS as SHAPES
from augpipe.datasets.synthetic.targets import describe
from augpipe.ops.mixing import Mix
from augpipe.ops.strength import at_strength, has_strength
from augpipe.planning.targets.mask_rings import rings_of
from augpipe.preview import over_epochs
from augpipe.preview.contents import Cell
from augpipe.sources.targets import Targets
from augpipe.validation.documented import summary
from docs.site.tables import fields_table, prose


def negative_left(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A function such as a user may have."""
    half = image.shape[1] // 2
    image[:, :half] = 255 - image[:, :half]
    return image


HELD = (ops.Flip(), ops.Rotate())
EXAMPLES: dict[type, Any] = {
    ops.AllOf: ops.AllOf(ops=HELD),
    ops.Custom: ops.Custom(negative_left),
    ops.CopyPaste: ops.CopyPaste(object_p=1.0),
    ops.ColorJitter: ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    ops.Mosaic: ops.Mosaic(size=(271, 400)),
    ops.OneOf: ops.OneOf(ops=HELD),
    ops.Pad: ops.Pad(px=20),
    ops.SomeOf: ops.SomeOf(ops=HELD),
}
"""Ops that change nothing, or are none, by default."""
KINDS: tuple[Any, ...] = tuple(getattr(ops, name) for name in ops.__all__ if name not in ("Op", "KeepObjects"))
SIZE_PX = (400, 271)
SCENES = (3, 2)
"""The numbers of the photographs: that which is shown, and that which it is mixed with."""
NUM_EPOCHS = 8
"""Draws among which the pictures are chosen."""
QUALITY = 80

Pixels = npt.NDArray[np.uint8]


class Outlined(ArraySource):
    """The photographs with the outlines of their objects."""

    has_targets, has_label_maps, object_classes, keypoint_swaps = True, False, (), ()

    def targets_of(self, sample_ids: npt.NDArray[np.int64]) -> Targets:
        found: list[list[npt.NDArray[np.float64]]] = []
        counts = []
        for number in (SCENES[sample_id] for sample_id in sample_ids.tolist()):
            image, placed = draw_scene_with_objects(0, number, list(SHAPES)[number])
            masks = [one["segmentation"] for one in describe(image, placed)["objects"]]
            scale = np.divide(SIZE_PX, image.size)
            found += [[ring * scale for ring in rings_of(*read_counts(mask, None))] for mask in masks]
            counts.append(len(masks))
        return Targets(counts=np.array(counts, np.int64), polygons=found)


def pages() -> dict[str, str | bytes]:
    """Path in the site -> a page, or a picture of one."""
    images = [np.asarray(draw_scene(0, number, list(SHAPES)[number]).resize(SIZE_PX)) for number in SCENES]
    made: dict[str, str | bytes] = {"gallery/index.md": "", "gallery/images/before.webp": webp(images[0])}
    index = ["# Gallery", "Every op, by itself, on the same photograph. Click on one for its fields."]
    for module, kinds in itertools.groupby(sorted(KINDS, key=place), key=lambda kind: kind.__module__):
        family = module.rpartition(".")[2]
        title = family.replace("_", " ").capitalize()
        sections, cards = [f"# {title}", str(sys.modules[module].__doc__)], []
        for kind in kinds:
            op, name, shown = EXAMPLES.get(kind) or kind(), kind.__name__, "before"
            figures = [figure(shown, "The photograph", shown)]
            for number, (caption, image) in enumerate(pictures(op, images), start=1):
                shown = f"{getattr(op, 'op', 'mosaic')}-{number}"
                made[f"gallery/images/{shown}.webp"] = webp(image)
                figures.append(figure(shown, f"The photograph under {name}, {caption}", caption))
            sections += section(op, figures)
            cards.append(f"[![](images/{shown}.webp){{ loading=lazy }} {name}]({family}.md#{name.lower()})")
        if any("keep_objects" in kind.model_fields for kind in kinds_of(module)):
            about = summary(ops.KeepObjects.__doc__ or "")
            sections += ["## KeepObjects", prose(about), fields_table(ops.KeepObjects)]
        made[f"gallery/{family}.md"] = "\n\n".join(sections) + "\n"
        index += [f"## {title}", "\n".join(['<div class="cards" markdown>', *cards, "</div>"])]
    return made | {"gallery/index.md": "\n\n".join(index) + "\n"}


def kinds_of(module: str) -> list[Any]:
    """The ops of a file."""
    return [kind for kind in KINDS if kind.__module__ == module]


def place(kind: Any) -> tuple[str, int]:
    """Ops come by file, and in the order in which they stand there."""
    return kind.__module__, inspect.getsourcelines(kind)[1]


def section(op: Any, figures: list[str]) -> Iterator[str]:
    """All that is said of an op."""
    yield f"## {type(op).__name__}"
    yield prose(summary(type(op).__doc__ or ""))
    if getattr(op, "formula", ""):
        yield f"Formula: {prose(op.formula)}. Draws: {prose(op.draws_text)}."
    if len(figures) > 1:
        yield "\n".join(['<div class="pictures" markdown>', *figures, "</div>"])
    yield fields_table(type(op))
    python = re.sub(r"\b(?=[A-Z]\w*\()", "ops.", repr(op))
    if isinstance(op, ops.Custom):
        yield f"```python\n{python}\n```\n\nA TOML file cannot hold it."
        return
    toml, kind = recipe_of(op).to_toml(), "mixing" if isinstance(op, Mix) else "ops"
    if isinstance(op, ops.Mosaic):
        lines = "".join(toml.partition("[mosaic]")[1:])
    elif f"[[{kind}]]" in toml:
        lines = "".join(toml.partition(f"[[{kind}]]")[1:])
    else:
        lines = f"{kind} = [{toml.partition(f'{kind} = [')[2].partition(']')[0]}]"
    for title, code in (("Python", python), ("TOML", lines.rstrip())):
        block = f"```{title.lower()}\n{code}\n```"
        yield f'=== "{title}"\n\n{textwrap.indent(block, "    ")}'


def pictures(op: Any, images: list[Pixels]) -> list[tuple[str, Pixels]]:
    """What was drawn -> the photograph under the op alone: at three strengths, or as drawn in three epochs."""
    if "p" in type(op).model_fields:
        op = op.model_copy(update={"p": 1.0})
    drawn = cells(op, images, 0, NUM_EPOCHS)
    if isinstance(op, ops.Op) and has_strength(op):
        epoch = max(range(NUM_EPOCHS), key=lambda e: np.abs(drawn[e].image.astype(int) - images[0]).mean())
        strengths = (0.5, 1.0, 2.0) if reaches(op, 2.0) else (0.25, 0.5, 1.0)
        found = [(strength, cells(at_strength(op, strength), images, epoch, 1)[0]) for strength in strengths]
        return [(f"strength {strength:g}: {', '.join(cell.captions)}", cell.image) for strength, cell in found]
    different = {images[0].tobytes(): drawn[0]} | {cell.image.tobytes(): cell for cell in drawn}
    found = [(", ".join(cell.captions), cell.image) for cell in list(different.values())[1:4]]
    if isinstance(op, ops.Mosaic) and op.num_images == 4:
        return [*found[:2], *pictures(op.model_copy(update={"num_images": 9}), images)[:1]]
    return found


def reaches(op: ops.Op, strength: float) -> bool:
    """Whether there is so much of an op."""
    try:
        at_strength(op, strength)
    except ValueError:
        return False
    return True


def cells(op: Any, images: list[Pixels], epoch: int, num: int) -> list[Cell]:
    """The first photograph under the op alone, an epoch each."""
    shown = images if isinstance(op, Mix | ops.Mosaic) else images[:1]
    source = Outlined(shown) if isinstance(op, ops.CopyPaste) else ArraySource(shown)
    contents = over_epochs(source, recipe_of(op), rows=len(source), cols=num, epoch=epoch)
    return list(next(row.cells for row in contents.rows if row.sample_id == 0))


def recipe_of(op: Any) -> Recipe:
    """The op alone, or with what shows its effect, or makes images of one size, behind it."""
    if isinstance(op, ops.Mosaic):
        return Recipe(mosaic=op, ops=[ops.Resize(size=op.size)])  # all of the canvas
    if isinstance(op, Mix):
        return Recipe(ops=[ops.Resize(size=SIZE_PX[::-1])], mixing=[op])
    fixed = [ops.Pad(size=SIZE_PX[::-1]), ops.CenterCrop(size=SIZE_PX[::-1])]
    return Recipe(ops=[op, *fixed] if op.draws_size else [op])


def figure(name: str, alt: str, caption: str) -> str:
    """A picture with a line below it."""
    picture = f"![{alt}](images/{name}.webp){{ loading=lazy }}"
    return f'<figure markdown="span">\n{picture}\n<figcaption>{caption}</figcaption>\n</figure>'


def webp(image: Pixels) -> bytes:
    """The image as the bytes of a small file."""
    with BytesIO() as file:
        Image.fromarray(image).save(file, "WEBP", quality=QUALITY)
        return file.getvalue()
