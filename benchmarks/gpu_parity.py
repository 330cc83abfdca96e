"""Section of `gpu_check`: what CUDA makes of the same bytes and plans, and loaders by each route, beside the CPU."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu_common import Findings, OnDevice, Run, decoded, form, levels_apart, make_loader, stream_number, synchronize
from gpu_preflight import fetched, judge

from augpipe import Augment, Batch, Loader, Plan, Recipe, ops, plan
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.gpu_ops.image.cuda.launch import pack_rgbx
from augpipe.recipe import View

ALLOWED_LEVELS = 1.0
"""How far CPU and CUDA may be apart."""

ROUNDING = {"float32": 0.0, "float16": 2**-9, "bfloat16": 2**-6, "uint8": 1.0}
"""How much a number type rounds, in parts of a normalised value of at most 4, or in levels: allowed on top."""

BORDERS = ("context", "reflect", "edge", "constant")
DECODED_AT_ONCE = 32
LAYOUTS = ("NCHW", "NHWC", "channels_last")


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """Kernels first, decoders next, and then what a user sees of both."""
    return {
        "half of the table's recipes": partial(_each_op, run),
        "number types and layouts": partial(_each_form, run),
        "views": partial(_views, run),
        "channels": partial(_channels, run),
        "packing": partial(packing, run),
        "nvJPEG": partial(_decoders, run),
        "batches by each route": partial(_routes, run),
    }


def _each_op(run: Run, findings: Findings) -> None:
    """Ops of the tests' table, and their chains, with every border."""
    worst: dict[str, float] = {}
    start, num = time.perf_counter(), 0
    images = _noise([(17, 12), (9, 14)] if run.is_simulated else [(120, 90), (97, 131), (400, 300)])
    for recipe in _simulated_recipes() if run.is_simulated else _recipes():
        made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images], seed=3)
        if len({(int(row["out_height"]), int(row["out_width"])) for row in made.rows}) > 1:
            continue  # whole images of several sizes are several launches: Augment's business, see tests/gpu
        worst[f"{recipe.name}, {recipe.border}"] = _apart(run, images, recipe, made)
        num += 1
    findings.keep(
        "ops",
        {
            "recipes": num,
            "greatest_difference_levels": round(max(worst.values()), 6),
            "five_worst": dict(sorted(worst.items(), key=lambda item: -item[1])[:5]),
            "seconds_with_compiling": round(time.perf_counter() - start, 1),
        },
    )
    bad = {name: value for name, value in worst.items() if not value <= ALLOWED_LEVELS}
    findings.check("every op and chain within 1 level of the CPU, float32", not bad and num > 0, bad or None)


def _apart(run: Run, photographs: Sequence[np.ndarray], recipe: Recipe, made: Plan) -> float:
    expected = Augment(recipe, framework="torch", num_threads=1)(list(photographs), plan=made)
    (found,) = OnDevice(run, photographs, recipe, form()).render(made)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return float(levels_apart(found, expected, recipe).max())


def _recipes() -> list[Recipe]:
    from tests.parity.table import CASES, recipes_of

    return [recipe for border in BORDERS for name in CASES for recipe in recipes_of(name, border)][::2]


def _simulated_recipes() -> list[Recipe]:
    tiny = ops.MultiResolutionCrop(size=6, scales=(7, 9))
    chosen = {"crop": (tiny,), "cast, lens": (ops.ColorCast(), ops.Vignette(), ops.BrownConrady(), ops.Rotate(), tiny)}
    return [
        Recipe(name=name, border=border, fill=(250.0, 3.0, 99.0), ops=steps)
        for border in ("context", "constant")
        for name, steps in chosen.items()
    ]


def _chain(run: Run, *, normalised: bool = True) -> Recipe:
    size, scales = (6, (7, 12)) if run.is_simulated else (224, (256, 512))
    steps = (
        *(ops.ColorCast(), ops.Vignette(), ops.LensDistortion(), ops.Rotate(), ops.Flip()),
        ops.MultiResolutionCrop(size=size, scales=scales),
    )
    return Recipe(name="deep_image", ops=(*steps, ops.Normalize()) if normalised else steps)


def _each_form(run: Run, findings: Findings) -> None:
    """The whole chain on images, in every number type and layout."""
    images = decoded(run, 3 if run.is_simulated else 16)
    results = {}
    for dtype, rounding in ROUNDING.items():
        for layout in LAYOUTS:
            recipe = _chain(run, normalised=dtype != "uint8")
            made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images])
            options = {"dtype": dtype, "layout": layout}
            expected = Augment(recipe, framework="torch", num_threads=1, **options)(images, plan=made)
            begin = time.perf_counter()
            (found,) = OnDevice(run, images, recipe, form(**options)).render(made)
            synchronize()
            seconds = time.perf_counter() - begin
            is_alike = found.shape == expected.shape and found.stride() == expected.stride()
            apart = levels_apart(found, expected, recipe)
            allowed = ALLOWED_LEVELS if dtype == "uint8" else ALLOWED_LEVELS + rounding * 255
            results[f"{dtype} {layout}"] = {
                "greatest_levels": round(float(apart.max()), 6),
                "mean_levels": round(float(apart.mean()), 8),
                "equal_bits_fraction": round(float((found.cpu() == expected).double().mean()), 6),
                "first_call_seconds_with_compiling": round(seconds, 2),
            }
            passed = is_alike and bool(apart.max() <= allowed)
            findings.check(f"the chain in {dtype} {layout}", passed, results[f"{dtype} {layout}"])
    findings.keep("the whole chain, CPU beside CUDA, the same number type", results)


def _views(run: Run, findings: Findings) -> None:
    images = decoded(run, 3 if run.is_simulated else 8)
    big, small = (6, 4) if run.is_simulated else (224, 96)
    recipe = Recipe(
        views=(
            View(ops=(ops.ColorCast(), ops.Rotate(), ops.RandomResizedCrop(size=big), ops.Normalize())),
            View(ops=(ops.Flip(), ops.RandomResizedCrop(size=small, scale=(0.05, 0.3)), ops.Normalize())),
        )
    )
    made = plan(recipe, range(len(images)), sizes=[image.shape[:2] for image in images])
    expected = Augment(recipe, framework="torch", num_threads=1)(images, plan=made)
    found = OnDevice(run, images, recipe, form()).render(made)
    apart = [round(float(levels_apart(*pair, recipe).max()), 6) for pair in zip(found, expected, strict=True)]
    findings.keep("views, greatest difference in levels", apart)
    findings.check("two views of one photograph", len(apart) == 2 and max(apart) <= ALLOWED_LEVELS, apart)


def _channels(run: Run, findings: Findings) -> None:
    """Gray, RGB and RGBX in device memory give the same pixels."""
    recipe = _chain(run)
    images = [image[:, :, :3] for image in decoded(run, 2)]
    made = plan(recipe, range(2), sizes=[image.shape[:2] for image in images])
    spare = [np.concatenate([image, image[:, :, :1]], axis=2) for image in images]
    (rgb,), (rgbx,) = (OnDevice(run, given, recipe, form()).render(made) for given in (images, spare))
    findings.check("RGB and RGBX alike, bit by bit", torch.equal(rgb, rgbx))
    gray = [image[:, :, :1] for image in images]
    (one,), (three,) = (
        OnDevice(run, given, recipe, form()).render(made) for given in (gray, [np.repeat(g, 3, axis=2) for g in gray])
    )
    findings.check("gray and its three copies alike, bit by bit", torch.equal(one, three))


def packing(run: Run, findings: Findings) -> None:
    """What the cache's writer copies: every channel count, an odd number of pixels, nothing beyond the end."""
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
        packed = target.cpu().numpy()
        rgb = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[:, :, :3]
        is_right.append(
            bool(np.array_equal(packed[:-1, :3], rgb.reshape(-1, 3)) and (packed[:-1, 3] == 255).all())
            and bool((packed[-1] == 7).all())
        )
    findings.check("packing to RGBX for 1, 3 and 4 channels", all(is_right), is_right)


def _noise(sizes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    return [np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8) for number, size in enumerate(sizes)]


def _decoders(run: Run, findings: Findings) -> None:
    """Whole images by DALI and by our own decoder, both with smooth upsampling of the colours."""
    from augpipe.dali.decoder import DaliDecoder

    headers = [(data, probe(data, max_pixels=MAX_PIXELS)) for data in run.encoded()]
    taken = [(data, header) for data, header in headers if header.may_scale]
    found, expected = [], []
    decoder = DaliDecoder(DECODED_AT_ONCE, 4, None if run.is_simulated else 0, 1)
    for first in range(0, len(taken), DECODED_AT_ONCE):
        part = taken[first : first + DECODED_AT_ONCE]
        regions = np.array([(0, 0, header.width, header.height) for _, header in part], np.int32)
        decoder.submit([data for data, _ in part], regions, np.ones(len(part), np.bool_))
        result = decoder.collect()
        images = result.images or fetched(result.keep, len(part))
        found += [np.array(image) for image in images]
        expected += [decode(data, header)[:, :, :3].copy() for data, header in part]
        del result, images
    decoder.close()
    judge(findings, "all photographs", found, expected, is_simulated=run.is_simulated)


def _routes(run: Run, findings: Findings) -> None:
    """A batch by each way to it, beside the native loader's on the CPU; and out of each cache, bit by bit."""
    num = run.pick(32, 3)
    folder = run.many(num)
    options: dict[str, Any] = {"dtype": "float32", "shuffle": False}
    given = make_loader(run, folder, num, backend="native", **options)
    (expected,) = Loader(given.source, given.recipe, device="cpu", batch_size=num, shuffle=False)
    images = [torch.from_numpy(image[:, :, :3].copy()).to(run.device) for image in decoded(run, num)]
    augmented = Augment(given.recipe)(images, range(num))
    apart = levels_apart(augmented, expected.images, given.recipe)
    findings.check("Augment within 1 level of the loader on the CPU", float(apart.max()) <= 1.0, float(apart.max()))
    for backend in ("native", "dali"):
        for cache in ("off", "device", "host"):
            name = f"{backend}, cache {cache}"
            sized = {} if cache == "off" else {"cache_bytes": run.pick(1 << 29, 1 << 20)}
            with findings.attempt(name):
                loader = make_loader(run, folder, num, backend=backend, cache=cache, **sized, **options)
                (missed,) = loader
                _compare(name, missed, expected, findings, is_exact=backend == "native")
                if cache == "off":
                    continue
                loader.set_epoch(0)
                (hit,) = loader
                statistics = loader.cache_statistics
                counts = statistics and (statistics.hits, statistics.misses)
                findings.check(f"{name}: hits bit-equal to misses", torch.equal(hit.images, missed.images))
                findings.check(f"{name}: counts", counts == (num, num), counts)


def _compare(name: str, found: Batch, expected: Batch, findings: Findings, *, is_exact: bool) -> None:
    apart = levels_apart(found.images, expected.images, expected.plan.recipe)
    figures = {"mean": round(float(apart.mean()), 6), "greatest": round(float(apart.max()), 4)}
    findings.keep(f"{name} beside native on the CPU, levels", figures)
    alike = found.plan.rows.tobytes() == expected.plan.rows.tobytes()
    findings.check(f"{name}: plans and labels bit-equal", alike and torch.equal(found.labels.cpu(), expected.labels))
    # nvJPEG is another decoder, so single pixels may be further apart
    bound = figures["greatest"] <= 1.0 if is_exact else figures["mean"] < 1.0
    findings.check(f"{name}: within 1 level{'' if is_exact else ' in the mean'}", bound, figures)
