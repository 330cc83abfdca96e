"""Images that cannot be used: listed with a reason, or the end of the run; what may pass ends it."""

import csv
import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.prepare.chunk import ChunkTask, prepare_chunk, prepare_sample
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.verify import verify
from augpipe.errors import SampleError
from tests.augpipe.decoding.image_files import bad_files, encoded, odd_files, scene, write_files
from tests.datasets.prepare.prepare_sources import InlineEngine, tree
from tests.datasets.prepare.prepare_sources import prepare_inline as run

NUM = 96
"""Three shards."""


def odd_source(folder: Path) -> Path:
    files = {name: data for name, (data, _) in odd_files().items()}
    files |= {f"bad/{name}": data for name, (data, _) in bad_files().items()}
    write_files(folder, {f"odd/{name}" if "/" not in name else name: data for name, data in files.items()})
    (folder / "bad/dangling.jpg").symlink_to("nowhere.jpg")
    (folder / 'bad/=1+1,"quoted"\n.jpg').write_bytes(b"hello")
    (folder / os.fsdecode(b"bad/\xff.jpg")).write_bytes(b"hello")
    return folder


def test_rejects_are_listed_and_the_rest_is_there(tmp_path: Path) -> None:
    folder = odd_source(tmp_path / "photos")
    manifest = run(folder, tmp_path / "out", on_error="skip")
    assert manifest.num_samples == len(odd_files()) and manifest.num_rejected == len(bad_files()) + 3
    assert not verify(tmp_path / "out", deep=True)
    assert dict(zip(manifest.classes, manifest.class_counts, strict=True)) == {"bad": 0, "odd": len(odd_files())}
    with open(tmp_path / "out/rejects.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["path", "reason"]
    reasons = dict(rows)
    assert len(rows) == len(bad_files()) + 3
    for name, (_, reason) in bad_files().items():
        assert re.search(reason, reasons[f"bad/{name}"])
    assert reasons["bad/dangling.jpg"] == "No such file or directory"
    assert "not a picture" in reasons['bad/=1+1,"quoted"\n.jpg']
    assert "not a picture" in reasons["bad/\\xff.jpg"]


def test_on_error_raise_names_the_image_and_skip_goes_on(tmp_path: Path) -> None:
    folder = odd_source(tmp_path / "photos")
    run(folder, tmp_path / "whole", on_error="skip")
    with pytest.raises(SampleError, match=r"^bad/=1\+1.*\n\.jpg: not a picture"):
        run(folder, tmp_path / "out")
    run(folder, tmp_path / "out", resume=True, on_error="skip")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_a_source_of_nothing_else_says_so(tmp_path: Path) -> None:
    write_files(tmp_path / "photos", {f"{number}.jpg": b"hello" for number in range(3)})
    with pytest.raises(ValueError, match="^none of the 3 photographs can be used: 0.jpg: not a picture"):
        run(tmp_path / "photos", tmp_path / "out", on_error="skip")
    assert (tmp_path / "out/rejects.csv").read_text().count("\n") == 4
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_shard_of_rejects_is_left_out(tmp_path: Path) -> None:
    files = {f"{number:03}.jpg": encoded(scene(40, 40, number), "JPEG") for number in range(NUM)}
    files |= {f"{number:03}.jpg": b"hello" for number in range(32, 64)}
    write_files(tmp_path / "photos", files)
    manifest = run(tmp_path / "photos", tmp_path / "out", on_error="skip")
    assert [shard.name for shard in manifest.scales[0].shards] == ["000000.tar", "000002.tar"]
    assert (manifest.num_samples, manifest.num_rejected) == (64, 32)
    assert not verify(tmp_path / "out") and not (tmp_path / "out/32/000001.tar").exists()


class Moody(ArraySource):
    """Cannot read one of its images, for a reason; labels another with a class that it does not have."""

    def __init__(self, error: Exception) -> None:
        super().__init__(np.zeros((4, 20, 20, 3), np.uint8), [0, 1, 0, 1])
        self.error = error

    def read(self, sample_id: int) -> Any:
        if sample_id == 2:
            raise self.error
        return super().read(sample_id)

    def label(self, sample_id: int) -> int:
        return 7 if sample_id == 3 else super().label(sample_id)


def test_what_may_pass_ends_the_run_and_what_stays_is_rejected(tmp_path: Path) -> None:
    denied = Moody(OSError(errno.EACCES, "Permission denied"))
    manifest = prepare(denied, tmp_path / "a", engine=InlineEngine(), on_error="skip")
    assert (manifest.num_samples, manifest.num_rejected) == (2, 2)
    rows = (tmp_path / "a/rejects.csv").read_text().splitlines()[1:]
    assert rows == ["images[2],Permission denied", "images[3],its label 7 is none of the source's 2 classes"]
    for passing in (errno.ETIMEDOUT, errno.EIO):
        with pytest.raises(OSError, match="may pass") as caught:
            prepare(Moody(OSError(passing, "may pass")), tmp_path / f"{passing}", engine=InlineEngine())
        assert caught.value.errno == passing
        assert not (tmp_path / f"{passing}/manifest.json").exists()


# A disk that fails, a machine that is short of something, a store that is away for a while: nothing that is wrong with
# the image. What is not named here stays as it is however often it is read.
PASSING = """EAGAIN ECONNABORTED ECONNREFUSED ECONNRESET EHOSTUNREACH EINTR EIO EMFILE ENETDOWN ENETUNREACH ENFILE
    ENODEV ENOMEM ENOTCONN ENXIO EPIPE EREMOTEIO ESTALE ETIMEDOUT""".split()
STAYING = "EACCES EINVAL EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM".split()


@pytest.mark.parametrize("name", PASSING)
def test_an_error_that_may_pass_rejects_no_image(name: str) -> None:
    with pytest.raises(OSError, match="reason") as caught:
        prepare_sample(Moody(OSError(getattr(errno, name), "reason")), 2, PrepareSettings())
    assert caught.value.errno == getattr(errno, name)


@pytest.mark.parametrize("name", [*STAYING, None])
def test_an_error_that_stays_rejects_the_image(name: str | None) -> None:
    error = OSError("reason") if name is None else OSError(getattr(errno, name), "reason")
    with pytest.raises(ValueError, match="^reason$"):
        prepare_sample(Moody(error), 2, PrepareSettings())


def test_a_bug_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "512").mkdir()
    task = ChunkTask(
        number=0, start=0, stop=4, folder=str(tmp_path), prefix="", settings=PrepareSettings(), raises=False
    )
    with pytest.raises(ZeroDivisionError):
        prepare_chunk(Moody(ZeroDivisionError()), task)
    assert tree(tmp_path) == {}
