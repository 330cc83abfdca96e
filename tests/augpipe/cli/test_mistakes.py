"""What a newcomer does wrong, on the command line and in Python: each mistake, and the words that answer it."""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import augpipe
from augpipe import Augment, DeviceError, Loader, Plan, Recipe, SampleError, View, ops, plan, recipes
from augpipe.cli.app import app
from augpipe.datasets.cards.card import load_card
from augpipe.datasets.cards.open_card import open_card
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.nn import AugmentModule
from augpipe.ops.kinds import KINDS
from augpipe.trainer import butterfly_hook, codec, model, strategy
from augpipe.trainer.config import RunConfig, make_config
from augpipe.validation.models import FieldError
from augpipe.validation.suggest import OTHER_NAMES
from tests.child_path import child_path
from tests.messages import note

ROOT = Path(__file__).resolve().parents[3]
MOST_LINES, LONGEST_LINE = 3, 300
"""How much a message takes, without the folder that the test runs in: three lines are read at a glance, and 300 letters
hold the longest list of fields that there is, of [data]. A file with several mistakes gets a line for each."""
FOREIGN = ("pydantic", "Traceback", "[type=", "Input should", "Errno", "discriminator")
"""What no message may hold: words of libraries, which know nothing of what is being done here."""
RUN = """\
out = "run"
epochs = 1
[data]
source = "classes"
size = 32
scales = [40]
batch_size = 2
"""
FILES = {
    "texts/readme.md": "hello",
    "fake/a.jpg": "hello",
    "fake/b.jpg": "hello",
    "zero/a.jpg": "",
    "file": "x",
    "notes.txt": "nothing.jpg\n",
    "photos.zip": "PK",
    "broken.toml": "[[ops",
    "misspelt.toml": '[[ops]]\nop = "rotate"\nmax_dge = 3\n',
    "percent.toml": '[[ops]]\nop = "flip"\np = 50\n',
    "kind.toml": '[[ops]]\nkind = "flip"\n',
    "filp.toml": '[[ops]]\nop = "filp"\n',
    "names.toml": 'ops = ["flip"]\n',
    "mean.toml": '[[ops]]\nop = "normalize"\nmean = 123\n',
    "scales.toml": '[[ops]]\nop = "multi_resolution_crop"\nscales = 256\n',
    "two.toml": '[[ops]]\nop = "flip"\np = 50\n[[ops]]\nop = "rotate"\nmax_deg = -300\n',
    "run.toml": RUN,
    "other.toml": RUN + "[optim]\nlearning_rate = 1\n",
    "words.toml": '[data]\nsource = "classes"\nbatch_size = "many"\n',
    "no_data.toml": "epochs = 1\n",
    "flat.toml": 'data = "photos"\n',
}

COMMANDS = [
    # what there is no such command, option or argument of
    ("prevew photos", 2, "No such command 'prevew'. Did you mean 'preview', 'prepare'?"),
    ("preview", 2, "Missing argument 'SOURCE'. Try augpipe preview --help."),
    ("preview photos more", 2, "unexpected extra argument"),
    ("preview photos --recpe none", 2, "No such option: --recpe"),
    ("inspect", 2, "Missing argument 'NAME|FILE'"),
    ("inspect deep_image --jsn", 2, "No such option: --jsn"),
    ("recipe", 2, "Missing argument 'NAME|FILE'"),
    ("schema more", 2, "unexpected extra argument"),
    ("sample", 2, "Missing argument 'OUT'"),
    ("doctor --jsn", 2, "No such option: --jsn (Possible options: --json)"),
    ("prepare photos", 2, "Missing argument 'OUT'"),
    ("train", 2, "augpipe train --example > run.toml writes one to begin with"),
    ("train run.toml --lr 0.1", 2, "No such option: --lr", "is set by --set, as --set optim.lr=0.1"),
    # values of options
    ("preview photos --rows 0", 2, "Invalid value for '--rows'"),
    ("preview photos --cols many", 2, "Invalid value for '--cols'"),
    ("preview photos --seed -1", 2, "Invalid value for '--seed'"),
    ("preview photos --seed 18446744073709551616", 2, "seed=18446744073709551616 must lie in 0..2^64 - 1"),
    ("preview photos --epoch 4294967296", 2, "epoch=4294967296 must lie in 0..2^32 - 1"),
    (
        "preview photos --size 300",
        2,
        "size=300 is larger than 256, the smallest of scales=[256, 512]: a crop cannot exceed",
    ),
    ("preview photos -r none --size 3", 2, "do not go with the recipe none"),
    ("preview photos -r evaluation --scale 3 --scale 4", 2, "evaluation takes one --scale, and 2 were given"),
    ("preview photos -r misspelt.toml --size 3", 2, "--size and --scale are for recipes by name"),
    ("sample out --num 3", 2, "num=3 pictures cannot fill 10 classes"),
    ("sample out --classes 1", 2, "Invalid value for '--classes'"),
    ("bench photos --seconds 0", 2, "Invalid value for '--seconds'"),
    ("bench photos --threads 0", 2, "Invalid value for '--threads'"),
    ("demo --num 3", 2, "Invalid value for '--num'"),
    ("stats photos --workers 0", 2, "Invalid value for '--workers'"),
    ("prepare photos out --scales 0", 2, "scale '0' is none. Give the short side in pixels, 1 to 65500, or full"),
    ("prepare photos out --scales ,", 2, "scales=',' names none. Give short sides in pixels, as 256,512; or full."),
    ("prepare photos out --scales 64,64", 2, "scales are 64, 64: give each once."),
    ("prepare photos out --scales 64,big", 2, "scale 'big' is none"),
    ("prepare photos out --shard-bytes many", 2, "'many' is not a number of bytes. Write it as 256MB"),
    ("prepare photos out --shard-bytes 1kB", 2, "shard_bytes=1000 must be at least 100000"),
    ("prepare photos out --engine spark", 2, "Invalid value for '--engine': 'spark' is not one of 'local', 'ray'"),
    ("prepare photos out --quality 0", 2, "Invalid value for '--quality'"),
    ("prepare photos out --on-error ignore", 2, "'ignore' is not one of 'raise', 'skip'"),
    ("prepare photos out --ray-address auto", 2, "--ray-address goes with --engine ray"),
    ("prepare photos out --split train --split val", 2, "several --split go with --card NAME"),
    ("prepare photos out --card imagnet", 2, "card 'imagnet' is not known. Did you mean 'imagenet'? Known: aircraft"),
    ("prepare photos out --card my.toml", 2, "card 'my.toml' does not exist. Check the path"),
    # sources
    ("preview nowhere", 2, "'nowhere' does not exist (the current folder is ", "augpipe preview --help"),
    ("preview photo", 2, "'photo' does not exist", "Did you mean 'photos'?"),
    ("preview classes/dgo", 2, "Did you mean 'classes/dog'?"),
    ("preview empty", 2, "no photograph in empty: looked for files that end with .jpg", "found nothing at all"),
    ("preview texts", 2, "found 1 other file ('readme.md'). Give a folder of photographs"),
    (
        "preview fake",
        1,
        "fake/",
        "jpg: not a picture: it begins with b'hello'",
        "Pass --on-error skip to go on without",
    ),
    ("preview fake --on-error skip", 1, "it cannot be used, nor can the one after it"),
    ("preview zero", 1, "zero/a.jpg: the file is empty (0 bytes)"),
    (
        "preview notes.txt",
        2,
        "notes.txt lists 1 photograph, and it is not there: nothing.jpg",
        "relative to the list's",
    ),
    ("preview photos.zip", 2, "'photos.zip' is an archive, which is not read. Unpack it, and give the folder"),
    (
        "preview broken.toml",
        2,
        "'broken.toml' is a recipe or a config, by its name",
        "augpipe preview photos/ --recipe",
    ),
    ("preview shard-*.tar", 2, "'shard-*.tar' matches no file"),
    ("preview shard-{0..2}.tar", 2, "names 3 files, and 3 of them are not there: 'shard-0.tar'"),
    ("bench nowhere", 2, "'nowhere' does not exist"),
    ("bench fake --seconds 0.1", 1, "not a picture", "Pass --on-error skip"),
    ("stats nowhere", 2, "'nowhere' does not exist"),
    ("stats empty", 2, "no photograph in empty"),
    ("prepare nowhere out", 2, "'nowhere' does not exist"),
    (
        "verify nowhere",
        2,
        "nowhere does not exist (the current folder is ",
        "Give the folder that augpipe prepare wrote",
    ),
    ("verify file", 2, "file is a file"),
    (
        "verify photos",
        2,
        "photos holds no manifest.json: it is not a data set that augpipe prepare wrote, or not a finished",
        "augpipe stats lists what cannot be used",
    ),
    ("report nowhere", 2, "nowhere does not exist (the current folder is ", "Give the folder of a training run"),
    ("report run.toml", 2, "run.toml is a file"),
    ("report empty", 2, "empty is not a training run: it has no metrics.csv. Give the folder that out names"),
    # places to write to
    ("preview photos -o sheet.bmp", 2, "its name must end with .png or .jpg"),
    ("preview photos -o empty", 2, "--out empty is a folder. Give the name of a file in it, as empty/sheet.png"),
    ("preview photos -o no/such/sheet.png", 2, "there is no folder no/such. Make it first"),
    ("sample photos --num 20", 2, "photos is not empty", "Name a new or an empty folder"),
    ("sample file --num 20", 2, "file is a file, and the sample dataset needs a folder. Name another one"),
    ("demo --out file", 2, "--out file is a file, and the demo needs a folder"),
    ("stats photos --plots file", 2, "--plots file is a file. Give a folder"),
    ("prepare photos photos/out", 2, "OUT photos/out lies in the source photos", "Name a folder elsewhere"),
    ("prepare photos file", 2, "file is a file, and shards go to a folder"),
    ("prepare photos classes", 2, "classes is not empty and holds no data set of ours"),
    # recipes
    ("preview photos -r deep_imge", 2, "there is no recipe 'deep_imge'. Did you mean deep_image?"),
    (
        "preview photos -r deep_image -r none -r evaluation",
        2,
        "--recipe is given 3 times (deep_image, none, evaluation), and one run takes one",
        "Run the command once for each",
    ),
    ("bench photos -r none -r none --seconds 0.1", 2, "--recipe is given 2 times (none, none), and one run takes one"),
    ("preview photos -r Deep-Image", 2, "Did you mean deep_image?"),
    ("preview photos -r misspelt.tml", 2, "there is no recipe 'misspelt.tml'"),
    ("preview photos -r mispelt.toml", 2, "there is no file mispelt.toml. Did you mean misspelt.toml?"),
    ("preview photos -r empty", 2, "the recipe empty is a folder"),
    ("preview photos -r misspelt.toml", 2, "'max_dge' is not a field of Rotate. Did you mean 'max_deg'?"),
    ("preview photos -r broken.toml", 2, "broken.toml: not valid TOML"),
    ("inspect xyz", 2, "there is no recipe 'xyz'. Give a name (deep_image, trivial_augment_wide, "),
    ("inspect percent.toml", 2, "ops[0].flip.p=50 must be a probability in 0..1, as p=0.5"),
    ("inspect kind.toml", 2, 'ops[0]: every op names its kind, as in op = "color_cast"'),
    ("inspect filp.toml", 2, "'filp' is not an op. Did you mean 'flip'?"),
    ("inspect names.toml", 2, "ops[0]: 'flip' is only the name of an op", '{op = "flip"}'),
    ("inspect mean.toml", 2, "ops[0].normalize: mean=(123.0, 123.0, 123.0), std=", "Divide 8-bit values by 255"),
    ("inspect scales.toml", 2, "scales=256 must be a list of short sides in pixels", "scales=[256]"),
    (
        "inspect two.toml",
        2,
        "two.toml: not a valid recipe:",
        "flip.p=50 must be",
        "rotate.max_deg=-300 must be above 0",
    ),
    ("inspect run.toml", 2, "'out' is not a field of a recipe"),
    ("recipe missing.toml", 2, "there is no file missing.toml"),
    # training: what is no config
    ("train nothere.toml", 2, "there is no file nothere.toml", "augpipe train --example > run.toml"),
    ("train rnu.toml", 2, "there is no file rnu.toml. Did you mean run.toml?"),
    (
        "train photos",
        2,
        "photos is a folder",
        "augpipe train --example > run.toml",
        'set source = "photos" below [data]',
    ),
    ("train photos/0.jpg", 2, "photos/0.jpg is not a TOML file", "augpipe train --example > run.toml"),
    ("train notes.txt", 2, "notes.txt is not a TOML file", "augpipe train --example > run.toml"),
    ("train photos.tar", 2, "photos.tar is not a TOML file", "augpipe train --example > run.toml"),
    ("train broken.toml", 2, "broken.toml: not valid TOML"),
    ("train percent.toml", 2, "percent.toml is a recipe", 'set recipe = "percent.toml" below [data]'),
    ("train no_data.toml", 2, "data is missing, and has no default"),
    ("train flat.toml", 2, "data='photos' must be a DataConfig(...), in TOML a table"),
    ("train words.toml", 2, "data.batch_size='many' must be a whole number"),
    # training: fields
    ("train other.toml", 2, "there is no field optim.learning_rate. Did you mean optim.lr?"),
    ("train run.toml --set optim.learning_rate=1", 2, "Did you mean optim.lr? Fields of optim: name, lr,"),
    ("train run.toml --set lr=1", 2, "Did you mean optim.lr?"),
    ("train run.toml --set data.batch=4", 2, "Did you mean data.batch_size? Fields of data: source,"),
    ("train run.toml --set bs=4", 2, "Did you mean data.batch_size?"),
    ("train run.toml --set optim.batch_size=4", 2, "Did you mean data.batch_size?"),
    ("train run.toml --set data.epochs=4", 2, "Did you mean epochs?"),
    ("train run.toml --set optim.epochs=4", 2, "Did you mean epochs?"),
    ("train run.toml --set num_epochs=4", 2, "Did you mean epochs?"),
    ("train run.toml --set data.num_workers=4", 2, "Did you mean data.num_threads?"),
    ("train run.toml --set optim.wd=4", 2, "Did you mean optim.weight_decay?"),
    ("train run.toml --set scheduler.name=cosine", 2, "there is no field scheduler. Did you mean"),
    ("train run.toml --set optim=sgd", 2, "optim is a table. Name a field of it: optim.name, optim.lr"),
    ("train run.toml --set optim.lr.max=1", 2, "optim.lr is a value and has no fields"),
    ("train run.toml --set epochs", 2, "--set epochs: write FIELD=VALUE"),
    ("train run.toml --set epochs=many", 2, "epochs='many' must be a whole number"),
    ("train run.toml --set epochs=0", 2, "epochs=0 must be at least 1"),
    ("train run.toml --set optim.lr=-1", 2, "optim.lr=-1 must be above 0"),
    (
        "train run.toml --set optim.name=adam",
        2,
        "must be 'sgd', 'rmsprop', 'adagrad' or 'adamw'. Did you mean 'adamw'?",
    ),
    ("train run.toml --set optim.betas=0.9", 2, "optim.betas=0.9 must be two numbers", "betas=[0.9, 0.999]"),
    ("train run.toml --set optim.nesterov=maybe", 2, "optim.nesterov='maybe' must be true or false"),
    ("train run.toml --set data.scales=256", 2, "data.scales=256 must be a list, as scales=[256]"),
    ("train run.toml --set data.cache=ram", 2, "data.cache='ram' must be 'off', 'host' or 'device'"),
    ("train run.toml --set data.eval_fraction=2", 2, "data.eval_fraction=2 must be below 1"),
    ("train run.toml --set device=gpu", 2, "device='gpu' must be 'auto', 'cpu', 'cuda', or 'cuda:0'"),
    ("train run.toml --set sync.strategy=ring", 2, "sync.strategy='ring' must be 'ddp', 'butterfly' or 'lazy'"),
    ("train run.toml --set schedule.name=step", 2, 'name="step" needs milestones, as [30, 60, 80]'),
    ("train run.toml --set model.trainable=some", 2, "model.trainable='some' must be 'all', 'last', or 'last-fc:N'"),
    # the demo's split layers
    ("demo --parallel foo", 2, "--parallel foo: write FIELD=VALUE, as in --parallel model=2. Fields are model, layers"),
    ("demo --parallel modle=2", 2, "--parallel modle=2: write FIELD=VALUE", "Fields are model, layers"),
    ("demo --parallel model=3", 2, "model=3 does not divide the demo's 2 ranks. Write --parallel model=2, or 1"),
    ("demo --parallel model=x", 2, "--parallel: not a valid config: parallel.model='x' must be a whole number"),
    ("demo --parallel model=2 --parallel scheme=ring", 2, "parallel.scheme='ring' must be 'gather' or 'rotate'"),
    # training: what does not fit
    ("train run.toml --set data.source=nowhere", 2, "'nowhere' does not exist"),
    ("train run.toml --set data.source=empty", 2, "no photograph in empty"),
    (
        "train run.toml --set data.source=photos",
        2,
        "data.source='photos' has no classes",
        "Sort them into class folders",
    ),
    ("train run.toml --set data.size=300", 2, "size=300 is larger than 40, the smallest of"),
    ("train run.toml --set data.recipe=deep", 2, "data.recipe='deep' is not a recipe for training: deep_image"),
    ("train run.toml --set data.recipe=percent.toml", 2, "percent.toml: not a valid recipe", "flip.p=50 must be"),
    ("train run.toml --set sync.codec=int8", 2, "codec='int8' is unknown. Choose one of 'fp32', 'bf16'"),
    ("train run.toml --set model.name=resnet18", 2, "model='resnet18' is not known. Did you mean 'resnet-18'?"),
    ("train run.toml --set model.options.widht=3", 2, "small-cnn has no option widht. Its options are width"),
    ("train run.toml --set model.weights=nothere.pt", 2, "model.weights='nothere.pt' does not exist"),
    ("train run.toml --set model.weights=photos/0.jpg", 2, "photos/0.jpg is not a file of torch.save, or is damaged"),
]

CALLS = [
    # ops
    ("ops.Flip(p=50)", FieldError, "Flip: p=50 must be a probability in 0..1, as p=0.5"),
    (
        "ops.Flip(0.5)",
        TypeError,
        "Flip takes each value by its field's name. Write Flip(p=0.5). Its fields: direction, p",
    ),
    ("ops.Flip(prob=0.5)", FieldError, "'prob' is not a field of Flip. Did you mean 'p'?"),
    ("ops.Flip(p='half')", FieldError, "p='half' must be a probability"),
    ("ops.Flip(direction='left')", FieldError, "direction='left' must be 'horizontal' or 'vertical'"),
    ("setattr(ops.Flip(), 'p', 0.3)", FieldError, "p is frozen. Make another one, as Flip(p=0.3)"),
    ("ops.Rotate(degrees=15)", FieldError, "'degrees' is not a field of Rotate. Did you mean 'max_deg'?"),
    ("ops.Rotate(max_deg=-400)", FieldError, "Rotate: max_deg=-400 must be above 0, in degrees, or the smallest and"),
    ("ops.Rotate(max_deg=(10, -10))", FieldError, "max_deg=(10.0, -10.0) is not a range: its first number is the"),
    ("ops.Rotate(max_deg=10, step=3)", FieldError, "Choose a step that divides the range, or None"),
    (
        "ops.RandomResizedCrop(224)",
        TypeError,
        "takes each value by its field's name. Write RandomResizedCrop(size=224).",
    ),
    ("ops.RandomResizedCrop(size='big')", FieldError, "size='big' must be a whole number of pixels", "size=224"),
    ("ops.RandomResizedCrop(size=224.5)", FieldError, "size=224.5 must be a whole number of pixels"),
    ("ops.RandomResizedCrop(size=(224, 224, 3))", FieldError, "or two of them, height and width"),
    ("ops.RandomResizedCrop(scale=0.5)", FieldError, "scale=0.5 must be two finite numbers: scale=[smallest, largest]"),
    ("ops.RandomResizedCrop(scale=(8, 100))", FieldError, "scale=(8.0, 100.0) is not a range within 0..4"),
    ("ops.MultiResolutionCrop(scales=256)", FieldError, "scales=256 must be a list of short sides", "scales=[256]"),
    (
        "ops.MultiResolutionCrop(scale=256)",
        FieldError,
        "'scale' is not a field of MultiResolutionCrop. Did you mean 's",
    ),
    (
        "ops.MultiResolutionCrop(scales=(128,))",
        FieldError,
        "size=224 is larger than 128, the smallest of scales=[128]",
        "Lower size, or raise",
    ),
    ("ops.CenterCrop(size=224, scale=100)", FieldError, "size=224 is larger than scale=100"),
    ("ops.Normalize(mean=123)", FieldError, "are given in 0..1", "Divide 8-bit values by 255"),
    ("ops.Normalize(mean=(123, 117, 104))", FieldError, "are given in 0..1", "Divide 8-bit values by 255"),
    ("ops.Normalize(mean=[0.5, 0.5], std=[])", FieldError, "mean=[0.5, 0.5] must be three", "std=[] must be three"),
    ("ops.Normalize(mean=True)", FieldError, "mean=True must be three finite numbers in 0..1, for R, G and B, or one"),
    ("ops.Normalize(std=(0, 0, 0))", FieldError, "must be above 0 in every channel"),
    ("ops.ColorCast(max_shift=300)", FieldError, "max_shift=300 must be at most 255"),
    ("ops.Vignette(radii=0.5)", FieldError, "radii=0.5 must be two finite numbers: radii=[smallest, largest]"),
    ("ops.Vignette(strengths=(0.8, 0.02))", FieldError, "is not a range: its first number is the larger one. Swap"),
    ("ops.LensDistortion(kinds='barrel')", FieldError, "kinds='barrel' must be a list of some of", "kinds=['barrel']"),
    ("ops.LensDistortion(kinds=('fisheye',))", FieldError, "must be a list of some of 'barrel', 'pincushion'"),
    # recipes
    ("Recipe(ops=[ops.Flip])", FieldError, "ops[0]: Flip is the class. Write Flip() for an op of it"),
    ("Recipe(ops=ops.Flip())", FieldError, "ops=Flip(...) must be a list: ops=[Flip(...)]"),
    ("Recipe([ops.Flip()])", TypeError, "Recipe takes each value by its field's name. Write Recipe(ops=[Flip(...)])."),
    ("Recipe(op=[ops.Flip()])", FieldError, "'op' is not a field of a recipe. Did you mean 'ops'?"),
    ("Recipe(ops=['flip'])", FieldError, "'flip' is only the name of an op. Write Flip()"),
    ("Recipe(ops=[{'op': 'flip', 'p': 50}])", FieldError, "ops[0].flip.p=50 must be a probability"),
    (
        "Recipe(ops=[torch.nn.Flatten()])",
        FieldError,
        f"ops[0]: a value of type Flatten is not an op. augpipe.ops has {len(KINDS)}, as ops.Flip().",
    ),
    ("Recipe(ops=[None])", FieldError, "ops[0]: a value of type NoneType is not an op"),
    ("Recipe(views=[[ops.Flip()]])", FieldError, "views[0]=[", "must be a View(...)"),
    ("Recipe(views=View())", FieldError, "views=View(...) must be a list: views=[View(...)]"),
    ("Recipe(views=[View(ops=[ops.Flip])])", FieldError, "View: ops[0]: Flip is the class. Write Flip()"),
    ("View(count=0)", FieldError, "View: count=0 must be at least 1"),
    ("Recipe(border='zero')", FieldError, "border='zero' must be 'context', 'reflect', 'reflect_101', 'wrap', 'edge'"),
    ("Recipe(fill=(0, 1))", FieldError, "fill=(0, 1) must be three levels in 0..255, for R, G and B, or one for all"),
    ("Recipe.model_validate({'ops': [{'op': 'flip', 'p': 50}]})", FieldError, "ops[0].flip.p=50 must be"),
    ("Recipe.load('percent.toml')", ValueError, "percent.toml: not a valid recipe", "p=50 must be"),
    ("recipes.deep_image(scales=256)", FieldError, "scales=256 must be a list of short sides"),
    ("recipes.evaluation(300, 256)", FieldError, "size=300 is larger than scale=256"),
    # the loader's arguments
    ("make(num_workers=4)", TypeError, "Loader has no num_workers: num_threads=... is how many threads"),
    ("make(collate_fn=None)", TypeError, "Loader has no collate_fn: its batches are made whole"),
    ("make(sampler=[0, 1])", ValueError, "sampler is a list, and augpipe.sampling has them: Weighted, ClassBalanced"),
    ("make(batch_sampler=None)", TypeError, 'Loader has no batch_sampler: shuffle=True, False or "sticky" sets the'),
    ("make(persistent_workers=True)", TypeError, "without worker processes. Leave it out"),
    ("make(transform=None)", TypeError, "Loader has no transform: the recipe comes second"),
    ("make(batchsize=4)", TypeError, "Loader has no argument batchsize. Did you mean batch_size?"),
    ("make(batch_size=0)", ValueError, "batch_size=0 must be at least 1"),
    ("make(batch_size='2')", ValueError, "batch_size='2' is a str, and must be a whole number"),
    ("make(rank=1)", ValueError, "rank=1 must lie in 0..world_size - 1", "Give world_size too"),
    ("make(rank=2, world_size=2)", ValueError, "rank=2 must lie in 0..world_size - 1, which is 0..1"),
    ("make(device='gpu')", ValueError, 'device=\'gpu\' is not known. Choose "cpu", "cuda"'),
    ("make(dtype='uint8')", ValueError, 'dtype="uint8" cannot hold normalised values', "Take Normalize out"),
    ("make(dtype=torch.float64)", ValueError, "dtype='float64' is not known. Choose one of 'float32'"),
    ("make(layout='CHW')", ValueError, "layout='CHW' is not known. Choose one of 'NCHW'"),
    ("make(framework='jax')", ValueError, "framework='jax' is not known. Choose one of 'torch', 'numpy'"),
    ("make(shuffle='yes')", ValueError, "shuffle='yes' is not known. Choose one of True, False, 'sticky'"),
    ("make(on_error='ignore')", ValueError, "on_error='ignore' is not known. Choose one of 'raise', 'skip'"),
    ("make(cache=True)", ValueError, "cache=True is not known. Choose one of 'off', 'device', 'host'"),
    ("make(cache_bytes=100)", ValueError, 'Choose cache="device" or cache="host"'),
    ("make(cache='host', cache_bytes='4GB')", ValueError, "cache_bytes='4GB' is a str, and must be a whole number"),
    ("make(seed=-1)", ValueError, "seed=-1 must lie in 0..2^64 - 1"),
    ("make(recipe='deepimage')", ValueError, "there is no recipe 'deepimage'. Did you mean deep_image?"),
    ("make(recipe='nope.toml')", ValueError, "there is no file nope.toml. Give a name (deep_image, "),
    ("make(recipe='mispelt.toml')", ValueError, "there is no file mispelt.toml. Did you mean misspelt.toml?"),
    (
        "make(recipe=recipes.deep_image)",
        ValueError,
        "recipe is deep_image itself. Write deep_image() for",
    ),
    ("make(recipe=ops.Flip())", ValueError, "recipe is an op. Write Recipe(ops=[ops.Flip(...)])."),
    ("make(recipe=[ops.Flip()])", ValueError, "recipe is a list. Write Recipe(ops=[...]) around the list."),
    ("make(recipe=None)", ValueError, "recipe is a NoneType. Give a Recipe, as recipes.deep_image()"),
    ("make(recipe=compose('torchvision'))", ValueError, "Compose of torchvision. Write Recipe.from_torchvision("),
    ("Augment(compose('torchvision'))", ValueError, "Compose of torchvision. Write Recipe.from_torchvision(transform)"),
    ("make(recipe=compose('albumentations'))", ValueError, "Recipe.from_albumentations(transform)"),
    ("make(recipe=compose('kornia'))", ValueError, "of kornia. Write Recipe.from_kornia(module)."),
    ("Augment(torch.nn.Sequential())", ValueError, "recipe is a Sequential of torchvision. Write Recipe.from_torchv"),
    ("make(source='nowhere')", ValueError, "'nowhere' does not exist"),
    ("make(SMALL, 'photos')", ValueError, "the recipe photos is a folder", "Loader(source, recipe) takes that first"),
    ("make(source=SMALL)", ValueError, "a Recipe is not a source of photographs. The source comes first"),
    (
        "make(source=compose('torchvision'))",
        ValueError,
        "a Compose is not a source",
        "Loader(source, recipe, batch_size",
    ),
    ("make(source='run.toml')", ValueError, "'run.toml' is a recipe or a config, by its name, and not a source"),
    ("make(source=None)", ValueError, "a NoneType is not a source of photographs. Accepted: a path or URL"),
    ("make(source=['a.jpg'])", ValueError, "a list is not a source of photographs"),
    ("make(source=[('a.jpg', 0.5)])", ValueError, "pairs[0] has the label 0.5", "Give all labels as integers"),
    ("make(holdout=0.1)", ValueError, "split=None with holdout=0.1 is not known", 'Choose "val"'),
    ("make(source=np.zeros((2, 9, 9, 3)))", ValueError, "images has dtype float64, and only uint8 is taken"),
    ("make(source=np.zeros((2, 3, 9, 9), np.uint8))", ValueError, "Its channels come first: pass images.transpose("),
    # the loader in use
    ("make()[0]", TypeError, "a Loader gives whole batches and has no items: write `for images, labels in loader`"),
    ("next(iter(torch.utils.data.DataLoader(make())))", TypeError, "with no DataLoader around it"),
    ("list(make(source='fake'))", SampleError, "not a picture", 'on_error="skip" puts another one in its place'),
    ("list(make(recipe=Recipe(ops=[ops.CenterCrop(size=99)])))", SampleError, "smaller than the crop of 99x99"),
    ("make().set_epoch(-1)", ValueError, "epoch=-1 must lie in 0..2^32 - 1"),
    ("make().load_state_dict(None)", ValueError, "the state is a NoneType. Give what Loader.state_dict() returned"),
    (
        "make().load_state_dict({})",
        ValueError,
        "the state lacks version, seed",
        "Give what Loader.state_dict() returned",
    ),
    ("make().load_state_dict(make(source='one').state_dict())", ValueError, "of a source of 1 photograph and this one"),
    # arrays in, arrays out
    ("Augment('deep-image')", ValueError, "there is no recipe 'deep-image'. Did you mean deep_image?"),
    ("Augment(SMALL, dtype='uint8')", ValueError, 'dtype="uint8" cannot hold normalised values'),
    ("Augment(SMALL)('one/nowhere.jpg')", SampleError, "one/nowhere.jpg: No such file"),
    (
        "Augment(SMALL)(np.zeros((50, 50, 3)))",
        ValueError,
        "the array is float64, and must be uint8 with values in 0..255",
    ),
    ("Augment(SMALL)(np.zeros((3, 50, 50), np.uint8))", ValueError, "Move its channels last"),
    ("Augment(SMALL)([PIXELS] * 2, sample_ids=[1])", ValueError, "sample_ids holds 1 id for 2 images. Give one each"),
    ("AugmentModule('run.toml')", ValueError, "run.toml: not a valid recipe:", "'out' is not a field of a recipe"),
    ("plan('deep_image', [1], sizes=[(3, 3)])", ValueError, "recipe is a str. Give a Recipe"),
    ("plan(SMALL, [1, 2], sizes=[(3, 3)])", ValueError, "Give one (height, width) each"),
    ("plan(SMALL, [1], sizes=3)", ValueError, "sizes has shape (), and (height, width) of each photograph are needed"),
    (
        "Plan.load('photos/0.jpg')",
        ValueError,
        "not a saved plan (it is not an .npz file). Give a file that Plan.save wrote",
    ),
    # sources
    ("open_source(b'classes')", ValueError, "a bytes is not a source of photographs"),
    ("open_source('photoss')", ValueError, "'photoss' does not exist", "Did you mean 'photos'?"),
    ("FolderSource('nowhere')", ValueError, "nowhere does not exist; FolderSource takes a folder of photographs"),
    ("FolderSource('classes', classes=['cat'])", ValueError, "not among the 1 class given: 'dog'"),
    ("FileListSource('nowhere.csv')", ValueError, "nowhere.csv does not exist; FileListSource takes a CSV or TSV file"),
    ("ArraySource(PIXELS[None], labels=['cat'])", ValueError, "Pass class numbers (not names), or labels[:, None]"),
    ("ArraySource(PIXELS[None], labels=[2], classes=['a'])", ValueError, "labels holds 2, and classes has 1 names"),
    ("TarSource('nowhere.tar')", ValueError, "'nowhere.tar' does not exist"),
    ("TarSource('photos/0.jpg')", ValueError, "there is no tar header at byte 0"),
    ("ShardSource('nowhere')", ValueError, "nowhere does not exist", "Give the folder that augpipe prepare wrote"),
    ("ShardSource('photos')", ValueError, "photos holds no manifest.json"),
    ("open_source('photos').read(99)", IndexError, "sample_id=99 is out of range: this source holds 3 photographs"),
    ("load_card('imagnet')", ValueError, "card 'imagnet' is not known. Did you mean 'imagenet'?"),
    ("open_card('mnist', 'nowhere')", ValueError, "nowhere does not exist; card 'mnist' takes the folder"),
    (
        "open_card('mnist', 'empty', split='val')",
        ValueError,
        "card 'mnist' has no split 'val'. Its splits: train, test",
    ),
    ("RemoteSettings(cache_byte=1)", FieldError, "'cache_byte' is not a field of RemoteSettings. Did you mean"),
    # preparing
    ("PrepareSettings(scales=256)", FieldError, "scales=256 must be a list of short sides", "scales=['256', '512']"),
    ("PrepareSettings(scales=(256,))", FieldError, "as texts"),
    ("PrepareSettings(scale='256')", FieldError, "'scale' is not a field of PrepareSettings. Did you mean 'scales'?"),
    ("PrepareSettings(quality=0.9)", FieldError, "quality=0.9 must be a whole number"),
    ("PrepareSettings(subsampling='420')", FieldError, "Did you mean '4:2:0'?"),
    ("prepare('photos', 'out')", ValueError, "source is a str", "open_source(path) makes one"),
    ("prepare(open_source('photos'), 'out', {'scales': 256})", ValueError, "settings is a dict. Give PrepareSettings("),
    # the trainer
    ("codec('int8')", ValueError, "codec='int8' is unknown. Choose one of 'fp32'"),
    ("codec('linear', block=0)", ValueError, "block=0 is not a number of values: give a positive whole number"),
    ("codec('linear').encode([1.0])", ValueError, "x is list: codecs take numpy arrays and torch tensors"),
    ("codec('linear').encode(np.ones(9))", ValueError, "x is float64: codecs take float32. Convert it first"),
    ("model('resnet50', num_classes=3)", ValueError, "model='resnet50' is not known. Did you mean 'resnet-50'?"),
    ("model('resnet-18', num_classes=0)", ValueError, "num_classes=0 must be at least 1"),
    ("model('resnet-18', num_classes=3, depth=9)", ValueError, "resnet-18 has no option depth. Its options are"),
    ("strategy('ring', NET, SGD)", ValueError, "strategy='ring' is unknown. Choose one of 'ddp', 'butterfly', 'lazy'"),
    ("strategy('ddp', 'resnet', SGD)", ValueError, "model is a str. Give a torch.nn.Module"),
    ("strategy('ddp', NET, SGD(NET.parameters()))", ValueError, "optimizer is SGD: give a function of the parameters"),
    ("strategy('ddp', NET, lambda parameters: None)", ValueError, "must return a torch.optim.Optimizer"),
    ("strategy('lazy', NET, SGD, codec='int8')", ValueError, "codec='int8' is unknown"),
    ("strategy('ddp', NET, SGD, bucket_bytes='4MB')", ValueError, "bucket_bytes='4MB' must be a number above 0"),
    ("butterfly_hook('int8')", ValueError, "codec='int8' is unknown"),
    ("butterfly_hook(NET)", ValueError, "codec is a Linear. Give a codec's name", "register_comm_hook"),
    ("make_config({'data': {'source': 3}})", ValueError, "data.source=3 must be a text, in quotes"),
    ("make_config({'data': {}})", ValueError, "data.source is missing, and has no default. Add it"),
    ("RunConfig(data='photos')", FieldError, "RunConfig: data='photos' must be a DataConfig(...)"),
    ("Recipe.load('nope.toml')", FileNotFoundError, "there is no file nope.toml. augpipe recipe deep_image > my.toml"),
    ("Recipe.load('mispelt.toml')", FileNotFoundError, "there is no file mispelt.toml. Did you mean misspelt.toml?"),
    # names that there are not, or that are elsewhere
    ("augpipe.Lodaer", AttributeError, "augpipe has no Lodaer. Did you mean Loader?"),
    ("augpipe.DataLoader", AttributeError, "augpipe has no DataLoader. Write augpipe.Loader(source, recipe, batch_"),
    ("augpipe.Flip", AttributeError, "augpipe has no Flip. Write augpipe.ops.Flip()."),
    ("augpipe.deep_image", AttributeError, "augpipe has no deep_image. Write augpipe.recipes.deep_image(...)."),
    ("augpipe.nothing_of_the_kind", AttributeError, "augpipe has no nothing_of_the_kind. dir(augpipe) lists its names"),
    ("augpipe.__wrapped__", AttributeError, "module 'augpipe' has no attribute '__wrapped__'"),
    ("ops.HorizontalFlip", AttributeError, "augpipe.ops has no HorizontalFlip. Write ops.Flip()."),
    ("ops.RandomVerticalFlip", AttributeError, 'Write ops.Flip(direction="vertical").'),
    ("ops.Crop", AttributeError, "Write ops.RandomCrop(size=224), ops.CenterCrop(size=224) or ops.RandomResizedCrop"),
    ("ops.SmallestMaxSize", AttributeError, "Write ops.ResizeShortest(size=256)"),
    ("ops.ToTensor", AttributeError, "Write nothing: batches are tensors"),
    ("ops.RandomHue", AttributeError, "Did you mean Hue?"),
    ("ops.random_resized_crop", AttributeError, "Did you mean RandomResizedCrop?"),
    ("recipes.deepimage", AttributeError, "augpipe.recipes has no deepimage. Did you mean deep_image?"),
    ("recipes.imagenet", AttributeError, "Write recipes.deep_image(224)."),
    ("policies.RandAugment", AttributeError, "augpipe.policies has no RandAugment. Did you mean rand_augment?"),
    ("sampling.WeightedRandomSampler", AttributeError, "Write sampling.Weighted(weights)."),
    ("sources.ImageFolder", AttributeError, 'Write the path itself: Loader("photos/", recipe, batch_size=64)'),
    ("exec('from augpipe.ops import HorizontalFlip')", ImportError, "augpipe.ops has no HorizontalFlip. Write ops.Fl"),
    (
        "exec('from augpipe.recipes import deepimage')",
        ImportError,
        "augpipe.recipes has no deepimage. Did you mean",
    ),
    ("exec('from augpipe import Flip')", ImportError, "augpipe has no Flip. Write augpipe.ops.Flip()."),
    (
        "Recipe(ops=[{'op': 'random_horizontal_flip'}])",
        FieldError,
        "'random_horizontal_flip' is not an op. In Python",
    ),
]

WITHOUT_A_GPU = [
    ("make(device='cuda')", DeviceError, "there is no NVIDIA driver", 'or choose device="cpu"'),
    ("make(pin_memory=True)", ValueError, "pin_memory=True needs a CUDA device, and torch finds none. Leave it out"),
]

IN_A_PROCESS = [
    ("-m augpipe preview nowhere", "'nowhere' does not exist (the current folder is "),
    ("-m augpipe inspect percent.toml", "ops[0].flip.p=50 must be a probability in 0..1"),
    ("-m augpipe train photos", "photos is a folder, and a run takes a TOML config"),
    ("-m augpipe.trainer photos", "photos is a folder, and a run takes a TOML config"),
    ("-m augpipe.trainer run.toml --set optim.learning_rate=1", "Did you mean optim.lr?"),
]

SMALL = recipes.deep_image(32, (40,))


def make(source: Any = "classes", recipe: Any = SMALL, **options: Any) -> Loader:
    """A loader of the images below, with options that may be wrong."""
    return Loader(source, recipe, **{"batch_size": 2, "num_threads": 1} | options)


def compose(library: str) -> object:
    """A transform of another library, as far as its class says of which."""
    return type("Compose", (), {"__module__": f"{library}.transforms", "__call__": lambda self, image: image})()


NAMES = {
    "compose": compose,
    "Augment": Augment,
    "ArraySource": ArraySource,
    "AugmentModule": AugmentModule,
    "FileListSource": FileListSource,
    "FolderSource": FolderSource,
    "NET": torch.nn.Linear(3, 3),
    "PIXELS": np.zeros((50, 60, 3), np.uint8),
    "Plan": Plan,
    "PrepareSettings": PrepareSettings,
    "Recipe": Recipe,
    "RemoteSettings": RemoteSettings,
    "RunConfig": RunConfig,
    "SGD": torch.optim.SGD,
    "SMALL": SMALL,
    "ShardSource": ShardSource,
    "TarSource": TarSource,
    "View": View,
    "augpipe": augpipe,
    "butterfly_hook": butterfly_hook,
    "codec": codec,
    "load_card": load_card,
    "make": make,
    "make_config": make_config,
    "model": model,
    "np": np,
    "open_card": open_card,
    "open_source": open_source,
    "ops": ops,
    "plan": plan,
    "policies": augpipe.policies,
    "prepare": prepare,
    "recipes": recipes,
    "sampling": augpipe.sampling,
    "sources": augpipe.sources,
    "strategy": strategy,
    "torch": torch,
}
"""What the calls are written with."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and with what is none."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(1)
    names = ["photos/0.jpg", "photos/1.jpg", "photos/2.jpg", "one/0.jpg"]
    names += [f"classes/{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(3)]
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (50, 60, 3), dtype=np.uint8)).save(home / name)
    (home / "empty").mkdir()
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    with tarfile.open(home / "photos.tar", "w") as archive:
        archive.add(home / "photos/0.jpg", "0.jpg")
    return home


@pytest.fixture(autouse=True)
def _there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In that folder, in which a mistake must leave nothing behind but the folder of a run that was begun."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    yield
    shutil.rmtree(home / "run", ignore_errors=True)
    after = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert after.keys() == before.keys()
    assert {path for path in after if path.is_file() and after[path] != before[path]} == set()


def check(message: str, words: tuple[str, ...], home: Path) -> None:
    """All of the words are there, nothing foreign is, and it is short."""
    for word in words:
        assert word in message
    assert [word for word in FOREIGN if word in message] == []
    lines = message.replace(str(home), ".").splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= LONGEST_LINE, message


def ids(rows: list[Any]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize("row", COMMANDS, ids=ids(COMMANDS))
def test_commands(row: tuple[Any, ...], home: Path) -> None:
    command, code, *words = row
    ended = CliRunner().invoke(app, shlex.split(command))
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == code and ended.stdout == ""
    assert ended.stderr.startswith("augpipe: ")
    note(f"augpipe {command}", ended.stderr)
    check(ended.stderr, tuple(words), home)


@pytest.mark.parametrize("row", CALLS, ids=ids(CALLS))
def test_calls(row: tuple[Any, ...], home: Path) -> None:
    call, kind, *words = row
    with pytest.raises(kind) as caught:
        eval(call, NAMES)
    assert type(caught.value) is kind
    check(str(caught.value), tuple(words), home)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("row", WITHOUT_A_GPU, ids=ids(WITHOUT_A_GPU))
def test_calls_that_need_a_gpu(row: tuple[Any, ...], home: Path) -> None:
    test_calls(row, home)


@pytest.mark.slow
@pytest.mark.parametrize("row", IN_A_PROCESS, ids=ids(IN_A_PROCESS))
def test_commands_in_a_process_of_their_own(row: tuple[str, str], home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": child_path(), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *row[0].split()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("augpipe: ")
    check(ended.stderr, (row[1],), home)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["augpipe train", "augpipe.trainer"])
@pytest.mark.parametrize("config", ["nothere.toml", "photos"])
def test_what_is_no_config_is_told_before_anything_is_loaded(
    module: str, config: str, home: Path, tmp_path: Path
) -> None:
    for name in ("torch", "numba", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('too early')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-m", *module.split(), config]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 2 and ended.stdout == ""
    check(ended.stderr, ("augpipe: ", config, "augpipe train --example > run.toml"), home)


def test_an_image_that_ends_a_run_names_what_to_set(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "classes", tmp_path / "classes")
    (tmp_path / "classes/cat/0.jpg").write_text("hello")
    settings = [f"data.source={tmp_path / 'classes'}", "data.shuffle=off", f"out={tmp_path / 'run'}"]
    ended = CliRunner().invoke(app, ["train", "run.toml", *(word for text in settings for word in ("--set", text))])
    assert ended.exit_code == 1
    line = ended.stderr.splitlines()[-1]
    assert "classes/cat/0.jpg: not a picture" in line
    assert line.endswith(
        """on_error="skip" puts another one in its place: of the Loader, or in [data] of a run's config."""
    )


def test_other_names_stand_for_fields_that_there_are() -> None:
    fields = {name for kind in ops.__all__ for name in getattr(ops, kind).model_fields}
    for name, field in RunConfig.model_fields.items():
        fields |= {name, *getattr(field.annotation, "model_fields", {})}
    assert set(OTHER_NAMES.values()) <= fields
