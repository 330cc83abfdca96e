"""report.html: one page, names are text, and the curve of class sizes covers all classes."""

import re
from html.parser import HTMLParser
from pathlib import Path

from augpipe.datasets.prepare.report import _profile
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.datasets.prepare.prepare_sources import prepare_inline as run


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_page_and_names_are_text(tmp_path: Path) -> None:
    files = {f"<b>&amp;{number}/<img src=x>{number}.jpg": encoded(scene(40, 50), "JPEG") for number in range(45)}
    files["<b>&amp;0/<script>alert(1)<!--.jpg"] = b"hello"
    for name in list(files):  # a slash ends a folder's name
        assert "</" not in name
    write_files(tmp_path / "<i>photos", files)
    run(tmp_path / "<i>photos", tmp_path / "out", on_error="skip")
    page = Page((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert not {"b", "i", "script", "link"} & set(page.tags) - {"i"} and page.tags.count("img") == 24
    for name, value in page.attributes:
        if name in ("src", "href"):
            assert value is not None and value.startswith("data:image/jpeg;base64,")
    assert "<i>photos: 45 photographs in shards" in page.text
    assert "<b>&amp;44" in page.text and "<script>alert(1)<!--.jpg" in page.text
    assert "Classes (45), by size" in page.text and "polygon" in page.tags


def test_of_many_rejects_the_first_are_shown(tmp_path: Path) -> None:
    files = {f"{number:03}.jpg": b"hello" for number in range(96)}
    files |= {f"{number:03}.jpg": encoded(scene(20, 20), "JPEG") for number in range(0, 96, 32)}
    write_files(tmp_path / "photos", files)
    manifest = run(tmp_path / "photos", tmp_path / "out", on_error="skip")
    assert len(manifest.scales[0].shards) == 3 and manifest.num_rejected == 93
    text = Page((tmp_path / "out/report.html").read_text(encoding="utf-8")).text
    rejected = [name for name in sorted(files) if files[name] == b"hello"]
    assert [name for name in rejected if name in text] == rejected[:50]
    assert "and 43 more: rejects.csv lists them all" in text


def test_the_curve_of_classes_goes_from_the_largest_to_the_smallest() -> None:
    for num in (41, 799, 800, 801, 5_000):
        drawn = _profile(list(range(num, 0, -1)))
        found = re.search(r'points="([^"]+)"', drawn)
        assert found is not None
        points = [tuple(map(float, point.split(","))) for point in found[1].split()]
        assert points[0] == (0, 120) and points[-1] == (800, 120)
        assert points[1] == (0, 0) and points[-2][0] == 800
        lowest = 120 - 120 * max(num / 800, 1) / num  # the last class, or the last of those that are drawn
        assert abs(points[-2][1] - lowest) < 1
        assert f"from {num:,} photographs a class down to 1" in drawn
