"""Images and files with a label of each pixel, in two folders: Cityscapes, ADE20K, images/ and masks/."""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.faults import Faults
from augpipe.datasets.annotations.label_maps import Encoding, MapFiles
from augpipe.datasets.annotations.pairs_of_files import by_stem, files_below
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.metadata.names import listed
from augpipe.validation.arguments import check_choice


class LabelMapSource(AnnotatedSource):
    """Images and their label maps, paired by name, sorted by name.

    Both folders are searched at any depth, and pairs lie at the same place in them. A map's name is its image's, or
    begins with it and ends like those of all others: `1.jpg` with `1.png`, `1_mask.png`. Maps are of 8 or 16 bits,
    with a palette or gray, or of colours. A map lies as its image's pixels are stored, unless its size is that of the
    upright image.

    Args:
        images: the folder of images.
        maps: the folder of label maps.
        classes: class number -> name, if you like.
        encoding: "labels" gives gray levels, palette numbers, or colours (H, W, 3) as they are; "ids" makes numbers of
            colours, R + 256 G + 65536 B, as panoptic files have them; "colours" makes classes of them, by `colours`.
            None is "labels", and warns of colours.
        colours: class number -> (R, G, B).
        image_suffix: what image names end with and those of maps lack, as "_leftImg8bit" of Cityscapes.
        map_suffix: what names of maps end with, as "_gtFine_labelIds" or "_mask"; if left out, the ending that gives
            most images a map, and maps of another ending are left out and counted.

    Raises:
        ValueError: there are no pairs, or both are one folder and `map_suffix` is not given.
        OSError: a folder cannot be listed.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        maps: str | os.PathLike[str],
        *,
        classes: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        colours: Sequence[tuple[int, int, int]] = (),
        image_suffix: str = "",
        map_suffix: str | None = None,
    ) -> None:
        if encoding is not None:
            check_choice("encoding", encoding, ("labels", "ids", "colours"))
        if (encoding == "colours") != bool(len(colours)):
            raise ValueError('encoding="colours" and colours=[(R, G, B), ...] go together: give both, or none.')
        image_folder, map_folder = os.fspath(images), os.fspath(maps)
        is_one = os.path.realpath(image_folder) == os.path.realpath(map_folder)
        if is_one and not map_suffix:
            raise ValueError(
                "images and label maps lie in one folder, where each image would be its own map. Give what names of "
                f'maps end with: LabelMapSource({shown(image_folder)!r}, {shown(map_folder)!r}, map_suffix="_mask").'
            )
        found = files_below(map_folder, is_image_name)
        names = files_below(image_folder, is_image_name)
        files = by_stem([name for name in names if not (is_one and _ends(name, map_suffix))], image_suffix)
        suffix = _suffix(files, found) if map_suffix is None else map_suffix
        of_stem = by_stem(found, suffix)
        faults = Faults()
        for path in found if map_suffix is None else ():
            if not _ends(path, suffix):
                faults.leave_out(
                    shown(os.path.join(map_folder, path)), f"of another ending than {suffix!r}", "label map"
                )
        lacking = [name for name in files if name not in of_stem]
        if not files or len(lacking) == len(files):
            raise ValueError(
                f"no image in {shown(image_folder)} ({listed(files.values())}) has a map in {shown(map_folder)} "
                f"({listed(found)}). Names must be alike; see image_suffix and map_suffix of LabelMapSource."
            )
        for name in lacking:
            faults.leave_out(shown(os.path.join(image_folder, files[name])), "without a label map", "image")
        for name in sorted(of_stem.keys() - files.keys()):
            faults.leave_out(shown(os.path.join(map_folder, of_stem[name])), "without an image", "label map")
        stems = [name for name in files if name in of_stem]
        paths = names_of([os.path.abspath(os.path.join(map_folder, of_stem[name])) for name in stems])
        files_of_maps = MapFiles(names=paths, encoding=encoding or "labels", colours=tuple(colours))
        super().__init__(
            image_folder,
            names_of([files[name] for name in stems]),
            Annotations(
                where=shown(map_folder),
                maps=files_of_maps,
                classes=tuple(classes or ()),
                faults=faults,
            ),
        )
        self.cautions: Sequence[str] = ()
        if encoding is None and files_of_maps.holds_colours(0):
            self.cautions = [
                'masks hold colours: LabelMapSource(images, maps, encoding="ids") or encoding="colours" makes numbers '
                'of them; encoding="labels" keeps them, (H, W, 3)'
            ]


def _ends(path: str, suffix: str | None) -> bool:
    return os.path.splitext(path)[0].endswith(suffix or "")


def _suffix(files: Mapping[str, str], maps: Sequence[str]) -> str:
    """The ending that a map's name adds to its image's name: of several, the one that most images have."""
    stems = sorted({os.path.splitext(path)[0] for path in maps})
    if not files.keys().isdisjoint(stems):
        return ""
    endings: Counter[str] = Counter()
    for name in files:
        for place in range(bisect_left(stems, name), len(stems)):
            ending = stems[place].removeprefix(name)
            if ending == stems[place]:
                break
            if not ending[0].isalnum():
                endings[ending] += 1
    return max(endings, key=endings.__getitem__, default="")
