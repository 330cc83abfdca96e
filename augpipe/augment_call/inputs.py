"""The kinds of images that a caller hands to `Augment`: files, arrays, tensors, PIL images, and what speaks DLPack."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.pil_pixels import ImageInPieces, is_in_pieces, pixels_of
from augpipe.decoding import probe
from augpipe.decoding.header import tell_of_lost_bits
from augpipe.decoding.pillow import SIXTEEN_BIT_MODES, decode_stored
from augpipe.errors import SampleError
from augpipe.native.cpu_render import check_image
from augpipe.pipeline.stored_image import StoredImage
from augpipe.planning.output_format import import_torch
from augpipe.sources.protocol import Pixels
from augpipe.validation.log_once import log_once

DEVICE_TYPES: tuple[str, ...] = ("cuda",)
"""Where a tensor lies that is augmented there; tests of simulated kernels put "cpu" here."""

_CHANNELS = (1, 3, 4)

_GRAY = ("1", "L", "P", "I", "I;16")
"""Modes of PIL images that label maps have."""

_PATHS = (str, os.PathLike)
_FILES = (bytes, bytearray, memoryview, *_PATHS)

# DLPack's kDLCPU, kDLCUDAHost and kDLCUDAManaged, which numpy reads, and kDLCUDA
DLPACK_ON_HOST = (1, 3, 13)
DLPACK_ON_CUDA = 2


@dataclass(frozen=True, kw_only=True)
class Images:
    """One call's images, all on the host or all on one device."""

    items: list[Any]
    """On the host, `StoredImage`s or `ImageInPieces`; on a device, tensors (H, W) or (H, W, C) yet to be checked."""
    names: list[str]
    """Of each item on the host: its path, or `image 3`."""
    device: Any
    """The `torch.device`; None for the host."""
    is_single: bool
    """Whether the caller gave one image and gets one image."""
    is_whole: bool
    """Whether the only item is a tensor (B, H, W, C) of all images; on the host they are taken apart."""
    are_tensors: bool
    """Whether the first is a tensor, or lies on a device."""
    are_borrowed: bool
    """Whether another library owns memory on the device, so that torch's allocator cannot look after it."""


def images_of(images: Any, max_pixels: int) -> Images:
    """See what the caller gave; files are read, and not decoded yet.

    Raises:
        ValueError: one of them is not an image, or they do not lie in one place; the message names it.
    """
    is_whole = is_single = False
    if isinstance(images, list | tuple):
        given = [as_known(image, position) for position, image in enumerate(images)]
        are_borrowed = any(
            is_tensor(known) and not is_tensor(image) for known, image in zip(given, images, strict=True)
        )
        if len(given) == 2:
            _tell_of_a_mask(*given)
    else:
        known = as_known(images, 0)
        are_borrowed = is_tensor(known) and not is_tensor(images)
        is_single = getattr(known, "ndim", 3) != 4
        is_whole = not is_single and is_on_device(known)
        given = [known] if is_single or is_whole else list(known)
    are_tensors = bool(given) and is_tensor(given[0])
    device = _common_device(given) if any(is_on_device(image) for image in given) else None
    names = [_name(image, position) for position, image in enumerate(given)]
    if device is None:
        given = [_stored(image, position, names[position], max_pixels) for position, image in enumerate(given)]
    return Images(
        items=given,
        names=names,
        device=device,
        is_single=is_single,
        is_whole=is_whole,
        are_tensors=are_tensors,
        are_borrowed=are_borrowed,
    )


def _tell_of_a_mask(first: Any, second: Any) -> None:
    """Say that two images are augmented apart, where the second looks like a label map of the first."""
    sizes = [one.size if _is_image(one) else getattr(one, "shape", ())[1::-1] for one in (first, second)]
    grays = [one.mode in _GRAY if _is_image(one) else getattr(one, "ndim", 0) == 2 for one in (first, second)]
    if sizes[0] == sizes[1] and grays == [False, True]:
        log_once(
            logging.WARNING,
            "two images of one size were given, and the second is gray: they are two images, with draws of their own. "
            "Is it the mask of the first? Then write augment(image=..., mask=...), which turns both alike",
        )


def is_tensor(image: Any) -> bool:
    """Whether it is a torch tensor; torch itself is not imported for anything else."""
    return _is_tensor_type(type(image))  # type: ignore[arg-type]  # mypy takes no class for hashable


@cache
def _is_tensor_type(kind: type) -> bool:
    # by inheritance too, as torchvision's tv_tensors are
    return any(f"{base.__module__}.{base.__qualname__}" == "torch.Tensor" for base in kind.__mro__)


def host_array(tensor: Any, name: str) -> npt.NDArray[Any]:
    """An array of a target's tensor on any device; of bfloat16 in float32, as numpy does not have it.

    Raises:
        ValueError: numpy does not have its type or layout; says which.
    """
    known = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    try:
        array: npt.NDArray[Any] = known.numpy(force=True)
    except (TypeError, NotImplementedError):
        raise ValueError(
            f"{name} is a tensor of the type {tensor.dtype} and the layout {tensor.layout} on {tensor.device}, which "
            "numpy cannot read. Give a dense one, of whole numbers or of float32."
        ) from None
    return array


def is_on_device(image: Any) -> bool:
    """Whether it is a tensor that is augmented where it lies."""
    return is_tensor(image) and image.device.type in DEVICE_TYPES


def as_known(image: Any, position: int) -> Any:
    """An array for what speaks DLPack on the host, a tensor for what lies on a CUDA device, all else as it is.

    Tensors have their channels last then. Nothing is copied.
    What is made on another stream is waited for by torch's current stream, not by the host.
    """
    if is_tensor(image):
        return _with_channels_last(image, position)
    if isinstance(image, np.ndarray) or _is_file(image) or _is_image(image):
        return image
    if callable(getattr(image, "read", None)):
        return _read(image, position)
    if hasattr(image, "__dlpack__") and hasattr(image, "__dlpack_device__"):
        kind, index = image.__dlpack_device__()
        if kind in DLPACK_ON_HOST:
            return np.from_dlpack(image)
        if kind == DLPACK_ON_CUDA:
            return _torch_with_cuda(index).from_dlpack(image)
        raise ValueError(
            f"image {position}, a {type(image).__name__}, lies on a device of DLPack's type {int(kind)} (index "
            f"{index}), and must be on the CPU or a CUDA device. Move it there first."
        )
    if hasattr(image, "__cuda_array_interface__"):
        return _from_cuda_array(image)
    return image


def _read(file: Any, position: int) -> bytes | bytearray | memoryview:
    """What an open file holds from where it stands."""
    content = file.read()
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ValueError(f'image {position} is a {type(file).__name__} that gives text. Open it in binary mode, "rb".')
    return content


def _with_channels_last(tensor: Any, position: int) -> Any:
    """A view (H, W, C) or (B, H, W, C) of a tensor, which may have its channels first; any other shape as it is."""
    if tensor.ndim not in (3, 4) or tensor.shape[-3] not in _CHANNELS:
        return tensor
    if tensor.shape[-1] not in _CHANNELS:
        return tensor.movedim(-3, -1)
    if tensor.shape[-3] == 3:
        raise ValueError(
            f"image {position}: the tensor has shape {tuple(tensor.shape)}, which may have its channels first or last. "
            "Give (H, W, C) as an array, tensor.numpy(), and (C, H, W) as tensor.permute(1, 2, 0).numpy()."
        )
    return tensor


def _is_file(image: Any) -> bool:
    return not isinstance(image, np.ndarray) and isinstance(image, _FILES)


def _name(image: Any, position: int) -> str:
    return str(image) if _is_file(image) and isinstance(image, _PATHS) else f"image {position}"


def _stored(image: Any, position: int, name: str, max_pixels: int) -> StoredImage | ImageInPieces:
    """An encoded file that was read, or an array."""
    if not _is_file(image):
        if _is_image(image) and image.mode in ("RGB", "RGBX") and is_in_pieces(image):
            return ImageInPieces(image)
        array = as_array(image, position)
        size = array.shape[0], array.shape[1]
        return StoredImage(sample_id=position, content=array, size=size, may_scale=False, header=None)
    try:
        if isinstance(image, _PATHS):
            with open(image, "rb") as file:
                content = file.read()
        else:
            content = bytes(image)
        header = probe(content, max_pixels=max_pixels)
        if header.loses_bits:
            tell_of_lost_bits(name)
    except (ValueError, OSError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise SampleError(name, reason) from problem
    size = header.height, header.width
    return StoredImage(sample_id=position, content=content, size=size, may_scale=header.may_scale, header=header)


def as_array(image: Any, position: int) -> Pixels:
    """A uint8 array (H, W) or (H, W, C) of an array, CPU tensor or PIL image, copied only where it must be."""
    array: npt.NDArray[Any]
    if is_tensor(image):
        if image.device.type != "cpu":
            raise ValueError(
                f"image {position} lies on {image.device}, and must be on the CPU or a CUDA device. Call .cpu() first."
            )
        check_dtype(image, position)
        array = image.numpy()
    elif isinstance(image, np.ndarray):
        array = image
    elif _is_image(image):
        array = pixels_of(image) if image.mode in ("L", "RGB", "RGBX") else _decoded(image, position)
    else:
        raise ValueError(
            f"image {position} is a {type(image).__name__}. Give an (H, W, C) uint8 array, an (H, W, C) or (C, H, W) "
            "uint8 tensor, a PIL image, or a file: its path, its bytes, or the file opened in binary mode."
        )
    check_array(array, position)
    return array


def check_dtype(tensor: Any, position: int) -> None:
    """Raise ValueError unless the tensor is uint8; some of torch's types have no numpy type to be told by later."""
    if str(tensor.dtype) != "torch.uint8":
        raise ValueError(_not_uint8(position, "tensor", tensor))


def check_array(array: npt.NDArray[Any], position: int) -> None:
    """Raise ValueError, with the image's position, unless the array is an image."""
    if array.dtype != np.uint8:
        raise ValueError(_not_uint8(position, "array", array))
    try:
        check_image(array)
    except ValueError as error:
        raise ValueError(f"image {position}: {error}.") from None


def _not_uint8(position: int, kind: str, image: Any) -> str:
    is_whole = "int" in str(image.dtype)
    remedy = f"{'Divide values of 16 bits by 257' if is_whole else 'Multiply values of 0 to 1 by 255'}, and round them."
    return f"image {position}: the {kind} is {image.dtype}, and must be uint8 with values in 0..255. {remedy}"


def _is_image(image: Any) -> bool:
    return hasattr(image, "convert") and hasattr(image, "mode")


def _decoded(image: Any, position: int) -> Pixels:
    try:
        pixels = decode_stored(image.copy())  # it drops the image's transparency
    except ValueError as error:
        raise ValueError(f"image {position}: {error}.") from error
    if image.mode in SIXTEEN_BIT_MODES:
        tell_of_lost_bits(f"image {position}")
    return pixels


def _from_cuda_array(image: Any) -> Any:
    torch, described = _torch_with_cuda(0), image.__cuda_array_interface__
    # "cuda" would be the current device, to which torch copies what lies elsewhere
    device = _device_of(torch, described["data"][0])
    stream = described.get("stream")
    if stream is not None:  # torch does not look at it
        made_on = torch.cuda.ExternalStream(stream, device=device)
        torch.cuda.current_stream(device).wait_stream(made_on)
    return torch.as_tensor(image, device=device)


def _device_of(torch: Any, address: int) -> Any:
    """Where memory lies, which `__cuda_array_interface__` does not say; the current device where there is none."""
    from cuda.bindings import driver  # of numba-cuda

    error, index = driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
    return torch.device("cuda", index if error == driver.CUresult.CUDA_SUCCESS else torch.cuda.current_device())


def _torch_with_cuda(index: int) -> Any:
    """The torch module, able to use the device; a clear error where it is not."""
    torch = import_torch()
    if not torch.cuda.is_available():
        from augpipe.cuda.device_name import require_device

        require_device(f"cuda:{index}")
    return torch


def _common_device(given: Sequence[Any]) -> Any:
    """The one device that all lie on."""
    places = [image.device if is_tensor(image) else "the CPU" for image in given]
    for position, place in enumerate(places):
        if place != places[0]:
            raise ValueError(
                f"image {position} lies on {place} and image 0 on {places[0]}. One call takes images of one device: "
                "move them there first, with .to(device)."
            )
    return places[0]
