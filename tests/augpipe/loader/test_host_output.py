"""Images that a thread gathers before it renders them: however many there are, the batches are the same."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.errors import SampleError
from augpipe.gpu_ops.jpeg.workspace import File, Workspace
from augpipe.ops import (
    ElasticTransform,
    Equalize,
    Erase,
    Flip,
    GaussianBlur,
    GridDistortion,
    JpegCompression,
    Op,
    RandomResizedCrop,
    Saturation,
)
from augpipe.pipeline import batches, host_output
from augpipe.pipeline.host_output import HostOutput
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.recipes.view import View
from augpipe.sources.protocol import Pixels
from tests.augpipe.loader.loader_sources import CONTINUOUS, SEVERAL_VIEWS, MemorySource, Sample, arrays, jpegs, samples

NUM = 13
CONTENTS = jpegs(NUM)
"""Images of differing sizes."""
LARGER = Recipe(ops=(RandomResizedCrop(size=64),))
"""So that no image is decoded at a DCT scale."""
DAMAGED = {0: CONTENTS[0][:-400], 6: CONTENTS[6][: len(CONTENTS[6]) // 2], 12: b"none"}


def run(recipe: Recipe, num_threads: int, cache: str) -> list[list[tuple[int, Sample]]]:
    loader = Loader(
        MemorySource([DAMAGED.get(i, content) for i, content in enumerate(CONTENTS)]),
        recipe,
        batch_size=5,
        seed=3,
        num_threads=num_threads,
        framework="numpy",
        on_error="skip",
        cache=cache,
    )
    return [samples(loader) for _ in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("gathered_bytes", [0, 30_000, 2**22])
@pytest.mark.parametrize("cache", ["off", "host"])
@pytest.mark.parametrize("recipe", [CONTINUOUS, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
def test_batches_do_not_depend_on_how_many_are_gathered(
    recipe: Recipe, cache: str, gathered_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = run(recipe, 1, "off")
    assert [len(epoch) for epoch in one_by_one] == [NUM, NUM] and one_by_one[0] != one_by_one[1]
    monkeypatch.setattr(host_output, "AT_A_TIME_BYTES", gathered_bytes)
    for num_threads in (1, 2):
        assert run(recipe, num_threads, cache) == one_by_one


def test_one_call_renders_what_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels are, and files, whose pixels lie one behind the other in the same memory, however little that is."""
    sizes: list[int] = []
    render, render_files = host_output.render, Workspace.render

    def noted(images: list[LocatedPixels], *rest: object) -> None:
        sizes.append(len(images))
        render(images, *rest)

    def files_noted(workspace: Workspace, files: Sequence[File], *rest: object, **options: object) -> list[bool]:
        sizes.append(len(files))
        return render_files(workspace, files, *rest, **options)

    monkeypatch.setattr(host_output, "render", noted)
    monkeypatch.setattr(Workspace, "render", files_noted)
    monkeypatch.setattr(batches, "TASKS_PER_THREAD", 1)
    for gathered_bytes, most, of_pixels in ((0, 8, 1), (2**22, 2, 2), (2**22, 8, 8)):
        monkeypatch.setattr(host_output, "AT_A_TIME_BYTES", gathered_bytes)
        monkeypatch.setattr(host_output, "AT_A_TIME", most)
        for contents, expected in ((arrays(8), of_pixels), (CONTENTS[:8], most)):
            sizes.clear()
            num = sum(len(batch) for batch in Loader(MemorySource(contents), LARGER, batch_size=8, num_threads=1))
            assert num == 8 and sizes == [expected] * (8 // expected)


def test_a_fault_of_the_kernel_ends_the_batch_and_skips_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("kernel trouble")

    monkeypatch.setattr(host_output, "render", fail)
    monkeypatch.setattr(Workspace, "render", fail)
    for contents in (CONTENTS, arrays(NUM)):
        loader = Loader(MemorySource(contents), CONTINUOUS, batch_size=NUM, num_threads=1, on_error="skip")
        with pytest.raises(ValueError, match="kernel trouble"):
            next(iter(loader))


def test_positions_with_gaps_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also around images that are damaged or cannot be read, and one that has no place beside the others."""
    rendered: list[tuple[int, list[int]]] = []

    def noted(images: list[LocatedPixels], rows: np.ndarray, *rest: object) -> None:
        rendered.append((int(rows[0]), [int(pixels.array[0, 0, 0]) for pixels in images]))

    def decode(batch: BatchInProgress, item: Item, memory: Callable[[int], Pixels]) -> None:
        room = memory(16)
        room[:] = 10 + item.position
        if item.position == 8:
            raise SampleError("8", "damaged")
        item.pixels = LocatedPixels.of(room.reshape(2, 2, 4))

    def read(batch: BatchInProgress, item: Item) -> None:
        if item.position == 13:
            raise SampleError("13", "lost")

    monkeypatch.setattr(host_output, "AT_A_TIME_BYTES", 50)
    monkeypatch.setattr(host_output, "render", noted)
    form = SimpleNamespace(is_narrow=True)
    output = host_output.HostOutput(SimpleNamespace(prefetch=1, recipe=CONTINUOUS, form=form))
    batch = SimpleNamespace(sizes=((1, 1),), target=(np.zeros(90),), tables=(np.arange(30),), windows=(), hidden=None)
    items = [
        Item(position=position, wanted=0, sample_id=0) for position in (0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    ]
    output.fill(batch, items, SimpleNamespace(decode=decode, read=read))
    expected = [(0, [10]), (2, [12, 13]), (5, [15, 16, 17]), (9, [19]), (10, [20, 21, 22]), (14, [24])]
    assert rendered == expected and [item.position for item in items if item.error] == [8, 13]


@pytest.mark.parametrize(
    "op", [GridDistortion(p=0.4), ElasticTransform(alpha=90.0, sigma=4.0, p=0.4)], ids=lambda op: op.op
)
@pytest.mark.parametrize("contents", [CONTENTS, arrays(NUM)], ids=["files", "arrays"])
def test_an_image_is_bent_whatever_others_are(contents: list[bytes] | list[Pixels], op: Op) -> None:
    """The kernel that bends is called where any image of a call is bent, and not where all are, or the first."""

    def loader_of(op: Op, batch_size: int = NUM) -> Loader:
        recipe = Recipe(ops=(RandomResizedCrop(size=32), op))
        return Loader(MemorySource(contents), recipe, batch_size=batch_size, seed=3, num_threads=1, framework="numpy")

    assert dict(samples(loader_of(op))) == dict(samples(loader_of(op, batch_size=1)))
    (batch,), (straight,) = loader_of(op), loader_of(op.model_copy(update={"p": 0.0}))
    are_bent = batch.plan.rows["field"]["kind"] != 0
    assert 2 < are_bent.sum() < NUM - 2
    apart = np.abs(batch.images - straight.images).max(axis=(1, 2, 3))  # a straight grid differs by rounding only
    assert ((apart > 1.0) == are_bent).all() and not apart[~are_bent].any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_steps_follow_the_call_that_decodes_and_renders(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointwise ones, of the whole image, and filters, of some of the views; next to damaged files."""
    taken: list[bool] = []
    render_files = Workspace.render

    def noted(workspace: Workspace, files: Sequence[File], *rest: object, **options: object) -> list[bool]:
        taken.extend(render_files(workspace, files, *rest, **options))
        return taken[-len(files) :]

    monkeypatch.setattr(Workspace, "render", noted)
    steps = (Saturation(p=0.6), Equalize(p=0.3), GaussianBlur(p=0.5), JpegCompression(p=0.3), Erase(p=0.5))
    views = (View(ops=(RandomResizedCrop(size=(24, 40)), *steps)), View(ops=(RandomResizedCrop(size=32), Flip())))
    source = MemorySource([DAMAGED.get(i, content) for i, content in enumerate(CONTENTS)])

    def epoch(recipe: Recipe) -> list[tuple[int, Sample]]:
        options = {"batch_size": 9, "seed": 3, "num_threads": 1, "framework": "numpy", "on_error": "skip"}
        return samples(Loader(source, recipe, layout=layout, **options))

    found = epoch(Recipe(views=views))
    assert sum(taken) >= NUM - len(DAMAGED)
    monkeypatch.setattr(HostOutput, "_render_files", lambda output, batch, items, decoder: items)
    assert epoch(Recipe(views=views)) == found
