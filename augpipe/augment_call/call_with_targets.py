"""A call of `Augment` with targets: one image and what goes with it, by names or in torchvision's structures."""

from collections.abc import Sequence
from typing import Any

from augpipe.augment_call.box_formats import BoxFormat
from augpipe.augment_call.given_targets import KeypointFormat, check_owners, given_targets, known_objects
from augpipe.augment_call.inputs import images_of
from augpipe.augment_call.target_names import TARGETS, named_results
from augpipe.augment_call.tv_targets import Structure
from augpipe.planning.fields import refuse_targets
from augpipe.planning.plan import Plan
from augpipe.planning.targets.options import TargetOptions
from augpipe.recipes.recipe import Recipe


class CallWithTargets:
    """What a call is given, checked, and its results.

    Args:
        images: a structure of torchvision's; None: `named` holds the image.
        named, bbox_format, keypoint_format, options: as of `Augment.__call__`.
        recipe, max_pixels: of the transform.

    Raises:
        ValueError: it is not one image on the CPU, a target is not as it must be, or a setting is not for calls.
        TypeError: arguments are given next to a structure.
    """

    def __init__(
        self,
        images: Any,
        named: dict[str, Any],
        *,
        bbox_format: BoxFormat | None,
        keypoint_format: KeypointFormat | None,
        options: TargetOptions | None,
        recipe: Recipe,
        max_pixels: int,
    ) -> None:
        self._bbox_format = bbox_format
        self._options = options = options or TargetOptions()
        for name in ("form", "polygons", "masks"):
            if getattr(options, name) != TargetOptions.model_fields[name].default:
                raise ValueError(
                    f"{name}={getattr(options, name)!r} of TargetOptions is for batches of a Loader. Leave it out, "
                    "as a call gives back what it is given."
                )
        if images is not None and named:
            raise TypeError(
                f"a call of Augment has no argument {next(iter(named))} next to images. Targets and labels come by "
                "name with image=..., or in one dict or tuple with torchvision's tv_tensors."
            )
        if images is not None and options.paired:
            raise ValueError(
                f"paired={options.paired} of TargetOptions names arguments of a call, and this one has none. Give the "
                "image and its targets by name, as image=..., depth=...."
            )
        asked = {name for name in (*TARGETS, *options.paired) if named.get(name) is not None}
        if images is not None or asked:
            refuse_targets(recipe)
        self._structure = structure = None if images is None else Structure(images)
        image = named.pop("image", None) if structure is None else structure.image
        if image is None:
            raise ValueError("there is no image: give one, as augment(photo) or augment(image=photo, bboxes=...).")
        self.given = given = images_of(image, max_pixels)
        """The image."""
        if given.device is not None or not given.is_single:
            found = f"lies on {given.device}" if given.device is not None else "is a batch"
            raise ValueError(f"the image {found}, and targets go with one image on the CPU. Give it as such.")
        (size,) = [item.size for item in given.items]
        targets = {name: value for name, value in named.items() if value is not None}
        known = {name: targets.pop(name) for name in TARGETS if name in targets}
        paired = {name: targets.pop(name) for name in options.paired if name in targets}
        self._originals = known | paired
        if structure is not None:
            self._checked = structure.given(size, options)
        else:
            self._checked = given_targets(
                size,
                clip=options.clip,
                bbox_format=bbox_format,
                keypoint_format=keypoint_format,
                paired=paired,
                fields=targets,
                **known,
            )
            check_owners(self._checked)
        self.objects = known_objects(self._checked, recipe) if recipe.keeping else None
        """Those that crops of the recipe look at."""
        self.has_tensors = given.are_tensors or (structure is not None and structure.has_tensors)
        """Whether results are tensors where nothing else says what they are."""

    def results(self, made: Plan, images: Sequence[Any]) -> list[Any]:
        """For each view its image, and the targets as it shows them, in the form in which they were given."""
        if self._structure is not None:
            return self._structure.results(self._checked, made, images, self._options)
        return named_results(self._checked, made, images, self._bbox_format, self._options, self._originals)
