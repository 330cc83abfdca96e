"""A recipe as a transform, for people who own their loader: pixels in, augmented pixels out."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.arguments import as_num_threads, as_seed
from augpipe.backends.render import Scratch, as_rgbx, check_image, render
from augpipe.decoding.pillow import decode_stored
from augpipe.gpu_ops.philox import MAX_WORD, whole_numbers
from augpipe.output import DType, Framework, Layout, OutputFormat
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.plan import Plan, refusals
from augpipe.planning.plan import plan as draw_plan
from augpipe.recipe import Recipe, View
from augpipe.source import Pixels
from augpipe.workers import num_usable_cores


class Augment:
    """Apply a recipe to photographs held in memory: arrays, PIL images or CPU tensors, one or a list.

    Args:
        recipe: what is done to each photograph.
        seed: 0..2^64 - 1.
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize).
        layout: "NCHW", "NHWC" or "channels_last" (torch only); a single image drops the N.
        framework: "torch" or "numpy"; None gives tensors for tensors and arrays for all else.
        num_threads: threads for lists; None for one a core. They run during a call alone.
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
        if not isinstance(recipe, Recipe):
            raise ValueError(f"recipe is a {type(recipe).__name__}. Give a Recipe; Recipe.load(path) reads one.")
        self.recipe = recipe
        self.seed = as_seed(seed)
        self._dtype: DType = dtype
        self._layout: Layout = layout
        self._framework = framework
        self._num_threads = as_num_threads(num_threads, num_usable_cores())
        self._scratch = Scratch()
        self._lock = threading.Lock()
        self._next_id = 0
        self._form(framework or ("torch" if dtype == "bfloat16" or layout == "channels_last" else "numpy"))

    def __call__(
        self,
        images: Any,
        sample_ids: npt.ArrayLike | None = None,
        epoch: int = 0,
        *,
        plan: Plan | None = None,
    ) -> Any:
        """Augment one photograph or several.

        Args:
            images: an (H, W, 3) uint8 array or CPU tensor (also gray (H, W), (H, W, 1), or with a fourth channel that
                is dropped), a PIL image as it stands (applying its EXIF orientation is the caller's part), a list of
                them, or one (B, H, W, C) array or tensor. They are only read.
            sample_ids: an id for each photograph: the same id, epoch and seed give the same pixels. None counts on
                from call to call, so that no two photographs are treated alike; worker processes that share a copy of
                this object count alike, so give ids there.
            epoch: 0..2^32 - 1.
            plan: repeat this plan instead of drawing one.

        Returns:
            One image (3, H, W) or a batch (B, 3, H, W), or with the channels last; a list of images where their sizes
            differ; a tuple, one entry a view, where the recipe has several views.

        Raises:
            ValueError: an image is not one, or cannot be used with the recipe; the message says which and why.
        """
        is_single = not isinstance(images, list | tuple) and getattr(images, "ndim", 3) != 4
        given = [images] if is_single else list(images)
        form = self._form(self._framework or ("torch" if given and _is_tensor(given[0]) else "numpy"))
        photographs = [_as_array(image, position) for position, image in enumerate(given)]
        if plan is None:
            made = self._plan(photographs, sample_ids, epoch)
        elif sample_ids is None:
            made = self._checked(plan, photographs)
        else:
            raise ValueError("sample_ids and plan are both given, and a plan holds its own ids. Leave sample_ids out.")
        results = []
        for view, rows in zip(self.recipe.all_views, made.views, strict=True):
            images_of_view = self._render(photographs, view, rows, form)
            results.append(images_of_view[0] if is_single else images_of_view)
        return results[0] if len(results) == 1 else tuple(results)

    def _form(self, framework: Framework) -> OutputFormat:
        form = OutputFormat(dtype=self._dtype, layout=self._layout, framework=framework)
        form.check(self.recipe)
        return form

    def _plan(self, photographs: list[Pixels], sample_ids: npt.ArrayLike | None, epoch: int) -> Plan:
        if sample_ids is None:
            with self._lock:
                first = self._next_id
                self._next_id += len(photographs)
            ids = np.arange(first, first + len(photographs)) % 2**32
        else:
            ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).reshape(-1)
            if len(ids) != len(photographs):
                raise ValueError(f"sample_ids holds {len(ids)} ids for {len(photographs)} images. Give one each.")
        sizes = [(image.shape[0], image.shape[1]) for image in photographs]
        for position, reason in enumerate(refusals(self.recipe, sizes)):
            if reason:
                raise ValueError(f"image {position}: {reason}")
        return draw_plan(self.recipe, ids, sizes=sizes, epoch=epoch, seed=self.seed)

    def _checked(self, plan: Plan, photographs: list[Pixels]) -> Plan:
        if plan.recipe != self.recipe:
            raise ValueError(
                f"the plan was drawn from another recipe ({plan.recipe.name or 'unnamed'}) than this transform's "
                f"({self.recipe.name or 'unnamed'}). Give that one: Augment(plan.recipe)(images, plan=plan)."
            )
        if len(plan) != len(photographs):
            raise ValueError(
                f"the plan is of {len(plan)} samples and there are {len(photographs)} images. Cut it: plan[i:j]."
            )
        for position, (row, image) in enumerate(zip(plan.rows, photographs, strict=True)):
            if (row["height"], row["width"]) != image.shape[:2]:
                raise ValueError(
                    f"image {position} is {image.shape[0]}x{image.shape[1]} pixels and the plan was made for "
                    f"{row['height']}x{row['width']}. Give the photographs in the plan's order (plan.sample_ids)."
                )
        return plan

    def _render(self, photographs: list[Pixels], view: View, rows: npt.NDArray[np.void], form: OutputFormat) -> Any:
        """The images of one view: a batch, or a list where their sizes differ."""
        table = kernel_rows(rows)
        sizes = [(int(row["out_height"]), int(row["out_width"])) for row in rows]
        ends = np.cumsum([0] + [height * width * 3 for height, width in sizes])
        memory: npt.NDArray[np.generic] = np.empty(int(ends[-1]), form.held_as)

        def work(position: int) -> None:
            out = memory[ends[position] : ends[position + 1]]
            pixels = as_rgbx(photographs[position], self._scratch)
            render(pixels, table[position : position + 1], out, sizes[position], form, self._scratch)

        num_threads = min(self._num_threads, len(photographs))
        if num_threads > 1:
            with ThreadPoolExecutor(num_threads) as pool:
                list(pool.map(work, range(len(photographs))))
        else:
            for position in range(len(photographs)):
                work(position)
        if len(set(sizes)) <= 1:
            height, width = sizes[0] if sizes else view.out_size or (0, 0)
            return form.wrap(memory, len(photographs), height, width)
        return [
            form.wrap(memory[ends[i] : ends[i + 1]], 1, height, width)[0] for i, (height, width) in enumerate(sizes)
        ]

    def __getstate__(self) -> dict[str, Any]:
        # a worker process gets memory of its own
        return {name: value for name, value in self.__dict__.items() if name not in ("_scratch", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _scratch=Scratch(), _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"Augment({self.recipe.name or self.recipe!r}, seed={self.seed})"


def _is_tensor(image: Any) -> bool:
    # by inheritance too, as torchvision's tv_tensors are; torch itself is not imported for arrays
    return any(f"{kind.__module__}.{kind.__qualname__}" == "torch.Tensor" for kind in type(image).__mro__)


def _as_array(image: Any, position: int) -> Pixels:
    """A uint8 array (H, W) or (H, W, C) of an array, CPU tensor or PIL image, copied only where it must be."""
    array: npt.NDArray[Any]
    if _is_tensor(image):
        if image.device.type != "cpu":
            raise ValueError(f"image {position} lies on {image.device}, and must be on the CPU. Call .cpu() first.")
        if str(image.dtype) != "torch.uint8":  # said here, as some of the others have no numpy type
            raise ValueError(f"image {position}: the tensor is {image.dtype}, and must be uint8 with values in 0..255.")
        array = image.numpy()
    elif isinstance(image, np.ndarray):
        array = image
    elif hasattr(image, "convert") and hasattr(image, "mode"):
        array = np.asarray(image) if image.mode in ("L", "RGB", "RGBX") else _decoded(image, position)
    else:
        raise ValueError(
            f"image {position} is a {type(image).__name__}. Give an (H, W, C) uint8 array or tensor, or a PIL image."
        )
    try:
        check_image(array)
    except ValueError as error:
        raise ValueError(f"image {position}: {error}.") from None
    return array


def _decoded(image: Any, position: int) -> Pixels:
    try:
        return decode_stored(image.copy())  # it drops the image's transparency
    except ValueError as error:
        raise ValueError(f"image {position}: {error}.") from error
