"""A recipe as a transform, for people who own their loader: pixels in, augmented pixels out."""

import logging
import os
import threading
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augpipe.checks.arguments import as_num_threads, as_seed
from augpipe.checks.plural import count
from augpipe.checks.torch_worker import torch_worker_seed
from augpipe.cpu.workers import num_usable_cores
from augpipe.gpu_ops.random.philox import MAX_WORD, draws, whole_numbers
from augpipe.output import DType, Framework, Layout, OutputFormat
from augpipe.planning.plan import Plan, refusals
from augpipe.planning.plan import plan as draw_plan
from augpipe.recipe import Recipe, check_recipe, refuse_mixing
from augpipe.transform.host import HostTransform
from augpipe.transform.inputs import Images, images_of

if TYPE_CHECKING:
    from augpipe.transform.device import DeviceTransform

logger = logging.getLogger("augpipe")

Sizes = list[tuple[int, int]]

PROCESS_STREAM = zlib.crc32(b"augpipe.augment.process")
"""The Philox op id under which the seeds of workers and forks are drawn."""


class Augment:
    """Apply a recipe to images held in memory: arrays, PIL images or tensors, one or several.

    What lies on the CPU is augmented there, what lies on a CUDA device on that device. Any thread may call it.

    With `sample_ids` and `epoch` the draws are those of the seed, the epoch and the id, in whatever process. Without
    ids the images are counted, and draws are those of the seed and the count:

    - Each epoch goes on counting, so a run in one process repeats if its calls come in the same order.
    - A worker of torch's DataLoader draws by the seed that torch gave it, too: workers and epochs differ, and a run
      repeats where torch is seeded.
    - Another forked process draws by its process number, too, so that it does not repeat; a line in the log says so.
    - A copy (`copy.deepcopy`, pickle) goes on counting where the original stood, and draws what the original draws
      next.
    - Ranks that each make one with the same seed draw alike, each for its own images. Where that matters give
      seed + rank, or ids.

    Args:
        recipe: what is done to each image.
        seed: 0..2^64 - 1.
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize).
        layout: "NCHW", "NHWC" or "channels_last" (torch only); a single image drops the N.
        framework: "torch" or "numpy"; None gives arrays for arrays, PIL images and what speaks DLPack on the CPU, and
            tensors for tensors and for all that lies on a CUDA device.
        num_threads: threads for several images on the CPU; None for one a core. They run during a call alone.
    """

    def __init__(
        self,
        recipe: Recipe,
        seed: int = 0,
        *,
        dtype: DType = "float32",
        layout: Layout = "NCHW",
        framework: Framework | None = None,
        num_threads: int | None = None,
    ) -> None:
        check_recipe(recipe)
        refuse_mixing(recipe, "a transform")
        self.recipe = recipe
        self.seed = as_seed(seed)
        self._dtype: DType = dtype
        self._layout: Layout = layout
        self._framework = framework
        self._num_threads = as_num_threads(num_threads, num_usable_cores())
        self.next_id = 0
        """The id that the next image without one gets; set it to go on from elsewhere."""
        self._start()
        self._form(framework or ("torch" if dtype == "bfloat16" or layout == "channels_last" else "numpy"))

    def __call__(
        self,
        images: Any,
        sample_ids: npt.ArrayLike | None = None,
        epoch: int = 0,
        *,
        plan: Plan | None = None,
    ) -> Any:
        """Augment one image or several.

        Args:
            images: an (H, W, 3) uint8 array or tensor (also gray (H, W), (H, W, 1), or with a fourth channel that is
                dropped), a PIL image as it stands (applying its EXIF orientation is the caller's part), anything with
                `__dlpack__` or `__cuda_array_interface__` that is such an array, a list of them, or one (B, H, W, C)
                array or tensor. They are only read. In a list, all lie on the CPU or all on one CUDA device, where
                they are read in place if each row's pixels are dense, and copied first if not.
            sample_ids: an id for each image: the same id, epoch and seed give the same pixels in every process. None
                counts on from call to call, so that no two images are treated alike; see the class for workers.
            epoch: 0..2^32 - 1. With ids give it too, or each epoch draws alike. In a Dataset whose workers live
                longer than an epoch it has to be shared with them, as in examples/torch_dataset.py.
            plan: repeat this plan instead of drawing one.

        Returns:
            One image (3, H, W) or a batch (B, 3, H, W), or with the channels last; a list of images where their sizes
            differ; a tuple, one entry a view, where the recipe has several views. On a CUDA device they are tensors
            that are ready for work on torch's current stream; the host does not wait for them.

        Raises:
            ValueError: an image is not one, or cannot be used with the recipe; the message says which and why.
            augpipe.cuda.failures.KernelError: the CUDA device reports an error, perhaps of an earlier call.
            torch.OutOfMemoryError: the CUDA device is full.
        """
        given = images_of(images)
        if given.device is not None:
            return self._on_device(given, sample_ids, epoch, plan)
        form = self._form(self._framework or ("torch" if given.are_tensors else "numpy"))
        sizes = [(image.shape[0], image.shape[1]) for image in given.items]
        made = self._made(plan, sizes, sample_ids, epoch)
        views = zip(self.recipe.all_views, made.views, strict=True)
        return _handed_out([self._host.render(given.items, view, rows, form) for view, rows in views], given.is_single)

    def _on_device(self, given: Images, sample_ids: npt.ArrayLike | None, epoch: int, plan: Plan | None) -> Any:
        from augpipe.transform.device import DeviceTransform, device_pixels

        if self._framework == "numpy":
            raise ValueError(
                f'framework="numpy" and image 0 lies on {given.device}, where numpy has no arrays. Leave framework '
                "out and call .cpu().numpy() on the result, or move the images with .cpu() first."
            )
        pixels = device_pixels(given)
        made = self._made(plan, pixels.sizes, sample_ids, epoch)
        with self._lock:
            transform = self._devices.get(given.device)
            if transform is None:
                transform = DeviceTransform(given.device, self.recipe, self._form("torch"))
                self._devices[given.device] = transform
        return _handed_out(transform.render(pixels, made), given.is_single)

    def _form(self, framework: Framework) -> OutputFormat:
        form = OutputFormat(dtype=self._dtype, layout=self._layout, framework=framework)
        form.check(self.recipe)
        return form

    def _made(self, plan: Plan | None, sizes: Sizes, sample_ids: npt.ArrayLike | None, epoch: int) -> Plan:
        """The plan to carry out: the caller's, or a new one."""
        if plan is None:
            return self._drawn(sizes, sample_ids, epoch)
        if sample_ids is not None:
            raise ValueError("sample_ids and plan are both given, and a plan holds its own ids. Leave sample_ids out.")
        return self._checked(plan, sizes)

    def _drawn(self, sizes: Sizes, sample_ids: npt.ArrayLike | None, epoch: int) -> Plan:
        seed = self.seed
        if sample_ids is None:
            seed = self._seed_here()
            with self._lock:
                first = self.next_id
                self.next_id += len(sizes)
            ids = np.arange(first, first + len(sizes)) % 2**32
        else:
            ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).reshape(-1)
            if len(ids) != len(sizes):
                raise ValueError(
                    f"sample_ids holds {count(len(ids), 'id')} for {count(len(sizes), 'image')}. Give one each."
                )
        for position, reason in enumerate(refusals(self.recipe, sizes)):
            if reason:
                raise ValueError(f"image {position}: {reason}")
        return draw_plan(self.recipe, ids, sizes=sizes, epoch=epoch, seed=seed)

    def _seed_here(self) -> int:
        """The seed of images without ids: a fork begins with a copy of the count, and needs one of its own."""
        worker_seed = torch_worker_seed()
        if worker_seed is not None:
            return _seed_of_process(self.seed, worker_seed)
        if self._process == os.getpid():
            return self.seed
        _tell_of_fork(os.getpid())
        return _seed_of_process(self.seed, os.getpid())

    def _checked(self, plan: Plan, sizes: Sizes) -> Plan:
        if plan.recipe != self.recipe:
            raise ValueError(
                f"the plan was drawn from another recipe ({plan.recipe.name or 'unnamed'}) than this transform's "
                f"({self.recipe.name or 'unnamed'}). Give that one: Augment(plan.recipe)(images, plan=plan)."
            )
        if len(plan) != len(sizes):
            raise ValueError(
                f"the plan is of {count(len(plan), 'sample')}; {count(len(sizes), 'image')} came. Cut it: plan[i:j]."
            )
        for position, (row, (height, width)) in enumerate(zip(plan.rows, sizes, strict=True)):
            if (row["height"], row["width"]) != (height, width):
                raise ValueError(
                    f"image {position} is {height}x{width} pixels and the plan was made for "
                    f"{row['height']}x{row['width']}. Give the photographs in the plan's order (plan.sample_ids)."
                )
        return plan

    def _start(self) -> None:
        """What belongs to one process: its memory, its devices, its lock."""
        self._host = HostTransform(self._num_threads)
        self._devices: dict[Any, DeviceTransform] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_host", "_devices", "_lock", "_process")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        return f"Augment({self.recipe.name or self.recipe!r}, seed={self.seed})"


@lru_cache(maxsize=256)
def _seed_of_process(seed: int, process: int) -> int:
    """The seed of one process that shares `seed` with others; `process` is its own number of up to 64 bits."""
    words = draws(seed, process >> 32 & MAX_WORD, [process & MAX_WORD], PROCESS_STREAM, 2)[0]
    return int(words[0]) | int(words[1]) << 32


@lru_cache(maxsize=1)
def _tell_of_fork(process: int) -> None:
    logger.warning(
        "Augment: process %d was forked and gives no sample_ids: it draws by its process number, so that it differs "
        "from other forks, and a run does not repeat. Give sample_ids and epoch",
        process,
    )


def _handed_out(views: list[Any], is_single: bool) -> Any:
    """One image or batch, or one of each view."""
    results = [images[0] if is_single else images for images in views]
    return results[0] if len(results) == 1 else tuple(results)
