"""Arrays of other libraries, by DLPack or `__cuda_array_interface__`, and what is said of images on devices."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from augpipe import Augment
from augpipe.augment_call import inputs
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, run_python

RGB = scene(40, 52)
READ_ONLY = np.frombuffer(RGB.tobytes(), np.uint8).reshape(RGB.shape)


class Foreign:
    """Another library's array on the CPU: nothing but DLPack's two methods."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Elsewhere(Foreign):
    """One that lies on another device."""

    def __init__(self, kind: int) -> None:
        super().__init__(RGB)
        self._kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 1


class CudaArray:
    """One of a library that speaks no DLPack."""

    def __init__(self, stream: int | None, address: int = 0) -> None:
        self.__cuda_array_interface__ = {
            "shape": (40, 52, 3),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        } | ({} if stream is None else {"stream": stream})


# On the CPU


@pytest.mark.parametrize(
    "array",
    [RGB, np.asfortranarray(RGB), RGB[..., 0], np.dstack([RGB, RGB[..., 0]]), RGB[::-1], READ_ONLY],
    ids=["RGB", "columns first", "gray", "four channels", "upside down", "read-only"],
)
def test_one_image_of_another_library(array: npt.NDArray[np.uint8]) -> None:
    transform = Augment(PAPER, 3)
    found = transform(Foreign(array), sample_ids=7)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, transform(array, sample_ids=7), strict=True)


@pytest.mark.parametrize("kind", [1, 3, 13], ids=["CPU", "CUDA host", "CUDA managed"])
def test_memory_that_the_host_can_read_is_read_there(kind: int) -> None:
    transform = Augment(PAPER, 3)
    np.testing.assert_array_equal(transform(Elsewhere(kind), sample_ids=7), transform(RGB, sample_ids=7), strict=True)


def test_several_of_another_library() -> None:
    transform = Augment(PAPER, 3)
    expected = transform([RGB, RGB], sample_ids=[7, 8])
    for images in ([Foreign(RGB), RGB], (RGB, Foreign(RGB)), Foreign(np.stack([RGB, RGB]))):
        np.testing.assert_array_equal(transform(images, sample_ids=[7, 8]), expected, strict=True)
    assert isinstance(Augment(PAPER, 3, framework="torch")(Foreign(RGB)), torch.Tensor)


def test_what_another_library_holds_is_checked_as_an_array_is() -> None:
    with pytest.raises(ValueError, match=r"^image 1: the array is float32, and must be uint8 with values in 0..255\. "):
        Augment(PAPER)([RGB, Foreign(RGB.astype(np.float32))])


@pytest.mark.slow
def test_torch_is_not_needed_for_another_library_on_the_cpu() -> None:
    code = (
        "import sys, numpy as np\nfrom augpipe import Augment, recipes\n"
        "class Foreign:\n"
        "    array = np.zeros((8, 8, 3), np.uint8)\n"
        "    def __dlpack__(self, **options): return self.array.__dlpack__(**options)\n"
        "    def __dlpack_device__(self): return self.array.__dlpack_device__()\n"
        "print(Augment(recipes.none())(Foreign()).shape, 'torch' in sys.modules, 'numba.cuda' in sys.modules)"
    )
    ended = run_python(code)
    assert ended.stdout.strip() == "(3, 8, 8) False False", ended.stderr


# On devices


@pytest.mark.parametrize("kind", [7, 8, 10])
def test_a_device_that_is_neither_is_named(kind: int) -> None:
    with pytest.raises(
        ValueError, match=rf"^image 1, a Elsewhere, lies on a device of DLPack's type {kind} \(index 1\).*Move it there"
    ):
        Augment(PAPER)([RGB, Elsewhere(kind)])


@pytest.mark.parametrize(("image", "name"), [(Elsewhere(2), "cuda:1"), (CudaArray(None), "cuda:0")])
def test_where_torch_has_no_cuda_what_is_missing_is_said(
    image: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(asked: str) -> None:
        raise RuntimeError(f"no driver for {asked}")

    monkeypatch.setattr("augpipe.cuda.device_name.require_device", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=f"^no driver for {name}$"):
        Augment(PAPER)(image)


AT_GPU_1 = 0xF00
"""An address there; nothing lies at any other one."""


@pytest.mark.parametrize(("address", "index"), [(0, 0), (AT_GPU_1, 1)])
@pytest.mark.parametrize("stream", [None, 1, 0xABC])
def test_what_another_stream_makes_is_waited_for_by_torch(
    stream: int | None, address: int, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the current stream of the device that it lies on; nothing is copied to device 0, the current one."""
    done: list[tuple[object, ...]] = []
    tensor = torch.from_numpy(RGB)

    def as_tensor(image: object, device: object) -> object:
        asked = torch.device("cuda", torch.device(str(device)).index or 0)
        if asked.index != index:
            done.append(("copied to", asked))
        return SimpleNamespace(device=asked, wrapped=tensor)

    fake = SimpleNamespace(
        as_tensor=as_tensor,
        device=torch.device,
        cuda=SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            ExternalStream=lambda handle, device: (handle, device),
            current_stream=lambda device: SimpleNamespace(wait_stream=lambda made_on: done.append((device, made_on))),
        ),
    )
    driver = SimpleNamespace(
        CUpointer_attribute=SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal"),
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        cuPointerGetAttribute=lambda what, where: (0, 1) if (what, where) == ("ordinal", AT_GPU_1) else (1, None),
    )
    monkeypatch.setattr(inputs, "import_torch", lambda: fake)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    known = inputs.as_known(CudaArray(stream, address), 0)
    device = torch.device("cuda", index)
    assert known.wrapped is tensor and known.device == device
    assert done == ([] if stream is None else [(device, (stream, device))])


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """An image on a device, without one."""
    monkeypatch.setattr(inputs, "DEVICE_TYPES", ("meta",))
    return torch.zeros((40, 52, 3), dtype=torch.uint8, device="meta")


def test_devices_are_not_mixed(meta: torch.Tensor) -> None:
    host = torch.from_numpy(RGB)
    remedy = r"One call takes images of one device: move them there first, with \.to\(device\)\.$"
    for images, places in (
        ([meta, host], "image 1 lies on cpu and image 0 on meta"),
        ([host, meta], "image 1 lies on meta and image 0 on cpu"),
        ([meta, meta, RGB], "image 2 lies on the CPU and image 0 on meta"),
        ([RGB, meta], "image 1 lies on meta and image 0 on the CPU"),
    ):
        with pytest.raises(ValueError, match=f"^{places}. {remedy}"):
            Augment(CENTRE)(images)


def test_numpy_arrays_are_not_made_of_images_on_a_device(meta: torch.Tensor) -> None:
    for images in (meta, [meta], meta[None]):
        with pytest.raises(ValueError, match=r'^framework="numpy" and image 0 lies on meta.*\.cpu\(\)\.numpy\(\)'):
            Augment(CENTRE, framework="numpy")(images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.float(), "^image 0: the tensor is torch.float32, and must be uint8"),
        (lambda t: t[:3], r"^image 0: the tensor has shape \(3, 52, 3\), which may have its channels first or last"),
        (lambda t: [t, t[:, :0]], r"^image 1: the array has shape \(40, 0, 3\), which holds no pixels"),
        (lambda t: [t, t[None]], r"^image 1: the array has shape \(1, 40, 52, 3\)"),
        (lambda t: [t[None]], r"^image 0: the array has shape \(1, 40, 52, 3\)"),
        (
            lambda t: t[None, :3],
            r"^image 0: the tensor has shape \(1, 3, 52, 3\), which may have its channels first or",
        ),
        (lambda t: t[None].permute(0, 2, 3, 1), r"^image 0: the array has shape \(52, 3, 40\)"),
        (lambda t: t[0, 0, 0], r"^image 0: the array has shape \(\)"),
        (lambda t: t[None, None], r"^image 0: the array has shape \(1, 1, 40, 52, 3\)"),
    ],
)
def test_what_cannot_be_augmented_on_a_device_is_named(meta: torch.Tensor, change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(PAPER)(change(meta))
