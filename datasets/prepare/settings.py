"""What `augpipe prepare` is asked for, as far as the shards' bytes depend on it."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from augpipe.datasets.shards.encode import MAX_SIDE, Subsampling
from augpipe.decoding import MAX_PIXELS
from augpipe.validation.models import Checked, told

FULL = "full"
Originals = Literal["auto", "always", "never"]
CHANGING = ("scales", "quality", "subsampling", "upscale", "linear_light", "originals")
"""The fields that say how images are changed."""


class PrepareSettings(Checked):
    """How images become shards; the same settings on the same source give the same bytes."""

    model_config = ConfigDict(strict=True)

    scales: Annotated[
        tuple[str, ...],
        Field(min_length=1, strict=False),  # JSON has lists
        told(f"must be a list of short sides in pixels, or '{FULL}', as texts: {{name}}=['256', '512']"),
    ] = ("512",)
    """Each a short side in pixels, or `full` for the size that the image has; one set of shards each. 512 is the
    largest scale of the recipe deep_image: the loader makes smaller ones from it."""
    quality: int = Field(default=90, ge=1, le=100)
    """The quality of the JPEGs, as libjpeg counts it."""
    subsampling: Subsampling = "4:2:0"
    """How their chroma is sampled."""
    shard_bytes: int = Field(default=256_000_000, ge=100_000)
    """About how long a shard of the largest scale may get; WebDataset's own advice is some hundred megabytes."""
    upscale: bool = False
    """Whether images that are smaller than a scale are enlarged to it; else they keep their size."""
    linear_light: bool = False
    """Whether to resize in linear light: small bright details keep their brightness, at about three times the cost."""
    originals: Originals = "auto"
    """Which files are kept byte by byte where nothing of the image has to change; "auto": those of which encoding them
    again would gain nothing, see `rendition.gains`."""
    keep: bool = False
    """Whether all files are packed byte by byte, at one scale `full`; none of `CHANGING` goes with it."""
    max_pixels: int = Field(default=MAX_PIXELS, ge=1)
    """Larger images are rejected before they are decoded."""

    @model_validator(mode="before")
    @classmethod
    def _keep_the_size(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("keep") is True and "scales" not in fields:
            return {**fields, "scales": (FULL,)}
        return fields

    @model_validator(mode="after")
    def _check_keep(self) -> "PrepareSettings":
        if self.keep:
            fields = type(self).model_fields
            changed = [name for name in CHANGING if name != "scales" and getattr(self, name) != fields[name].default]
            refuse_with_keep(changed if self.scales == (FULL,) else ["scales", *changed])
        return self

    @field_validator("scales", mode="after")
    @classmethod
    def _check_scales(cls, scales: tuple[str, ...]) -> tuple[str, ...]:
        for name in scales:
            if name != FULL and not (re.fullmatch(r"[1-9][0-9]{0,4}", name) and int(name) <= MAX_SIDE):
                raise ValueError(
                    f"scale {name!r} is none. Give the short side in pixels, 1 to {MAX_SIDE}, or {FULL} for the size "
                    "that each photograph has."
                )
        if len(set(scales)) != len(scales):
            raise ValueError(f"scales are {', '.join(scales)}: give each once.")
        return tuple(sorted(scales, key=scale_pixels))

    @property
    def largest(self) -> str:
        """The scale with the most pixels."""
        return self.scales[-1]

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return self.model_dump(mode="json")


def refuse_with_keep(names: Sequence[str]) -> None:
    """Refuse fields of `CHANGING` that were given together with `keep`.

    Raises:
        ValueError: there are some.
    """
    if names:
        raise ValueError(
            f"keep packs the files as they are, and {', '.join(names)} would change them: leave out keep, or "
            f"{'that' if len(names) == 1 else 'those'}."
        )


def scale_pixels(scale: str) -> float:
    """The short side that a scale stands for; infinite for `full`."""
    return float("inf") if scale == FULL else float(scale)


def parse_scales(text: str) -> tuple[str, ...]:
    """`256,512` or `full` as the tuple that `PrepareSettings` takes.

    Raises:
        ValueError: it names none.
    """
    scales = tuple(part.strip() for part in text.split(",") if part.strip())
    if not scales:
        raise ValueError(f"scales={text!r} names none. Give short sides in pixels, as 256,512; or {FULL}.")
    return scales
