"""Recipes in the text of scripts: read as the library would build them, never executed, refused where a run decides."""

import re
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
    "nests expressions|not Python|has no argument|needs width|not a call|is not of torchvision|holds 0 recipes|"
    "of this script|it has no items|takes 1 arguments and is given 3"
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


def test_timm_is_read_with_its_own_defaults_and_positions() -> None:
    evaluated = importers.from_timm(input_size=96, is_training=False).recipe
    assert importers.from_text("create_transform(96)").recipe == evaluated
    trained = importers.from_timm(input_size=96, is_training=True, hflip=0.0).recipe
    assert importers.from_text("create_transform(96, True, hflip=0.0)").recipe == trained
    with pytest.raises(ValueError, match="two arguments by position"):
        importers.from_text("create_transform(96, True, False)")


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


@pytest.mark.parametrize("name", ["valid", "changed", "missing", None])
def test_what_a_run_decides_is_refused(name: str | None) -> None:
    with pytest.raises(ValueError, match="known only when|assigns no missing|Name one of them"):
        importers.from_text(SCRIPT, name)


IN_A_CLASS = """
class Preset:
    flip = T.Compose([T.RandomHorizontalFlip()])

    def __init__(self, size=8):
        self.crop = T.Compose([
            T.RandomCrop(size),
        ])


small = T.Compose([
    T.RandomCrop(4),
])
"""


@pytest.mark.parametrize("name", ["Preset", "Preset(size=9)", "Preset(9).crop"])
def test_a_class_is_not_run(name: str) -> None:
    told = (
        "Preset is a class, which is not run. Write a function that returns the transforms, or name one of 3 (in Preset"
    )
    with pytest.raises(ValueError, match=re.escape(told)):
        importers.from_text(IN_A_CLASS, name)
    with pytest.raises(ValueError, match=r"Preset is a class, .* that returns the transforms\.$"):
        importers.from_text("class Preset:\n    pass", name)


def test_a_recipe_goes_by_any_of_its_lines() -> None:
    assert Recipe.from_text(IN_A_CLASS, "Preset.flip").ops == (ops.Flip(),)
    for line in ("6", "7", "8"):
        assert Recipe.from_text(IN_A_CLASS, line).ops == (ops.RandomCrop(size=(8, 8)),)
    for name in ("small", "11", "12", "13"):
        assert Recipe.from_text(IN_A_CLASS, name).ops == (ops.RandomCrop(size=(4, 4)),)
    for line in ("5", "9", "99"):
        with pytest.raises(
            ValueError, match=rf"the text has no recipe in line {line}\. It has 3 \(in Preset, flip\), 6 \("
        ):
            importers.from_text(IN_A_CLASS, line)
    with pytest.raises(ValueError, match=r"the text has no recipe in line 3\. It has none\."):
        importers.from_text("size = 3", "3")
    with pytest.raises(ValueError, match=r"2 is of 2 recipes\. Give each a line of its own"):
        importers.from_text("small = [\n    T.Compose([T.Resize(3)]), T.Compose([T.Resize(4)])\n]", "2")


IN_A_DICT = """
class CFG:
    img_size = [96, 128]
    rate = {"flip": 0.25}

dim = (2, 3)
dim[0] = 7
transforms = {
    "train": A.Compose([A.Resize(CFG.img_size[0], CFG.img_size[-1] // 2), A.HorizontalFlip(p=CFG.rate["flip"])]),
    "valid": A.Compose([A.Resize(*CFG.img_size)]),
    "other": A.Compose([A.Resize(CFG.img_size[2], dim[0])]),
}
"""


def test_items_of_lists_and_dicts_are_read() -> None:
    """Shells take quotes away, and an entry that cannot be read does not matter to the others."""
    flip = ops.Flip(p=0.25)
    recipe = Recipe.from_text(IN_A_DICT, 'transforms["train"]')
    assert recipe.ops == (ops.Resize(size=(96, 64)), flip)
    assert Recipe.from_text(IN_A_DICT, "transforms[valid]").ops == (ops.Resize(size=(96, 128)),)
    for name, message in (
        ("transforms['other']", r"line 11: CFG.img_size\[2\] is not there: list index out of range"),
        ("transforms['test']", r"assigns no transforms\['test'\]. It has transforms\['train'\], "),
        ("transforms", r"transforms holds several. Name one of them: transforms\['train'\], transforms\['valid'\], "),
        (None, r"holds 3 recipes. Name one of them, as train.py:transforms\['train'\] or name="),
    ):
        with pytest.raises(ValueError, match=message):
            importers.from_text(IN_A_DICT, name)


@pytest.mark.parametrize(
    "text",
    [
        "A.Compose([__import__('os').system('true')])",
        "A.Compose([A.Resize(cfg['size'], 3)])",
        "A.Compose([A.Resize(size, size)])",
        "size = 3\nif size:\n    size = 4\nt = A.Compose([A.Resize(size, size)])",
        "size = 3\ndef f():\n    global size\n    size = 4\nt = A.Compose([A.Resize(size, size)])",
        "a = b\nb = a\nt = A.Compose([a])",
        "size = 3\nt = A.Compose([A.Resize(size[0], 3)])",
        "A.Compose([A.Resize(*[1] * 1000000000)])",
        "t = A.Compose([" + "+".join(["1"] * 1500) + "])",
        "t = A.Compose([" + "+".join(["1"] * 5000) + "])",
        "(" * 500,
        "class Resize: pass\nt = A.Compose([Resize(1, 2)])",
        "class C: pass\nt = A.Compose([A.Resize(C, 3)])",
        "class C:\n    def size(self): pass\nt = A.Compose([A.Resize(C.size, 3)])",
        "A.Compose([A.Resize(3 if big else 4, 3)])",
        "from mine import Resize\nt = A.Compose([Resize(1, 2)])",
        "A.Compose([transforms.Resize(3)])",
        "A.Compose([A.HorizontalFlip(probability=0.5)])",
        "A.Compose([A.HorizontalFlip(False, 0.5, 1)])",
        "A.Compose([A.Resize(3)])",
        "A.Compose([K.RandomHorizontalFlip()])",
        "print(3)",
        "3",
        "",
    ],
)
def test_what_is_more_than_calls_and_literals_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        importers.from_text(text)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("A.OpticalDistortion(shift_limit=0.7)", "OpticalDistortion: shift_limit above 0.5 moves the centre"),
        ("A.ToGray(num_output_channels=1)", "ToGray: only the weighted average in three channels is mapped"),
        ("T.RandomCrop([1, None])", r"RandomCrop: has an argument of another kind than it takes \(int\(\)"),
        (
            "timm.data.random_erasing.RandomErasing(mode='rand')",
            "RandomErasing: mode='rand' is not mapped; 'const' and",
        ),
        ("K.RandomAffine(10, scale=(0.5, 1, 0.5, 2))", "RandomAffine: scale of four numbers is not mapped"),
        ("K.RandomAffine(10, padding_mode='mirror')", "RandomAffine: padding_mode=mirror is not mapped"),
        (
            "K.Normalize(0.5, 0.5), K.RandomErasing(value=0.5)",
            "RandomErasing: value=0.5 behind Normalize is not mapped",
        ),
    ],
)
def test_what_an_argument_says_is_refused_where_no_op_does_it(call: str, told: str) -> None:
    holder = {"A": "A.Compose([{}])", "K": "K.AugmentationSequential({})"}.get(call[0], "T.Compose([{}])")
    with pytest.raises(ValueError, match=told):
        importers.from_text(holder.format(call))


def test_a_list_of_transforms_is_a_chain() -> None:
    found = importers.from_text("[A.HorizontalFlip(p=0.25), A.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))]")
    assert found.recipe.ops == (ops.Flip(p=0.25), NORMALIZE)


def test_the_version_of_albumentations_is_told_by_the_arguments() -> None:
    old = importers.from_text("A.Compose([A.RandomResizedCrop(96, 80), A.HorizontalFlip()])")
    new = importers.from_text("A.Compose([A.RandomResizedCrop((96, 80)), A.HorizontalFlip()])")
    assert old.recipe.ops == new.recipe.ops
    assert "read as albumentations 1." in old.notes and "read as albumentations 2." in new.notes
    either = "A.Compose([A.RandomRotate90(), A.HueSaturationValue()])"
    assert importers.from_text(either, version="1").recipe.ops[0] == ops.QuarterTurn(swaps_sides=True, p=0.5)
    assert importers.from_text(either).recipe.ops[0] == ops.QuarterTurn(swaps_sides=True, p=1.0)
    assert "read as albumentations 2, though it also fits version 1." in importers.from_text(either).notes
    for version in ("3", "1.3"):
        with pytest.raises(ValueError, match="must be '1' or '2'"):
            importers.from_text(either, version=version)
    with pytest.raises(ValueError, match="HorizontalFlip of albumentations-1 has no argument probability"):
        importers.from_text("A.Compose([A.HorizontalFlip(probability=0.5)])", version="1")


def test_what_cannot_be_mapped_is_left_out_where_that_is_asked_for() -> None:
    text = "A.Compose([A.HorizontalFlip(), A.RandomGravel(p=0.1), A.Normalize()])"
    with pytest.raises(
        ValueError,
        match=r"RandomGravel: is not known here; write ops\.Custom\(my_step\), .*: no op here does it\nLeave them out",
    ):
        importers.from_text(text)
    found = importers.from_text(text, strict=False)
    assert found.recipe.ops == (ops.Flip(), ops.Normalize())
    assert [row.verdict for row in found.rows] == ["exact", "left out", "exact"]
    assert any(
        note.startswith("RandomGravel: is not known here; write") and note.endswith(": left out.")
        for note in found.notes
    )
    assert found.table().text().splitlines()[2].split("   ")[0].strip() == "RandomGravel"


def test_an_object_is_read_as_its_library_says() -> None:
    class Compose:
        def to_dict(self) -> dict[str, Any]:
            return {"__class_fullname__": "Compose", "p": 1.0, "transforms": [{"__class_fullname__": "NoOp", "p": 1.0}]}

    Compose.__module__ = "albumentations.core.composition"
    assert importers.from_object(Compose()).recipe.ops == (ops.Identity(),)
    with pytest.raises(ValueError, match="int of builtins is not a transform of torchvision"):
        importers.from_object(3)


def test_most_published_recipes_are_read_from_their_text() -> None:
    read = dict.fromkeys(("torchvision", "albumentations", "timm", "kornia"), 0)
    for entry in published(SEEN):
        try:
            importers.from_text(entry.recipe)
        except ValueError:
            continue
        read[entry.library] += 1
    assert read["torchvision"] >= 76 and read["albumentations"] >= 49 and read["timm"] == 7 and read["kornia"] >= 9


def test_crops_that_look_at_boxes_become_crops_that_keep_objects() -> None:
    text = "A.Compose([A.RandomSizedBBoxSafeCrop({}), A.HorizontalFlip()])"
    for call, version in (("48, 64", "1"), ("48, 64", "2"), ("height=48, width=64, erosion_rate=0.0", None)):
        found = importers.from_text(text.format(call), version=version)
        crop = found.recipe.ops[0]
        assert isinstance(crop, ops.RandomResizedCrop) and crop.size == (48, 64)
        assert crop.keep_objects == ops.KeepObjects(rule="all", tries=200, fallback="whole")
        assert found.rows[0].verdict == "near" and "58 % of the views are whole images" in found.rows[0].note
        assert "images without boxes, which stay whole there, are cropped" in found.rows[0].note
    found = importers.from_text("A.AtLeastOneBBoxRandomCrop(height=48, width=64)", version="2")
    (crop,) = found.recipe.ops
    assert crop == ops.RandomCrop(size=(48, 64), keep_objects=ops.KeepObjects(rule="whole"))


@pytest.mark.parametrize(
    "call",
    [
        "A.RandomSizedBBoxSafeCrop(48, 64, erosion_rate=0.2)",
        "A.RandomSizedBBoxSafeCrop(48, 64, p=0.5)",
        "A.AtLeastOneBBoxRandomCrop(48, 64, erosion_factor=0.3)",
        "A.BBoxSafeRandomCrop()",
        "A.CropNonEmptyMaskIfExists(256, 256)",
    ],
)
def test_crops_of_other_sizes_or_by_masks_are_refused_with_what_to_write(call: str) -> None:
    with pytest.raises(ValueError, match="be cut, and is not mapped; 0.0 is|write Random|always applied; set p=1"):
        importers.from_text(call)


KORNIA: dict[str, Any] = {
    "K.ColorJitter(0.1, 0.2, saturation=1.5, hue=(-0.1, 0.2), p=0.4)": ops.ColorJitter(
        brightness=(0.9, 1.1),
        contrast=(0.8, 1.2),
        saturation=(0, 2.5),
        hue=(-0.1, 0.2),
        about="mean",
        space="hsv",
        p=0.4,
    ),
    "K.RandomAffine((-3, 20), (0.1, 0.2), (0.8, 1.2), 10.0, padding_mode='border')": ops.AllOf(
        ops=[
            ops.Zoom(factor=(0.8, 1.2)),
            ops.Shear(horizontal_deg=(-10, 10), vertical_deg=(0, 0)),
            ops.Rotate(max_deg=(-20, 3), step=None),
            ops.Translate(horizontal=(-0.1, 0.1), vertical=(-0.2, 0.2)),
        ],
        p=0.5,
    ),
    "K.RandomAffine(0, shear=(3, 9, 1, 2), translate=0.1, p=1)": ops.AllOf(
        ops=[
            ops.Shear(horizontal_deg=(3, 9), vertical_deg=(1, 2)),
            ops.Rotate(max_deg=(0, 0), step=None),
            ops.Translate(horizontal=(0, 0), vertical=(-0.1, 0.1)),
        ]
    ),
    "K.RandomRotation(30.0, p=0.2)": ops.Rotate(max_deg=(-30, 30), step=None, p=0.2),
    "K.RandomSharpness(0.7)": ops.Sharpness(factor=(0, 0.7), p=0.5),
    "K.RandomBrightness((0.6, 1.4))": ops.BrightnessContrast(brightness=(-0.4, 0.4), contrast=(0, 0), p=1.0),
    "K.RandomGaussianBlur(3, (0.1, 2.0))": ops.GaussianBlur(sigma_px=(0.1, 2.0), kernel_px=3, p=0.5),
    "K.LongestMaxSize(64)": ops.ResizeLongest(size=64, rounding="down", align_corners=True),
    "K.ColorJitter(hue=1.0)": ops.ColorJitter(
        **dict.fromkeys(("brightness", "contrast", "saturation"), (1, 1)), hue=(-0.5, 0.5), about="mean", space="hsv"
    ),
    "K.CenterCrop(32)": ops.RandomCrop(size=(32, 32), p=0.0),
    "K.RandomErasing()": ops.Erase(scale=(0.02, 0.33), ratio=(0.3, 3.3), fill=(0, 0, 0), p=0.5),
}


@pytest.mark.parametrize("text", KORNIA)
def test_augmentations_of_kornia_are_read_as_it_builds_them(text: str) -> None:
    # checked against the objects that kornia 0.9 makes of these texts
    assert importers.from_text(text).recipe.ops[0] == KORNIA[text]


def test_sequences_of_kornia() -> None:
    found = importers.from_text(
        "K.AugmentationSequential(K.Normalize(torch.tensor(0), torch.tensor(255)), "
        "nn.Sequential(K.RandomVerticalFlip()), K.Resize((32, 48)), data_keys=['image', 'boxes'], same_on_batch=True)"
    )
    last = ops.Normalize(mean=(0, 0, 0), std=(1, 1, 1))  # of levels in 0..255: images in 0..1
    resize = ops.Resize(size=(32, 48), align_corners=True)
    assert found.recipe.ops == (ops.Flip(direction="vertical"), resize, last)
    assert [row.verdict for row in found.rows] == ["exact", "exact", "exact"]
    assert "same_on_batch" in found.notes[0]
    with pytest.raises(ValueError, match="RandomSnow: is not known here"):
        importers.from_text("nn.Sequential(K.RandomSnow(), K.RandomHorizontalFlip())")
    with pytest.raises(ValueError, match="of kornia.geometry.transform is not an augmentation"):
        importers.from_text("nn.Sequential(kornia.geometry.transform.Hflip(), K.RandomHorizontalFlip())")
    with pytest.raises(ValueError, match="p_batch=0.5 applies it to whole batches"):
        importers.from_text("K.RandomHorizontalFlip(p_batch=0.5)")


def test_a_resize_of_kornia_s_geometry_is_one_of_its_own() -> None:
    text = "nn.Sequential(kornia.geometry.transform.Resize({}), K.RandomHorizontalFlip())"
    for arguments, expected in (
        ("9", ops.ResizeShortest(size=9)),
        ("9, side='long'", ops.ResizeLongest(size=9, rounding="down")),
        ("size=(8, 9)", ops.Resize(size=(8, 9))),
        ("9, align_corners=True", ops.ResizeShortest(size=9, align_corners=True)),
    ):
        found = importers.from_text(text.format(arguments))
        assert found.recipe.ops[0] == expected and not found.recipe.antialias and not found.notes
    with pytest.raises(ValueError, match="side='vert' is not mapped; 'short' and 'long' are"):
        importers.from_text(text.format("9, side='vert'"))


def test_a_jiggle_of_kornia_adds_brightness_and_multiplies_by_contrast() -> None:
    found = importers.from_text("nn.Sequential(K.ColorJiggle(0.1, 0.2, 0.3, 0.4, p=0.7), K.RandomHorizontalFlip())")
    assert found.recipe.ops[0] == ops.AllOf(
        ops=(
            ops.BrightnessContrast(brightness=(-0.1, 0.1), contrast=(-0.2, 0.2), p=1),
            ops.Saturation(factor=(0.7, 1.3)),
            ops.Hue(turns=(-0.4, 0.4), space="hsv"),
        ),
        p=0.7,
    )
    assert "the order is contrast" in str(found.notes) and "that of HSV" in str(found.notes)
    assert not importers.from_text("K.ColorJiggle(0.1)").notes


@pytest.mark.parametrize("name", ["ColorJitter", "ColorJiggle"])
def test_an_order_of_kornia_s_jitter_that_is_given_is_not_one_that_is_drawn(name: str) -> None:
    with pytest.raises(ValueError, match=r"order=\[0, 1\] is not mapped"):
        importers.from_text(f"K.{name}(0.1, 0.1, 0.1, 0.1, order=(0, 1))")


def test_which_boxes_stay_is_an_option_of_the_call() -> None:
    flip = "v2.RandomHorizontalFlip()"
    found = importers.from_text(f"v2.Compose([{flip}, v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(min_size=3)])")
    assert found.recipe.ops == (ops.Flip(),) and [row.verdict for row in found.rows] == ["exact", "near"]
    (told,) = found.notes
    assert "targets=TargetOptions(boxes='corners', min_area=9)" in told and "one of its sides is below 3." in told


def test_what_changes_no_image_says_nothing() -> None:
    """Points that are not shown are left out here, too."""
    listed = "v2.RandomHorizontalFlip(), v2.ClampKeyPoints(), v2.SetClampingMode('soft'), v2.SanitizeKeyPoints()"
    found = importers.from_text(f"v2.Compose([v2.ToImage(), {listed}, v2.ConvertImageDtype()])")
    assert found.recipe.ops[0] == ops.Flip() and len(found.rows) == 1 and not found.notes
    assert found == importers.from_text(
        "v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])"
    )


@pytest.mark.parametrize("name", ["min_size", "min_area"])
def test_boxes_stay_by_one_number_of_pixels(name: str) -> None:
    with pytest.raises(ValueError, match=rf"SanitizeBoundingBoxes: {name}=\(3, 5\) must be one number, of pixels"):
        importers.from_text(f"v2.Compose([v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes({name}=(3, 5))])")


def test_jpeg_files_of_each_library() -> None:
    for call, expected in (
        ("v2.Compose([v2.JPEG(30), v2.RandomHorizontalFlip()])", ops.JpegCompression(quality=(30, 30), p=1)),
        ("v2.Compose([v2.JPEG((5, 80)), v2.RandomHorizontalFlip()])", ops.JpegCompression(quality=(5, 80), p=1)),
        (
            "A.Compose([A.ImageCompression(quality_lower=75, quality_upper=90, p=0.2)])",
            ops.JpegCompression(quality=(75, 90), blue_first=True, p=0.2),
        ),
        (
            "A.Compose([A.ImageCompression(quality_range=(0, 9))])",
            ops.JpegCompression(quality=(1, 9), blue_first=True, p=0.5),
        ),
        ("K.AugmentationSequential(K.RandomJPEG(20.0, p=0.3))", ops.JpegCompression(quality=(30, 70), p=0.3)),
        ("K.AugmentationSequential(K.RandomJPEG((0.5, 60.5)))", ops.JpegCompression(quality=(1, 60), p=1)),
    ):
        found = importers.from_text(call)
        assert found.recipe.ops[0] == expected
        assert found.rows[0].verdict == ("near" if "RandomJPEG" in call else "exact")
    first = "A.Compose([A.ImageCompression(75, 90, p=0.2)])"
    assert importers.from_text(first, version="1").recipe.ops[0] == ops.JpegCompression(
        quality=(75, 90), blue_first=True, p=0.2
    )
    with pytest.raises(
        ValueError, match=r"compression_type=75 is not mapped, 'jpeg' is; read version 1, where a quality"
    ):
        importers.from_text(first)
    with pytest.raises(ValueError, match=r"compression_type='webp' is not mapped, 'jpeg' is\n"):
        importers.from_text("A.Compose([A.ImageCompression('webp')])")


def test_one_number_for_the_noise_of_imgaug_is_its_largest_deviation() -> None:
    noise = importers.from_text("A.Compose([A.IAAAdditiveGaussianNoise(scale=10)])").recipe.ops[0]
    assert noise == ops.Noise(std=(0, 10), per_channel=False, p=0.5)


def test_what_never_happens_needs_no_op() -> None:
    crop = "A.RandomResizedCrop(height=64, width=64, p=0.0)"  # as in a widely used detector's recipe
    found = importers.from_text(f"A.Compose([{crop}, A.ToGray(p=0.01), A.RandomGravel(p=0.0)])")
    assert [op.op for op in found.recipe.ops] == ["grayscale"]
    never = [row for row in found.rows if not row.ops]
    assert [(row.name, row.verdict) for row in never] == [("RandomResizedCrop", "exact"), ("RandomGravel", "exact")]
    assert {row.note for row in never} == {"p=0: it never happens."}
    with pytest.raises(ValueError, match="RandomGravel: is not known here"):
        importers.from_text("A.Compose([A.RandomGravel(always_apply=True, p=0.0)])")


def test_a_normalize_commutes_with_flips_and_crops() -> None:
    later = "T.RandomHorizontalFlip(), T.RandomCrop(24)"
    found = importers.from_text(f"T.Compose([T.Resize(32), T.ToTensor(), T.Normalize(0.5, 0.5), {later}])")
    assert [op.op for op in found.recipe.ops] == ["resize_shortest", "flip", "random_crop", "normalize"]
    assert found.notes == () and "Normalize" in found.exact
    for other in ("T.RandomInvert()", "T.RandomRotation(9), T.RandomGrayscale()", "T.RandomChoice([T.RandomInvert()])"):
        with pytest.raises(ValueError, match=r"Normalize: stands before Random(Invert|Grayscale), and is"):
            importers.from_text(f"T.Compose([T.Resize(32), T.ToTensor(), T.Normalize(0.5, 0.5), {other}])")


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ("T.RandomCrop(24, padding=4)", "RandomCrop"),
        ("T.Pad(4, fill=0.0), T.RandomHorizontalFlip(), T.RandomRotation(9)", "Pad, RandomRotation"),
        ("T.RandomChoice([T.RandomRotation(9), T.RandomAffine(0, shear=9)])", "RandomChoice"),
    ],
)
def test_a_border_behind_a_normalize_is_filled_with_the_level_that_becomes_its_fill(other: str, names: str) -> None:
    found = importers.from_text(f"T.Compose([T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.5, 0.2, 0.3)), {other}])")
    assert found.recipe.ops[-1] == ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.5, 0.2, 0.3))
    (view,) = found.recipe.all_views
    assert found.recipe.beyond_of(view) == ("constant", pytest.approx((127.5, 102.0, 76.5)))
    assert f"Normalize: stands before {names}, and acts last here, which is the same." in found.notes


@pytest.mark.parametrize(
    ("later", "fill"),
    [("T.Pad(4, fill=0.5)", 127.5), ("T.RandomCrop(28, padding=2, fill=1)", 255.0), ("T.Pad(4)", 0.0)],
)
def test_a_fill_behind_to_tensor_counts_from_0_to_1(later: str, fill: float) -> None:
    """As its pixels do; before it in levels, and behind Normalize in normalised numbers."""
    found = importers.from_text(f"T.Compose([T.Resize((32, 32)), T.ToTensor(), {later}, T.Normalize(0.5, 0.5)])")
    assert [op.fill for op in found.recipe.ops if hasattr(op, "fill")] == [(fill, fill, fill)]
    before = importers.from_text("T.Compose([T.Pad(4, fill=128), T.Resize((32, 32)), T.ToTensor()])")
    assert before.recipe.ops[0].fill == (128.0, 128.0, 128.0)
    turned = importers.from_text("T.Compose([T.Resize((32, 32)), T.ToTensor(), T.RandomRotation(20, fill=0.2)])")
    assert turned.recipe.fill == (51.0, 51.0, 51.0)


@pytest.mark.parametrize(("normalize", "fill"), [("", 127.5), ("T.Normalize(0.5, 0.5), ", 191.25)])
def test_crops_of_a_choice_fill_in_the_numbers_before_it(normalize: str, fill: float) -> None:
    text = (
        f"T.Compose([T.ToTensor(), {normalize}T.RandomChoice([T.RandomCrop(32, padding=4, fill=0.5), T.Resize(32)])])"
    )
    choice, _ = importers.from_text(text).recipe.ops
    assert isinstance(choice, ops.OneCrop) and isinstance(crop := choice.chains[0][0], ops.RandomCrop)
    assert crop.fill == (fill, fill, fill)


def test_a_fill_behind_to_tensor_that_is_none_of_its_numbers_is_refused() -> None:
    text = "T.Compose([T.Resize((32, 32)), T.ToTensor(), T.Pad(4, fill=128)])"
    with pytest.raises(ValueError, match=r"Pad: fills with 128 behind ToTensor, where numbers go from 0 to 1"):
        importers.from_text(text)
    found = importers.from_text(text, strict=False)
    assert [(row.name, row.verdict) for row in found.rows][-1:] == [("Pad", "left out")]
    assert [op.op for op in found.recipe.ops] == ["resize", "normalize"]


def test_what_is_filled_behind_a_normalize_is_a_level() -> None:
    holes = "A.CoarseDropout(max_holes=1, fill_value=({}, 0.5, 0.0), p=1)"
    text = "A.Compose([A.Normalize(mean=(0.5, 0.4, 0.3), std=(0.5, 0.2, 0.3)), A.OneOf([A.Rotate(), {}])])"
    found = importers.from_text(text.format(holes.format(1.0)))
    choice, _ = found.recipe.ops
    assert isinstance(choice, ops.OneOf) and isinstance(choice.ops[1], ops.CoarseDropout)
    assert choice.ops[1].fill == pytest.approx((255.0, 127.5, 76.5))
    assert any(row.ops == (choice.ops[1],) for row in found.rows)
    told = (
        "CoarseDropout: fills with 1.5, 0.5, 0, which stand for levels of 319, 128, 76; .*\n  OneOf: holds what cannot"
    )
    with pytest.raises(ValueError, match=told):
        importers.from_text(text.format(holes.format(1.5)))


def test_a_blur_of_albumentations_whose_kernel_follows_from_sigma() -> None:
    def blurs(call: str, version: str) -> tuple[ops.Op, ...]:
        return importers.from_text(call, version=version).recipe.ops

    assert blurs("A.GaussianBlur(p=1)", "2") == (ops.GaussianBlur(sigma_px=(0.5, 3.0), p=1),)
    (either,) = blurs("A.GaussianBlur(3, 2.0, p=1)", "2")
    assert isinstance(either, ops.OneOf) and either.weights == (1.0, 1.0, 2.0)  # sizes 0, 1, and 2 or 3
    assert [getattr(op, "kernel_px", 0) for op in either.ops] == [None, 1, 3]
    (either,) = blurs("A.GaussianBlur(5, p=1)", "1")  # from 3, since neither says how much
    assert isinstance(either, ops.OneOf) and [getattr(op, "kernel_px", 0) for op in either.ops] == [3, 5]


def test_the_elastic_transform_of_torchvision() -> None:
    assert importers.from_text("T.ElasticTransform(60.0)").recipe.ops == (ops.ElasticTransform(alpha=30, sigma=5, p=1),)


@pytest.mark.parametrize(("version", "p"), [("1", 1.0), ("2", 0.3)])
def test_version_1_always_applies_a_sequential(version: str, p: float) -> None:
    text = "A.Sequential([A.InvertImg(p=1), A.ToGray(p=1)], p=0.3)"
    assert importers.from_text(text, version=version).recipe.ops == (
        ops.AllOf(ops=(ops.Invert(p=1), ops.Grayscale(p=1)), p=p),
    )


@pytest.mark.parametrize("call", ["A.Resize(32, 32, 3)", "A.RandomResizedCrop((32, 32), interpolation=3)"])
def test_a_resize_by_area_averages(call: str) -> None:
    found = importers.from_text(call)
    assert found.recipe.antialias and found.recipe.interpolation == "bilinear"
    assert found.rows[0].verdict == "near" and "area interpolation becomes bilinear." in found.rows[0].note


@pytest.mark.parametrize("kind", ["image", "image_mask"])
def test_area_for_downscale_averages_and_is_not_called_exact(kind: str) -> None:
    text = "A.Compose([A.Resize(32, 32, area_for_downscale={!r})])"
    found = importers.from_text(text.format(kind), version="2")
    assert found.recipe.antialias and found.rows[0].verdict != "exact"
    assert not importers.from_text(text.format(None), version="2").recipe.antialias


def test_kornias_paddings_and_solarizations() -> None:
    text = "K.AugmentationSequential(K.PadTo((40, 50), pad_value=0.2), K.RandomSolarize((0.3, 0.5), 0.05, p=0.4))"
    pad, solarize, _ = importers.from_text(text).recipe.ops
    assert pad == ops.Pad(size=(40, 50), position="top_left", fill=51.0)
    added = ops.BrightnessContrast(brightness=(-0.05, 0.05), contrast=(0.0, 0.0), p=1.0)
    assert solarize == ops.AllOf(ops=[added, ops.Solarize(threshold=(77, 128), p=1.0)], p=0.4)


def test_arguments_of_the_other_version_are_ignored_as_version_2_does() -> None:
    """With a warning there; of a call that neither version takes as a whole."""
    text = "A.Compose([A.RandomResizedCrop(size=(32, 32)), A.Affine(rotate=(-9, 9), mode=0, p=1.0)])"
    found = importers.from_text(text)
    assert found.recipe == importers.from_text(text.replace(" mode=0,", "")).recipe
    assert "read as albumentations 2, which ignores mode of Affine." in found.notes
    for wrong in (text.replace("mode", "mood"), text.replace("size=", "sise=")):
        with pytest.raises(ValueError, match="has no argument"):
            importers.from_text(wrong)


def test_policies_behind_to_tensor_share_one_look_as_before_it() -> None:
    """Where a pass for each of their groups is more than a view may take."""
    crop, policy, last = "T.RandomResizedCrop(48), ", "T.RandAugment(), ", "T.ToTensor(), "
    before, behind = (
        importers.from_text(f"T.Compose([{crop}{listed}T.Normalize([0.5] * 3, [0.5] * 3)])")
        for listed in (2 * policy + last, last + 2 * policy)
    )
    assert behind.recipe == before.recipe and behind.recipe.num_passes == 1
    assert behind.notes == before.notes and behind.notes[0] == "RandAugment: geometry acts before tone."


def test_older_names_of_torchvision_are_read() -> None:
    older = "transforms.Compose([transforms.Scale(9), transforms.RandomSizedCrop(8, interpolation=PIL.Image.BICUBIC)])"
    newer = older.replace("Scale", "Resize").replace("RandomSizedCrop", "RandomResizedCrop").replace("PIL.Image.", "")
    newer = newer.replace("BICUBIC", "'bicubic'")
    assert importers.from_text(older).recipe == importers.from_text(newer).recipe
    v2 = "v2.Compose([v2.ToImageTensor(), v2.Resize((8, 8)), v2.{}])"
    dtypes = "ToDtype({tv_tensors.Image: torch.float32, 'others': None}, scale=True)"
    for last in ("ConvertDtype(torch.float32)", dtypes):
        assert [op.op for op in importers.from_text(v2.format(last)).recipe.ops] == ["resize", "normalize"]


def test_levels_stay_levels_where_a_dtype_is_uint8() -> None:
    listed = "v2.Compose([v2.ToDtype(torch.uint8, scale=True), v2.Resize((8, 8)), v2.RandomRotation(5, fill=128)])"
    found = importers.from_text(listed).recipe
    assert found.ops[-1].op != "normalize" and found.fill == (128.0, 128.0, 128.0)


@pytest.mark.parametrize("call", ["alb.HorizontalFlip()", "KA.RandomHorizontalFlip()"])
def test_usual_names_of_libraries_need_no_import(call: str) -> None:
    assert importers.from_text(call).recipe.ops[0] == ops.Flip()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("A.Erasing()", "Erasing: is not known here; write ops.Erase()"),
        ("A.Illumination()", "Illumination: is not known here; write ops.BrightnessContrast() or ops.Gamma()"),
        ("A.AutoContrast()", "AutoContrast: is not known here; write ops.AutoContrast()"),
        ("K.RandomMotionBlur(3, 35.0, 0.5)", "RandomMotionBlur: is not known here; write ops.MotionBlur()"),
        ("K.RandomTranspose()", "RandomTranspose: is not known here; write ops.Transpose()"),
        ("K.RandomPlasmaShadow()", "RandomPlasmaShadow: is not known here; write ops.Shadow()"),
        ("A.RandomShortestSize([480, 512])", "RandomShortestSize: is not known here; write ops.OneCrop(chains=[[ops."),
        ("A.Mosaic()", "Mosaic: is not known here; write mosaic=ops.Mosaic() of the Recipe"),
        ("K.RandomMosaic()", "RandomMosaic: is not known here; write mosaic=ops.Mosaic() of the Recipe"),
        ("v2.CutMix(num_classes=9)", "CutMix: is not known here; write mixing=[ops.CutMix()] of the Recipe"),
        ("v2.MixUp(num_classes=9)", "MixUp: is not known here; write mixing=[ops.MixUp()] of the Recipe"),
        ("K.RandomMixUpV2()", "RandomMixUpV2: is not known here; write mixing=[ops.MixUp()] of the Recipe"),
        ("K.RandomCutMixV2()", "RandomCutMixV2: is not known here; write mixing=[ops.CutMix()] of the Recipe"),
        ("T.AugMix()", "AugMix: is not known here; write recipes.trivial_augment_wide(224), or *policies.trivial"),
        ("K.RandomRain()", "RandomRain: is not known here; write ops.Custom(my_step), which calls a function"),
        ("T.FixedSizeCrop((64, 64))", "FixedSizeCrop: is not known here; write ops.RandomCrop(size=224, pad_if_needed"),
        (
            "T.RandomCrop(64, fill={'others': 'red'})",
            "RandomCrop: fill='red' is not mapped; levels are",
        ),
        (
            "T.RandomRotates()",
            "RandomRotates: is not known here; RandomRotation, RandomResize and RandomSolarize are",
        ),
        ("A.ToGrey()", "ToGrey: is not known here; ToGray"),
        ("A.Qqqq()", "Qqqq: is not known here\n"),
    ],
)
def test_a_transform_that_nobody_knows_is_answered_with_the_nearest(call: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        importers.from_text(call, version="2" if call.startswith("A.") else None)


@pytest.mark.parametrize("library", ["torchvision", "albumentations", "kornia"])
def test_a_transform_of_another_library_is_refused_with_what_takes_it(library: str) -> None:
    transform = type("Compose", (), {"__module__": f"{library}.core", "transforms": [object()]})()
    takers = {name: getattr(importers, f"from_{name}") for name in ("torchvision", "albumentations", "kornia")}
    takers.pop(library)
    for taker in takers.values():
        with pytest.raises(ValueError, match=rf"a Compose of {library} is given\. Write Recipe\.from_{library}\("):
            taker(transform)
    if library != "torchvision":
        with pytest.raises(ValueError, match=rf"Write Recipe\.from_{library}\("):
            importers.from_timm(transform)


def test_a_refusal_shows_what_all_the_others_become() -> None:
    rotate = "A.Rotate(limit=10, border_mode=cv2.BORDER_CONSTANT, value=0, interpolation=cv2.INTER_CUBIC)"
    parts = "A.Compose([A.Resize(64, 64), A.ToFloat(max_value=9999), A.GaussNoise(), A.NoOp(), A.MaskDropout()])"
    for text in (f"A.Compose([A.Resize(64, 64), A.Spatter(), {rotate}, A.HorizontalFlip(), A.Superpixels()])", parts):
        left = importers.from_text(text, version="1", strict=False)
        with pytest.raises(ValueError, match="The others become:") as caught:
            importers.from_text(text, version="1")
        refused, _, others = str(caught.value).partition("The others become:\n")
        told = dict(line.split(": ", 1) for line in refused.splitlines() if line.startswith("  "))
        shown = [re.split(r" {2,}", line.strip(), maxsplit=3) for line in others.splitlines()]
        of_others = [row for row in left.rows if f"  {row.name}" not in told]
        assert shown == [[row.name, row.became or "-", row.verdict, *filter(None, [row.note])] for row in of_others]
        assert all(row.note in told[f"  {row.name}"] for row in left.rows if row not in of_others)
    assert {row.verdict for row in left.rows} == {"exact", "left out"}


def test_where_all_is_refused_no_others_are_named() -> None:
    with pytest.raises(ValueError, match=r"add ops by hand\.$"):
        importers.from_text("A.Compose([A.MaskDropout()])", version="1")
