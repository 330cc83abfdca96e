"""The torch module: training and evaluation, epochs and state, under a compiled model, and what it refuses."""

import copy
import io
import warnings
from typing import Any

import pytest
import torch

from augpipe import Augment, Recipe, recipes
from augpipe.nn import AugmentModule, evaluation_of
from augpipe.ops import CenterCrop, Flip, KeepObjects, Normalize, RandomResizedCrop
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, SEVERAL_VIEWS, arrays

IMAGES = [torch.from_numpy(picture) for picture in arrays(4)]
BATCH = torch.stack(IMAGES)


def model(module: AugmentModule) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(module, torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 3, 2))


def test_training_applies_the_recipe_and_evaluation_the_other() -> None:
    module = AugmentModule(PAPER, CENTRE, seed=3)
    ids = [4, 5, 6, 7]
    assert torch.equal(module(BATCH, ids), Augment(PAPER, 3)(BATCH, ids))
    assert torch.equal(module(IMAGES, sample_ids=ids), module(BATCH, ids))
    module.eval()
    assert torch.equal(module(BATCH, ids), Augment(CENTRE, 3)(BATCH, ids))
    module.train()
    assert torch.equal(module(BATCH, ids), Augment(PAPER, 3)(BATCH, ids))


def test_dtype_and_layout_are_the_transforms() -> None:
    module = AugmentModule(PAPER, dtype="bfloat16", layout="channels_last", num_threads=1)
    for mode in (True, False):
        found = module.train(mode)(BATCH)
        assert found.dtype == torch.bfloat16 and found.is_contiguous(memory_format=torch.channels_last)
    assert isinstance(module(BATCH.numpy()), torch.Tensor)


def test_ids_are_counted_in_training_alone() -> None:
    module, reference = AugmentModule(PAPER, seed=3), Augment(PAPER, 3)
    first = module(BATCH)
    module.eval()(BATCH)
    second = module.train()(BATCH)
    assert torch.equal(torch.cat([first, second]), reference([*IMAGES, *IMAGES], range(8)))


@pytest.mark.parametrize("is_training", [True, False])
def test_an_epoch_begins_again_with_other_draws(is_training: bool) -> None:
    module = AugmentModule(PAPER, PAPER, seed=3).train(is_training)
    first = module(BATCH)
    module.set_epoch(1)
    assert module.epoch == 1
    second = module(BATCH)
    assert torch.equal(second, Augment(PAPER, 3)(BATCH, range(4), epoch=1))
    assert not torch.equal(first, second)
    module.set_epoch(0)
    assert torch.equal(module(BATCH), first)


def test_the_state_goes_on_where_it_was_saved() -> None:
    module = AugmentModule(PAPER, seed=3)
    module.set_epoch(2)
    module(BATCH)
    file = io.BytesIO()
    torch.save(model(module).state_dict(), file)
    file.seek(0)
    other = AugmentModule(PAPER, seed=3)
    model(other).load_state_dict(torch.load(file, weights_only=True))
    assert other.epoch == 2
    expected = module(BATCH)
    assert torch.equal(other(BATCH), expected)
    assert torch.equal(expected, Augment(PAPER, 3)(BATCH, range(4, 8), epoch=2))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"epoch": 1}, "holds epoch and next_id, and this one is {'epoch': 1}"),
        (7, "holds epoch and next_id"),
        ({"epoch": -1, "next_id": 0}, "epoch=-1"),
        ({"epoch": 0, "next_id": 2**32}, "next_id must lie in"),
    ],
)
def test_a_state_of_something_else_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentModule(PAPER).load_state_dict({"_extra_state": state})


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_holds_it(backend: str) -> None:
    plain, compiled = model(AugmentModule(PAPER, seed=3)), model(AugmentModule(PAPER, seed=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own compiler
        run = torch.compile(compiled, backend=backend)
        for net, call in ((plain, plain), (compiled, run)):
            for _ in range(2):
                call(BATCH).square().sum().backward()
            assert net[2].weight.grad is not None
    assert torch.allclose(plain[2].weight.grad, compiled[2].weight.grad, rtol=1e-3)


def test_it_has_no_parameters_and_no_gradients() -> None:
    module = AugmentModule(PAPER)
    assert list(module.parameters()) == [] and list(module.buffers()) == []
    assert not module(BATCH).requires_grad


def test_it_is_copied() -> None:
    module = AugmentModule(PAPER, seed=3)
    module(BATCH)
    assert torch.equal(copy.deepcopy(module)(BATCH), module(BATCH))


def test_it_says_what_it_is() -> None:
    assert repr(AugmentModule(PAPER, CENTRE, seed=3)) == (
        "AugmentModule(recipe='deep_image', eval_recipe='evaluation', seed=3)"
    )


# The recipe of evaluation


def test_the_evaluation_of_the_paper_is_the_one_of_the_recipes() -> None:
    assert evaluation_of(recipes.deep_image()).ops == recipes.evaluation().ops


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ((RandomResizedCrop(size=224), Flip()), (CenterCrop(size=224, scale=256),)),
        ((RandomResizedCrop(size=(112, 224)),), (CenterCrop(size=(112, 224), scale=256),)),
        ((CenterCrop(size=20), Flip(), Normalize(std=(1, 1, 1))), (CenterCrop(size=20), Normalize(std=(1, 1, 1)))),
        ((Flip(),), ()),
    ],
)
def test_evaluation_is_the_centre_normalised_alike(ops: Any, expected: Any) -> None:
    recipe = Recipe(name="mine", border="edge", ops=ops)
    assert evaluation_of(recipe) == Recipe(name="evaluation of mine", ops=expected)
    assert AugmentModule(recipe).eval_recipe.num_variants == 1


def test_several_views_need_a_recipe_of_evaluation() -> None:
    with pytest.raises(ValueError, match=r"'several views' has 3 views.*Give eval_recipe"):
        AugmentModule(SEVERAL_VIEWS)
    found = AugmentModule(SEVERAL_VIEWS, CENTRE)(BATCH)
    assert [images.shape[-1] for images in found] == [20, 20, 8]


def test_a_module_sees_no_objects_that_a_crop_could_keep() -> None:
    with pytest.raises(ValueError, match=r"keeps objects \(random_resized_crop\), and no boxes are known to a module"):
        AugmentModule(Recipe(ops=[RandomResizedCrop(keep_objects=KeepObjects())]))
