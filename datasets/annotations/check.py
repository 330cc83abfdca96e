"""All that is wrong with a source's annotations, images and label maps."""

from collections.abc import Callable

from augpipe.datasets.annotations.annotated_source import AnnotatedSource
from augpipe.datasets.annotations.faults import MOST_LISTED, Fault


def check_annotations(source: AnnotatedSource, progress: Callable[[int], None] = lambda done: None) -> list[Fault]:
    """The faults that were found as the source was opened, and those of its files; `MOST_LISTED` of each at most.

    Every image is read and its size compared, but not decoded; label maps are decoded.

    Args:
        source: opened with `on_error="skip"`, so that all faults are known.
        progress: called with the number of images that are checked.
    """
    found: list[Fault] = []
    for sample_id in range(len(source)):
        try:
            source.read(sample_id)
            source.turned(sample_id)
            if source.has_label_maps:
                source.label_map(sample_id)
        except (OSError, ValueError) as error:
            if len(found) < MOST_LISTED:
                name = source.name(sample_id)
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                found.append(Fault(name, reason.removeprefix(name).lstrip(": ")))
        progress(sample_id + 1)
    return [*source.faults.listed, *found]
