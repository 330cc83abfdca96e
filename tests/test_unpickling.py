"""Nothing that augpipe reads is unpickled: the tests run under an audit, which is in force in their processes, too."""

import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

READER = "import pickle\n\n\ndef read(data):\n    return pickle.loads(data)\n"


def test_code_that_is_not_named_cannot_unpickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what is harmless; numbers and texts alone name nothing to run."""
    (tmp_path / "a_reader.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    import a_reader  # type: ignore[import-not-found]

    assert a_reader.read(pickle.dumps({"a": [1, 2.5]})) == {"a": [1, 2.5]}
    with pytest.raises(RuntimeError, match=r"collections\.OrderedDict is unpickled by read in .*a_reader\.py, line 5"):
        a_reader.read(pickle.dumps(OrderedDict()))
    assert pickle.loads(pickle.dumps(OrderedDict())) == OrderedDict()  # a test's own copy


def test_processes_that_tests_start_are_under_it(tmp_path: Path) -> None:
    (tmp_path / "a_reader.py").write_text(READER)
    (tmp_path / "data").write_bytes(pickle.dumps(OrderedDict()))
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", "import a_reader; a_reader.read(open('data', 'rb').read())"]
    ended = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert ended.returncode == 1 and "OrderedDict is unpickled by read" in ended.stderr
