"""Scripts as they are written: recipes in classes, branches, calls and lists that grow, and options' defaults."""

import pytest

from augpipe import importers, ops

FLIP, UPSIDE_DOWN, UNIT = ops.Flip(p=0.5), ops.Flip(direction="vertical", p=0.5), ops.Normalize(mean=0.0, std=1.0)
HEAD = "import argparse\nfrom torchvision import transforms as T\n"
BY_PHASE = """
def get_transforms(phase, size=32):
    if phase == "train":
        return T.Compose([T.RandomHorizontalFlip(), T.Resize((size, size))])
    elif phase in ("val", "test"):
        return T.Compose([T.Resize((size, size))])
"""
GROWING = """
def get_transforms(train, mean=(0.5,)):
    steps = [T.Resize((32, 32))]
    if train:
        steps.append(T.RandomHorizontalFlip())
    steps.extend([T.RandomVerticalFlip()])
    steps += [T.ToTensor()]
    return T.Compose(steps)
"""
IN_A_CLASS = """
class Data:
    def __init__(self, train=True, size=32):
        self.size = size
        if train:
            self.transform = T.Compose([T.Resize((self.size, 8)), T.RandomHorizontalFlip()])
        else:
            self.transform = T.Compose([T.Resize((self.size, 8))])
"""
OPTIONS = """
parser = argparse.ArgumentParser()
parser.add_argument("--img-size", "-s", type=int, default=32)
parser.add_argument("--grey", action="store_true")
parser.add_argument("--rate", type=float)
args = parser.parse_args()
{}
train = T.Compose([T.Resize((args.img_size, 8))])
"""
IN_CALLS = """
sets = Folder("train", T.Compose([T.RandomHorizontalFlip()])), Folder("val", transform=T.Compose([T.Resize((32, 8))]))
"""


def read(text: str, name: str | None = None) -> tuple[ops.Op, ...]:
    return importers.from_text(HEAD + text, name).recipe.ops


def refusal(text: str, name: str | None = None) -> str:
    with pytest.raises(ValueError) as told:  # noqa: PT011 - callers look at all of it
        importers.from_text(HEAD + text, name)
    return str(told.value)


def test_a_function_is_called_with_what_it_branches_on() -> None:
    assert read(BY_PHASE, "get_transforms(phase='train', size=48)") == (FLIP, ops.Resize(size=(48, 48)))
    assert read(BY_PHASE, "get_transforms('val')") == (ops.Resize(size=(32, 32)),)
    assert read(BY_PHASE, "8") == (ops.Resize(size=(32, 32)),)
    assert "line 5: get_transforms returns by if phase == 'train'" in (told := refusal(BY_PHASE, "get_transforms"))
    assert "Call it with its arguments, as get_transforms(phase=...), or name the line of a recipe." in told
    told = refusal(BY_PHASE)
    assert "Name one of them, as train.py:6 or name='6': 6 (in get_transforms, if phase == 'train'), 8 (in " in told
    assert "takes phase, size, and is given another argument" in refusal(BY_PHASE, "get_transforms(stage='train')")
    assert "None is not a call" in refusal(BY_PHASE, "get_transforms('other')").replace(
        "get_transforms('other')", "None"
    )


def test_a_condition_may_be_turned_round() -> None:
    text = BY_PHASE.replace('if phase == "train"', "if not phase").replace('elif phase in ("val", "test")', "else")
    assert read(text, "get_transforms('')") == (FLIP, ops.Resize(size=(32, 32)))
    assert read(text, "get_transforms('val')") == (ops.Resize(size=(32, 32)),)
    either = text.replace("if not phase", "if phase and size")
    assert "returns by if phase and size" in refusal(either, "get_transforms('train')")
    assert "returns by if not phase.train" in refusal(
        text.replace("not phase", "not phase.train"), "get_transforms('')"
    )


def test_a_function_that_calls_itself_is_refused_by_its_name() -> None:
    assert refusal("def train():\n    return T.Compose([train()])", "train") == (
        "train calls itself. Write the calls that it makes."
    )


def test_what_is_assigned_may_say_its_type() -> None:
    text = "size: int = 32\ntrain: T.Compose = T.Compose([T.Resize((size, size))])"
    assert read(text) == read(text, "train") == (ops.Resize(size=(32, 32)),)
    assert "size is known only when the script runs" in refusal(text.replace(" = 32", "\nsize = 32"))
    assert "8 (in Data.__init__, self.transform, if train), 10 (" in refusal(
        IN_A_CLASS.replace("self.transform =", "self.transform: T.Compose =")
    )
    assert "the text assigns no T.Resize(. It has train." in refusal(text, "T.Resize(")


def test_a_list_of_another_file_is_not_known_where_it_grows() -> None:
    text = "from steps import STEPS\ndef train():\n    STEPS.append(T.ToTensor())\n    return T.Compose(STEPS)"
    assert "line 6: STEPS is known only when the script runs" in refusal(text, "train")


def test_a_list_grows_as_statements_say() -> None:
    resize = ops.Resize(size=(32, 32))
    assert read(GROWING, "get_transforms(train=True)") == (resize, FLIP, UPSIDE_DOWN, UNIT)
    assert read(GROWING, "get_transforms(False)") == (resize, UPSIDE_DOWN, UNIT)
    assert (
        "steps is known only when the script runs. Write its value there, or call get_transforms(train=...)"
        in refusal(GROWING)
    )
    by_name = GROWING.replace("    steps.extend", "    other = steps\n    other.append(1)\n    steps.extend")
    assert "is known only when the script runs" in refusal(by_name, "get_transforms(False)")
    in_a_loop = GROWING.replace("    if train", "    for train in range(2)")
    assert "is known only when the script runs" in refusal(in_a_loop, "get_transforms(False)")


def test_a_recipe_in_a_class_is_named_by_its_line() -> None:
    assert "8 (in Data.__init__, self.transform, if train), 10 (in Data.__init__, self.transform, unless" in refusal(
        IN_A_CLASS
    )
    resize = ops.Resize(size=(32, 8))
    found = importers.from_text(HEAD + IN_A_CLASS, "8")
    assert found.recipe.ops == (resize, FLIP) and "read with size=32, as __init__ has it by default." in found.notes
    found = importers.from_text(HEAD + IN_A_CLASS, "10")
    assert found.recipe.ops == (resize,) and not any("train=" in note for note in found.notes)
    told = refusal(IN_A_CLASS.replace("train=True, size=32", "train, size"), "10")
    assert "known only when the script runs. Write its value there, or give the object itself" in told
    changed = IN_A_CLASS.replace(
        "        if train", "        if sys.argv:\n            self.size = 8\n        if train"
    )
    assert "self.size is known only when the script runs" in refusal(changed, "10")
    later = HEAD + IN_A_CLASS + "            self.transform.transforms.insert(0, T.RandomVerticalFlip())\n"
    told = "self.transform as line 10 has it: what line 11 changes is not read."
    assert f"read with {told}" in importers.from_text(later, "10").notes


def test_what_changes_a_recipe_behind_it_is_not_overlooked() -> None:
    text = "train = T.Compose([T.RandomHorizontalFlip()])\ntrain.transforms.insert(0, T.Resize((8, 8)))"
    assert "train is known only when the script runs" in refusal(text)


def test_defaults_of_the_command_line_are_taken_and_told() -> None:
    found = importers.from_text(HEAD + OPTIONS.format(""), "train")
    assert found.recipe.ops == (ops.Resize(size=(32, 8)),)
    assert found.notes == ("read with args.img_size=32, as --img-size has it by default.",)
    for changed in (
        "args.img_size = 48",
        "parser.set_defaults(img_size=48)",
        "parser.add_argument('--img-size', default=2)",
    ):
        assert "args.img_size is known only" in refusal(OPTIONS.format(changed), "train")
    assert "args.rate is known only" in refusal(
        OPTIONS.format("").replace("Resize((args.img_size, 8", "Resize((args.rate, 8")
    )


def test_recipes_that_are_arguments_have_lines() -> None:
    assert "4 is of 2 recipes. Give each a line of its own." in refusal(IN_CALLS, "4")
    parts = IN_CALLS.replace(", Folder", "\nval = Folder").replace("sets", "train")
    assert read(parts, "4") == (FLIP,) and read(parts, "5") == (ops.Resize(size=(32, 8)),)


def test_several_that_a_function_returns_are_named_and_never_one_after_another() -> None:
    both = "def f(h):\n    return T.Compose([T.Resize((h, 8))]), T.Compose([T.RandomHorizontalFlip()])\n"
    assert "f(8) holds several. Name one of them: f(8)[0], f(8)[1]." in refusal(both, "f(8)")
    assert read(both, "f(8)[1]") == (FLIP,)
    keyed = "def f():\n    return {'train': T.Compose([T.RandomHorizontalFlip()]), 'val': T.Compose([T.ToTensor()])}\n"
    assert "Name one of them: f()['train'], f()['val']." in refusal(keyed, "f")
    assert read(keyed, "f()['train']") == (FLIP,)


def test_names_of_a_star_and_lists_made_of_others() -> None:
    star = "from torchvision.transforms import *\ntrain = Compose([Resize([2 * x for x in (16, 4)])])"
    assert importers.from_text(star).recipe.ops == (ops.Resize(size=(32, 8)),)


def test_functions_and_classes_of_the_script_are_named_and_may_be_left_out() -> None:
    own = "class Blur:\n    pass\n\ndef twice(x):\n    return 2 * x\n\n"
    text = HEAD + own + "train = T.Compose([Blur(3), twice, T.RandomHorizontalFlip()])"
    with pytest.raises(ValueError, match=r"Blur \(of this script\): is not run; .*\n  Lambda: calls a function"):
        importers.from_text(text)
    assert importers.from_text(text, strict=False).recipe.ops == (FLIP,)


@pytest.mark.parametrize(
    "function",
    [
        "lambda im: im.convert('RGB')",
        "def to_rgb(im):\n    return im.convert('RGB')",
        "def to_rgb(im):\n    '''As RGB.'''\n    if im.mode != 'RGB':\n        im = im.convert('RGB')\n    return im",
    ],
)
def test_what_makes_an_image_rgb_changes_nothing(function: str) -> None:
    name, text = ("to_rgb", f"{function}\n") if function.startswith("def") else (function, "")
    for call in (name, f"T.Lambda({name})"):
        assert read(f"{text}train = T.Compose([{call}, T.RandomHorizontalFlip(), T.ToTensor()])") == (FLIP, UNIT)
    other = text.replace("RGB')", "HSV')") or name.replace("RGB", "HSV")
    call = name if text else other
    assert "Lambda: calls a function" in refusal(f"{other if text else ''}train = T.Compose([{call}])")


@pytest.mark.parametrize(
    "function",
    [
        "def mine():\n    return 1",
        "def mine(im, how):\n    return im",
        "def mine(im):\n    im.convert('RGB')",
        "def mine(im):\n    im.mode = 'RGB'\n    return im",
    ],
)
def test_a_function_that_is_more_than_that_is_not_read(function: str) -> None:
    assert "Lambda: calls a function" in refusal(f"{function}\ntrain = T.Compose([mine, T.ToTensor()])", "train")


@pytest.mark.parametrize(
    "line", ["x.repeat(3, 1, 1)", "x.repeat(3, 1, 1) if x.size(0) == 1 else x", "torch.cat([x, x, x])"]
)
def test_a_channel_that_is_repeated_is_one_of_a_grey_image(line: str) -> None:
    for tensor in ("T.ToTensor()", "T.PILToTensor(), T.ConvertImageDtype(torch.float)"):
        found = importers.from_text(f"T.Compose([T.Grayscale(), {tensor}, T.Lambda(lambda x: {line})])")
        assert found.recipe.ops == (ops.Grayscale(p=1.0), UNIT) and found.recipe.channels == 3


LOOPS = """
size = 32
def f():
    for size in (1, 2):
        one = T.Compose([T.Resize((size, 8))])
    two = [T.Compose([T.Resize((size, 8))]) for size in (1, 2)]
    three = lambda size: T.Compose([T.Resize((size, 8))])
class Data:
    size = 48
    four = T.Compose([T.Resize((size, 8))])
    def get(self):
        self.five = T.Compose([T.Resize((size, 8))])
"""


def test_what_a_name_stands_for_is_that_of_its_place() -> None:
    for line in ("7", "8", "9"):
        assert f"line {line}: size is known only when the script runs" in refusal(LOOPS, line)
    assert read(LOOPS, "12") == (ops.Resize(size=(48, 8)),)
    assert read(LOOPS, "14") == (ops.Resize(size=(32, 8)),)


def test_a_condition_of_another_file_is_not_known() -> None:
    text = "from mine import DEBUG, SIZE\ndef f():\n    steps = []\n    if {}:\n        steps.append(T.ToTensor())\n"
    text += "    return T.Compose(steps)"
    for condition in ("DEBUG", "DEBUG == 'x'", "not DEBUG", "SIZE.x in (1, 2)"):
        assert "steps is known only when the script runs" in refusal(text.format(condition), "f")
    assert "line 4: SIZE is known only when" in refusal("from mine import SIZE\nt = T.Compose([T.Resize((SIZE, 8))])")


def test_a_line_takes_its_call_though_its_name_is_set_again() -> None:
    text = (
        "import torchvision.transforms as T\n\nc = T.Compose([T.CenterCrop(32)])\nfor n, c in {'a': 1}.items(): pass\n"
    )
    assert importers.from_text(text, "3").recipe.ops[0].op == "center_crop"


def test_arguments_in_a_dict_that_is_called_are_read() -> None:
    text = "params = dict(limit=20, p=1)\nt = A.Compose([A.Rotate(**params)])"
    assert (
        importers.from_text(text, version="2").recipe
        == importers.from_text("A.Compose([A.Rotate(limit=20, p=1)])", version="2").recipe
    )


@pytest.mark.parametrize(
    "value", ["A.Rotate(**A.Blur())", "A.Rotate(*A.Blur())", "A.Rotate(int(A.Blur()))", "A.Rotate(float('x'))"]
)
def test_what_cannot_be_unpacked_or_counted_is_refused_by_name(value: str) -> None:
    with pytest.raises(ValueError, match="is known only when the script runs"):
        importers.from_text(f"A.Compose([{value}])")


def test_settings_of_a_class_are_read_where_it_is_given_the_transforms() -> None:
    text = "class CFG:\n    size = 48\n{}CFG.train = A.Compose([A.Resize(CFG.size, CFG.size)])"
    assert importers.from_text(text.format(""), "CFG.train").recipe.ops == (ops.Resize(size=(48, 48)),)
    for changed in ("CFG.size = 64\n", "def f():\n    CFG.size = 64\n"):
        with pytest.raises(ValueError, match="CFG.size is known only when the script runs"):
            importers.from_text(text.format(changed), "CFG.train")
