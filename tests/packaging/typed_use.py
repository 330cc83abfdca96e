"""What users write, and the types that a checker gives it; read by mypy and pyright (test_types.py), never run."""

from collections.abc import Iterator
from typing import Any, assert_type

import numpy.typing as npt
import torch

from augpipe import Batch, Loader, MixedLabels, Place, Plan, Recipe, Schedule, View, ops, policies, recipes

Array = npt.NDArray[Any]

recipe = Recipe(ops=[ops.RandomResizedCrop(size=224), ops.Flip(), ops.Normalize()])
Recipe(ops=(ops.Flip(), ops.Normalize()))
Recipe(ops=[*policies.rand_augment(2, 5), ops.Normalize()])
Recipe(ops=[ops.OneOf(ops=[ops.Rotate(), ops.Identity()], weights=[2, 1]), ops.MultiResolutionCrop(scales=[256, 512])])
Recipe(views=[View(ops=[ops.CenterCrop(size=32)], count=2)])
Recipe(ops=recipe.ops, views=recipe.views, mixing=[ops.MixUp(p=0.5), ops.CutMix(p=0.3)])
assert_type(recipes.deep_image(), Recipe)
assert_type(Recipe.load("mine.toml"), Recipe)
assert_type(Schedule.of({0: recipe}), Schedule)

chosen = [ops.Flip(), ops.Normalize()]
Recipe(ops=chosen)

tensors = Loader("photos/", recipe, batch_size=32, seed=1)
for images, labels in tensors:
    assert_type(images, torch.Tensor)
    assert_type(labels, torch.Tensor)
for batch in tensors:
    assert_type(batch, Batch[torch.Tensor])
    assert_type(batch.images, torch.Tensor)
    assert_type(batch.plan, Plan)
for place_images, _ in tensors.batches([Place(epoch=3, first=512)]):
    assert_type(place_images, torch.Tensor)
for tensor_images, _ in Loader("photos/", {0: recipe}, batch_size=32, framework="torch"):
    assert_type(tensor_images, torch.Tensor)

arrays = Loader("photos/", recipe, batch_size=32, framework="numpy")
for array_images, array_labels in arrays:
    assert_type(array_images, Array)
    assert_type(array_labels, Array)
assert_type(next(arrays.batches([Place(epoch=0, first=0)])), Batch[Array])

for (_, _), labels in tensors:  # of two views
    MixedLabels(*labels).soft(num_classes=10)


def train(loader: Loader) -> None:
    """`Loader` by itself gives tensors."""
    for images, _ in loader:
        assert_type(images, torch.Tensor)


def any_images(loader: Loader[Any]) -> Iterator[Batch]:
    """Loaders of either kind."""
    yield from loader


train(tensors)
any_images(arrays)
