"""The kernels that batches on the CPU need: compiled by processes of their own while a loader and a model are made."""

from collections.abc import Sequence

from augpipe import ops
from augpipe.decoding.jpeg import decoder_overloads
from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.declared import Overload, overloads
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import plan
from augpipe.planning.record_passes import passes_of
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.view import View

FIRST = ("kinds_of", "mix_images", "pack_levels", "compress_images")
PROGRAMS = ("finish_images", "take_patterns", "filter_images")
"""What renders batches, with `run_slanted` and `run_aligned`, in two parts that take about as long to compile. What is
named nowhere here compiles where it is called, and takes little of the time."""
COPYING = ("find_level_maps", "copy_levels", "look_up_levels")
"""What looks up levels of batches in uint8, and compiles in a fifth of that time."""
SLANTING = (ops.Rotate, ops.Shear, ops.Perspective, ops.BrownConrady, ops.OpticalDistortion)
"""What slants an output against its image, so that `run_slanted` renders it; but for rare draws, always."""
MAY_SLANT = (
    *SLANTING,
    *(ops.ElasticTransform, ops.GridDistortion, ops.LensDistortion, ops.QuarterTurn, ops.Transpose),
)
FILTERS = (
    *(ops.BoxBlur, ops.CLAHE, ops.Downscale, ops.Emboss, ops.GaussianBlur, ops.GridShuffle, ops.JpegCompression),
    *(ops.MedianBlur, ops.MotionBlur, ops.Sharpen),
)
PATTERNS = (ops.Fog, ops.GridDropout, ops.ISONoise, ops.PixelDropout, ops.Shadow)
NICE = 10
"""By how much the decoder's process makes way for others."""
NICE_PLANNING = 5
"""The same of one that ends long before the first."""
PLANNING = ("_fill_draws", "_walk", "choose_crops", "compose_records", "fill_kernel_rows")
"""What says which sample comes when, and what is done to it."""


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
    listed = [inner for recipe in recipes for view in recipe.all_views for op in view.ops for inner in op.flat]
    if any(isinstance(op, ops.ElasticTransform | ops.GridDistortion) for op in listed):
        variants.append(f"{rendered_as}_bends")
    if any(recipe.num_passes > 1 for recipe in recipes):
        variants += ["float32", "passes"]
    if any(_have_programs(recipe) for recipe in recipes):
        variants += [f"{kind}_steps" for kind in ("float32", "uint8") if kind in variants]
    if any(isinstance(op, FILTERS) for op in listed):
        variants.append("filters")
    if any(isinstance(op, PATTERNS) for op in listed):
        variants.append("patterns")
    if any(isinstance(op, ops.JpegCompression) for op in listed):
        variants.append("compresses")
    slanted, aligned, first = [
        [one for one in overloads(["render"], variants) if one.function in functions]
        for functions in (("run_slanted",), ("run_aligned",), FIRST)
    ]
    slanted = slanted if any(isinstance(op, MAY_SLANT) for op in listed) else []
    aligned = [] if all(map(_always_slants, recipes)) else aligned
    programs = [one for one in overloads(["render"], variants) if one.function in PROGRAMS]
    copying = [one for one in overloads(["render"], variants) if one.function in COPYING]
    planning = [one for one in overloads(["order", "plan"], variants) if one.function in PLANNING]
    decoder = decoder_overloads(None if form.is_narrow else rendered_as) if decodes else []
    if programs:
        background.start([slanted + aligned + first + planning, programs + copying])
    else:
        background.start([slanted, aligned + first] if aligned else [slanted + first])
        background.start([planning + copying], nice=NICE_PLANNING)
    background.start([decoder], nice=NICE)  # which nobody waits for
    return slanted + aligned + first + planning + programs + copying


def _always_slants(recipe: Recipe) -> bool:
    """Whether every view slants its image, but for rare draws; for those `run_aligned` compiles where it is called."""
    return recipe.num_passes == 1 and all(map(_slants, recipe.all_views))


def _slants(view: View) -> bool:
    return any(
        isinstance(op, SLANTING) and getattr(op, "p", 1.0) == 1.0 and not _may_be_straight(op) for op in view.ops
    )


def _may_be_straight(op: ops.Op) -> bool:
    """Whether one of a few angles that it draws may be a quarter turn, or none."""
    if isinstance(op, ops.Rotate) and not isinstance(op.max_deg, tuple):
        return op.step is not None and op.max_deg >= 90
    return getattr(op, "step", None) is not None


def _have_programs(recipe: Recipe) -> bool:
    """Whether its views have steps that follow a look-up."""
    views = plan(recipe, [], sizes=[]).views
    return any("steps" in (rows.dtype.names or ()) for view in views for rows in passes_of(view))
