"""A batch is moved as a whole: images of all views, labels of all kinds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Batch, MixedLabels
from tests.augpipe.loader.loader_sources import CENTRE, SEVERAL_VIEWS, arrays

torch = pytest.importorskip("torch")


def made(**options: Any) -> Batch:
    return Augment(SEVERAL_VIEWS, **options).collate([(image, 3) for image in arrays(2)])


def test_it_goes_to_a_device_and_stays_a_batch() -> None:
    batch = made()
    moved = batch.to("meta", non_blocking=True)
    assert [images.device.type for images in moved.images] == ["meta"] * 3 and moved.labels.device.type == "meta"
    assert moved.plan is batch.plan and moved.sample_ids is batch.sample_ids
    images, labels = Augment(CENTRE).collate([(arrays(1)[0], 1)]).to(torch.device("meta"))
    assert images.device.type == labels.device.type == "meta"


def test_mixed_labels_go_along() -> None:
    labels = MixedLabels(torch.tensor([1, 2]), torch.tensor([2, 2]), torch.tensor([0.5, 1.0]))
    moved = replace(made(), labels=labels).to("meta")
    assert isinstance(moved.labels, MixedLabels) and {each.device.type for each in moved.labels} == {"meta"}


def test_each_tensor_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 0)  # which takes a device
    batch = made()
    pinned = batch.pin_memory()
    parts = zip((*batch.images, batch.labels), (*pinned.images, pinned.labels), strict=True)
    assert all(torch.equal(one, other) and one is not other for one, other in parts)


@pytest.mark.parametrize("move", [lambda batch: batch.to("cpu"), lambda batch: batch.pin_memory()])
def test_arrays_are_refused(move: Any) -> None:
    batch = made(framework="numpy")
    assert isinstance(batch.labels, np.ndarray)
    with pytest.raises(ValueError, match='the batch holds numpy arrays.*Choose framework="torch"'):
        move(batch)
