"""The recipe on a batch in device memory: the bodies of DALI's GPU operator and of the CPU operator before it.

A GPU operator sees device memory alone, and a plan is drawn on the host. So where the graph gives ids or epochs, a CPU
operator notes them down, and the GPU operator, which runs the same batches in the same order, takes them from there:
nothing is read back from the device.

Lifetimes. Everything is queued on DALI's stream of the GPU operator, without waiting for it.
- Images are views of DALI's memory. DALI uses that memory again in the order of its stream, so it may be let go
  as soon as the launch is queued.
- Finished images are torch tensors that were allocated with DALI's stream as torch's current one. DALI queues a copy
  of each to memory of its own, on the same stream, before it calls the operator again, and then lets go of them.
  torch's allocator hands their memory out again for that stream alone, hence behind the copy.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from augpipe.dali.samples import Numbers, SampleNumbers, plan_batch
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import import_torch
from augpipe.recipes.recipe import Recipe

if TYPE_CHECKING:
    from augpipe.cuda.cuda_render import DeviceRenderer

Capsule = Any
"""DLPack's PyCapsule, which has no type of its own in Python."""


class DeviceAugment:
    """Augments a batch a call; DALI's Python operators share a lock, so there is one call at a time."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        numbers: SampleNumbers,
        renderer: "DeviceRenderer",
        on_dali_stream: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`on_dali_stream` makes the stream that DALI calls the operator with torch's current one."""
        self._recipe = recipe
        self._seed = seed
        self._numbers = numbers
        self._renderer = renderer
        self._on_dali_stream = on_dali_stream
        self._noted: deque[tuple[Numbers, Numbers]] = deque()

    def note(self, *given: list[Numbers]) -> list[Numbers]:
        """The CPU operator: keep the ids and epochs of a batch until the GPU operator gets there.

        Args:
            given: see `SampleNumbers.next`.

        Returns:
            The ids, one a sample; as an input of the GPU operator they make it wait for this one.
        """
        ids, epochs = self._numbers.next(len(given[0]), given)
        self._noted.append((ids, epochs))
        return list(ids.reshape(-1, 1))

    def __call__(self, images: list[Capsule], *noted: list[Capsule]) -> list[Capsule] | tuple[list[Capsule], ...]:
        """The GPU operator: queue one batch on DALI's stream.

        Args:
            images: DLPack capsules of HWC uint8 images.
            noted: what `note` returned, where it is a part of the graph; its values are not looked at.

        Returns:
            For each view one capsule a sample; for a single view that list itself.

        Raises:
            ValueError: an image is not one, or cannot be used with the recipe; the message names the sample.
        """
        dlpack = import_torch().utils.dlpack
        ids, epochs = self._noted.popleft() if noted else self._numbers.next(len(images), ())
        with self._on_dali_stream():
            pixels = [
                _checked(dlpack.from_dlpack(image), sample_id) for image, sample_id in zip(images, ids, strict=True)
            ]
            finished = self._render(pixels, ids, epochs)
            capsules = tuple([dlpack.to_dlpack(image) for image in images_of_view] for images_of_view in finished)
        return capsules if len(capsules) > 1 else capsules[0]

    def _render(self, pixels: list[Any], ids: Numbers, epochs: Numbers) -> list[list[Any]]:
        """For each view one tensor a sample: one launch where all images come out alike, else one for each size."""
        made = plan_batch(self._recipe, self._seed, ids, epochs, [(image.shape[0], image.shape[1]) for image in pixels])
        tables = [kernel_rows(rows) for rows in made.views]
        table = np.array([(image.data_ptr(), image.shape[1], 0, 0, image.shape[2]) for image in pixels], np.int64)
        sizes = np.stack([rows[name] for rows in made.views for name in ("out_height", "out_width")], axis=1)
        finished: list[list[Any]] = [[None] * len(pixels) for _ in made.views]
        for size in np.unique(sizes, axis=0):
            which = np.flatnonzero((sizes == size).all(axis=1))
            batches = self._renderer.render(
                table[which],
                [rows[which] for rows in tables],
                [(int(height), int(width)) for height, width in size.reshape(-1, 2)],
                [],  # DALI and torch keep the images in the order of the stream
                ids[which],
            )
            for images_of_view, batch in zip(finished, batches, strict=True):
                for position, image in zip(which, batch, strict=True):
                    images_of_view[position] = image
        return finished


@contextmanager
def dali_stream(device: Any) -> Iterator[None]:
    """Make the stream of the GPU operator that DALI is calling torch's current one, and its device the current one."""
    from nvidia.dali.ops import PythonFunction

    torch = import_torch()
    stream = torch.cuda.ExternalStream(PythonFunction.current_stream().ptr, device=device)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield


def _checked(image: Any, sample_id: Any) -> Any:
    """The tensor, if it is an HWC uint8 image; with a fourth channel it starts at a multiple of four bytes."""
    if str(image.dtype) != "torch.uint8":
        raise ValueError(f"sample {sample_id}: the image is {image.dtype}, and must be uint8 with values in 0..255.")
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"sample {sample_id}: the image has shape {tuple(image.shape)}, and must be (H, W, 1), (H, W, 3) or "
            "(H, W, 4). Move its channels last."
        )
    return image.clone() if image.shape[2] == 4 and image.data_ptr() % 4 else image
