"""Cells of a rendered image in the CUDA loop, as `gpu_ops.image.cells` has them: from what was copied aside."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_changing_f32, load_u8, store_f32
from augpipe.gpu_ops.image import cells

edge, cell_of, coarse = shared(cells.edge), shared(cells.cell_of), shared(cells.coarse)


@function()
def shuffle(start, copy, table, num_down, num_across, height, width, pixel_step, channel_step, thread, num_threads):
    """Show in each cell what stood in the one that the table names, of the same size."""
    for pixel in range(thread, height * width, num_threads):
        x, y = pixel % width, pixel // width
        down, across = cell_of(y, num_down, height), cell_of(x, num_across, width)
        source = np.int64(load_u8(table + down * num_across + across))
        x += edge(source % num_across, num_across, width) - edge(across, num_across, width)
        y += edge(source // num_across, num_down, height) - edge(down, num_down, height)
        for channel in range(3):
            level = load_changing_f32(copy + 4 * (3 * (y * width + x) + channel))
            store_f32(start + 4 * (pixel * pixel_step + channel * channel_step), level)


@function()
def coarsen(start, copy, num_down, num_across, apart, height, width, pixel_step, channel_step, thread, num_threads):
    """Show the pixels of a smaller image, each as often as it takes to fill this one."""
    for pixel in range(thread, height * width, num_threads):
        x, y = coarse(pixel % width, num_across, width, apart), coarse(pixel // width, num_down, height, apart)
        for channel in range(3):
            level = load_changing_f32(copy + 4 * (3 * (y * width + x) + channel))
            store_f32(start + 4 * (pixel * pixel_step + channel * channel_step), level)
