"""Which photographs a run trains on, how they are augmented and cut into batches."""

from typing import Literal, Self

from pydantic import Field, model_validator

from augpipe.trainer.config.base import Section


class DataConfig(Section):
    """The `[data]` table."""

    source: str
    """What to train on: a folder of class folders, shards, a list, tar, Parquet, IDX or CIFAR files."""
    eval_source: str | None = None
    """What to evaluate on, of the same classes. Without it, and without eval_fraction, nothing is evaluated."""
    eval_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of `source` that is held out for evaluation instead, drawn once by the run's seed."""
    recipe: str = "deep_image"
    """The augmentation: deep_image, evaluation, or a TOML file that augpipe recipe writes."""
    size: int = Field(default=224, ge=1)
    """Height and width of the pictures, in pixels; for recipes by name and for evaluation."""
    scales: tuple[int, ...] = (256, 512)
    """Short sides that deep_image resizes to before it crops, in pixels; one is drawn."""
    eval_scale: int | None = Field(default=None, ge=1)
    """Short side for evaluation, in pixels; left out: 8/7 of size, as 256 for 224."""
    batch_size: int = Field(default=64, ge=1)
    """Pictures in a batch of one rank."""
    eval_batch_size: int | None = Field(default=None, ge=1)
    """Pictures in a batch of one rank at evaluation; left out: batch_size."""
    shuffle: Literal["plain", "sticky", "off"] = "plain"
    """The order: a new one each epoch; sticky: a new one in which a rank keeps its samples (for caches); off."""
    drop_last: bool = True
    """Leave out the last global batch of an epoch where it is cut short. Off: each sample counts once an epoch."""
    num_threads: int | None = Field(default=None, ge=1)
    """Threads of one rank that decode and augment; left out: its share of the machine's cores."""
    prefetch: int = Field(default=2, ge=1)
    """Batches made ahead."""
    backend: Literal["auto", "native", "dali"] = "auto"
    """What decodes: augpipe's own threads, or NVIDIA DALI on a CUDA device."""
    cache: Literal["off", "host", "device"] = "off"
    """Keep decoded photographs from the first epoch on, in host memory or where batches are made."""
    on_error: Literal["raise", "skip"] = "raise"
    """A photograph that cannot be used ends the run, or is replaced and reported."""

    @model_validator(mode="after")
    def _one_way_to_evaluate(self) -> Self:
        if self.eval_source is not None and self.eval_fraction > 0:
            raise ValueError(
                f"eval_source={self.eval_source!r} and eval_fraction={self.eval_fraction:g} are two ways to get "
                "pictures for evaluation. Keep one."
            )
        return self

    @property
    def short_side(self) -> int:
        """For evaluation, in pixels."""
        return self.eval_scale if self.eval_scale is not None else -(-self.size * 8 // 7)
