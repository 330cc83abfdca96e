"""Affine maps of albumentations as ops: `Affine` of either version, imgaug's `IAAAffine`, and `PiecewiseAffine`.

What acts first stands last, of matrices that move a point of the image (T moves, X slants columns, Y rows):

    version 2             T · X and Y at once · rotation · scale
    version 1 and imgaug  T · rotation · X · scale · Y

Version 1 slants columns the other way than version 2; imgaug turns and slants the other way than version 1.
"""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.op import Beyond
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.makers import OF_NUMPY, SQUARE_PX, either_way, levels, reaching, twice
from augpipe.recipes.importers.rows import Look

Limits = tuple[float, float]
PARTS = ("scale", "translate_percent", "translate_px", "rotate", "shear")
OF_VERSION_1 = {
    "scale": (0.9, 1.1),
    "translate_percent": (-0.1, 0.1),
    "rotate": (-15.0, 15.0),
    "shear": (-10.0, 10.0),
}
"""What version 1 takes where no part is given."""
UNSCALED: Limits = (1.0, 1.0)
BORDERS_OF_IMGAUG = {name: name for name in ("constant", "edge", "wrap")} | OF_NUMPY
MOVED_STD, ALIKE_CELLS = sqrt(0.5), 0.4
"""See `piecewise_affine`."""
ELASTIC_STD = 0.163
"""The standard deviation of an elastic transform's displacements, by alpha / sigma."""
ORDERS = {0: "nearest", 1: "bilinear", 3: "bicubic"}
"""The interpolations that imgaug leaves to OpenCV."""


def affine(one: Mapping[str, Any]) -> Op:
    """The op of an `Affine`."""
    given = {name: one.get(name) for name in PARTS}
    if not any(value is not None for value in given.values()):
        given |= OF_VERSION_1
    is_new = "fill" in one
    scale = _scale(_axes(given["scale"], 1.0), bool(one.get("keep_ratio")), bool(one.get("balanced_scale")))
    columns, rows = _axes(given["shear"], 0.0, left_out=1.0)  # the library's own default of an axis that is left out
    rotation = ops.Rotate(max_deg=_limits(given["rotate"] or 0.0), step=None)
    right, down = _axes(given["translate_px"], 0.0, left_out=0.0 if is_new else 1.0)
    if given["translate_percent"] is None and any((*right, *down)):
        moved = ops.Translate(horizontal=right, vertical=down, unit="px", step=1.0)
    else:
        right, down = _axes(given["translate_percent"], 0.0)
        moved = ops.Translate(horizontal=right, vertical=down, whole_px="towards_zero" if is_new else "no")
    if is_new:
        slanted = ops.Shear(horizontal_deg=columns, vertical_deg=rows, order="at_once")
        return ops.AllOf(ops=(scale, rotation, slanted, moved), p=one["p"])
    return _of_version_1(scale, rotation, _turned(columns), rows, moved, one["p"])


def add_affine_of_imgaug(found: Findings, one: Mapping[str, Any]) -> None:
    """Add what an `IAAAffine` becomes.

    Raises:
        ValueError: it looks between pixels or beyond the image in a way that no recipe has.
    """
    look, beyond = look_of_imgaug(one, one["order"])
    scale, shear = reaching(1.0, one["scale"]), either_way(one["shear"])
    in_px = one["translate_percent"] is None and one["translate_px"] is not None
    moved = reaching(0.0, one["translate_px"] if in_px else one["translate_percent"] or 0.0)
    unit: dict[str, Any] = {"unit": "px", "step": 1.0} if in_px else {}
    zoomed = ops.Zoom(factor=scale)
    turned = ops.Rotate(max_deg=_turned(either_way(one["rotate"])), step=None)
    translated = ops.Translate(horizontal=moved, vertical=moved, **unit)
    if shear[0] < shear[1]:  # drawn once for both axes
        slanted = ops.Shear(horizontal_deg=shear, vertical_deg=_turned(shear), order="y_first", opposite=True)
        made: Op = ops.AllOf(ops=(slanted, zoomed, turned, translated), p=one["p"])
    else:
        made = _of_version_1(zoomed, turned, shear, _turned(shear), translated, one["p"])
    note = "what moves is drawn once for both axes there." if moved[0] < moved[1] else ""
    found.add("IAAAffine", made, note=note, look=look, beyond=beyond)


def look_of_imgaug(one: Mapping[str, Any], order: Any) -> tuple[Look, Beyond]:
    """How a transform looks between pixels and beyond the image, that says it in the words of imgaug and skimage.

    Raises:
        ValueError: it draws that, or looks in a way that no recipe has.
    """
    mode, cval = one["mode"], one["cval"]
    if order not in list(ORDERS) or mode not in list(BORDERS_OF_IMGAUG) or not isinstance(cval, int | float):
        raise ValueError(
            f"order={order!r}, mode={mode!r} and cval={cval!r} must be one of 0, 1 and 3, the name of a border, and a "
            "level; others are not mapped"
        )
    return Look(interpolation=ORDERS[order], antialias=False), (BORDERS_OF_IMGAUG[mode], levels(cval))


def piecewise_affine(one: Mapping[str, Any], sides: tuple[int, ...]) -> Op:
    """The op of a `PiecewiseAffine` in a frame of these sides: a smooth field that moves pixels as far and as alike.

    Where sides are not known, it is that of a square, which bends other frames alike. Its nodes move by normal numbers
    of a standard deviation of `scale` sides, and triangles between them linearly: by half that variance in the mean.
    Displacements at a distance d have a correlation of nearly exp(-d^2 / (4 s^2)), with s of 0.4 cells: within 0.05 up
    to a cell, in 150 fields of 4x4 and of 6x6 nodes.

    Raises:
        ValueError: how large the frame is, is not known, and nodes move by pixels.
    """
    is_known, is_in_px = len(sides) == 2, bool(one.get("absolute_scale"))
    if is_in_px and not is_known:
        raise ValueError(
            "absolute_scale=True moves nodes by pixels, and how large the image is depends on the file here; put a "
            "Resize or a crop before it"
        )
    side = sqrt(sides[0] * sides[1]) if is_known else SQUARE_PX
    low, high = reaching(0.0, one["scale"]) if "order" in one else _limits(one["scale"])
    drawn = sqrt((low * low + low * high + high * high) / 3.0)
    std_px = MOVED_STD * drawn * (1.0 if is_in_px else side)
    nodes = [sum(_limits(one[name])) / 2.0 for name in ("nb_rows", "nb_cols")]
    sigma = ALIKE_CELLS * side / (max(sum(nodes) / 2.0, 2.0) - 1.0)
    fields = {"alpha": round(std_px * sigma / ELASTIC_STD, 1), "sigma": round(sigma, 1), "p": one["p"]}
    return ops.ElasticTransform.model_validate(fields | ({} if is_known else {"side_px": SQUARE_PX}))


def _of_version_1(scale: Op, rotation: Op, columns: Limits, rows: Limits, moved: Op, p: float) -> Op:
    none: Limits = (0.0, 0.0)
    first = (ops.Shear(horizontal_deg=none, vertical_deg=rows),) if any(rows) else ()
    then = (ops.Shear(horizontal_deg=columns, vertical_deg=none),) if any(columns) else ()
    return ops.AllOf(ops=(*first, scale, *then, rotation, moved), p=p)


def _scale(factors: tuple[Limits, Limits], keeps_ratio: bool, is_balanced: bool) -> Op:
    """Both axes alike, or each by a factor of its own; where it is balanced, shrunk and enlarged as often."""
    across, down = factors
    if keeps_ratio:
        return _either(lambda factor: ops.Zoom(factor=factor), across, is_balanced)
    if not is_balanced:
        return ops.Stretch(horizontal=across, vertical=down)
    widened = _either(lambda factor: ops.Stretch(horizontal=factor, vertical=UNSCALED), across, True)
    heightened = _either(lambda factor: ops.Stretch(horizontal=UNSCALED, vertical=factor), down, True)
    return ops.AllOf(ops=(widened, heightened))


def _either(make: Callable[[Limits], Op], factors: Limits, is_balanced: bool) -> Op:
    if not is_balanced:
        return make(factors)
    low, high = factors
    sides = [limits for limits in ((low, 1.0), (1.0, high)) if limits[0] < limits[1]] or [UNSCALED]
    return make(sides[0]) if len(sides) == 1 else ops.OneOf(ops=tuple(map(make, sides)))


def _axes(value: Any, unchanged: float, left_out: float | None = None) -> tuple[Limits, Limits]:
    """The ranges along x and along y, of one range for both or of a dict.

    Args:
        value: as the library takes it; None for what changes nothing.
        unchanged: the number that changes nothing.
        left_out: that of an axis that a dict does not name, where it is another one.
    """
    if not isinstance(value, Mapping):
        return (_limits(unchanged if value is None else value),) * 2
    default = unchanged if left_out is None else left_out
    return _limits(value.get("x", default)), _limits(value.get("y", default))


def _limits(value: Any) -> Limits:
    """A range, or the one number that it is."""
    low, high = twice(value)
    return float(low), float(high)


def _turned(limits: Limits) -> Limits:
    """The same angles the other way."""
    return 0.0 - limits[1], 0.0 - limits[0]
