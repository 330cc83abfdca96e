"""Nothing that augpipe reads is unpickled: the tests run under an audit, which is in force in their processes, too."""

import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from tests.child_path import child_path
from tests.distributed.forked_python import ForkedPython

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


@pytest.mark.slow
def test_forked_processes_are_under_it_and_unpickle_no_objects_of_other_ranks(tmp_path: Path) -> None:
    """Ranks of the tests are such processes; what torch unpickles for somebody counts as that one's."""
    (tmp_path / "a_reader.py").write_text(
        "import torch.distributed as dist\n\n\ndef gather(given):\n    found = [None]\n"
        "    dist.all_gather_object(found, given)\n    return found\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import a_reader, collections\n"
        "import torch.distributed as dist\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank=0, world_size=1)\n"
        "print(sys.refuses_to_unpickle, a_reader.gather([1, 2.5]))\n"
        "a_reader.gather(collections.OrderedDict())\n"
    )
    process = ForkedPython(["-c", script])
    out, err = process.communicate(timeout=60)
    assert out.strip() == "True [[1, 2.5]]"
    assert "collections.OrderedDict is unpickled by gather" in err


def test_no_test_starts_python_without_the_audit() -> None:
    """`child_path` puts it first; a bare checkout on PYTHONPATH would leave it out."""
    bare = '"PYTHONPATH": str(' + "ROOT)"
    tests = Path(__file__).parent
    found = [path.relative_to(tests).as_posix() for path in sorted(tests.rglob("*.py")) if bare in path.read_text()]
    assert found == ["benchmarks/test_harness.py"], "whose DataLoaders unpickle what their workers send"
    assert child_path().startswith(str(tests / "unpickling"))
