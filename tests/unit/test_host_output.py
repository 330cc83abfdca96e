"""Photographs that a thread gathers before it renders them: however many there are, the batches are the same."""

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.backends import host_output
from augpipe.backends.engine import TASKS_PER_THREAD
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
        render(images, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(host_output, "render", noted)
    for gathered_bytes, num_calls in ((0, range(8, NUM + 1)), (2**22, range(TASKS_PER_THREAD, TASKS_PER_THREAD + 1))):
        monkeypatch.setattr(host_output, "GATHERED_BYTES", gathered_bytes)
        sizes.clear()
        num = sum(len(batch) for batch in Loader(MemorySource(CONTENTS), CONTINUOUS, batch_size=NUM, num_threads=1))
        assert num == sum(sizes) == NUM and len(sizes) in num_calls
