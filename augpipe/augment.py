"""A recipe as a transform, for people who own their loader: pixels in, augmented pixels out."""

import inspect
import os
import threading
from collections.abc import Sequence
from ctypes import c_uint32
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.collate import as_labels, content_ids, taken_apart
from augpipe.augment_call.host_images import HostTransform
from augpipe.augment_call.inputs import Images, images_of
from augpipe.augment_call.plans_ahead import PlanAhead, PlansAhead
from augpipe.augment_call.repeats import Repeats
from augpipe.augment_call.tv_names import is_structure
from augpipe.augment_call.worker_seed import worker_seed
from augpipe.batch import Batch
from augpipe.decoding import MAX_PIXELS
from augpipe.gpu_ops.random.philox import MAX_WORD, whole_numbers
from augpipe.native.compile_ahead import start_compiling
from augpipe.native.workers import num_usable_cores
from augpipe.planning.output_format import DType, DTypeLike, Framework, Layout, OutputFormat, dtype_name
from augpipe.planning.plan import Plan, plan_ahead, refusals
from augpipe.planning.plan import plan as draw_plan
from augpipe.recipes.names import as_recipe
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import refuse_mixing
from augpipe.validation.arguments import as_epoch, as_max_pixels, as_num_threads, as_seed, unknown_argument
from augpipe.validation.plural import count
from augpipe.validation.torch_worker import torch_worker_seed

if TYPE_CHECKING:
    from augpipe.augment_call.box_formats import BoxFormat
    from augpipe.augment_call.device_images import DeviceTransform
    from augpipe.augment_call.given_targets import KeypointFormat
    from augpipe.ops.keep_objects import KnownObjects
    from augpipe.planning.targets.options import TargetOptions

Sizes = list[tuple[int, int]]

_OF_ONE_PROCESS = ("_host", "_ahead", "_devices", "_lock", "_process", "_is_forked", "_seed_here", "_known_form")


class Augment:
    """Apply a recipe to images, one or several: files, arrays, PIL images or tensors.

    What lies on the CPU is augmented there, what lies on a CUDA device on that device. Any thread may call it. Of a
    file only what the recipe looks at is decoded, into the pixels that a `Loader` gives for the same seed, epoch and
    sample id.

    Args:
        recipe: what is done to each image: a `Recipe`, a name such as "deep_image", or the path of a TOML file.
        seed: 0..2^64 - 1.
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize); also "fp16" and the
            like, and types of torch and numpy.
        layout: "NCHW", "NHWC" or "channels_last" (torch only); a single image drops the N.
        framework: "torch" or "numpy"; None gives arrays for files, arrays, PIL images and what speaks DLPack on the
            CPU, and tensors for tensors, for all that lies on a CUDA device, and from `collate`.
        num_threads: threads for several images on the CPU; None for one a core, and for one in a worker of torch's
            DataLoader. They run only during a call.
        max_pixels: files of more pixels are refused before they are decoded.
    """

    def __init__(
        self,
        recipe: Recipe | str | Path,
        seed: int = 0,
        *,
        dtype: DTypeLike = "float32",
        layout: Layout = "NCHW",
        framework: Framework | None = None,
        num_threads: int | None = None,
        max_pixels: int = MAX_PIXELS,
        **others: Never,
    ) -> None:
        if others:
            known = [known for known in inspect.signature(Augment).parameters if known != "others"]
            raise TypeError(unknown_argument("Augment", next(iter(others)), known))
        self.recipe = as_recipe(recipe)
        refuse_mixing(self.recipe, "a transform")
        self.seed = as_seed(seed)
        self._dtype: DType = dtype_name(dtype)
        self._layout: Layout = layout
        self._framework = framework
        self._num_threads = None if num_threads is None else as_num_threads(num_threads, 1)
        self._max_pixels = as_max_pixels(max_pixels)
        self._shared_epoch = RawValue(c_uint32, 0)
        self._repeats = Repeats()
        self._seed_here: tuple[int, int] | None = None
        self._known_form: tuple[Recipe, OutputFormat] | None = None
        self.next_id = 0
        """The id that the next image without one gets; set it to go on from elsewhere."""
        self._start()
        start_compiling(
            self._form(framework or ("torch" if self._dtype == "bfloat16" or layout == "channels_last" else "numpy")),
            [self.recipe],
            decodes=False,
        )

    @property
    def epoch(self) -> int:
        """The epoch that draws are made for, where a call is not given one."""
        return int(self._shared_epoch.value)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, 0..2^32 - 1; images without ids are counted from 0 again.

        Worker processes that a DataLoader has started from this one see it too, also persistent ones.
        """
        self._shared_epoch.value = as_epoch(epoch)
        self._repeats.begin()
        self.next_id = 0

    def __call__(
        self,
        images: Any = None,
        sample_ids: npt.ArrayLike | None = None,
        epoch: int | None = None,
        *,
        plan: Plan | None = None,
        bbox_format: "BoxFormat | None" = None,
        keypoint_format: "KeypointFormat | None" = None,
        targets: "TargetOptions | None" = None,
        **named: Any,
    ) -> Any:
        """Augment one image or several, or one with its targets.

        Args:
            images: one image, a list of them, or one (B, H, W, C) array or tensor. An image is one of these:

                - a file: its path, or its bytes (JPEG, PNG, WebP, GIF, BMP, TIFF), turned as EXIF says;
                - an (H, W, 3) uint8 array or tensor, also gray (H, W), (H, W, 1), or with a fourth channel that is
                  dropped; a tensor may have its channels first, (3, H, W) or (B, 3, H, W);
                - a PIL image as it stands (applying its EXIF orientation is the caller's part);
                - anything with `__dlpack__` or `__cuda_array_interface__` that is such an array.

                They are only read. In a list, all lie on the CPU or all on one CUDA device, where they are read in
                place if each row's pixels are dense, and copied first if not.
            sample_ids: an id for each image: the same id, epoch and seed give the same pixels, in any process. None
                counts on from call to call, so that no two images are treated alike; a worker process, as of torch's
                DataLoader, draws by a seed of its own (`worker_seed`), so that workers and epochs differ. Ranks that
                were given the same seed count alike: give each its own (seed + rank).
            epoch: 0..2^32 - 1; None for that of `set_epoch`.
            plan: repeat this plan instead of drawing one.
            bbox_format: how `bboxes` are written, "coco", "pascal_voc", "yolo" or "albumentations".
            keypoint_format: what rows (M, C) of `keypoints` are, where they might be either: "xy", points with columns
                of their own behind x and y, or "coco", for each object x, y and visibility of its points in turn.
            targets: how targets are mapped; see `TargetOptions`.
            named: instead of `images`, one image with its targets by name: `image=`, `mask=`, `masks=`, `bboxes=`,
                `polygons=`, `rotated_boxes=`, `keypoints=`, images named in `TargetOptions.paired`, and lists of any
                other names with an entry for each object, as `labels=`. The result is a dict of the same names.
                `images` may also be one image and tv_tensors of torchvision in dicts, lists and tuples; the result is
                made alike.

        Returns:
            One image (3, H, W) or a batch (B, 3, H, W), or with the channels last; a list of images where their sizes
            differ; a tuple, one entry a view, where the recipe has several views. On a CUDA device they are tensors
            that are ready for work on torch's current stream; the host does not wait for them.

        Raises:
            ValueError: an image is not one, or cannot be used with the recipe; the message says which and why. Of a
                file it is a `SampleError`. Or plain images come with a setting of targets.
            augpipe.cuda.failures.KernelError: the CUDA device reports an error, perhaps of an earlier call.
            torch.OutOfMemoryError: the CUDA device is full.
        """
        epoch = self.epoch if epoch is None else epoch
        if named or images is None or is_structure(images):
            results = self._with_targets(images, named, bbox_format, keypoint_format, targets, sample_ids, epoch, plan)
            return results[0] if len(results) == 1 else tuple(results)
        for name, setting in (("bbox_format", bbox_format), ("keypoint_format", keypoint_format), ("targets", targets)):
            if setting is not None:
                raise ValueError(
                    f"{name} says how targets come or are mapped, and plain images have none. Leave it out, or "
                    "give one image with its targets by name, as image=..., bboxes=...."
                )
        given = images_of(images, self._max_pixels)
        if given.device is not None:
            return self._on_device(given, sample_ids, epoch, plan)
        form = self._form(self._framework or ("torch" if given.are_tensors else "numpy"))
        sizes = [image.size for image in given.items]
        made, ahead = self._made(plan, sizes, given.names, sample_ids, epoch)
        return _handed_out(self._on_host(given, made, form, ahead), given.is_single)

    def collate(self, items: Sequence[Any]) -> Batch:
        """A batch of a data set's items: `DataLoader(data_set, collate_fn=augment.collate, ...)`.

        Pixels depend neither on the number of workers nor on the batch size, and change with `set_epoch`.

        Args:
            items: (image, label) or (image, label, sample id) each. An image is what `__call__` takes, on the CPU; a
                label is an int, or an array of k numbers. With ids the pixels are a Loader's; without them an image's
                id is the CRC-32 of its file, or of its pixels, so that equal images are treated alike in an epoch.

        Returns:
            Images (B, 3, H, W), labels (B,) int64 or (B, k), ids and plan; tensors, unless framework="numpy".

        Raises:
            ValueError: an item is not as above, an image cannot be used, or the batch's images differ in size.
        """
        images, labels, sample_ids = taken_apart(items)
        given = images_of(images, self._max_pixels)
        if given.device is not None:
            raise ValueError(
                f"image 0 lies on {given.device}, and collate takes images on the CPU. Call .cpu() first, or put "
                "augpipe.nn.AugmentModule in front of the model."
            )
        ids = content_ids(given) if sample_ids is None else sample_ids
        form = self._form(self._framework or "torch")
        made, _ = self._made(None, [image.size for image in given.items], given.names, ids, self.epoch)
        views = self._on_host(given, made, form)
        if any(isinstance(view, list) for view in views):
            raise ValueError(
                f"one batch cannot hold images of several sizes, as the recipe {self.recipe.name or 'unnamed'!r} gives "
                "them. Add a crop to the recipe, or use batch_size=1."
            )
        return Batch(
            images=views[0] if len(views) == 1 else tuple(views),
            labels=form.wrap_labels(as_labels(labels)),
            sample_ids=made.sample_ids,
            plan=made,
        )

    def _with_targets(
        self,
        images: Any,
        named: dict[str, Any],
        bbox_format: "BoxFormat | None",
        keypoint_format: "KeypointFormat | None",
        options: "TargetOptions | None",
        sample_ids: npt.ArrayLike | None,
        epoch: int,
        plan: Plan | None,
    ) -> list[Any]:
        """For each view the image and the targets that came with it."""
        from augpipe.augment_call.call_with_targets import CallWithTargets

        call = CallWithTargets(
            images,
            named,
            bbox_format=bbox_format,
            keypoint_format=keypoint_format,
            options=options,
            recipe=self.recipe,
            max_pixels=self._max_pixels,
        )
        sizes = [image.size for image in call.given.items]
        made, ahead = self._made(plan, sizes, call.given.names, sample_ids, epoch, call.objects)
        form = self._form(self._framework or ("torch" if call.has_tensors else "numpy"))
        return call.results(made, [view[0] for view in self._on_host(call.given, made, form, ahead)])

    def _on_host(self, given: Images, made: Plan, form: OutputFormat, ahead: PlanAhead | None = None) -> list[Any]:
        is_alone = len(given.items) == 1 or torch_worker_seed() is not None
        num_threads = self._num_threads or (1 if is_alone else num_usable_cores())  # asking takes 0.2 ms
        return self._host.render(given, made, form, num_threads, ahead)

    def _on_device(self, given: Images, sample_ids: npt.ArrayLike | None, epoch: int, plan: Plan | None) -> Any:
        from augpipe.augment_call.device_images import DeviceTransform, device_pixels

        if self._framework == "numpy":
            raise ValueError(
                f'framework="numpy" and image 0 lies on {given.device}, where numpy has no arrays. Leave framework '
                "out and call .cpu().numpy() on the result, or move the images with .cpu() first."
            )
        pixels = device_pixels(given)
        names = [f"image {position}" for position in range(len(pixels.sizes))]  # of one tensor there are several
        made, _ = self._made(plan, pixels.sizes, names, sample_ids, epoch)
        with self._lock:
            transform = self._devices.get(given.device)
            if transform is None:
                transform = DeviceTransform(given.device, self.recipe, self._form("torch"))
                self._devices[given.device] = transform
        return _handed_out(transform.render(pixels, made), given.is_single)

    def _form(self, framework: Framework) -> OutputFormat:
        recipe, known = self.recipe, self._known_form
        if known is not None and known[0] is recipe and known[1].framework == framework:
            return known[1]
        form = OutputFormat(dtype=self._dtype, layout=self._layout, framework=framework, channels=recipe.channels)
        form.check(recipe)
        self._known_form = recipe, form
        return form

    def _made(
        self,
        plan: Plan | None,
        sizes: Sizes,
        names: Sequence[str],
        sample_ids: npt.ArrayLike | None,
        epoch: int,
        objects: "KnownObjects | None" = None,
    ) -> tuple[Plan, PlanAhead | None]:
        """The plan to carry out: the caller's, or a new one, of the next ids with the block that it was made in."""
        if plan is None:
            if sample_ids is None and objects is None and len(sizes):
                ahead = self._drawn_ahead(sizes, names, epoch)
                return ahead.plan, ahead
            return self._drawn(sizes, names, sample_ids, epoch, objects), None
        if sample_ids is not None:
            raise ValueError("sample_ids and plan are both given, and a plan holds its own ids. Leave sample_ids out.")
        return self._checked(plan, sizes, names), None

    def _drawn(
        self,
        sizes: Sizes,
        names: Sequence[str],
        sample_ids: npt.ArrayLike | None,
        epoch: int,
        objects: "KnownObjects | None",
    ) -> Plan:
        if sample_ids is None:
            with self._own_lock():
                seed, first = self._own_seed(), self.next_id
                self.next_id += len(sizes)
            ids = np.arange(first, first + len(sizes)) % 2**32
        else:
            seed = self.seed
            ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).reshape(-1)
            if len(ids) != len(sizes):
                raise ValueError(
                    f"sample_ids holds {count(len(ids), 'id')} for {count(len(sizes), 'image')}. Give one each."
                )
            self._repeats.look(ids, epoch, self.recipe)
        self._refuse(names, sizes)
        return draw_plan(self.recipe, ids, sizes=sizes, epoch=epoch, seed=seed, objects=objects)

    def _drawn_ahead(self, sizes: Sizes, names: Sequence[str], epoch: int) -> PlanAhead:
        """The plan of the next ids."""
        with self._own_lock():
            seed, sample_id, recipe = self._own_seed(), self.next_id % 2**32, self.recipe
            self.next_id += len(sizes)
            self._refuse(names, sizes)
            block, own = self._ahead.block(sample_id, sizes, recipe, plan_ahead, epoch, seed)
        return PlanAhead(block, own, sizes, recipe, seed)

    def _own_lock(self) -> threading.Lock:
        """What is held while this process counts ids."""
        if self._process != os.getpid():
            self._start(is_forked=True)
        return self._lock

    def _own_seed(self) -> int:
        """What this process draws by where images have no ids; `_own_lock` is held."""
        if self._seed_here is None or self._seed_here[0] != self.seed:
            self._seed_here = self.seed, worker_seed(self.seed, self._is_forked)
        return self._seed_here[1]

    def _refuse(self, names: Sequence[str], sizes: Sizes) -> None:
        for name, reason in zip(names, refusals(self.recipe, sizes), strict=True):
            if reason:
                raise ValueError(f"{name}: {reason}")

    def _checked(self, plan: Plan, sizes: Sizes, names: Sequence[str]) -> Plan:
        if plan.recipe != self.recipe:
            raise ValueError(
                f"the plan was drawn from another recipe ({plan.recipe.name or 'unnamed'}) than this transform's "
                f"({self.recipe.name or 'unnamed'}). Give that one: Augment(plan.recipe)(images, plan=plan)."
            )
        if len(plan) != len(sizes):
            raise ValueError(
                f"the plan is of {count(len(plan), 'sample')}; {count(len(sizes), 'image')} came. Cut it: plan[i:j]."
            )
        for name, row, (height, width) in zip(names, plan.rows, sizes, strict=True):
            if (row["height"], row["width"]) != (height, width):
                raise ValueError(
                    f"{name} is {height}x{width} pixels and the plan was made for "
                    f"{row['height']}x{row['width']}. Give the photographs in the plan's order (plan.sample_ids)."
                )
        return plan

    def _start(self, *, is_forked: bool = False) -> None:
        """What belongs to one process: its memory, its devices, its lock, its seed where images have no ids."""
        self._process = os.getpid()
        self._is_forked = is_forked
        self._seed_here = None  # a process that is being spawned does not know yet that it is a worker
        self._host = HostTransform()
        self._ahead = PlansAhead()
        self._known_form = None
        self._devices: dict[Any, DeviceTransform] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _OF_ONE_PROCESS}
        if get_spawning_popen() is None:  # a copy has an epoch of its own, a process that is started shares it
            state["_shared_epoch"] = self.epoch
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._shared_epoch, int):
            self._shared_epoch = RawValue(c_uint32, self._shared_epoch)
        self._start()

    def __repr__(self) -> str:
        return f"Augment({self.recipe.name or self.recipe!r}, seed={self.seed})"


def _handed_out(views: list[Any], is_single: bool) -> Any:
    """One image or batch, or one of each view."""
    results = [images[0] if is_single else images for images in views]
    return results[0] if len(results) == 1 else tuple(results)
