"""Transforms that call a function of the user's: `Lambda` of torchvision and albumentations."""

import functools
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from augpipe import Augment, Recipe, importers, ops
from augpipe.recipes.importers.functions import with_functions
from tests.augpipe.importers.test_torchvision import NORMALIZE, compose, make

Pixels = npt.NDArray[np.uint8]
NORMALIZE_HALF = make("Normalize", mean=[0.5] * 3, std=[0.5] * 3)
IMAGE: Pixels = np.random.default_rng(0).integers(0, 256, (12, 17, 3), np.uint8)


def of_pillow(image: Image.Image) -> Image.Image:
    assert isinstance(image, Image.Image)
    return ImageOps.mirror(image)


def of_array(image: Pixels, **others: Any) -> Pixels:
    return image[:, ::-1]


def of_sides(image: Pixels, rows: int, cols: int) -> Pixels:
    return np.full_like(image, rows + cols)


def of_any_names(image: Pixels, **others: Any) -> Pixels:
    return np.full_like(image, len(others))


def noop(image: Any, **others: Any) -> Any:
    return image


def shown(recipe: Recipe) -> Pixels:
    made: Pixels = Augment(recipe, dtype="uint8", layout="NHWC")(IMAGE)
    return made


def test_lambda_of_torchvision_takes_a_pil_image_or_before_to_pil_image_an_array() -> None:
    found = importers.from_torchvision(compose(make("Lambda", lambd=of_pillow), make("ToTensor"), NORMALIZE))
    custom = found.recipe.ops[0]
    assert isinstance(custom, ops.Custom) and custom.name == "of_pillow" and found.rows[0].verdict == "near"
    assert "global generators" in found.notes[0] and found.table().rows[0][1] == "of_pillow"
    np.testing.assert_array_equal(shown(Recipe(ops=[custom])), IMAGE[:, ::-1])
    again = pickle.loads(pickle.dumps(custom))
    assert again.name == custom.name and again.model_dump() == custom.model_dump()
    assert custom.model_dump()["fn"].endswith("test_functions.of_pillow")
    first = compose(make("Lambda", lambd=of_array), make("ToPILImage"), make("Lambda", lambd=of_pillow))
    recipe = importers.from_torchvision(first).recipe
    assert len(recipe.ops) == 2 and recipe.num_passes == 2
    np.testing.assert_array_equal(shown(recipe), IMAGE)


def test_random_apply_of_one_is_that_one_with_its_p() -> None:
    one = make("RandomApply", transforms=[make("Lambda", lambd=of_pillow)], p=0.3)
    (custom,) = importers.from_torchvision(compose(one)).recipe.ops
    assert isinstance(custom, ops.Custom) and custom.p == 0.3


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([make("ToTensor"), make("Lambda", lambd=of_pillow)], r"Lambda: takes a tensor there; write .* ops\.Custom\("),
        ([make("Lambda")], r"Lambda: calls a function, which is not held here; .* ops\.Custom\(my_function\)"),
        ([make("RandomOrder", transforms=[make("Lambda", lambd=of_pillow)])], "all_of holds of_pillow, a function"),
    ],
    ids=["tensors", "no function", "a group"],
)
def test_what_is_refused_names_custom(listed: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        importers.from_torchvision(compose(*listed))


def double_less_one(x: Any) -> Any:
    return 2 * x - 1


# fmt: off
LINES: dict[str, Any] = {
    "2 * x - 1": lambda x: 2 * x - 1,
    "(x - 0.5) / 0.5": lambda x: (x - 0.5) / 0.5,
    "x.mul(2).sub(1)": lambda x: x.mul(2).sub(1),
    "x.sub_(0.5).div_(0.5)": lambda x: x.sub_(0.5).div_(0.5),
    "-(1 - x - x)": lambda x: -(1 - x - x),
    "x + (x - 1)": lambda x: x + (x - 1),
}
"""By their text."""
OTHERS: dict[str, Any] = {
    "x * x": lambda x: x * x,
    "x + x.mean()": lambda x: x + x.mean(),
    "x.repeat(3, 2, 1)": lambda x: x.repeat(3, 2, 1),
    "0 * x": lambda x: 0 * x,
    "1 - x": lambda x: 1 - x,
    "1 / x": lambda x: 1 / x,
    "x // 1": lambda x: x // 1,
    "x[..., :448, :448]": lambda x: x[..., :448, :448],
    "x * NUM": lambda x: x * NUM,
    "x.mul_(2) + x": lambda x: x.mul_(2) + x,
    "x.mul_(2).sub_(x)": lambda x: x.mul_(2).sub_(x),
    "x.clamp(0, 1)": lambda x: x.clamp(0, 1),
}
TWO = (lambda x: 2 * x - 1), (lambda x: x * x)  # of which each is found in their line
# fmt: on
NUM = 2


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_tensor_is_a_normalize(line: str) -> None:
    expected = importers.from_torchvision(compose(make("ToTensor"), NORMALIZE_HALF)).recipe
    assert importers.from_torchvision(compose(make("ToTensor"), make("Lambda", lambd=LINES[line]))).recipe == expected
    text = f"T.Compose([T.ToTensor(), T.Lambda(lambda t: {line.replace('x', 't')})])"
    assert importers.from_text(text).recipe == expected


def test_a_tensor_as_it_is_changes_nothing() -> None:
    expected = importers.from_torchvision(compose(make("ToTensor"))).recipe
    same = make("Lambda", lambd=lambda x: x)
    assert importers.from_torchvision(compose(make("ToTensor"), same)).recipe == expected
    levels = importers.from_torchvision(compose(make("PILToTensor"), same)).recipe
    assert levels == importers.from_torchvision(compose(make("PILToTensor"))).recipe


@pytest.mark.parametrize("line", OTHERS)
def test_no_other_function_of_a_tensor_is(line: str) -> None:
    with pytest.raises(ValueError, match="Lambda: takes a tensor there"):
        importers.from_torchvision(compose(make("ToTensor"), make("Lambda", lambd=OTHERS[line])))
    with pytest.raises(ValueError, match="Lambda: calls a function"):
        importers.from_text(f"T.Compose([T.ToTensor(), T.Lambda(lambda x: {line})])")


def test_of_two_in_a_line_each_is_read_and_no_function_is_run() -> None:
    found = importers.from_torchvision(compose(make("ToTensor"), make("Lambda", lambd=TWO[0]))).recipe
    assert found == importers.from_torchvision(compose(make("ToTensor"), NORMALIZE_HALF)).recipe
    for other in (
        TWO[1],
        double_less_one,
        eval("lambda x: 2 * x - 1"),
        functools.partial(double_less_one),
        np.negative,
    ):
        with pytest.raises(ValueError, match="Lambda: takes a tensor there"):
            importers.from_torchvision(compose(make("ToTensor"), make("Lambda", lambd=other)))


def test_a_line_behind_levels_that_came_back_is_refused() -> None:
    levels = make("ToDtype", dtype="torch.uint8", scale=True)
    with pytest.raises(ValueError, match="Lambda: takes a tensor there"):
        importers.from_torchvision(compose(make("ToTensor"), levels, make("Lambda", lambd=lambda x: 2 * x - 1)))


def test_a_line_of_whole_levels_is_refused() -> None:
    given = make("PILToTensor"), make("Lambda", lambd=lambda x: x / 255)
    with pytest.raises(ValueError, match="Lambda: takes a tensor there"):
        importers.from_torchvision(compose(*given))


@pytest.mark.parametrize(
    "text",
    [
        "T.Compose([T.Lambda(lambda image: 2 * image), T.ToTensor()])",
        "transforms.Compose([transforms.Lambda(mine), transforms.RandomHorizontalFlip()])",
        "A.Compose([A.Lambda(image=mine, name='mine')])",
    ],
)
def test_a_text_holds_no_function(text: str) -> None:
    with pytest.raises(ValueError, match=r"Lambda: calls a function, .* add ops\.Custom\(my_function\) to the recipe"):
        importers.from_text(text)


class Transform:
    """As a transform of albumentations is written, of either version."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self._names = list(fields)

    def to_dict_private(self) -> dict[str, Any]:
        return {"__class_fullname__": type(self).__name__} | {name: getattr(self, name) for name in self._names}


class HorizontalFlip(Transform):
    pass


class Lambda(Transform):
    def to_dict_private(self) -> dict[str, Any]:
        raise ValueError("To make a Lambda transform serializable you should provide the `name` argument")


class Compose(Transform):
    def to_dict_private(self) -> dict[str, Any]:
        return super().to_dict_private() | {"transforms": [one.to_dict_private() for one in self.transforms]}

    def to_dict(self) -> dict[str, Any]:
        return {"__version__": "2.0.8", "transform": self.to_dict_private()}


def test_what_holds_no_function_is_not_copied() -> None:
    whole = Compose(transforms=[Compose(transforms=[HorizontalFlip(p=0.5)], p=1.0)], p=1.0)
    assert with_functions(whole) is whole


def test_a_function_of_c_and_one_that_is_called_as_an_op_is() -> None:
    found = importers.from_albumentations(Compose(transforms=[called(min), called(of_array, name="flip")], p=1.0))
    of_c, array = found.recipe.ops
    assert isinstance(of_c, ops.Custom) and isinstance(array, ops.Custom)
    assert array.name == "of_array" and of_c.fn(np.zeros((1, 3), np.uint8)).tolist() == [0, 0, 0]


def called(image: Any = noop, p: float = 1.0, name: str | None = None, **others: Any) -> Lambda:
    return Lambda(custom_apply_fns={"image": image, "mask": noop, **others}, p=p, name=name)


def test_lambda_of_albumentations() -> None:
    any_names = importers.from_albumentations(Compose(transforms=[called(of_any_names)], p=1.0)).recipe
    np.testing.assert_array_equal(shown(any_names), np.full_like(IMAGE, 3))
    listed = [HorizontalFlip(p=1.0), called(of_array, p=0.5, name="mine"), called(of_sides), called(name="masks only")]
    whole = Compose(transforms=listed, p=1.0)
    found = importers.from_albumentations(whole)
    flip, mine, sides = found.recipe.ops
    assert isinstance(mine, ops.Custom) and isinstance(sides, ops.Custom) and whole.transforms is listed
    assert (mine.name, mine.p, sides.name, sides.p) == ("mine", 0.5, "of_sides", 1.0)
    np.testing.assert_array_equal(shown(Recipe(ops=[flip, ops.Custom(mine.fn)])), IMAGE)
    assert (shown(Recipe(ops=[sides])) == 12 + 17).all()
    partial = importers.from_albumentations(Compose(transforms=[called(functools.partial(of_array))], p=1.0))
    assert (shown(partial.recipe) == IMAGE[:, ::-1]).all()
    with pytest.raises(ValueError, match="Lambda: changes mask as well, which ops.Custom does not"):
        importers.from_albumentations(Compose(transforms=[called(of_array, mask=of_array)], p=1.0))
    inner = Compose(transforms=[called(of_array)], p=0.5)
    with pytest.raises(ValueError, match="all_of|of_array, a function"):
        importers.from_albumentations(Compose(transforms=[inner, HorizontalFlip(p=0.5)], p=1.0))
