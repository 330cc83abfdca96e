"""A cache's content, hits and misses, in numbers."""

from dataclasses import dataclass

from augpipe.validation.plural import count


@dataclass(frozen=True, kw_only=True)
class CacheStatistics:
    """A cache at one moment; an image is one image at one DCT scale."""

    hits: int
    """Samples of finished batches whose pixels were there."""
    misses: int
    """Samples of finished batches that were read and decoded."""
    num_held: int
    """Images that are there."""
    held_bytes: int
    """Bytes of all, and of the label maps held with them, each rounded up to 16."""
    budget_bytes: int
    """What the arena may take; less than at first where memory ran out."""
    allocated_bytes: int
    """What the arena takes."""
    num_did_not_fit: int
    """Images that found no room; each counts once, however often it was decoded."""
    did_not_fit_bytes: int
    """Bytes that they would have taken, and the label maps that found no room."""
    num_label_maps: int = 0
    """Label maps that are there."""
    num_label_maps_did_not_fit: int = 0
    """Label maps that found no room; each counts once."""

    @property
    def hit_rate(self) -> float:
        """Hits as a fraction of the samples so far; 0 before the first."""
        return self.hits / max(self.hits + self.misses, 1)

    def __str__(self) -> str:
        """`1,000 images in 700 MiB of 2.0 GiB, all that came; 3,000 of 4,000 samples (75.0 %) were there`."""
        num_missing = self.num_did_not_fit + self.num_label_maps_did_not_fit
        if not self.num_held and not self.num_label_maps and not num_missing:
            held = f"empty, room for {shown_bytes(self.budget_bytes)}"
        else:
            taken = f"{shown_bytes(self.held_bytes)} of {shown_bytes(self.budget_bytes)}"
            held = f"{_content(self.num_held, self.num_label_maps)} in {taken}, "
            if num_missing:
                missing = _content(self.num_did_not_fit, self.num_label_maps_did_not_fit)
                held += f"{missing} more ({shown_bytes(self.did_not_fit_bytes)}) did not fit"
            else:
                held += "all that came"
        num = self.hits + self.misses
        if not num:
            return held
        return f"{held}; {self.hits:,} of {count(num, 'sample')} ({self.hit_rate:.1%}) were there".replace("%", " %")


def _content(num_images: int, num_label_maps: int) -> str:
    counts = [count(num_images, "picture")] if num_images or not num_label_maps else []
    return " and ".join([*counts, *([count(num_label_maps, "label map")] if num_label_maps else [])])


def shown_bytes(num_bytes: int) -> str:
    """Three digits at least, in the largest unit that leaves one before the point."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        size = num_bytes / 1024**power
        if size >= 1:
            return f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f} {unit}"
    return f"{num_bytes} B"
