"""Contact sheets: what a recipe does to photographs, as the loader would give them, in one picture."""

from augpipe.preview.contents import Contents, by_op, over_epochs
from augpipe.preview.draw import draw_sheet

__all__ = ["Contents", "by_op", "draw_sheet", "over_epochs"]
