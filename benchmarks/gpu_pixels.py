"""Section of `gpu_check`: what loaders give on CPU and device: nvJPEG beside libjpeg, plans, and caches bit by bit."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_common import Findings, Run, levels_apart, spread
from gpu_loader import make_loader

from augpipe import Batch, Loader
from augpipe.dali.decoder import DaliDecoder
from augpipe.decoding import MAX_PIXELS, decode, probe

DECODED_AT_ONCE = 32


def run(run: Run, findings: Findings) -> None:
    with findings.attempt("nvJPEG beside libjpeg"):
        _decoders(run, findings)
    num = min(run.pick(250, 3), len(run.encoded()))
    folder = run.many(num)
    batch_size = run.pick(32, 2)
    options = {"dtype": "float32", "shuffle": False}
    reference = _passed(_on_cpu(make_loader(run, folder, batch_size, backend="native", **options)))
    for backend in ("native", "dali"):
        with findings.attempt(f"batches, {backend} on the device"):
            found = _passed(make_loader(run, folder, batch_size, backend=backend, **options))
            name = f"{backend} on the device beside native on the CPU"
            most, mean = _compare(name, found, reference, findings)
            if backend == "native":
                findings.check("native on the device within 1 level of native on the CPU", most <= 1.0, most)
            else:  # nvJPEG is another decoder, so single pixels may be further apart
                findings.check("dali on the device under 1 level from native on the CPU, mean", mean < 1.0, mean)
        for cache in ("device", "host"):
            with findings.attempt(f"cache {cache}, {backend}"):
                _cache(run, findings, folder, backend, cache)


def _decoders(run: Run, findings: Findings) -> None:
    """Whole photographs by DALI and by our own decoder, both with smooth upsampling of the colours."""
    taken = []
    for data in run.encoded():
        header = probe(data, max_pixels=MAX_PIXELS)
        if header.may_scale:
            taken.append((data, header))
    means, most, equal = [], [], 0
    decoder = DaliDecoder(DECODED_AT_ONCE, 4, None if run.is_simulated else 0, 1)
    for first in range(0, len(taken), DECODED_AT_ONCE):
        part = taken[first : first + DECODED_AT_ONCE]
        regions = np.array([(0, 0, header.width, header.height) for _, header in part], np.int32)
        decoder.submit([data for data, _ in part], regions)
        result = decoder.collect()
        images = result.images if run.is_simulated else _fetched(result.keep[0], len(part))
        for image, (data, header) in zip(images, part, strict=True):
            apart = np.abs(image.astype(np.int16) - decode(data, header)[:, :, :3])
            means.append(float(apart.mean()))
            most.append(int(apart.max()))
            equal += int(not apart.any())
        del result, images
    decoder.close()
    findings.keep(
        "nvJPEG beside libjpeg, levels",
        {
            "photographs": len(means),
            "mean_over_all": round(float(np.mean(means)), 5),
            "means_of_photographs": spread(means),
            "greatest": max(most),
            "greatest_of_photographs": spread(most),
            "photographs_bit_equal": equal,
        },
    )
    findings.check("mean absolute difference under 1 level on every photograph", max(means) < 1.0, max(means))


def _fetched(regions: Any, num: int) -> list[np.ndarray]:
    """DALI's tensors on the device as arrays."""
    on_cpu = regions.as_cpu()
    return [np.array(on_cpu[i]) for i in range(num)]


def _passed(loader: Loader) -> list[Batch]:
    """The next epoch's batches."""
    return list(loader)


def _on_cpu(loader: Loader) -> Loader:
    """The same loader, native on the CPU."""
    options = {"batch_size": loader.batch_size, "seed": loader.seed, "shuffle": loader.shuffle}
    return Loader(loader.source, loader.recipe, device="cpu", **options)


def _apart(found: list[Batch], reference: list[Batch]) -> tuple[float, float]:
    """Greatest and mean difference of all batches, in levels."""
    apart = [
        levels_apart(batch.images, expected.images, expected.plan.recipe)
        for batch, expected in zip(found, reference, strict=True)
    ]
    return max(float(part.max()) for part in apart), float(np.mean([float(part.mean()) for part in apart]))


def _compare(name: str, found: list[Batch], reference: list[Batch], findings: Findings) -> tuple[float, float]:
    most, mean = _apart(found, reference)
    findings.keep(f"{name}, levels", {"mean": round(mean, 6), "greatest": round(most, 4)})
    plans_equal = all(
        np.array_equal(one.view(np.uint8), other.view(np.uint8))
        for batch, expected in zip(found, reference, strict=True)
        for one, other in zip(batch.plan.views, expected.plan.views, strict=True)
    )
    labels_equal = all(
        torch.equal(batch.labels.cpu(), expected.labels) for batch, expected in zip(found, reference, strict=True)
    )
    findings.check(f"{name}: plans and labels bit-equal", plans_equal and labels_equal)
    return most, mean


def _cache(run: Run, findings: Findings, folder: Path, backend: str, cache: str) -> None:
    """The same epoch twice: decoded first, then out of the cache."""
    options = {"backend": backend, "cache": cache, "cache_bytes": run.pick(2 << 30, 1 << 20)}
    loader = make_loader(run, folder, run.pick(32, 2), **options)
    missed = _passed(loader)
    loader.set_epoch(0)
    hit = _passed(loader)
    alike = [torch.equal(one.images, other.images) for one, other in zip(missed, hit, strict=True)]
    statistics = loader.cache_statistics
    assert statistics is not None
    findings.keep(f"cache {cache}, {backend}", str(statistics))
    findings.check(f"cache {cache}, {backend}: hits bit-equal to misses", all(alike), alike if not all(alike) else None)
    num = sum(len(batch) for batch in missed)
    hits, misses = statistics.hits, statistics.misses
    findings.check(f"cache {cache}, {backend}: counts", hits + misses == 2 * num and hits >= num, (hits, misses))
