"""Batches of photographs that lie in device memory, as a full cache holds them, and what rendering them must move."""

import io
from functools import cache

import numpy as np
import torch
from gpu_common import Run, form, stream_number
from PIL import Image

from augpipe import Recipe, plan
from augpipe.gpu_ops.cuda.launch import render_batch
from augpipe.planning.kernel_rows import kernel_rows

NUM_SHAPES = 64
"""Different photographs; the others are their copies, in memory of their own."""


class CachedBatches:
    """Batches that take turns, so that the device's own cache is not what is measured.

    Args:
        run: which photographs.
        recipe: what is done to them; one view.
        dtype, layout: of the images.
        size: height and width of a cached photograph.
        num_batches, batch_size: together more photographs than the device's cache holds.
        channels: 3 or 4 (RGBX, as the cache holds them).
    """

    def __init__(
        self,
        run: Run,
        recipe: Recipe,
        dtype: str,
        layout: str,
        *,
        size: tuple[int, int],
        num_batches: int = 8,
        batch_size: int = 256,
        channels: int = 4,
    ) -> None:
        self.recipe, self.form = recipe, form(dtype, layout)
        self.num_batches, self.batch_size = run.pick(num_batches, 2), run.pick(batch_size, 2)
        num = self.num_batches * self.batch_size
        images = torch.from_numpy(_resized(run, size, channels)).to(run.device)
        self.photographs = images.repeat(-(-num // len(images)), 1, 1, 1)[:num].contiguous()
        self.order = np.random.default_rng(0).permutation(num).reshape(self.num_batches, self.batch_size)
        first, image_bytes = self.photographs.data_ptr(), size[0] * size[1] * channels
        self.tables, self.rows, self.plans = [], [], []
        for number, ids in enumerate(self.order):
            made = plan(recipe, ids, sizes=[size] * len(ids), epoch=number)
            table = np.zeros((len(ids), 5), np.int64)
            table[:, 0], table[:, 1], table[:, 4] = first + ids * image_bytes, size[1], channels
            self.tables.append(table)
            self.rows.append(kernel_rows(made.rows))
            self.plans.append(made)
        self._uploaded = [
            tuple(torch.from_numpy(part.view(np.uint8).reshape(-1)).to(run.device) for part in pair)
            for pair in zip(self.tables, self.rows, strict=True)
        ]
        self.height, self.width = (int(made.rows[name][0]) for name in ("out_height", "out_width"))
        inner = (3, self.height, self.width) if self.form.planar else (self.height, self.width, 3)
        shape = (self.batch_size, *inner)
        # two, so that a batch's writes do not find the last one's in the device's cache
        self._outs = [torch.empty(shape, dtype=getattr(torch, dtype), device=run.device) for _ in range(2)]

    def launch(self, turn: int) -> torch.Tensor:
        """Queue one batch: the kernel and nothing else."""
        pixels, rows = self._uploaded[turn % self.num_batches]
        out = self._outs[turn % 2]
        render_batch(
            pixels.data_ptr(),
            rows.data_ptr(),
            out.data_ptr(),
            num=self.batch_size,
            height=self.height,
            width=self.width,
            planar=self.form.planar,
            held_as=self.form.dtype,
            stream=stream_number(),
        )
        return out

    def bytes_per_batch(self) -> dict[str, int]:
        """The least that a batch must move: what is written, and the photographs' pixels under the output, once."""
        written = self._outs[0].nbytes
        pixel_bytes = int(self.tables[0][0, 4])
        read = [_covered_pixels(rows, self.height, self.width) * pixel_bytes for rows in self.rows]
        return {"written": written, "read": round(sum(read) / len(read))}


def _covered_pixels(rows: np.ndarray, height: int, width: int) -> float:
    """Photograph pixels under a batch's outputs, by the maps' determinants; lenses' bends are left out."""
    after = rows["after_xx"] * rows["after_yy"] - rows["after_xy"] * rows["after_yx"]
    before = rows["before_xx"] * rows["before_yy"] - rows["before_xy"] * rows["before_yx"]
    area = np.abs(after * np.where(rows["has_lens"] != 0, before, 1.0)).astype(np.float64)
    there = (rows["high_x"] - rows["low_x"] + 1.0) * (rows["high_y"] - rows["low_y"] + 1.0)
    return float(np.minimum(area * height * width, there).sum())


@cache
def _resized(run: Run, size: tuple[int, int], channels: int) -> np.ndarray:
    """(N, height, width, channels): the photographs, brought to one size."""
    mode = "RGBX" if channels == 4 else "RGB"
    images = []
    for data in run.encoded()[:NUM_SHAPES]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        resized = image.resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2.0)
        images.append(np.array(resized.convert(mode)))
    return np.stack(images)
