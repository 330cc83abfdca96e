"""Settings of image processors, as they lie beside published models."""

import json
from pathlib import Path
from typing import Any

import pytest

from augpipe import importers, ops

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.2, 0.2]
NORMALIZE = ops.Normalize(mean=tuple(MEAN), std=tuple(STD))
STEPS: dict[str, Any] = {"do_normalize": True, "image_mean": MEAN, "image_std": STD, "do_rescale": True}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {
                "image_processor_type": "ViTImageProcessor",
                "do_resize": True,
                "size": {"height": 22, "width": 24},
                "resample": 2,
            },
            (ops.Resize(size=(22, 24)),),
        ),
        (
            {"feature_extractor_type": "ViTFeatureExtractor", "do_resize": True, "size": 22},
            (ops.Resize(size=(22, 22)),),
        ),
        (
            {
                "image_processor_type": "CLIPImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 24},
                "do_center_crop": True,
                "crop_size": {"height": 22, "width": 20},
            },
            (ops.ResizeShortest(size=24), ops.RandomCrop(size=(22, 20), p=0.0)),
        ),
        (
            {
                "image_processor_type": "DetrImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 80, "longest_edge": 133},
            },
            (ops.ResizeShortest(size=80, max_size=133),),
        ),
        (
            {
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 224},
                "crop_pct": 0.875,
            },
            (ops.ResizeShortest(size=256), ops.RandomCrop(size=(224, 224), p=0.0)),
        ),
        (
            {
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 384},
                "crop_pct": 0.875,
            },
            (ops.Resize(size=(384, 384)),),
        ),
    ],
)
def test_settings_are_ops(settings: dict[str, Any], expected: tuple[ops.Op, ...], tmp_path: Path) -> None:
    found = importers.from_hugging_face({**STEPS, **settings})
    assert found.recipe.ops == (*expected, NORMALIZE) and found.notes == ()
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**STEPS, **settings}), encoding="utf-8")
    assert importers.from_hugging_face(path) == found


def test_levels_are_scaled_where_nothing_normalises_them() -> None:
    plain = {"image_processor_type": "X", "do_resize": True, "size": {"height": 3, "width": 3}, "resample": 3}
    found = importers.from_hugging_face(plain)
    assert found.recipe.ops == (ops.Resize(size=(3, 3)), ops.Normalize(mean=0.0, std=1.0))
    assert found.recipe.interpolation == "bicubic" and found.notes == ()
    lanczos = importers.from_hugging_face({**plain, "resample": 1})
    assert lanczos.notes == ("resize: lanczos interpolation becomes bilinear.",)
    assert importers.from_hugging_face({**plain, "do_rescale": False}).recipe.ops == (ops.Resize(size=(3, 3)),)


def test_what_is_not_mapped_is_refused() -> None:
    settings = {**STEPS, "do_resize": True, "size": 3, "do_center_crop": True, "do_flip_channel_order": True}
    with pytest.raises(ValueError, match="do_flip_channel_order: is not mapped") as told:
        importers.from_hugging_face({"image_processor_type": "Some", **settings, "do_rescale": False})
    for text in ("do_resize: size=3 may be", "do_center_crop: has no 'crop_size'", "do_normalize: do_rescale=False"):
        assert text in str(told.value)
    with pytest.raises(ValueError, match="not settings of an image processor"):
        importers.from_hugging_face({})
