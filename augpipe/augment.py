"""A recipe as a transform, for people who own their loader: pixels in, augmented pixels out."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augpipe.checks.arguments import as_num_threads, as_seed
from augpipe.checks.plural import count
from augpipe.cpu.workers import num_usable_cores
from augpipe.gpu_ops.random.philox import MAX_WORD, whole_numbers
from augpipe.output import DType, Framework, Layout, OutputFormat
from augpipe.planning.plan import Plan, refusals
from augpipe.planning.plan import plan as draw_plan
from augpipe.recipe import Recipe, refuse_mixing
from augpipe.recipe_names import as_recipe
from augpipe.transform.host import HostTransform
from augpipe.transform.inputs import Images, images_of
from augpipe.transform.worker_seed import worker_seed

if TYPE_CHECKING:
    from augpipe.transform.device import DeviceTransform

Sizes = list[tuple[int, int]]

_OF_ONE_PROCESS = ("_host", "_devices", "_lock", "_process", "_is_forked", "_seed_here")


class Augment:
    """Apply a recipe to images held in memory: arrays, PIL images or tensors, one or several.

    What lies on the CPU is augmented there, what lies on a CUDA device on that device. Any thread may call it.

    Args:
        recipe: what is done to each image: a `Recipe`, a name such as "deep_image", or the path of a TOML file.
        seed: 0..2^64 - 1.
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize).
        layout: "NCHW", "NHWC" or "channels_last" (torch only); a single image drops the N.
        framework: "torch" or "numpy"; None gives arrays for arrays, PIL images and what speaks DLPack on the CPU, and
            tensors for tensors and for all that lies on a CUDA device.
        num_threads: threads for several images on the CPU; None for one a core. They run during a call alone.
    """

    def __init__(
        self,
        recipe: Recipe | str | Path,
        seed: int = 0,
        *,
        dtype: DType = "float32",
        layout: Layout = "NCHW",
        framework: Framework | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.recipe = as_recipe(recipe)
        refuse_mixing(self.recipe, "a transform")
        self.seed = as_seed(seed)
        self._dtype: DType = dtype
        self._layout: Layout = layout
        self._framework = framework
        self._num_threads = as_num_threads(num_threads, num_usable_cores())
        self._seed_here: int | None = None
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
            sample_ids: an id for each image: the same id, epoch and seed give the same pixels, in any process. None
                counts on from call to call, so that no two images are treated alike; a worker process, as of torch's
                DataLoader, draws by a seed of its own (`worker_seed`), so that workers and epochs differ. Ranks that
                were given the same seed count alike: give each its own (seed + rank).
            epoch: 0..2^32 - 1.
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
        if sample_ids is None:
            if self._process != os.getpid():
                self._start(is_forked=True)
            with self._lock:
                if self._seed_here is None:
                    self._seed_here = worker_seed(self.seed, self._is_forked)
                seed = self._seed_here
                first = self.next_id
                self.next_id += len(sizes)
            ids = np.arange(first, first + len(sizes)) % 2**32
        else:
            seed = self.seed
            ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).reshape(-1)
            if len(ids) != len(sizes):
                raise ValueError(
                    f"sample_ids holds {count(len(ids), 'id')} for {count(len(sizes), 'image')}. Give one each."
                )
        for position, reason in enumerate(refusals(self.recipe, sizes)):
            if reason:
                raise ValueError(f"image {position}: {reason}")
        return draw_plan(self.recipe, ids, sizes=sizes, epoch=epoch, seed=seed)

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

    def _start(self, *, is_forked: bool = False) -> None:
        """What belongs to one process: its memory, its devices, its lock, its seed where images have no ids."""
        self._process = os.getpid()
        self._is_forked = is_forked
        self._seed_here = None  # a process that is being spawned does not know yet that it is a worker
        self._host = HostTransform(self._num_threads)
        self._devices: dict[Any, DeviceTransform] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_ONE_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        return f"Augment({self.recipe.name or self.recipe!r}, seed={self.seed})"


def _handed_out(views: list[Any], is_single: bool) -> Any:
    """One image or batch, or one of each view."""
    results = [images[0] if is_single else images for images in views]
    return results[0] if len(results) == 1 else tuple(results)
