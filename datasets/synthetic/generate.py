"""Writes the sample dataset: class folders of synthetic images, the same bytes whoever draws them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from augpipe.datasets.metadata.names import listed
from augpipe.datasets.synthetic.processes import draw_in_processes
from augpipe.datasets.synthetic.scene import draw_scene_with_objects
from augpipe.datasets.synthetic.shapes import KINDS
from augpipe.datasets.synthetic.targets import ANNOTATIONS_FILE, describe, merge
from augpipe.native.workers import num_usable_cores

SETTINGS_FILE = "sample.json"
"""Lies in the dataset's folder and says how it was made."""
_VERSION = 2
"""Rises when the drawing changes, so that images of two versions never mix in one folder."""
_JPEG_QUALITY = 90
_LICENSE = "CC0-1.0: the pictures are synthetic, drawn by a program; no rights are reserved"
_PER_WORKER = 40
"""With fewer images a worker's start takes longer than what it saves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What decides the dataset's bytes."""

    num: int
    """How many images."""
    classes: int
    """How many object kinds, the first ones of `KINDS`."""
    seed: int
    """Any integer from 0."""
    targets: bool = False
    """Whether a COCO file of the objects is written as well."""

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= len(KINDS):
            raise ValueError(
                f"classes={self.classes} is not in 2..{len(KINDS)}, the object kinds there are. Choose one in between."
            )
        if self.num < self.classes:
            raise ValueError(
                f"num={self.num} pictures cannot fill {self.classes} classes. Ask for at least {self.classes}."
            )
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} is negative. Choose an integer from 0.")


def generate(
    out: str | os.PathLike[str],
    *,
    num: int = 1000,
    classes: int = 10,
    seed: int = 0,
    targets: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write `num` images as OUT/CLASS/NNNNN.jpg, in turn one of each class, and OUT/sample.json.

    Image i shows objects of class i mod `classes`; all else in it depends on `seed` and i alone. So the bytes are
    the same for any number of workers and, with the same versions of numpy and Pillow, on any run. A file appears
    under its name only when it is whole; a run that was stopped is completed by the next with the same settings.

    Args:
        out: the folder, created if need be.
        num: how many images, at least one a class.
        classes: 2 to 10.
        seed: an integer from 0.
        targets: write OUT/annotations.json as well: masks, boxes and two key points of every object, as COCO has them.
        workers: how many processes draw; by default as many as there are cores, fewer for few images.
            1 draws in this process.
        progress: called in this thread as progress(images there, num), first with those found.

    Raises:
        ValueError: settings out of range, or `out` holds something else than this dataset.
        OSError: a file cannot be written.
        RuntimeError: a worker process failed; its own message follows.
    """
    settings = Settings(num=num, classes=classes, seed=seed, targets=targets)
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} is not a number of processes. Choose at least 1, or None for all cores.")
    root = Path(out)
    _claim(root, settings)
    is_described = not targets or (root / ANNOTATIONS_FILE).exists()
    missing = [
        index
        for index in range(num)
        if not _path(root, settings, index).exists() or not (is_described or _described(root, index).exists())
    ]
    if progress is not None:
        progress(num - len(missing), num)
    if workers is None:
        workers = max(1, min(num_usable_cores(), len(missing) // _PER_WORKER))
    done = (
        write_images(root, settings, missing)
        if workers == 1
        else draw_in_processes(os.fspath(root), asdict(settings), missing, workers)
    )
    with closing(done):  # stops the workers when `progress` raises
        for count, _ in enumerate(done, start=num - len(missing) + 1):
            if progress is not None:
                progress(count, num)
    if targets:
        _merge(root, settings)


def class_names(classes: int) -> list[str]:
    """The class folders' names; image i lies in the one at i mod `classes`."""
    return list(KINDS)[:classes]


def write_images(root: Path, settings: Settings, indices: Sequence[int]) -> Generator[int, None, None]:
    """Draw and write some of the images, giving each one's index once its file is whole."""
    for index in indices:
        path = _path(root, settings, index)
        image, objects = draw_scene_with_objects(settings.seed, index, path.parent.name)
        if settings.targets:
            described = _described(root, index)
            described.parent.mkdir(exist_ok=True)
            described.write_text(json.dumps(describe(image, objects)), encoding="utf-8")  # whole before the image is
        unfinished = path.with_name(f".{path.name}.tmp")
        image.save(unfinished, "JPEG", quality=_JPEG_QUALITY)
        unfinished.replace(path)
        yield index


def _path(root: Path, settings: Settings, index: int) -> Path:
    return root / list(KINDS)[index % settings.classes] / f"{index:05d}.jpg"


def _described(root: Path, index: int) -> Path:
    """What an image shows, until all are drawn."""
    return root / f".{ANNOTATIONS_FILE}" / f"{index:05d}.json"


def _merge(root: Path, settings: Settings) -> None:
    """Write the COCO file, where it is not there, and remove what it was made of."""
    parts = [_described(root, index) for index in range(settings.num)]
    if not (root / ANNOTATIONS_FILE).exists():
        paths = [_path(root, settings, index) for index in range(settings.num)]
        names = [path.relative_to(root).as_posix() for path in paths]
        merge(parts, names, sorted(class_names(settings.classes)), root / ANNOTATIONS_FILE)
    shutil.rmtree(root / f".{ANNOTATIONS_FILE}", ignore_errors=True)


def _card(settings: Settings) -> dict[str, object]:
    return {
        "made_by": "augpipe sample",
        "license": _LICENSE,
        "version": _VERSION,
        **{name: value for name, value in asdict(settings).items() if value is not False},
        "class_names": sorted(class_names(settings.classes)),  # label by label, as FolderSource numbers them
        "jpeg_quality": _JPEG_QUALITY,
    }


def _claim(root: Path, settings: Settings) -> None:
    """Make the folder ours: new, empty, or begun with the same settings."""
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is a file, and the sample dataset needs a folder. Name another one.")
    card = _card(settings)
    if root.is_dir() and (there := sorted(entry.name for entry in root.iterdir())):
        found = _read_card(root)
        if found is None:
            raise ValueError(
                f"{root} is not empty ({listed(there)}) and holds no {SETTINGS_FILE} of a sample dataset. "
                "Name a new or an empty folder."
            )
        if found != card:
            differing = ", ".join(
                f"{key} {found.get(key)!r} there, {card.get(key)!r} asked for"
                for key in (*card, *(key for key in found if key not in card))
                if found.get(key) != card.get(key)
            )
            raise ValueError(
                f"{root} holds a sample dataset made with other settings: {differing}. "
                "Name another folder, ask for the same settings, or remove it."
            )
    for name in class_names(settings.classes):
        (root / name).mkdir(parents=True, exist_ok=True)
    unfinished = root / f".{SETTINGS_FILE}.tmp"
    unfinished.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(root / SETTINGS_FILE)


def _read_card(root: Path) -> dict[str, object] | None:
    try:
        card = json.loads((root / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    return card if isinstance(card, dict) and card.get("made_by") == "augpipe sample" else None


def main() -> None:
    """What a worker process runs: a job as JSON on stdin, a line on stdout for each image that is written."""
    job = json.load(sys.stdin)
    for index in write_images(Path(job["root"]), Settings(**job["settings"]), job["indices"]):
        os.write(sys.stdout.fileno(), b"%d\n" % index)  # in one piece: other workers write to the same pipe


if __name__ == "__main__":
    main()
