"""Fine-tuning trains the layers that were asked for, and nothing else changes: no weight, no statistic."""

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor, nn

from augpipe.trainer.models import build, names
from augpipe.trainer.models.finetune import last_layer, trainable

HEADS = {
    "deep-image-16": ("classifier.0", "classifier.3", "classifier.6"),
    "deep-image-19": ("classifier.0", "classifier.3", "classifier.6"),
    "scaling-8conv": ("classifier.0", "classifier.3", "classifier.6"),
    "alexnet": ("classifier.0", "classifier.3", "classifier.6"),
    "mnist-mlp": ("2", "5", "8"),
    "mullapudi-mlp": ("2", "5", "8"),
    "cifar-conv": ("13",),
    "resnet-18": ("fc",),
    "resnet-50": ("fc",),
    "small-cnn": ("classifier.1",),
}
"""The fully connected layers of each network, the first ones first."""


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return build(name, num_classes=3)


def trained_layers(model: nn.Module) -> set[str]:
    return {name.rpartition(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("name", names())
def test_every_network_trains_its_last_layers(name: str) -> None:
    model, heads = on_meta(name), HEADS[name]
    assert last_layer(model) == heads[-1]
    assert trainable(model, "last").layers == heads[-1:]
    assert trained_layers(model) == {heads[-1]}
    for num in range(1, len(heads) + 1):
        chosen = trainable(model, f"last-fc:{num}")
        assert chosen.layers == heads[-num:]
        assert trained_layers(model) == set(heads[-num:])
        assert chosen.num_trained == sum(
            p.numel() for layer in chosen.layers for p in model.get_submodule(layer).parameters()
        )
    assert trainable(model, "all").num_frozen == 0
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_one_more_layer_than_there_is_is_refused() -> None:
    model = on_meta("resnet-18")
    message = "trainable='last-fc:2' asks for 2 fully connected layers, and the model has 1: fc. Lower N, or"
    with pytest.raises(ValueError, match=re.escape(message)):
        trainable(model, "last-fc:2")
    with pytest.raises(ValueError, match="the model has 0: none"):
        trainable(nn.Sequential(nn.Conv2d(1, 1, 1)), "last-fc:1")


@pytest.mark.parametrize("which", ["last-fc:0", "last-fc", "last-fc:-1", "last-fc:1.5", "first", ""])
def test_another_word_is_refused(which: str) -> None:
    message = f'trainable={which!r} is not known. Choose "all", "last-fc:N" with N from 1, or "last".'
    with pytest.raises(ValueError, match=re.escape(message)):
        trainable(on_meta("small-cnn"), which)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="the model, a Sequential, has no weights to train"):
        trainable(nn.Sequential(nn.ReLU()), "last")


def step(model: nn.Module) -> dict[str, Tensor]:
    """The state_dict after one step of training with weight decay."""
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, weight_decay=0.1)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1)) + 3
    nn.functional.cross_entropy(model(images), torch.arange(8) % 3).backward()
    optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", ["small-cnn", "resnet-18"])
def test_a_step_changes_the_head_alone_and_no_statistic(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, num_classes=3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    head = last_layer(model)
    trainable(model, "last")
    after = step(model)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {f"{head}.weight", f"{head}.bias"}
    trainable(model, "all")
    unfrozen = step(model)
    assert [key for key in before if torch.equal(after[key], unfrozen[key])] == []


def test_frozen_normalisation_uses_its_statistics_while_training() -> None:
    torch.manual_seed(0)
    model = build("small-cnn", num_classes=3)
    images = torch.randn(8, 3, 32, 32) + 3
    trainable(model, "last")
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert model.training and not any(norm.training for norm in norms)  # at once, and not from the next train() on
    model.eval()
    expected = model(images)
    model.train()
    assert model.training
    torch.testing.assert_close(model(images), expected)
    trainable(model, "all")
    model.train()
    assert not torch.allclose(model(images), expected)


def test_normalisation_in_a_layer_that_trains_is_not_frozen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2), nn.BatchNorm1d(2))
    trainable(model, "last")
    model.train()
    assert [module.training for module in model] == [False, True, True]
    trainable(model, "last-fc:1")
    model.train()
    assert [module.training for module in model] == [False, True, False]


def test_dropout_is_left_as_it_is() -> None:
    model = on_meta("mnist-mlp")
    trainable(model, "last")
    model.train()
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_is_frozen_by_itself(duplicate: object) -> None:
    assert callable(duplicate)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    trainable(model, "last")
    twin = duplicate(model)
    trainable(model, "all")
    model.train()
    twin.train()
    assert model[0].training and not twin[0].training
    assert trained_layers(twin) == {"1"}


def test_weights_that_are_shared_with_a_trained_layer_train() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].weight = model[1].weight
    trainable(model, "last")
    assert model[0].weight.requires_grad and not model[0].bias.requires_grad


def test_the_choice_can_be_printed() -> None:
    model = on_meta("mnist-mlp")
    assert str(trainable(model, "last-fc:2")) == "5, 8 train: 1,052,675 of 1,856,515 weights; the rest stays"
    assert str(trainable(model, "all")) == "all layers train: 1,856,515 weights"
