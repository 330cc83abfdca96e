"""Careless changes: what is changed in a source, and that each is another program."""

from pathlib import Path

from benchmarks.careless_changes import Change, is_another_program, places

SOURCE = '''"""A module."""
TIMEOUT_S = 30

def crop(words, file, height, width, rank, world_size):
    """At most 3 rows."""
    if height > 5:
        raise ValueError(f"{height + 2} is too high")
    applied = words.happens(0, 0.5)
    file.flush()
    return min(height, width), rank + 1, applied[:width]
'''


def test_lines_are_changed_by_every_operator_that_fits(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/crop.py").write_text(SOURCE)
    found = list(places(tmp_path, "trainer"))
    assert all(is_another_program(tmp_path, change) for change in found)
    made = {(change.operator, change.new.strip()) for change in found}
    assert made >= {
        ("bound", "if height >= 5:"),
        ("raise", "if False:"),
        ("axes", "if width > 5:"),
        ("word", "applied = words.happens(1, 0.5)"),
        ("constant", "applied = words.happens(0, 1.0)"),
        ("call", "pass"),
        ("clip", "return height, rank + 1, applied[:width]"),
        ("off by one", "return min(height, width), rank, applied[:width]"),
        ("rank", "return min(height, width), world_size + 1, applied[:width]"),
        ("slice", "return min(height, width), rank + 1, applied[:width - 1]"),
    }
    assert {change.line for change in found} == {6, 8, 9, 10}  # no text, no message, no tuning
    assert {change.function for change in found} == {"crop"}
    assert isinstance(found[0], Change)
