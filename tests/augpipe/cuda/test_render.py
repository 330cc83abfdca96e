"""The renderer's bookkeeping with a kernel that only writes down what it is given, on a device that lags behind."""

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import plan, recipes
from augpipe.augment_call.device_images import DeviceImages, DeviceTransform
from augpipe.cuda import cuda_render as module
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.cuda.failures import KernelError
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.output_format import OutputFormat
from tests.augpipe.cuda.fakes import LaterStreams

PAPER = recipes.deep_image(16, (20,))
CPU = torch.device("cpu")


class Launches:
    """Stands in for `render_batch`; fills the batch with its number, from 1 on."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def __call__(self, pixels: int, rows: int, batch: int, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        num = options["num"]
        self.calls.append(
            options
            | {
                "pixels": ctypes.string_at(pixels, num * 40),
                "rows": ctypes.string_at(rows, num * KERNEL_ROW.itemsize),
            }
        )
        items = num * options["height"] * options["width"] * 3
        ctypes.memset(batch, len(self.calls), items * (2 if "16" in options["held_as"] else 1))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    launches = Launches()
    monkeypatch.setattr(module, "render_batch", launches)
    return launches


def renderer(streams: LaterStreams, dtype: Any = "uint8", layout: Any = "NCHW", **options: Any) -> DeviceRenderer:
    form = OutputFormat(dtype=dtype, layout=layout, framework="torch")
    return DeviceRenderer(CPU, PAPER, form, streams=streams, **options)


def tables(num: int, views: int = 1) -> tuple[Any, list[Any]]:
    generator = np.random.default_rng(num)
    pixels = generator.integers(0, 2**60, (num, 5))
    rows = [np.frombuffer(generator.bytes(num * KERNEL_ROW.itemsize), KERNEL_ROW) for _ in range(views)]
    return pixels, rows


def test_every_view_is_launched_with_its_tables_and_size(launches: Launches) -> None:
    pixels, rows = tables(3, views=2)
    found = renderer(LaterStreams()).render(pixels, rows, [(4, 6), (8, 2)], [], [1, 2, 3])
    assert [tuple(images.shape) for images in found] == [(3, 3, 4, 6), (3, 3, 8, 2)]
    assert [images.unique().tolist() for images in found] == [[1], [2]]
    for call, table, size in zip(launches.calls, rows, [(4, 6), (8, 2)], strict=True):
        assert call.pop("pixels") == pixels.tobytes() and call.pop("rows") == table.tobytes()
        expected = {"num": 3, "height": size[0], "width": size[1], "planar": True, "held_as": "uint8", "stream": 0}
        assert call == expected


def test_an_empty_batch_has_its_shape_and_no_launch(launches: Launches) -> None:
    streams = LaterStreams()
    (images,) = renderer(streams).render(*tables(0), [(4, 6)], [], [])
    assert images.shape == (0, 3, 4, 6)
    assert launches.calls == [] and streams.events == []


@pytest.mark.slow
def test_owners_are_kept_and_tensors_lent(launches: Launches) -> None:
    class Owner:
        pass

    streams, owner, tensor = LaterStreams(), Owner(), torch.zeros(3)
    made = renderer(streams)
    made.render(*tables(2), [(4, 6)], [owner, tensor], [1, 2])
    kept, lent = weakref.ref(owner), weakref.ref(tensor)
    assert [id(tensor) for tensor in streams.lent] == [id(tensor)]
    streams.lent.clear()
    del owner, tensor
    gc.collect()
    assert kept() is not None and lent() is None
    streams.events[0].has_passed = True
    made.render(*tables(2), [(4, 6)], [], [1, 2])
    gc.collect()
    assert kept() is None


def test_the_steady_state_neither_waits_nor_allocates(launches: Launches) -> None:
    streams = LaterStreams()
    made = renderer(streams, max_pending=4)
    for number in range(40):
        made.render(*tables(2), [(4, 6)], [], [1, 2])
        if number >= 2:
            streams.events[number - 2].has_passed = True  # the device is two batches behind
    assert [event.num_waits for event in streams.events] == [0] * 40
    assert streams.num_pinned <= 4


def test_tables_in_use_are_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device reads a batch's tables late: those of unfinished batches stay as they were."""
    seen = []

    def late(pixels: int, rows: int, batch: int, **options: Any) -> None:
        seen.append(pixels)

    monkeypatch.setattr(module, "render_batch", late)
    streams = LaterStreams()
    made = renderer(streams, max_pending=3)
    batches = [tables(2) for _ in range(8)]
    for number, (pixels, rows) in enumerate(batches):
        made.render(pixels + number, rows, [(4, 6)], [], [1, 2])
        for earlier in range(number + 1):
            if not streams.events[earlier].has_passed:
                assert ctypes.string_at(seen[earlier], 80) == (batches[earlier][0] + earlier).tobytes()
    assert (
        sum(event.num_waits for event in streams.events) == 5
    )  # three may be unfinished, so five of eight are awaited


def test_a_launch_that_fails_is_a_kernel_error_of_the_oldest_batch(launches: Launches) -> None:
    made = renderer(LaterStreams())
    launches.error = RuntimeError("CUDA error: too many resources requested for launch")
    with pytest.raises(KernelError, match="too many resources.*'deep_image', sample ids 3, 4"):
        made.render(*tables(2), [(4, 6)], [], np.array([3, 4]))
    launches.error = None
    made.render(*tables(2), [(4, 6)], [], [5, 6])
    made.drain()


def test_any_other_error_of_a_launch_comes_as_it_is_and_its_owners_wait(launches: Launches) -> None:
    streams = LaterStreams()
    made = renderer(streams)
    launches.error = TypeError("a kernel that does not compile")
    with pytest.raises(TypeError, match="does not compile"):
        made.render(*tables(2), [(4, 6)], [object()], [3, 4])
    assert len(streams.events) == 1  # views before it may be on their way


def test_images_of_a_transform_wait_where_the_second_one_finds_no_memory(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, empty, nothing = LaterStreams(), module.allocate, recipes.none()

    def full(shape: Any, *args: Any, **options: Any) -> torch.Tensor:
        if launches.calls and len(shape) == 4:
            raise torch.OutOfMemoryError("full")
        return empty(shape, *args, **options)

    monkeypatch.setattr(module, "streams_of", lambda device: streams)
    monkeypatch.setattr(module, "allocate", full)
    sizes = [(4, 6), (5, 3)]
    made = DeviceTransform(CPU, nothing, OutputFormat(dtype="uint8", layout="NHWC", framework="torch"))
    owner = torch.zeros(3)
    pixels = DeviceImages(table=tables(2)[0], sizes=sizes, owners=[owner])
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        made.render(pixels, plan(nothing, [0, 1], sizes=sizes))
    assert len(launches.calls) == 1 and [id(tensor) for tensor in streams.lent] == [id(owner)]


def test_a_full_device_names_the_batch(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    made, empty = renderer(LaterStreams()), torch.empty

    def full(*args: Any, **options: Any) -> torch.Tensor:
        if len(args[0]) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")
        return empty(*args, **options)

    monkeypatch.setattr(torch, "empty", full)
    message = "^out of device memory for a batch's images of view 0: 2x3x4x6 uint8. Lower .* Tried to allocate 9 GiB"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        made.render(*tables(2), [(4, 6)], [], [1, 2])


def test_further_launches_are_explained_alike(launches: Launches) -> None:
    made = renderer(LaterStreams())
    with made.launching([7, 8]) as stream:
        assert stream == 0
    with pytest.raises(KernelError, match="sample ids 7, 8") as caught, made.launching([7, 8]), made.launching([9]):
        raise KernelError("CUDA error: misaligned address", "deep_image", [7, 8])
    assert caught.value.__cause__ is None
    with pytest.raises(KernelError, match="misaligned address.*sample ids 7, 8"), made.launching([7, 8]):
        raise RuntimeError("CUDA error: misaligned address")
