"""Records of a view: what its ops draw and do to frames, and what of that changes with the size of an image."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.plan_records import BORDERS, INTERPOLATIONS
from augpipe.gpu_ops.image.program_rows import copied
from augpipe.gpu_ops.random.philox import seed_key
from augpipe.ops.colour import make_gray
from augpipe.ops.frame import Frame
from augpipe.ops.groups import OfSome
from augpipe.ops.keep_objects import KnownObjects, seen_objects
from augpipe.ops.op import Drawn, Op
from augpipe.ops.random_words import RandomWords, Stream
from augpipe.ops.view_passes import Keyed, has_own_look, own_beyond_of, own_look_of
from augpipe.planning.composed import write_look_up, write_steps
from augpipe.planning.plan_record import plan_dtype
from augpipe.planning.record_passes import EARLIER, first_pass
from augpipe.recipes.recipe import Recipe

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedView:
    """The records of a view, and what they were made of."""

    recipe: Recipe
    position: int
    """Which of the recipe's views it is."""
    rows: Rows
    """(B,) plan records."""
    frame: Frame
    """The frame of the first pass, once all its ops have acted."""
    words: dict[str, RandomWords]
    """The random words of each op that draws."""

    def resized(self, own: slice, sizes: npt.NDArray[np.int64]) -> Rows:
        """(N,) the records of some samples for images of other sizes, given `Recipe.sized_ops` of the view.

        It draws and applies the ops that look at the size again, and takes all else as it is.

        Args:
            own: which samples.
            sizes: (N, 2) height and width of their images, in pixels.
        """
        sized = self.recipe.sized_ops[self.position]
        assert sized is not None, "only views whose sized ops are known are planned ahead for any size"
        frame = Frame(sizes[:, 0], sizes[:, 1], self.frame.crops)
        rows, all_drawn = copied(self.rows[own]), {}
        for key, op in sized:
            drawn = op.draw(self.words[key].of(own), frame) if op.num_words else {}
            op.apply(frame, drawn)
            if drawn:
                all_drawn[key] = drawn
        _write_drawn(rows["drawn"], all_drawn)
        is_cropped_again = len(frame.crops) > sum(op.is_crop for _, op in sized)
        frame.act_as(self.frame, own, has_its_sides=is_cropped_again)
        first = first_pass(rows)
        write_look_up(first, frame, self.recipe, self.recipe.all_views[self.position])
        if first is not rows:
            rows["height"], rows["width"] = sizes[:, 0], sizes[:, 1]
        return rows


def plan_view(
    recipe: Recipe,
    position: int,
    ids: npt.NDArray[np.int64],
    epoch: int,
    seed: int,
    sizes: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64] | None,
    is_sampled: bool,
    objects: KnownObjects | None,
    placed: Rows | None,
) -> PlannedView:
    """Draw what a view does to a batch; the arguments are those of `planning.plan.plan`, checked.

    Args:
        recipe: the recipe.
        position: of the view.
        ids: (B,) sample ids.
        epoch: the epoch.
        seed: the seed.
        sizes: (B, 2) height and width of each upright image, in pixels.
        words: (B,) what is drawn by instead of the ids; None for these.
        is_sampled: whether these are positions of a sampler.
        objects: of the images.
        placed: of a mosaic.
    """
    view = recipe.all_views[position]
    sampled = ":sampled" if is_sampled else ""
    drawn_by = (ids if words is None else words).astype(np.uint32)
    passes = recipe.passes[position]
    frames = [Frame(sizes[:, 0], sizes[:, 1], _crops_of(passes[0]), objects)]
    frame = frames[0]
    if recipe.mosaic is not None and placed is not None:
        recipe.mosaic.place(frame, placed["applied"], placed["place"])
    places: dict[str, int] = {}
    stages: Counter[str] = Counter()
    all_drawn: dict[str, Drawn] = {}
    all_words: dict[str, RandomWords] = {}
    for nth, acting in enumerate(passes):
        if nth:
            frame = _next_frame(frame, acting)
            frames.append(frame)
        for key, op in acting:
            drawn = all_drawn.get(key, {})
            if key not in stages:  # groups may take several passes
                place = places.setdefault(op.op, 0)
                places[op.op] += 1
                if op.num_words:
                    drawn_in = 0 if op.alternates else epoch
                    stream = Stream(seed_key(seed), drawn_in, drawn_by, f"{op.op}:{place}:{position}{sampled}")
                    all_words[key] = RandomWords(stream.words(op.num_words), stream, epoch)
                    drawn = all_drawn[key] = op.draw(all_words[key], frame)
            if has_own_look(op):
                op.apply_stage(frame, drawn, stages[key])
            else:
                op.apply(frame, drawn)
            stages[key] += 1
    if recipe.channels == 1 and (len(frames) > 1 or not view.ends_gray):  # a later pass may show a fill with colours
        make_gray(frame)
    rows: Rows = np.zeros(len(ids), plan_dtype(view, frames, bool(recipe.mixing), recipe.mosaic))
    if placed is not None:
        rows["mosaic"] = placed
    if recipe.mixing:
        rows["mixing"]["partner"], rows["mixing"]["weight"] = -1, 1.0
    _write_drawn(rows["drawn"], all_drawn)
    cubic = INTERPOLATIONS.index("bicubic" if recipe.antialias else "sharp bicubic")
    records = [*(rows[EARLIER][f"pass_{nth + 1}"] for nth in range(len(frames) - 1)), rows]
    for nth, (record, frame, acting) in enumerate(zip(records, frames, passes, strict=True)):
        record["sample_id"], record["epoch"], record["view"] = ids, epoch, position
        own_look = own_look_of(acting)
        write_look_up(record, frame, recipe, view, stands_alone=own_look is not None, own_beyond=own_beyond_of(acting))
        write_steps(record, frame)
        if placed is not None:
            record["border"][placed["applied"]] = BORDERS.index("meeting")
        look = own_look or recipe.interpolation
        if look == "random":
            stream = Stream(seed_key(seed), epoch, drawn_by, f"interpolation:{_looks(passes, nth)}:{position}{sampled}")
            is_cubic = RandomWords(stream.words(1), stream, epoch).happens(0, 0.5)
            record["interpolation"] = np.where(is_cubic, cubic, 0)
        else:
            record["interpolation"] = cubic if look == "bicubic" else INTERPOLATIONS.index(look)
    if len(frames) > 1:
        rows["height"], rows["width"] = sizes[:, 0], sizes[:, 1]
    return PlannedView(recipe=recipe, position=position, rows=rows, frame=frames[0], words=all_words)


def _looks(passes: Sequence[Keyed], nth: int) -> str:
    """What looks in a pass, by a name that does not depend on other ops: a group, and in which of its passes; else "0",
    the recipe."""
    group = next((key for key, op in passes[nth] if has_own_look(op)), None)
    return "0" if group is None else f"{group}.{sum(group in dict(before) for before in passes[:nth])}"


def _crops_of(acting: Keyed) -> tuple[Op, ...]:
    """The crops of a pass, in order."""
    return tuple(op for _, op in acting if op.is_crop)


def _next_frame(frame: Frame, acting: Keyed) -> Frame:
    """The frame that a pass begins with, whose images are what the pass before it has made of its own frame."""
    objects = None if frame.objects is None or frame.is_mapped else seen_objects(frame)
    return Frame(frame.out_heights, frame.out_widths, _crops_of(acting), objects)


def _write_drawn(records: Rows, drawn: Mapping[str, Any], rows: npt.NDArray[np.int64] | None = None) -> None:
    """Fill records, or some of their `rows`, with what was drawn, that of ops within ops, too."""
    for name, values in drawn.items():
        if isinstance(values, OfSome):
            if values.drawn:
                _write_drawn(records[name], values.drawn, values.rows if rows is None else rows[values.rows])
        elif isinstance(values, Mapping):
            _write_drawn(records[name], values, rows)
        elif rows is None:
            records[name] = values
        else:
            records[name][rows] = values
