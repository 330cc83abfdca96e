"""The kernels that batches on the CPU need: compiled by processes of their own while a loader and a model are made."""

from collections.abc import Sequence

from augpipe.decoding.jpeg import decoder_overloads
from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.declared import Overload, overloads
from augpipe.planning.output_format import OutputFormat
from augpipe.recipes.recipe import Recipe

FIRST = ("run_jobs", "_fill_draws", "_walk", "mix_images")
"""What every batch of a loader needs, and by far the most of the time; the others compile where they are called."""


def start_compiling(form: OutputFormat, recipes: Sequence[Recipe], *, decodes: bool) -> list[Overload]:
    """Have what is not compiled yet compiled in the background; nothing where all is.

    Args:
        form: of the batches.
        recipes: of all epochs.
        decodes: whether JPEGs may have to be decoded.

    Returns:
        What `background.wait` should wait for before the first batch: all except the decoder, whose work libjpeg-turbo
        does until then.
    """
    rendered_as = "uint8" if form.dtype == "uint8" else "float32"
    variants = [rendered_as]
    if any(recipe.mixing for recipe in recipes):
        variants.append(f"{rendered_as}_mixing")
    needed = [one for one in overloads(["render", "order"], variants) if one.function in FIRST]
    groups = [needed]
    if decodes:
        groups.append(decoder_overloads(None if form.is_narrow else rendered_as))
    background.start(groups)
    return needed
