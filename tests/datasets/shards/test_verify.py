"""`verify`: exactly the samples that are damaged, whatever was done to a data set."""

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.datasets.shards.check_sample import read_sample
from augpipe.datasets.shards.index import HEADER_BYTES, RECORD, ShardIndex
from augpipe.datasets.shards.manifest import Manifest, ShardInfo
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.ustar import BLOCK_BYTES, header
from augpipe.datasets.shards.verify import Fault, verify
from augpipe.datasets.shards.writer import ShardWriter
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.shards.shard_sets import (
    NUM,
    NUM_SHARDS,
    PER_SHARD,
    build,
    flip,
    forge_header,
    forge_index,
    forge_keys,
    forge_shard,
    jpeg,
    key,
    manifest_of,
    note,
    sums_of,
)

TAR, INDEX = "32/000001.tar", "32/000001.idx"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return build(tmp_path / "out")


def damaged(faults: list[Fault]) -> list[int | None]:
    return [fault.sample_id for fault in faults if fault.sample_id is not None]


def of_files(faults: list[Fault]) -> list[tuple[str, str]]:
    """(path, reason) of the faults that are no sample's."""
    return [(fault.path, fault.reason) for fault in faults if fault.sample_id is None]


def reseal(out: Path, name: str = TAR) -> None:
    """Make every sum of a shard right again: what an enemy would do."""
    tar = out / name
    index = ShardIndex.open(tar.with_suffix(".idx"))
    num_samples = index.num_samples
    del index
    sha256 = hashlib.sha256(tar.read_bytes())
    forge_header(tar.with_suffix(".idx"), sha256=sha256.digest(), shard_bytes=tar.stat().st_size)  # type: ignore[arg-type]
    info = ShardInfo(
        name=tar.name,
        num_samples=num_samples,
        num_bytes=tar.stat().st_size,
        sha256=sha256.hexdigest(),
        **sums_of(tar.with_suffix(".idx").read_bytes()),
    )
    manifest = Manifest.load(out)
    (scale,) = manifest.scales
    shards = tuple(info if shard.name == info.name else shard for shard in scale.shards)
    manifest.model_copy(update={"scales": (scale.model_copy(update={"shards": shards}),)}).save(out)


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_set_has_no_faults(tmp_path: Path, deep: bool) -> None:
    assert verify(build(tmp_path / "out", sides=(24, 32)), deep=deep) == []


def test_progress_counts_every_byte_once(out: Path) -> None:
    told: list[int] = []
    verify(out, progress=told.append)
    assert sum(told) == sum(path.stat().st_size for path in (out / "32").glob("*.tar"))


def test_an_error_in_progress_ends_the_check(out: Path) -> None:
    def interrupt(num_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(out, progress=interrupt)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_several_damaged_samples_are_all_named_and_no_other(out: Path, num_threads: int) -> None:
    indices = [ShardIndex.open(out / f"32/{s:06}.idx") for s in range(NUM_SHARDS)]
    flip(out / "32/000000.tar", indices[0][2].offset + 99)  # in the image
    flip(out / "32/000000.tar", indices[0][3].offset - 512 + 110)  # in its header
    flip(out / "32/000002.tar", indices[2][0].offset + indices[2][0].length + 600)  # in the notes behind it
    faults = verify(out, num_threads=num_threads)
    assert damaged(faults) == [2, 3, 8]
    reasons = [fault for fault in faults if fault.sample_id is not None]
    assert [fault.key for fault in reasons] == [key(2), key(3), key(8)]
    assert {fault.reason for fault in reasons} == {"its bytes are not those that were written (their CRC-32 differs)"}
    assert str(faults[0]) == f"32/000000.tar/{key(2)}, sample 2: {reasons[0].reason}"
    assert [path for path, reason in of_files(faults) if "its SHA-256 is" in reason] == [
        "32/000000.tar",
        "32/000002.tar",
    ]
    assert len(faults) == 5


def test_a_truncated_tar_loses_exactly_the_samples_behind_the_cut(out: Path) -> None:
    third = ShardIndex.open(out / INDEX)[2]
    os.truncate(out / TAR, third.offset + 10)
    faults = verify(out)
    assert damaged(faults) == [PER_SHARD + 2, PER_SHARD + 3]
    reasons = [reason for _, reason in of_files(faults)]
    assert [path for path, _ in of_files(faults)] == [TAR] * 3
    assert reasons[0].startswith(f"has {third.offset + 10} bytes, and the manifest says ")
    assert reasons[1] == "does not end with two blocks of zeros as a tar file does"
    assert reasons[2].startswith("its SHA-256 is ")


def test_bytes_behind_the_end_are_found(out: Path) -> None:
    with open(out / TAR, "ab") as file:
        file.write(bytes(100))
    faults = verify(out)
    assert damaged(faults) == [] and [path for path, _ in of_files(faults)] == [TAR, TAR]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", [TAR, INDEX])
def test_a_missing_file_and_what_stands_in_its_place_are_named(out: Path, name: str) -> None:
    path = out / name
    path.unlink()
    (fault,) = verify(out)
    assert fault.path == name and fault.reason.startswith("is missing")
    os.mkfifo(path)
    (fault,) = verify(out)
    assert fault.path == name and "is not a regular file" in fault.reason
    path.unlink()
    path.mkdir()
    (fault,) = verify(out)
    assert fault.path == name and "is not a regular file" in fault.reason


def test_a_damaged_index_is_told_from_a_damaged_tar(out: Path) -> None:
    flip(out / INDEX, HEADER_BYTES + RECORD.size + 12)  # the label of the second sample
    faults = verify(out)
    assert [path for path, _ in of_files(faults)] == [INDEX, INDEX]
    (fault,) = (fault for fault in faults if fault.sample_id is not None)
    assert (fault.sample_id, fault.key) == (PER_SHARD + 1, key(PER_SHARD + 1))
    assert re.fullmatch(r"label is -?\d+ in the index and -1 in the tar file", fault.reason)


def test_where_index_and_tar_are_damaged_the_tar_headers_lead(out: Path) -> None:
    third = ShardIndex.open(out / INDEX)[2].offset
    flip(out / INDEX, 3)
    flip(out / TAR, third - 512)
    faults = verify(out)
    assert damaged(faults) == []
    reasons = [reason for path, reason in of_files(faults) if path == TAR]
    assert reasons[0].startswith(f"cannot be read from byte {third - 512} on: ")
    assert reasons[1] == f"2 samples can be read, and the manifest says {PER_SHARD}"
    assert len(reasons) == 3 and reasons[2].startswith("its SHA-256 is ")


def test_a_header_that_claims_more_than_the_file_holds_is_where_reading_ends(out: Path) -> None:
    index = ShardIndex.open(out / INDEX)
    third, num_bytes = index[2].offset - 512, index.shard_bytes
    flip(out / INDEX, 3)
    tar = bytearray((out / TAR).read_bytes())
    tar[third : third + 512] = header(f"{key(PER_SHARD + 2)}.jpg", num_bytes + 1)
    (out / TAR).write_bytes(tar)
    reasons = [reason for path, reason in of_files(verify(out)) if path == TAR]
    claim = f"'{key(PER_SHARD + 2)}.jpg' claims {num_bytes + 1} bytes"
    assert reasons[0] == f"cannot be read from byte {third} on: {claim}"


def test_a_sample_is_its_three_files_and_nothing_more(out: Path) -> None:
    group = (out / TAR).read_bytes()[: ShardIndex.open(out / INDEX)[1].offset - 512]
    assert read_sample(group).key == key(PER_SHARD)
    with pytest.raises(ValueError, match=f"it takes {len(group) + 512} bytes of the tar file, and its three files"):
        read_sample(group + bytes(512))


def test_a_damaged_header_of_the_index_costs_no_sample(out: Path) -> None:
    flip(out / INDEX, 20)
    faults = verify(out)
    assert damaged(faults) == [] and {path for path, _ in of_files(faults)} == {INDEX}


# --- forgeries with right sums


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 1}, "label is 1 in the index and -1 in the tar file"),
        ({"height": 31}, "height is 31 in the index and 32 in the tar file"),
        ({"width": 1}, "width is 1 in the index and 37 in the tar file"),
        ({"length": 77}, "length is 77 in the index and "),
        ({"crc": 1}, "its bytes are not those that were written"),
        ({"key_end": 0}, "the index is damaged: it points to no key"),
        ({"row_end": 2**32 - 1}, "the index is damaged: it points to no row index"),
        ({"format": 1}, "format is 'png' in the index and 'jpg' in the tar file"),
        ({"format": 6}, "the index is damaged: format 6 is none of the 6 that there are"),
        ({"offset": 1}, None),
        ({"offset": 2**63}, None),
        ({"offset": 2**64 - 1}, None),
    ],
)
def test_an_index_that_lies_with_right_sums_is_found(out: Path, changes: dict[str, int], message: str | None) -> None:
    forge_index(out / INDEX, 1, **changes)
    reseal(out)
    faults = verify(out)
    if message is None:
        assert (INDEX, "its samples do not follow each other from the tar file's begin to its end") in of_files(faults)
    else:
        reasons = [fault.reason for fault in faults if fault.sample_id == PER_SHARD + 1]
        assert len(reasons) == 1 and reasons[0].startswith(message)
    assert set(damaged(faults)) <= {PER_SHARD + 1, PER_SHARD + 2}  # key ends are shared with the next sample


def test_samples_exchanged_in_the_index_are_found(out: Path) -> None:
    keys = [key(i) for i in range(PER_SHARD, 2 * PER_SHARD)]
    forge_keys(out / INDEX, [keys[1], keys[0], *keys[2:]])
    reseal(out)
    faults = verify(out)
    assert damaged(faults) == [PER_SHARD, PER_SHARD + 1]
    assert all("the key is" in fault.reason for fault in faults)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sample(name: str, data: bytes = b"", number: int = 0) -> list[tuple[tarfile.TarInfo, bytes]]:
    text = json.dumps(note(number)).encode()
    return [
        (member(f"{name}.jpg"), data or jpeg(number)),
        (member(f"{name}.cls"), b"0"),
        (member(f"{name}.json"), text),
    ]


HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "dots": sample("../../evil"),
    "absolute": sample("/tmp/evil"),
    "link": [(member("k.jpg", tarfile.SYMTYPE, "/etc/passwd"), b""), *sample("k")[1:]],
    "folder": [(member("k.jpg", tarfile.DIRTYPE), b""), *sample("k")[1:]],
    "files of two samples": [*sample("k")[:2], *sample("l")[2:]],
    "no label": [sample("k")[0], sample("k")[2], sample("k")[2]],
    "label that is none": [sample("k")[0], (member("k.cls"), b"0x1"), sample("k")[2]],
    "label with a sign": [sample("k")[0], (member("k.cls"), b"+1"), sample("k")[2]],
    "long label": [sample("k")[0], (member("k.cls"), b"1" * 5000), sample("k")[2]],
    "notes that are none": [*sample("k")[:2], (member("k.json"), b"[" * 100_000)],
    "notes without sizes": [*sample("k")[:2], (member("k.json"), b"[1, 2]")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries_are_faults_and_nothing_is_written(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    tar = tar_of(*HOSTILE[name])
    forge_shard(out, tar, [(512, len(jpeg(0)))], ["k"])
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    faults = verify(out, deep=True)
    assert any(fault.path == "32/000000.tar" for fault in faults)
    assert any(
        fault.sample_id == 0 or fault.reason.startswith(("cannot be read from byte 0", "0 samples can be read"))
        for fault in faults
    )
    source = ShardSource(out)
    if name in ("dots", "absolute", "link", "folder"):
        with pytest.raises(ValueError, match="the index and the shard differ"):
            source.read(0)
    else:
        assert source.read(0) == jpeg(0)  # the image itself is sound
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def with_doubled_key(folder: Path) -> None:
    """A shard by our own writer whose second sample gets the first one's key, with every sum right."""
    (folder / "32").mkdir(parents=True)
    with ShardWriter(folder / "32/000000.tar") as writer:
        writer.add("a", jpeg(0), 0, note(0))
        writer._keys = {}
        writer.add("a", jpeg(1), 0, note(1))
        writer._keys = {"a": None, "b": None}
        info = writer.close()
    forge_keys(folder / "32/000000.idx", ["a", "a"])
    sums = sums_of((folder / "32/000000.idx").read_bytes())
    manifest_of({"32": [info.model_copy(update=sums)]}, class_counts=(2, 0)).save(folder)


def test_keys_that_come_twice_are_found(tmp_path: Path) -> None:
    with_doubled_key(tmp_path)
    (fault,) = verify(tmp_path)
    assert (fault.sample_id, fault.key, fault.reason) == (1, "a", "another sample of the shard has the same key")


def test_a_wrong_sum_in_the_manifest_is_found(out: Path) -> None:
    path = out / "manifest.json"
    (scale,) = Manifest.load(out).scales
    path.write_text(path.read_text().replace(scale.shards[1].sha256, "0" * 64))
    faults = verify(out)
    assert damaged(faults) == [] and {path for path, _ in of_files(faults)} == {TAR, INDEX}


def test_wrong_counts_of_classes_are_found(out: Path) -> None:
    manifest = Manifest.load(out)
    first, second = manifest.class_counts
    manifest.model_copy(update={"class_counts": (first - 1, second + 1)}).save(out)
    faults = verify(out)
    assert of_files(faults) == [
        ("manifest.json", f"class_counts has {first - 1} samples of class 0 ('cat'), and scale 32 holds {first}"),
        ("manifest.json", f"class_counts has {second + 1} samples of class 1 ('dog'), and scale 32 holds {second}"),
    ]


def test_labels_beyond_the_classes_are_found(out: Path) -> None:
    manifest = Manifest.load(out)
    manifest.model_copy(update={"classes": ("cat",), "class_counts": manifest.class_counts[:1]}).save(out)
    assert damaged(verify(out)) == [i for i in range(NUM) if i % 3 == 1]


def test_shards_that_the_manifest_does_not_know_are_found(out: Path) -> None:
    shutil.copy(out / TAR, out / "32/000099.tar")
    shutil.copy(out / INDEX, out / "32/000098.idx")
    (out / "32/.000001.tar.0123.tmp").write_bytes(b"a killed writer's")
    assert of_files(verify(out)) == [
        ("32/000098.idx", "is not in the manifest"),
        ("32/000099.tar", "is not in the manifest"),
    ]


# --- deep


def rewrite(folder: Path, change: Callable[[bytes], bytes]) -> Path:
    """A data set by our own writer whose second image is changed before it is written: every sum is right."""
    (folder / "32").mkdir(parents=True)
    with ShardWriter(folder / "32/000000.tar") as writer:
        for i in range(3):
            writer.add(key(i), change(jpeg(i)) if i == 1 else jpeg(i), 0, note(i))
        manifest_of({"32": [writer.close()]}, class_counts=(3, 0)).save(folder)
    return folder


def test_only_deep_decodes(tmp_path: Path) -> None:
    out = rewrite(tmp_path / "cut", lambda data: data[: len(data) // 2])
    assert verify(out) == []
    (fault,) = verify(out, deep=True)
    assert fault.sample_id == 1 and "JPEG" in fault.reason


def test_deep_compares_sizes(tmp_path: Path) -> None:
    out = rewrite(tmp_path / "other", lambda data: jpeg(7))
    assert verify(out) == []
    (fault,) = verify(out, deep=True)
    assert fault.reason == "the photograph has 39x32 pixels, and its .json says 33x32"


def test_deep_compares_formats(tmp_path: Path) -> None:
    """A tar file that names a PNG as a JPEG, with every sum right."""
    png = encoded(scene(32, 33, 1), "PNG")
    out = rewrite(tmp_path / "other", lambda data: png)
    tar = out / "32/000000.tar"
    before = header(f"{key(1)}.png", len(png))
    data = tar.read_bytes()
    assert data.count(before) == 1
    tar.write_bytes(data.replace(before, header(f"{key(1)}.jpg", len(png))))
    index = ShardIndex.open(tar.with_suffix(".idx"))
    group = tar.read_bytes()[index[1].offset - BLOCK_BYTES : index[2].offset - BLOCK_BYTES]
    forge_index(tar.with_suffix(".idx"), 1, format=0, crc=zlib.crc32(group))
    reseal(out, "32/000000.tar")
    assert verify(out) == []
    (fault,) = verify(out, deep=True)
    assert fault.sample_id == 1 and fault.reason == "it is a PNG, and its name ends with .jpg"


def test_a_head_that_only_readers_at_a_distance_would_miss_is_found(out: Path) -> None:
    manifest = Manifest.load(out)
    (scale,) = manifest.scales
    wrong = scale.shards[1].model_copy(update={"head_bytes": scale.shards[1].head_bytes - 1})
    shards = (scale.shards[0], wrong, scale.shards[2])
    manifest.model_copy(update={"scales": (scale.model_copy(update={"shards": shards}),)}).save(out)
    assert of_files(verify(out)) == [
        (INDEX, "has another head than the manifest says, which readers at a distance ask for")
    ]


def test_a_damaged_row_index_costs_no_sample(out: Path) -> None:
    flip(out / INDEX, (out / INDEX).stat().st_size - 1)
    assert [reason[:26] for path, reason in of_files(verify(out)) if path == INDEX] == [
        "its SHA-256 is " + hashlib.sha256((out / INDEX).read_bytes()).hexdigest()[:11],
        "its row indexes are damage",
    ]
    assert damaged(verify(out)) == []


# --- the command


def invoke(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["verify", *arguments])
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_says_that_all_is_well(out: Path) -> None:
    line = f"{out}: {NUM} samples at 32 in 3 shards: all is well"
    assert invoke(str(out)) == (0, f"{line} (photographs were not decoded: --deep does that)\n", "")
    assert invoke(str(out), "--deep") == (0, f"{line}\n", "")


def test_the_command_lists_faults_and_exits_with_1(out: Path) -> None:
    flip(out / TAR, 700)
    code, text, errors = invoke(str(out))
    lines = text.splitlines()
    assert (code, errors) == (1, "")
    assert lines[0].startswith(f"{TAR}/{key(PER_SHARD)}, sample {PER_SHARD}: its bytes are not those that were written")
    assert lines[1].startswith(f"{TAR}: its SHA-256 is ")
    assert lines[2:] == [f"{out}: {NUM} samples at 32 in 3 shards: 2 faults, 1 damaged sample"]


def test_the_command_prints_json(out: Path) -> None:
    code, text, _ = invoke(str(out), "--json", "--deep")
    well = json.loads(text)
    assert code == 0 and well["is_well"] is True and well["deep"] is True and well["faults"] == []
    assert (well["samples"], well["scales"][0]["name"], well["scales"][0]["shards"]) == (NUM, "32", NUM_SHARDS)
    flip(out / TAR, 700)
    code, text, _ = invoke(str(out), "--json")
    ill = json.loads(text)
    assert code == 1 and ill["is_well"] is False
    assert ill["faults"][0]["path"] == TAR and ill["faults"][0]["sample_id"] == PER_SHARD
    assert ill["faults"][0]["key"] == key(PER_SHARD) and ill["faults"][1]["key"] is None
