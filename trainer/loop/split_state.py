"""The state of a network whose layers are split: what a checkpoint holds of it, cut again for other model ranks.

A checkpoint has the same names and whole shapes whether layers were split or not. Weights, their average and optimizer
state that stands by parameter are written by parts, under "common"; slices of lazy owners are each rank's own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from augpipe.trainer.checkpoint import Box, BoxAt
from augpipe.trainer.parallel import Split
from augpipe.trainer.parallel.layers import Part
from augpipe.trainer.strategies.state import FORMAT

_FULL = ("format", "kind", "groups", "state")
"""What of a whole state stands by parameter, and is the same on every rank."""
_BY_NAME = ("state", "update_residuals")


def box_of(part: Part, rank: int) -> Box:
    """Where a rank's part lies in the whole parameter."""
    offsets = [0] * len(part.shape)
    offsets[part.dim] = part.range_of(rank)[0]
    return Box(shape=part.shape, offsets=tuple(offsets), sizes=part.shape_of(rank))


def boxes_of(split: Split | None) -> dict[str, Box]:
    """By its name, the part that this rank has of each split parameter."""
    if split is None:
        return {}
    return {name: box_of(part, split.mesh.model_rank) for name, part in split.parts.items()}


def box_at(boxes: Mapping[str, Box]) -> BoxAt:
    """Find a parameter's box by a place in the state, as "/optimizer/state/NAME/exp_avg" or "/ema/module.NAME"."""

    def find(place: str) -> Box | None:
        names = place.split("/")[2:3] if place.startswith(("/model/", "/ema/")) else place.split("/")[3:4]
        return boxes.get(names[0].removeprefix("module.") if place.startswith("/ema/") else names[0]) if names else None

    return find


def describe(split: Split | None) -> dict[str, Any] | None:
    """What whoever reads a checkpoint must know of the layers' parts."""
    if split is None:
        return None
    parts = {name: {"shape": part.shape, "dim": part.dim, "cuts": part.cuts} for name, part in split.parts.items()}
    return {"model_size": split.mesh.model_size, "num_forwards": split.num_forwards, "parts": parts}


def is_cut_alike(saved: Mapping[str, Any] | None, split: Split | None) -> bool:
    """Whether each model rank has the parts that it had."""
    now = describe(split)
    return saved is not None and now is not None and all(saved[key] == now[key] for key in ("model_size", "parts"))


def common_state(synced: Mapping[str, Any]) -> dict[str, Any] | None:
    """What of a strategy's state stands by parameter, the same on all ranks; None where nothing does."""
    full = [piece for piece in _pieces(synced) if piece["kind"] == "full"]
    if not full:
        return None
    state = {name: values for piece in full for name, values in piece["state"].items()}
    groups = [group for piece in full for group in piece["groups"]]
    return {"format": FORMAT, "kind": "full", "groups": groups, "state": state}


def own_state(synced: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of it: this rank's slices and residuals."""

    def rest(piece: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if piece is None or piece["kind"] != "full":
            return None if piece is None else dict(piece)
        return {key: value for key, value in piece.items() if key not in _FULL}

    if synced["kind"] != "split":
        return rest(synced) or {}
    shards = {rank: rest(piece) for rank, piece in synced["shards"].items()}
    return {**synced, "rest": rest(synced["rest"]), "shards": shards}


def rejoined(own: Mapping[str, Any], common: Mapping[str, Any] | None, shards: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a split network's strategy from both; `shards` has the names of the split parameters."""

    def whole(piece: Mapping[str, Any] | None, *, is_shards: bool) -> dict[str, Any] | None:
        if piece is None or "kind" in piece:
            return None if piece is None else dict(piece)
        assert common is not None
        groups = [group for group in common["groups"] if (group["params"][0] in shards) == is_shards]
        state = {name: values for name, values in common["state"].items() if (name in shards) == is_shards}
        return {**piece, "format": FORMAT, "kind": "full", "groups": groups, "state": state}

    pieces = {rank: whole(piece, is_shards=True) for rank, piece in own["shards"].items()}
    return {**own, "rest": whole(own["rest"], is_shards=False), "shards": pieces}


def fitted(full: Mapping[str, Any], now: Mapping[str, Any], own: Mapping[str, Any] | None) -> dict[str, Any]:
    """A full state for a strategy whose state is of the kind of `now`; `own` is what of this rank's own goes with it.

    Raises:
        ValueError: it is of other parameters.
    """
    wanted = {name for piece in _pieces(now) for group in piece["groups"] for name in group["params"]}
    saved = {name for group in full["groups"] for name in group["params"]}
    if wanted != saved:
        raise ValueError(
            f"the state is of {len(saved)} parameters and the optimizer of {len(wanted)}, or of others (first: "
            f"{min(wanted ^ saved)}): build the optimizer as it was when saved."
        )

    def piece_of(piece: Mapping[str, Any] | None, kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if piece is None:
            return None
        names = {name for group in piece["groups"] for name in group["params"]}
        by_name = {
            key: {name: full[key][name] for name in full[key] if name in names} for key in full if key in _BY_NAME
        }
        groups = [_regrouped(group["params"], full["groups"]) for group in piece["groups"]]
        return {**(kept or {}), "format": FORMAT, "kind": "full", "groups": groups, **by_name}

    if now["kind"] != "split":
        return piece_of(now, None) or {}
    shards = {rank: piece_of(piece, own and own["shards"].get(rank)) for rank, piece in now["shards"].items()}
    return {**now, "rest": piece_of(now["rest"], own and own["rest"]), "shards": shards}


def _regrouped(names: list[str], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group of these parameters, with the options of the saved one that had the first of them."""
    like = next(group for group in groups if names[0] in group["params"])
    return {**like, "params": names}


def _pieces(synced: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pieces = [synced["rest"], *synced["shards"].values()] if synced["kind"] == "split" else [synced]
    return [piece for piece in pieces if piece is not None]


class Gathering:
    """Puts an optimizer's whole state together from what each rank had of it, and keeps this rank's parts alone."""

    def __init__(self, common: Mapping[str, Any], boxes: Mapping[str, Box]) -> None:
        """`common`: what the checkpoint's ranks had in common; `boxes`: this rank's parts now."""
        saved = common.get("parallel")
        self._saved = {
            name: Part(shape=tuple(about["shape"]), dim=about["dim"], cuts=tuple(about["cuts"]))
            for name, about in (saved["parts"] if saved else {}).items()
        }
        self._boxes = boxes
        full = common["optimizer"] or {"groups": [], "state": {}}
        self._groups: list[Any] = list(full["groups"])
        self._found: dict[str, dict[str, dict[str, Any]]] = {"state": dict(full["state"]), "update_residuals": {}}
        self._num_filled: dict[tuple[str, str, str], int] = {}

    def add(self, synced: Mapping[str, Any]) -> None:
        """Take what belongs to this rank from a rank's own."""
        if synced.get("kind") == "split":
            sources = [(synced["rest"], 0), *((piece, rank) for rank, piece in synced["shards"].items())]
        else:
            sources = [(synced, 0)]
        for source, model_rank in sources:
            if source is None or source.get("kind") != "shard":
                continue
            known = {name for group in self._groups for name in group["params"]}
            self._groups += [group for group in source["groups"] if group["params"][0] not in known]
            for name, (shape, stride) in source["shapes"].items():
                for (start, stop), values in source["state"].get(name, {}).items():
                    for entry, value in values.items():
                        self._take(("state", name, entry), value, (start, stop), (shape, stride), model_rank)
                for (start, stop), value in source["update_residuals"].get(name, {}).items():
                    self._take(("update_residuals", name, ""), value, (start, stop), (shape, stride), model_rank)

    def full(self) -> dict[str, Any]:
        """The state of whole parameters, and of this rank's parts of split ones.

        Raises:
            ValueError: a part of a parameter's state was in no rank's.
        """
        for (kind, name, entry), num in self._num_filled.items():
            target = self._found[kind][name][entry]
            if num != target.numel():
                raise ValueError(
                    f"the ranks' states have {num} of {target.numel()} elements of {entry or kind} of {name}: the "
                    "checkpoint is not of one run."
                )
        residuals = {name: entries[""] for name, entries in self._found["update_residuals"].items()}
        return {
            "format": FORMAT,
            "kind": "full",
            "groups": self._groups,
            "state": self._found["state"],
            "update_residuals": residuals,
        }

    def _take(
        self,
        where: tuple[str, str, str],
        value: Any,
        span: tuple[int, int],
        layout: tuple[Sequence[int], Sequence[int]],
        model_rank: int,
    ) -> None:
        """Copy a slice's values, elements `span` of a parameter of this (shape, stride) in the order of its memory."""
        kind, name, entry = where
        entries = self._found[kind].setdefault(name, {})
        if not isinstance(value, Tensor) or value.ndim == 0:
            entries.setdefault(entry, value)
            return
        shape, stride = tuple(layout[0]), tuple(layout[1])
        source = box_of(self._saved[name], model_rank) if name in self._saved else Box.all_of(shape)
        wanted = self._boxes.get(name, Box.all_of(source.shape))
        if entry not in entries:
            # whole tensors keep the order of memory, split ones are contiguous
            kept = source.sizes == wanted.sizes == source.shape
            entries[entry] = (
                value.new_empty(math.prod(shape)).as_strided(shape, stride) if kept else value.new_empty(wanted.sizes)
            )
        target = entries[entry]
        filled = 0
        if target.stride() == stride and source == wanted:
            torch.as_strided(target, (math.prod(shape),), (1,))[span[0] : span[1]] = value
            filled = len(value)
        else:
            for offsets, sizes, position in boxes_in_span(source.sizes, *span):
                starts = tuple(a + b for a, b in zip(source.offsets, offsets, strict=True))
                box = Box(shape=source.shape, offsets=starts, sizes=sizes)
                common = box.common_with(wanted)
                if common is not None:
                    values = value[position : position + math.prod(sizes)].view(sizes)
                    common.within(target, wanted).copy_(common.within(values, box))
                    filled += math.prod(common.sizes)
        self._num_filled[where] = self._num_filled.get(where, 0) + filled


def boxes_in_span(
    shape: Sequence[int], start: int, stop: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """(offsets, sizes, elements before it) of the boxes that elements `start` to `stop` of a contiguous tensor are."""
    if len(shape) == 1:
        yield (start,), (stop - start,), 0
        return
    inner = math.prod(shape[1:])
    position = start
    while position < stop:
        row, column = divmod(position, inner)
        if column == 0 and stop - position >= inner:
            num = (stop - position) // inner
            yield (row, *[0] * (len(shape) - 1)), (num, *shape[1:]), position - start
            position += num * inner
        else:
            end = min(stop, (row + 1) * inner)
            for offsets, sizes, before in boxes_in_span(shape[1:], column, column + end - position):
                yield (row, *offsets), (1, *sizes), position - start + before
            position = end
