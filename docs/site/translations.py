"""Pages for people who come from another library: each of its transforms, what it becomes here, and what differs.

They are made by importing a call of each transform, so they say what importing does.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from augpipe import importers
from augpipe.ops import Op
from augpipe.recipes.importers import albumentations, timm, torchvision
from augpipe.recipes.importers.measured import figures
from augpipe.recipes.importers.rows import Row
from augpipe.recipes.importers.text import parameters
from augpipe.validation.written import written
from docs.site.tables import table

VALUES = {
    **dict.fromkeys(("size", "height", "width", "max_size"), "224"),
    **dict.fromkeys(("mean", "std"), "(0.5, 0.5, 0.5)"),
    "bits": "4",
    "brightness": "0.4",
    "contrast": "0.4",
    "degrees": "10",
    "dtype": "torch.float32",
    "format": "'XYXY'",
    "kernel_size": "5",
    "mask_x_length": "(8, 32)",
    "min_max_height": "(128, 256)",
    "min_size": "128",
    "n": "1",
    "num_masks_x": "2",
    "padding": "4",
    "quality": "(50, 95)",
    "rotate": "(-20, 20)",
    "sharpness_factor": "2",
    "shear": "(-10, 10)",
    "target_size": "(224, 224)",
    "threshold": "128",
}
"""Arguments that a transform needs, or without which it changes nothing."""
GIVEN = {
    **dict.fromkeys(("Affine", "IAAAffine"), ("rotate", "shear")),
    "ColorJitter": ("brightness", "contrast"),
    "XYMasking": ("num_masks_x", "mask_x_length"),
    **dict.fromkeys(("LongestMaxSize", "SmallestMaxSize"), ("max_size",)),
}
"""Transforms that are shown with such arguments though they do not need them."""
DRAWS_SIZE = ("RandomResize", "RandomScale", "ScaleJitter")
"""Transforms that stand before a crop, and cannot be imported without one."""
LIBRARIES = {
    "torchvision": ("transforms", "torchvision", torchvision.MADE),
    "albumentations": ("A", "albumentations-2", albumentations.MADE),
    "albumentations before 2.0": ("A", "albumentations-1", albumentations.MADE),
}
"""Title -> how its calls begin, the name of its signatures, and what is mapped."""
TIMM = {
    "input_size": 224,
    "scale": (0.3, 1.0),
    "hflip": 0.5,
    "vflip": 0.5,
    "color_jitter": 0.4,
    "grayscale_prob": 0.2,
    "gaussian_blur_prob": 0.2,
    "auto_augment": "rand-m9-mstd0.5-inc1",
    "interpolation": "bicubic",
    "re_prob": 0.25,
    "crop_pct": 0.9,
}
"""Arguments of timm's create_transform that are shown, with a value."""


RESULTS = Path(__file__).parents[2] / "benchmarks/results"
CHAINS = {"torchvision": "torchvision, PIL images", "albumentations": "albumentations 2, arrays"}
"""Title -> the name of its chains in the benchmark's results."""
HEADER = ("transform", "verdict", "levels", "here", "what differs")
EXACT = (
    "`exact`: measured to be within one of 256 levels in the mean, and drawn alike. Levels: the mean difference of "
    "the image where it is the largest, of photographs and a checkerboard, and the largest of a pixel."
)
WIDE = "---\nhide: [toc]\n---\n\n"
"""A page without a table of contents at its side."""
LONGEST = 300
"""Characters of an op that are shown; policies are longer."""


def pages() -> dict[str, str]:
    """Path in the site -> a page."""
    made = {}
    for title, (alias, library, mapped) in LIBRARIES.items():
        how = f"`Recipe.from_{library.partition('-')[0]}(transform)` imports a whole recipe"
        lines = [f"# From {title}", f"{how}, and `augpipe import FILE.py:NAME` one that is in a script."]
        lines += [_speed(CHAINS[title])] if title in CHAINS else []
        lines += [f"Each transform at its defaults, and what it becomes. {EXACT} {_measured(library)}"]
        rows = list(_rows(alias, library, set(mapped)))
        absent = [row[0] for row in rows if row[1] == "left out" and not row[-1]]
        shown = table(HEADER, *(row for row in rows if row[0] not in absent))
        lines += [f'<div class="wraps" markdown>\n\n{shown}\n</div>']
        lines += [f"These are not there yet, and an import says so: {', '.join(absent)}."]
        made[f"from/{title.replace(' ', '-')}.md"] = WIDE + "\n\n".join(lines)
    rows = [("argument", *HEADER[1:])]
    for name, value in TIMM.items():
        others = {"color_jitter": None, "hflip": 0.0, "is_training": name != "crop_pct"}
        found = importers.from_timm(**{**others, name: value})
        notes = " ".join(note.removeprefix(f"{name}: ") for note in found.notes)
        ops = found.recipe.ops[:-1] if name in ("input_size", "scale", "crop_pct") else found.recipe.ops[1:-1]
        ops = found.recipe.ops[-1:] if name == "re_prob" else ops
        row = next((row for row in found.rows if row.name == name), found.rows[0])
        rows.append((f"`{name}={value!r}`", row.verdict, _levels(row), _here(ops), notes))
    lines = ["# From timm", "`recipes.from_timm(**arguments)` takes the arguments of `create_transform`:", table(*rows)]
    lines += [f"{EXACT} {_measured('timm')}"]
    unmapped = ", ".join(f"`{name}`" for name in timm.UNMAPPED)
    return made | {
        "from/timm.md": WIDE + "\n\n".join([*lines, f"These are taken at timm's own values only: {unmapped}."])
    }


def _rows(alias: str, library: str, mapped: set[str]) -> Iterator[tuple[str, str, str, str]]:
    version = library.partition("-")[2] or None
    for name, defaults in sorted(parameters(library).items()):
        if name in ("Compose", "Sequential"):
            continue
        held = f"[{alias}.{'RandomHorizontalFlip' if alias == 'transforms' else 'HorizontalFlip'}()]"
        values = VALUES | {"transforms": held} | ({"size": "(224, 224)"} if library == "albumentations-2" else {})
        given = {
            one: [field for field, default in of.items() if default is ... or field in GIVEN.get(one, ())]
            for one, of in ((name, defaults), ("CenterCrop", parameters(library)["CenterCrop"]))
        }
        call, crop = (
            f"{alias}.{one}({', '.join(f'{field}={values[field]}' for field in given[one])})"
            for one in (name, "CenterCrop")
        )
        row = _row(f"{alias}.Compose([{call}, {crop}])" if name in DRAWS_SIZE else call, name, version)
        if row.verdict == "left out" and name not in mapped:
            row = Row(name=name, verdict="left out", note="")
        yield f"`{call}`", row.verdict, _levels(row), _here(row.ops), row.note


def _levels(row: Row) -> str:
    return "{:.2f}, {:.0f}".format(*row.levels) if row.levels else ""


def _speed(chains: str) -> str:
    """How many times as fast whole chains are here, as last measured."""
    last = json.loads(max(RESULTS.glob("*-chains.json")).read_text())
    ways = last["ways"][chains]
    batched, single = ways["16 at a time"], ways["one image a call"]
    return (
        f"**How much faster:** {len(ways['chains'])} chains of public code, one thread, against theirs: "
        f"{batched['geometric mean']} times as fast with 16 images a call (geometric mean; the slowest "
        f"{batched['worst']}), "
        f"{single['geometric mean']} times with one image a call (the slowest {single['worst']}); {last['date']}, "
        f"{last['machine']['cpu']}."
    )


def _measured(name: str) -> str:
    """When a library was measured, and in which versions."""
    library = figures().libraries[name]
    return f"Measured on {library.date}: {', '.join(f'{one} {of}' for one, of in library.versions.items())}."


def _row(call: str, name: str, version: str | None) -> Row:
    """What becomes of one transform; of one that changes nothing but the container, a row without ops."""
    found = importers.from_text(call, version=version, strict=False)
    silent = Row(name=name, verdict="exact", note="changes the container alone.")
    return next((row for row in reversed(found.rows) if row.name == name), silent)


def _here(ops: Iterable[Op]) -> str:
    texts = [re.sub(r"\b(?=[A-Z][A-Za-z]*[(])", "ops.", " ".join(written(op).split())) for op in ops]
    return ", ".join(f"`{text if len(text) <= LONGEST else text.partition('(')[0] + '(...)'}`" for text in texts)
