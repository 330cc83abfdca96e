"""Planning a batch once its photographs are open, and one photograph anew when it replaces another."""

import numpy as np
import numpy.typing as npt

from augpipe.backends.assembly import Assembly, Settings
from augpipe.backends.photograph import Photograph
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.plan import Plan, plan
from augpipe.planning.regions import source_regions

Rows = npt.NDArray[np.void]


def plan_batch(assembly: Assembly, settings: Settings) -> None:
    """Fill in the plan, the kernel's tables, the DCT factors, the sizes of the images and what the cache holds.

    Raises:
        ValueError: the recipe keeps whole photographs and they differ in size.
    """
    photographs = assembly.opened()
    assembly.plan = _plan(photographs, assembly, settings)
    assembly.factors, assembly.tables = _tables(assembly.plan, photographs)
    assembly.sizes = tuple(
        view.out_size or _common_size(rows, photographs, settings)
        for view, rows in zip(settings.recipe.all_views, assembly.plan.views, strict=True)
    )
    assembly.rectangles = None
    if assembly.is_unread or any(photograph.may_crop for photograph in photographs):
        assembly.rectangles = source_regions(assembly.tables, assembly.sizes)
    assembly.held.clear()
    if assembly.cache is not None:
        assembly.held.update(assembly.cache.find_all(assembly.plan.sample_ids, assembly.factors))


def plan_replacement(assembly: Assembly, position: int, photograph: Photograph, settings: Settings) -> bool:
    """Put another photograph into a batch that is planned already; returns whether the whole batch was planned anew.

    Raises:
        ValueError: the batch holds whole photographs, and this one is of another size.
    """
    assembly.photographs[position] = photograph
    if len(assembly.photographs) == 1:
        plan_batch(assembly, settings)
        return True
    assert assembly.plan is not None and assembly.factors is not None
    made = _plan([photograph], assembly, settings)
    factors, tables = _tables(made, [photograph])
    for view, rows in enumerate(made.views):
        size = int(rows["out_height"][0]), int(rows["out_width"][0])
        if size != assembly.sizes[view]:
            height, width = assembly.sizes[view]
            raise ValueError(
                f"one batch cannot hold images of several sizes: {settings.source.name(photograph.sample_id)}, "
                f"which replaces an unusable photograph, is {size[0]}x{size[1]} and the others {height}x{width}. "
                "Add a crop to the recipe, or use batch_size=1."
            )
        assembly.plan.views[view][position] = rows[0]
        assembly.tables[view][position] = tables[view][0]
    assembly.factors[position] = factors[0]
    if assembly.rectangles is not None:
        # also where the cache knows the photograph and it is not open yet: it may have to be read after all
        assembly.rectangles[position] = source_regions(tables, assembly.sizes)[0]
    _look_up(assembly, position)
    return False


def rectangle_of(assembly: Assembly, position: int) -> list[int]:
    """Left, top, right, bottom of what the views look at in one photograph."""
    if assembly.rectangles is not None:
        return [*assembly.rectangles[position].tolist()]
    # when the batch was planned no photograph was known to have tiles
    rows = [table[position : position + 1] for table in assembly.tables]
    return [*source_regions(rows, assembly.sizes)[0].tolist()]


def _plan(photographs: list[Photograph], assembly: Assembly, settings: Settings) -> Plan:
    return plan(
        settings.recipe,
        [photograph.sample_id for photograph in photographs],
        sizes=[photograph.size for photograph in photographs],
        epoch=assembly.request.epoch,
        seed=settings.seed,
    )


def _tables(made: Plan, photographs: list[Photograph]) -> tuple[npt.NDArray[np.int64], tuple[Rows, ...]]:
    may_scale = np.array([photograph.may_scale for photograph in photographs], np.bool_)
    factors = np.where(may_scale, dct_factors(made.views), 1)
    return factors, tuple(kernel_rows(rows, factors) for rows in made.views)


def _look_up(assembly: Assembly, position: int) -> None:
    photograph = assembly.photographs[position]
    if assembly.cache is None or photograph is None:
        return
    assert assembly.factors is not None
    assembly.held.pop(position, None)
    held = assembly.cache.find(photograph.sample_id, int(assembly.factors[position]))
    if held is not None:
        assembly.held[position] = held


def _common_size(rows: Rows, photographs: list[Photograph], settings: Settings) -> tuple[int, int]:
    """The one size of the output images of a view that keeps whole photographs."""
    if not len(rows):
        return (0, 0)
    height, width = int(rows["out_height"][0]), int(rows["out_width"][0])
    other = np.flatnonzero((rows["out_height"] != height) | (rows["out_width"] != width))
    if len(other):
        row = rows[other[0]]
        names = [settings.source.name(photographs[i].sample_id) for i in (0, int(other[0]))]
        raise ValueError(
            f"one batch cannot hold images of several sizes: {names[0]} is {height}x{width} and {names[1]} "
            f"{row['out_height']}x{row['out_width']}. Add a crop to the recipe, or use batch_size=1."
        )
    return height, width
