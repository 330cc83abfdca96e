"""The targets of a chunk's images: read with each image, and brought to each scale at the end."""

from collections.abc import Mapping

import numpy as np

from augpipe.datasets.prepare.rendition import Rendition
from augpipe.datasets.shards.shard_targets import Origin, pack_map, pack_targets, resized_map, scaled
from augpipe.sources import Subset
from augpipe.sources.protocol import Source, columns_of
from augpipe.sources.targets import LabelMap, Targets, TargetSource, joined, targets_of

FoundTargets = tuple[Targets | None, LabelMap | None]
"""An image's objects and its label map, as far as they are known."""


class TargetsBuilder:
    """Collects the targets of images that can be used; a few hundred bytes an object, and the label maps compressed.

    Args:
        source: where they come from.
    """

    def __init__(self, source: TargetSource) -> None:
        self._source = source
        self._objects: list[Targets | None] = []
        self._origins: list[Origin] = []
        self._sizes: list[tuple[int, int]] = []
        self._scaled_sizes: dict[str, list[tuple[int, int]]] = {}
        self._maps: dict[str, list[bytes]] = {}

    def read(self, sample_id: int, size: tuple[int, int]) -> FoundTargets:
        """The objects and the label map of an image of (height, width) `size`, which may refuse it.

        Raises:
            ValueError: it has no usable ones; the reason, without its name.
            OSError: they cannot be read.
        """
        objects = targets_of(self._source, np.array([sample_id]))
        if not self._source.has_label_maps:
            return objects, None
        labels = np.asarray(self._source.label_map(sample_id))
        if labels.ndim not in (2, 3) or labels.dtype.kind not in "biuf" or labels.shape[:2] != size:
            raise ValueError(
                f"its label map has shape {labels.shape} and type {labels.dtype}, and the photograph is "
                f"{size[0]}x{size[1]} (height x width)"
            )
        return objects, labels

    def add(
        self,
        sample_id: int,
        size: tuple[int, int],
        found: FoundTargets,
        renditions: Mapping[str, Rendition],
    ) -> None:
        """Keep what `read` gave of an image that goes into the shards."""
        objects, labels = found
        self._objects.append(objects)
        self._origins.append(_origin(self._source, sample_id, size))
        self._sizes.append(size)
        for scale, rendition in renditions.items():
            height, width = rendition.image.height, rendition.image.width
            self._scaled_sizes.setdefault(scale, []).append((height, width))
            if labels is not None:
                self._maps.setdefault(scale, []).append(pack_map(resized_map(labels, height, width)))

    def packed(self, scale: str) -> bytes:
        """The file of a scale's shard."""
        before, after = np.array(self._sizes, np.int64), np.array(self._scaled_sizes[scale], np.int64)
        parts = [(np.array([n]), objects) for n, objects in enumerate(self._objects) if objects is not None]
        whole = scaled(joined(parts, len(before)), before, after) if parts else None
        return pack_targets(whole, self._origins, self._maps.get(scale, []))


def whole_of(source: Source) -> Source:
    """The source that a subset is of; others themselves."""
    while isinstance(source, Subset):
        source = source.whole
    return source


def _origin(source: Source, sample_id: int, size: tuple[int, int]) -> Origin:
    columns = columns_of(source, np.array([sample_id]))
    image_id = columns["image_id"][0] if "image_id" in columns else None
    while isinstance(source, Subset):
        sample_id, source = int(source.ids[sample_id]), source.whole
    turned = getattr(source, "turned", None)
    orientation, size = (1, size) if turned is None else turned(sample_id)
    return Origin(
        image_id=image_id.item() if isinstance(image_id, np.generic) else image_id, orientation=orientation, size=size
    )
