"""Photographs that a thread gathers before it renders them: however many there are, the batches are the same."""

from types import SimpleNamespace

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.backends import engine, host_output
from tests.unit.loader_sources import CONTINUOUS, SEVERAL_VIEWS, MemorySource, Sample, jpegs, samples

NUM = 13
CONTENTS = jpegs(NUM)
"""Of differing sizes."""
DAMAGED = {0: CONTENTS[0][:-400], 6: CONTENTS[6][: len(CONTENTS[6]) // 2], 12: b"none"}


def run(recipe: Recipe, num_threads: int, cache: str, dtype: str) -> list[list[tuple[int, Sample]]]:
    loader = Loader(
        MemorySource([DAMAGED.get(i, content) for i, content in enumerate(CONTENTS)]),
        recipe,
        batch_size=5,
        seed=3,
        num_threads=num_threads,
        framework="numpy",
        on_error="skip",
        cache=cache,
        dtype=dtype,
    )
    return [samples(loader) for _ in range(2)]


@pytest.mark.parametrize("gathered_bytes", [0, 1, 30_000, 2**22])
@pytest.mark.parametrize("cache", ["off", "host"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("recipe", [CONTINUOUS, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
def test_batches_do_not_depend_on_how_many_are_gathered(
    recipe: Recipe, dtype: str, cache: str, gathered_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = run(recipe, 1, "off", dtype)
    assert [len(epoch) for epoch in one_by_one] == [NUM, NUM] and one_by_one[0] != one_by_one[1]
    monkeypatch.setattr(host_output, "GATHERED_BYTES", gathered_bytes)
    for num_threads in (1, 2):
        assert run(recipe, num_threads, cache, dtype) == one_by_one


def test_one_call_of_the_kernel_renders_what_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    render = host_output.render

    def noted(images: list[tuple[np.ndarray, int, int]], *rest: object) -> None:
        sizes.append(len(images))
        render(images, *rest)

    monkeypatch.setattr(host_output, "render", noted)
    for gathered_bytes, most, expected in ((0, 8, 1), (2**22, 2, 2), (2**22, 8, 8)):
        monkeypatch.setattr(host_output, "GATHERED_BYTES", gathered_bytes)
        monkeypatch.setattr(host_output, "MOST_GATHERED", most)
        monkeypatch.setattr(engine, "TASKS_PER_THREAD", 1)
        sizes.clear()
        num = sum(len(batch) for batch in Loader(MemorySource(CONTENTS[:8]), CONTINUOUS, batch_size=8, num_threads=1))
        assert num == 8 and sizes == [expected] * (8 // expected)


def test_a_fault_of_the_kernel_ends_the_batch_and_skips_no_photograph(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("kernel trouble")

    monkeypatch.setattr(host_output, "render", fail)
    loader = Loader(MemorySource(CONTENTS), CONTINUOUS, batch_size=NUM, num_threads=1, on_error="skip")
    with pytest.raises(ValueError, match="kernel trouble"):
        next(iter(loader))


def test_positions_with_gaps_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[tuple[int, list[int]]] = []

    def noted(images: list[tuple[np.ndarray, int, int]], rows: np.ndarray, *rest: object) -> None:
        rendered.append((int(rows[0]), [int(pixels[0, 0, 0]) for pixels, _, _ in images]))

    monkeypatch.setattr(host_output, "GATHERED_BYTES", 50)
    monkeypatch.setattr(host_output, "render", noted)
    output = host_output.HostOutput(SimpleNamespace(prefetch=1, recipe=CONTINUOUS, form=None))
    batch, other = (SimpleNamespace(sizes=((1, 1),), target=(np.zeros(90),), tables=(np.arange(30),)) for _ in range(2))
    for assembly, position in ((batch, 0), (batch, 2), (batch, 3), (other, 4), (batch, 5), (batch, 6), (batch, 7)):
        room = output.room(assembly, position, 16)
        room[:] = 10 + position
        output.put(assembly, position, room.reshape(2, 2, 4))
    output.room(batch, 8, 16)[:] = 99  # its decoding fails
    held = np.full((2, 2, 4), 18, np.uint8)
    output.put(batch, 8, held)
    output.flush()
    assert rendered == [(0, [10]), (2, [12, 13]), (4, [14]), (5, [15, 16, 17, 18])]
