"""What starting a run means on the command line: log lines on stderr, one line for what a user can mend, exit codes."""

import difflib
import json
import logging
import os
import signal
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from augpipe.native.control_groups import cpu_quota
from augpipe.native.workers import num_usable_cores
from augpipe.validation.plural import count

EXIT_USAGE, EXIT_FAILURE = 2, 1
_MOST_CONFIG_BYTES = 2**20
"""Longer files of other names are not looked at to their end: they are what is trained on."""
_EXAMPLE = "augpipe train --example > run.toml writes one to begin with"


def launch_replay(path: str, overrides: Iterable[str], log_folder: str, step: int | None) -> int:
    """Repeat a run with parameter servers from its order log; returns the exit code: 0 where it came out the same.

    Raises:
        ValueError: the config or the log is wrong, or they do not fit.
        OSError: a file cannot be read.
        ImportError: torch is not installed.
    """
    check_config(path)
    from augpipe.trainer.config.load import load_config

    config = load_config(path, overrides)
    if config.servers.mode == "off":
        raise ValueError(
            '--replay repeats runs with parameter servers, and servers.mode="off": give the config and the --set of '
            "the run. Runs by ranks repeat by themselves, with the same seed."
        )
    if not Path(log_folder).is_dir():
        raise ValueError(
            f"--replay {log_folder}: there is no such folder. A run's order is in the folder order of out."
        )
    load_torch("training")
    _log_to_stderr()
    from augpipe.trainer.servers.run import replay

    done, found = replay(config, Path(log_folder), step)
    print(f"augpipe: repeated up to update {done}; {found}", file=sys.stderr)
    return EXIT_FAILURE if "differ" in found else 0


def launch(path: str, overrides: Iterable[str]) -> int:
    """Run a config; returns the exit code: 0, or 128 + the signal that ended it, as shells have it.

    Raises:
        ValueError: the config is wrong, or does not fit.
        OSError: it cannot be read.
        ImportError: torch is not installed.
    """
    check_config(path)
    from augpipe.trainer.config.load import load_config

    config = load_config(path, overrides)
    load_torch("training")
    _log_to_stderr()
    if config.servers.mode == "off":
        from augpipe.trainer.loop import run

        keep_torch_to_quota()
    else:
        from augpipe.trainer.servers.run import run

    result = run(config)
    if int(os.environ.get("RANK", "0")) == 0:
        how = "stopped by " + signal.Signals(result.signal).name if result.signal is not None else "done"
        found = result.evaluation
        accuracy = "" if found is None else f", {result.evaluated}: top-1 {found.top1:.1%}"
        again = "; the same command goes on from here" if result.signal is not None else ""
        print(
            f"augpipe: {how} after {result.epochs_done:.2f} epochs, {count(result.step, 'step')}{accuracy}{again}",
            file=sys.stderr,
        )
        print(f"augpipe: {result.out}/metrics.csv; augpipe report {result.out} draws it", file=sys.stderr)
    return 0 if result.signal is None else 128 + result.signal


def keep_torch_to_quota(root: Path = Path("/")) -> None:
    """Give torch no more threads than a container's quota pays for: torch counts the cores of the whole machine.

    Args:
        root: where /proc and /sys are.
    """
    import torch

    if cpu_quota(root) is not None and torch.get_num_threads() > num_usable_cores(root):
        torch.set_num_threads(num_usable_cores(root))


def check_config(path: str) -> None:
    """Say of a path that is not a config what to do, before anything is imported that takes its time.

    Raises:
        ValueError: it does not exist, or is what a run trains on instead of its config.
    """
    file = Path(path)
    if not file.exists():
        near = difflib.get_close_matches(file.name, [other.name for other in file.parent.glob("*.toml")], n=1)
        hint = f" Did you mean {file.parent / near[0]}?" if near else ""
        raise ValueError(f"there is no file {path}.{hint} A run takes a TOML config: {_EXAMPLE}.")
    if not file.is_dir() and _may_be_config(file):
        return
    what = "a folder" if file.is_dir() else "not a TOML file"
    raise ValueError(
        f"{path} is {what}, and a run takes a TOML config. {_EXAMPLE}: to train on {path}, set "
        f"source = {json.dumps(path, ensure_ascii=False)} below [data] there."  # a JSON string is one of TOML too
    )


def _may_be_config(file: Path) -> bool:
    if file.suffix.lower() == ".toml" or not file.is_file():
        return True  # meant as one, or a pipe, which can be read once: whoever reads it says what is wrong there
    with file.open("rb") as opened:
        start = opened.read(_MOST_CONFIG_BYTES + 1)
    try:
        tomllib.loads(start.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return len(start) <= _MOST_CONFIG_BYTES


def load_torch(doing: str) -> None:
    """Import torch, which takes seconds, behind a bar of the first rank.

    Raises:
        ImportError: it is not installed; says how to get it.
    """
    if find_spec("torch") is None:
        raise ImportError(f'{doing} needs torch, which is not installed: pip install "augpipe[torch]"')
    from augpipe.planning.output_format import import_torch
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("loading torch", shows=os.environ.get("RANK", "0") == "0", tells_end=False):
        import_torch()


def main(arguments: list[str]) -> int:
    """What torchrun calls once for each rank: CONFIG [--set a.b=c]..."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m augpipe.trainer",
        description="One rank of a training run.",
        epilog="Exit codes are those of augpipe train.",
    )
    parser.add_argument("config", metavar="CONFIG", help="TOML file; augpipe train --example prints one")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE")
    parsed = parser.parse_args(arguments)
    return launch(parsed.config, parsed.overrides)


def end_after(error: BaseException) -> int:
    """Say what went wrong, in a line where the user can mend it, and how the process is to exit."""
    rank = os.environ.get("RANK")
    who = "augpipe" if rank is None else f"augpipe (rank {rank})"
    if isinstance(error, KeyboardInterrupt):
        print(f"{who}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    if type(error).__name__ in (
        "PeerError",
        "NotFiniteError",
        "SaveError",
        "SyncError",
        "SampleError",
        "DeviceError",
        "RunFailed",
    ):
        print(f"{who}: {error}", file=sys.stderr)
        return EXIT_FAILURE
    if isinstance(error, ValueError | OSError | ImportError) and not _is_bug(error):
        print(f"{who}: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ValueError) else EXIT_FAILURE
    traceback.print_exception(error)
    return EXIT_FAILURE


def _is_bug(error: BaseException) -> bool:
    """A ValueError that some library raised deep inside is not a message for users."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    _, installed, module = last.rpartition(f"{os.sep}site-packages{os.sep}")
    return isinstance(error, ValueError) and bool(installed) and not module.startswith(f"augpipe{os.sep}")


class _ToStderr(logging.Handler):
    """Writes to what sys.stderr is at the time: the bar takes its place, to print lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        print(self.format(record), file=sys.stderr, flush=True)


@contextmanager
def trainer_on_stderr() -> Iterator[None]:
    """Within it what the trainer warns of is said on stderr, where no handler says it already."""
    logger = logging.getLogger("augpipe.trainer")
    handler = None if logger.handlers or logging.getLogger("augpipe").handlers else _ToStderr()
    if handler is not None:
        handler.setFormatter(logging.Formatter("augpipe: %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        if handler is not None:
            logger.removeHandler(handler)


def _log_to_stderr() -> None:
    rank = int(os.environ.get("RANK", "0"))
    name = "augpipe" if "RANK" not in os.environ or rank == 0 else f"augpipe (rank {rank})"
    logger = logging.getLogger("augpipe")
    if not logger.handlers:
        handler = _ToStderr()
        handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
