"""People's chains from decoded images, ours next to their own library: torchvision on PIL images and, as version 2, on
uint8 tensors, and albumentations 2 on arrays. One thread each, 16 images at a time, one image a call, and one image a
call in two workers of torch's DataLoader, where a transform that takes no time says what is left to gain: workers send
their images to the process. Ours has taken 512 images by then, a worker too, and draws plans in blocks, as in any epoch
of a thousand images. Chains that make images of one size are also run from JPEG files: our Loader with two threads, and
a DataLoader with as many of 1 to 3 workers as are fastest; and what is left to gain there, if all that 16 images at a
time take were saved, so that reading and decoding remain.

The chains are of the corpus of published recipes that importers are tested with (`tests/augpipe/importers/corpus`,
`seen.toml`): for training, and taken as a whole by both sides. Of those with the same calls the first is taken, and of
these 20: those that make images of one size before others, and then those whose rarest call is in the most recipes.
Most recipes of albumentations are older than version 2, which takes many of them still, with its own defaults in the
place of arguments that it has no more. Images are photographs of ImageNet's usual area. Ours gives numbers in the
layout that theirs does.
"""

import importlib
import math
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from augpipe import Augment, Loader, Recipe, importers
from augpipe.planning.output_format import DTypeLike, Framework, Layout
from benchmarks.harness import Bench, imagenet_sized, in_turn, ratio, rendering_alone
from benchmarks.parity.theirs import names_of
from benchmarks.pipeline import peers
from tests.augpipe.importers.recipes import SEEN, calls, published

NUM_CHAINS, NUM_IMAGES, AT_ONCE, NUM_WARM = 20, 48, 16, 512
OF_EACH = 8
"""How often an epoch of a DataLoader has each image: of few batches its beginning would take much of the time."""
TO_TENSORS = ("transforms.ToTensor()", "v2.ToDtype(torch.float32, scale=True)")
"""What a chain of PIL images says, and what it says on tensors."""
WAYS = {"torchvision, PIL images": ("torchvision", "PIL"), "torchvision, uint8 tensors": ("torchvision", "tensor")} | {
    "albumentations 2, arrays": ("albumentations", "array")
}

RENDERED = "16 at a time, if only rendering took time"
WORKERS = "in a DataLoader of two workers, one image a call"
AT_MOST = "in such a DataLoader, over a transform that takes no time"
FILES = "from JPEG files, two cores"
BOUND = "from JPEG files, if rendering took no time"
NAMES = ("16 at a time", RENDERED, "one image a call", WORKERS, AT_MOST, FILES, BOUND)

Chain = Callable[[Any], Any]


def main() -> None:
    bench = Bench(__doc__, rounds=5, names=WAYS)
    warnings.simplefilter("ignore")
    encoded, origin = bench.photographs()
    images = [np.ascontiguousarray(one[:, :, :3]) for one in imagenet_sized(encoded, bench.pick(NUM_IMAGES, AT_ONCE))]
    found: dict[str, Any] = {}
    with bench.files(2) as (folder, _):
        for way in bench.names:
            library, container = WAYS[way]
            if not find_spec(library):
                print(f"{way}: {library} is not installed. make bench installs it.")
                continue
            given = [contained(image, container) for image in images]
            found[way] = of_way(bench, library, container, given, images, folder)
    if not found:
        return
    what = "times of a chain over ours, from decoded photographs; one thread each"
    bench.keep("chains", {"what": what, "images": origin, "photographs": len(images), "ways": found})


def of_way(
    bench: Bench, library: str, container: str, given: list[Any], images: list[Any], folder: Path
) -> dict[str, Any]:
    """Ratios of each chain, their geometric mean and the least."""
    one_thread(library)
    rows = []
    for recipe in typical(library, container, given[0])[: bench.pick(NUM_CHAINS, 2)]:
        theirs = chain_of(library, container, recipe)
        imported = importers.from_text(recipe).recipe
        is_float = any(op.op == "normalize" for op in imported.ops)
        stays_hwc = container == "array" and "ToTensor" not in recipe
        layout: Layout = "NHWC" if stays_hwc else "NCHW"  # as theirs gives it
        dtype: DTypeLike = "float32" if is_float else "uint8"
        ours = Augment(imported, dtype=dtype, layout=layout, framework="numpy", num_threads=1)
        taken = {}
        for name, at_once in (("16 at a time", AT_ONCE), ("one image a call", 1)):

            def by_ours(at_once: int = at_once, ours: Augment = ours) -> int:
                for first in range(0, len(images), at_once):
                    ours(images[first : first + at_once])
                return len(images)

            def by_theirs(theirs: Chain = theirs) -> int:
                for image in given:
                    theirs(image)
                return len(given)

            for _ in range(bench.pick(NUM_WARM, 1) // len(images)):
                by_ours()
            seconds = in_turn({"theirs": by_theirs, "ours": by_ours}, bench.rounds)
            taken[name] = round(ratio(seconds, "theirs", "ours"), 2)
            taken[f"ours, {name}, ms"] = round(1e3 * min(seconds["ours"]), 3)
            if at_once == AT_ONCE:
                taken[RENDERED] = round(min(seconds["theirs"]) / rendering_alone(by_ours, bench.rounds), 2)
        if container != "tensor":
            framework: Framework = "torch" if library == "torchvision" else "numpy"
            in_worker = Augment(imported, dtype=dtype, layout=layout, framework=framework)
            sized = all(view.out_size for view in imported.all_views)
            ready = in_worker(images[0])
            contenders = {
                "theirs": in_workers(given, theirs, are_stacked=sized),
                "ours": in_workers(images, in_worker, are_stacked=sized),
                "no work": in_workers(images, lambda _, ready=ready: ready, are_stacked=sized),
            }
            for _ in range(bench.pick(2 * NUM_WARM, 1) // (OF_EACH * len(images))):
                contenders["ours"]()
            seconds = in_turn(contenders, min(3, bench.rounds))
            taken[WORKERS] = round(ratio(seconds, "theirs", "ours"), 2)
            taken[AT_MOST] = round(ratio(seconds, "theirs", "no work"), 2)
            taken[f"ours, {WORKERS}, ms"] = round(1e3 * min(seconds["ours"]), 3)
            if sized:
                taken |= from_files(bench, library, theirs, imported, dtype, folder)
            if FILES in taken:
                whole = taken[f"ours, {FILES}, ms"]
                left = whole - taken["ours, 16 at a time, ms"] / 2  # on two cores
                taken[BOUND] = round(taken[FILES] * whole / left, 2)
        rows.append(taken | {"chain": recipe})
        print(*(f"{taken.get(name, math.nan):6.2f}" for name in NAMES), recipe[:150], flush=True)
    told = {}
    for name in NAMES:
        ratios = [row[name] for row in rows if name in row]
        if not ratios:
            continue
        told[name] = {"geometric mean": round(geometric_mean(ratios), 2), "worst": min(ratios)}
        print(f"  {library}, {container}, {name}: {told[name]}", flush=True)
    return told | {"chains": rows}


def from_files(
    bench: Bench, library: str, theirs: Chain, imported: Recipe, dtype: DTypeLike, folder: Path
) -> dict[str, float]:
    """What a DataLoader with its best number of workers takes over our Loader, and what that takes."""
    framework: Framework = "torch" if library == "torchvision" else "numpy"
    loader = Loader(folder, imported, batch_size=AT_ONCE, dtype=dtype, framework=framework, num_threads=2)
    read = peers.by_pillow if library == "torchvision" else peers.by_opencv
    files = peers.Files(sorted(folder.iterdir()), read, theirs)
    contenders: dict[str, Callable[[], int]] = {"ours": lambda: sum(map(len, loader))}
    try:
        contenders["ours"]()
    except ValueError:  # a file that is smaller than the chain's crop
        return {}
    contenders |= {f"{num} workers": peers.data_loader(files, AT_ONCE, num) for num in (1, 2, 3)}
    seconds = in_turn(contenders, min(3, bench.rounds))
    best = min(ratio(seconds, name, "ours") for name in contenders if name != "ours")
    return {FILES: round(best, 2), f"ours, {FILES}, ms": round(1e3 * min(seconds["ours"]), 3)}


class Decoded:
    """A data set of decoded images, each of them several times, through a chain."""

    def __init__(self, images: list[Any], chain: Chain) -> None:
        self.images, self.chain = images, chain

    def __len__(self) -> int:
        return OF_EACH * len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.chain(self.images[index % len(self.images)])


def in_workers(images: list[Any], chain: Chain, *, are_stacked: bool) -> Callable[[], int]:
    """An epoch of a torch DataLoader with two workers that live on; batches are lists where sizes may differ."""
    data: Any = importlib.import_module("torch.utils.data")
    loader = data.DataLoader(
        Decoded(images, chain),
        AT_ONCE,
        num_workers=2,
        persistent_workers=True,
        collate_fn=None if are_stacked else list,
    )

    def epoch() -> int:
        for _ in loader:
            pass
        return OF_EACH * len(images)

    return epoch


def one_thread(library: str) -> None:
    """Have a library use one thread, as ours does."""
    if library == "albumentations":
        importlib.import_module("cv2").setNumThreads(1)
    else:
        importlib.import_module("torch").set_num_threads(1)


def contained(image: Any, container: str) -> Any:
    if container == "PIL":
        return importlib.import_module("PIL.Image").fromarray(image)
    return importlib.import_module("torch").from_numpy(image).permute(2, 0, 1) if container == "tensor" else image


def typical(library: str, container: str, image: Any) -> list[str]:
    """Recipes, the most typical ones first, that both sides take."""
    entries = [one for one in published(SEEN) if one.library == library and "evaluation" not in one.what]
    called = {one.recipe: tuple(name for name, _ in calls(one.tree)) for one in entries}
    in_recipes = Counter(name for names in called.values() for name in set(names))
    distinct = {tuple(sorted(names)): recipe for recipe, names in reversed(called.items())}
    by_rarest = sorted(distinct.values(), key=lambda recipe: -min(in_recipes[name] for name in called[recipe]))
    sized = {recipe: has_one_size(library, container, recipe, image) for recipe in by_rarest}
    return sorted((recipe for recipe, one in sized.items() if one is not None), key=lambda recipe: not sized[recipe])


def has_one_size(library: str, container: str, recipe: str, image: Any) -> bool | None:
    """Whether it makes images of one size; None where it is not imported, or the library of today does not take it."""
    try:
        made = importers.from_text(recipe).recipe
    except ValueError:
        return None
    try:
        chain_of(library, container, recipe)(image)
    except Exception:  # whatever the library raises about a call that it lacks, or an image that is too small
        return None
    return all(view.out_size for view in made.all_views)


def chain_of(library: str, container: str, recipe: str) -> Chain:
    """The library's own transforms."""
    names = names_of(library, container)
    if library == "albumentations":
        names |= {"ToTensorV2": lambda **_: names["A"].NoOp(), "Image": importlib.import_module("PIL.Image")}
        made = eval(recipe, names)
        return lambda image: made(image=image)["image"]
    names |= {"transforms": names["T"], "v2": names["T"], "Image": importlib.import_module("PIL.Image")}
    names["nn"] = names["torch"].nn
    return eval(recipe.replace(*TO_TENSORS) if container == "tensor" else recipe, names)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
