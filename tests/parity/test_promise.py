"""The comparison behind docs/gpu.md's promise: it lets roundings pass behind every table, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import FIRST_LOOK, TABLE
from augpipe.planning.kernel_rows import kernel_rows
from tests.parity.by_pillow import ON_LEVELS
from tests.parity.images import Pixels, noise
from tests.parity.promise import Images, Renderer, Rows, compare, cpu_renderer
from tests.parity.table import TABLE_CASES

IMAGES = [noise(90, 120, seed=1), noise(97, 66, seed=2), noise(70, 70, seed=3), noise(50, 80, seed=4)]
SIZE = (48, 40)


def rows_of(chosen: tuple[ops.Op, ...], seed: int = 0) -> Rows:
    made = plan(Recipe(ops=chosen), range(len(IMAGES)), sizes=[image.shape[:2] for image in IMAGES], seed=seed)
    return kernel_rows(made.rows)


def device(
    shift: float, change: Callable[[Images], None] = lambda images: None, photographs: list[Pixels] = IMAGES
) -> Renderer:
    """The CPU, but its rendered levels are up to `shift` off, and its finished images are changed in place."""
    off = np.random.default_rng(0).uniform(-shift, shift, (len(IMAGES), 3, *SIZE)).astype(np.float32)

    def rendered(rows: Rows) -> Images:
        plain = rows.copy()
        plain["header"]["num_steps"], plain["header"]["scale"], plain["header"]["bias"] = 0, 1.0, 0.0
        levels, out = cpu_renderer(photographs, SIZE)(plain) + off, np.empty((len(IMAGES), 3, *SIZE), np.float32)
        take_programs(rows, levels.ravel(), out.reshape(-1), *SIZE, True)
        change(out)
        return out

    return rendered


def test_every_op_on_levels_is_compared() -> None:
    compared = {type(op) for chosen in TABLE_CASES.values() for op in chosen}
    assert compared >= {*ON_LEVELS, ops.Contrast}
    for chosen in TABLE_CASES.values():
        kinds = rows_of(chosen)["steps"]["kind"]
        assert ((kinds == TABLE) | (kinds >= FIRST_LOOK)).any()


@pytest.mark.parametrize("name", TABLE_CASES)
def test_the_cpu_is_its_own_equal(name: str) -> None:
    on_cpu = cpu_renderer(IMAGES, SIZE)
    apart = compare(rows_of(TABLE_CASES[name]), on_cpu, on_cpu)
    assert apart.levels == apart.from_edge_levels == apart.num_rounded_apart == 0
    assert apart.num_before_tables >= len(IMAGES) * SIZE[0] * SIZE[1]


@pytest.mark.parametrize("name", TABLE_CASES)
def test_roundings_pass_behind_every_table(name: str) -> None:
    """Where they make images differ by many levels, too."""
    rows, on_cpu = rows_of(TABLE_CASES[name]), cpu_renderer(IMAGES, SIZE)
    apart = compare(rows, on_cpu, device(shift=5e-4))
    assert apart.is_promised, apart
    assert apart.num_rounded_apart > 0 and 0.0 < apart.from_edge_levels < 1e-2


def test_levels_far_apart_behind_a_table_are_near_before_it() -> None:
    halves = [image % 2 + np.uint8(127) for image in IMAGES]
    rows, on_cpu = rows_of((TABLE_CASES["posterize"][0], ops.Posterize(bits=(1, 1)))), cpu_renderer(halves, SIZE)
    other = device(shift=5e-3, photographs=halves)
    apart = np.abs(other(rows) - on_cpu(rows))
    assert set(np.unique(apart)) == {0.0, 128.0}
    compared = compare(rows, on_cpu, other)
    assert compared.levels < 5.1e-3 and 0.0 < compared.from_edge_levels < 5.1e-3
    assert compared.num_rounded_apart == (apart > 0.0).sum() > 1e-3 * apart.size and not compared.is_promised


@pytest.mark.parametrize("name", TABLE_CASES)
def test_what_is_no_rounding_does_not_pass(name: str) -> None:
    rows, on_cpu = rows_of(TABLE_CASES[name]), cpu_renderer(IMAGES, SIZE)
    assert not compare(rows, on_cpu, device(shift=0.1)).is_promised

    def spoil(images: Images) -> None:
        images[-1, 1, 7, 9] += 5.0 if images.max() > 9.0 else 0.05  # of normalised ones five levels are a tenth

    assert compare(rows, on_cpu, device(0.0, spoil)).levels > 1.0

    def forget(images: Images) -> None:
        images[0, 0, 0, 0] = np.nan

    assert not compare(rows, on_cpu, device(0.0, forget)).is_promised


def test_a_wrong_table_does_not_pass() -> None:
    """A device whose table begins one level too early differs in few numbers, none of them at the edge."""
    rows, on_cpu = rows_of((TABLE_CASES["posterize"][0], ops.Posterize(bits=(1, 1)))), cpu_renderer(IMAGES, SIZE)

    def with_another_table(rows: Rows) -> Images:
        wrong = rows.copy()
        wrong["tables"][:, :, 127] = 128
        return on_cpu(wrong)

    apart = compare(rows, on_cpu, with_another_table)
    assert apart.levels == 128.0 and not apart.is_promised


def test_without_a_table_a_level_is_the_bound() -> None:
    rows, on_cpu = rows_of((TABLE_CASES["posterize"][0], ops.Normalize())), cpu_renderer(IMAGES, SIZE)
    one = np.float32(1.0) / rows["scale"][0, 0]

    def off_by(levels: float) -> Renderer:
        return lambda rows: on_cpu(rows) + np.float32(levels) / one

    assert compare(rows, on_cpu, off_by(0.9)).is_promised
    assert not compare(rows, on_cpu, off_by(1.1)).is_promised
