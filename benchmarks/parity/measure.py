"""Each transform of the importers' tables in its own library, next to what an import makes of it: pixels and draws.

Pixels: with every number fixed, the mean and the largest difference in levels, of photographs and of a checkerboard.
Draws: numbers that are read off many outputs of two probe images are distributed alike, by a chi-square test where they
are a few values, else by that of Kolmogorov and Smirnov. Both forgive rounding (`slacks`), and one level at most where
pixels with fixed numbers differ by as much, which is told of them.

    make parity                                                   # all, kept in augpipe/recipes/importers/parity.json
    python -m benchmarks.parity.measure kornia --only Rotation    # some, printed only
"""

import io
import json
import os
import subprocess
import tomllib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe import Augment, importers, ops
from augpipe.recipes.importers import measured
from benchmarks.harness import ROOT, Bench, photographs
from benchmarks.parity.probes import Numbers, Pixels, checkerboard, names, probes, read, shown_in, slacks, stacked

Float = npt.NDArray[np.float64]
FOLDER = Path(__file__).parent
ENVIRONMENTS = {
    "torchvision": "torch",
    "timm": "torch",
    "kornia": "torch",
    "albumentations-1": "albumentations-1",
    "albumentations-2": "albumentations-2",
}
"""A library -> the folder of its virtual environment."""
HEIGHT, WIDTH = 192, 256
NUM_PHOTOGRAPHS = 4
NUM_TURNS = 6
"""Outcomes of theirs that are compared, where some numbers cannot be fixed,"""
NUM_OUTCOMES = 400
"""and of ours, among which is the one that is nearest."""
NUM_OF_MANY, ROUNDS_OF_MANY = 100, 20
"""The same where choices are many, as a policy's: outcomes of theirs, and how often `NUM_OUTCOMES` of ours are made."""
NEAR_LEVELS = 0.5
"""The mean difference at which no nearer outcome is looked for."""
OURS_PER_THEIRS = 2
"""Draws of ours for each of theirs: they cost less."""
MOST_VALUES = 40
"""Values of a number that are taken for a few."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An entry of cases.toml."""

    fixed: str
    drawn: str = ""
    how: str = ""
    of: str = ""
    """The transform that it is about, where that is not the last one."""


@dataclass(frozen=True, kw_only=True)
class Test:
    """A number of one probe, theirs and ours: how far apart its distributions are, and how likely that is by chance."""

    number: str
    apart: float
    p: float


def asked(library: str) -> list[Asked]:
    listed = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))[library]
    return [Asked(**dict(zip(("fixed", "drawn", "how", "of"), one, strict=False))) for one in listed]


def images_to_augment() -> list[npt.NDArray[np.uint8]]:
    """Photographs at one size, and a checkerboard."""
    encoded, _ = photographs()
    shown = [Image.open(io.BytesIO(one)).convert("RGB").resize((WIDTH, HEIGHT)) for one in encoded[:NUM_PHOTOGRAPHS]]
    return [*map(np.asarray, shown), checkerboard(HEIGHT, WIDTH)]


def ask(library: str, folder: Path, cases: list[Asked], num_draws: int, images: list[Any]) -> list[Path]:
    """Files of what the library makes of cases, in its own environment; those that are there are not made again.

    A case that it cannot make has none.
    """
    made = folder / ENVIRONMENTS[library] / "made"  # it goes with the environment, and so with the library's version
    made.mkdir(parents=True, exist_ok=True)
    given = made / "images.npz"
    np.savez(given, images=np.stack(images), probes=np.stack(probes()))
    of_images = measured.digest([image.tobytes().hex() for image in (*images, *probes())])
    order, paths = [], []
    for case in cases:
        num_turns = NUM_OF_MANY if case.how.endswith("of many") else NUM_TURNS
        told = asdict(case) | {"num_draws": num_draws, "num_turns": num_turns}
        key = measured.digest([library, told, of_images])
        paths.append(made / f"{key}.npz")
        if not paths[-1].exists():
            order.append(told | {"key": key, "seed": int(key[:8], 16)})
    ordered = made / f"{library}.json"
    ordered.write_text(json.dumps(order))
    command = [folder / ENVIRONMENTS[library] / "bin" / "python", "-m", "benchmarks.parity.theirs", library]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command += [ordered, given, made]
    subprocess.run(list(map(str, command)), check=True, cwd=ROOT, env=environment)
    return paths


def imported(library: str, call: str) -> importers.Imported:
    return importers.from_text(call, version=library.partition("-")[2] or None)


def ours(found: importers.Imported, image: npt.NDArray[np.uint8], num: int, seed: int) -> Pixels:
    """(num, H, W, channels) outcomes of an image, in levels; of normalised numbers, 255 are one."""
    is_float = any(op.op == "normalize" for op in found.recipe.ops)
    augment = Augment(found.recipe, seed, dtype="float32" if is_float else "uint8", layout="NHWC", framework="numpy")
    made = stacked([one.astype(np.float32) for one in augment([image] * num)])
    return np.float32(255.0) * made if is_float else made


def compared(how: str, found: importers.Imported, theirs: list[Pixels], images: list[Any]) -> tuple[float, float]:
    """The mean difference of the image where it is the largest, and the largest of a pixel."""
    worst = most = 0.0
    stds = [op.std for op in found.recipe.ops if isinstance(op, ops.Normalize)]
    unit = np.array(stds[0] if stds else 1.0, np.float32)  # a level, of what is normalised
    for image, turns in zip(images, theirs, strict=True):
        if "nearest" in how:
            outcomes = nearest_of_ours(how, turns, found, image)
        else:
            outcomes = ours(found, image, len(turns), 1)
        if turns.shape != outcomes.shape:
            return 255.0, 255.0
        apart = np.abs(as_compared(how, turns, image) - as_compared(how, outcomes, image)) * unit
        most = max(most, float(apart.max()))
        worst = max(worst, float(apart.mean()))
    return worst, most


def as_compared(how: str, outcomes: Pixels, image: npt.NDArray[np.uint8]) -> Pixels:
    """(n, ..., channels) outcomes as they are; or the levels of each channel in order of size, less those of the image
    where something is added to it."""
    if "spread" not in how:
        return outcomes
    changed = outcomes - image if how == "spread" else outcomes
    return np.sort(changed.reshape(len(outcomes), -1, outcomes.shape[-1]), axis=1)


def nearest_of_ours(how: str, theirs: Pixels, found: importers.Imported, image: npt.NDArray[np.uint8]) -> Pixels:
    """Our outcomes that are nearest to each of theirs, of `NUM_OUTCOMES`; or of many times as many, for as long as some
    are further apart than `NEAR_LEVELS`."""
    shown = as_compared(how, theirs, image)
    chosen, apart = np.zeros_like(theirs), np.full(len(theirs), np.inf)
    for seed in range(1, 1 + (ROUNDS_OF_MANY if how.endswith("of many") else 1)):
        outcomes = ours(found, image, NUM_OUTCOMES, seed)
        if outcomes.shape[1:] != theirs.shape[1:]:
            return outcomes
        weights = np.random.default_rng(0).random(outcomes[0].size, np.float32)
        distinct = outcomes[np.unique(outcomes.reshape(len(outcomes), -1) @ weights, return_index=True)[1]]
        as_shown = as_compared(how, distinct, image)
        for turn in np.flatnonzero(apart > NEAR_LEVELS):
            nth = nearest(shown[turn], as_shown)
            if (by := float(np.abs(shown[turn] - as_shown[nth]).mean())) < apart[turn]:
                chosen[turn], apart[turn] = distinct[nth], by
        if (apart <= NEAR_LEVELS).all():
            break
    return chosen


def nearest(theirs: Pixels, outcomes: Pixels) -> int:
    """Which outcome has the least mean difference, among those that are near at some of the pixels."""
    some = np.abs(outcomes[:, ::5, ::5] - theirs[::5, ::5]).reshape(len(outcomes), -1).mean(1)
    near = some.argsort(kind="stable")[:40]
    return int(near[np.abs(outcomes[near] - theirs).reshape(len(near), -1).mean(1).argmin()])


def tests(found: importers.Imported, theirs: list[Numbers], least_slack: float) -> list[Test]:
    """Tests of each number of each probe; none of those that are the same in all outcomes."""
    made = []
    for place, (probe, numbers) in enumerate(zip(probes(), theirs, strict=True)):
        outcomes = ours(found, probe, OURS_PER_THEIRS * len(numbers), 2)
        mine = read(outcomes if outcomes.shape[-1] == 3 else np.repeat(outcomes, 3, axis=-1))
        for one, (name, slack) in enumerate(zip(names(), slacks(), strict=True)):
            slack = max(slack, least_slack)
            a, b = numbers[:, one].astype(np.float64), mine[:, one].astype(np.float64)
            values = np.sort(np.concatenate([a, b]))
            if values[-1] - values[0] > 2.0 * slack:
                made.append(Test(number=f"{name} of probe {place}", **alike(a, b, values, slack)))
    return made


def alike(a: Float, b: Float, values: Float, slack: float) -> dict[str, float]:
    """How far two distributions are apart at most, and how likely that is by chance; `values` are both, in order."""
    from scipy import stats

    edges = values[1:][np.diff(values) > 2.0 * slack] - slack
    parts = np.split(values, np.searchsorted(values, edges))
    if len(parts) < MOST_VALUES and max(np.ptp(part) for part in parts) < 4.0 * slack:
        counts = np.stack([np.bincount(np.searchsorted(edges, one), minlength=len(parts)) for one in (a, b)])
        shares = counts / counts.sum(1, keepdims=True)
        is_rare = counts.sum(0) * min(len(a), len(b)) / len(values) < 5.0  # too few for the test: taken together
        merged = np.concatenate([counts[:, ~is_rare], counts[:, is_rare].sum(1, keepdims=True)], axis=1)
        merged = merged[:, merged.sum(0) > 0]
        p = stats.chi2_contingency(merged, correction=False).pvalue if merged.shape[1] > 1 else 1.0
        return {"apart": float(np.abs(np.cumsum(shares[0] - shares[1])).max()), "p": float(p)}
    a, b, apart = np.sort(a), np.sort(b), 0.0
    for one, other in ((a, b), (b, a)):
        below = np.arange(1, len(one) + 1) / len(one)
        apart = max(apart, float((below - np.searchsorted(other, one + 2.0 * slack, side="right") / len(other)).max()))
    size = len(a) * len(b) / (len(a) + len(b))
    return {"apart": apart, "p": float(stats.kstwobign.sf(apart * size**0.5))}


def case_of(library: str, case: Asked, path: Path, images: list[Any]) -> tuple[measured.Case, int]:
    """What is kept of a case, and of how many tests; of several containers of images, the worse."""
    theirs: dict[str, Any] = {}
    if path.exists():
        with np.load(path) as file:
            theirs = dict(file)
    fixed, pixels, made, told = imported(library, case.fixed), [], [], []
    images = shown_in(case.how, images)
    for way in [way for way in ("PIL", "tensor", "array") if f"{way} 0" in theirs]:
        if case.how != "drawn":
            pixels.append(compared(case.how, fixed, [theirs[f"{way} {place}"] for place in range(len(images))], images))
            told.append("{} {:.2f} {:.0f}".format(way, *pixels[-1]))
        if f"{way} probe 0" in theirs:
            numbers = [theirs[f"{way} probe {place}"] for place in range(2)]
            slack = min(pixels[-1][0], 1.0) if pixels else 0.0
            made += tests(imported(library, case.drawn), numbers, slack)
    least = min(made, key=lambda test: test.p, default=None)
    if least:
        told.append(f"{least.number} {least.apart:.3f} p={least.p:.0e}")
    kept = measured.Case(
        library=library,
        call=case.fixed,
        form=form_of(library, case),
        ops=ops_digest(library, case),
        mean=round(max(one[0] for one in pixels), 3) if pixels else None,
        largest=round(max(one[1] for one in pixels), 1) if pixels else None,
        apart=round(max(test.apart for test in made), 3) if made else None,
        p=float(f"{least.p:.1e}") if least else None,
    )
    is_off = (kept.mean or 0.0) > measured.MOST_LEVELS or (kept.p is not None and kept.p < measured.ALPHA / 10_000)
    print(f"{'*' if is_off else ' '} {'; '.join(told):70} {case.fixed}", flush=True)
    return kept, len(made)


def form_of(library: str, case: Asked) -> str:
    """Which form the figures of a case are of: in the call that draws nothing is switched off by its numbers."""
    return row_of(library, case, case.drawn or case.fixed).forms[0]


def row_of(library: str, case: Asked, call: str) -> importers.Row:
    """What becomes of the transform that a case is about, in one of its calls."""
    return [row for row in imported(library, call).rows if case.of in ("", row.name)][-1]


def ops_digest(library: str, case: Asked) -> str:
    """A short name of all ops that the calls of a case become, with all their numbers."""
    calls = [call for call in (case.fixed, case.drawn) if call]
    made = [op for call in calls for op in imported(library, call).recipe.ops]
    return measured.digest([op.model_dump(mode="json") for op in made])


def main() -> None:
    bench = Bench(__doc__, names=ENVIRONMENTS, folder=str(ROOT / "build" / "parity"), only="", draws=1_000)
    options, images = bench.options, images_to_augment()
    for library in bench.names:
        folder = Path(options.folder)
        if not (folder / ENVIRONMENTS[library]).exists():
            print(f"{library}: no environment in {folder}. make parity installs it.")
            continue
        chosen = [one for one in asked(library) if options.only in one.fixed][: bench.pick(None, 2)]
        paths = ask(library, folder, chosen, bench.pick(options.draws, 50), images)
        found = [case_of(library, case, path, images) for case, path in zip(chosen, paths, strict=True)]
        if not (bench.is_quick or options.no_save or options.only):
            with np.load(next(path for path in paths if path.exists())) as file:
                versions = json.loads(str(file["versions"]))
            date, num = f"{datetime.now(UTC):%Y-%m-%d}", sum(num for _, num in found)
            keep(library, measured.Library(date=date, versions=versions, num_tests=num), [case for case, _ in found])


def keep(library: str, of: measured.Library, cases: list[measured.Case]) -> None:
    """Replace the figures of a library."""
    measured.figures.cache_clear()
    kept = measured.figures()
    others = {one: [case for case in kept.cases if case.library == one] for one in kept.libraries if one != library}
    by_library = sorted({**others, library: cases}.items())
    figures = measured.Figures(
        libraries={**kept.libraries, library: of}, cases=tuple(case for _, some in by_library for case in some)
    )
    measured.PATH.write_text(figures.to_json(), encoding="utf-8")
    print(f"{library}: kept in {measured.PATH}")


if __name__ == "__main__":
    main()
