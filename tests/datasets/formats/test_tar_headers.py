"""Headers of tar files: as Python's tarfile reads them, and bounds on what they claim."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.formats.tar.headers import read_members
from augpipe.datasets.formats.tar.tar_source import TarSource
from tests.datasets.formats.tar_files import long_name, pax, put_raw


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="is not a number"):
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
