"""The gallery: a page for each family of ops, made from the ops themselves."""

import inspect
import re
import sys
import textwrap
from collections import defaultdict
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe import Recipe, ops
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.synthetic.scene import draw_scene
from augpipe.datasets.synthetic.shapes import KINDS as SHAPES
from augpipe.ops.mixing import Mix
from augpipe.ops.strength import at_strength, has_strength
from augpipe.preview import over_epochs
from augpipe.preview.contents import Cell
from augpipe.validation.documented import summary
from docs.site.tables import fields_table, prose

HELD = (ops.Flip(), ops.Rotate())
EXAMPLES: dict[type, Any] = {
    ops.AllOf: ops.AllOf(ops=HELD),
    ops.ColorJitter: ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    ops.OneOf: ops.OneOf(ops=HELD),
    ops.SomeOf: ops.SomeOf(ops=HELD),
}
"""Ops that draw nothing, or are none, by default."""
KINDS: tuple[Any, ...] = tuple(getattr(ops, name) for name in ops.__all__ if name != "Op")
SIZE_PX = (400, 271)
STRENGTHS = ((0.5, "half"), (1.0, "default"), (2.0, "double"))
WEAKER = ((0.25, "a quarter"), (0.5, "half"), (1.0, "default"))
"""Of ops whose default is more than half of their limit."""
NUM_EPOCHS = 8
"""Draws among which the pictures are chosen."""
QUALITY = 80

Pixels = npt.NDArray[np.uint8]


def pages() -> dict[str, str | bytes]:
    """Path in the site -> a page, or a picture of one."""
    scenes = [draw_scene(0, number, list(SHAPES)[number]) for number in (3, 2)]
    images = [np.asarray(scene.resize(SIZE_PX)) for scene in scenes]
    made: dict[str, str | bytes] = {"gallery/images/before.webp": webp(images[0])}
    families = defaultdict(list)
    for kind in KINDS:
        families[kind.__module__].append(kind)
    index = ["# Gallery\n\nEvery op, by itself, on the same photograph. Click on one for its fields.\n"]
    for module in sorted(families):
        family = module.rpartition(".")[2]
        title, text = family.replace("_", " ").capitalize(), inspect.getdoc(sys.modules[module])
        sections, cards = [f"# {title}\n\n{text}\n"], []
        for kind in sorted(families[module], key=lambda kind: inspect.getsourcelines(kind)[1]):
            op = EXAMPLES.get(kind) or kind()
            figures = [figure("before", "before", op)]
            for number, (label, image) in enumerate(pictures(op, images)):
                name = f"{op.op}-{number + 1}"
                made[f"gallery/images/{name}.webp"] = webp(image)
                figures.append(figure(name, label, op))
            sections.append(section(op, figures))
            shown = f"{op.op}-{len(figures) - 1}" if len(figures) > 1 else "before"
            name = type(op).__name__
            cards.append(f"[![](images/{shown}.webp){{ loading=lazy }} {name}]({family}.md#{name.lower()})")
        made[f"gallery/{family}.md"] = "\n".join(sections)
        index.append("\n".join([f"## {title}\n", '<div class="cards" markdown>', *cards, "</div>\n"]))
    return {"gallery/index.md": "\n".join(index)} | made


def section(op: Any, figures: list[str]) -> str:
    """All that is said of an op."""
    name = type(op).__name__
    parts = [f"## {name}", prose(summary(type(op).__doc__ or ""))]
    if getattr(op, "formula", ""):
        parts.append(f"Formula: {prose(op.formula)}. By default it draws: {prose(op.draws_text)}.")
    if len(figures) > 1:
        parts.append("\n".join(['<div class="pictures" markdown>', *figures, "</div>"]))
    parts.append(fields_table(type(op)))
    is_mix = isinstance(op, Mix)
    recipe = Recipe(ops=[ops.CenterCrop(size=224)], mixing=[op]) if is_mix else Recipe(ops=[op])
    toml = "".join(recipe.to_toml().partition("[[mixing]]" if is_mix else "[[ops]]")[1:])
    for title, code in (("Python", re.sub(r"\b(?=[A-Z]\w*\()", "ops.", repr(op))), ("TOML", toml)):
        block = f"```{title.lower()}\n{code.rstrip()}\n```"
        parts.append(f'=== "{title}"\n\n{textwrap.indent(block, "    ")}')
    return "\n\n".join(filter(None, parts)) + "\n"


def pictures(op: Any, images: list[Pixels]) -> list[tuple[str, Pixels]]:
    """What it is called -> the photograph under the op alone: at three strengths, or as drawn in three epochs."""
    if "p" in type(op).model_fields:
        op = op.model_copy(update={"p": 1.0})
    if isinstance(op, ops.Op) and has_strength(op):
        drawn = [cell.image for cell in cells(op, images, range(NUM_EPOCHS))]
        epoch = max(range(NUM_EPOCHS), key=lambda e: np.abs(drawn[e].astype(int) - images[0]).mean())
        try:
            levels = [(label, at_strength(op, strength)) for strength, label in STRENGTHS]
        except ValueError:
            levels = [(label, at_strength(op, strength)) for strength, label in WEAKER]
        shown = [(label, cells(level, images, range(epoch, epoch + 1))[0]) for label, level in levels]
        return [(f"{label}: {', '.join(cell.captions)}", cell.image) for label, cell in shown]
    different: list[Cell] = []
    for cell in cells(op, images, range(NUM_EPOCHS)):
        if not any(np.array_equal(cell.image, other) for other in (images[0], *(seen.image for seen in different))):
            different.append(cell)
    return [(", ".join(cell.captions), cell.image) for cell in different[:3]]


def cells(op: Any, images: list[Pixels], epochs: range) -> list[Cell]:
    """The first photograph under the op alone, an epoch each."""
    if isinstance(op, Mix):
        recipe = Recipe(ops=[ops.Resize(size=SIZE_PX[::-1])], mixing=[op])
        return [
            next(row.cells[0] for row in contents.rows if row.sample_id == 0)
            for contents in (over_epochs(ArraySource(images), recipe, rows=2, cols=1, epoch=epoch) for epoch in epochs)
        ]
    contents = over_epochs(ArraySource(images[:1]), Recipe(ops=[op]), rows=1, cols=len(epochs), epoch=epochs[0])
    return list(contents.rows[0].cells)


def figure(name: str, caption: str, op: Any) -> str:
    """A picture with a line below it."""
    alt = "The photograph" if name == "before" else f"The photograph under {type(op).__name__}, {caption}"
    return (
        f'<figure markdown="span">\n![{alt}](images/{name}.webp){{ loading=lazy }}\n'
        f"<figcaption>{caption}</figcaption>\n</figure>"
    )


def webp(image: Pixels) -> bytes:
    """The image as the bytes of a small file."""
    with BytesIO() as file:
        Image.fromarray(image).save(file, "WEBP", quality=QUALITY)
        return file.getvalue()
