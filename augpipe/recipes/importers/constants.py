"""What names of libraries stand for in the text of a script."""

from collections.abc import Mapping
from typing import Any

USUAL_NAMES = {
    "A": "albumentations",
    "alb": "albumentations",
    "albu": "albumentations",
    "ToTensorV2": "albumentations.pytorch.ToTensorV2",
    "T": "torchvision.transforms",
    "transforms": "torchvision.transforms",
    "v2": "torchvision.transforms.v2",
    "InterpolationMode": "torchvision.transforms.InterpolationMode",
    "K": "kornia.augmentation",
    "KA": "kornia.augmentation",
    "create_transform": "timm.data.create_transform",
    "Image": "PIL.Image",
    "nn": "torch.nn",
    "np": "numpy",
    "PIL": "PIL",
    "tv_tensors": "torchvision.tv_tensors",
}
"""What a name stands for in a text that does not import it."""
OPENCV = {
    **{f"INTER_{name}": nth for nth, name in enumerate(("NEAREST", "LINEAR", "CUBIC", "AREA", "LANCZOS4"))},
    **{f"BORDER_{name}": nth for nth, name in enumerate(("CONSTANT", "REPLICATE", "REFLECT", "WRAP", "REFLECT_101"))},
    "BORDER_DEFAULT": 4,
}
PILLOW = {name: nth for nth, name in enumerate(("NEAREST", "LANCZOS", "BILINEAR", "BICUBIC", "BOX", "HAMMING"))}
TIMM = {
    "IMAGENET_DEFAULT_MEAN": (0.485, 0.456, 0.406),
    "IMAGENET_DEFAULT_STD": (0.229, 0.224, 0.225),
    "IMAGENET_INCEPTION_MEAN": (0.5, 0.5, 0.5),
    "IMAGENET_INCEPTION_STD": (0.5, 0.5, 0.5),
    "OPENAI_CLIP_MEAN": (0.48145466, 0.4578275, 0.40821073),
    "OPENAI_CLIP_STD": (0.26862954, 0.26130258, 0.27577711),
}
CONSTANTS: dict[str, Mapping[str, Any]] = {"cv2": OPENCV, "PIL": PILLOW, "timm": TIMM}
"""A library -> the values of its constants."""
WRAPPERS = (
    *("torch.tensor", "torch.Tensor", "torch.nn.ModuleList", "numpy.array", "numpy.asarray"),
    *("torchvision.transforms.AutoAugmentPolicy", "torchvision.transforms.v2.AutoAugmentPolicy"),
)
"""Functions whose result is their first argument."""
MODULES = ("albumentations", "cv2", "kornia", "timm", "torch", "torchvision")
"""Packages that a text may name without importing them."""
LIBRARIES = (*MODULES, "PIL", "numpy")
"""Packages whose constants are known, or passed on by their names."""


def constant(path: str) -> Any:
    """The value of a library's constant; of an enumeration's its name in lower case."""
    library, _, name = path.partition(".")
    last = name.rpartition(".")[2]
    return CONSTANTS.get(library, {}).get(last, last.lower())
