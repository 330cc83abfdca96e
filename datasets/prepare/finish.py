"""The end of a run: the journal becomes rejects.csv, report.html and the manifest, in this order."""

import csv
import io
import os
from collections.abc import Iterator

import numpy as np

from augpipe.datasets.files.atomic import AtomicFile
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.prepare.chunk import ChunkResult, Reject
from augpipe.datasets.prepare.journal import read_entry
from augpipe.datasets.prepare.report import write_report
from augpipe.datasets.prepare.run_plan import RunPlan
from augpipe.datasets.prepare.sample_targets import whole_of
from augpipe.datasets.prepare.tally import Tally, TallyBuilder
from augpipe.datasets.shards.manifest import Manifest, Scale, ShardInfo, TargetsInfo
from augpipe.sources.protocol import Source, label_width_of, labels_of
from augpipe.sources.targets import has_targets, targets_of_none

REJECTS_NAME = "rejects.csv"
REPORT_NAME = "report.html"
_MOST_SHOWN = 50


def finish(folder: str, plan: RunPlan, source: Source) -> Manifest:
    """Write the files next to the shards; the manifest comes last, so that a data set with a manifest is whole.

    Raises:
        ValueError: no image could be used; rejects.csv says why.
        OSError: something cannot be read or written.
    """
    tally, num_rejected = TallyBuilder(), 0
    shown: list[Reject] = []
    shards: dict[str, list[ShardInfo]] = {scale: [] for scale in plan.settings.scales}
    with AtomicFile(os.path.join(folder, REJECTS_NAME)) as file:
        file.write(_csv_line("path", "reason"))
        for result in _results(folder, plan):
            tally.merge(result.tally)
            num_rejected += len(result.rejects)
            shown += result.rejects[: _MOST_SHOWN - len(shown)]
            for reject in result.rejects:
                file.write(_csv_line(reject.name, reject.reason))
            for scale, shard in result.shards.items():
                shards[scale].append(shard)
        file.commit()
    total = tally.build()
    if total.num == 0:
        none = "the only photograph cannot" if num_rejected == 1 else f"none of the {num_rejected:,} photographs can"
        raise ValueError(
            f"{none} be used: {shown[0].name}: {shown[0].reason}. "
            f"{printable(os.path.join(folder, REJECTS_NAME))} lists them all; remove the folder to start again."
        )
    manifest = _manifest(plan, source, total, num_rejected, shards)
    write_report(os.path.join(folder, REPORT_NAME), folder, manifest, total, shown)
    manifest.save(folder)
    return manifest


def _results(folder: str, plan: RunPlan) -> Iterator[ChunkResult]:
    for number in range(plan.num_shards):
        result = read_entry(folder, number, plan.bounds(number))
        if result is None:
            raise ValueError(
                f"shard {number:06} of {printable(folder)} was there and is not: something else changes the folder. "
                "Run it again with --resume."
            )
        yield result


def _manifest(
    plan: RunPlan, source: Source, total: Tally, num_rejected: int, shards: dict[str, list[ShardInfo]]
) -> Manifest:
    classes, width = tuple(source.classes), label_width_of(source)
    is_float = width > 0 and labels_of(source, np.empty(0, np.int64)).dtype == np.float32
    return Manifest(
        versions=plan.versions,
        num_samples=total.num,
        num_rejected=num_rejected,
        scales=tuple(Scale(name=scale, shards=tuple(found)) for scale, found in shards.items()),
        classes=classes,
        class_counts=tuple(total.labels.get(label, 0) for label in range(len(classes))),
        label_width=width,
        label_dtype="float32" if is_float else "int64",
        targets=_targets_info(source),
        mean=total.channels.mean,
        std=total.channels.std,
        histograms=total.manifest_histograms(),
        settings=plan.noted(),
    )


def _targets_info(source: Source) -> TargetsInfo | None:
    if not has_targets(source):
        return None
    names = getattr(whole_of(source), "keypoint_names", ())
    return TargetsInfo(
        has_objects=targets_of_none(source) is not None,
        has_label_maps=source.has_label_maps,
        object_classes=tuple(source.object_classes),
        category_ids=tuple(getattr(whole_of(source), "category_ids", ())),
        keypoint_names=tuple(names),
        keypoint_swaps=tuple((first, second) for first, second in source.keypoint_swaps),
    )


def _csv_line(*fields: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()
