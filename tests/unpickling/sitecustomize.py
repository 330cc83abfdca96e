"""Refuses to unpickle, in every Python process of the tests: Python imports this file as it starts.

Reading a pickle can run any program that is hidden in it. `ALLOWED` names the code that may do so all the same.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

ALLOWED = {
    "/gpu_ops/compiled/cache.py": "our own kernel cache, a folder that only its owner can write, or the package's",
    "/datasets/prepare/local_worker.py": "a pipe from the process that started this one",
    "/datasets/prepare/local_engine.py": "a pipe from a process that this one started",
    f"{Path(os.__file__).parent.as_posix()}/multiprocessing/": "the same, of Python's own",
    "/site-packages/torch/distributed/elastic/rendezvous/": "torchrun's meeting point: see docs/train.md",
    "/site-packages/ray/": "Ray's transport: see docs/servers.md",
    "/trainer/checkpoint/version_1.py": "a checkpoint of version 1 that somebody asked to convert, and said to trust",
    f"{TESTS.as_posix()}/": "copies that a test makes",
}
"""Parts of the paths of code that unpickles, with the reason."""
PASSED_OVER = (
    "/site-packages/torch/serialization.py",
    "/site-packages/torch/distributed/checkpoint/",
    "/site-packages/torch/distributed/distributed_c10d.py",
    "/site-packages/torch/distributed/c10d_logger.py",
)
"""What asks torch to run a pickle is looked at, not torch."""


class UnpickledError(RuntimeError):
    """Something was unpickled that should not have been; the message says by which code."""


def refuse(event, arguments):
    """An audit hook. Only pickles that name a class or a function can do harm, and they alone raise this event."""
    if event != "pickle.find_class":
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and any(part in _path(frame) for part in PASSED_OVER):
        frame = frame.f_back
    if not any(part in _path(frame) for part in ALLOWED):
        named = ".".join(map(str, arguments))
        raise UnpickledError(f"{named} is unpickled by {frame.f_code.co_name} in {_path(frame)}, line {frame.f_lineno}")


def _path(frame):
    return frame.f_code.co_filename.replace(os.sep, "/")


if not hasattr(sys, "refuses_to_unpickle"):
    sys.refuses_to_unpickle = True
    sys.addaudithook(refuse)
