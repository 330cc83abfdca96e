"""Planning: every random number of a batch is drawn here and nowhere else, and composed into records."""

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import MAX_SEED, MAX_WORD, whole_number, whole_numbers
from augpipe.ops.keep_objects import KnownObjects
from augpipe.ops.op import Op
from augpipe.planning.fields import bent_points, refuse_shuffles
from augpipe.planning.look_up import looked_at
from augpipe.planning.mixing_draws import draw_mixing, pastes, write_mixing
from augpipe.planning.mosaic_draws import placed_dtype
from augpipe.planning.planned_view import PlannedView, plan_view
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import check_recipe, refuse_keeping, refuse_mixing, refuse_pasting
from augpipe.validation.plural import count

Rows = npt.NDArray[np.void]

FORMAT = 3
"""What a saved plan's numbers mean: raised where a kind of step, a border or a field changes."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is done to each image of a batch. The same plan on the same pixels gives the same pixels."""

    recipe: Recipe
    """The recipe that it was drawn from."""
    seed: int
    """The seed that it was drawn with."""
    views: tuple[Rows, ...]
    """For each view of the recipe, (B,) records; see `planning.record.PLAN_FIELDS`."""

    @property
    def rows(self) -> Rows:
        """The (B,) records of the first view, which is the only one of most recipes."""
        return self.views[0]

    @property
    def sample_ids(self) -> npt.NDArray[np.int64]:
        """(B,) int64."""
        return self.rows["sample_id"].copy()  # one number alone is contiguous for numpy, whatever its steps

    @property
    def num_passes(self) -> int:
        """How often an image is looked up, one look-up after the other: `Recipe.num_passes`."""
        return self.recipe.num_passes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | npt.NDArray[Any]) -> "Plan":
        return Plan(recipe=self.recipe, seed=self.seed, views=tuple(rows[which] for rows in self.views))

    def to_source(
        self, points: npt.ArrayLike, position: int | npt.NDArray[np.integer[Any]] = 0, view: int = 0
    ) -> npt.NDArray[np.float64]:
        """Where in the upright image lies what points of an output show: predictions go back to the photograph.

        Args:
            points: (N, 2) x and y in pixels of the output, from its upper left corner.
            position: of the sample in the batch; (N,) for points of several samples.
            view: of the recipe's views.

        Returns:
            (N, 2) x and y in pixels of the image, from its upper left corner. NaN where CutMix has pasted another
            image there, or a mosaic shows another one or the fill; with MixUp and CopyPaste, it is the place in the
            sample's own.

        Raises:
            ValueError: the recipe shuffles cells, the shapes do not fit together, or there is no such sample or view.
        """
        refuse_shuffles(self.recipe)
        given = np.asarray(points, np.float64)
        if given.ndim != 2 or given.shape[1] != 2:
            raise ValueError(f"points has shape {given.shape}, and (N, 2) is needed: x and y of each point.")
        which = np.asarray(position)
        if which.dtype.kind not in "iu" or which.shape not in ((), (len(given),)):
            raise ValueError(
                f"position has shape {which.shape} and dtype {which.dtype}. Give one whole number, or one for each of "
                f"the {count(len(given), 'point')}."
            )
        if which.size and not (which.min() >= 0 and which.max() < len(self)):
            raise ValueError(
                f"position={which.min() if which.min() < 0 else which.max()} is out of range: the plan holds "
                f"{count(len(self), 'sample')}, with the positions 0..{len(self) - 1}."
            )
        if not -len(self.views) <= view < len(self.views):
            raise ValueError(
                f"view={view} is out of range: the recipe has {count(len(self.views), 'view')}, with the numbers "
                f"0..{len(self.views) - 1}."
            )
        item = np.broadcast_to(which, (len(given),)).astype(np.int64)
        found = bent_points(self.views[view], given, item)
        if self.recipe.mosaic is not None:
            shown = looked_at(self.views[view])[item]
            found[~((found >= shown[:, :2]) & (found <= shown[:, 2:])).all(axis=1)] = np.nan
        if self.recipe.mixing:
            mixed = self.views[view]["mixing"][item]
            region = mixed["region"]
            is_pasted = ((given >= region[:, :2]) & (given < region[:, 2:])).all(axis=1)
            found[is_pasted & pastes(self.recipe.mixing, mixed["kind"])] = np.nan
        return found

    def captions(self, position: int, view: int = 0) -> Iterator[tuple[str, str]]:
        """(op, drawn values in words) of one sample, for those ops that changed anything."""
        described = self.recipe.all_views[view]
        row = self.views[view][position]
        for key, op in described.keyed_ops:
            if op.record.names:
                text = op.caption(row["drawn"][key])
                if text:
                    yield key, text
        if self.recipe.mixing and row["mixing"]["kind"]:
            mix = self.recipe.mixing[row["mixing"]["kind"] - 1]
            yield mix.op, mix.caption(row["mixing"])
        if self.recipe.mosaic is not None and row["mosaic"]["applied"]:
            x, y = row["mosaic"]["centre"]
            yield "mosaic", f"with samples {', '.join(map(str, row['mosaic']['partners']))}, centre x {x}, y {y}"

    def __repr__(self) -> str:
        epochs = [f"epoch {epoch}" for epoch in np.unique(self.rows["epoch"])]
        passes = [f"{self.num_passes} passes"] if self.num_passes > 1 else []
        what = [f"Plan of {count(len(self), 'sample')}", *epochs, self.recipe.called, f"seed {self.seed}", *passes]
        return ", ".join(what)

    def __str__(self) -> str:
        lines = [f"plan of {count(len(self), 'sample')}, recipe {self.recipe.name or 'unnamed'}, seed {self.seed}"]
        if self.num_passes > 1:
            lines[0] += f", {self.num_passes} passes"
        for position in range(len(self)):
            for view, rows in enumerate(self.views):
                row = rows[position]
                which = f" view {view}" if len(self.views) > 1 else ""
                drawn = "; ".join(text for _, text in self.captions(position, view)) or "unchanged"
                lines.append(f"  sample {row['sample_id']} epoch {row['epoch']}{which}: {drawn}")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the plan to an .npz file.

        Raises:
            ValueError: its recipe calls a function of yours, which no file holds.
        """
        if self.recipe.has_functions:
            raise ValueError(
                f"{self.recipe.called} calls a function of yours ({self.recipe.functions_text}), which a file cannot "
                "hold. Note seed, epoch and sample_ids, and draw the plan again by augpipe.plan."
            )
        header = json.dumps({"format": FORMAT, "recipe": self.recipe.model_dump(mode="json"), "seed": self.seed})
        arrays: dict[str, Any] = {f"view_{i}": rows for i, rows in enumerate(self.views)}
        with open(path, "wb") as file:
            np.savez(file, header=np.array(header), **arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan that `save` wrote.

        Raises:
            ValueError: the file holds no plan, or one of another version's fields.
        """
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                header = json.loads(str(arrays["header"]))
                if (found := header.get("format", 1)) != FORMAT:
                    raise ValueError(f"its format is {found}, and this augpipe reads {FORMAT}; plan it again")
                recipe = Recipe.model_validate(header["recipe"])
                views = tuple(arrays[f"view_{i}"] for i in range(len(recipe.all_views)))
        except (KeyError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
            # of a pickle, numpy would advise to run what is in it
            is_other = isinstance(error, TypeError) or "pickle" in str(error)
            lacks = f"it has no {error.args[0].split()[0]}" if isinstance(error, KeyError) else error
            reason = "it is not an .npz file" if is_other else lacks
            raise ValueError(f"{path}: not a saved plan ({reason}). Give a file that Plan.save wrote.") from error
        for rows, expected in zip(views, plan(recipe, [], sizes=[]).views, strict=True):
            if rows.dtype != expected.dtype:
                raise ValueError(f"{path}: the plan's fields are those of another version of augpipe. Plan it again.")
        return cls(recipe=recipe, seed=int(header["seed"]), views=views)


def plan(
    recipe: Recipe,
    sample_ids: npt.ArrayLike,
    *,
    sizes: npt.ArrayLike,
    epoch: int = 0,
    seed: int = 0,
    positions: npt.ArrayLike | None = None,
    partners: npt.ArrayLike | None = None,
    objects: KnownObjects | None = None,
    placed: Rows | None = None,
    drawn_by: npt.NDArray[np.int64] | None = None,
) -> Plan:
    """Draw what is done to a batch.

    Args:
        recipe: the recipe.
        sample_ids: (B,) ids in 0..2^32 - 1; a sample's draws depend on its id alone, never on its place in the batch.
        sizes: (B, 2) height and width of each upright image, in pixels.
        epoch: 0..2^32 - 1.
        seed: 0..2^64 - 1.
        positions: (B,) where they stand in an epoch of a sampler, 0..2^32 - 1: a sample that comes twice is drawn for
            by position then, in streams of its own. None: all is drawn by sample id.
        partners: (B,) the sample that each is mixed with where the recipe's `mixing` says so, -1 for none; a loader
            finds them by position in the epoch. None: nothing is mixed.
        objects: of the images, where a crop of the recipe has `keep_objects`; others do not look at them.
        placed: (B,) `planning.mosaic_draws.placed_dtype`, which a recipe with a mosaic needs; a loader finds them.
        drawn_by: (B,) whose draws each has, where that is not its own sample: those of a mosaic share all of them.

    Raises:
        ValueError: an argument is out of range, or ids, sizes, positions, partners and objects differ in number; or the
            recipe keeps objects, and none are given.
    """
    # here and not in `draws` alone: a recipe that draws nothing has the same arguments
    ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).astype(np.int64).reshape(-1)
    seed, epoch = whole_number("seed", seed, 0, MAX_SEED), whole_number("epoch", epoch, 0, MAX_WORD)
    check_recipe(recipe)
    shape = np.asarray(sizes, np.int64)
    if shape.size % 2:
        raise ValueError(f"sizes has shape {shape.shape}, and (height, width) of each photograph are needed.")
    shape = shape.reshape(-1, 2)
    if len(shape) != len(ids):
        raise ValueError(f"sizes holds {len(shape)} entries for {len(ids)} sample_ids. Give one (height, width) each.")
    if len(shape) and shape.min() < 1:
        raise ValueError(f"sizes holds {shape.min()}: heights and widths are at least 1 pixel.")
    words = None
    if positions is not None:
        words = whole_numbers("positions", positions, 0, MAX_WORD).astype(np.int64).reshape(-1)
        if len(words) != len(ids):
            raise ValueError(f"positions holds {len(words)} entries for {len(ids)} sample_ids. Give one each.")
    objects = _checked_objects(recipe, objects, len(ids)) if recipe.keeping else None
    if recipe.mosaic is not None and placed is None:
        if len(ids):
            refuse_mixing(recipe, "a plan of single samples")
        placed = np.zeros(0, placed_dtype(recipe.mosaic))
    words = drawn_by if words is None else words
    views = tuple(
        plan_view(recipe, place, ids, epoch, seed, shape, words, positions is not None, objects, placed).rows
        for place in range(len(recipe.all_views))
    )
    if partners is not None and recipe.mixing:
        others = whole_numbers("partners", partners, -1, MAX_WORD).astype(np.int64).reshape(-1)
        if len(others) != len(ids):
            raise ValueError(f"partners holds {len(others)} entries for {len(ids)} sample_ids. Give one each.")
        refuse_pasting(recipe)
        words = ids if words is None else words
        drawn = draw_mixing(recipe.mixing, seed, epoch, words, is_sampled=positions is not None)
        write_mixing(views, recipe.mixing, drawn, others)
    return Plan(recipe=recipe, seed=seed, views=views)


def plan_ahead(
    recipe: Recipe, sample_ids: npt.NDArray[np.int64], *, sizes: npt.NDArray[np.int64], epoch: int, seed: int
) -> list[PlannedView]:
    """What `plan` draws for (B,) samples of images of (B, 2) sizes, and what it takes to have it for other sizes.

    Raises:
        ValueError: the epoch is out of range, or the recipe keeps objects.
    """
    epoch = whole_number("epoch", epoch, 0, MAX_WORD)
    objects = _checked_objects(recipe, None, len(sample_ids)) if recipe.keeping else None
    views = range(len(recipe.all_views))
    return [plan_view(recipe, view, sample_ids, epoch, seed, sizes, None, False, objects, None) for view in views]


def _checked_objects(recipe: Recipe, objects: KnownObjects | None, num: int) -> KnownObjects:
    if objects is None:
        if num:
            refuse_keeping(recipe)
        nobody, nothing = np.zeros(0, np.int64), np.empty((0, 4))
        return KnownObjects(counts=nobody, boxes=nothing, labels=nobody)
    if len(objects.counts) != num or int(objects.counts.sum()) != len(objects.boxes):
        raise ValueError(
            f"objects has counts of {count(len(objects.counts), 'image')} and {len(objects.boxes)} boxes, for "
            f"{count(num, 'sample id')}. Give one count each, which add up to the boxes."
        )
    if objects.labels is None and any(keep.classes for _, keep in recipe.keeping):
        raise ValueError(
            f"{recipe.called} keeps objects of some classes, and the objects have no labels. Give labels, or leave "
            "keep_objects.classes out."
        )
    return objects


def refusals(recipe: Recipe, sizes: Sequence[tuple[int, int]]) -> list[str | None]:
    """For each (height, width) why the recipe cannot use such an image, or None."""
    if recipe.mosaic is not None:  # crops see its canvas, which the recipe was checked for
        return [None] * len(sizes)
    chains = [view.crops for view in recipe.all_views]
    return [next((reason for chain in chains if (reason := _refusal(chain, *size))), None) for size in sizes]


def _refusal(chain: Sequence[Op], height: int, width: int) -> str | None:
    for op in chain:
        if reason := op.refuses(height, width):
            return reason
        if op is not chain[-1]:
            height, width = map(int, op.sides(height, width))
    return None
