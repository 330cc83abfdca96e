"""Augmentation as a torch module in front of a model; this file imports torch, and `import augpipe` does not."""

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from augpipe.augment import Augment
from augpipe.gpu_ops.random.philox import MAX_WORD, whole_numbers
from augpipe.planning.output_format import DTypeLike, Layout
from augpipe.recipes import evaluation_of
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import refuse_keeping


class AugmentModule(torch.nn.Module):
    """`Augment` as a module: images in, and what the model takes out, on the device where the images lie.

    In training mode it applies `recipe`, in evaluation mode `eval_recipe`. It has no parameters and no gradients.
    `torch.compile` of a model that holds it compiles the rest and breaks the graph here, so it does not go together
    with `fullgraph=True`. `state_dict` holds its place in training: the epoch and the next image's id.

    Without ids, processes are told apart as by `Augment`: each worker of a DataLoader draws for itself. The
    replicas of `torch.nn.DataParallel` count together, so no two images are treated alike, but which image gets
    which id depends on their threads; with ids it does not.

    Args:
        recipe: what is done to each image in training, as for `Augment`.
        eval_recipe: what is done to each image in evaluation; None for `recipes.evaluation_of(recipe)`.
        seed: 0..2^64 - 1. Where several ranks train, give each its own (seed + rank): they count alike.
        dtype, layout, num_threads: as for `Augment`.

    Raises:
        ValueError: an argument is out of range, or `recipe` has several views and `eval_recipe` is not given,
            or it has a crop with `keep_objects`: a module sees no boxes.
    """

    def __init__(
        self,
        recipe: Recipe | str | Path,
        eval_recipe: Recipe | str | Path | None = None,
        *,
        seed: int = 0,
        dtype: DTypeLike = "float32",
        layout: Layout = "NCHW",
        num_threads: int | None = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {
            "dtype": dtype,
            "layout": layout,
            "num_threads": num_threads,
            "framework": "torch",
        }
        self._train = Augment(recipe, seed, **options)
        refuse_keeping(self.recipe, "to a module")
        self._eval = Augment(evaluation_of(self.recipe) if eval_recipe is None else eval_recipe, seed, **options)

    @property
    def recipe(self) -> Recipe:
        """What is done in training."""
        return self._train.recipe

    @property
    def eval_recipe(self) -> Recipe:
        """What is done in evaluation."""
        return self._eval.recipe

    @property
    def epoch(self) -> int:
        """The epoch that draws are made for."""
        return self._train.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, 0..2^32 - 1; images without ids are counted from 0 again."""
        self._train.set_epoch(epoch)
        self._eval.set_epoch(epoch)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, images: Any, sample_ids: npt.ArrayLike | None = None) -> Any:
        """Augment a batch.

        Args:
            images: a list of (H, W, 3) or (3, H, W) uint8 tensors, a (B, H, W, 3) or (B, 3, H, W) tensor, or whatever
                else `Augment` takes.
            sample_ids: (B,) on the CPU: the same id, epoch and seed give the same pixels. None counts on; evaluation
                counts apart, so that it does not change what training draws.

        Returns:
            As of `Augment`: (B, 3, height, width) on the images' device, a tuple of them for several views.
        """
        augment = self._train if self.training else self._eval
        return augment(images, sample_ids)

    def get_extra_state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next_id": self._train.next_id % 2**32}

    def set_extra_state(self, state: Any) -> None:
        if not isinstance(state, dict) or state.keys() != {"epoch", "next_id"}:
            raise ValueError(f"the state of an AugmentModule holds epoch and next_id, and this one is {state!r}.")
        next_id = int(whole_numbers("next_id", state["next_id"], 0, MAX_WORD))
        self.set_epoch(state["epoch"])
        self._train.next_id = next_id

    def extra_repr(self) -> str:
        return f"recipe={self.recipe.name!r}, eval_recipe={self.eval_recipe.name!r}, seed={self._train.seed}"
