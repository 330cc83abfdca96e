"""Section of `check`: what it runs on, and what would make other figures meaningless: `check.DEPENDENTS`."""

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import augpipe
from augpipe import Augment, Loader, plan, recipes
from augpipe.cuda.device_name import require_device
from augpipe.cuda.facts import THIS_MACHINE
from augpipe.cuda.versions import installed, written
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.native.workers import num_usable_cores
from benchmarks.gpu.common import NO_DEVICE, Findings, OnDevice, Run, decoded, form, pixels_agree, synchronize
from benchmarks.harness import machine

PACKAGES = (
    *("torch", "numba", "numba-cuda", "llvmlite", "cuda-bindings", "cuda-core", "triton", "torchvision", "kornia"),
    *("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-nvjpeg", "nvidia-nvimgcodec-cu13", "simplejpeg", "numpy"),
    *("nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "pydantic", "pillow"),
)
DECODED_AT_ONCE = 32
SMI_FIELDS = (
    "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,clocks.sm,clocks.mem,power.limit,temperature.gpu"
)


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """In the order in which each needs what the one before it shows."""
    return {
        "device": partial(_device, run),
        "versions": partial(_versions, run),
        "NVVM": _nvvm,
        "one kernel, two images": partial(_two_images, run),
        "the loaded nvJPEG": partial(nvjpeg, run, run.pick(32, 2)),
        "a batch on the CPU": partial(_batch_on_cpu, run),
    }


def _device(run: Run, findings: Findings) -> None:
    findings.keep("augpipe_device", str(require_device("cuda")))
    if run.is_simulated:
        findings.leave_out("properties of the device", NO_DEVICE)
        return
    properties, (free, total) = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info()
    found = {"name": properties.name, "capability": f"{properties.major}.{properties.minor}", "free_bytes": free}
    found |= {"multiprocessors": properties.multi_processor_count, "total_bytes": total}
    findings.keep("device", found | {"devices_seen": torch.cuda.device_count()})


def _versions(run: Run, findings: Findings) -> None:
    own = {"augpipe": augpipe.__version__, "from": augpipe.__file__, "usable_cores": num_usable_cores()}
    findings.keep("machine", machine() | own | {"system": platform.platform(), "torch_cuda": torch.version.cuda})
    findings.keep("packages", {name: found for name in PACKAGES if (found := installed(name)) is not None})
    if run.is_simulated:
        return
    findings.keep("driver_cuda", written(THIS_MACHINE.driver()))
    with findings.attempt("nvidia-smi", is_others=True):
        command = ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader", "-i", "0"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
        findings.keep("nvidia_smi", dict(zip(SMI_FIELDS.split(","), map(str.strip, said.split(",")), strict=True)))


def _nvvm(findings: Findings) -> None:
    """Where the compiler is, by its own word."""
    from cuda.pathfinder import load_nvidia_dynamic_lib
    from numba import cuda

    is_numba_cuda = "numba_cuda" in cuda.__file__
    findings.check("numba.cuda is numba-cuda's, not the one that numba brings", is_numba_cuda, cuda.__file__)
    version, toolkit = THIS_MACHINE.nvvm(), THIS_MACHINE.toolkit()
    path = load_nvidia_dynamic_lib("nvvm").abs_path if version else None
    findings.keep("NVVM", {"path": path, "reads_ir": version and written(version), "toolkit": str(toolkit)})
    findings.check("NVVM is there", version is not None, "numba-cuda finds no libnvvm: augpipe doctor says what helps")


def _two_images(run: Run, findings: Findings) -> None:
    """The first kernel of the process, compiled or loaded, beside the CPU's loop."""
    images, recipe = decoded(run, 2), run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
    made = plan(recipe, range(2), sizes=[image.shape[:2] for image in images])
    expected = Augment(recipe, framework="torch", num_threads=1)(images, plan=made)
    begin = time.perf_counter()
    (found,) = OnDevice(run, images, recipe, form()).render(made)
    synchronize()
    findings.keep("seconds of the first launch, compiling included", round(time.perf_counter() - begin, 2))
    findings.check("two images within 1 level of the CPU", *pixels_agree(found, expected, made.recipe))


def _batch_on_cpu(run: Run, findings: Findings) -> None:
    """From files: where nothing was kept by earlier processes, all of the CPU's kernels are compiled here."""
    recipe = run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
    begin = time.perf_counter()
    (batch,) = Loader(run.many(4), recipe, device="cpu", batch_size=4)
    findings.keep("seconds of the CPU's first batch, compiling included", round(time.perf_counter() - begin, 2))
    findings.check("the CPU's first batch holds images", float(batch.images.std()) > 0.1)


def nvjpeg(run: Run, num: int | None, findings: Findings) -> None:
    """Which one decodes, and that it does, `num` photographs or all, and regions of them: where libjpeg-turbo stands
    in for it, its pixels come out bit by bit."""
    from augpipe.dali.decoder import DaliDecoder
    from augpipe.dali.nvjpeg import loaded_nvjpeg

    encoded = [data for data in run.encoded() if probe(data, max_pixels=MAX_PIXELS).may_scale][:num]
    headers = [probe(data, max_pixels=MAX_PIXELS) for data in encoded]
    full = np.array([(0, 0, header.width, header.height) for header in headers], np.int32)
    inner = full.copy()
    inner[:, :2] = full[:, 2:] // 8
    decoder = DaliDecoder(DECODED_AT_ONCE, 4, None if run.is_simulated else 0, 1)
    loaded = loaded_nvjpeg()
    findings.keep("nvJPEG", loaded and {"path": loaded.path, "version": written(loaded.version)})
    whole = [decode(data, header)[:, :, :3] for data, header in zip(encoded, headers, strict=True)]
    parts = [image[y0:y1, x0:x1] for image, (x0, y0, x1, y1) in zip(whole, inner.tolist(), strict=True)]
    if not decoder.takes_regions:
        findings.leave_out("regions by nvJPEG", str(decoder.complaint))
    wanted = [("whole photographs", full, whole), ("regions", inner, parts)]
    for name, regions, expected in wanted if decoder.takes_regions else wanted[:1]:
        found = _decoded_by(decoder, encoded, regions, (regions == full).all(axis=1))
        judge(findings, name, found, expected, is_simulated=run.is_simulated)
    decoder.close()


def _decoded_by(decoder: Any, encoded: list[bytes], regions: np.ndarray, are_whole: np.ndarray) -> list[np.ndarray]:
    """What a `DaliDecoder` makes of photographs, on the host."""
    found: list[np.ndarray] = []
    for first in range(0, len(encoded), DECODED_AT_ONCE):
        some = slice(first, first + DECODED_AT_ONCE)
        decoder.submit(encoded[some], regions[some], are_whole[some])
        result = decoder.collect()
        on_cpu = result.images or result.keep[0].as_cpu()
        found += [np.array(on_cpu[place]) for place in range(len(encoded[some]))]
    return found


def judge(
    findings: Findings, name: str, found: Sequence[Any], expected: Sequence[Any], *, is_simulated: bool = False
) -> None:
    """Keep how far decoded images are from libjpeg's; where there is no difference at all, it was libjpeg."""
    apart = [np.abs(one.astype(np.int16) - other) for one, other in zip(found, expected, strict=True)]
    means = [float(one.mean()) for one in apart]
    num_equal = sum(not one.any() for one in apart)
    figures = {"mean": round(float(np.mean(means)), 5), "greatest": max(int(one.max()) for one in apart)}
    findings.keep(f"{name} beside libjpeg, levels", figures | {"images": len(apart), "equal": num_equal})
    findings.check(f"{name}: under 1 level from libjpeg in the mean, on every one", max(means) < 1.0, max(means))
    if is_simulated:
        findings.leave_out(f"{name}: nvJPEG decoded", "DALI decodes on the CPU here")
        return
    detail = f"{num_equal} of {len(apart)} equal libjpeg's bit for bit: DALI decodes on the CPU where all do"
    findings.check(f"{name}: nvJPEG decoded", num_equal < len(apart), detail)
