"""Section of `check`: what CUDA makes of the same bytes and plans, and loaders by each route, beside the CPU."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from augpipe import Augment, Loader, Plan, Recipe, ops, plan, policies, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.gpu_ops.image.cuda.launch import look_up_label_maps, pack_rgbx
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.recipes.view import View
from benchmarks.gpu.common import (
    Findings,
    OnDevice,
    Run,
    decoded,
    event_seconds,
    form,
    kernels_made,
    make_loader,
    pixels_agree,
    spread,
    stream_number,
)
from benchmarks.gpu.preflight import nvjpeg

ROUNDING = {"float32": 0.0, "float16": 2**-9 * 255, "bfloat16": 2**-6 * 255, "uint8": 0.0}
"""The levels by which a number type rounds normalised values of at most 4: allowed on top."""
BORDERS = ("context", "reflect", "edge", "constant")
LAYOUTS = ("NCHW", "NHWC", "channels_last")
MIXING = (ops.MixUp(p=0.5), ops.CutMix(p=0.5))
PROGRAM = (ops.Hue(), ops.Erase(p=1.0), ops.Noise(p=1.0), ops.ColorJitter(brightness=0.4))
"""Steps behind the first pass, none of which rounds."""
POLICIES: dict[str, tuple[tuple[ops.Op, ...], ...]] = {
    "trivial_augment_wide": (policies.trivial_augment_wide(),),
    "rand_augment": (policies.rand_augment(),),
    "auto_augment": tuple(map(policies.auto_augment, ("imagenet", "cifar10"))),
    "three_augment": (policies.three_augment(),),
    "timm": tuple(map(policies.timm, ("rand-m9-mstd0.5-inc1", "original", "originalr", "v0", "v0r", "3a"))),
}
ROUNDED = ("num_rounded_apart", "num_before_tables")
Covered = dict[str, dict[str, Iterable[str]]]  # "covers", and then by kinds: see `check`


def answers(run: Run) -> dict[str, Callable[[Findings], Covered | None]]:
    """Kernels first, decoders next, and then what a user sees of both."""
    return {
        "ops": partial(_each_op, run),
        "policies": partial(_policies, run),
        "number types and layouts": partial(_each_form, run),
        "mixing": partial(_mixing, run),
        "channels": partial(_channels, run),
        "several passes": partial(_several_passes, run),
        "label maps": partial(_label_maps, run),
        "packing": lambda findings: findings.check("packing 1, 3 and 4 channels to RGBX", all(packed(run))),
        "nvJPEG": partial(nvjpeg, run, None),
        "batches by each route": partial(_routes, run),
    }


def _each_op(run: Run, findings: Findings) -> Covered:
    """The tests' cases with every border, the ops that the tests compare with Pillow's, and two views of an image."""
    images = _noise([(8, 8)] * 2 if run.is_simulated else [(120, 90), (97, 131), (400, 300)])
    return {"covers": {"op": _rendered(run, images, "ops", [*_cases(run), *_on_levels(), _views(run)], findings)}}


def _policies(run: Run, findings: Findings) -> Covered:
    """Behind a crop, on as many images as it takes that each choice is drawn."""
    images = _noise([(8, 9)] * 3 if run.is_simulated else [(40, 56)] * 64)
    crop = ops.RandomResizedCrop(size=run.pick(32, 6))
    chains = [(name, chain) for name, found in POLICIES.items() for chain in found]
    _rendered(run, images, "policies", [Recipe(name=name, ops=(crop, *chain)) for name, chain in chains], findings)
    return {"covers": {"policy": POLICIES}}


def _rendered(
    run: Run, images: Sequence[np.ndarray], what: str, chosen: Iterable[Recipe], findings: Findings
) -> Counter[str]:
    """Compare the images of each recipe; returns how many recipes each op changed something in, or draws nothing in."""
    from tests.parity.promise import MOST_ROUNDED_APART, compare, cpu_renderer

    found, bad, drawn, start = dict[str, Any](), dict[str, str](), Counter[str](), time.perf_counter()
    if run.is_simulated:
        chosen = _first_of_each_op(chosen, drawn)
    num_rendered = 0
    for recipe in chosen:
        num_rendered += 1
        made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images], seed=3)
        for part, some in _by_size(made, images):
            on = OnDevice(run, some, recipe, form())
            for rows in part.views:
                size = int(rows["out_height"][0]), int(rows["out_width"][0])
                apart = compare(kernel_rows(rows), cpu_renderer(some, size), partial(on.render_rows, size=size))
                found[f"{recipe.name}, {recipe.border}, {len(found)}"] = apart
                bad |= {} if apart.is_near else {f"{recipe.name}, {recipe.border}": str(apart)}
        keyed = dict(recipe.all_views[0].keyed_ops)
        changed = {key for place in range(len(images)) for key, _ in made.captions(place)}
        drawn.update({op.op for key, op in keyed.items() if key in changed or not op.record.names})
    num_apart, num = (sum(getattr(one, name) for one in found.values()) for name in ROUNDED)
    figures = {"recipes": num_rendered, "recipes_of_each_op": dict(sorted(drawn.items()))}
    furthest = sorted(found.items(), key=lambda item: -item[1].levels)[:5]
    figures |= {"furthest_apart_levels": {name: round(apart.levels, 6) for name, apart in furthest}}
    figures |= dict(zip(ROUNDED, (num_apart, num), strict=True))
    findings.keep(what, figures | {"seconds_with_compiling": round(time.perf_counter() - start, 1)})
    findings.check(f"{what}: as promised beside the CPU, float32", not bad, bad or None)
    if not run.is_simulated:  # where images are so small that many numbers lie half-way between two levels
        findings.check(
            f"{what}: few numbers before tables are rounded apart", num_apart <= 1 + num * MOST_ROUNDED_APART, figures
        )
    return drawn


def _first_of_each_op(chosen: Iterable[Recipe], drawn: Counter[str]) -> Iterator[Recipe]:
    """Recipes with an op that has not been drawn yet; the simulator's own tests render the others, too."""
    for recipe in chosen:
        if not {op.op for _, op in recipe.all_views[0].keyed_ops} <= drawn.keys():
            yield recipe


def _by_size(made: Plan, images: Sequence[np.ndarray]) -> Iterator[tuple[Plan, list[np.ndarray]]]:
    """A plan and its images, cut into what one launch renders: outputs of one size."""
    sizes = np.stack([made.rows["out_height"], made.rows["out_width"]], axis=1)
    for size in np.unique(sizes, axis=0):
        which = np.flatnonzero((sizes == size).all(axis=1))
        yield made[which], [images[place] for place in which]


def _cases(run: Run) -> list[Recipe]:
    """All of the tests' cases; in the simulator each once, with outputs of a few pixels."""
    from tests.parity.table import CASES, TABLE_CASES, recipes_of, with_borders

    if run.is_simulated:
        both = (*CASES.items(), *TABLE_CASES.items())
        return [Recipe(name=name, ops=[_tiny(op) for op in chosen]).fused() for name, chosen in both]
    tables = [Recipe(name=n, ops=chosen, border=one).fused() for one in BORDERS for n, chosen in TABLE_CASES.items()]
    return [recipe for name, border in with_borders(BORDERS) for recipe in recipes_of(name, border)] + tables


def _tiny(op: ops.Op) -> ops.Op:
    if isinstance(op, ops.OneCrop):
        return op.model_copy(update={"chains": tuple(tuple(map(_tiny, chain)) for chain in op.chains)})
    return op.model_copy(update={name: _a_twelfth(getattr(op, name)) for name in op.scaled_px}) if op.is_crop else op


def _a_twelfth(pixels: Any) -> Any:
    return tuple(map(_a_twelfth, pixels)) if isinstance(pixels, tuple) else pixels and max(pixels // 12, 1)


def _on_levels() -> list[Recipe]:
    """Each op of whole levels, on images that are not resampled; then one behind the other."""
    from tests.parity.by_pillow import ON_LEVELS

    each: list[ops.Op] = [kind(p=1.0) for kind in ON_LEVELS]  # type: ignore[call-arg]
    each.append(ops.Contrast(about="mean", factor=(0.0, 3.0)))
    return [Recipe(name=op.op, ops=(op,)) for op in each] + [Recipe(name="levels, all", ops=each)]


def _views(run: Run) -> Recipe:
    big, small = run.pick((224, 96), (6, 4))
    one = View(ops=(ops.ColorCast(), ops.Rotate(), ops.RandomResizedCrop(size=big), ops.Normalize()))
    other = View(ops=(ops.Flip(), ops.RandomResizedCrop(size=small, scale=(0.05, 0.3)), ops.Normalize()))
    return Recipe(name="two views", views=(one, other))


def _chain(run: Run, *, normalised: bool = True) -> Recipe:
    chain = run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
    return Recipe(name=chain.name, ops=[op for op in chain.ops if normalised or op.op != "normalize"])


def _each_form(run: Run, findings: Findings) -> None:
    """The whole chain on images, without and with steps behind the first pass, in every number type and layout."""
    images, results = decoded(run, run.pick(16, 3)), {}
    for steps in (), PROGRAM:
        for dtype, rounding in ROUNDING.items():
            chain = _chain(run, normalised=dtype != "uint8")
            recipe = Recipe(name=chain.name, ops=(*chain.ops, *steps))
            made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images])
            for layout in LAYOUTS:
                options: dict[str, Any] = {"dtype": dtype, "layout": layout}
                expected = Augment(recipe, framework="torch", num_threads=1, **options)(images, plan=made)
                begin = time.perf_counter()
                (found,) = OnDevice(run, images, recipe, form(**options)).render(made)
                seconds = time.perf_counter() - begin
                passed, figures = pixels_agree(found, expected, recipe, rounding)
                name = f"{dtype} {layout}{', more steps' if steps else ''}"
                results[name] = figures | {"first_call_seconds_with_compiling": round(seconds, 2)}
                findings.check(f"the chain in {name}", passed, results[name])
    findings.keep("the whole chain, CPU beside CUDA, the same number type", results)
    _all_made(findings, "fused", "finish")


def _several_passes(run: Run, findings: Findings) -> None:
    """Steps before geometry, in images of one size and of several, and a group that finishes op by op."""
    images, side = decoded(run, run.pick(16, 3)), run.pick(224, 6)
    crop, turn, noise = ops.RandomResizedCrop(size=side), ops.Rotate(), ops.Noise(p=1.0)
    in_turn = ops.AllOf(ops=[turn, ops.Contrast(), ops.Shear()], in_turn=True, own_look="bilinear")
    chains: dict[str, tuple[ops.Op, ...]] = {
        "crop, noise, turn": (crop, noise, turn),
        "noise, turn, crop": (noise, turn, crop),
        "crop, and in turn": (crop, in_turn),
    }
    for name, chain in chains.items():
        recipe = Recipe(name=name, ops=(*chain, ops.Normalize()), border="constant")
        made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images])
        expected = Augment(recipe, framework="torch", num_threads=1)(images, plan=made)
        (found,) = OnDevice(run, images, recipe, form()).render(made)
        passed, figures = pixels_agree(found, expected, recipe, 2.0)  # levels between passes may be rounded apart
        findings.keep(f"several passes: {name}", figures | {"passes": recipe.num_passes})
        findings.check(f"several passes: {name}", passed and recipe.num_passes > 1, figures)


def _mixing(run: Run, findings: Findings) -> Covered:
    """A loader that mixes on the device beside one on the CPU, in every number type and layout."""
    num, mixed = run.pick(32, 8), set[str]()
    for dtype, rounding in ROUNDING.items():
        for layout in LAYOUTS[:2]:
            crop = ops.RandomResizedCrop(size=run.pick(64, (4, 3)))
            recipe = Recipe(ops=(crop, ops.Flip(), *[ops.Normalize()] * (dtype != "uint8")), mixing=MIXING)
            options: dict[str, Any] = {"backend": "native", "batch_size": num, "dtype": dtype, "layout": layout}
            (expected,), (found,) = (Loader(run.many(num), recipe, device=d, **options) for d in ("cpu", "cuda"))
            passed, figures = pixels_agree(found.images, expected.images, recipe, rounding)
            findings.check(f"mixed in {dtype} {layout}", passed, figures)
            mixed |= {op for place in range(num) for op, _ in found.plan.captions(place)} & {mix.op for mix in MIXING}
    findings.check("both ways to mix were drawn", len(mixed) == len(MIXING), sorted(mixed))
    _all_made(findings, "mix")
    return {"covers": {"op": mixed}}


def _all_made(findings: Findings, *kinds: str) -> None:
    """Check that kernels for every number type and both orders of channels have run."""
    made = {kind: kernels_made()[kind] for kind in kinds}
    findings.check(f"every kernel ran: {', '.join(kinds)}", set(made.values()) == {2 * len(ROUNDING)}, made)


def _channels(run: Run, findings: Findings) -> None:
    """Gray, RGB and RGBX in device memory give the same pixels."""
    recipe, rgb = _chain(run), [image[:, :, :3] for image in decoded(run, 2)]
    made, gray = plan(recipe, range(2), sizes=[one.shape[:2] for one in rgb]), [one[:, :, :1] for one in rgb]
    for what, some, others in (
        ("RGB and RGBX", rgb, [np.dstack([one, one[:, :, :1]]) for one in rgb]),
        ("gray and its three copies", gray, [np.dstack([one] * 3) for one in gray]),
    ):
        (one,), (other,) = (OnDevice(run, given, recipe, form()).render(made) for given in (some, others))
        findings.check(f"{what} alike, bit by bit", torch.equal(one, other))


class LabelledNoise(ArraySource):
    """Images of noise, with label maps of noise of a number type."""

    has_targets = has_label_maps = True
    object_classes: Sequence[str] = ()
    keypoint_swaps: Sequence[tuple[int, int]] = ()

    def __init__(self, dtype: str, sizes: Sequence[tuple[int, int]]) -> None:
        super().__init__(_noise(sizes))
        self._maps = [image[:, :, 0].astype(dtype) for image in _noise(sizes)]

    def targets_of(self, sample_ids: np.ndarray) -> None:
        return None

    def label_map(self, sample_id: int) -> np.ndarray:
        return self._maps[sample_id]


def _label_maps(run: Run, findings: Findings) -> None:
    """Masks of a batch next to the CPU's, by each op that maps, and out of the cache; and how long a look-up takes."""
    num, side, size = run.pick((256, 224, (375, 500)), (3, 6, (12, 15)))
    source = LabelledNoise("uint8", [size] * num)
    crop, options = ops.RandomResizedCrop(size=side), {"batch_size": num, "backend": "native", "shuffle": False}
    chains: dict[str, tuple[ops.Op, ...]] = {
        "crop and turn": (ops.Rotate(max_deg=40, step=None), crop, ops.Flip()),
        "lens and perspective": (ops.BrownConrady(), ops.Perspective(p=1.0), crop),
        "elastic": (ops.ElasticTransform(p=1.0), crop),
        "grid": (ops.GridDistortion(p=1.0), crop),
        "two passes": (ops.Noise(p=1.0), ops.Rotate(max_deg=40, step=None), crop),
    }
    for name, chain in chains.items():
        recipe = Recipe(ops=chain, border="constant")
        (expected,) = Loader(source, recipe, device="cpu", **options)
        loader = Loader(source, recipe, device="cuda", cache="device", cache_bytes=1 << 28, **options)
        (missed,) = loader
        loader.set_epoch(0)
        (hit,) = loader
        apart = (missed.targets.cpu() != expected.targets).float().mean().item()
        # where a point lies midway between two pixels, its last bit decides
        findings.check(f"label maps: {name}, 1 in 10,000 apart at most", apart <= 1e-4, apart)
        findings.check(f"label maps: {name}, hits bit-equal to misses", torch.equal(hit.targets, missed.targets))
    findings.keep("label maps: the device", str(missed.targets.device))
    _time_label_maps(run, findings, source, Recipe(ops=chains["crop and turn"]), (side, side))


def _time_label_maps(
    run: Run, findings: Findings, source: LabelledNoise, recipe: Recipe, size: tuple[int, int]
) -> None:
    num = len(source)
    made = plan(recipe, range(num), sizes=[source.label_map(0).shape] * num)
    labels = [torch.from_numpy(source.label_map(number)).to(run.device) for number in range(num)]
    table = torch.tensor([(one.data_ptr(), one.shape[1], 0, 0, 1) for one in labels]).to(run.device)
    rows = torch.from_numpy(kernel_rows(made.rows).view(np.uint8).copy()).to(run.device)
    out = torch.empty((num, *size), dtype=torch.int64, device=run.device)
    options: dict[str, Any] = {"num": num, "height": size[0], "width": size[1], "fill": 255, "fills": True}
    seconds = event_seconds(
        lambda _: look_up_label_maps(
            *(table.data_ptr(), rows.data_ptr(), out.data_ptr()), as_taps=False, stream=stream_number(), **options
        ),
        run.pick(20, 1),
    )
    findings.keep("label maps: ns an image", spread([1e9 * one / num for one in seconds], 1))


def packed(run: Run) -> list[bool]:
    """Whether the cache's writer copies what it must, of each channel count: odd pixels too, nothing beyond the end."""
    images = [_noise([(5, 7)])[0][:, :, :channels] for channels in (1, 3)]
    images.append(np.concatenate([_noise([(3, 3)])[0], _noise([(3, 3)])[0][:, :, :1]], axis=2))
    sources = [torch.from_numpy(np.ascontiguousarray(image)).to(run.device) for image in images]
    targets = [torch.full((t.shape[0] * t.shape[1] + 1, 4), 7, dtype=torch.uint8, device=run.device) for t in sources]
    table = torch.tensor(
        [(s.data_ptr(), t.data_ptr(), s[..., 0].numel(), s.shape[2]) for s, t in zip(sources, targets, strict=True)]
    ).to(run.device)
    pack_rgbx(table.data_ptr(), num=len(images), max_pixels=35, stream=stream_number())
    is_right = []
    for image, target in zip(images, targets, strict=True):
        rgb = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[:, :, :3]
        rgbx = np.concatenate([rgb.reshape(-1, 3), np.full((rgb[:, :, 0].size, 1), 255, np.uint8)], axis=1)
        is_right.append(np.array_equal(target.cpu().numpy(), np.concatenate([rgbx, [[7] * 4]])))
    return is_right


def _noise(sizes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    return [np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8) for number, size in enumerate(sizes)]


def _routes(run: Run, findings: Findings) -> None:
    """A batch by each way to it, beside the native loader's on the CPU; and out of each cache, bit by bit."""
    num = run.pick(32, 3)
    folder = run.many(num)
    options: dict[str, Any] = {"dtype": "float32", "shuffle": False}
    given = make_loader(run, folder, num, backend="native", **options)
    (expected,) = Loader(given.source, given.recipe, device="cpu", batch_size=num, shuffle=False)
    images = [torch.from_numpy(image[:, :, :3].copy()).to(run.device) for image in decoded(run, num)]
    augmented = Augment(given.recipe)(images, range(num))
    passed, found = pixels_agree(augmented, expected.images, given.recipe)
    findings.check("Augment within 1 level of the loader on the CPU", passed, found)
    for backend in ("native", "dali"):
        for cache in ("off", "device", "host"):
            name = f"{backend}, cache {cache}"
            sized = {} if cache == "off" else {"cache_bytes": run.pick(1 << 29, 1 << 20)}
            with findings.attempt(name):
                loader = make_loader(run, folder, num, backend=backend, cache=cache, **sized, **options)
                (missed,) = loader
                passed, figures = pixels_agree(missed.images, expected.images, given.recipe)
                # nvJPEG is another decoder, so single pixels may be further apart
                passed = passed if backend == "native" else figures["mean_levels"] < 1.0
                findings.check(f"{name}: within 1 level{' in the mean' * (backend == 'dali')}", passed, figures)
                alike = missed.plan.rows.tobytes() == expected.plan.rows.tobytes()
                alike &= torch.equal(missed.labels.cpu(), expected.labels)
                findings.check(f"{name}: plans and labels bit-equal", alike)
                if cache == "off":
                    continue
                loader.set_epoch(0)
                (hit,) = loader
                statistics = loader.cache_statistics
                counts = statistics and (statistics.hits, statistics.misses)
                findings.check(f"{name}: hits bit-equal to misses", torch.equal(hit.images, missed.images))
                findings.check(f"{name}: counts", counts == (num, num), counts)
