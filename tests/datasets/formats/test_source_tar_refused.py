"""WebDataset tar files as a source: what is refused, by a message that names the file."""

import bz2
import contextlib
import gzip
import lzma
import os
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source
from tests.datasets.formats.tar_files import Members, put, put_special, samples


class NamedError(Exception):
    """What `naming` makes of an error that is as it should be."""


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if name not in str(error):
            raise
        raise NamedError from error


@pytest.mark.parametrize("name", ["../evil.jpg", "/etc/evil.jpg", "a/../../evil.jpg", "a/.."])
def test_names_that_lead_outside(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / "in" / "a.tar", [("1.jpg", b"1"), (name, b"evil")])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"a.tar: its member '.*' is named to lie outside of it"):
        TarSource(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a character device"),
        (tarfile.BLKTYPE, "a block device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (b"Z", "of the unknown kind b'Z'"),
    ],
)
def test_members_that_are_no_files(tmp_path: Path, kind: bytes, what: str) -> None:
    path = put_special(tmp_path / "a.tar", "1.jpg", kind, "/etc/passwd")
    with pytest.raises(ValueError, match=f"a.tar: its member '1.jpg' is {what}"):
        TarSource(path)


def test_duplicates(tmp_path: Path) -> None:
    twice = put(tmp_path / "a.tar", [("1.jpg", b"a"), ("1.jpg", b"b")])
    with pytest.raises(ValueError, match="a.tar: its member '1.jpg' is there twice. Pack it again"):
        TarSource(twice)
    apart = put(tmp_path / "b.tar", [("d/1.jpg", b"a"), ("d/2.jpg", b"b"), ("d/1.png", b"c")])
    with pytest.raises(ValueError, match="b.tar: key 'd/1' is there twice, with others between.*--sort=name"):
        TarSource(apart)
    dots = put(tmp_path / "c.tar", [("cat.1.jpg", b"a"), ("cat.2.jpg", b"b")])
    with pytest.raises(ValueError, match=r"sample 'cat' holds 2 images \(1.jpg, 2.jpg\): a key ends at the first dot"):
        TarSource(dots)


def test_truncated_anywhere_is_refused_or_warned_of(tmp_path: Path) -> None:
    whole = put(tmp_path / "a.tar", samples(0, 3)).read_bytes()
    used = 6 * 1024
    cut = tmp_path / "cut.tar"
    for length in range(1, used + 1, 37):
        if length % 1024 == 0:  # whole members: see below
            continue
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut.tar: it ends (within a header|after \d+ bytes)"):
            TarSource(cut)
    cut.write_bytes(whole[: 4 * 1024])  # after a whole member: nothing but the missing end tells
    with pytest.warns(UserWarning, match="cut.tar ends without the mark that ends a tar file: it may have been cut"):
        assert len(TarSource(cut)) == 2


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_changed_bytes_end_in_clear_errors_or_in_samples(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.getbasetemp() / "changed.tar"
    form = data.draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    put(path, [("é" * 60 + "1.cls", b"1"), ("é" * 60 + "1.jpg", b"one"), ("2.jpg", b"two")], form)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content), 6 * 1024) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(NamedError), warnings.catch_warnings(), naming("changed.tar"):
        warnings.simplefilter("ignore")  # of an end that is missing
        source = TarSource(path)
        assert all(len(source.read(i)) <= len(content) for i in range(len(source)))


def test_joined_by_cat(tmp_path: Path) -> None:
    one = put(tmp_path / "1.tar", samples(0, 1)).read_bytes()
    (tmp_path / "both.tar").write_bytes(one + one)
    with pytest.raises(ValueError, match=r"both.tar: it goes on after its end mark at byte \d+, as tar files joined"):
        TarSource(tmp_path / "both.tar")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.cls", b""), ("1.jpg", b"")], "its member '1.cls' is empty, and holds a label"),
        ([("1.cls", b"\xff\xfe"), ("1.jpg", b"")], "its member '1.cls' is not UTF-8"),
        ([("1.cls", b"7" * 5000), ("1.jpg", b"")], "its member '1.cls' has 5000 bytes, and at most 4096 are read"),
        ([("1.json", b"{"), ("1.jpg", b"")], "its member '1.json' is not JSON"),
        ([("1.json", b"[" * 100000), ("1.jpg", b"")], "its member '1.json' is not JSON"),
        (
            [("1.json", b'{"label": 1.5}'), ("1.jpg", b"")],
            "gives label=1.5, and a class is an integer or a name",
        ),
        ([("1.cls", b"-2"), ("1.jpg", b"")], "1.jpg: label '-2' is not a class number"),
        ([("1.cls", b"99999999"), ("1.jpg", b"")], "1.jpg: label '99999999' is not a class number"),
        ([("1.cls", b"1"), ("1.jpg", b""), ("2.cls", b"cat"), ("2.jpg", b"")], "2.jpg: label 'cat' is a name, and"),
        ([("1.txt", b""), ("2.npy", b"")], r"no image in '.*a.tar'.*found 2 samples of other members \('npy', 'txt'\)"),
        ([], "no image in .* found no samples at all"),
    ],
)
def test_contents_that_are_refused(tmp_path: Path, members: Members, message: str) -> None:
    path = put(tmp_path / "a.tar", members)
    with pytest.raises(ValueError, match=message):
        TarSource(path)


def test_files_that_are_no_tar(tmp_path: Path) -> None:
    (tmp_path / "empty.tar").write_bytes(b"")
    with pytest.raises(ValueError, match="empty.tar: it ends within a header, after 0 of its 512 bytes"):
        open_source(tmp_path / "empty.tar")
    for name in ("a.tar.gz", "a.tgz", "a.tar"):
        (tmp_path / name).write_bytes(gzip.compress(b"x" * 1024))
        with pytest.raises(ValueError, match=rf"{name} is compressed, and can only be read .*: gunzip --keep .*{name}"):
            open_source(tmp_path / name)
    for beginning, program in (
        (bz2.compress(b""), "bunzip2"),
        (lzma.compress(b""), "unxz"),
        (b"\x28\xb5\x2f\xfd\x20", "unzstd"),  # RFC 8878, section 3.1.1
    ):
        (tmp_path / "a.tar").write_bytes(beginning)
        with pytest.raises(ValueError, match=rf"a.tar is compressed, .*: {program} --keep .*a.tar"):
            TarSource(tmp_path / "a.tar")
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(ValueError, match="pipe.tar is not a regular file"):
        TarSource(tmp_path / "pipe.tar")
    with pytest.raises(ValueError, match="paths is empty"):
        TarSource([])
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder holds no tar file \(\*.tar\)"):
        TarSource(tmp_path / "folder")


def test_several_fields_are_no_label(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tar", [("1.jpg", b"1"), ("1.json", b'{"x": 1, "y": 2}')])
    with pytest.raises(
        ValueError, match=r"label=\['x', 'y'\] names several fields, and a tar file's label is one: .*label="
    ):
        open_source(path, label=["x", "y"])
