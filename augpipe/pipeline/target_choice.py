"""Which targets a loader's batches have: what was asked for, checked against the source and the recipes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from augpipe.planning.fields import label_maps_mixed_by, refuse_targets
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source
from augpipe.sources.targets import has_targets, targets_of_none

if TYPE_CHECKING:
    from augpipe.planning.targets.options import TargetOptions

TargetsName = Literal["list", "padded", "flat", "off"]
_OFF = 'or build the loader with targets="off", which gives images and labels only'


def chosen_targets(
    asked: "TargetOptions | TargetsName | None", source: Source, recipes: Sequence[Recipe]
) -> "TargetOptions | None":
    """How a loader maps targets; None where its batches have none.

    Raises:
        ValueError: they are asked for and the source has none, a source has them and no `has_targets`, or a recipe
            changes images in a way that they do not follow.
    """
    if asked == "off":
        return None
    _refuse_unasked(source)
    if asked is None and not has_targets(source):
        return None
    from augpipe.planning.targets.options import TargetForm, TargetOptions

    options = asked
    if asked is None:
        options = TargetOptions()
    elif isinstance(asked, str) and asked in get_args(TargetForm):
        options = TargetOptions(form=asked)
    if not isinstance(options, TargetOptions):
        raise ValueError(
            f"targets={asked!r:.60} is not known. Choose one of 'list', 'padded', 'flat', 'off', or give "
            "TargetOptions(form='list', ...)."
        )
    if not has_targets(source):
        raise ValueError(
            f"targets={asked!r:.60}, and the source has none: {source!r:.200}. Give one with annotations, or leave "
            "targets out."
        )
    if options.paired:
        raise ValueError(
            f"paired={dict(options.paired)} of TargetOptions is for calls of Augment. Leave it out: a Loader looks "
            "up the label maps of its source as mask_interpolation says."
        )
    for recipe in recipes:
        _refuse(recipe, has_label_maps=bool(source.has_label_maps))
    if options.masks or options.polygons:
        known = targets_of_none(source)
        if known is None or known.polygons is None:
            wanted = "masks" if options.masks else "polygons"
            raise ValueError(
                f"{wanted}=True needs outlines of objects, and the source has none: {source!r:.200}. Leave it out."
            )
    swaps = tuple(source.keypoint_swaps)
    if options.keypoint_swaps or not swaps:
        return options
    chosen = {name: getattr(options, name) for name in options.model_fields_set}  # all else stays unsaid
    return TargetOptions.model_validate(chosen | {"keypoint_swaps": swaps})


def check_pasting(
    recipes: Sequence[Recipe], source: Source, targets: "TargetOptions | None", *, is_native: bool
) -> None:
    """Refuse recipes that paste objects where a loader does not.

    Raises:
        ValueError: batches are not made on the CPU by the native backend, or no outlines of objects are known.
    """
    for recipe in recipes:
        if not recipe.pastes_objects:
            continue
        if not is_native:
            raise ValueError(
                f"{recipe.called} has copy_paste, which pastes on the CPU with the native backend only. Choose "
                'device="cpu" and backend="native", or leave copy_paste out.'
            )
        known = targets_of_none(source) if targets is not None and has_targets(source) else None
        if targets is None or known is None or known.polygons is None:
            raise ValueError(
                f"{recipe.called} has copy_paste, which cuts objects out along their outlines, and these batches have "
                f"none: {source!r:.200}. Give a source with outlines of objects, or leave copy_paste out."
            )


def _refuse_unasked(source: Source) -> None:
    """Refuse targets that nobody would ask the source for: losses would see its labels, -1, and no error."""
    for name in ("targets_of", "label_map"):
        if hasattr(source, name) and not hasattr(source, "has_targets"):
            raise ValueError(
                f"{source!r:.200} has {name} and no has_targets, without which it is not asked for targets. Add "
                f"has_targets = True as in augpipe.sources.targets.TargetSource, {_OFF}."
            )


def _refuse(recipe: Recipe, *, has_label_maps: bool) -> None:
    if has_label_maps and (mixes := label_maps_mixed_by(recipe)):
        raise ValueError(
            f"{recipe.called} shows two images at once ({', '.join(mixes)}), so that its pixels have no one label, and "
            f"the source has label maps. Use CutMix, which pastes label maps as it does images, {_OFF}."
        )
    try:
        refuse_targets(recipe)
    except ValueError as problem:
        raise ValueError(f"{str(problem).removesuffix(', or the targets.')}, {_OFF}.") from None
