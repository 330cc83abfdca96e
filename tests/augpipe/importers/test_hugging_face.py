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
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 224},
                "crop_pct": 0.875,
                "resample": 3,
            },
            (ops.ResizeShortest(size=256), ops.RandomCrop(size=(224, 224), p=0.0)),
        ),
        (
            {
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 384},
                "crop_pct": 0.875,
                "resample": 3,
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
    plain: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 3, "width": 3},
        "resample": 3,
    }
    plain["do_normalize"] = False
    found = importers.from_hugging_face(plain)
    assert found.recipe.ops == (ops.Resize(size=(3, 3)), ops.Normalize(mean=0.0, std=1.0))
    assert found.recipe.interpolation == "bicubic" and found.notes == ()
    lanczos = importers.from_hugging_face({**plain, "resample": 1})
    assert lanczos.notes == ("resize: lanczos interpolation becomes bicubic.",)
    assert importers.from_hugging_face({**plain, "do_rescale": False}).recipe.ops == (ops.Resize(size=(3, 3)),)


def test_what_is_not_mapped_is_refused() -> None:
    settings = {**STEPS, "do_resize": True, "size": 3, "do_center_crop": True, "do_flip_channel_order": True}
    with pytest.raises(ValueError, match="do_flip_channel_order: True is not mapped") as told:
        importers.from_hugging_face({"image_processor_type": "Some", **settings, "do_rescale": False})
    for text in ("do_resize: size=3 may be", "do_center_crop: has no 'crop_size'", "do_normalize: do_rescale=False"):
        assert text in str(told.value)
    with pytest.raises(ValueError, match="not settings of an image processor"):
        importers.from_hugging_face({})
    with pytest.raises(ValueError, match="do_center_crop: crops before it resizes there") as told:
        importers.from_hugging_face({"image_processor_type": "PerceiverImageProcessor", **STEPS, "rescale_factor": 1})
    assert "do_normalize: rescale_factor=1 is not mapped; 1/255 is" in str(told.value)


def test_a_file_that_is_cut_off_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(STEPS)[:-1], encoding="utf-8")
    with pytest.raises(ValueError, match=r"preprocessor_config.json is not JSON \("):
        importers.from_hugging_face(path)


SHORT_TO_256: dict[str, Any] = {"do_resize": True, "size": {"shortest_edge": 256}, "do_center_crop": False}
CUT_OUT_OF_256 = (ops.ResizeShortest(size=256), ops.RandomCrop(size=(224, 224), p=0.0))
PADDED = {"do_resize": True, "size": {"longest_edge": 32}, "do_pad": True, "pad_size": {"height": 32, "width": 32}}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("Levit", {"size": {"shortest_edge": 224}, "do_center_crop": False}, (ops.ResizeShortest(size=256),)),
        ("PoolFormer", SHORT_TO_256 | {"crop_pct": 0.5}, (ops.ResizeShortest(size=512),)),
        (
            "PoolFormer",
            SHORT_TO_256 | {"size": {"shortest_edge": 400}, "crop_pct": 0.5},
            (ops.ResizeShortest(size=800),),
        ),
        ("PoolFormer", SHORT_TO_256, (ops.ResizeShortest(size=284),)),
        ("CLIP", SHORT_TO_256 | {"size": 256}, (ops.ResizeShortest(size=256),)),
        ("VideoMAE", SHORT_TO_256 | {"size": 256}, (ops.ResizeShortest(size=256),)),
        ("ConvNext", {"size": {"shortest_edge": 224}, "resample": 3}, CUT_OUT_OF_256),
        ("OwlViT", {"size": [96, 64]}, (ops.Resize(size=(96, 64)),)),
        (
            "CLIP",
            SHORT_TO_256 | {"do_center_crop": True, "crop_size": [96, 64]},
            (ops.ResizeShortest(size=256), ops.RandomCrop(size=(96, 64), p=0.0)),
        ),
        ("Segformer", {"do_resize": True, "size": 64}, (ops.Resize(size=(64, 64)),)),
        ("Detr", {"size": 80, "max_size": 133}, (ops.ResizeShortest(size=80, max_size=133),)),
        ("DPT", {"size": {"height": 28, "width": 42}, "ensure_multiple_of": 14}, (ops.Resize(size=(28, 42)),)),
        (
            "Sam",
            PADDED,
            (
                ops.ResizeLongest(size=32),
                ops.Pad(size=(32, 32), position="top_left", border="constant", fill=(127.5, 102.0, 76.5)),
            ),
        ),
    ],
)
def test_types_have_ways_of_their_own(kind: str, settings: dict[str, Any], expected: tuple[ops.Op, ...]) -> None:
    found = importers.from_hugging_face({**STEPS, "image_processor_type": f"{kind}ImageProcessor", **settings})
    assert found.recipe.ops == (*expected, NORMALIZE)


def test_efficient_nets_divide_by_the_deviation_twice() -> None:
    settings = {**STEPS, "image_processor_type": "EfficientNetImageProcessor", "size": {"height": 8, "width": 8}}
    settings["resample"] = 3
    twice = ops.Normalize(mean=tuple(MEAN), std=tuple(one * one for one in STD))
    assert importers.from_hugging_face(settings).recipe.ops[-1] == twice
    assert importers.from_hugging_face({**settings, "include_top": False}).recipe.ops[-1] == NORMALIZE


def test_what_the_settings_leave_out_is_done() -> None:
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 9}}
    found = importers.from_hugging_face({**settings, "image_mean": MEAN, "image_std": STD})
    assert found.recipe.ops == (ops.Resize(size=(8, 9)), NORMALIZE) and found.notes == ()
    with pytest.raises(ValueError, match="do_center_crop: is not there, and crop_size is; write true or false"):
        importers.from_hugging_face({**settings, "crop_size": 8})


@pytest.mark.parametrize(
    "settings",
    [
        {"size": {"height": 28, "width": 42}, "keep_aspect_ratio": True},
        {"size": {"height": 28, "width": 42}, "ensure_multiple_of": 16},
        {"size": {"height": 28, "width": 42}, "do_pad": True},
        {"size": {"shortest_edge": 3136, "longest_edge": 12845056}, "merge_size": 2},
        {"size": {"shortest_edge": 800}, "size_divisor": 32},
        {"size": {"height": 28, "width": 42}, "rescale_offset": True},
    ],
)
def test_what_changes_sizes_or_numbers_otherwise_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{list(settings)[1]}: .*not mapped"):
        importers.from_hugging_face({**STEPS, "image_processor_type": "XImageProcessor", **settings})


def test_what_is_done_to_a_batch_and_to_labels_is_told() -> None:
    settings = {**STEPS, "image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 80}, "do_pad": True}
    notes = importers.from_hugging_face({**settings, "do_reduce_labels": True}).notes
    assert any("do_pad: " in note and "each image keeps its own size" in note for note in notes)
    assert any("label maps: " in note and "255" in note for note in notes)


def test_settings_of_timm_are_told_from_those_of_transformers() -> None:
    with pytest.raises(ValueError, match=r"settings of a model of timm. Give importers.from_timm input_size, crop_pct"):
        importers.from_hugging_face({"architecture": "resnet50", "pretrained_cfg": {"crop_pct": 0.95}})


def test_a_setting_that_is_not_mapped_is_told_with_its_value() -> None:
    settings = {"image_processor_type": "Mask2FormerImageProcessor", "do_resize": False, "size_divisor": 32}
    with pytest.raises(ValueError, match="size_divisor: 32 is not mapped; remove it, and do that step yourself"):
        importers.from_hugging_face(settings)


@pytest.mark.parametrize(
    ("kind", "left_out", "told"),
    [
        ("ViT", {"size"}, "do_resize: neither it nor size is there"),
        ("ViT", {"size", "do_resize"}, "do_resize: neither it nor size is there"),
        ("ViT", {"image_mean", "do_normalize"}, "do_normalize: neither it nor image_mean is there"),
        ("ViT", {"image_mean"}, "do_normalize: has no 'image_mean'"),
        ("ViT", {"image_std"}, "do_normalize: has no 'image_std'"),
        ("CLIP", {"do_center_crop", "crop_size"}, "do_center_crop: neither it nor crop_size is there"),
        ("CLIP", {"crop_size"}, "do_center_crop: has no 'crop_size'"),
        ("ConvNext", {"resample"}, "do_resize: has no 'resample', in whose default types differ"),
        ("MobileViT", {"do_flip_channel_order"}, "do_flip_channel_order: True is not mapped"),
    ],
)
def test_settings_whose_defaults_differ_are_asked_for(kind: str, left_out: set[str], told: str) -> None:
    given: dict[str, Any] = {**STEPS, "do_resize": True, "size": {"height": 8, "width": 9}, "resample": 2}
    given |= {"do_center_crop": True, "crop_size": 8, "do_flip_channel_order": False}
    given |= {"image_processor_type": f"{kind}ImageProcessorFast"}
    importers.from_hugging_face(given)
    some = {name: value for name, value in given.items() if name not in left_out}
    if "do_resize" not in left_out and "size" in left_out:
        del some["do_resize"]
    unset = dict.fromkeys(name for name in left_out if not name.startswith("do_"))  # as transformers 4 writes it
    for settings in (some, some | unset):
        with pytest.raises(ValueError, match=told):
            importers.from_hugging_face(settings)


def test_the_interpolation_of_a_type_is_that_of_its_settings_without_one() -> None:
    settings = {**STEPS, "size": {"height": 8, "width": 9}, "do_center_crop": False}
    for kind, interpolation in (("Siglip", "bicubic"), ("CLIP", "bicubic"), ("Detr", "bilinear"), ("ViT", "bilinear")):
        found = importers.from_hugging_face({**settings, "image_processor_type": f"{kind}ImageProcessor"})
        assert found.recipe.interpolation == interpolation, kind
    depth = importers.from_hugging_face({**settings, "image_processor_type": "DepthProImageProcessor"}).recipe
    assert (depth.interpolation, depth.antialias) == ("bilinear", False)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_image_size": 980},
        {"image_size": 224},
        {"do_grayscale": True},
        {"do_split_image": True},
        {"do_affine_transform": True},
        {"max_num_tiles": 36},
        {"max_image_tiles": 4},
    ],
)
def test_steps_of_a_few_types_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}: .* is not mapped"):
        importers.from_hugging_face(
            {**STEPS, "image_processor_type": "A", "size": {"height": 8, "width": 9}, **settings}
        )


@pytest.mark.parametrize("kind", ["LayoutLMv2", "Llama4", "PerceptionLM", "Idefics2", "Donut", "Janus", "ZoeDepth"])
def test_types_with_steps_that_their_settings_do_not_tell_are_refused(kind: str) -> None:
    settings = {**STEPS, "image_processor_type": f"{kind}ImageProcessorFast", "size": {"height": 8, "width": 9}}
    with pytest.raises(ValueError, match=f"image_processor_type: {kind} .* not mapped"):
        importers.from_hugging_face(settings)


def test_padding_before_resizing_is_not_that_of_batches() -> None:
    settings = {**STEPS, **SHORT_TO_256, "image_processor_type": "LlavaImageProcessor", "do_pad": True}
    with pytest.raises(ValueError, match="do_pad: .*not mapped"):
        importers.from_hugging_face(settings)


def test_what_may_differ_is_told() -> None:
    sizes = {"size": {"shortest_edge": 80, "longest_edge": 133}}
    notes = importers.from_hugging_face({**STEPS, **sizes, "feature_extractor_type": "DetrFeatureExtractor"}).notes
    assert any("longest_edge" in note and "one pixel" in note for note in notes)
    assert any(note.startswith("do_pad: ") for note in notes)  # which old settings do not say
    notes = importers.from_hugging_face({**STEPS, **sizes, "image_processor_type": "YolosImageProcessor"}).notes
    assert any("multiples of 16" in note for note in notes)
    crops = {"size": {"height": 8, "width": 9}, "do_center_crop": True, "crop_size": 8}
    notes = importers.from_hugging_face({**STEPS, **crops, "image_processor_type": "ViTImageProcessor"}).notes
    assert notes == ("center_crop: some versions of this type leave it out.",)
    other = {**STEPS, "size": {"height": 8, "width": 9}, "resample": 2, "sharpen": 3, "return_tensors": None}
    notes = importers.from_hugging_face({**other, "image_processor_type": "OtherImageProcessor"}).notes
    assert any(note.startswith("image_processor_type: 'Other' is not known here") for note in notes)
    assert any(note.startswith("sharpen: 3 is not known here") for note in notes)
    assert len(notes) == 2


def test_other_sizes_are_refused_by_name() -> None:
    settings = {**STEPS, "image_processor_type": "DetrImageProcessor", "size": {"max_height": 8, "max_width": 9}}
    with pytest.raises(
        ValueError, match="do_resize: size has max_height and max_width, .* height and width are mapped"
    ):
        importers.from_hugging_face(settings)


def test_settings_may_be_those_of_a_whole_processor() -> None:
    settings = {**STEPS, "image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 9}}
    whole = {"processor_class": "XProcessor", "image_processor": settings}
    assert importers.from_hugging_face(whole) == importers.from_hugging_face(settings)


def test_perceivers_that_crop_nothing_are_mapped() -> None:
    settings = {**STEPS, "image_processor_type": "PerceiverImageProcessor", "size": {"height": 8, "width": 9}}
    found = importers.from_hugging_face({**settings, "do_center_crop": False, "crop_size": {"height": 8, "width": 8}})
    assert found.recipe.ops == (ops.Resize(size=(8, 9)), NORMALIZE)
    with pytest.raises(ValueError, match="do_center_crop: crops before it resizes"):
        importers.from_hugging_face(settings)


def test_types_that_do_not_normalise_do_so_only_where_they_are_told_to() -> None:
    settings = {"image_processor_type": "RTDetrImageProcessor", "size": {"height": 8, "width": 9}}
    settings |= {"image_mean": MEAN, "image_std": STD}
    unit = ops.Normalize(mean=0.0, std=1.0)
    assert importers.from_hugging_face(settings).recipe.ops[-1] == unit
    assert importers.from_hugging_face({**settings, "do_normalize": True}).recipe.ops[-1] == NORMALIZE


def test_ties_between_nearest_pixels_are_told() -> None:
    settings = {**STEPS, "image_processor_type": "EfficientNetImageProcessor", "size": {"height": 8, "width": 9}}
    (note,) = importers.from_hugging_face({**settings, "resample": 0}).notes
    assert note == "resize: where two pixels are equally near, Pillow may take the other one."
