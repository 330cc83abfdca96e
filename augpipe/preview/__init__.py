"""Contact sheets: what a recipe does to images, as the loader would give them, in one image."""

from augpipe.preview.contents import Contents, by_op, by_step, over_epochs
from augpipe.preview.draw import draw_sheet

__all__ = ["Contents", "by_op", "by_step", "draw_sheet", "over_epochs"]
