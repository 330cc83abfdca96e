"""Another library's own transforms as functions of arrays: what they are given, and what is made of what they give."""

import enum
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from augpipe.recipes.importers import theirs

IMAGE = np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3)


class Kept:
    """A transform of a library that need not be there."""

    __module__ = "albumentations"

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named

    def __call__(self, image: Any) -> Any:
        return {"image": np.asarray(image, np.float32)}


def test_floats_are_parts_of_white_where_the_recipe_normalises_and_levels_where_not() -> None:
    parts = type("Parts", (Kept,), {"__call__": lambda self, image: {"image": image / np.float32(255.0)}})
    np.testing.assert_allclose(theirs.as_transform(parts(), is_normalized=True)(IMAGE), IMAGE, atol=1e-3)
    np.testing.assert_array_equal(theirs.as_transform(Kept(), is_normalized=False)(IMAGE), IMAGE)


@pytest.mark.parametrize("is_held", [False, True])
def test_kornia_is_given_parts_of_white_and_gives_them(is_held: bool) -> None:
    torch = pytest.importorskip("torch")

    class Same(torch.nn.Module):  # type: ignore[misc, name-defined]
        __module__ = "kornia.augmentation"

        def forward(self, images: Any) -> Any:
            return images

    made = torch.nn.Sequential(Same()) if is_held else Same()
    for is_normalized in (False, True):
        shown = theirs.as_transform(made, is_normalized=is_normalized)(IMAGE)
        np.testing.assert_allclose(shown, IMAGE, atol=1e-3)


def test_an_interpolation_without_its_argument_s_name_is_torchvision_s_member(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = enum.Enum("InterpolationMode", {"BICUBIC": "bicubic"})
    fake = types.SimpleNamespace(Resize=Kept, Pad=Kept, InterpolationMode=modes)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", fake)  # type: ignore[arg-type]
    made = theirs.of_text("T.Resize(8, T.InterpolationMode.BICUBIC)")
    assert made.given == (8, modes("bicubic"))
    assert theirs.of_text("T.Pad(8, 0, 'reflect')").given == (8, 0, "reflect")


def test_what_stands_for_a_member_or_a_function_is_that(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = enum.Enum("AutoAugmentPolicy", {"CIFAR10": "cifar10"})
    modes = enum.Enum("InterpolationMode", {"BICUBIC": "bicubic"})
    fake = types.ModuleType("torchvision.transforms")
    vars(fake).update(AutoAugment=Kept, Lambda=Kept, InterpolationMode=modes, AutoAugmentPolicy=policies)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    assert theirs.of_text("T.AutoAugment(T.AutoAugmentPolicy.CIFAR10)").given == (policies("cifar10"),)
    assert theirs.of_text("T.AutoAugment(policy='cifar10')").named == {"policy": policies("cifar10")}
    line = theirs.of_text("T.Lambda(lambda x: 2 * x - 1)").named["lambd"]
    np.testing.assert_array_equal(line(np.array([0.0, 0.5, 1.0])), [-1.0, 0.0, 1.0])
    same = theirs.of_text("T.Lambda(lambda x: x)").named["lambd"]
    assert same(fake) is fake
    grey = Image.new("L", (2, 3), 7)
    rgb = theirs.of_text("T.Lambda(lambda x: x.convert('RGB'))").named["lambd"]
    assert rgb(grey).mode == "RGB"
    tensor = pytest.importorskip("torch").ones(1, 2, 3)
    three = theirs.of_text("T.Lambda(lambda x: x.repeat(3, 1, 1))").named["lambd"]
    assert three(tensor).shape == (3, 2, 3)


def test_pillow_s_images_are_given_to_torchvision_and_other_classes_are_refused() -> None:
    mirrored = type(
        "Mirror", (), {"__module__": "torchvision.transforms", "__call__": lambda self, x: ImageOps.mirror(x)}
    )
    np.testing.assert_array_equal(theirs.as_transform(mirrored(), is_normalized=False)(IMAGE), IMAGE[:, ::-1])
    with pytest.raises(ValueError, match="Kept of mine is not a transform that can be compared"):
        theirs.as_transform(type("Kept", (), {"__module__": "mine"})(), is_normalized=False)


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("T.Compose([Mirror(), Compose([Mirror()])])", "torchvision.transforms"),
        ("A.Compose([Mirror(), Compose([Mirror()])])", "albumentations"),
        ("[T.Mirror(), Mirror()]", "torchvision.transforms"),
        ("[A.Mirror(), Mirror()]", "albumentations"),
    ],
)
def test_a_name_without_a_library_is_of_that_of_what_holds_it(
    monkeypatch: pytest.MonkeyPatch, text: str, library: str
) -> None:
    for known in ("albumentations", "torchvision", "torchvision.transforms"):
        fake, names = types.ModuleType(known), ("Compose", "Mirror") if known != "torchvision" else ()
        vars(fake).update({one: type(one, (Kept,), {"__module__": known}) for one in names})
        monkeypatch.setitem(sys.modules, known, fake)
    made = theirs.of_text(text)
    assert (type(made).__module__, type(made).__name__) == (library, "Compose")
    (listed,) = made.given
    assert {type(one).__module__ for one in listed} == {library}


def test_boxes_that_a_recipe_asks_for_are_none() -> None:
    def asking(name: str, label_fields: list[str] | None) -> types.SimpleNamespace:
        return types.SimpleNamespace(data_fields=[name], params=types.SimpleNamespace(label_fields=label_fields))

    class WithBoxes(Kept):
        def __init__(self) -> None:
            self.processors = {"bboxes": asking("bboxes", ["labels"]), "keypoints": asking("keypoints", None)}

        def __call__(self, image: Any, *, bboxes: Any, labels: Any, keypoints: Any) -> Any:
            assert bboxes == labels == keypoints == []
            return {"image": image}

    np.testing.assert_array_equal(theirs.as_transform(WithBoxes(), is_normalized=False)(IMAGE), IMAGE)


def test_what_a_library_says_is_told_as_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuses(self: Kept, *given: Any, **named: Any) -> Any:
        raise RuntimeError("the crop is larger")

    fake = types.SimpleNamespace(
        __version__="1.2.3",
        Large=type("Large", (Kept,), {"__call__": refuses}),
        Odd=type("Odd", (Kept,), {"__init__": refuses}),
    )
    monkeypatch.setitem(sys.modules, "albumentations", fake)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^albumentations 1.2.3 cannot transform this image: the crop is larger"):
        theirs.as_transform(theirs.of_text("A.Large()"), is_normalized=False)(IMAGE)
    with pytest.raises(ValueError, match=r"^albumentations 1.2.3 cannot make albumentations.Odd: the crop is larger"):
        theirs.of_text("A.Odd()")
    (tmp_path / "albumentations.py").write_text('raise RuntimeError("operator nms does not exist")')
    monkeypatch.delitem(sys.modules, "albumentations")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"albumentations cannot be imported: operator nms does not exist"):
        theirs.of_text("A.Odd()")


def test_a_class_of_the_script_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.transforms"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with pytest.raises(ValueError, match=r"Blur \(of this script\) is not run, and --compare cannot show it"):
        theirs.of_text("from torchvision import transforms as T\nclass Blur:\n    pass\nt = T.Compose([Blur()])")
