"""A batch is moved as a whole: images of all views, labels of all kinds."""

import pickle
from copy import copy
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


@pytest.mark.parametrize("dtype", [torch.float16, "fp16", torch.bfloat16, torch.float64])
def test_a_dtype_is_of_images_only(dtype: Any) -> None:
    """A class is an index, which a loss takes as an integer only, and 2,049 is no float16."""
    labels = MixedLabels(torch.tensor([1, 2]), torch.tensor([2, 2]), torch.tensor([0.5, 1.0]))
    for batch in (made(), replace(made(), labels=labels), replace(made(), labels=torch.ones(2, 3))):
        for moved in (batch.to(dtype), batch.to("cpu", dtype), batch.to(dtype=dtype, non_blocking=True)):
            expected = torch.float16 if dtype == "fp16" else dtype
            assert {images.dtype for images in moved.images} == {expected}
            found, given = (each if isinstance(each, tuple) else (each,) for each in (moved.labels, batch.labels))
            assert [one.dtype for one in found] == [one.dtype for one in given]
    moved = made().to("meta", torch.float16)
    assert moved.images[0].device.type == moved.labels.device.type == "meta" and moved.images[0].dtype == torch.float16


def test_to_takes_a_device_and_a_dtype_of_floats() -> None:
    batch = made()
    with pytest.raises(ValueError, match=r"dtype=torch\.int64 is not a floating-point type"):
        batch.to(torch.int64)
    with pytest.raises(ValueError, match="Name a device or a dtype"):
        batch.to()
    with pytest.raises(ValueError, match=r"dtype=torch\.float16 and torch\.float32 are two"):
        batch.to(torch.float16, torch.float32)
    with pytest.raises(TypeError, match=r"batch.to takes a device, a dtype or both, and not a Tensor"):
        batch.to(torch.zeros(1))


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


def test_what_the_images_have_is_named_there() -> None:
    """A batch of one is taken for its image: `model(batch[0])`, `batch[0].shape`."""
    batch = Augment(CENTRE).collate([(image, label, label) for label, image in enumerate(arrays(3))])[0]
    assert not hasattr(batch, "shape") and not hasattr(batch, "__array__")
    for name in ("shape", "cuda", "float", "dtype"):
        with pytest.raises(AttributeError, match=f"a Batch has no attribute '{name}', .*take batch.images.{name}"):
            getattr(batch, name)
    for name in ("image", "pictures"):
        with pytest.raises(AttributeError, match=f"^a Batch has no attribute '{name}'$"):
            getattr(batch, name)
    again = pickle.loads(pickle.dumps(batch))
    assert again.sample_ids.tolist() == [0] and copy(batch).line() == batch.line()
