"""Recipes in the text of scripts: read as the library would build them, never executed, refused where a run decides."""

from typing import Any

import pytest

from augpipe import Recipe, importers, ops
from tests.augpipe.importers.recipes import SEEN, published

NORMALIZE = ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
SCRIPT = """
import albumentations as A
from albumentations.pytorch import ToTensorV2
import cv2

class CFG:
    size = 3 * 32
    mean = [0.5, 0.4, 0.3]

normalize = [A.Normalize(mean=CFG.mean, std=[0.2] * 3), ToTensorV2()]
steps = [A.HorizontalFlip()]
steps.append(A.VerticalFlip())

def train(size=CFG.size, p=0.25):
    fill = cv2.BORDER_REPLICATE
    return A.Compose([A.RandomCrop(size, size), A.Rotate(limit=20, border_mode=fill, p=p), *normalize])

def valid(size):
    t = A.Compose([A.CenterCrop(size, size)])
    return t

def either(flip=True):
    if flip:
        return A.Compose([A.HorizontalFlip()])
    return A.Compose([A.VerticalFlip()])

small = A.Compose([A.CenterCrop(height=8, width=8)] + normalize)
built = train()
changed = A.Compose(steps)
"""


REFUSED = (
    "known only when|is made of itself|is not a transform of a library|stands among transforms|cannot be computed|"
    "nests expressions|not Python|has no argument|needs width|not a call|not of torchvision|holds 0 recipes"
)


def test_a_call_alone_needs_no_library() -> None:
    text = """transforms.Compose([
        transforms.RandomResizedCrop(96, interpolation=InterpolationMode.BILINEAR),
        transforms.RandomApply(torch.nn.ModuleList([transforms.ColorJitter(0.4, hue=0.1)]), p=0.8),
        transforms.RandomRotation(10, resample=Image.BILINEAR),
        transforms.ToTensor(),
        transforms.Normalize(mean=np.array([0.5, 0.4, 0.3]), std=(0.2,) * 3),
    ])"""
    found = importers.from_text(text)
    jitter = ops.ColorJitter(
        brightness=(0.6, 1.4), contrast=0, saturation=0, hue=(-0.1, 0.1), about="mean", space="hsv"
    )
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(96, 96)),
        ops.AllOf(ops=[jitter], p=0.8),
        ops.Rotate(max_deg=(-10, 10), step=None),
        NORMALIZE,
    )
    assert (found.rows[0].name, found.rows[0].verdict) == ("RandomResizedCrop", "exact")


def test_timm_is_read_by_its_arguments() -> None:
    text = "create_transform(96, is_training=True, color_jitter=None, mean=IMAGENET_INCEPTION_MEAN)"
    with pytest.raises(ValueError, match="IMAGENET_INCEPTION_MEAN"):
        importers.from_text(text)
    text = "from timm.data import create_transform, IMAGENET_INCEPTION_MEAN\ntrain = " + text
    assert (
        importers.from_text(text).recipe.ops
        == importers.from_timm(input_size=96, is_training=True, color_jitter=None, mean=(0.5, 0.5, 0.5)).recipe.ops
    )


def test_a_function_is_read_at_its_defaults_which_are_told() -> None:
    found = importers.from_text(SCRIPT, "train")
    assert found.recipe.ops == (
        ops.RandomCrop(size=(96, 96)),
        ops.Rotate(max_deg=(-20, 20), step=None, p=0.25),
        NORMALIZE,
    )
    assert found.recipe.border == "edge"
    assert {
        "read with size=CFG.size, as train has it by default.",
        "read with p=0.25, as train has it by default.",
    } < set(found.notes)
    assert importers.from_text(SCRIPT, "built").recipe == found.recipe
    assert Recipe.from_text(SCRIPT, "small").ops[1:] == (NORMALIZE,)


@pytest.mark.parametrize("name", ["valid", "either", "changed", "missing", None])
def test_what_a_run_decides_is_refused(name: str | None) -> None:
    with pytest.raises(ValueError, match="known only when|returns in 2 places|assigns no missing|Name one of them"):
        importers.from_text(SCRIPT, name)


@pytest.mark.parametrize(
    "text",
    [
        "A.Compose([A.Lambda(image=lambda image, **k: image)])",
        "A.Compose([__import__('os').system('true')])",
        "A.Compose([A.Resize(cfg['size'], 3)])",
        "A.Compose([A.Resize(size, size)])",
        "size = 3\nif size:\n    size = 4\nt = A.Compose([A.Resize(size, size)])",
        "size = 3\ndef f():\n    global size\n    size = 4\nt = A.Compose([A.Resize(size, size)])",
        "a = b\nb = a\nt = A.Compose([a])",
        "A.Compose([A.Resize(*[1] * 1000000000)])",
        "t = A.Compose([" + "+".join(["1"] * 5000) + "])",
        "(" * 500,
        "class Resize: pass\nt = A.Compose([Resize(1, 2)])",
        "from mine import Resize\nt = A.Compose([Resize(1, 2)])",
        "A.Compose([transforms.Resize(3)])",
        "A.Compose([A.HorizontalFlip(probability=0.5)])",
        "A.Compose([A.Resize(3)])",
        "K.AugmentationSequential(K.RandomHorizontalFlip())",
        "print(3)",
        "3",
        "",
    ],
)
def test_what_is_more_than_calls_and_literals_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        importers.from_text(text)


def test_the_version_of_albumentations_is_told_by_the_arguments() -> None:
    old = importers.from_text("A.Compose([A.RandomResizedCrop(96, 80), A.HorizontalFlip()])")
    new = importers.from_text("A.Compose([A.RandomResizedCrop((96, 80)), A.HorizontalFlip()])")
    assert old.recipe.ops == new.recipe.ops
    assert "read as albumentations 1." in old.notes and "read as albumentations 2." in new.notes
    either = "A.Compose([A.RandomRotate90(), A.HueSaturationValue()])"
    assert importers.from_text(either, version="1").recipe.ops[0] == ops.QuarterTurn(p=0.5)
    assert importers.from_text(either).recipe.ops[0] == ops.QuarterTurn(p=1.0)
    assert "read as albumentations 2, though it also fits version 1." in importers.from_text(either).notes
    for version in ("3", "1.3"):
        with pytest.raises(ValueError, match="must be '1' or '2'"):
            importers.from_text(either, version=version)


def test_what_cannot_be_mapped_is_left_out_where_that_is_asked_for() -> None:
    text = "A.Compose([A.HorizontalFlip(), A.RandomFog(p=0.1), A.Normalize()])"
    with pytest.raises(ValueError, match=r"RandomFog: is not known here\nLeave them out by strict=False"):
        importers.from_text(text)
    found = importers.from_text(text, strict=False)
    assert found.recipe.ops == (ops.Flip(), ops.Normalize())
    assert [row.verdict for row in found.rows] == ["exact", "left out", "exact"]
    assert "RandomFog: is not known here: left out." in found.notes
    assert found.table().text().splitlines()[2].split("   ")[0].strip() == "RandomFog"


def test_an_object_is_read_as_its_library_says() -> None:
    class Compose:
        def to_dict(self) -> dict[str, Any]:
            return {"__class_fullname__": "Compose", "p": 1.0, "transforms": [{"__class_fullname__": "NoOp", "p": 1.0}]}

    Compose.__module__ = "albumentations.core.composition"
    assert importers.from_object(Compose()).recipe.ops == (ops.Identity(),)
    with pytest.raises(ValueError, match="int of builtins is not a transform of torchvision"):
        importers.from_object(3)


def test_most_published_recipes_are_read_from_their_text() -> None:
    read = dict.fromkeys(("torchvision", "albumentations", "timm"), 0)
    for entry in published(SEEN):
        if entry.library in read:
            try:
                importers.from_text(entry.recipe)
            except ValueError:
                continue
            read[entry.library] += 1
    assert read["torchvision"] >= 74 and read["albumentations"] >= 41 and read["timm"] == 7
