"""What `augpipe prepare` is asked for, as far as the shards' bytes depend on it."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from augpipe.datasets.shards.encode import Subsampling
from augpipe.decoding import MAX_PIXELS

FULL = "full"
Originals = Literal["auto", "always", "never"]
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class PrepareSettings(BaseModel):
    """How photographs become shards; the same settings on the same source give the same bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    scales: tuple[str, ...] = Field(default=("512",), min_length=1)
    """Each a short side in pixels, or `full` for the size that the photograph has; one set of shards each. 512 is the
    largest scale of the recipe deep_image: the loader makes smaller ones from it."""
    quality: int = Field(default=90, ge=1, le=100)
    """Of the JPEGs, as libjpeg counts."""
    subsampling: Subsampling = "4:2:0"
    """Of their chroma."""
    shard_bytes: int = Field(default=256_000_000, ge=100_000)
    """About how long a shard of the largest scale may get; WebDataset's own advice is some hundred megabytes."""
    upscale: bool = False
    """Whether photographs that are smaller than a scale are enlarged to it; else they keep their size."""
    linear_light: bool = False
    """Whether to resize in linear light: small bright details keep their brightness, at about three times the cost."""
    originals: Originals = "auto"
    """Which files are kept byte by byte where nothing of the picture has to change, see `rendition.keeps_original`."""
    max_pixels: int = Field(default=MAX_PIXELS, ge=1)
    """Larger photographs are rejected before they are decoded."""

    @field_validator("scales", mode="after")
    @classmethod
    def _check_scales(cls, scales: tuple[str, ...]) -> tuple[str, ...]:
        for name in scales:
            if name != FULL and not (re.fullmatch(r"[1-9][0-9]{0,4}", name) and int(name) <= 65_500):
                raise ValueError(
                    f"scale {name!r} is none. Give the short side in pixels, 1 to 65500, or {FULL} for the size that "
                    "each photograph has."
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


def parse_bytes(text: str) -> int:
    """A number of bytes: `256MB` (10^6), `256MiB` (2^20) or `256000000`.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no number of bytes. Write it as 256MB, 1GB or 64MiB.")
    return round(float(match[1]) * _UNITS[match[2].upper()])
