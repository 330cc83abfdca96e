"""What the loader hands out."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Never, Self, get_args

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

from augpipe.batch_targets import changed_tensors, targets_of_one, targets_text
from augpipe.mixed_labels import MixedLabels
from augpipe.planning.output_format import DType, dtype_name
from augpipe.planning.plan import Plan
from augpipe.validation.arguments import as_whole
from augpipe.validation.plural import count
from augpipe.validation.written import array_text

if TYPE_CHECKING:
    from PIL.Image import Image

NUM_NAMED = 4
"""Samples that the repr of a batch names."""
Array = TypeVar("Array", default=Any)
"""What type checkers take images and labels for: a `torch.Tensor`, or an array where framework="numpy"."""


@dataclass(frozen=True, kw_only=True)
class Batch(Generic[Array]):
    """Augmented images with their labels, `images, labels = batch`, or with targets: `images, targets = batch`."""

    images: Array
    """(B, 3, H, W) or (B, H, W, 3), a torch tensor or numpy array; a tuple of them where the recipe has several views.
    The memory is the holder's: it is used again only when nothing refers to it any more."""
    labels: Array
    """(B,) int64, the classes, -1 where the source has none; (B, k) float32 or int64 of a source whose labels are k
    numbers each, see `source.VectorLabelledSource`. Where the recipe mixes, classes are `MixedLabels`, and k numbers
    the weighted mean of both samples', float32."""
    sample_ids: npt.NDArray[np.int64]
    """(B,) int64: which samples of the source these are."""
    plan: Plan
    """What was drawn for them; `Augment(...)(images, plan=batch.plan)` repeats it, unless the recipe mixes."""

    asked_ids: npt.NDArray[np.int64] | None = None
    """(B,) int64, of a loader, the samples that the epoch asked for: others than `sample_ids` where on_error="skip" put
    the next usable one in the place of one that is not."""
    positions: npt.NDArray[np.int64] | None = None
    """(B,) int64, where they stand in their epoch, from 0 on, of a loader with a sampler, which may draw a sample
    twice; None without one."""
    part: int | None = None
    """How many samples the source holds, where it is a part of another one, such as a split that is drawn: sample ids
    count within that part. None where it is whole."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of a source that has some, such as a caption -> (B,) values; see `source.ColumnedSource`."""
    targets: Any = None
    """Objects and label maps in the form that `Loader(targets=...)` asks for; a tuple of them where the recipe has
    several views; None where the source has none. See `TargetOptions.form`."""
    dropped: Sequence[Any] = ()
    """For each image the objects that `targets` leave out: (object id, why); a tuple of such lists where the recipe has
    several views; empty where there are no targets."""

    def to(self, device: Any = None, dtype: Any = None, *, non_blocking: bool = False) -> Self:
        """The batch with images, labels and targets on a device, and images in another dtype; all else stays put.

        Labels keep their dtype: classes are integers for a loss, and float16 does not hold all of them. (A network's
        own `to` leaves integers as they are, too.) `batch.to(torch.float16)` alone is a dtype, as in torch.

        Args:
            device: "cuda", "cuda:1", "cpu" or a torch.device; left out, where the batch is.
            dtype: a floating-point type, such as torch.float16 or "fp16", for the images only; theirs if left out.
            non_blocking: as of torch's `Tensor.to`: from page-locked memory the host goes on while it copies.

        Raises:
            ValueError: the batch holds numpy arrays, or the dtype is not a floating-point type.
            TypeError: the first argument is neither a device nor a dtype.
        """
        self._check_torch("to")
        device, dtype = _device_and_dtype(device, dtype)
        placed = {} if device is None else {"device": device}
        cast = placed if dtype is None else placed | {"dtype": dtype}
        return replace(
            self,
            images=_each(self.images, lambda tensor: tensor.to(**cast, non_blocking=non_blocking)),
            labels=_each(self.labels, lambda tensor: tensor.to(**placed, non_blocking=non_blocking)),
            targets=changed_tensors(self.targets, lambda tensor: tensor.to(**placed, non_blocking=non_blocking)),
        )

    def pin_memory(self) -> Self:
        """The batch with all its tensors in page-locked memory; a DataLoader with pin_memory=True calls it.

        Raises:
            ValueError: the batch holds numpy arrays.
        """
        self._check_torch("pin_memory")
        images, labels = (_each(part, lambda tensor: tensor.pin_memory()) for part in (self.images, self.labels))
        targets = changed_tensors(self.targets, lambda tensor: tensor.pin_memory())
        return replace(self, images=images, labels=labels, targets=targets)

    def _check_torch(self, method: str) -> None:
        if any(
            isinstance(leaf, np.ndarray)
            for part in (self.images, self.labels)
            for leaf in (part if isinstance(part, tuple) else (part,))
        ):
            raise ValueError(f'the batch holds numpy arrays, which have no {method}. Choose framework="torch".')

    def __iter__(self) -> Iterator[Array]:
        yield self.images
        yield self.labels if self.targets is None else self.targets

    def __getitem__(self, position: int) -> Self:
        """A batch of one: `batch[3].show()`.

        Raises:
            ValueError: the position is not a whole number.
            IndexError: there is no such image.
        """
        nth = as_whole("position", position)
        if not -len(self) <= nth < len(self):
            raise IndexError(f"batch[{nth}]: the batch has {count(len(self), 'image')}.")
        nth %= len(self)
        one = slice(nth, nth + 1)
        are_of_views = isinstance(self.images, tuple) and len(self.dropped) > 0
        return replace(
            self,
            images=_each(self.images, lambda images: images[one]),
            labels=_each(self.labels, lambda labels: labels[one]),
            sample_ids=self.sample_ids[one],
            asked_ids=None if self.asked_ids is None else self.asked_ids[one],
            plan=self.plan[one],
            positions=None if self.positions is None else self.positions[one],
            columns={name: values[one] for name, values in self.columns.items()},
            targets=targets_of_one(self.targets, nth),
            dropped=tuple(each[one] for each in self.dropped) if are_of_views else self.dropped[one],
        )

    def line(self, position: int = 0) -> str:
        """What names an image of the batch, "seed 0, epoch 3, sample 17": `loader.replay` makes it again.

        It counts in the loader's source. Of a part of another one, as `holdout` makes it, it says of how many samples:
        "sample 17 of 80". Of a sampler, which may draw a sample twice, the line ends in its position: ", position 120".
        """
        row = self.plan.rows[position]
        place = "" if self.positions is None else f", position {self.positions[position]}"
        return f"seed {self.plan.seed}, epoch {row['epoch']}, sample {self._named(position)}{self._of_part}{place}"

    def _named(self, position: int) -> int:
        """The sample by which an image is made again; who it is mixed with is drawn for the one that was asked for."""
        ids = self.sample_ids
        if self.plan.recipe.mixes_samples and self.positions is None and self.asked_ids is not None:
            ids = self.asked_ids
        return int(ids[position])

    @property
    def _of_part(self) -> str:
        return "" if self.part is None else f" of {self.part}"

    def show(self, *, rows: int = 4, cols: int = 5) -> "Image":
        """`augpipe.show(batch)`: its images as a sheet, with what was drawn under each."""
        package = sys.modules[__name__.partition(".")[0]]  # what draws it stands above this module
        sheet: Image = package.show(self, rows=rows, cols=cols)
        return sheet

    def __repr__(self) -> str:
        views = self.images if isinstance(self.images, tuple) else (self.images,)
        epochs = ", ".join(f"epoch {epoch}" for epoch in np.unique(self.plan.rows["epoch"]))
        named = [self._named(0)] if len(self) == 1 else self.sample_ids[:NUM_NAMED]
        ids = ", ".join(map(str, named)) + (", ..." if len(self) > NUM_NAMED else "")
        samples = f", {'sample' if len(self) == 1 else 'samples'} {ids}{self._of_part}" if len(self) else ""
        if len(self) == 1 and self.positions is not None:
            samples += f", position {self.positions[0]}"
        given: Any = self.labels
        is_mixed = isinstance(given, MixedLabels)
        labels = f"MixedLabels of {array_text(given.labels)}" if is_mixed else array_text(given)
        return (
            f"Batch of {len(self)}, seed {self.plan.seed}, {epochs or 'empty'}{samples}, {self.plan.recipe.called}: "
            f"images {' and '.join(map(array_text, views))}, "
            + (f"labels {labels}" if self.targets is None else f"targets {targets_text(self.targets)}")
            + (f", columns {' and '.join(self.columns)}" if self.columns else "")
        )

    def __len__(self) -> int:
        return len(self.sample_ids)

    if not TYPE_CHECKING:  # for which it would make every name one of a batch

        def __getattr__(self, name: str) -> Never:
            """What the images have is named there, as `batch.images.shape`."""
            told = f"a Batch has no attribute {name!r}"
            if not name.startswith("_") and hasattr(vars(self).get("images"), name):
                told += f", its images have: take batch.images.{name}, or images, labels = batch"
            raise AttributeError(told, name=name, obj=self)


def _each(part: Any, change: Callable[[Any], Any]) -> Any:
    """Images or labels, each tensor of theirs changed."""
    if isinstance(part, MixedLabels):
        return MixedLabels(*map(change, part))
    return tuple(map(change, part)) if isinstance(part, tuple) else change(part)


def _device_and_dtype(device: Any, dtype: Any) -> tuple[Any, Any]:
    """What `Batch.to` was given, each in its place, the dtype as torch's."""
    import torch

    if isinstance(device, torch.dtype) or (isinstance(device, str) and dtype_name(device) in get_args(DType)):
        if dtype is not None:
            raise ValueError(f"dtype={device} and {dtype} are two. Give one, and a device before it.")
        device, dtype = None, device
    if device is None and dtype is None:
        raise ValueError('batch.to() changes nothing. Name a device or a dtype, such as batch.to("cuda").')
    if device is not None and not isinstance(device, str | int | torch.device):
        raise TypeError(f"batch.to takes a device, a dtype or both, and not a {type(device).__name__}.")
    if dtype is not None:
        found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype_name(dtype)), None)
        if not isinstance(found, torch.dtype) or not found.is_floating_point:
            raise ValueError(
                f"dtype={dtype} is not a floating-point type, which images are cast to. Choose torch.float16, "
                "torch.bfloat16 or torch.float32."
            )
        dtype = found
    return device, dtype
