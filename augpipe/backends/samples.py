"""Opening samples for a batch, and finding what stands in for those that cannot be used."""

from augpipe.backends.assembly import Assembly, Settings
from augpipe.backends.photograph import Photograph, open_photograph
from augpipe.errors import SampleError
from augpipe.planning.plan import refusals
from augpipe.source import is_sized

MAX_REPLACEMENTS = 1_000
"""How many neighbours of an unusable photograph are tried before giving up."""


class Samples:
    """A source's photographs as the settings want them; safe from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.undecodable: set[int] = set()
        """Samples that a decoder has failed on so far."""

    def usable(self, assembly: Assembly, position: int, first_offset: int = 0) -> Photograph:
        """The photograph, or where it cannot be read and may be skipped the next one in the source's order that can.

        The search begins `first_offset` places after the sample that the position asks for.

        Raises:
            SampleError: it cannot be used and nothing is skipped, or nothing near it can be used either.
        """
        num, wanted = len(self._settings.source), int(assembly.request.sample_ids[position])
        for offset in range(first_offset, min(num, MAX_REPLACEMENTS)):
            candidate = (wanted + offset) % num
            try:
                return self._open(assembly, candidate)
            except SampleError as problem:
                self.skip_or_raise(assembly, candidate, problem)
        others = min(num, MAX_REPLACEMENTS) - 1
        after = f"nor can any of the {others} photographs after it" if others else "and it is the only photograph"
        name = self._settings.source.name(wanted)
        reason = assembly.skipped[wanted].removeprefix(f"{name}: ")
        raise SampleError(name, f"it cannot be used, {after}. The first reason: {reason}")

    def known(self, assembly: Assembly) -> list[Photograph]:
        """The photographs of a batch whose samples are all known to the cache."""
        assert assembly.cache is not None
        ids = assembly.request.sample_ids
        sizes = assembly.cache.sizes_of(ids)
        rows = zip(ids.tolist(), sizes.heights.tolist(), sizes.widths.tolist(), sizes.may_scale.tolist(), strict=True)
        return [
            Photograph(sample_id=sample_id, content=None, size=(height, width), may_scale=may_scale, header=None)
            for sample_id, height, width, may_scale in rows
        ]

    def unread(self, assembly: Assembly) -> list[Photograph] | None:
        """The photographs of a batch by the sizes that the source knows; None where it must look at them first.

        So it must where whole photographs are kept: what replaces one that is damaged may be of another size.
        """
        settings, ids = self._settings, assembly.request.sample_ids.tolist()
        keeps_whole = any(view.out_size is None for view in settings.recipe.all_views)
        if not is_sized(settings.source) or (keeps_whole and len(ids) > 1):
            return None
        try:
            found = [settings.source.size(sample_id) for sample_id in ids]
        except (ValueError, OSError):
            return None
        sizes = [(int(height), int(width)) for height, width in found]
        if not all(height > 0 < width and height * width <= settings.max_pixels for height, width in sizes):
            return None
        if any(refusals(settings.recipe, sizes)):
            return None
        return [
            Photograph(sample_id=sample_id, content=None, size=size, may_scale=True, header=None)
            for sample_id, size in zip(ids, sizes, strict=True)
        ]

    def opened(self, sample_id: int) -> Photograph:
        """A photograph, read now.

        Raises:
            SampleError: it cannot be read or used.
        """
        settings = self._settings
        return open_photograph(settings.source, settings.recipe, sample_id, settings.max_pixels)

    def read(self, photograph: Photograph) -> None:
        """Give the photograph its content, where so far the cache alone knew it.

        Raises:
            SampleError: it cannot be read any more, or has become another one.
        """
        if photograph.content is not None:
            return
        settings, fresh = self._settings, self.opened(photograph.sample_id)
        if fresh.size != photograph.size:
            raise SampleError(
                settings.source.name(photograph.sample_id),
                f"it was {photograph.size[1]}x{photograph.size[0]} pixels when it was cached, and is "
                f"{fresh.size[1]}x{fresh.size[0]} now. Sources must not change while a loader lives.",
            )
        photograph.content, photograph.header = fresh.content, fresh.header

    def decoding_failed(self, assembly: Assembly, photograph: Photograph, problem: SampleError) -> None:
        """Note that a sample cannot be decoded; raises `problem` unless samples are skipped."""
        self.undecodable.add(photograph.sample_id)
        self.skip_or_raise(assembly, photograph.sample_id, problem)

    def skip_or_raise(self, assembly: Assembly, sample_id: int, problem: SampleError) -> None:
        """Note that a sample is replaced; raises `problem` unless samples are skipped."""
        if not self._settings.skips_bad:
            raise problem
        assembly.skipped[sample_id] = str(problem)

    def _open(self, assembly: Assembly, sample_id: int) -> Photograph:
        known = assembly.cache.size_of(sample_id) if assembly.cache is not None else None
        if known is not None:
            height, width, may_scale = known
            return Photograph(sample_id=sample_id, content=None, size=(height, width), may_scale=may_scale, header=None)
        return self.opened(sample_id)
