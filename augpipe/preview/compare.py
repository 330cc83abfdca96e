"""A sheet of what another library makes of an image, next to what its imported recipe makes of it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.augment import Augment
from augpipe.ops import Normalize
from augpipe.preview.contents import Cell, Contents, Row
from augpipe.recipes.importers.theirs import Transform, seed_all
from augpipe.recipes.parts import without_normalize
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Pixels

NUM_SHOWN, NUM_DRAWS = 5, 64
"""Draws that are shown, and those that means are of."""
GAIN = 4.0
"""By what a difference of means is multiplied to be seen."""

Levels = npt.NDArray[np.float32]


def compared(theirs: Transform, recipe: Recipe, image: Pixels, name: str) -> Contents:
    """Some draws of both, and, where all have one size, their means and how far those are apart.

    Compare the means, not single images: each side draws its own numbers. A second mean of as many other draws of
    theirs shows how far apart means are by chance.

    Args:
        theirs: the library's transform.
        recipe: what it was imported as.
        image: (H, W, 3) uint8.
        name: of the sheet.
    """
    seed_all(0)
    normalize = next((op for op in recipe.ops if isinstance(op, Normalize)), None)
    by_them = [_levels(theirs(image), normalize) for _ in range(2 * NUM_DRAWS)]
    augment = Augment(without_normalize(recipe), dtype="uint8", layout="NHWC", framework="numpy")
    by_us = [_levels(augment(image), None) for _ in range(NUM_DRAWS)]
    rows = [_row("theirs", by_them[:NUM_SHOWN]), _row("ours, of other draws", by_us[:NUM_SHOWN])]
    note = f"{NUM_SHOWN} of {NUM_DRAWS} draws each; the draws are not the same ones"
    if len({one.shape for one in (*by_them, *by_us)}) == 1:
        rows.append(_means(np.stack(by_them), np.stack(by_us)))
        note += ": compare the means"
    else:
        sizes = " and ".join(sorted({f"{one.shape[1]}x{one.shape[0]}" for one in (*by_them, *by_us)})[:4])
        note += f"; sizes differ ({sizes}), so that there are no means"
    return Contents(title=name, note=note, rows=tuple(rows), skipped={})


def _levels(made: npt.NDArray[np.generic], normalize: Normalize | None) -> Levels:
    """(H, W, 3) levels of what is normalised or not."""
    levels = np.asarray(made, np.float32)
    if normalize is not None:
        std, mean = (np.asarray(of, np.float32) for of in (normalize.std, normalize.mean))
        levels = levels * std + np.float32(255.0) * mean
    return np.broadcast_to(levels, (*levels.shape[:2], 3)) if levels.shape[-1] == 1 else levels


def _means(theirs: Levels, ours: Levels) -> Row:
    """The row of means, of how they differ, and of how those of theirs differ by chance."""
    num = len(ours)
    first, second, mine = theirs[:num].mean(0), theirs[num:].mean(0), ours.mean(0)
    images, texts = [first, mine], [f"mean of {num} of theirs", f"mean of {num} of ours"]
    for name, other in (("theirs less ours", mine), (f"theirs less another {num} of theirs", second)):
        images.append(127.5 + GAIN * (first - other))
        texts.append(f"{name}: {np.abs(first - other).mean():.2f} of 255 levels; shown {GAIN:g} times, about gray")
    return _cells(images, texts)


def _row(name: str, images: Sequence[Levels]) -> Row:
    return _cells(images, [f"{name}, {number + 1}" for number in range(len(images))])


def _cells(images: Sequence[Levels], texts: Sequence[str]) -> Row:
    cells = tuple(
        Cell(image=np.clip(np.rint(image), 0.0, 255.0).astype(np.uint8), captions=(text,))
        for image, text in zip(images, texts, strict=True)
    )
    return Row(sample_id=-1, original=None, name="", class_name="", crop=None, headings=(), cells=cells)
