"""Images of arrays, on the CPU: one image after another, on a few threads during the call."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.cpu.render import Scratch, as_rgbx, render
from augpipe.cpu.workers import run_each
from augpipe.output import OutputFormat
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.recipe import View
from augpipe.source import Pixels


class HostTransform:
    """Renders views on the CPU; safe from several threads."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._scratch = Scratch()

    def render(self, photographs: list[Pixels], view: View, rows: npt.NDArray[np.void], form: OutputFormat) -> Any:
        """The images of one view: a batch, or a list where their sizes differ."""
        table = kernel_rows(rows)
        sizes = [(int(row["out_height"]), int(row["out_width"])) for row in rows]
        ends = np.cumsum([0] + [height * width * 3 for height, width in sizes])
        memory: npt.NDArray[np.generic] = np.empty(int(ends[-1]), form.held_as)

        def work(position: int) -> None:
            out = memory[ends[position] : ends[position + 1]]
            pixels = as_rgbx(photographs[position], self._scratch)
            render([pixels], table[position : position + 1], out, sizes[position], form, self._scratch)

        run_each(work, len(photographs), self._num_threads)
        if len(set(sizes)) <= 1:
            height, width = sizes[0] if sizes else view.out_size or (0, 0)
            return form.wrap(memory, len(photographs), height, width)
        return [
            form.wrap(memory[ends[i] : ends[i + 1]], 1, height, width)[0] for i, (height, width) in enumerate(sizes)
        ]
