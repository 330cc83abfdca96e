"""The kernels that batches on the CPU need: compiled by processes of their own while a loader and a model are made."""

from collections.abc import Sequence

from augpipe.decoding.jpeg import decoder_overloads
from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.declared import Overload, overloads
from augpipe.ops.bends import ElasticTransform, GridDistortion, WholePixels
from augpipe.planning.output_format import OutputFormat
from augpipe.recipes.recipe import Recipe

FIRST = ("run_jobs", "mix_images", "pack_levels")
"""What renders any batch, and takes by far the most of the time; what is not named here compiles where it is called."""
ORDERING = ("_fill_draws", "_walk")
"""What says which sample comes when, and with which draws."""


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
    ops = [inner for recipe in recipes for view in recipe.all_views for op in view.ops for inner in op.flat]
    if any(isinstance(op, ElasticTransform | GridDistortion | WholePixels) for op in ops):
        variants.append(f"{rendered_as}_bends")
    if any(recipe.num_passes > 1 for recipe in recipes):
        variants += ["float32", "passes"]
    first = [one for one in overloads(["render"], variants) if one.function in FIRST]
    ordering = [one for one in overloads(["order"], variants) if one.function in ORDERING]
    decoder = decoder_overloads(None if form.is_narrow else rendered_as) if decodes else []
    background.start([first, ordering + decoder])
    return first + ordering
