"""Names of other libraries are answered with what to write here, and modules show only what is public."""

import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import augpipe
from augpipe import importers, ops, policies, recipes, sampling, sources
from augpipe.ops.other_names import ANSWERS
from augpipe.recipes.importers.albumentations import MADE as ALBUMENTATIONS
from augpipe.recipes.importers.torchvision import MADE, SILENT
from augpipe.validation.suggest import elsewhere, nearest, plain

KORNIA = (
    *("RandomHorizontalFlip", "RandomRotation", "RandomGaussianBlur", "RandomGaussianNoise", "RandomMixUpV2"),
    *("RandomCutMixV2", "ColorJiggle", "RandomClahe", "RandomMotionBlur", "RandomSaturation", "AugmentationSequential"),
)


@pytest.mark.parametrize("name", sorted({*MADE, *SILENT, *ALBUMENTATIONS, *KORNIA}))
def test_what_the_importers_know_is_answered_by_name(name: str) -> None:
    own = set(map(plain, ops.__all__))
    assert plain(name) in own or plain(name).removeprefix("random") in own or elsewhere(name, ANSWERS) is not None


def calls_in(answer: str) -> Iterator[str]:
    """The outermost calls of ops, to the bracket that ends each."""
    end = 0
    for found in re.finditer(r"ops\.\w+\(", answer):
        if found.start() >= end:
            depth = 1
            for end in range(found.end(), len(answer)):
                depth += {"(": 1, ")": -1}.get(answer[end], 0)
                if depth == 0:
                    break
            yield answer[found.start() : end + 1]


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_name_what_there_is(name: str) -> None:
    assert name == plain(name) and not name.startswith("random")
    for room, attribute in re.findall(r"\b(ops|policies|recipes)\.(\w+)", ANSWERS[name]):
        assert attribute in vars(augpipe)[room].__all__
    for call in calls_in(ANSWERS[name]):
        if "..." not in call:
            made = eval(call, {"ops": ops, "my_step": abs})
            assert isinstance(made, (ops.Op, ops.MixUp, ops.CutMix, ops.CopyPaste, ops.Mosaic))


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        (("ToSepia",), "ops.Sepia()"),
        (("SaltAndPepper", "RandomSaltAndPepperNoise"), "ops.PixelDropout(), and another one with fill=255"),
        (("Multiplicative", "MultiplicativeNoise"), "ops.BrightnessContrast(brightness=(0, 0)), or ops.Noise"),
        (("Shot", "ShotNoise"), "ops.Noise()"),
        (("ThinPlate", "ThinPlateSpline"), "ops.ElasticTransform() or ops.GridDistortion()"),
        (("Lambda", "RandomSunFlare", "RandomRain", "RandomSnow", "RandomGravel"), "ops.Custom(my_step), which calls"),
        (("RandomOrder",), "ops.AllOf(ops=[...]), which keeps the order of the list"),
        (("FiveCrop", "TenCrop"), "a View for each crop in Recipe(views=[...])"),
    ],
)
def test_what_is_not_built_is_answered_with_what_is_nearest(names: tuple[str, ...], answer: str) -> None:
    for name in names:
        with pytest.raises(AttributeError, match=re.escape(f"augpipe.ops has no {name}. Write {answer}")):
            getattr(ops, name)


def test_the_nearest_name_counts_no_case_and_no_underscores() -> None:
    names = ["RandomResizedCrop", "Flip", "size"]
    assert nearest("random_resized_crop", names) == "RandomResizedCrop"
    assert nearest("RandomFlip", names) == "Flip"
    assert nearest("image_size", names) == "size"
    assert nearest("Vignette", names) is None


@pytest.mark.parametrize("module", [augpipe, ops, recipes, policies, sampling, sources, importers])
def test_dir_shows_what_is_public(module: ModuleType) -> None:
    shown = dir(module)
    assert sorted(shown) == sorted({*module.__all__, *(["__version__"] if module is augpipe else [])})
    assert all(hasattr(module, name) for name in shown)
    assert "Annotated" not in shown and "np" not in shown
