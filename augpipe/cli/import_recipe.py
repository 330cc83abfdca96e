"""`augpipe import`: a recipe of torchvision, albumentations, timm, kornia or transformers as a TOML file."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augpipe.cli.common import JsonOption, console, output_file, print_json

if TYPE_CHECKING:
    from augpipe.recipes.imported import Imported

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp")
SETTINGS = (".json", ".yaml", ".yml")
"""What files are called that hold no calls, but what a library has written of its own."""


def import_recipe(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:NAME]|MODULE:NAME|-",
            help="A script or notebook (read, never executed) and the name of the transforms in it, their line, or a "
            "call, as \"train.py:get_transforms(phase='train')\"; a JSON or YAML file of A.to_dict or "
            "of an image processor; a module to import and its object; or - for calls on standard input.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The TOML file to write; without it, the recipe is printed.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="Version of albumentations, 1 or 2, if the text does not show it.", show_default=False),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out what cannot be imported, instead of refusing all of it.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="PHOTO",
            help="Draw a sheet of this image: what the library makes of it, which must be installed, above what the "
            "recipe does, and the difference of the means of 64 draws. Each draws numbers of its own: single images "
            "differ, means do by chance alone where the recipe is the same.",
            show_default=False,
        ),
    ] = None,
    sheet: Annotated[Path, typer.Option(help="The sheet of --compare.")] = Path("compare.png"),
    json: JsonOption = False,
) -> None:
    """Turn a recipe of torchvision, albumentations, timm, kornia or transformers into one of augpipe.

    augpipe import train.py:train_transforms --out mine.toml

    augpipe import train.py:train_transforms --compare photo.jpg
    """
    found = _found(source, version, not leave_out)
    if compare is not None:
        _draw_comparison(source, found, compare, output_file(sheet, EXTENSIONS, "--sheet"))
    text = found.recipe.to_toml()
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json:
        print_json(as_json(found))
        return
    screen = console(stderr=True)
    screen.print(found.table().terminal("what became of each transform"))
    for note in found.notes:
        if not any(row.note and note.endswith(row.note) for row in found.rows):
            screen.print(note, markup=False)
    if found.recipe.num_passes > 1:
        told = "Recipe.load(path).fused().dump(path) makes them one, with other images"
        screen.print(f"{found.recipe.num_passes} passes; {told}", markup=False)
    if out is None:
        print(text.rstrip("\n"))
    else:
        screen.print(f"{out}: augpipe preview FOLDER --recipe {out} shows its effect", markup=False)


def _draw_comparison(source: str, found: "Imported", photo: Path, sheet: Path) -> None:
    """The sheet of a script's or a module's transforms next to the recipe."""
    from augpipe.loader import as_source
    from augpipe.preview.compare import compared
    from augpipe.preview.draw import draw_sheet
    from augpipe.preview.whole_image import whole_image
    from augpipe.recipes.importers import theirs

    path, name = _parted(source)
    if source == "-" or Path(path).suffix.lower() in SETTINGS:
        raise ValueError(f"--compare cannot build {source}. Give a script, as train.py:transforms, or a module.")
    is_script = Path(path).exists()
    script = _script(Path(path)) if is_script else ""
    made = theirs.of_text(script, name or None) if is_script else _of_module(path, name)
    image = whole_image(as_source(str(photo), {}), 0)
    is_normalized = any(op.op == "normalize" for op in found.recipe.ops)
    transform, library = theirs.as_transform(made, is_normalized=is_normalized), theirs.installed(made)
    draw_sheet(compared(transform, found.recipe, image, f"{source}, by {library} and by augpipe")).save(sheet)
    text = f"{sheet}: theirs (by {library}), ours, and the difference of their means"
    console(stderr=True).print(text, markup=False)


def as_json(found: "Imported") -> dict[str, Any]:
    """The recipe as its TOML has it, what became of each transform, and what differs."""
    rows = [
        {"transform": row.name, "became": row.became, "verdict": row.verdict, "note": row.note} for row in found.rows
    ]
    return {"recipe": tomllib.loads(found.recipe.to_toml()), "transforms": rows, "notes": found.notes}


def _parted(source: str) -> tuple[str, str]:
    """The file or module, and the name in it."""
    path, _, name = source.rpartition(":") if ":" in source and not Path(source).exists() else (source, "", "")
    return path, name


def _found(source: str, version: str | None, strict: bool) -> "Imported":
    from augpipe.recipes import imported

    if source == "-":
        return imported.from_text(sys.stdin.read(), version=version, strict=strict)
    path, name = _parted(source)
    if Path(path).suffix.lower() in SETTINGS:
        data = _settings(Path(path))
        if not isinstance(data, dict):
            kind = {"NoneType": "nothing", "str": "a text", "int": "an int"}.get(type(data).__name__)
            raise ValueError(
                f"{path} holds {kind or f'a {type(data).__name__}'}. Give what A.to_dict(transform) returns, or the "
                "settings of an image processor."
            )
        is_processor = "transform" not in data and "__class_fullname__" not in data
        return imported.from_hugging_face(data) if is_processor else imported.from_albumentations(data, strict=strict)
    if Path(path).exists():
        return imported.from_text(_script(Path(path)), name or None, version=version, strict=strict)
    if not name or Path(path).suffix:
        raise ValueError(
            f"{path} is not a file. Give a script, as train.py:transforms, or a module, as my.data:transforms."
        )
    return imported.from_object(_of_module(path, name), strict=strict)


def _settings(path: Path) -> Any:
    import json

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path} is YAML, which PyYAML reads: pip install 'augpipe[yolo]'. Or give JSON.") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}.") from None


def _script(path: Path) -> str:
    """The text of a script, or of a notebook's cells without what only a notebook runs."""
    import json

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not text, and nothing pickled is loaded. Give the script that makes the transform, as "
            "train.py:transforms, or what A.to_dict(transform) returns, as JSON."
        ) from None
    if path.suffix != ".ipynb":
        return text
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell).splitlines()]
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def _of_module(module: str, name: str) -> Any:
    """The object of a module, which is imported for that, or what its function of that name returns."""
    sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{module} is neither a file nor a module: {error}.") from None
    finally:
        sys.path.remove("")
    if not hasattr(found, name):
        raise ValueError(f"{module} has no {name}.")
    made = getattr(found, name)
    is_function = callable(made) and type(made).__name__ == "function"
    return made() if is_function else made
