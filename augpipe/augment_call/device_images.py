"""Images of tensors, on the device where they lie: read in place, launched on the current stream."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from augpipe.augment_call.inputs import Images, check_array, check_dtype
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.cuda.device_name import require_device
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import Plan
from augpipe.recipes.recipe import Recipe
from augpipe.validation.arguments import MAX_INDEXABLE_PIXELS


@dataclass(frozen=True, kw_only=True)
class DeviceImages:
    """Images in device memory, as the kernel reads them."""

    table: npt.NDArray[np.int64]
    """(B, 5) `DEVICE_PIXEL_COLUMNS`."""
    sizes: list[tuple[int, int]]
    """Height and width of each, in pixels."""
    owners: list[Any]
    """What holds the memory; see `DeviceRenderer.render`."""


class DeviceTransform:
    """Renders plans on one device; safe from several threads.

    Raises:
        DeviceError: the device cannot be used; see `require_device`.
    """

    def __init__(self, device: torch.device, recipe: Recipe, form: OutputFormat) -> None:
        if device.type == "cuda":
            require_device(str(device))
        self._recipe = recipe
        self._renderer = DeviceRenderer(device, recipe, form)

    def render(self, pixels: DeviceImages, plan: Plan) -> list[Any]:
        """The images of each view: a batch, or a list where their sizes differ."""
        tables = [kernel_rows(rows) for rows in plan.views]
        sizes = [
            _common_size(rows) if len(rows) else view.out_size or (0, 0)
            for view, rows in zip(self._recipe.all_views, plan.views, strict=True)
        ]
        shared = {view: size for view, size in enumerate(sizes) if size is not None}
        with self._renderer.launching(plan.sample_ids, pixels.owners):
            images: dict[int, Any] = {
                view: self._one_by_one(pixels, plan, view, tables[view])
                for view, size in enumerate(sizes)
                if size is None
            }
            batches = self._renderer.render(  # last, so that the owners are kept for all launches
                pixels.table, [tables[view] for view in shared], [*shared.values()], pixels.owners, plan.sample_ids
            )
        images.update(zip(shared, batches, strict=True))
        return [images[view] for view in range(len(sizes))]

    def _one_by_one(self, pixels: DeviceImages, plan: Plan, view: int, table: npt.NDArray[np.void]) -> list[Any]:
        """Whole images of several sizes, each a launch of its own."""
        images = []
        for position, row in enumerate(plan.views[view]):
            chosen = slice(position, position + 1)
            size = int(row["out_height"]), int(row["out_width"])
            (batch,) = self._renderer.render(pixels.table[chosen], [table[chosen]], [size], (), plan.sample_ids[chosen])
            images.append(batch[0])
        return images


def device_pixels(images: Images) -> DeviceImages:
    """The kernel's table of tensors, read where they lie; only what the kernel cannot step through is copied there.

    Raises:
        ValueError: one of them is not an image; the message says which and why.
    """
    parts = []
    for position, tensor in enumerate(images.items):
        check_dtype(tensor, position)
        parts.append(_part(tensor if images.is_whole else tensor[None], position))
    tensors = [tensor for tensor, _ in parts]
    return DeviceImages(
        table=np.concatenate([table for _, table in parts]),
        sizes=[(tensor.shape[1], tensor.shape[2]) for tensor in tensors for _ in range(len(tensor))],
        owners=[tensors] if images.are_borrowed else tensors,  # tensors in a list are kept, not lent
    )


def _part(batch: torch.Tensor, position: int) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    """(B, H, W) or (B, H, W, C) images as the kernel can read them, and their part of its table."""
    check_array(np.broadcast_to(np.uint8(0), batch.shape[1:]), position)
    height, width = batch.shape[1:3]
    channels = batch.shape[3] if batch.ndim == 4 else 1
    if not _can_be_read(batch, channels):
        batch = batch.clone(memory_format=torch.contiguous_format)
    stride = width if height == 1 else batch.stride(1) // channels
    table = np.zeros((len(batch), 5), np.int64)
    table[:, 0] = batch.data_ptr() + np.arange(len(batch)) * batch.stride(0)
    table[:, 1] = stride
    table[:, 4] = channels
    return batch, table


def _can_be_read(batch: torch.Tensor, channels: int) -> bool:
    """Whether each row holds dense pixels, whole pixels lie between rows, and RGBX pixels are whole words."""
    num, height, width = batch.shape[:3]
    pixels_are_dense = channels == 1 or batch.stride(3) == 1
    rows_are_dense = width == 1 or batch.stride(2) == channels
    row_stride = width * channels if height == 1 else batch.stride(1)
    has_words = channels != 4 or (batch.data_ptr() % 4 == 0 and (num == 1 or batch.stride(0) % 4 == 0))
    rows_fit = row_stride % channels == 0 and row_stride // channels * height <= MAX_INDEXABLE_PIXELS
    return pixels_are_dense and rows_are_dense and rows_fit and has_words


def _common_size(rows: npt.NDArray[np.void]) -> tuple[int, int] | None:
    """Height and width of the output images; None where they differ."""
    heights, widths = rows["out_height"], rows["out_width"]
    if np.any(heights != heights[0]) or np.any(widths != widths[0]):
        return None
    return int(heights[0]), int(widths[0])
