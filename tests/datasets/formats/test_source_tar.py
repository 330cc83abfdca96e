"""WebDataset tar files as a source: what is read, and what is refused."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.formats.tar.headers import read_members
from augpipe.datasets.formats.tar.source import TarSource
from augpipe.datasets.open import open_source
from tests.datasets.formats.source_checks import assert_keeps_the_protocol, assert_labels

Members = Sequence[tuple[str, bytes]]


def put(path: Path, members: Members, form: int = tarfile.USTAR_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def put_special(path: Path, name: str, kind: bytes, target: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.linkname = target
        archive.addfile(info)
    return path


def samples(first: int, count: int, label: int = 0) -> list[tuple[str, bytes]]:
    members = []
    for number in range(first, first + count):
        members += [(f"{number:04}.cls", b"%d\n" % label), (f"{number:04}.jpg", b"image %d" % number)]
    return members


# --- what is read


def test_samples_labels_names_and_ids(tmp_path: Path) -> None:
    path = put(
        tmp_path / "a.tar",
        [
            ("x/1.cls", b"2"),
            ("x/1.jpg", b"one"),
            ("x/1.json", b'{"label": 0}'),
            ("x/2.png", b"two"),
            ("x/2.json", b'{"label": 1, "more": [1]}'),
            ("x/3.JPEG", b"three"),
            ("x/4.txt", b"no image"),
            ("__meta__/1.jpg", b"about the shard"),
        ],
    )
    source = TarSource(path)
    assert_keeps_the_protocol(source, [b"one", b"two", b"three"], [2, 1, -1])
    assert source.classes == ("0", "1", "2")
    assert source.name(1) == f"{path}/x/2.png"


def test_class_names_are_sorted_and_may_be_given(tmp_path: Path) -> None:
    members = [("1.cls", b"dog"), ("1.jpg", b""), ("2.cls", "Ähre\n".encode()), ("2.jpg", b""), ("3.jpg", b"")]
    path = put(tmp_path / "a.tar", members)
    source = TarSource(path)
    assert source.classes == ("dog", "Ähre")
    assert source.labels().tolist() == [0, 1, -1]
    given_classes = TarSource(path, classes=["ant", "Ähre", "dog"])
    assert given_classes.labels().tolist() == [2, 1, -1]
    with pytest.raises(ValueError, match=r"a.tar/1.jpg: label 'dog' is none of the 1 classes given \('Ähre'\)"):
        TarSource(path, classes=["Ähre"])


def test_label_key_and_extension(tmp_path: Path) -> None:
    members = [("1.left.png", b"l"), ("1.right.png", b"r"), ("1.json", b'{"label": null, "kind": "b"}')]
    path = put(tmp_path / "a.tar", members)
    assert TarSource(path, extension="right.png").read(0) == TarSource(path, extension=".Right.PNG").read(0) == b"r"
    assert TarSource(path, extension=".left.png", label_key="kind").classes == ("b",)
    with pytest.raises(ValueError, match=r"'1' holds 2 images \(left.png, right.png\).*extension='left.png'"):
        TarSource(path)


def vectors(*labels: Any, key: str = "label") -> list[tuple[str, bytes]]:
    members = []
    for number, label in enumerate(labels):
        members += [(f"{number}.jpg", b"x"), (f"{number}.json", json.dumps({key: label}).encode())]
    return members


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([[1, 0, 1], [0, 0, -2]], np.int64),
        ([[1, 0.5], [2, 3]], np.float32),
        ([[True], [False]], np.float32),
        ([[2**53, 1], [0, 1]], np.float32),
    ],
    ids=["integers", "floats", "booleans", "integers beyond doubles"],
)
def test_lists_in_json_are_labels_of_several_numbers(tmp_path: Path, rows: Any, dtype: Any) -> None:
    path = put(tmp_path / "a.tar", vectors(*rows, key="target"))
    more = put(tmp_path / "b.tar", vectors(rows[0], key="target"))
    assert_labels(TarSource([path, more], label_key="target"), [*rows, rows[0]], dtype, ())
    names = ("a", "b", "c")[: len(rows[0])]
    assert_labels(TarSource(path, label_key="target", classes=names), rows, dtype, names)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (
            [[1, 2], [1]],
            {},
            r"a.tar: sample '1': its label is 1 number, and the first one 2: .*rows of 0 and 1 \(multi",
        ),
        ([[]], {}, r"sample '0': its label is 0 numbers, and the first one at least one"),
        ([[1, "2"]], {}, r"sample '0': its label holds '2', and a list is a label of numbers"),
        ([[1, None]], {}, r"sample '0': its label holds None"),
        ([[[1]]], {}, r"sample '0': its label holds \[1\]"),
        ([[10**400]], {}, r"sample '0': its label holds a whole number that no float is"),
        ([[1], 1], {}, r"sample '1': its label is no list of numbers, and the first one is such a list. Give all"),
        ([1, [1]], {}, r"sample '1': its label is a list of numbers, and the first one is no list"),
        ([[1], None], {}, r"sample '1': its label is no list of numbers"),
        ([[1, 2]], {"classes": ["a"]}, r"classes holds 1 names, and each label 2 numbers. Give one name each, or none"),
    ],
)
def test_lists_that_are_no_labels(tmp_path: Path, labels: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TarSource(put(tmp_path / "a.tar", vectors(*labels)), **options)


def test_tar_of_images_alone(tmp_path: Path) -> None:
    source = TarSource(put(tmp_path / "a.tar", [("b.jpg", b"b"), ("./a.jpg", b"a"), ("v1.0/a.jpg", b"c")]))
    assert [source.read(i) for i in range(3)] == [b"b", b"a", b"c"]
    assert source.labels().tolist() == [-1, -1, -1]
    assert source.classes == ()


def test_sets_of_tar_files_count_on(tmp_path: Path) -> None:
    for number in range(12):
        put(tmp_path / f"s-{number:03}.tar", samples(10 * number, 3, number))
    (tmp_path / "notes.md").write_text("no tar file")
    by_folder = open_source(tmp_path)
    by_pattern = open_source(f"{tmp_path}/s-{{000..011}}.tar")
    by_stars = open_source(f"{tmp_path}/s-0?*.tar")
    by_list = TarSource([tmp_path / f"s-{number:03}.tar" for number in range(12)])
    assert by_folder.classes == tuple(str(number) for number in range(12))
    for source in (by_folder, by_pattern, by_stars, by_list):
        assert isinstance(source, TarSource)
        assert [source.read(i) for i in range(36)] == [b"image %d" % (10 * (i // 3) + i % 3) for i in range(36)]
        assert source.labels().tolist() == [i // 3 for i in range(36)]
        assert source.name(35) == f"{tmp_path}/s-011.tar/0112.jpg"
    part = open_source(f"{tmp_path}/s-00{{1,0}}.tar")
    assert [part.label(i) for i in range(6)] == [1, 1, 1, 0, 0, 0]


def test_patterns_that_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "s-0.tar", samples(0, 1))
    with pytest.raises(ValueError, match=r"the range \{2..0\} counts down. Write \{0..2\}"):
        open_source(f"{tmp_path}/s-{{2..0}}.tar")
    with pytest.raises(ValueError, match=r"\{0\} is neither a range such as \{000..123\} nor a list"):
        open_source(f"{tmp_path}/s-{{0}}.tar")
    with pytest.raises(ValueError, match="names more than 100000 files"):
        open_source(f"{tmp_path}/s-{{0..99999999999}}.tar")
    (tmp_path / "s-1.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"names 2 files .* only one kind of \*.tar, \*.parquet, \*.bin is taken"):
        open_source(f"{tmp_path}/s-*")


def test_folder_of_several_splits_is_refused(tmp_path: Path) -> None:
    for name in ("set-train-000.tar", "set-train-001.tar", "set-validation-000.tar"):
        put(tmp_path / name, samples(0, 1))
    with pytest.raises(ValueError, match=r"holds 2 splits: train, validation. Give one of them.*set-train-000.tar"):
        open_source(tmp_path)
    assert len(open_source(f"{tmp_path}/set-train-*.tar")) == 2


def test_tar_is_known_by_its_content(tmp_path: Path) -> None:
    path = put(tmp_path / "without-extension", samples(0, 2))
    assert isinstance(open_source(path), TarSource)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@settings(max_examples=30)
@given(data=st.data())
def test_headers_agree_with_tarfile(form: int, data: st.DataObject) -> None:
    letters = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=40)
    part = letters.filter(lambda text: text not in (".", ".."))
    name = st.lists(part, min_size=1, max_size=2 if form == tarfile.USTAR_FORMAT else 9).map("/".join)
    if form == tarfile.USTAR_FORMAT:
        name = name.filter(lambda text: len(text.encode()) <= 100)
    members = data.draw(st.lists(st.tuples(name, st.binary(max_size=1100)), max_size=5))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for member, content in members:
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    found = list(read_members(file))
    assert [member.name.decode() for member in found] == [name for name, _ in members]
    whole = file.getvalue()
    assert [whole[m.offset : m.offset + m.num_bytes] for m in found] == [content for _, content in members]


def test_folders_long_names_and_pax_headers_are_passed_over(tmp_path: Path) -> None:
    long_name = "d/" * 150 + "n" * 90 + ".jpg"
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{form}.tar"
        with tarfile.open(path, "w", format=form, pax_headers={"comment": "of the whole file"}) as archive:
            folder = tarfile.TarInfo("d")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            info = tarfile.TarInfo(long_name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
        source = TarSource(path)
        assert len(source) == 1
        assert source.read(0) == b"abc"
        assert source.name(0).endswith("n.jpg")


def put_raw(path: Path, *parts: tuple[bytes, str, int, bytes]) -> Path:
    """Headers as they are given, each (kind, name, the size that it states) with the bytes that follow it."""
    with path.open("wb") as file:
        for kind, name, size, content in parts:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, size
            file.write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
        file.write(bytes(1024))
    return path


def pax(**records: object) -> tuple[bytes, str, int, bytes]:
    """A pax header; its records count themselves, here in two digits."""
    content = b"".join(b"%02d %b=%b\n" % (len(f"{k}={v}") + 4, k.encode(), f"{v}".encode()) for k, v in records.items())
    return tarfile.XHDTYPE, "pax", len(content), content


def long_name(name: str) -> tuple[bytes, str, int, bytes]:
    return tarfile.GNUTYPE_LONGNAME, "././@LongLink", len(name) + 1, name.encode() + b"\0"


SIZED = (tarfile.REGTYPE, "1.jpg", 700, b"x" * 700)
UNSIZED = (tarfile.REGTYPE, "1.jpg", 0, b"x" * 700)
"""Its header leaves its length to a pax header, as those of 8 GiB and more do."""
EXTENDED = {
    "a size": ("1.jpg", [pax(size=700), UNSIZED]),
    "a size other than the header's": ("1.jpg", [pax(size=700), (tarfile.REGTYPE, "1.jpg", 100, b"x" * 700)]),
    "a name": ("long.jpg", [pax(path="long.jpg"), SIZED]),
    "both": ("long.jpg", [pax(path="long.jpg", size=700), UNSIZED]),
    "neither": ("1.jpg", [pax(mtime=1.5), SIZED]),
    "a size, then a name": ("long.jpg", [pax(size=700), pax(path="long.jpg"), UNSIZED]),
    "a name, then a size": ("long.jpg", [pax(path="long.jpg"), pax(size=700), UNSIZED]),
    "GNU's name": ("long.jpg", [long_name("long.jpg"), SIZED]),
    "GNU's name, then a size": ("long.jpg", [long_name("long.jpg"), pax(size=700), UNSIZED]),
    "a size, then GNU's name": ("long.jpg", [pax(size=700), long_name("long.jpg"), UNSIZED]),
}


@pytest.mark.parametrize("kind", EXTENDED)
def test_what_an_extended_header_says_is_of_the_next_member_alone(tmp_path: Path, kind: str) -> None:
    name, parts = EXTENDED[kind]
    others = [(tarfile.REGTYPE, f"{number}.jpg", number, b"y" * number) for number in (2, 3)]
    path = put_raw(tmp_path / "a.tar", *parts, *others)
    with path.open("rb") as file:
        found = list(read_members(file))
    whole = path.read_bytes()
    assert [(m.name.decode(), whole[m.offset : m.offset + m.num_bytes]) for m in found] == [
        (name, b"x" * 700),
        ("2.jpg", b"yy"),
        ("3.jpg", b"yyy"),
    ]
    with tarfile.open(path) as archive:
        assert [(m.name, m.offset_data, m.size) for m in archive] == [(m.name.decode(), *m[1:]) for m in found]


# --- workers and threads


def test_many_samples_pickle_with_their_index(tmp_path: Path) -> None:
    source = TarSource([put(tmp_path / f"{number}.tar", samples(100 * number, 50)) for number in range(3)])
    expected = [b"image %d" % (100 * number + i) for number in range(3) for i in range(50)]
    assert_keeps_the_protocol(source, expected, [0] * 150)
    assert len(pickle.dumps(source)) < len(source) * 64 + 4096


def test_tar_that_was_cut_short_meanwhile(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tar", samples(0, 3))
    source = TarSource(path)
    os.truncate(path, 600)
    with pytest.raises(ValueError, match="the tar file ends after 0 of its 7 bytes: it was cut short meanwhile"):
        source.read(2)


# --- what is refused


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
    with pytest.raises(ValueError, match="a.tar: its member '1.jpg' is there twice. Pack it anew"):
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


def forged(size_field: bytes) -> bytes:
    """A header that is right but for the length that it claims."""
    header = bytearray(tarfile.TarInfo("1.jpg").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = size_field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


@pytest.mark.parametrize("field", [b"77777777777\0", b"\x80" + b"\xff" * 11, b"\x80" + bytes(3) + b"\x7f" + bytes(7)])
def test_absurd_sizes(tmp_path: Path, field: bytes) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(forged(field))
    with pytest.raises(ValueError, match=r"it ends after 1536 bytes, within its member '1.jpg' of \d+ bytes"):
        TarSource(path)
    path.write_bytes(forged(b"-0000000001\0"))
    with pytest.raises(ValueError, match="is no number"):
        TarSource(path)


def test_extended_headers_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(2 << 30)  # a hole: no disk is used
    with pytest.raises(ValueError, match=r"extended header '././@LongLink' has 1073741824 bytes, more than 1048576"):
        TarSource(path)


def test_image_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("1.jpg")
    info.size = 3 << 30
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate((3 << 30) + 2048)
    with pytest.raises(ValueError, match="'1.jpg' has 3221225472 bytes, and an image of more than 2147483647 is not"):
        TarSource(path)


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
        ([("1.json", b"{"), ("1.jpg", b"")], "its member '1.json' is no JSON"),
        ([("1.json", b"[" * 100000), ("1.jpg", b"")], "its member '1.json' is no JSON"),
        (
            [("1.json", b'{"label": 1.5}'), ("1.jpg", b"")],
            "gives label=1.5, and a label is an integer, a name or a list",
        ),
        ([("1.cls", b"-2"), ("1.jpg", b"")], "1.jpg: label '-2' is no class number"),
        ([("1.cls", b"99999999"), ("1.jpg", b"")], "1.jpg: label '99999999' is no class number"),
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
    with pytest.raises(ValueError, match="pipe.tar is no regular file"):
        TarSource(tmp_path / "pipe.tar")
    with pytest.raises(ValueError, match="paths is empty"):
        TarSource([])
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder holds no tar file \(\*.tar\)"):
        TarSource(tmp_path / "folder")


# --- real data


def test_real_images(photos_dir: Path) -> None:
    source = TarSource(Path(os.environ["AUGPIPE_DATA"]) / "photos.tar")
    assert len(source) == 250
    for i in np.linspace(0, 249, 20).astype(int):
        assert source.read(int(i)) == (photos_dir / Path(source.name(int(i))).name).read_bytes()
