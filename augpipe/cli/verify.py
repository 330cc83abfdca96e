"""`augpipe verify`: whether a prepared data set is as it was written."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augpipe.cli.common import JsonOption, SplitOption, in_options, print_json, scales_json
from augpipe.cli.exit_codes import FAILURE
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from augpipe.datasets.annotations.annotated_source import AnnotatedSource
    from augpipe.datasets.shards.manifest import Manifest
    from augpipe.datasets.shards.verify import Fault


def verify(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The folder that augpipe prepare wrote; or images with annotations: their folder, a .json of COCO, a "
            ".yaml of YOLO.",
            show_default=False,
        ),
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Decode every photograph.")] = False,
    json: JsonOption = False,
    split: SplitOption = None,
) -> None:
    """Check sums, indices and samples of a prepared data set, or annotations; list exactly what is damaged.

    Nothing is changed. Exits with 1 where anything is damaged.
    """
    from augpipe.datasets.annotations.open_annotated import open_to_check
    from augpipe.datasets.shards.manifest import MANIFEST_NAME, Manifest

    if not (out / MANIFEST_NAME).exists() and out.name != MANIFEST_NAME:
        with in_options():
            source = open_to_check(str(out), split)
        if source is not None:
            _verify_annotations(source, json)
            return
    if split is not None:
        raise ValueError(f"--split {split} is for annotations, and {out} holds none. Leave it out.")
    manifest = Manifest.load(out)
    faults = run(out, manifest, deep=deep)
    if json:
        print_json(as_json(manifest, faults, deep=deep))
    else:
        for fault in faults:
            print(fault)
        print(summary(out, manifest, faults, deep=deep))
    if faults:
        raise typer.Exit(FAILURE)


def _verify_annotations(source: "AnnotatedSource", json: bool) -> None:
    from augpipe.datasets.annotations.annotated_source import check_annotations
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("checking images", len(source), unit="image") as bar:
        faults = check_annotations(source, bar.update)
    if json:
        print_json(
            {
                "is_well": not faults,
                "samples": len(source),
                "objects": source.num_objects,
                "faults": [{"where": fault.where, "reason": fault.reason} for fault in faults],
            }
        )
    else:
        for fault in faults:
            print(fault)
        print(f"{source!r}: {count(len(faults), 'fault') if faults else 'all is well'}")
    if faults:
        raise typer.Exit(FAILURE)


def run(out: Path, manifest: "Manifest", *, deep: bool) -> "list[Fault]":
    """Check behind a progress bar, which goes to stderr."""
    from augpipe.datasets.shards.verify import verify
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("checking shards", sum(scale.num_bytes for scale in manifest.scales), unit="byte") as bar:
        return verify(out, deep=deep, progress=bar.advance)


def as_json(manifest: "Manifest", faults: "list[Fault]", *, deep: bool) -> dict[str, Any]:
    """What was checked, and the faults: `key` and `sample_id` are null where a whole file is at fault."""
    return {
        "is_well": not faults,
        "deep": deep,
        "samples": manifest.num_samples,
        "scales": scales_json(manifest),
        "faults": [
            {"path": fault.path, "key": fault.key, "sample_id": fault.sample_id, "reason": fault.reason}
            for fault in faults
        ],
    }


def summary(out: Path, manifest: "Manifest", faults: "list[Fault]", *, deep: bool) -> str:
    """One line on the whole."""
    scales = ", ".join(scale.name for scale in manifest.scales)
    shards = count(sum(len(scale.shards) for scale in manifest.scales), "shard")
    what = f"{out}: {count(manifest.num_samples, 'sample')} at {scales} in {shards}"
    if not faults:
        return f"{what}: all is well" + ("" if deep else " (photographs were not decoded: --deep does that)")
    samples = len({(fault.path, fault.sample_id) for fault in faults if fault.sample_id is not None})
    return f"{what}: {count(len(faults), 'fault')}, {count(samples, 'damaged sample')}"
