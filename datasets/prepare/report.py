"""report.html: one page that needs nothing else, with samples, histograms, settings and what was rejected."""

import os
from collections.abc import Iterator, Sequence
from html import escape

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.prepare.chunk import Reject
from augpipe.datasets.prepare.tally import Tally
from augpipe.datasets.shards.index import ShardIndex, index_path
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.reports.page import html_page, html_table, html_thumbnail
from augpipe.validation.plural import count

_NUM_SAMPLES = 24
_THUMBNAIL_PX = (240, 160)
_MOST_BARS = 40
"""Classes that are listed each; of more, the largest and the smallest."""
_NOTES = {
    "kept": "files kept byte by byte, counted at each scale",
    "gray": "gray",
    "turned": "that EXIF turns upright",
    "array": "given as arrays",
    "srgb": "with a colour profile that is sRGB",
    "converted": "with a colour profile that was converted to sRGB",
    "ignored": "with a colour profile that is damaged or for other pictures, ignored",
    "enlarged": "enlarged to a scale",
}
_STYLE = """
h3 { font-size: 1rem; font-weight: normal; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .8rem; }
figure { margin: 0; } figure img { width: 100%; height: 7.5rem; object-fit: contain; background: var(--line); }
figcaption { font-size: .75rem; color: var(--soft); overflow-wrap: anywhere; }
.bars td.b { width: 24rem; } .bars i { display: block; height: .8rem; background: var(--bar); }
.columns { display: flex; flex-wrap: wrap; gap: 0 3rem; } .columns .bars td.b { width: 10rem; }
"""


def write_report(path: str, folder: str, manifest: Manifest, tally: Tally, rejects: Sequence[Reject]) -> None:
    """Write the page; its bytes depend on the shards and the settings alone.

    Args:
        path: of the page.
        folder: holds the shards.
        manifest: of the data set.
        tally: of the same images.
        rejects: the first of those that could not be used.

    Raises:
        OSError: something cannot be read or written.
    """
    parts = [
        _summary(manifest, tally),
        "<h2>Samples</h2>",
        f'<div class="grid">{"".join(_figures(folder, manifest))}</div>',
        *_classes(manifest, tally),
        '<div class="columns">',
        *(_histogram(manifest, name) for name in manifest.histograms),
        "</div>",
        *_rejects(manifest, rejects),
        "<h2>Settings</h2>",
        html_table((name, _value(value)) for name, value in sorted(manifest.settings.items())),
        "<h2>Versions</h2>",
        html_table(sorted(manifest.versions.items())),
    ]
    name = str(manifest.settings.get("source_name") or "Data set")
    title = f"{name}: {count(manifest.num_samples, 'photograph')} in shards"
    write_atomically(path, html_page(title, _STYLE, parts))


def _summary(manifest: Manifest, tally: Tally) -> str:
    rows = [
        ("photographs", f"{manifest.num_samples:,}"),
        ("rejected", f"{manifest.num_rejected:,}"),
    ]
    if manifest.label_width:
        rows.append(("numbers in a label", f"{manifest.label_width:,}"))
    else:
        rows.append(("classes", f"{len(manifest.classes):,}"))
        rows.append(("without a label", f"{tally.labels.get(-1, 0):,}"))
    rows += [
        (f"scale {scale.name}", f"{count(len(scale.shards), 'shard')}, {scale.num_bytes / 1e6:,.1f} MB")
        for scale in manifest.scales
    ]
    if manifest.mean is not None and manifest.std is not None:
        rows.append(("mean of red, green, blue", ", ".join(f"{number:.4f}" for number in manifest.mean)))
        rows.append(("standard deviation", ", ".join(f"{number:.4f}" for number in manifest.std)))
    rows += [(text, f"{tally.notes[note]:,}") for note, text in _NOTES.items() if note in tally.notes]
    return html_table(rows)


def _figures(folder: str, manifest: Manifest) -> Iterator[str]:
    scale = manifest.scales[0]
    num = min(_NUM_SAMPLES, manifest.num_samples)
    for place in range(num):
        key, label, data = _sample(folder, scale, place * manifest.num_samples // num)
        name = manifest.classes[label] if label >= 0 else ""
        caption = f"{escape(name)}<br>{escape(key)}" if name else escape(key)
        pixels = decode(data, probe(data, max_pixels=MAX_PIXELS))
        image = html_thumbnail(pixels, _THUMBNAIL_PX, "", quality=80)
        yield f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _sample(folder: str, scale: Scale, sample_id: int) -> tuple[str, int, bytes]:
    """Key, label and file of a sample."""
    for shard in scale.shards:
        if sample_id < shard.num_samples:
            break
        sample_id -= shard.num_samples
    path = os.path.join(folder, scale.name, shard.name)
    index = ShardIndex.open(index_path(path))
    record = index[sample_id]
    with open(path, "rb") as file:
        file.seek(record.offset)
        return index.key(sample_id), record.label, file.read(record.length)


def _classes(manifest: Manifest, tally: Tally) -> Iterator[str]:
    if not manifest.classes or manifest.label_width:
        return
    counts = sorted(zip(manifest.class_counts, manifest.classes, strict=True), key=lambda row: -row[0])
    yield f"<h2>Classes ({len(counts):,}), by size</h2>"
    if len(counts) > _MOST_BARS:
        yield _profile([num for num, _ in counts])
        half = _MOST_BARS // 2
        yield f'<div class="columns"><div><h3>The {half} largest</h3>'
        yield _bars([(name, num) for num, name in counts[:half]], counts[0][0])
        yield f"</div><div><h3>The {half} smallest</h3>"
        yield _bars([(name, num) for num, name in counts[-half:]], counts[0][0])
        yield "</div></div>"
    else:
        yield _bars([(name, num) for num, name in counts])


def _profile(counts: Sequence[int]) -> str:
    """A curve over all classes, from the largest to the smallest."""
    width, height = 800, 120
    most = max(*counts, 1)
    num_shown = min(width, len(counts))
    shown = [counts[place * len(counts) // num_shown] for place in range(num_shown)]
    step = width / num_shown
    tops = [f"{height - height * num / most:.1f}" for num in shown]
    points = " ".join(f"{place * step:.1f},{top} {(place + 1) * step:.1f},{top}" for place, top in enumerate(tops))
    return (
        f'<svg viewBox="0 0 {width} {height}" width="100%" height="{height}" preserveAspectRatio="none" role="img">'
        f'<polygon fill="currentColor" opacity=".45" points="0,{height} {points} {width},{height}"/></svg>'
        f"<p>from {count(most, 'photograph')} a class down to {min(counts):,}</p>"
    )


def _histogram(manifest: Manifest, name: str) -> str:
    histogram = manifest.histograms[name]
    unit = {"height": "Height of the originals, pixels", "width": "Width of the originals, pixels"}
    rows = []
    for low, high, num in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False):
        text = f"from {low:,g}" if high >= 1 << 31 else f"{low:,g} to {high:,g}"
        rows.append((text, num))
    first = next((place for place, row in enumerate(rows) if row[1]), 0)
    last = next((place for place in range(len(rows) - 1, -1, -1) if rows[place][1]), -1)
    return f"<div><h2>{escape(unit.get(name, 'Width / height'))}</h2>{_bars(rows[first : last + 1])}</div>"


def _bars(rows: Sequence[tuple[str, int]], most: int = 0) -> str:
    """A table with a bar for each number; `most` fills the width, or the largest of the numbers where it is 0."""
    most = most or max((num for _, num in rows), default=0) or 1
    lines = (
        f'<tr><th>{escape(text)}</th><td class="n">{num:,}</td>'
        f'<td class="b"><i style="width:{100 * num / most:.1f}%"></i></td></tr>'
        for text, num in rows
    )
    return f'<table class="bars">{"".join(lines)}</table>'


def _rejects(manifest: Manifest, rejects: Sequence[Reject]) -> Iterator[str]:
    if not rejects:
        return
    yield f"<h2>Rejected ({manifest.num_rejected:,})</h2>"
    yield html_table((reject.name, reject.reason) for reject in rejects)
    if manifest.num_rejected > len(rejects):
        yield f"<p>and {manifest.num_rejected - len(rejects):,} more: rejects.csv lists them all.</p>"


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else "no" if value is False else str(value)
