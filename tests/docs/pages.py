"""For each page: what its reader has before the first block, and what is to hold after each block.

Blocks are named by how their first line begins, each by a beginning of its own.
"""

import json
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tests.datasets.annotations.annotated_sets import put_image
from tests.datasets.cards import card_trees
from tests.datasets.shards import shard_sets
from tests.docs.blocks import ROOT

Put = Callable[[Path, Path], None]
"""Puts something into a reader's folder; the other folder holds drawn images in class folders."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the test does with a page's blocks; those that are not named here run as they stand."""

    files: tuple[Put, ...] = ()
    """What lies in the reader's folder."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Block -> Python that runs before it; what it names in `given` the page's blocks know from there on."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Text of blocks -> what runs in its place, so that it ends soon."""
    then: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Block -> expressions that hold after it, as `reader.read` has them."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Blocks that do not run -> what they need."""
    plain: tuple[str, ...] = ()
    """Blocks without a language, which nothing runs."""


def photos(num: int) -> Put:
    """photos/CLASS/NAME.jpg, the drawn images over and over."""

    def put(folder: Path, drawn: Path) -> None:
        for number, file in _repeated(drawn, num):
            link = folder / "photos" / file.parent.name / f"{number}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, link)

    return put


def test_photos(folder: Path, drawn: Path) -> None:
    """test-photos/CLASS/NAME.jpg, eight of them."""
    for number, file in _repeated(drawn, 8):
        link = folder / "test-photos" / file.parent.name / f"{number}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, link)


def imagenet_tars(folder: Path, drawn: Path) -> None:
    """147 WebDataset tar files of an image each."""
    (folder / "imagenet").mkdir()
    for number, file in _repeated(drawn, 147):
        with tarfile.open(folder / f"imagenet/shard-{number:06}.tar", "w") as tar:
            tar.add(file, f"{number}.jpg")


def train_csv(folder: Path, drawn: Path) -> None:
    """A list of two images, with columns of every kind."""
    (folder / "photos").mkdir()
    lines = ["path,label,photo,species,x,y,score"]
    for number, file in _repeated(drawn, 2):
        os.link(file, folder / f"photos/{number}.jpg")
        lines.append(f"photos/{number}.jpg,{number},{number}.jpg,{'bird' if number else 'ant'},{number},1,0.5")
    (folder / "train.csv").write_text("\n".join(lines))


def points_csv(folder: Path, drawn: Path) -> None:
    """A list of two images that lie in photos/, with two numbers each."""
    files = sorted((folder / "photos").glob("*/*.jpg"))[:2]
    (folder / "list.csv").write_text("".join(["path,x,y\n", *(f"{file},0.5,2\n" for file in files)]))


def shards_with_a_fault(folder: Path, drawn: Path) -> None:
    """OUT, in two scales, with a bit of sample 5 turned in the smaller one."""
    shard_sets.build(folder / "OUT", (256, 512))
    tar = folder / "OUT/256/000001.tar"
    image = shard_sets.jpeg(5, 256)
    shard_sets.flip(tar, tar.read_bytes().index(image) + len(image) - 3)


def birds(folder: Path, drawn: Path) -> None:
    """A small CUB-200-2011, as its archive is laid out."""
    card_trees.cub200(folder / "CUB_200_2011")


def flowers(folder: Path, drawn: Path) -> None:
    """Small Oxford Flowers, as their archives are laid out."""
    card_trees.flowers102(folder / "flowers")


def two_columns(folder: Path, drawn: Path) -> None:
    """The layout of the card that docs/cards.md writes: images, and a list of them with their classes."""
    lines = []
    for number, file in _repeated(drawn, 4):
        path = folder / "photos/CAT" / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, path)
        lines.append(f"CAT/{path.name} {('cat', 'dog')[number % 2]}\n")
    (folder / "train.txt").write_text("".join(lines))


def annotated(folder: Path, drawn: Path) -> None:
    """coco, yolo, voc and city: four images each, with an object each of two classes, or with a label map."""
    size = (120, 160)
    names = [f"{number}.jpg" for number in range(4)]
    images = [{"id": 5 + n, "file_name": name, "height": 120, "width": 160} for n, name in enumerate(names)]
    objects = [
        {"id": n, "image_id": 5 + n, "category_id": 1 + n % 2, "iscrowd": 0, "area": 100, "bbox": [10, 20, 30, 40]}
        for n in range(4)
    ]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    (folder / "coco/annotations").mkdir(parents=True)
    content = {"images": images, "annotations": objects, "categories": categories}
    (folder / "coco/annotations/instances.json").write_text(json.dumps(content))
    (folder / "panoptic/panoptic_val").mkdir(parents=True)
    (folder / "panoptic/images").symlink_to(folder / "coco/images")
    own = [{"id": 255, "category_id": 1, "iscrowd": 0, "area": 9600, "bbox": [0, 0, 160, 60]}]
    rows = [{"image_id": 5 + n, "file_name": f"{n}.png", "segments_info": own} for n in range(4)]
    (folder / "panoptic/panoptic_val.json").write_text(json.dumps(content | {"annotations": rows}))
    drawn_map = Image.new("RGB", (160, 120))
    drawn_map.paste((255, 0, 0), (0, 0, 160, 60))
    for n in range(4):
        drawn_map.save(folder / f"panoptic/panoptic_val/{n}.png")
    box = "<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>40</xmax><ymax>60</ymax></bndbox>"
    for number, name in enumerate(names):
        for place in ("coco/images", "yolo/images/train", "voc/JPEGImages", "city/images"):
            put_image(folder / place / name, size)
        for place in ("voc/SegmentationClass", "city/masks"):
            (folder / place).mkdir(exist_ok=True)
            Image.new("L", size[::-1], number).save(folder / place / f"{number}.png")
        (folder / "yolo/labels/train").mkdir(parents=True, exist_ok=True)
        (folder / f"yolo/labels/train/{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.25 0.25\n")
        (folder / "voc/Annotations").mkdir(exist_ok=True)
        xml = f"<annotation><object><name>cat</name>{box}</object></annotation>"
        (folder / f"voc/Annotations/{number}.xml").write_text(xml)
    (folder / "yolo/data.yaml").write_text("train: images/train\nnames: [cat, dog]\n")
    for kind in ("Main", "Segmentation"):
        (folder / "voc/ImageSets" / kind).mkdir(parents=True)
        (folder / "voc/ImageSets" / kind / "train.txt").write_text("0\n1\n2\n3\n")


def _repeated(drawn: Path, num: int) -> list[tuple[int, Path]]:
    files = sorted(drawn.glob("*/*.jpg"), key=lambda file: file.name)  # one of each class in turn
    return [(number, files[number % len(files)]) for number in range(num)]


A_COMPOSE = """
def made(name, **attributes):
    made = type(name, (), {})()
    vars(made).update(attributes)
    return made

crop = made("RandomResizedCrop", size=(224, 224), scale=(0.3, 1.0), ratio=(0.75, 1.33), interpolation=2, antialias=True)
given["transform"] = made("Compose", transforms=[crop, made("RandomHorizontalFlip", p=0.5), made("ToTensor")])
"""
"""An object of torchvision, which need not be installed."""
AN_EDITED_CONFIG = {
    "augpipe train --example > run.toml": "augpipe train --example | sed 's/^epochs = .*/epochs = 1/; "
    "s/^size = .*/size = 64/; s/^scales = .*/scales = [72]/; s/^batch_size = .*/batch_size = 4/' > run.toml",
}
"""The reader edits run.toml before training with it."""
A_SMALL_RUN = AN_EDITED_CONFIG | {"--nproc-per-node 4": "--nproc-per-node 2"}
"""And with fewer ranks."""
TWO_RUNS = """
import logging
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run

logging.disable()
data = {'source': 'photos', 'eval_source': 'photos', 'size': 64, 'scales': [72], 'batch_size': 4}
for name, width in (('first', 2), ('second', 3)):
    model, report = {'options': {'width': width}}, {'tensorboard': False, 'progress': False}
    run(make_config({'out': f'runs/{name}', 'epochs': 1, 'data': data, 'model': model, 'report': report}))
"""
"""Runs of the page on evaluation."""
ONE_RANK = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(3, 1))


def averages():
    model(torch.ones(2, 3)).sum().backward()
    return torch.equal(model.module.weight.grad, torch.full((1, 3), 2.0))
"""
"""A model in DistributedDataParallel, and whether it trains with the hook that it was given."""

PAGES = {
    "README.md": Page(
        files=(photos(64),),
        then={
            "from augpipe import": (
                "images.shape == (64, 3, 224, 224) and images.dtype == torch.float32",
                "labels.shape == (64,) and labels.dtype == torch.int64",
            ),
        },
        needs={"make demo": "make"},
    ),
    "CONTRIBUTING.md": Page(needs={"make format": "make"}),
    "docs/README.md": Page(),
    "docs/annotations.md": Page(
        files=(annotated,),
        then={
            "import numpy as np": (
                "found.counts.tolist() == [1, 1] and found.boxes.tolist() == [[10, 20, 40, 60]] * 2",
                "[source.object_classes[label] for label in found.labels] == ['cat', 'dog']",
            ),
            "from augpipe.datasets.annotations.coco": (
                "source.image_ids == [5, 6, 7, 8]",
                "classes[0, 0] == 0 and classes[-1, 0] == 255 and segments[0]['id'] == 255",
                "rows == [{'image_id': 5, 'category_id': 1, 'bbox': [10, 20, 50, 60], 'score': 0.9}]",
            ),
            "from augpipe.datasets.annotations.yolo": ("source.num_objects == 4",),
            "from augpipe.datasets.annotations.voc": ("source.num_objects == 4 and maps.label_map(2)[0, 0] == 2",),
            "from augpipe.datasets.annotations.label_map_source": ("labels.shape == (120, 160)",),
        },
    ),
    "docs/cards.md": Page(
        files=(birds, two_columns),
        before={
            "from augpipe": "import warnings; warnings.filterwarnings('ignore', '.* photographs, and .* are official')"
        },
        then={
            "from augpipe import": (
                "source.classes[source.label(0)] == '001.Black_footed_Albatross'",
                "source.box(0) == (1.0, 27.0, 325.5, 304.0)",
            ),
            "name = ": ("open_card('mine.toml', '.').classes == ('cat', 'dog')",),
        },
    ),
    "docs/checkpoints.md": Page(
        files=(photos(16),),
        before={"augpipe checkpoint convert runs/first": TWO_RUNS},
        then={
            "augpipe checkpoint convert runs/first": ("there('weights.safetensors')",),
            "import json": (
                "sum(tensor.numel() for tensor in weights.values()) > 100",
                "safe_open('weights.safetensors', 'pt').keys() == sorted(weights)",
                "all(weights[n].equal(safe_open('weights.safetensors', 'pt').get_tensor(n)) for n in weights)",
                "{name.split('/')[0] for name in tensors} == {'common', 'rank0'}",
            ),
        },
        plain=("runs/first/checkpoints", "mv runs/old"),
    ),
    "docs/codecs.md": Page(
        then={
            "import numpy": (
                "payload.dtype == np.uint8 and payload.shape == (codec.num_bytes(gradient.size),)",
                "np.all(abs(codec.decode(payload) - gradient) <= codec.error_bound(gradient))",
                "num_bad == 0 and np.array_equal(total, codec.decode(payload))",
            ),
            "from augpipe.trainer.codecs": ("list(feedback.state_dict()) == ['bucket 3, rank 1']",),
        },
    ),
    "docs/dali.md": Page(
        files=(photos(8),),
        instead={
            "batch_size=256, num_threads=8, device_id=0": "batch_size=8, num_threads=2, device_id=None",
            "mixed": "cpu",
        },
        then={
            "from augpipe import": (
                "training([*map(str, Path('photos').glob('*/*'))], 0).run()[0].as_array().shape == (8, 3, 224, 224)",
            )
        },
    ),
    "docs/config.md": Page(plain=("[data]",)),
    "docs/decoding.md": Page(
        files=(photos(256),),
        then={
            "from augpipe import": (
                "re.fullmatch(r'\\d+ pictures in \\d+ MiB of 2.00 GiB, all that came; "
                "[\\d,]+ of 2,560 samples \\(\\d\\d.\\d %\\) were there\\n', output)",
            ),
        },
    ),
    "docs/design.md": Page(plain=("recipe ──",)),
    "docs/epochs.md": Page(
        files=(photos(256),),
        instead={"num=100_000": "num=1024", "range(loader.epoch, 10)": "range(loader.epoch, 1)"},
        then={"from augpipe import Place": ("place == places[1] and images.shape == (256, 3, 224, 224)",)},
    ),
    "docs/explain.md": Page(
        files=(photos(160),),
        instead={"step == 20": "step == 3"},
        then={"import time": ("loader.epoch == 0",)},
        plain=("            share",),
    ),
    "docs/evaluate.md": Page(
        files=(photos(16),),
        needs={"torchrun": "four ranks; test_partial.py evaluates among three"},
        before={"augpipe evaluate": TWO_RUNS},
        instead={"--robustness usual": "--robustness deep_image --strengths 0,1"},
        then={
            "augpipe evaluate": (
                "there('tested/evaluation.json', 'tested/predictions.csv')",
                "there('tested/changes.csv', 'tested/robustness.csv', 'tested/evaluation.html')",
                "output.count('all together') == 2 and output.count('dense at 224, 256, 320 px') == 1",
            ),
            "from augpipe.trainer.evaluation import Views": ("output.count('ECE') == 3",),
            "from augpipe.trainer.evaluation import changes_of": ("output.count(', p = ') == 1",),
            "from augpipe import Recipe, ops": ("output.count('x 0.5: ') == 2",),
        },
    ),
    **{f"docs/evidence/{path.name}": Page() for path in (ROOT / "docs" / "evidence").glob("*.md")},  # no blocks
    "docs/experiments.md": Page(),
    "docs/formats.md": Page(),
    "docs/labels.md": Page(
        files=(train_csv,),
        before={"import torch": "import torch; given['model'] = lambda images: torch.zeros(len(images), 2)"},
        then={
            "from augpipe import": (
                "source.classes == ('ant', 'bird') and source.label(0) == 0",
                "labels.shape == (2,) and labels.dtype == torch.int64",
            ),
            "import torch": (
                "source.classes == ('x', 'y') and sorted(labels.tolist()) == [[0, 1], [1, 1]]",
                "labels.dtype == torch.int64 and abs(loss - np.log(2)) < 1e-6",
            ),
        },
    ),
    "docs/gpu.md": Page(needs={"from augpipe import": "a GPU"}),
    "docs/keep_objects.md": Page(
        files=(annotated,),
        then={"from augpipe": ("len(tries) == len(targets) == 4 and (1 <= tries).all() and (tries <= 50).all()",)},
    ),
    "docs/loader.md": Page(
        files=(photos(256),),
        instead={"range(90)": "range(2)"},
        then={
            "from augpipe import Loader": (
                "images.shape == (256, 3, 224, 224) and images.dtype == torch.float32",
                "labels.shape == (256,) and labels.dtype == torch.int64",
            ),
        },
    ),
    "docs/augment.md": Page(
        files=(photos(256),),
        before={
            "import torch\nfrom augpipe import Augment": "from pathlib import Path\n"
            "paths = sorted(Path('photos').glob('*/*.jpg')); given = {'paths': paths, 'labels': [0] * 256}"
        },
        instead={"range(90)": "range(2)", "num_workers=8": "num_workers=2"},
        then={
            "import torch\nfrom augpipe import Augment": (
                "images.shape == (256, 3, 224, 224) and images.dtype == torch.float32",
                "labels.shape == (256,) and labels.dtype == torch.int64",
            ),
        },
    ),
    "docs/measured-clusters.md": Page(),
    "docs/measured-exchange.md": Page(),
    "docs/measured-gpu.md": Page(),
    "docs/models.md": Page(
        before={
            "from augpipe.trainer.models.weights": "import torch; from augpipe.trainer.models import build\n"
            "torch.save(build('deep-image-16', num_classes=1000, fc_widths=(64, 64)).state_dict(), 'vgg16.pth')"
        },
        instead={"(4096, 4096)": "(64, 64)"},
        then={
            "from augpipe.trainer.models import": ("output.startswith('deep-image-16, deep-image-19')",),
            "from augpipe.trainer.models.weights": ("'30 of the model\\'s 32 tensors match' in output",),
            "from augpipe.trainer.models.finetune": (
                "output.startswith('classifier.0, classifier.3, classifier.6 train')",
            ),
        },
    ),
    "docs/performance.md": Page(
        files=(photos(64),),
        instead={"--recipe deep_image": "--recipe deep_image --seconds 0.3"},
        then={"augpipe bench": ("'loader, from disk' in output",)},
        plain=(" images/s",),
    ),
    "docs/prepare.md": Page(
        files=(photos(24), flowers),
        instead={name: f"--workers 1 {name}" for name in ("--card flowers102 flowers/", "--keep photos/")}
        | {"sample drawn --targets": "sample drawn --targets --num 20"},
        then={
            "augpipe prepare photos/": (
                "there('OUT/manifest.json', 'OUT/rejects.csv', 'OUT/report.html')",
                "there('OUT/256/000000.tar', 'OUT/512/000000.tar')",
                "'OUT: 24 samples at 256, 512 in 2 shards: all is well' in output",
            ),
            "from augpipe.datasets.open": (
                "Path('OUT/manifest.json').read_bytes() == Path('SHARDS/manifest.json').read_bytes()",
            ),
            "augpipe prepare --keep": (
                "all(path.read_bytes() in Path('KEPT/full/000000.tar').read_bytes()"
                " for path in Path('photos').glob('*/*.jpg'))",
            ),
            "augpipe prepare --card": (
                "sorted(os.listdir('FLOWERS')) == ['test', 'train', 'val'] and os.listdir('TRAIN') == ['train']",
                "'FLOWERS/train: 3 samples' in output",
            ),
        },
        plain=("OUT/manifest.json",),
    ),
    "docs/preview.md": Page(),
    "docs/recipes.md": Page(
        files=(photos(4),),
        before={
            # objects of the two libraries, which need not be installed
            "from augpipe import importers": (
                "given['compose'] = type('RandomEqualize', (), {'p': 0.5})()\n"
                "given['transform'] = {'transform': {'__class_fullname__': 'ToGray', 'p': 0.5}}\n"
                "given['A'] = type('A', (), {'to_dict': staticmethod(dict)})\n"
                "given['module'] = type('RandomEqualize', (), {'p': 0.5})()\n"
            ),
        },
        then={
            "def window(image": (
                "[windowed.num_passes, *(op.key for op in windowed.ops[:2])] == [2, 'random_resized_crop', 'window']",
            ),
            "from augpipe import Recipe, View": (
                "[image.shape[2] for image in next(iter(__import__('augpipe').Loader('photos/', recipe, batch_size=4)))"
                ".images] == 2 * [224] + 6 * [96]",
            ),
        },
    ),
    "docs/made-fast.md": Page(),
    "docs/mixing.md": Page(
        files=(photos(4), annotated),
        then={
            "from augpipe import Loader, MixedLabels": (
                "images.shape == (4, 3, 224, 224) and soft.shape == (4, 10)",
                "weights.shape == labels.shape == other_labels.shape == (4,)",
            ),
            "from augpipe import Loader, Schedule": (
                "next(iter(loader)).images.shape == (4, 3, 128, 128)",
                "Schedule.load('growing.toml') == schedule",
            ),
            'name = "growing-in-two"': (
                "[stage.epoch for stage in Schedule.load('growing-in-two.toml').stages] == [0, 12]",
            ),
            "mosaic = Recipe(": (
                "batch.images.shape == (4, 3, 64, 64) and len(batch.targets) == 4",
                "batch.plan.rows['mosaic']['partners'].shape == (4, 3)",
            ),
        },
    ),
    "docs/ops.md": Page(),
    "docs/parallel.md": Page(
        instead={
            'init_process_group("gloo")': 'init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, '
            "world_size=1)",
            "make_mesh(model=2)": "make_mesh(model=1)",
            'model("alexnet"': 'model("alexnet", fc_widths=(64, 64)',
            "in loader:": "in [(torch.rand(2, 3, 64, 64), torch.tensor([1, 2]))]:",
        },
        needs={"torchrun": "a run of four ranks"},
        then={"import torch": ("report.bytes_sent['activations'] == 0 and 'classifier.6' in str(made)",)},
    ),
    "docs/release.md": Page(needs={"make check-wheels": "the network"}),
    "docs/remote.md": Page(
        needs={"from augpipe import": "the network", "from augpipe.datasets": "the network"},
        plain=("https://data.example.org",),
    ),
    "docs/scale.md": Page(),
    "docs/servers.md": Page(needs={"pip install": "the network"}),
    "docs/shards.md": Page(
        files=(shards_with_a_fault,),
        then={"from augpipe import": ("loader.source.scale == '512'",)},
        plain=("OUT/",),
    ),
    "docs/simulate.md": Page(then={"augpipe train": ("there('drawn/scaling.png', 'drawn/timeline.png')",)}),
    "docs/sources.md": Page(
        files=(imagenet_tars, train_csv),
        then={
            "from augpipe import": ("len(loader.source) == 147",),
            "from augpipe.datasets.formats.file_list": (
                "plain.classes == ('0', '1') and named.classes == ('ant', 'bird') and named.read(1)",
                "numbers.labels().tolist() == [[0, 1, 0.5], [1, 1, 0.5]] and unlabelled.label(1) == -1",
            ),
            "from augpipe.datasets.formats.tar.tar_source": ("len(loader.source) == 147",),
            "class Mine": ("__import__('augpipe.sources.protocol').sources.protocol.is_source(Mine())",),
        },
    ),
    "docs/start.md": Page(
        files=(photos(64), test_photos),
        before={
            # objects of the other libraries, which need not be installed
            "from augpipe import Recipe, importers": A_COMPOSE,
            "recipe = Recipe.from_albumentations": """
crop = {"__class_fullname__": "RandomResizedCrop", "size": [224, 224], "scale": [0.3, 1], "ratio": [0.75, 1.33], "p": 1}
given["transform"] = {"transform": {"__class_fullname__": "Compose", "transforms": [crop], "p": 1.0}}
given["A"] = type("A", (), {"to_dict": staticmethod(dict)})
""",
            "recipe = Recipe.from_kornia": (
                "given['module'] = type('Resize', (), {'p': 1.0, 'flags': {'size': (224, 224)}})()\n"
            ),
        },
        instead={"--seconds 5": "--seconds 0.3"},
        needs={"pip install": "the network", "augpipe doctor": "ten seconds; test_doctor.py runs it"},
        then={
            "augpipe stats": ("there('sheet.png')", "'loader, from disk' in output"),
            "from augpipe import Loader, recipes": (
                "images.shape == (32, 3, 224, 224) and images.dtype == torch.float32",
                "labels.shape == (32,) and labels.dtype == torch.int64",
            ),
            "test_loader": ("next(iter(test_loader)).images.shape == (8, 3, 224, 224)",),
            "from augpipe import Recipe, ops": ("Recipe.load('mine.toml') == recipe",),
            "augpipe preview photos/ --recipe": ("there('mine.png')",),
            "from augpipe import Recipe, importers": (
                "[op.op for op in recipe.ops] == ['random_resized_crop', 'flip', 'normalize']",
                "output.startswith('exactly: RandomResizedCrop, RandomHorizontalFlip')",
            ),
            "recipe = Recipe.from_albumentations": ("[op.op for op in recipe.ops][0] == 'random_resized_crop'",),
            "from augpipe import recipes": ("'random_resized_crop' in [op.op for op in recipe.ops]",),
        },
    ),
    "docs/trainers.md": Page(
        files=(photos(64),),
        before={"from augpipe import Loader, Recipe\n\n#": A_COMPOSE},
        instead=AN_EDITED_CONFIG,
        needs={"import os": "GPUs"},
        then={
            "from augpipe import Loader, Recipe\n\n#": (
                "(len(loader), loader.drop_last) == (2, True)",
                "[op.op for op in loader.recipe.ops] == ['random_resized_crop', 'flip', 'normalize']",
            ),
            "import torch\n\nfrom augpipe import Loader, Recipe": ("output.count(': loss ') == 2",),
            "augpipe train --example": ("there('runs/first/report.html', 'runs/first/curves.png')",),
        },
    ),
    "docs/stats.md": Page(
        files=(photos(26), points_csv),
        then={
            "augpipe stats": ("there('plots/sizes.png', 'plots/classes.png', 'plots/duplicates.png')",),
            "from augpipe.datasets": ("found.duplicates.groups",),
        },
    ),
    "docs/sync.md": Page(
        files=(photos(12),),
        before={"from augpipe.trainer": ONE_RANK + "given = {'ddp': model, 'averages': averages}"},
        then={
            "import torch": ("sum(report.bytes_sent.values()) == 0",),
            "from augpipe.trainer": ("averages()",),
        },
    ),
    "docs/target_batches.md": Page(
        files=(annotated,),
        then={
            "from augpipe import Loader, Recipe, ops\n\ncrop": (
                "images.shape == (4, 3, 512, 512) and images.min() >= 0 and images.max() <= 1",
                "sorted(int(label) for target in targets for label in target['labels']) == [1, 1, 2, 2]",
            ),
            "crop = ops.RandomCrop(size=512": (
                "images.shape == (4, 3, 512, 512) and maps.shape == (4, 512, 512) and maps.dtype.itemsize == 8",
                "set(maps.unique().tolist()) == {0, 1, 2, 3, 255}",
            ),
            "import numpy as np\nfrom augpipe import Loader": (
                "len(targets) == len(images) == 4 and images.shape == (4, 3, 32, 32)",
                "set(targets[0]) >= {'boxes', 'labels', 'area', 'iscrowd', 'image_id', 'object_ids'}",
            ),
            "batch": ("places.shape == (2, 2)", "corners.shape == (2, 2)"),
        },
    ),
    "docs/targets.md": Page(
        then={
            "import numpy as np\nfrom augpipe import Augment": (
                "result['image'].shape == (3, 224, 224) and result['mask'].shape == (224, 224)",
                "len(result['bboxes']) == len(result['labels']) == len(result['keypoints'])",
                "len(result['object_ids']) + len(result['dropped']) == 2",
            ),
        },
    ),
    "docs/train.md": Page(
        files=(photos(16),),
        instead=A_SMALL_RUN,
        then={
            "augpipe train": (
                "there('runs/first/report.html', 'runs/first/curves.png')",
                "Path('runs/second/metrics.csv').read_text().count('\\n') > 1",
            ),
            "from augpipe.trainer": (
                "result.step == 4 and result.epochs_done == 1",
                "there('runs/third/config.toml', 'runs/third/metrics.csv', 'runs/third/checkpoints/step-*')",
            ),
        },
        plain=("runs/first/config.toml",),
    ),
}
