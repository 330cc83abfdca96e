"""TFRecord files as a source: what is read, what is refused, and DALI's reader as the oracle."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from augpipe import Loader
from augpipe.recipes import evaluation
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.formats.source_checks import assert_keeps_the_protocol, assert_labels

pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

from augpipe.datasets.formats.tfrecord.frames import checksum, is_whole
from augpipe.datasets.formats.tfrecord.tfrecord_source import TFRecordSource, is_tfrecord


def crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial of RFC 3720: not the library that the source uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def of_bytes(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def of_floats(*values: float) -> bytes:
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def of_ints(*values: int, packed: bool = True) -> bytes:
    if packed:
        return field(3, field(1, b"".join(varint(value) for value in values)))
    return field(3, b"".join(varint(1 << 3) + varint(value) for value in values))


def example(**features: bytes) -> bytes:
    entries = (field(1, field(1, name.replace("__", "/").encode()) + field(2, f)) for name, f in features.items())
    return field(1, b"".join(entries))


def read_all(path: Path) -> list[bytes]:
    source = TFRecordSource(path)
    return [source.read(one) for one in range(len(source))]


def put(path: Path, records: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(frame(record) for record in records))
    return path


def test_images_labels_names_and_ids(tmp_path: Path) -> None:
    one = put(
        tmp_path / "a-00000-of-00002",
        [
            example(image__encoded=of_bytes(b"one"), image__class__label=of_ints(2), other=of_floats(1.5, 2.5)),
            example(image__class__label=of_ints(0, packed=False), image__encoded=of_bytes(b"two" * 5000)),
        ],
    )
    two = put(tmp_path / "a-00001-of-00002", [example(image__encoded=of_bytes(b""), image__class__label=of_ints(-1))])
    source = TFRecordSource([one, two])
    assert_keeps_the_protocol(source, [b"one", b"two" * 5000, b""], [2, 0, -1])
    assert source.classes == ("0", "1", "2")
    assert [source.name(i) for i in range(3)] == [f"{one}/record 0", f"{one}/record 1", f"{two}/record 0"]
    by_pattern = TFRecordSource(str(tmp_path / "a-?????-of-00002"))
    assert [by_pattern.name(i) for i in range(3)] == [source.name(i) for i in range(3)]
    assert is_tfrecord(str(one)) and not is_tfrecord(__file__)


def test_labels_may_be_names_or_left_out(tmp_path: Path) -> None:
    pets = [example(image=of_bytes(b"x"), label=of_bytes(name)) for name in (b"dog", b"cat", b"dog")]
    source = TFRecordSource(put(tmp_path / "pets", pets))
    assert (source.classes, source.labels().tolist()) == (("cat", "dog"), [1, 0, 1])
    longest = put(tmp_path / "long", [example(image=of_bytes(b"x"), label=of_bytes(b"a" * 4096))])
    assert TFRecordSource(longest).classes == ("a" * 4096,)
    assert TFRecordSource(put(tmp_path / "none", [example(image=of_bytes(b"x"))])).label(0) == -1
    chosen = TFRecordSource(
        put(tmp_path / "own", [example(image=of_bytes(b"x"), left=of_bytes(b"l"), fine=of_ints(1))]),
        image="left",
        label="fine",
        classes=("a", "b"),
    )
    assert (chosen.read(0), chosen.label(0), chosen.classes) == (b"l", 1, ("a", "b"))


def test_labels_of_several_numbers(tmp_path: Path) -> None:
    records = [
        example(image=of_bytes(b"x"), hot=of_ints(*hot), soft=of_floats(*soft), age=of_floats(age), label=of_ints(1))
        for hot, soft, age in (((1, 0, 1), (0.5, 0.25), 3.5), ((0, 0, 2), (-1.0, 1.0), 7.0))
    ]
    path = put(tmp_path / "a", records)
    assert_labels(TFRecordSource(path, label="hot"), [[1, 0, 1], [0, 0, 2]], np.int64, ())
    assert_labels(
        TFRecordSource([path], label="soft", classes=["u", "v"]), [[0.5, 0.25], [-1, 1]], np.float32, ("u", "v")
    )
    assert_labels(TFRecordSource(path, label=["age", "label"]), [[3.5, 1], [7, 1]], np.float32, ("age", "label"))
    assert_labels(TFRecordSource(path, label="age"), [[3.5], [7]], np.float32, ())
    assert TFRecordSource(path, label="label").labels().tolist() == [1, 1]
    singly = field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in (1.5, -2.0)))
    packed = put(tmp_path / "b", [example(image=of_bytes(b"x"), soft=singly)])
    assert TFRecordSource(packed, label="soft").labels().tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize(
    ("label", "feature", "message"),
    [
        ("x", of_ints(1, 2, 3), r"record 1: its label is 3 numbers, and the first one 2: labels are of one length"),
        ("x", of_floats(), r"record 1: its label is 0 numbers, and the first one 2"),
        ("x", of_ints(1), r"record 1: its label is not a list of numbers, and the first label is one"),
        (["x"], of_ints(1), r"record 0: its feature 'x' holds 2 numbers, and of several features each is one number"),
        (["y"], of_ints(1, 2), r"record 0: it has no feature 'y', but 'image', 'x'"),
        (["image"], of_ints(1, 2), r"record 0: its feature 'image' holds bytes, and of several features each"),
        ([], of_ints(1, 2), r"label=\[\] names no feature"),
        ("x", field(2, field(1, b"abc")), r"a length leads out of one of its lists of float"),
        ("x", field(2, varint(1 << 3 | 5) + b"abc"), r"a length leads out of one of its lists of float"),
        ("x", field(2, varint(2 << 3 | 5) + b"abcd"), r"one of its lists of float holds something else"),
    ],
)
def test_lists_that_are_no_labels(tmp_path: Path, label: Any, feature: bytes, message: str) -> None:
    records = [example(image=of_bytes(b"x"), x=of_ints(1, 2)), example(image=of_bytes(b"x"), x=feature)]
    with pytest.raises(ValueError, match=message):
        TFRecordSource(put(tmp_path / "a", records), label=label)


def test_numbers_and_fields_that_writers_may_write_otherwise(tmp_path: Path) -> None:
    """More than 64 bits of a number are cut off, and fields that an Example does not have are stepped over."""
    minus_one = b"\xff" * 9 + b"\x7f"
    label = field(3, varint(1 << 3) + minus_one)
    unknown = varint(3 << 3 | 1) + bytes(8) + varint(4 << 3 | 5) + bytes(4) + varint(5 << 3) + varint(7)
    record = unknown + example(image__encoded=of_bytes(b"one"), image__class__label=label) + unknown
    source = TFRecordSource(put(tmp_path / "a", [record]))
    assert (source.read(0), source.label(0)) == (b"one", -1)


def test_a_loader_takes_it(tmp_path: Path) -> None:
    photos = [encoded(scene(40, 50, i), "JPEG") for i in range(4)]
    path = put(tmp_path / "p.tfrecord", [example(image=of_bytes(p), label=of_ints(i)) for i, p in enumerate(photos)])
    loader = Loader(TFRecordSource(path), evaluation(16, 20), batch_size=4, shuffle=False, framework="numpy")
    (batch,) = list(loader)
    assert batch.images.shape == (4, 3, 16, 16) and batch.labels.tolist() == [0, 1, 2, 3]


GOOD = example(image=of_bytes(b"good"), label=of_ints(1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (example(label=of_ints(1)), "no feature image/encoded or image or"),
        (example(image=of_ints(1)), "'image' holds int64, and an encoded image is bytes"),
        (example(image=of_floats(1.0)), "'image' holds float, and an encoded image is bytes"),
        (example(image=b""), "'image' holds nothing"),
        (example(image=of_bytes()), "'image' holds 0 values"),
        (example(image=of_bytes(b"a", b"b")), "'image' holds 2 values"),
        (example(image=of_bytes(b"a"), label=of_ints(1, 2)), "'label' holds 2 numbers"),
        (
            example(image=of_bytes(b"a"), label=of_floats(1.0)),
            "'label' looks like the label and holds float, and a class is an integer or a text",
        ),
        (example(image=of_bytes(b"a"), label=of_bytes(b"\xff")), "'label' is not UTF-8"),
        (example(image=of_bytes(b"a"), label=of_bytes(b"a" * 4097)), "a label is one short text"),
        (example(image=of_bytes(b"a") + of_ints(1)), "'image' holds lists of 2 kinds"),
        (field(1, field(1, field(1, b"image") + field(2, of_bytes(b"a"))) * 2), "'image' is there twice"),
        (
            example(image=of_bytes(b"a"), label=field(3, b"\x0a\x02\x01")),
            "a length leads out of one of its lists of int64",
        ),
        (b"\x0a\x7fshort", "a length leads out of it"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "a length leads out of it"),
        (b"\xff" * 11, "a number in it has no end"),
        (b"\x0b", "unknown kind 3"),
        (b"plain text, no message", "it is not a tf.train.Example"),
        (b"", "no feature"),
    ],
)
def test_records_that_are_no_samples_are_named(tmp_path: Path, bad: bytes, message: str) -> None:
    path = put(tmp_path / "bad", [GOOD, bad, GOOD])
    with pytest.raises(ValueError, match=message) as raised:
        TFRecordSource(path)
    assert f"{path}, record 1: " in str(raised.value)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = put(tmp_path / "whole", [GOOD, GOOD]).read_bytes()
    cut = tmp_path / "cut"
    for num_bytes in range(len(whole)):
        cut.write_bytes(whole[:num_bytes])
        if num_bytes == len(whole) // 2:  # a whole file of one record
            assert len(TFRecordSource(cut)) == 1
            continue
        with pytest.raises(ValueError, match=r"truncated|holds no records"):
            TFRecordSource(cut)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 200])
def test_absurd_lengths_cost_nothing(tmp_path: Path, length: int) -> None:
    head = struct.pack("<Q", length)
    path = tmp_path / "long"
    path.write_bytes(frame(GOOD) + head + masked(head) + b"abc")
    with pytest.raises(ValueError, match=rf"record 1: it ends at byte \d+, within its record of {length} bytes"):
        TFRecordSource(path)


def test_a_record_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    head = struct.pack("<Q", 2**31)
    with (tmp_path / "long").open("wb") as file:
        file.write(head + masked(head))
        file.truncate(12 + 2**31 + 4)  # a hole: no disk is used
    with pytest.raises(ValueError, match="record 0: it has 2147483648 bytes, and a record of more than 2147483647 is"):
        TFRecordSource(tmp_path / "long")


def test_a_checksum_that_is_cut_short_is_none() -> None:
    record = next(b"%d" % number for number in range(10_000) if masked(b"%d" % number)[3] == 0)
    assert is_whole(record, masked(record), checksum())
    assert not is_whole(record, masked(record)[:3], checksum())


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    whole = put(tmp_path / "whole", [GOOD, GOOD]).read_bytes()
    path = tmp_path / "flipped"
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x41
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"checksum|Pass|not a tf.train.Example|length|number|feature|list"):
            read_all(path)


def test_a_compressed_file_and_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b" + bytes(30))
    with pytest.raises(ValueError, match="gunzip --keep"):
        TFRecordSource(tmp_path / "a.gz")
    with pytest.raises(ValueError, match="it is not a TFRecord file"):
        TFRecordSource(__file__)
    with pytest.raises(ValueError, match="does not exist"):
        TFRecordSource(tmp_path / "none.tfrecord")


def test_a_file_cut_short_while_it_is_open_has_changed(tmp_path: Path) -> None:
    path = put(tmp_path / "cut", [GOOD, GOOD])
    source = TFRecordSource(path)
    assert source.read(0) == b"good"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    assert source.read(0) == b"good"
    with pytest.raises(ValueError, match="has changed since it was opened: it had"):
        source.read(1)


@pytest.mark.slow
@given(data=st.binary(max_size=200), framed=st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_ends_in_a_clear_error(tmp_path: Path, data: bytes, framed: bool) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(frame(data) if framed else data)
    with suppress(ValueError):  # and no other error, no endless loop, no memory that the file asks for
        assert all(image in data for image in read_all(path))


def test_dali_reads_the_same(tmp_path: Path) -> None:
    dali = pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    from nvidia.dali import fn, tfrecord

    records = [example(image=of_bytes(bytes([i]) * (i + 1)), label=of_ints(i * 1000)) for i in range(5)]
    path = put(tmp_path / "d.tfrecord", records)
    position, lines = 0, []
    for record in records:
        lines.append(f"{position} {len(record) + 16}\n")
        position += len(record) + 16
    (tmp_path / "d.idx").write_text("".join(lines))

    @dali.pipeline_def(batch_size=5, num_threads=1, device_id=None)
    def pipeline() -> Any:
        features = {
            "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        read = fn.readers.tfrecord(path=str(path), index_path=str(tmp_path / "d.idx"), features=features)
        return read["image"], read["label"]

    built = pipeline()
    built.build()
    images, labels = built.run()
    source = TFRecordSource(path)
    assert [np.array(images.at(i)).tobytes() for i in range(5)] == [source.read(i) for i in range(5)]
    assert np.array(labels.as_array()).ravel().tolist() == source.labels().tolist()
