"""Where everything on a sheet stands, in pixels; nothing here draws."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from augpipe.preview import text
from augpipe.preview.contents import Contents, Row

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""

MAX_WIDTH_PX = 2000
MIN_CELL_PX, MAX_CELL_PX = 112, 256
MARGIN_PX = 36
GAP_PX = 14
ROW_GAP_PX = 24
TITLE_PX, NOTE_PX, HEADING_PX, NAME_PX, CAPTION_PX = 30, 16, 15, 15, 13


@dataclass(frozen=True, kw_only=True)
class SheetImage:
    """One image of the sheet with the text under it."""

    box: Box
    name: str
    """A line in dark; empty for none."""
    caption: tuple[str, ...]
    """Lines in grey."""
    caption_y: int
    """Top of the first line of text."""
    row: int
    cell: int | None
    """Which cell of the row; None for the original."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What stands over a column."""

    x: int
    y: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A whole sheet."""

    width: int
    height: int
    cell_px: int
    headings: tuple[Heading, ...]
    pictures: tuple[SheetImage, ...]


def arrange(contents: Contents) -> Layout:
    """Place the images of a sheet in rows, each with its original first, where it is shown.

    Cells are as wide as the recipe's images where `MAX_WIDTH_PX` allows it, so that they are shown pixel by pixel.
    """
    num_columns = max(len(row.cells) + (row.original is not None) for row in contents.rows)
    widest = max(max(cell.image.shape[:2]) for row in contents.rows for cell in row.cells)
    room = (MAX_WIDTH_PX - 2 * MARGIN_PX - (num_columns - 1) * GAP_PX) // num_columns
    cell_px = max(MIN_CELL_PX, min(room, max(widest, 160), MAX_CELL_PX))
    columns = [MARGIN_PX + i * (cell_px + GAP_PX) for i in range(num_columns)]
    y = MARGIN_PX + text.line_height_px(TITLE_PX) + text.line_height_px(NOTE_PX) + 20
    headings: list[Heading] = []
    images: list[SheetImage] = []
    previous: tuple[str, ...] | None = None
    for number, row in enumerate(contents.rows):
        if row.headings and row.headings != previous:
            shown = [text.shorten(heading, HEADING_PX, cell_px) for heading in row.headings]
            headings += [Heading(x=x, y=y, text=word) for x, word in zip(columns, shown, strict=False)]
            y += text.line_height_px(HEADING_PX) + 6
            previous = row.headings
        y = _arrange_row(row, number, columns, cell_px, y, images) + ROW_GAP_PX
    height = y - ROW_GAP_PX + MARGIN_PX
    width = max(2 * MARGIN_PX + num_columns * (cell_px + GAP_PX) - GAP_PX, 2 * MARGIN_PX + _least_width(contents))
    return Layout(width=width, height=height, cell_px=cell_px, headings=tuple(headings), pictures=tuple(images))


def fit(height: int, width: int, limit_px: int) -> tuple[int, int]:
    """(width, height) of an image scaled so that its longer side is `limit_px`, at least a pixel each."""
    scale = limit_px / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _arrange_row(
    row: Row, number: int, columns: Sequence[int], cell_px: int, y: int, pictures: list[SheetImage]
) -> int:
    """Place one row at `y`; returns where it ends."""
    bottom = y
    originals = [] if row.original is None else [(None, row.original)]
    shown = [*originals, *((cell, each.image) for cell, each in enumerate(row.cells))]
    for x, (cell, image) in zip(columns, shown, strict=False):
        width, height = fit(image.shape[0], image.shape[1], cell_px)
        left = x if cell is None else x + (cell_px - width) // 2
        box = (left, y, left + width, y + height)
        name, lines = _original_text(row, cell_px) if cell is None else ("", _cell_text(row, cell, cell_px))
        caption_y = box[3] + 7
        pictures.append(
            SheetImage(box=box, name=name, caption=tuple(lines), caption_y=caption_y, row=number, cell=cell)
        )
        end = caption_y + len(lines) * text.line_height_px(CAPTION_PX)
        bottom = max(bottom, end + (text.line_height_px(NAME_PX) if name else 0))
    return bottom


def _original_text(row: Row, cell_px: int) -> tuple[str, list[str]]:
    file_name = text.legible(row.name.replace("\\", "/").rsplit("/", 1)[-1])
    assert row.original is not None
    height, width = row.original.shape[:2]
    name = text.shorten(text.legible(row.class_name) or file_name, NAME_PX, cell_px)
    lines = [text.shorten(file_name, CAPTION_PX, cell_px)] if row.class_name else []
    lines += text.wrap([f"{width}x{height} px", f"sample {row.sample_id}"], CAPTION_PX, cell_px)
    return name, lines


def _cell_text(row: Row, cell: int, cell_px: int) -> list[str]:
    # the font's spaces are narrow, and "0 -4" would read as "0-4"
    captions = [re.sub(r"(?<=\d) (?=[+-]\d)", "  ", text.legible(caption)) for caption in row.cells[cell].captions]
    return text.wrap(captions, CAPTION_PX, cell_px)


def _least_width(contents: Contents) -> int:
    """What the header needs."""
    title, note = text.legible(contents.title), text.legible(contents.note)
    needed = max(text.width_px(title, TITLE_PX), text.width_px(note, NOTE_PX))
    return min(int(needed) + 1, MAX_WIDTH_PX - 2 * MARGIN_PX)
