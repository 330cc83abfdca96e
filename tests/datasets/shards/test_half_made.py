"""A prepared folder that is not finished, or has lost its manifest, is not opened as tar files."""

import shutil
from pathlib import Path

import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source
from augpipe.datasets.shards.shard_source import ShardSource
from tests.datasets.prepare.prepare_sources import InlineEngine, prepare_inline, write_photos
from tests.datasets.shards.shard_sets import build

fsspec = pytest.importorskip("fsspec")


def refused(path: object) -> str:
    with pytest.raises(ValueError, match="augpipe prepare") as caught:
        open_source(path)
    with pytest.raises(ValueError, match="augpipe prepare") as loaded:
        Loader(path, recipes.none(), batch_size=1)  # type: ignore[arg-type]
    assert str(caught.value) == str(loaded.value)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("below", ["", "32", "32/", "48", "32/*.tar", "32/{000000..000001}.tar", "*/000000.tar"])
def test_an_unfinished_one_says_resume(tmp_path: Path, below: str) -> None:
    photos, out = write_photos(tmp_path / "photos", 100), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare_inline(photos, out, engine=InlineEngine(stop_before=2))
    said = refused(f"{out}/{below}" if below else out)
    assert said == (
        f"{out} is a data set that augpipe prepare has not finished: it was stopped, or is still at work. Wait for it, "
        "or finish it with the same command and --resume."
    )
    prepare_inline(photos, out, resume=True)
    assert isinstance(open_source(out / "32"), ShardSource)
    assert len(open_source(f"{out}/32/*.tar")) == 100  # whole tar files are what a pattern says


@pytest.mark.parametrize("below", ["", "32"])
def test_one_without_its_manifest_is_refused(tmp_path: Path, below: str) -> None:
    out = build(tmp_path / "out")
    (out / "manifest.json").unlink()
    said = refused(out / below)
    assert said.startswith(f"{out / '32'} holds shards of augpipe prepare, and their manifest.json is not in {out}")
    assert "Copy it there, or prepare the data set again" in said
    assert isinstance(open_source(f"{out}/32/*.tar"), TarSource)


def test_one_without_its_indices_too_says_how_it_is_read_all_the_same(tmp_path: Path) -> None:
    out = build(tmp_path / "out")
    for file in (out / "manifest.json", *(out / "32").glob("*.idx")):
        file.unlink()
    assert refused(out) == (
        f"{out / '32'} holds tar files that are called as shards of augpipe prepare are, without their manifest.json "
        "and indices. Copy those there, or prepare the data set again; as tar files like any others they are read by a "
        f"pattern, '{out / '32'}/*.tar'."
    )
    assert isinstance(open_source(f"{out / '32'}/*.tar"), TarSource)


def test_it_is_refused_at_a_url(tmp_path: Path) -> None:
    out = build(tmp_path / "out")
    system = fsspec.filesystem("memory")
    for file in sorted((out / "32").iterdir()):
        system.pipe(f"/half/32/{file.name}", file.read_bytes())
    try:
        assert refused("memory://half/32").startswith("memory://half/32 holds shards of augpipe prepare, and their")
    finally:
        system.rm("/half", recursive=True)


def test_indices_of_other_programs_are_no_sign(tmp_path: Path) -> None:
    out = build(tmp_path / "out")
    shutil.copytree(out / "32", tmp_path / "plain")
    for index in (tmp_path / "plain").glob("*.idx"):
        index.write_text("v1.2 3\n")  # as wds2idx writes them for DALI
    assert isinstance(open_source(tmp_path / "plain"), TarSource)
