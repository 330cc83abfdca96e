"""Transforms of torchvision, v1 and v2, as ops: told by class name, read by attribute."""

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from augpipe import ops, policies
from augpipe.ops import Op
from augpipe.ops.groups import each_within
from augpipe.policies.automatic import one_of as merged_one_of
from augpipe.recipes.importers.chosen import IN_ORDER, Members, all_of, in_groups, one_of
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.looks import finished_in_turn, note_of
from augpipe.recipes.importers.torchvision_geometry import GEOMETRY, fill_of, look_of, overlaps, seldom_overlapping
from augpipe.recipes.importers.torchvision_lambdas import of_arrays, of_levels, of_pillow, of_tensors
from augpipe.recipes.importers.torchvision_pixels import COUNTED_IN_PARTS, OF_FLOAT_LEVELS, PIXELS, normalize_bytes
from augpipe.recipes.importers.units import FUNCTION, UNIT, fill_in_levels
from augpipe.validation.models import changed

OF_PILLOW_IMAGES = ("ToTensor", "PILToTensor", "ToImage")
"""Those that make a tensor of a PIL image."""
OF_WEIGHTS = ("ImageClassification", "SemanticSegmentation")
"""What weights of torchvision have as their transforms."""
TO_DTYPES = ("ToDtype", "ConvertImageDtype")
TO_TENSORS = (*OF_PILLOW_IMAGES, *TO_DTYPES)
"""Those behind which an image is a tensor."""
CONTAINERS = (*TO_TENSORS, "ToPILImage")
SILENT = (
    *("Identity", "ToPureTensor", "ClampBoundingBoxes", "ConvertBoundingBoxFormat"),
    *("ClampKeyPoints", "SanitizeKeyPoints", "SetClampingMode"),
)
"""Those that change nothing of an image."""
OF_FORMAT = "boxes: ConvertBoundingBoxFormat changes nothing here: they are returned in the format that is given."
OTHER_DTYPES = ("int8", "int16", "short", "int32", "int", "int64", "long", "uint16", "uint32", "uint64")
"""Those whose largest number is neither 255 nor 1, where levels are scaled to it."""
OF_PILLOW = ("Normalize", *TO_DTYPES)
OF_TENSORS = (*OF_PILLOW, FUNCTION)
"""What changes the units of tensors, or may; a function of PIL images makes such again."""


def _makes_levels(one: Any) -> bool:
    return str(getattr(one, "dtype", None)).rpartition(".")[2] == "uint8"


def _of_other_units(one: Any) -> str:
    """Why a dtype is not mapped: it makes numbers of levels that are neither in 0..255 nor in 0..1."""
    name = str(getattr(one, "dtype", None)).rpartition(".")[2]
    if name not in OTHER_DTYPES or not getattr(one, "scale", True):
        return ""
    told = "scale=True makes" if hasattr(one, "scale") else "makes"
    return f"{told} numbers of {name}, and 0..255 and 0..1 are mapped; write torch.float32 or torch.uint8"


def found_in(transform: Any) -> Findings:
    """The ops of a `torchvision.transforms` or `torchvision.transforms.v2` object or of a list of such, and what cannot
    be mapped."""
    found = Findings(source="torchvision", measured_as=("torchvision",), name_of=_name)
    scales = False
    listed = transform if isinstance(transform, list | tuple) else [transform]
    flat = [one for held in listed for one in _flattened(held)]
    flat = [_fitted(one, then) for one, then in zip(flat, [*flat[1:], None], strict=True)]
    found.makers, found.changes_units, found.only = MADE, OF_PILLOW, ONLY
    if next((name for name in map(_name, flat) if name in ("ToPILImage", *TO_TENSORS)), "") == "ToPILImage":
        found.makers = MADE | {"Lambda": of_arrays}
    for one, container in zip(flat, _containers(flat), strict=True):
        name, found.container = _name(one), container
        is_dtype = name in TO_DTYPES
        makes_bytes = name == "ToPILImage" or (is_dtype and _makes_levels(one))
        if is_dtype and (told := _of_other_units(one)):
            found.refuse(name, told)
        elif makes_bytes and found.normalize is not None:
            found.refuse(name, "behind Normalize makes bytes of numbers outside 0..1, which wrap; put it before")
        elif name in CONTAINERS:
            scales = not makes_bytes and (scales or name == "ToTensor" or (is_dtype and getattr(one, "scale", True)))
            in_levels = OF_LEVELS | (OF_FLOAT_LEVELS if is_dtype and not makes_bytes else {})
            own = {} if name == "ToPILImage" else OF_PARTS if scales else in_levels
            found.makers, found.changes_units = MADE | own, OF_TENSORS if own else OF_PILLOW
        elif name not in SILENT:
            before = len(found.ops), len(found.rows)
            found.add_by(found.makers, one)
            if scales and found.normalize is None:
                fill_in_levels(found, *before)
    if "ConvertBoundingBoxFormat" in map(_name, flat):
        found.note(OF_FORMAT)
    found.counts_in_parts = scales
    if scales and found.normalize is None:
        found.ops.append(UNIT)
    return found


def _fitted(one: Any, then: Any) -> Any:
    """A rotation that makes frames as large as what is turned, of which a Resize makes one of its own height and width:
    all of what is turned, shrunk into the frame along each axis."""
    if (
        (_name(one), _name(then)) != ("RandomRotation", "Resize")
        or not one.expand
        or not isinstance(then.size, Sequence)
    ):
        return one
    if len(then.size) != 2:
        return one
    kept = {name: getattr(one, name) for name in ("degrees", "interpolation", "center", "fill")}
    return type("RandomRotation", (), {**kept, "expand": False, "fits": True, "__module__": type(one).__module__})()


def _containers(flat: Sequence[Any]) -> list[str]:
    """What images are held in where each of the transforms stands: "pillow", "tensors", or "" where none says so."""
    after = dict.fromkeys(TO_TENSORS, "tensors") | {"ToPILImage": "pillow"}
    before = dict.fromkeys(OF_PILLOW_IMAGES, "pillow") | dict.fromkeys((*TO_DTYPES, "ToPILImage"), "tensors")
    names = list(map(_name, flat))
    held = next((before[name] for name in names if name in before), "")
    found = []
    for name in names:
        found.append(held)
        held = after.get(name, held)
    return found


def _name(transform: Any) -> str:
    return "Lambda" if isinstance(transform, FunctionType) else type(transform).__name__


def _flattened(transform: Any) -> Iterable[Any]:
    if _name(transform) in ("Compose", "Sequential"):
        for inner in _held(transform):
            yield from _flattened(inner)
    elif _name(transform) in OF_WEIGHTS:
        yield from _of_weights(transform)
    else:
        yield transform


def _of_weights(one: Any) -> Iterable[Any]:
    """The transforms of weights, as of `ResNet50_Weights.DEFAULT.transforms()`, which is one that does all."""

    def part(name: str, **fields: Any) -> Any:
        return type(name, (), fields)()

    if one.resize_size is not None:
        yield part("Resize", size=one.resize_size, interpolation=one.interpolation, antialias=one.antialias)
    if hasattr(one, "crop_size"):
        yield part("CenterCrop", size=one.crop_size)
    yield from (part("ToTensor"), part("Normalize", mean=one.mean, std=one.std))


def _held(transform: Any) -> list[Any]:
    held = getattr(transform, "transforms", transform)
    return list(held) if isinstance(held, Iterable) else [held]


def _group(make: Callable[[Findings, Any, Members], Op], note: str = "") -> Maker:
    def add(found: Findings, one: Any) -> None:
        inner = found.within()
        members: list[tuple[Op, ...]] = []
        for held in _held(one):
            before = len(inner.ops)
            for part in _flattened(held):
                if _name(part) in ("ToTensor", *TO_DTYPES):
                    inner.refuse(_name(part), "converts images within a group; put it before the group or behind it")
                elif _name(part) not in (*CONTAINERS, *SILENT):
                    inner.add_by(inner.makers, part)
            members.append(tuple(inner.ops[before:]))
        if len(inner.ops) or not found.problems:
            found.add(_name(one), make(found, one, members), note=note, holds=True)

    return add


def _sometimes(found: Findings, one: Any, members: Members) -> Op:
    if len(members) == 1 and len(members[0]) == 1 and isinstance(members[0][0], ops.Custom):
        return changed(members[0][0], p=float(one.p) * members[0][0].p)
    if len(members) == 1 and len(members[0]) == 1 and overlaps(members[0][0]):
        return seldom_overlapping(members[0][0], float(one.p))
    return all_of(found, members, float(one.p))


def _choice(found: Findings, one: Any, members: Members) -> Op:
    shares = list(one.p or [1.0] * len(members))
    if any(op.is_crop for own in members for op in own):
        return one_of(found, members, shares)
    return merged_one_of(zip(in_groups(members), shares, strict=True))


def _moved_by_whole_pixels(op: Op) -> Op:
    return changed(op, whole_px="towards_zero") if isinstance(op, ops.Translate) else op


def _policy(make: Callable[[Any], tuple[Op, ...]]) -> Maker:
    def add(found: Findings, one: Any) -> None:
        look = look_of(found, one)
        made = tuple(map(each_within(_moved_by_whole_pixels), make(one)))
        if not found.is_held:
            made = finished_in_turn(made, look.interpolation)
        found.add(_name(one), *made, note=note_of(made), look=look, beyond=("constant", fill_of(found, one)))

    return add


ONLY: dict[str, dict[str, tuple[Any, str]]] = {
    "RandomRotation": {
        "expand": (False, "makes frames of other sides without a Resize((height, width)) next"),
        "center": (None, ""),
    },
    "RandomAffine": {"center": (None, "")},
}
"""See `Findings.only`."""
MADE: dict[str, Maker] = {
    **GEOMETRY,
    **PIXELS,
    "Lambda": of_pillow,
    "RandomApply": _group(_sometimes),
    "RandomChoice": _group(_choice),
    "RandomOrder": _group(lambda found, _, members: all_of(found, members), IN_ORDER),
    "RandAugment": _policy(lambda one: policies.rand_augment(one.num_ops, one.magnitude, one.num_magnitude_bins)),
    "TrivialAugmentWide": _policy(lambda one: policies.trivial_augment_wide(one.num_magnitude_bins)),
    "AutoAugment": _policy(lambda one: policies.auto_augment(one.policy.value)),
}
"""The name of a transform -> what makes ops of it."""
OF_PARTS: dict[str, Maker] = {**COUNTED_IN_PARTS, "Lambda": of_tensors}
"""Those that count in 0..1 behind ToTensor."""
OF_LEVELS: dict[str, Maker] = {"Lambda": of_levels, "Normalize": normalize_bytes}
"""Those of a tensor of levels in 0..255."""
