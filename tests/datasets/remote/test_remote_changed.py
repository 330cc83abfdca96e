"""Remote files that change under an open source, also at a server that has no word for their state."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

import fsspec

from augpipe.datasets.formats.remote_folder import RemoteFolderSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.remote.remote_error import RemoteError
from augpipe.errors import SourceChangedError
from augpipe.sources.identity import identity_of, stored_names
from augpipe.sources.protocol import check_unchanged, content_digest_of, has_stored_names
from tests.datasets.formats.tar_files import put
from tests.datasets.remote.misbehaving_server import Server, quick, serving


def write(root: Path, letter: bytes, num: int = 3) -> bytes:
    members = [(f"{n}.jpg", letter * 7) for n in range(num)]
    return put(root / "a.tar", members).read_bytes()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write(tmp_path / "served", b"a")
    with serving(tmp_path / "served") as made:
        yield made


@pytest.mark.parametrize(("has_etag", "num"), [(False, 3), (False, 4), (True, 3)])
def test_a_tar_file_over_http(tmp_path: Path, server: Server, has_etag: bool, num: int) -> None:
    if not has_etag:
        server.etags["a.tar"] = ""
    source = TarSource(server.url("a.tar"), remote=quick(tmp_path / "cache", block_bytes=4096))
    check_unchanged(source)
    num_requests = server.num_requests("a.tar")
    write(tmp_path / "served", b"b", num)
    if has_etag:  # each answer says it, and what is kept is of the state that was opened
        check_unchanged(source)
        assert server.num_requests("a.tar") == num_requests and source.read(0) == b"a" * 7
        source._files._store.forget(source._files._files[0], 1, 0)  # type: ignore[union-attr]
        with pytest.raises(RemoteError, match="it has changed since it was opened"):
            source.read(0)
        return
    with pytest.raises(SourceChangedError, match=r"a.tar has changed since it was opened.*Open the data set again"):
        check_unchanged(source)


def test_other_file_systems_say_it_when_they_are_asked(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    url = "memory://bucket/a.tar"
    try:
        system.pipe("/bucket/a.tar", write(tmp_path, b"a"))
        source = TarSource(url, remote=quick(tmp_path / "cache"))
        check_unchanged(source)
        system.rm("/bucket/a.tar")
        system.pipe("/bucket/a.tar", write(tmp_path, b"b"))
        with pytest.raises(SourceChangedError, match=r"a.tar has changed since it was opened"):
            check_unchanged(source)
    finally:
        system.rm("/bucket", recursive=True)


def test_what_is_known_of_remote_files(tmp_path: Path, server: Server) -> None:
    remote = quick(tmp_path / "cache")
    assert identity_of(TarSource(server.url("a.tar"), remote=remote)) == identity_of(
        TarSource(tmp_path / "served/a.tar")
    )
    system = fsspec.filesystem("memory")
    try:
        for name, content in (("cat/1.jpg", b"1"), ("dog/2.jpg", b"22")):
            system.pipe(f"/photos/{name}", content)
        source = RemoteFolderSource("memory://photos", remote=remote)
        assert has_stored_names(source) and list(stored_names(source)) == ["cat/1.jpg", "dog/2.jpg"]
        before = content_digest_of(source)
        system.pipe("/photos/dog/2.jpg", b"333")
        assert before and content_digest_of(RemoteFolderSource("memory://photos", remote=remote)) != before
    finally:
        system.rm("/photos", recursive=True)
