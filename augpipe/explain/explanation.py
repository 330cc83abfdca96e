"""What `Loader.explain` answers: where the time goes, and one sentence of advice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from augpipe.validation.plural import count

SHOWN = 0.005
"""Share from which on a stage has a row."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the way from storage to the consumer."""

    name: str
    """reading, planning, decoding, map (the look-up of crop, geometry, cast and normalisation), program (colour steps,
    filters, noise), targets, mixing, copying; or consumer, which uses the batches."""
    share: float
    """0..1 of the loader's own time; of the consumer, of the whole loop's."""
    rate_if_free: float
    """Images/s of the whole loop if this took no time at all."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Where the time of a loader goes. `print` shows a table and the advice."""

    rate: float
    """Images/s of the loop as it is, the consumer included."""
    rate_alone: float
    """Images/s of the loader without a consumer."""
    stages: tuple[Stage, ...]
    """In the order in which a batch goes through them."""
    bottleneck: str
    """The stage whose time is best saved."""
    advice: str
    """One sentence."""
    command: str | None = None
    """What the advice asks to run first."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `Loader` that the advice changes; of a pass after the first, where a cache fills."""
    expected_rate: float
    """Images/s of the loop with that advice followed; `rate` where it changes nothing."""
    num_images: int
    """How many images the figures are taken from."""
    waited: float
    """0..1 of the loop's time in which the consumer waited for batches."""
    threads: int
    busy: float
    """0..1: how much of its threads' time the loader works, rather than waiting for the consumer."""
    read_mb_per_s: float
    """Encoded bytes read from the source, in 10^6 a second."""
    cached: float
    """0..1 of the images that the cache held."""

    def to_json(self) -> dict[str, Any]:
        """Everything but objects, as JSON has it."""
        changes = self.change.items()
        return {
            "images_per_s": round(self.rate, 1),
            "images_per_s_alone": round(self.rate_alone, 1),
            "stages": [
                {
                    "name": stage.name,
                    "share": round(stage.share, 4),
                    "images_per_s_if_free": round(stage.rate_if_free, 1),
                }
                for stage in self.stages
            ],
            "bottleneck": self.bottleneck,
            "advice": self.advice,
            "command": self.command,
            "change": {name: value if isinstance(value, int | str) else str(value) for name, value in changes},
            "expected_images_per_s": round(self.expected_rate, 1),
            "images": self.num_images,
            "waited": round(self.waited, 4),
            "threads": self.threads,
            "busy": round(self.busy, 4),
            "read_mb_per_s": round(self.read_mb_per_s, 2),
            "cached": round(self.cached, 4),
        }

    def __str__(self) -> str:
        lines = [f"{'':10} {'share':>6} {'images/s if it took no time':>28}"]
        for stage in self.stages:
            if stage.share < SHOWN and stage.name != self.bottleneck:
                continue
            mark = "  <- the bottleneck" if stage.name == self.bottleneck else ""
            lines.append(f"{stage.name:10} {stage.share:>6.0%} {stage.rate_if_free:>28,.0f}{mark}")
        is_used = 1.0 - self.waited > SHOWN
        waits = f"the consumer waits for {self.waited:.0%} of it" if is_used else "there is no consumer"
        cached = f", {self.cached:.0%} of them from the cache" if self.cached else ""
        images = f"{count(self.num_images, 'image')}{cached}"
        lines += [
            f"{self.rate:,.0f} images/s of {images}; {self.read_mb_per_s:,.0f} MB/s read",
            f"{count(self.threads, 'thread')} busy for {self.busy:.0%} of the time; {waits}",
            self.advice,
        ]
        return "\n".join(lines)
