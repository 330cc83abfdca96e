"""What the host makes of a batch before it is launched: how many launches, and where each begins."""

from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from augpipe.gpu_ops.codec.cuda import launch as codec_launch
from augpipe.gpu_ops.codec.cuda.chunks import ROW_BYTES as SLICE_BYTES
from augpipe.gpu_ops.image.cuda import launch
from augpipe.gpu_ops.image.cuda.pack import PACK_RECORD_BYTES
from augpipe.gpu_ops.image.cuda.records import PIXEL_RECORD_BYTES, ROW_BYTES


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[int, ...]]]:
    """(images, the first arguments) of each launch, none of which is done."""
    found: list[tuple[int, tuple[int, ...]]] = []

    def note(kernel: Any, grid: tuple[int, ...], block: Any, stream: int, *arguments: int) -> None:
        found.append((grid[-1], arguments[:3]))

    monkeypatch.setattr(launch, "_launch", note)
    monkeypatch.setattr(launch, "_fused", lambda held_as, planar: None)
    for name in ("_pack", "_labels"):
        monkeypatch.setattr(launch, name, lambda: None)
    return found


def test_more_images_than_a_grid_takes_are_several_launches(launches: list[tuple[int, tuple[int, ...]]]) -> None:
    most = 65_535
    options: dict[str, Any] = {"height": 2, "width": 4, "planar": True, "held_as": "float16", "stream": 0}
    launch.render_batch(1000, 2000, 8000, num=most, **options)
    assert launches == [(most, (1000, 2000, 8000))]
    launches.clear()
    launch.render_batch(1000, 2000, 8000, num=2 * most + 3, **options)
    assert launches == [
        (num, (1000 + first * PIXEL_RECORD_BYTES, 2000 + first * ROW_BYTES, 8000 + first * 2 * 4 * 3 * 2))
        for first, num in ((0, most), (most, most), (2 * most, 3))
    ]


def test_more_images_than_a_grid_takes_are_packed_by_several_launches(
    launches: list[tuple[int, tuple[int, ...]]],
) -> None:
    launch.pack_rgbx(1000, num=65_537, max_pixels=9, stream=0)
    assert launches == [(65_535, (1000,)), (2, (1000 + 65_535 * PACK_RECORD_BYTES,))]


def test_more_label_maps_than_a_grid_takes_are_looked_up_by_several_launches(
    launches: list[tuple[int, tuple[int, ...]]],
) -> None:
    options: dict[str, Any] = {"height": 2, "width": 4, "fill": 255, "fills": True, "as_taps": False, "stream": 0}
    launch.look_up_label_maps(1000, 2000, 8000, num=65_537, **options)
    most = 65_535
    assert launches == [
        (most, (1000, 2000, 8000)),
        (2, (1000 + most * PIXEL_RECORD_BYTES, 2000 + most * ROW_BYTES, 8000 + most * 2 * 4 * 8)),
    ]


@pytest.mark.parametrize("messages", [1, 3])
def test_more_slices_than_a_grid_takes_are_several_launches(messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins at its own first slice's row of the table."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(codec_launch, "_kernel", lambda name: None)
    monkeypatch.setattr(
        codec_launch, "_launch", lambda kernel, grid, block, stream, table, *rest: found.append((grid[1], table))
    )
    slices = tuple((0, (0,) * messages, 1) for _ in range(2 * 65_535 + 3))
    cut = codec_launch.cut_slices.__wrapped__(slices, 256, 4)
    launched = codec_launch.Launch(slices=cut, table=1000, stream=0)
    codec_launch.decode("decode_codes", launched, False)
    row_bytes = messages * SLICE_BYTES
    assert found == [(65_535, 1000), (65_535, 1000 + 65_535 * row_bytes), (3, 1000 + 2 * 65_535 * row_bytes)]
