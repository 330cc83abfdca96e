"""A contact sheet as an image, drawn with Pillow."""

from PIL import Image, ImageDraw

from augpipe.preview import text
from augpipe.preview.contents import Cell, Contents, Progress, Row
from augpipe.preview.draw_targets import with_targets
from augpipe.preview.layout import (
    CAPTION_PX,
    HEADING_PX,
    MARGIN_PX,
    NAME_PX,
    NOTE_PX,
    TITLE_PX,
    Layout,
    SheetImage,
    arrange,
)
from augpipe.sources.protocol import Pixels

Colour = tuple[int, int, int]

BACKGROUND: Colour = (250, 250, 248)
INK: Colour = (32, 34, 38)
GREY: Colour = (104, 108, 114)
BORDER: Colour = (214, 214, 210)
ACCENT: Colour = (240, 110, 20)
"""The crop's outline: seen on light and on dark images alike."""
RADIUS_PX = 7
SMOOTH = 4
"""Masks are drawn this much larger and scaled down: Pillow's own shapes have jagged edges."""


def draw_sheet(contents: Contents, progress: Progress | None = None) -> Image.Image:
    """The sheet as an RGB image, about 2,000 pixels wide at most; `progress` is called before each image on it."""
    layout = arrange(contents)
    sheet = Image.new("RGB", (layout.width, layout.height), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    _header(pen, contents, layout)
    for heading in layout.headings:
        text.draw(pen, (heading.x, heading.y), heading.text, INK, HEADING_PX)
    for number, image in enumerate(layout.pictures):
        if progress is not None:
            progress(number, len(layout.pictures))
        row = contents.rows[image.row]
        _paste(sheet, image, _image(row, image))
        _caption(pen, image)
    return sheet


def _header(pen: ImageDraw.ImageDraw, contents: Contents, layout: Layout) -> None:
    room = layout.width - 2 * MARGIN_PX
    y = MARGIN_PX - 6
    text.draw(pen, (MARGIN_PX - 1, y), text.shorten(text.legible(contents.title), TITLE_PX, room), INK, TITLE_PX)
    y += text.line_height_px(TITLE_PX)
    text.draw(pen, (MARGIN_PX, y), text.shorten(text.legible(contents.note), NOTE_PX, room), GREY, NOTE_PX)


def _image(row: Row, picture: SheetImage) -> Image.Image:
    shown: Row | Cell = row if picture.cell is None else row.cells[picture.cell]
    pixels: Pixels | None = row.original if picture.cell is None else row.cells[picture.cell].image
    assert pixels is not None
    image = Image.fromarray(pixels)
    size = (picture.box[2] - picture.box[0], picture.box[3] - picture.box[1])
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    if shown.targets is not None:
        image = with_targets(image, shown.targets, pixels.shape[:2])
    if picture.cell is None and row.crop is not None:
        image = _outline(image, row)
    return image


def _outline(image: Image.Image, row: Row) -> Image.Image:
    """The original with its crop outlined and all else faded."""
    assert row.crop is not None and row.original is not None
    height, width = row.original.shape[:2]
    scale_x, scale_y = SMOOTH * image.width / width, SMOOTH * image.height / height
    left, top, right, bottom = row.crop
    left, top = left * scale_x, top * scale_y
    box = (left, top, max(left, right * scale_x - 1), max(top, bottom * scale_y - 1))
    inside = Image.new("L", (image.width * SMOOTH, image.height * SMOOTH), 0)
    ImageDraw.Draw(inside).rectangle(box, fill=255)
    inside = inside.resize(image.size, Image.Resampling.BOX)
    faded = Image.blend(image, Image.new("RGB", image.size, BACKGROUND), 0.45)
    faded.paste(image, (0, 0), inside)
    line = Image.new("L", (image.width * SMOOTH, image.height * SMOOTH), 0)
    ImageDraw.Draw(line).rectangle(box, outline=255, width=2 * SMOOTH)
    faded.paste(ACCENT, (0, 0), line.resize(image.size, Image.Resampling.BOX))
    return faded


def _paste(sheet: Image.Image, picture: SheetImage, image: Image.Image) -> None:
    """Put an image on the sheet with rounded corners and a thin border."""
    width, height = image.size
    large = (width * SMOOTH, height * SMOOTH)
    radius = min(RADIUS_PX, width // 2, height // 2) * SMOOTH
    mask = Image.new("L", large, 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, large[0] - 1, large[1] - 1), radius, fill=255)
    sheet.paste(image, picture.box[:2], mask.resize(image.size, Image.Resampling.BOX))
    rim = Image.new("L", large, 0)
    ImageDraw.Draw(rim).rounded_rectangle((0, 0, large[0] - 1, large[1] - 1), radius, outline=110, width=SMOOTH)
    sheet.paste(BORDER, picture.box[:2], rim.resize(image.size, Image.Resampling.BOX))


def _caption(pen: ImageDraw.ImageDraw, image: SheetImage) -> None:
    x = image.box[0]
    y = image.caption_y
    if image.name:
        text.draw(pen, (x, y), image.name, INK, NAME_PX)
        y += text.line_height_px(NAME_PX)
    for line in image.caption:
        text.draw(pen, (x, y), line, GREY, CAPTION_PX)
        y += text.line_height_px(CAPTION_PX)
