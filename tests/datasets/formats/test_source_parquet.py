"""Parquet files as a source: columns, labels, the cache of row groups, and damaged files."""

import contextlib
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.formats.hugging_face_features import Kind, choose_columns
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource, _row_counts
from augpipe.datasets.formats.parquet.row_groups import GroupCache
from augpipe.datasets.open import open_source
from tests.augpipe.loader.loader_sources import run_python, together
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["ant", "bee", "cat"]}}


def put(path: Path, columns: dict[str, Any], features: dict[str, Any] | None = None, rows: int = 4) -> Path:
    """A Parquet file of these columns, `rows` rows a row group, with the metadata that Hugging Face writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=rows)
    return path


def images(contents: Sequence[bytes | None]) -> Any:
    return pa.array([{"bytes": content, "path": f"{i}.jpg"} for i, content in enumerate(contents)], IMAGE)


def standard(path: Path, first: int = 0, count: int = 10) -> Path:
    contents = [b"image %d" % (first + i) for i in range(count)]
    labels = pa.array([(first + i) % 3 for i in range(count)], pa.int64())
    return put(path, {"image": images(contents), "label": labels}, FEATURES)


# --- what is read


def test_as_hugging_face_writes_it(tmp_path: Path) -> None:
    path = standard(tmp_path / "train-00000-of-00001.parquet")
    source = open_source(path)
    assert isinstance(source, ParquetSource) and source.classes == ("ant", "bee", "cat")
    assert_keeps_the_protocol(source, [b"image %d" % i for i in range(10)], [i % 3 for i in range(10)])
    assert source.name(7) == f"{path}, row 7"


def test_several_files_count_on(tmp_path: Path) -> None:
    paths = [standard(tmp_path / f"train-{i:05}-of-00003.parquet", 10 * i, 10 - i) for i in range(3)]
    expected = [b"image %d" % (10 * i + j) for i in range(3) for j in range(10 - i)]
    for given_paths in (tmp_path, f"{tmp_path}/train-*.parquet", f"{tmp_path}/train-0000{{0..2}}-of-00003.parquet"):
        source = open_source(given_paths)
        assert [source.read(i) for i in range(len(source))] == expected
        assert source.name(10) == f"{paths[1]}, row 0"
        assert source.name(26) == f"{paths[2]}, row 7"
    standard(tmp_path / "test-00000-of-00001.parquet")
    with pytest.raises(
        ValueError, match=r"holds 2 splits: test, train. Give one of them by split=.train., or by a pattern"
    ):
        open_source(tmp_path)


DOGS = pa.array(["dog", None, "cat"])
DIGITS = {"label": {"_type": "ClassLabel", "names": ["2", "0", "1"]}}


@pytest.mark.parametrize(
    ("columns", "features", "labels", "classes"),
    [
        ({"id": range(3), "class": DOGS}, None, [1, -1, 0], ("cat", "dog")),
        ({"class": DOGS.dictionary_encode()}, None, [1, -1, 0], ("cat", "dog")),
        ({"text": ["x", "y", "z"]}, None, [-1, -1, -1], ()),
        *(
            ({"label": pa.array([5, None, 0], kind)}, None, [5, -1, 0], tuple("012345"))
            for kind in (pa.uint8(), pa.int8(), pa.int64())
        ),
        ({"label": [0, 1, 2]}, DIGITS, [0, 1, 2], ("2", "0", "1")),  # digits that are names: the numbers count
    ],
)
@pytest.mark.parametrize("as_binary", [False, True])
def test_labels_of_every_kind(
    tmp_path: Path, columns: dict[str, Any], features: Any, labels: list[int], classes: tuple[str, ...], as_binary: bool
) -> None:
    contents = [b"a", b"b", b"c"]
    pixels = pa.array(contents, pa.large_binary()) if as_binary else images(contents)
    source = ParquetSource(put(tmp_path / "a.parquet", {"png": pixels, **columns}, features))
    assert_keeps_the_protocol(source, contents, labels)
    assert source.classes == classes


def test_classes_that_are_given_number_the_labels(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", {"png": images([b"a", b"b", b"c"]), "class": DOGS})
    assert ParquetSource(path, classes=["dog", "cow", "cat"]).labels().tolist() == [0, -1, 2]


def test_several_columns_of_classes(tmp_path: Path) -> None:
    features = {
        "coarse_label": {"_type": "ClassLabel", "names": ["x"]},
        "fine_label": {"_type": "ClassLabel", "names": ["y", "z"]},
    }
    columns = {"img": images([b"a"]), "coarse_label": pa.array([0]), "fine_label": pa.array([1])}
    path = put(tmp_path / "a.parquet", columns, features)
    with pytest.warns(UserWarning, match=r"'fine_label' is taken, and 'coarse_label' left out. Pass label= to choose"):
        source = ParquetSource(path)
    assert (source.label(0), source.classes) == (1, ("y", "z"))
    assert ParquetSource(path, label="coarse_label").classes == ("x",)


def test_columns_that_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", {"a": images([b"a"]), "b": [b"b"], "n": [1], "x": [1.5]})
    with pytest.raises(ValueError, match=r"a.parquet: several columns could hold the images: 'a', 'b'. Pass image="):
        ParquetSource(path)
    assert ParquetSource(path, image="b").read(0) == b"b"
    with pytest.raises(ValueError, match=r"image='n' is not a column of encoded images .* Those are 'a', 'b'"):
        ParquetSource(path, image="n")
    with pytest.raises(ValueError, match=r"label='b' is not a column of integers or of text. Those are 'n'"):
        ParquetSource(path, image="a", label="b")
    none = put(tmp_path / "b.parquet", {"n": [1]})
    with pytest.raises(ValueError, match=r"b.parquet: no column holds encoded images"):
        ParquetSource(none)
    one, other = put(tmp_path / "c.parquet", {"image": images([b"a"])}), standard(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match=r"b.parquet: no column holds encoded images"):
        ParquetSource([one, none])
    with pytest.raises(ValueError, match=r"d.parquet: its columns or classes differ from those of .*c.parquet"):
        ParquetSource([one, other])
    columns = {"image": images([b"a"]), "label": [1]}
    renamed = {**FEATURES, "label": {"_type": "ClassLabel", "names": ["ant", "cat", "bee"]}}
    with pytest.raises(ValueError, match=r"e.parquet: its columns or classes differ from those of .*d.parquet"):
        ParquetSource([other, put(tmp_path / "e.parquet", columns, renamed)])


@pytest.mark.parametrize(
    ("rows", "stated", "reason"),
    [
        ([5, 5], 10, None),
        ([5, 5], 11, r"its row groups hold \[5, 5\] rows, and its footer speaks of 11"),
        ([11, -1], 10, r"its row groups hold \[11, -1\] rows"),
        ([5, 10**12], 5 + 10**12, "its footer speaks of 1000000000005 rows, and the file has 10 bytes"),
    ],
)
def test_a_footer_that_lies_about_rows(rows: list[int], stated: int, reason: str | None) -> None:
    groups = [SimpleNamespace(num_rows=num) for num in rows]
    metadata = SimpleNamespace(num_rows=stated, row_group=groups.__getitem__)
    file = SimpleNamespace(num_row_groups=len(rows), metadata=metadata)
    if reason is None:
        assert _row_counts(file, 10) == rows
    else:
        with pytest.raises(ValueError, match=reason):
            _row_counts(file, 10)


def test_a_file_that_was_replaced_meanwhile(tmp_path: Path) -> None:
    path = standard(tmp_path / "a.parquet", count=3)
    source = ParquetSource(path)
    for count in (2, 4):  # neither gives rows that belong to others
        standard(path, count=count)
        with pytest.raises(ValueError, match="a.parquet has changed since it was opened: it had"):
            source.read(1)


def test_labels_that_are_refused(tmp_path: Path) -> None:
    def file(labels: Any) -> Path:
        return put(tmp_path / "a.parquet", {"image": images([b"a"] * len(labels)), "label": labels}, FEATURES)

    with pytest.raises(ValueError, match=r"a.parquet, row 1: label 3 is not a class number \(0..2, or -1 for none\)"):
        ParquetSource(file([2, 3]))
    with pytest.raises(ValueError, match=r"a.parquet, row 0: label -2 is not a class number"):
        ParquetSource(file([-2]))
    with pytest.raises(ValueError, match=r"a.parquet: column 'label' holds numbers that are not class numbers"):
        ParquetSource(file(pa.array([2**63], pa.uint64())))
    with pytest.raises(ValueError, match=r"row 0: label 'dog' is none of the 3 classes given \('ant', 'bee', 'cat'\)"):
        ParquetSource(file(["dog"]))


def test_rows_without_an_image_fail_alone(tmp_path: Path) -> None:
    column = pa.array([{"bytes": None, "path": "/etc/hostname"}, {"bytes": b"b", "path": None}, None], IMAGE)
    source = ParquetSource(put(tmp_path / "a.parquet", {"image": column}))
    for row in (0, 2):
        with pytest.raises(ValueError, match="column 'image' holds no bytes in this row; a path alone names a file"):
            source.read(row)
    assert source.read(1) == b"b"


# --- the cache, threads, workers


def test_cache_is_bounded_and_shared(tmp_path: Path) -> None:
    contents = [bytes([i]) * 1000 for i in range(40)]
    path = put(tmp_path / "a.parquet", {"image": images(contents)}, rows=4)
    source = ParquetSource(path, cache_bytes=9000)  # two groups of four
    ids = [(7 * i) % 40 for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(source.read, ids)) == [contents[i] for i in ids]
    assert 0 < source._cache.num_bytes <= 9000
    copy = pickle.loads(pickle.dumps(source))
    assert [copy.read(i) for i in range(40)] == contents
    assert len(pickle.dumps(source)) < 2000


def test_a_group_is_loaded_once_by_many_threads() -> None:
    loads: list[int] = []

    def load(number: int) -> tuple[str, int]:
        loads.append(number)
        if number < 0:
            raise ValueError(f"no group {number}")
        return f"group {number}", 10

    cache = GroupCache(load, max_bytes=25)

    asked: list[str] = []
    together(4, lambda _: asked.append(cache.get(3)))
    assert asked == ["group 3"] * 4 and loads == [3]
    for number in (4, 3, 5):  # 4 is the one not asked for longest
        cache.get(number)
    assert cache.num_bytes == 20
    cache.get(3)
    assert loads == [3, 4, 5]
    cache.get(4)
    assert loads == [3, 4, 5, 4]
    for _ in range(2):
        with pytest.raises(ValueError, match="no group -1"):
            cache.get(-1)
    assert loads[-2:] == [-1, -1]


def test_cache_keeps_the_last_group_whatever_its_size() -> None:
    cache = GroupCache(lambda number: (number, 100), max_bytes=10)
    assert [cache.get(0), cache.get(1)] == [0, 1]
    assert cache.num_bytes == 100


# --- what is refused


def test_files_that_are_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"version https://git-lfs")
    with pytest.raises(ValueError, match=r"a.parquet: it is not a Parquet file: it begins with b'vers'"):
        open_source(path)
    whole = standard(tmp_path / "b.parquet").read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"a.parquet: it is truncated: of \d+ bytes the last are"):
        open_source(path)
    path.write_bytes(b"PAR1PAR1")
    with pytest.raises(ValueError, match=r"a.parquet: "):
        open_source(path)
    path.write_bytes(b"PAR1" + b"\xff" * 500 + (400).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"a.parquet: .* It is damaged: copy it again"):
        open_source(path)
    with pytest.raises(ValueError, match=r"no rows. Give files that hold some"):
        ParquetSource(put(tmp_path / "c.parquet", {"image": images([])}))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder holds no Parquet file"):
        ParquetSource(tmp_path / "folder")
    with pytest.raises(ValueError, match=r"paths is empty"):
        ParquetSource([])


@pytest.mark.slow
@settings(max_examples=75)
@given(data=st.data())
def test_changed_bytes_end_in_clear_errors_or_in_samples(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.getbasetemp() / "changed.parquet"
    content = bytearray(standard(path).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    source = None
    with refusals() as messages:
        source = ParquetSource(path)
    assert all("changed.parquet" in message for message in messages)
    for i in range(min(len(source), 100) if source is not None else 0):
        with refusals() as messages:
            assert isinstance(source.read(i), bytes)  # type: ignore[union-attr]
        assert all(messages)


@contextlib.contextmanager
def refusals() -> Iterator[list[str]]:
    """Collects the message of a ValueError; every other error goes on."""
    messages: list[str] = []
    try:
        yield messages
    except ValueError as error:
        messages.append(str(error))


def test_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = standard(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'Parquet files are read with pyarrow: pip install "augpipe\[parquet\]"'):
        open_source(path)


@pytest.mark.slow
def test_nothing_of_it_is_imported_before_it_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys; from augpipe.datasets.open import open_source; "
        f"open_source({str(tmp_path)!r}); print([m for m in ('pyarrow', 'datasets', 'pandas') if m in sys.modules]); "
        f"open_source({str(standard(tmp_path / 'p' / 'a.parquet'))!r}); print('pyarrow' in sys.modules)"
    )
    (tmp_path / "a.jpg").write_bytes(b"")
    ended = run_python(code, options=())
    assert ended.stdout.split("\n")[:2] == ["[]", "True"], ended.stderr


def test_metadata_of_others_is_passed_over(tmp_path: Path) -> None:
    table = pa.table({"image": images([b"a"])})
    for text in (b"no json", b"[]", b'{"info": 3}', b'{"info": {"features": [1]}}', b"\xff"):
        pq.write_table(table.replace_schema_metadata({b"huggingface": text}), tmp_path / "a.parquet")
        assert ParquetSource(tmp_path / "a.parquet").read(0) == b"a"


def test_names_win_over_position() -> None:
    others = dict.fromkeys(("width", "class"), Kind("int64", is_class=True, is_number=False))
    columns = choose_columns({}, ["thumbnail", "jpg"], others, image=None, label=None)
    assert columns[:3] == ("jpg", "class", None)
