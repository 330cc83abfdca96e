"""Whether a resize of torchvision averages: always of PIL images, and of tensors where it is told to."""

import numpy as np
import pytest

from augpipe import Augment, importers

OF_PILLOW = [[112, 126, 120, 127, 112], [137, 123, 132, 134, 116], [146, 115, 117, 123, 126], [128, 106, 110, 131, 127]]
OF_TENSORS = [[107, 165, 120, 75, 133], [51, 156, 160, 86, 38], [225, 148, 199, 173, 148], [168, 139, 110, 82, 53]]
"""Red of what `Resize((4, 5), antialias=False)` and `antialias=None` of torchvision 0.28, v1 and v2, make of the
picture; with `antialias=True` tensors become what PIL images do, within a level."""
TO_TENSORS = ("transforms.ToTensor()", "transforms.PILToTensor()", "v2.ToImage()")


def picture() -> np.ndarray:
    y, x = np.mgrid[0:12, 0:16]
    red = ((x * 37 + y * 61 + x * y * 5) % 256).astype(np.uint8)
    return np.stack([red, 255 - red, red // 2], axis=2)


def resized(*calls: str) -> np.ndarray:
    """(4, 5) red levels."""
    recipe = importers.from_text(f"transforms.Compose([{', '.join(calls)}])").recipe
    recipe = recipe.model_copy(update={"ops": tuple(op for op in recipe.ops if op.op != "normalize")})
    return Augment(recipe, dtype="uint8", layout="NHWC")(picture())[:, :, 0].astype(np.int64)


def assert_alike(found: np.ndarray, expected: list[list[int]]) -> None:
    """At the edge Pillow cuts its filter off, where ours sees the mirrored image."""
    error = np.abs(found - expected)
    assert error[1:-1, 1:-1].max() <= 2 and error.mean() < 4


@pytest.mark.parametrize("antialias", ["True", "False", "None"])
@pytest.mark.parametrize("to_tensor", TO_TENSORS)
def test_pil_images_are_averaged_and_tensors_as_they_are_told(antialias: str, to_tensor: str) -> None:
    for resize in (f"transforms.Resize((4, 5), antialias={antialias})", f"v2.Resize((4, 5), antialias={antialias})"):
        assert_alike(resized(resize, to_tensor), OF_PILLOW)
        back = resized(to_tensor, "transforms.ToPILImage()", resize, to_tensor)
        assert_alike(back, OF_PILLOW)
        expected = OF_PILLOW if antialias == "True" else OF_TENSORS
        assert_alike(resized(to_tensor, resize), expected)
        assert_alike(resized(resize, "v2.ToDtype(torch.float32, scale=True)"), expected)


@pytest.mark.parametrize(("antialias", "averages"), [("True", True), ("False", False), ("None", True)])
def test_images_that_nothing_converts_may_be_either_and_are_read_as_they_are_told(
    antialias: str, averages: bool
) -> None:
    crop = f"transforms.RandomResizedCrop(9, antialias={antialias})"
    assert importers.from_text(crop).recipe.antialias == averages
    assert importers.from_text(f"transforms.Compose([{crop}, transforms.ToTensor()])").recipe.antialias
    held = f"transforms.Compose([transforms.ToTensor(), {crop}])"
    assert importers.from_text(held).recipe.antialias == (antialias == "True")
