"""Regions decoded by DALI against those cut from images that our own decoder read."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import numpy.typing as npt
import pytest

from augpipe.decoding import probe
from augpipe.decoding.jpeg import decode_stored
from tests.augpipe.decoding.image_files import encoded, exif, jpeg_kinds, scene
from tests.augpipe.loader.loader_sources import jpegs, run_python

pytest.importorskip("nvidia.dali")

from augpipe.dali import decoder as module
from augpipe.dali.decoder import DaliDecodeError, DaliDecoder, Decoded

Array = npt.NDArray[Any]

KINDS = jpeg_kinds(75, 111)
BAD = {"no picture": b"no picture" * 9, "empty": b"", "cut short": KINDS["444"][: len(KINDS["444"]) // 2]}
WHOLE = (0, 0, 111, 75)


def stored(data: bytes) -> Array:
    """(H, W, 3) as our own decoder reads it, not turned."""
    header = probe(data, max_pixels=10**9)
    height, width = (header.height, header.width) if header.orientation < 5 else (header.width, header.height)
    return decode_stored(memoryview(data), height, width, 1, None)[..., :3]


def random_regions(photographs: Sequence[Array], seed: int) -> npt.NDArray[np.int32]:
    """(n, 4) left, top, right, bottom anywhere within each image, from one pixel to all of it."""
    rng = np.random.default_rng(seed)
    regions = []
    for image in photographs:
        height, width = image.shape[:2]
        left, top = rng.integers(0, (width, height))
        regions.append((left, top, rng.integers(left + 1, width + 1), rng.integers(top + 1, height + 1)))
    return np.array(regions, np.int32)


def cut(photographs: Sequence[Array], regions: npt.NDArray[np.int32]) -> list[Array]:
    return [
        image[top:bottom, left:right]
        for image, (left, top, right, bottom) in zip(photographs, regions.tolist(), strict=True)
    ]


def assert_same(decoded: Decoded, expected: Sequence[Array]) -> None:
    assert len(decoded.images) == len(expected)
    for image, wanted in zip(decoded.images, expected, strict=True):
        np.testing.assert_array_equal(image, wanted, strict=True)


def regions_of(*regions: tuple[int, int, int, int]) -> npt.NDArray[np.int32]:
    return np.array(regions, np.int32)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_jpeg_and_any_region_of_it(kind: str) -> None:
    images = [stored(KINDS[kind])] * 12
    regions = random_regions(images, seed=len(kind))
    regions[:4] = WHOLE, (110, 74, 111, 75), (0, 40, 111, 41), (17, 0, 18, 75)
    decoder = DaliDecoder(12, 2, None, 1)
    decoder.submit([KINDS[kind]] * 12, regions)
    decoded = decoder.collect()
    assert_same(decoded, cut(images, regions))
    assert decoded.shapes.tolist() == [list(image.shape[:2]) for image in decoded.images]
    assert decoded.addresses.tolist() == [image.ctypes.data for image in decoded.images]


def test_batches_of_any_size_several_of_them_under_way() -> None:
    contents = jpegs(40)
    images = [stored(content) for content in contents]
    decoder = DaliDecoder(9, 2, None, 3)
    under_way: deque[list[Array]] = deque()
    first, num_batches = 0, 0
    for seed, num in enumerate((9, 1, 4, 9, 2, 1, 9, 5)):
        regions = random_regions(images[first : first + num], seed)
        if len(under_way) == 3:
            assert_same(decoder.collect(), under_way.popleft())
            num_batches += 1
        decoder.submit(contents[first : first + num], regions)
        under_way.append(cut(images[first : first + num], regions))
        first += num
    while under_way:
        assert_same(decoder.collect(), under_way.popleft())
        num_batches += 1
    assert (first, num_batches) == (40, 8)


# As on a GPU: whole images apart


def test_whole_images_are_decoded_apart_and_come_back_in_their_places() -> None:
    contents = jpegs(40)
    images = [stored(content) for content in contents]
    everything = regions_of(*((0, 0, photograph.shape[1], photograph.shape[0]) for photograph in images))
    decoder = DaliDecoder(9, 2, None, 3, as_on_gpu=True)
    rng = np.random.default_rng(0)
    under_way: deque[list[Array]] = deque()
    first = 0
    for seed, num in enumerate((9, 1, 4, 9, 2, 1, 9, 5)):
        chosen = slice(first, first + num)
        whole = np.ones(num, np.bool_) if seed == 2 else np.zeros(num, np.bool_) if seed == 3 else rng.random(num) < 0.5
        regions = np.where(whole[:, None], everything[chosen], random_regions(images[chosen], seed))
        if len(under_way) == 3:
            assert_same(decoder.collect(), under_way.popleft())
        decoder.submit(contents[chosen], regions, whole)
        under_way.append(cut(images[chosen], regions))
        first += num
    while under_way:
        decoded, expected = decoder.collect(), under_way.popleft()
        assert_same(decoded, expected)
        assert decoded.shapes.tolist() == [list(image.shape[:2]) for image in expected]
        assert decoded.addresses.tolist() == [image.ctypes.data for image in decoded.images]
    assert first == 40


@pytest.mark.parametrize("as_on_gpu", [True, False])
def test_the_pipeline_of_whole_images_is_built_when_it_is_needed(
    as_on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[bool] = []
    build = module._build

    def building(*args: Any) -> Any:
        built.append(args[-1])
        return build(*args)

    monkeypatch.setattr(module, "_build", building)
    decoder = DaliDecoder(2, 1, None, 1, as_on_gpu=as_on_gpu)
    for whole in (None, np.array([False, False])):
        decoder.submit([KINDS["420"]] * 2, regions_of((0, 0, 9, 9), WHOLE), whole)
        decoder.collect()
    assert built == [False]
    for _ in range(2):
        decoder.submit([KINDS["420"]] * 2, regions_of((0, 0, 9, 9), WHOLE), np.array([False, True]))
        decoder.collect()
    assert built == ([False, True] if as_on_gpu else [False])


def test_whole_is_of_the_size_that_was_told() -> None:
    decoder = DaliDecoder(2, 1, None, 1, as_on_gpu=True)
    decoder.submit([KINDS["420"]] * 2, regions_of(WHOLE, (0, 0, 110, 75)), np.array([True, True]))
    with pytest.raises(DaliDecodeError, match="a photograph that is wanted whole is of another size"):
        decoder.collect()


@pytest.mark.parametrize("whole", [(True, False, False), (False, True, True), (True, True, True)])
def test_a_bad_file_fails_its_batch_whichever_way_it_goes(whole: tuple[bool, ...]) -> None:
    decoder = DaliDecoder(3, 2, None, 2, as_on_gpu=True)
    for content in (KINDS["420"], BAD["no picture"]):
        decoder.submit([content, KINDS["420"], KINDS["444"]], regions_of(WHOLE, WHOLE, WHOLE), np.array(whole))
    assert_same(decoder.collect(), [stored(KINDS["420"]), stored(KINDS["420"]), stored(KINDS["444"])])
    with pytest.raises(DaliDecodeError):
        decoder.collect()
    with pytest.raises(AssertionError, match="thrown away"):
        decoder.submit([KINDS["420"]], regions_of(WHOLE))


@pytest.mark.parametrize(("is_whole", "name"), [(True, "image"), (False, "image_slice")])
def test_jpeg_engines_are_given_their_part_on_a_gpu_alone(
    is_whole: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HW_DECODER_LOAD", 0.9)
    for device_id, device in ((0, "mixed"), (None, "cpu")):
        dali = MagicMock()
        module._build(dali, 4, 2, device_id, 1, is_whole)
        options = getattr(dali.fn.decoders, name).call_args.kwargs
        assert options["device"] == device and options["jpeg_fancy_upsampling"] is True
        assert options.get("hw_decoder_load") == (0.9 if device_id == 0 else None)
        assert dali.Pipeline.call_args.args == (4, 2, device_id)


def test_pixels_outlive_later_batches_and_the_decoder() -> None:
    contents = jpegs(20)
    photographs = [stored(content) for content in contents]
    whole = regions_of(*((0, 0, photograph.shape[1], photograph.shape[0]) for photograph in photographs))
    decoder = DaliDecoder(5, 1, None, 2)
    held = []
    for first in range(0, 20, 5):
        decoder.submit(contents[first : first + 5], whole[first : first + 5])
        held.append(decoder.collect())
    images = held[0].images
    del held[0]  # an image by itself owns its memory
    decoder.close()
    later = DaliDecoder(5, 1, None, 2)
    for first in range(0, 20, 5):
        later.submit(contents[first : first + 5], whole[first : first + 5])
        later.collect()
    for image, photograph in zip(images, photographs[:5], strict=True):
        np.testing.assert_array_equal(image, photograph)
    for batch, first in zip(held, range(5, 20, 5), strict=True):
        assert_same(batch, photographs[first : first + 5])


def test_the_caller_may_drop_the_files_at_once() -> None:
    decoder = DaliDecoder(8, 1, None, 4)
    for first in range(0, 32, 8):
        contents = jpegs(8, first=first)
        decoder.submit(contents, regions_of(*[(0, 0, 40, 40)] * 8))
        del contents
    overwriting = [bytes(range(256)) * 9 for _ in range(2_000)]
    for first in range(0, 32, 8):
        assert_same(decoder.collect(), [stored(content)[:40, :40] for content in jpegs(8, first=first)])
    assert len(overwriting) == 2_000


@pytest.mark.parametrize("orientation", range(1, 9))
def test_nothing_is_turned(orientation: int) -> None:
    content = encoded(scene(30, 50), "JPEG", exif=exif(orientation))
    decoder = DaliDecoder(1, 1, None, 1)
    decoder.submit([content], regions_of((0, 0, 50, 30)))
    assert_same(decoder.collect(), [stored(content)])


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_fails_its_batch_and_a_new_decoder_goes_on(bad: str, depth: int) -> None:
    good = stored(KINDS["420"])
    decoder = DaliDecoder(3, 2, None, depth)
    for _ in range(depth - 1):
        decoder.submit([KINDS["420"]], regions_of(WHOLE))
    decoder.submit([KINDS["420"], BAD[bad], KINDS["420"]], regions_of(WHOLE, WHOLE, WHOLE))
    collected = [decoder.collect() for _ in range(depth - 1)]
    with pytest.raises(DaliDecodeError) as caught:
        decoder.collect()
    reason = str(caught.value)
    assert reason and not any(noise in reason for noise in ("\n", "traceback", "C++", "pipeline", "encountered"))
    with pytest.raises(AssertionError, match="thrown away"):
        decoder.submit([KINDS["420"]], regions_of(WHOLE))
    for batch in collected:
        assert_same(batch, [good])
    again = DaliDecoder(3, 2, None, depth)
    again.submit([KINDS["420"]], regions_of(WHOLE))
    assert_same(again.collect(), [good])


@pytest.mark.parametrize("region", [(0, 0, 112, 75), (0, 0, 111, 76), (-1, 0, 5, 5)])
def test_a_region_outside_its_image(region: tuple[int, int, int, int]) -> None:
    decoder = DaliDecoder(1, 1, None, 1)
    decoder.submit([KINDS["420"]], regions_of(region))
    with pytest.raises(DaliDecodeError, match="window .* is not valid for image dimensions"):
        decoder.collect()


THREADS_END = """
import os, time
from pathlib import Path
import numpy as np
from augpipe.dali.decoder import DaliDecoder

def num_threads():
    return len(os.listdir("/proc/self/task"))

def work():
    decoder = DaliDecoder(4, 5, None, 2)
    decoder.submit([Path(sys.argv[1]).read_bytes()] * 4, np.array([(0, 0, 40, 40)] * 4, np.int32))
    assert num_threads() >= before + 5, (num_threads(), before)
    return decoder

def wait():
    for _ in range(1000):
        if num_threads() <= before:
            return
        time.sleep(0.01)
    raise SystemExit(f"{num_threads()} threads, and {before} before")

DaliDecoder(1, 1, None, 1).close()  # what DALI starts once and for all
time.sleep(0.5)
before = num_threads()
work().close()
wait()
dropped = work()
del dropped
wait()
"""


def test_closing_ends_dali_s_threads(tmp_path: Path) -> None:
    (tmp_path / "picture.jpg").write_bytes(KINDS["420"])
    ended = run_python(THREADS_END.replace("sys.argv[1]", repr(str(tmp_path / "picture.jpg"))))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_dali_is_imported_without_a_warning_and_only_when_a_decoder_is_made() -> None:
    code = (
        "import sys; from augpipe.dali.decoder import DaliDecoder; assert 'nvidia.dali' not in sys.modules; "
        "DaliDecoder(1, 1, None, 1); assert 'nvidia.dali' in sys.modules"
    )
    ended = run_python(code)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_real_images(photos_dir: Path) -> None:
    contents = [path.read_bytes() for path in sorted(photos_dir.iterdir())[:60]]
    headers = [probe(content, max_pixels=10**9) for content in contents]
    contents = [content for content, header in zip(contents, headers, strict=True) if header.may_scale]
    assert len(contents) > 50
    images = [stored(content) for content in contents]
    regions = random_regions(images, seed=1)
    decoder = DaliDecoder(len(contents), 2, None, 1)
    decoder.submit(contents, regions)
    assert_same(decoder.collect(), cut(images, regions))


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """nvJPEG rounds in another way, and a region's outermost pixels may be upsampled without their neighbours."""
    import torch

    contents = [encoded(scene(300, 400, seed), "JPEG", quality=92) for seed in range(8)]
    regions = regions_of(*[(10 + 8 * i, 20 + 4 * i, 210 + 8 * i, 180 + 4 * i) for i in range(8)])
    expected = cut([stored(content) for content in contents], regions)
    decoder = DaliDecoder(8, 2, 0, 2)
    decoder.submit(contents, regions)
    decoder.submit(contents[::-1], regions[::-1])
    stream = torch.cuda.Stream()
    for wanted in (expected, expected[::-1]):
        decoded = decoder.collect(stream.cuda_stream)
        assert decoded.images == [] and decoded.shapes.tolist() == [list(image.shape[:2]) for image in wanted]
        with torch.cuda.stream(stream):
            for address, image in zip(decoded.addresses.tolist(), wanted, strict=True):
                interface = {"data": (address, False), "shape": image.shape, "typestr": "|u1", "version": 3}
                view = torch.as_tensor(type("", (), {"__cuda_array_interface__": interface})(), device="cuda:0")
                pixels = view.cpu().numpy()
                assert np.abs(pixels.astype(np.int64) - image).mean() < 1.0
        stream.synchronize()
        del decoded
