"""How each image is shown to a network: scales, crops, mirrored or not; and how the answers become one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from augpipe.ops import CenterCrop, RandomResizedCrop, ResizeShortest
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.view import View
from augpipe.validation.arguments import as_count, check_choice
from augpipe.validation.models import changed

_WHOLE = (1e-3, 1e3)
"""Ratios of width and height within which an image is taken as a whole."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """What is shown of each image; by default what the trainer's own evaluation shows, the centre at one scale."""

    scales: tuple[int, ...] = ()
    """Short sides that images are resized to, in pixels; empty: that of the run's evaluation."""
    flip: bool = False
    """Show each view mirrored, too."""
    dense: bool = False
    """Show whole images to a `ConvNet` whose classifier looks at every place; the map of logits is averaged."""
    crops: int = 1
    """1: the centre; 10: four corners and the centre, each mirrored, too, as torchvision's TenCrop."""
    average: str = "softmax"
    """What is averaged over views, and over networks: "softmax", the probabilities, or "logits", before the softmax."""

    def __post_init__(self) -> None:
        for scale in self.scales:
            as_count("scales", scale)
        if len(set(self.scales)) < len(self.scales):
            raise ValueError(f"scales={list(self.scales)} names one twice. Give each once.")
        check_choice("crops", self.crops, (1, 10))
        check_choice("average", self.average, ("softmax", "logits"))
        if self.dense and self.crops != 1:
            raise ValueError("dense looks at every place of an image, and crops=10 at ten. Leave one of the two out.")
        if self.flip and self.crops == 10:
            raise ValueError("crops=10 has each crop mirrored already. Leave flip out.")

    @property
    def takes_whole(self) -> bool:
        """Whether whole images are shown, at their own aspect ratio."""
        return self.dense or self.crops == 10

    @property
    def num_views(self) -> int:
        """Answers that are averaged for an image, where a run's own scale counts as one."""
        return max(len(self.scales), 1) * self.crops * (2 if self.flip else 1)

    def __str__(self) -> str:
        shown = "dense" if self.dense else "10 crops" if self.crops == 10 else "centre"
        scales = f" at {', '.join(map(str, self.scales))} px" if self.scales else ""
        return f"{shown}{scales}{', mirrored too' if self.flip else ''}"


def centre_recipe(recipe: Recipe, scales: tuple[int, ...]) -> Recipe:
    """The centre at each scale: a view each of `recipe`'s size, with its other ops.

    Args:
        recipe: of the run's evaluation.
        scales: short sides in pixels; empty: `recipe` as it is.

    Raises:
        ValueError: a scale is smaller than the images that the network takes.
    """
    size = recipe.all_views[0].out_size
    assert size is not None, "a run's recipes have a crop"
    for scale in scales:
        if scale < max(size):
            raise ValueError(
                f"scales={scale} is below the network's least: it takes images of {size[0]}x{size[1]} pixels, and a "
                f"crop cannot exceed the resized image. Give {max(size)} or more."
            )
    return _with_crops(recipe, [CenterCrop(size=size, scale=scale) for scale in scales]) if scales else recipe


def whole_recipe(recipe: Recipe, sizes: tuple[tuple[int, int], ...]) -> Recipe:
    """Whole images resized to each of `sizes` (height, width): a view each, with `recipe`'s other ops."""
    return _with_crops(recipe, [RandomResizedCrop(size=size, ratio=_WHOLE, p=0.0) for size in sizes])


def _with_crops(recipe: Recipe, crops: list[CenterCrop] | list[RandomResizedCrop]) -> Recipe:
    others = tuple(op for op in recipe.all_views[0].ops if not op.is_crop)
    views = tuple(View(ops=(crop, *others)) for crop in crops)
    return changed(recipe, ops=(), views=views, mixing=())


def usual_scale_of(recipe: Recipe) -> int:
    """The short side that a run's evaluation resizes images to, in pixels; its own size where it resizes to none."""
    for op in recipe.all_views[0].crops:
        if isinstance(op, ResizeShortest):
            return op.size
        if isinstance(op, CenterCrop) and op.scale is not None:
            return op.scale
    size = recipe.all_views[0].out_size
    assert size is not None
    return max(size)


def shown(images_NCHW: Tensor, views: Views, size: tuple[int, int]) -> Iterator[Tensor]:
    """Each view of a batch at one scale.

    Args:
        images_NCHW: whole images where `views` takes those, else centres.
        views: which.
        size: height and width that the network takes, in pixels.
    """
    if views.crops == 10:
        yield from ten_crops(images_NCHW, *size)
        return
    yield images_NCHW
    if views.flip:
        yield images_NCHW.flip(3)


def ten_crops(images_NCHW: Tensor, height: int, width: int) -> Iterator[Tensor]:
    """Top left, top right, bottom left, bottom right, centre; then those of the mirrored images."""
    down, right = images_NCHW.shape[2] - height, images_NCHW.shape[3] - width
    assert down >= 0 and right >= 0
    # halves to even, as torchvision's round() does
    corners = ((0, 0), (0, right), (down, 0), (down, right), (round(down / 2), round(right / 2)))
    for seen in (images_NCHW, images_NCHW.flip(3)):
        for top, left in corners:
            yield seen[:, :, top : top + height, left : left + width]


def average_answers(log_probs: Tensor, weights: Tensor, how: str) -> Tensor:
    """One answer of several.

    Args:
        log_probs: (V, ..., C) logarithms of probabilities.
        weights: (V,) above 0, of any sum.
        how: "softmax": the mean of the probabilities; "logits": the softmax of the mean of the logits, from which these
            logarithms differ by a constant each.

    Returns:
        (..., C) logarithms of probabilities.
    """
    shares = (weights / weights.sum()).to(log_probs).reshape(-1, *[1] * (log_probs.ndim - 1))
    if how == "softmax":
        return torch.logsumexp(log_probs + shares.log(), 0)
    return torch.log_softmax((shares * log_probs).sum(0), -1)
