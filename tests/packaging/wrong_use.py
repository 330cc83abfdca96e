"""Mistakes that a type checker finds, each on a line that says so; for mypy and pyright (test_types.py), never run."""

from typing import assert_type

import torch

from augpipe import Loader, Recipe, ops

Recipe(ops=["flip"])  # wrong
Recipe(ops=[ops.Flip()], bordr="edge")  # wrong
ops.Flip(p="often")  # wrong
loader = Loader("photos/", Recipe(), batch_size="many")  # wrong
Loader("photos/", Recipe(), batch_size=1, framework="jax")  # wrong
Loader("photos/", Recipe(), batch_size=1, dtype="float64")  # wrong
for images, _ in loader:
    assert_type(images, torch.Tensor)
    images.shap  # wrong  # noqa: B018
