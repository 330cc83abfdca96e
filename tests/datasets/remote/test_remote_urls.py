"""URLs: which strings are some, how they are joined and shown, and what is said where a package is missing."""

import sys
from pathlib import Path

import pytest

from augpipe.datasets.open import open_source
from augpipe.datasets.remote.urls import as_url, join, name_of, parent, shown


def test_what_is_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_url("s3://bucket/a.tar") == as_url("S3://bucket/a.tar") == "s3://bucket/a.tar"
    assert as_url(Path("https://host/a/b.tar")) == "https://host/a/b.tar", "a Path makes one slash of two"
    for local in ("a.tar", "/a/b", "C:/a", "C:\\a", "a:b", "", 3, b"s3://a", Path("/a"), "s3://", "s3:///a"):
        assert as_url(local) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:").mkdir()
    (tmp_path / "odd:/a").touch()
    assert as_url("odd:/a") is None and as_url("odd:/b") == "odd://b"


def test_a_signature_stays_at_the_end_and_is_not_shown() -> None:
    url = "https://user:word@host:8080/set/?sig=1/2"
    assert join(url, "32", "0.tar") == "https://user:word@host:8080/set/32/0.tar?sig=1/2"
    assert parent("https://host/set/32?sig=1/2") == ("https://host/set?sig=1/2", "32")
    assert name_of(url) == "set" and name_of("s3://bucket/a?b") == "a?b"
    assert shown(url) == "https://host:8080/set/"
    assert shown("s3://bucket/a?b") == "s3://bucket/a?b", "a letter of the name"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="nosuch"):
        open_source("nosuch://bucket/a.tar")
    for protocol, package in (("s3", "s3fs"), ("gs", "gcsfs")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=f"{protocol}://bucket/a.tar cannot be read.* pip install {package}"):
            open_source(f"{protocol}://bucket/a.tar")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ImportError, match=r'pip install "augpipe\[remote\]"'):
        open_source("https://host/a.tar")
