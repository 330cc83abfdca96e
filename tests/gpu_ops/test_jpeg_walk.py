"""The walk over all codes of a JPEG beside libjpeg-turbo: whatever that refuses is no sound file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from augpipe.gpu_ops.jpeg.walk import DAMAGED, SOUND, TRUNCATED, walk, walk_frame
from tests.augpipe.decoding.changed_bytes import is_refused, one_byte_changes, scans
from tests.augpipe.decoding.image_files import encoded, jpeg_kinds, scene
from tests.augpipe.decoding.odd_jpegs import jpeg_of_scans

IMAGE = scene(70, 100)
FILES = jpeg_kinds(70, 100) | {
    "optimized": encoded(IMAGE, "JPEG", optimize=True, quality=40),
    "progressive restart": encoded(IMAGE, "JPEG", progressive=True, restart_marker_blocks=5),
    "large": encoded(IMAGE, "JPEG", keep_rgb=True, quality=98),
    "scans of one component": jpeg_of_scans(70, 100, [(2, 2), (1, 1), (1, 1)], rows=1)[0],
    "progressive scans of one component": jpeg_of_scans(70, 100, [(2, 1), (1, 1), (1, 1)], progressive=True)[0],
}


def verdict(data: bytes) -> int:
    return int(walk(np.frombuffer(data, np.uint8)))


@pytest.mark.parametrize(("seed", "kind"), [*enumerate(FILES)])
def test_what_libjpeg_refuses_is_not_sound(seed: int, kind: str) -> None:
    sound = FILES[kind]
    assert verdict(sound) == SOUND
    assert verdict(sound[:-2] + bytes(9) + sound[-2:] + b"behind it") == SOUND
    num_refused = 0
    for at, data in one_byte_changes(sound, 150, seed):
        if is_refused(data):
            num_refused += 1
            assert verdict(data) != SOUND, at
    assert num_refused > 5


@pytest.mark.parametrize("kind", FILES)
def test_a_file_cut_at_any_place_is_not_sound(kind: str) -> None:
    data = FILES[kind]
    verdicts = {verdict(data[:end]) for end in range(0, len(data) - 1, 5)}
    assert TRUNCATED in verdicts and SOUND not in verdicts
    start, stop = scans(data)[-1]
    middle = (start + stop) // 2
    assert verdict(data[:middle] + data[-2:]) == DAMAGED
    assert verdict(data[:-2] + b"codes left over" + data[-2:]) == DAMAGED


def test_what_lies_behind_a_short_frame_is_not_read() -> None:
    file = np.frombuffer(bytes.fromhex("ffd8ffc00002"), np.uint8)
    components = np.zeros((4, 8), np.int64)
    assert walk_frame.py_func(file, len(file), len(file), components) == (0, 0)  # Python checks each index


WITHIN_BOUNDS = """
from tests.augpipe.decoding.image_files import corruptions
from tests.gpu_ops.test_jpeg_walk import FILES, SOUND, verdict

found = [verdict(data) for seed, file in enumerate(FILES.values()) for data in corruptions(file, 1500, seed)]
print(len(found), found.count(SOUND))
assert 0.05 < found.count(SOUND) / len(found) < 0.7
"""


@pytest.mark.deep
def test_no_memory_but_its_own_is_touched(tmp_path: Path) -> None:
    """By numba's own check of every index, in headers and codes that are damaged in many ways."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "AUGPIPE_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", WITHIN_BOUNDS], capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
