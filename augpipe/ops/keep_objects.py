"""Crops that know their objects: which crop is good, how often one is drawn, and what is done where none is good."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from augpipe.ops.frame import Frame
from augpipe.ops.frame_part import PartOfFrame
from augpipe.ops.op import Drawn
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import Checked, ListOf, told

__all__ = ["KeepObjects"]

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Rectangle = tuple[Float, Float, Float, Float]
"""(n,) left, top, width and height, in pixels of the frame before a crop."""

SSD_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""The overlaps of which SSD draws one (Liu et al. 2016, section 2.2)."""
BY_SHARE = ("visible", "iou")
"""The rules that a share belongs to."""
RULES = {
    "center": "the centre of an object is inside",
    "visible": "{share} of an object is visible",
    "iou": "an object and the crop have an IoU of {share}",
    "whole": "an object is wholly inside",
    "uncut": "an object is wholly inside and none is cut",
    "all": "all objects are wholly inside",
}
"""Rule -> what is true of a good crop."""

MOST_AT_ONCE = 2048
"""Crops that are tried in one call, unless more images are planned."""
SLACK_PX = 1e-6
"""Rounding must not cost a crop its object."""

KEPT = np.dtype(
    [
        # crops that were drawn; 0 where there was nothing to keep or the place was not drawn
        ("tries", np.int32),
        # whether the rule holds for the crop in the plan; true where there was nothing to keep
        ("kept", np.bool_),
        # whether no try was good and the fallback was taken
        ("fell_back", np.bool_),
        # the drawn share; 1 of rules without one
        ("share", np.float64),
        # the drawn class number; -1 without `classes`, and where the image has none of them
        ("label", np.int64),
    ]
)
"""What a plan says of a crop's tries: the record `keep_objects` next to what else the crop draws."""


def _as_pairs(value: Any) -> Any:
    return tuple((str(name), weight) for name, weight in value.items()) if isinstance(value, Mapping) else value


Classes = Annotated[
    ListOf[tuple[str, Annotated[float, Field(ge=0.0)]]],
    BeforeValidator(_as_pairs, json_schema_input_type=dict[str, Annotated[float, Field(ge=0.0)]]),
    told("must give classes weights of at least 0, by name or number: {name}={'dog': 2.0, 'cat': 1.0}"),
    PlainSerializer(dict),
]
Shares = Annotated[
    ListOf[Annotated[float, Field(ge=0.0, le=1.0)]],
    Field(min_length=1),
    BeforeValidator(
        lambda value: (value,) if isinstance(value, int | float) else value,
        json_schema_input_type=float | list[float],
    ),
    told("must be one share or a list of shares, each in 0..1: {name}=[0.1, 0.3, 0.5]"),
]


class KeepObjects(Checked):
    """What a crop must show of its image's objects: it is drawn again until it does, `tries` times at most.

    The first try is the crop that is drawn without `keep_objects`; the others have random words of their own. Objects
    are the boxes of the source's targets, without crowds (`iscrowd`), as far as the ops before the crop left them
    there. In an image without any, the first crop is taken. What ops behind the crop do to objects is not looked at.
    """

    rule: Literal["center", "visible", "iou", "whole", "uncut", "all"] = "center"
    """When a crop is good: `center`: an object's centre is inside. `visible`: a drawn share of an object's box is
    inside. `iou`: the overlap of an object's box and the crop, over their union, is at least a drawn share. `whole`: an
    object's box is wholly inside. `uncut`: so is one, and no other is cut. `all`: every box is wholly inside."""
    share: Shares | None = None
    """For `visible` and `iou`, the shares in 0..1 of which one is drawn for each image. None: those of SSD, 0.1, 0.3,
    0.5, 0.7 and 0.9."""
    classes: Classes = ()
    """Class -> weight: one of the image's classes is drawn by these, and only its objects count. Classes that are not
    named are not drawn. Empty: the objects of all classes count. Names are those of the source; where it has only
    numbers, write them as names, as in {"3": 1.0}."""
    tries: Annotated[int, Field(ge=1, le=1000)] = 50
    """Crops that are drawn at most, the first one included."""
    redraws: Annotated[int, Field(ge=0, le=100)] = 0
    """Where no try is good, how often another one of the different shares is drawn and tried, `tries` times each,
    before the fallback: as torchvision's RandomIoUCrop does, without end. With `fallback="whole"`, images without
    objects then stay whole, as there."""
    fallback: Literal["object", "last", "whole"] = "object"
    """Where no try is good: `object` moves the last one so that a drawn object (with `all`, what encloses all of them)
    lies at its centre, as far as the image reaches; `last` takes the last one as it is; `whole` takes the whole image,
    squeezed (`random_resized_crop` only): with `iou`, that is what a share of 1 takes at once."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.share is not None and self.rule not in BY_SHARE:
            raise ValueError(
                f"share={list(self.share)} is for rule='visible' and rule='iou', and rule={self.rule!r} has none. "
                "Leave share out, or write rule='visible'."
            )
        if self.redraws and self.rule not in BY_SHARE:
            raise ValueError(
                f"redraws={self.redraws} draws other shares, and rule={self.rule!r} has none. Leave redraws out, or "
                "write rule='visible'."
            )
        if self.classes and not sum(weight for _, weight in self.classes) > 0.0:
            raise ValueError(
                f"classes={dict(self.classes)} weigh nothing: none of them could be drawn. Give one a weight above 0, "
                "or leave classes out."
            )
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is new and not given, as of an `Op`."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if name != "redraws" or value}

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of which one is drawn."""
        if self.rule not in BY_SHARE:
            return (1.0,)
        return SSD_SHARES if self.share is None else tuple(self.share)

    @property
    def text(self) -> str:
        """The rule in words, for `augpipe inspect`."""
        rule = RULES[self.rule].format(share=" or ".join(f"{share:g}" for share in self.shares))
        of = f", of {' or '.join(name for name, _ in self.classes)}" if self.classes else ""
        redraws = f", {self.redraws} other shares" if self.redraws else ""
        return f"again until {rule}{of}: {self.tries} tries{redraws}, then fallback {self.fallback}"

    def unknown_classes(self, names: Sequence[str]) -> list[str]:
        """Those of `classes` that are neither among the names nor a class number."""
        num = len(names)
        return [
            one for one, _ in self.classes if one not in names and not (one.isdecimal() and int(one) < (num or 2**31))
        ]

    def weights(self, names: Sequence[str], num: int) -> Float:
        """(num,) how often each class number is drawn, relative to the others."""
        weights = np.zeros(num)
        for one, weight in self.classes:
            number = list(names).index(one) if one in names else int(one) if one.isdecimal() else num
            if number < num:
                weights[number] = weight
        return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownObjects:
    """The objects of B images that crops look at, image by image, in pixels of the upright images."""

    counts: Int
    """(B,) how many objects each image has; they add up to N."""
    boxes: Float
    """(N, 4) left, top, right, bottom."""
    labels: Int | None = None
    """(N,) class numbers, at least 0; None where they are not known."""
    classes: Sequence[str] = ()
    """Class number -> name; empty where classes have none."""


class ObjectCropper(Protocol):
    """A crop whose place is drawn, and may be drawn again."""

    num_words: ClassVar[int]

    def place(self, words: RandomWords, frame: Frame) -> Drawn:
        """The crop's draws, of words among which the first says whether its place is drawn."""

    def rectangle(self, frame: Frame, drawn: Drawn) -> Rectangle:
        """What it shows of the frame."""

    def moved(self, frame: Frame, drawn: Drawn, x: Float, y: Float) -> Drawn:
        """The same crop with its centre as near to (x, y) as the frame allows."""

    def whole(self, frame: Frame) -> Drawn:
        """The whole frame, of crops that may squeeze it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counting:
    """The objects that count, in n images of a frame."""

    image: Int
    """(N,) of each object, in order."""
    boxes: Float
    """(N, 4) in pixels of the frame, cut at its edges."""
    shares: Float
    """(n,) that were drawn."""

    def of(self, rows: Int) -> "_Counting":
        """Those of some images, which may come several times."""
        counts = np.bincount(self.image, minlength=len(self.shares))
        first, own = np.cumsum(counts) - counts, counts[rows]
        image = np.repeat(np.arange(len(rows)), own)
        place = np.arange(len(image)) - np.repeat(np.cumsum(own) - own, own)
        return _Counting(image=image, boxes=self.boxes[first[rows][image] + place], shares=self.shares[rows])

    def holds(self, rule: str, rectangle: Rectangle) -> Bool:
        """(n,) whether the rule holds for each image's crop; true for images without objects."""
        left, top, width, height = (side[self.image] for side in rectangle)
        right, bottom = left + width, top + height
        x0, y0, x1, y1 = self.boxes.T
        num = len(self.shares)
        is_counted = np.bincount(self.image, minlength=num) > 0
        if rule in ("whole", "uncut", "all"):
            is_in = (np.minimum(x0 - left, y0 - top) >= -SLACK_PX) & (np.maximum(x1 - right, y1 - bottom) <= SLACK_PX)
            good: Bool
            if rule == "all":
                good = np.bincount(self.image[~is_in], minlength=num) == 0
                return good
            good = np.bincount(self.image[is_in], minlength=num) > 0
            if rule == "uncut":
                overlap = np.minimum(
                    np.minimum(x1, right) - np.maximum(x0, left), np.minimum(y1, bottom) - np.maximum(y0, top)
                )
                is_cut = ~is_in & (overlap > SLACK_PX)
                good &= np.bincount(self.image[is_cut], minlength=num) == 0
            return good | ~is_counted
        x, y = 0.5 * (x0 + x1), 0.5 * (y0 + y1)
        is_good = np.minimum(np.minimum(x - left, right - x), np.minimum(y - top, bottom - y)) >= -SLACK_PX
        if rule != "center":
            wide = np.maximum(np.minimum(x1, right) - np.maximum(x0, left), 0.0)
            inside = wide * np.maximum(np.minimum(y1, bottom) - np.maximum(y0, top), 0.0)
            area = (x1 - x0) * (y1 - y0)
            of = area if rule == "visible" else area + width * height - inside
            # a box without area is visible where its centre is; rounding must not cost a box that is all inside
            is_good = np.where(of > 0.0, inside >= (self.shares[self.image] - 1e-9) * of, is_good)
        return (np.bincount(self.image[is_good], minlength=num) > 0) | ~is_counted


def kept(crop: ObjectCropper, keep: KeepObjects, words: RandomWords, frame: Frame) -> Drawn:
    """What a crop draws until it is good, and under `keep_objects` how that went."""
    drawn = crop.place(words, frame)
    everyone = np.arange(frame.num)
    own = words.nested("keep_objects", 3, everyone)
    counting, labels = _counting(keep, own, frame)
    has_objects = np.bincount(counting.image, minlength=frame.num) > 0
    good = counting.holds(keep.rule, crop.rectangle(frame, drawn))
    may_change = has_objects & words.happens(0, getattr(crop, "p", 1.0))
    tries = may_change.astype(np.int32)
    rows, done, left = np.flatnonzero(may_change & ~good), 1, list[Int]()
    if keep.redraws and keep.fallback == "whole":  # of no object a share is seen, however often it is drawn
        left.append(np.flatnonzero(~has_objects))
    others = np.unique(keep.shares)
    for redraw in range(keep.redraws + 1):
        if redraw and len(rows):
            shares = words.nested(f"keep_objects/share/{redraw}", 1, rows).integer(0, len(others))
            counting.shares[rows] = others[shares]
        if keep.rule == "iou" and keep.fallback == "whole":
            left.append(rows[counting.shares[rows] >= 1.0])
            rows = rows[counting.shares[rows] < 1.0]
        most = keep.tries * (redraw + 1)
        while len(rows) and done < most:
            # as many as were made before: few images take many tries, and numpy's calls weigh more than their crops
            num = min(done, most - done, max(1, MOST_AT_ONCE // len(rows)))
            names = [(f"keep_objects/{done + 1 + number}", crop.num_words) for number in range(num)]
            again = np.concatenate([one.words for one in words.nested_apart(names, [rows] * num)])
            again[:, 0] = 0  # that its place is drawn stays as the first try says
            tried = np.tile(rows, num)
            part = PartOfFrame(frame, tried)
            made = crop.place(RandomWords(again), part)
            is_good = counting.of(tried).holds(keep.rule, crop.rectangle(part, made)).reshape(num, -1)
            found = is_good.any(axis=0)
            taken = np.where(found, is_good.argmax(axis=0), num - 1)
            _put(drawn, rows, {name: values[taken * len(rows) + np.arange(len(rows))] for name, values in made.items()})
            tries[rows] = done + 1 + taken
            rows, done = rows[~found], done + num
    rows = np.concatenate([*left, rows])
    good[:] = counting.holds(keep.rule, crop.rectangle(frame, drawn))
    fell_back = np.zeros(frame.num, np.bool_)
    fell_back[rows] = True
    if len(rows) and keep.fallback != "last":
        part, some = PartOfFrame(frame, rows), counting.of(rows)
        if keep.fallback == "whole":
            made = crop.whole(part)
        else:
            last = {name: values[rows] for name, values in drawn.items()}
            made = last | crop.moved(part, last, *_middle(some, keep, own.integer(2, 2**31)[rows]))
        _put(drawn, rows, made)
        good[rows] = some.holds(keep.rule, crop.rectangle(part, made))
    told = {"tries": tries, "kept": good, "fell_back": fell_back, "share": counting.shares, "label": labels}
    return {**drawn, "keep_objects": told}


def _put(drawn: Drawn, rows: Int, made: Drawn) -> None:
    for name, values in made.items():
        drawn[name][rows] = values


def _counting(keep: KeepObjects, words: RandomWords, frame: Frame) -> tuple[_Counting, Int]:
    """The objects that count, with the shares that were drawn, and (n,) the classes that were."""
    known = frame.objects
    assert known is not None and not frame.is_mapped, "a plan with such a crop is given objects, and checked"
    image = np.repeat(np.arange(frame.num), known.counts)
    boxes, is_seen = _in_frame(known.boxes, image, frame)
    shares = np.array(keep.shares)[words.integer(0, len(keep.shares))]
    labels = np.full(frame.num, -1, np.int64)
    if keep.classes:
        assert known.labels is not None, "a plan with classes is given labels"
        num = max(len(known.classes), int(known.labels.max(initial=-1)) + 1)
        is_there = np.zeros((frame.num, num), np.bool_)
        is_there[image[is_seen], known.labels[is_seen]] = True
        ends = np.cumsum(is_there * keep.weights(known.classes, num), axis=1)
        total = ends[:, -1] if num else np.zeros(frame.num)
        drawn = (ends <= (words.uniform(1, 0.0, 1.0) * total)[:, None]).sum(axis=1)
        labels = np.where(total > 0.0, drawn, -1)
        is_seen &= known.labels == labels[image]
    return _Counting(image=image[is_seen], boxes=boxes[is_seen], shares=shares), labels


def _in_frame(boxes: Float, image: Int, frame: Frame) -> tuple[Float, Bool]:
    """(N, 4) boxes in pixels of the frame, cut at the edge of what it shows, and whether it shows anything of each.

    Impossible boxes, which are told of where targets are mapped, are not shown.
    """
    is_seen = np.logical_and(np.isfinite(boxes).all(axis=1), (boxes[:, 2:] >= boxes[:, :2]).all(axis=1))
    placed = np.where(is_seen[:, None], boxes, 0.0)
    left, top, right, bottom = frame.seen
    axes = (
        (left, right, frame.crop_x, frame.crop_width, frame.out_widths),
        (top, bottom, frame.crop_y, frame.crop_height, frame.out_heights),
    )
    for axis, sides in enumerate(axes):
        least, most, start, length, side = (values[image, None] for values in sides)
        ends = placed[:, axis::2]
        shown = np.clip(ends, least, most)
        is_whole = (shown == ends).all(axis=1)
        shown = (shown - start) * (side / length)
        shown = np.where(frame.mirrored[image, axis, None], side - shown[:, ::-1], shown)
        cut = np.clip(shown, 0.0, side)
        is_thin = (ends[:, 0] == ends[:, 1]) & is_whole & (cut == shown).all(axis=1)
        is_seen &= (cut[:, 1] > cut[:, 0]) | is_thin
        placed[:, axis::2] = cut
    return placed, is_seen


def seen_objects(frame: Frame) -> KnownObjects:
    """The objects that a frame shows, in its pixels; it may be cropped, padded and mirrored only."""
    known = frame.objects
    assert known is not None and not frame.is_mapped
    image = np.repeat(np.arange(frame.num), known.counts)
    boxes, is_seen = _in_frame(known.boxes, image, frame)
    return KnownObjects(
        counts=np.bincount(image[is_seen], minlength=frame.num),
        boxes=boxes[is_seen],
        labels=None if known.labels is None else known.labels[is_seen],
        classes=known.classes,
    )


def _middle(counting: _Counting, keep: KeepObjects, chosen: Int) -> tuple[Float, Float]:
    """(n,) x and y of the middle of an object of each image, which all have some; with `all`, of all of them."""
    counts = np.bincount(counting.image, minlength=len(counting.shares))
    first = np.cumsum(counts) - counts
    if keep.rule == "all":
        least = np.minimum.reduceat(counting.boxes[:, :2], first)
        most = np.maximum.reduceat(counting.boxes[:, 2:], first)
    else:
        # in which order a source lists its objects does not matter
        x0, y0, x1, y1 = counting.boxes.T
        ordered = counting.boxes[np.lexsort((y1, x1, y0, x0, counting.image))]
        boxes = ordered[first + chosen % counts]
        least, most = boxes[:, :2], boxes[:, 2:]
    x, y = (0.5 * (least + most)).T
    return x, y
