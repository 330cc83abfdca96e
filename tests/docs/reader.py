"""A process that does what pages say, each in a child of its own: torch and numba are loaded once, augpipe anew.

It takes a page a line from stdin, as JSON, and answers with the child's exit code; what it prints goes to a file. The
`augpipe` that a page's shell finds is tests/docs/commands.py, of which each command is forked from one process, too.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import traceback
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
import torch._dynamo  # which every optimizer imports

from tests.docs import commands


def main() -> None:
    numba.njit(lambda number: number)(1)  # numba sets itself up at the first function, which takes a second
    commands.serve_in_background()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_read_alone(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # to free all that torch has made would take seconds


def _read_alone(*, page: str, folder: str, steps: list[dict[str, Any]], log: str) -> int:
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdin.close()
    os.chdir(folder)
    warnings.simplefilter("error")
    try:
        read(page, steps)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def read(page: str, steps: list[dict[str, Any]]) -> None:
    """Do the blocks of a page in their order, in one namespace and in the current folder.

    Args:
        page: the page's path, for tracebacks.
        steps: of each block its `language`, `text` and `line`; in `before` Python that runs before it, of which it sees
            what is in `given`; and in `then` expressions that are to hold after it. They see what the page's Python
            has defined, and what the block printed as `output`.

    Raises:
        AssertionError: a command fails, prints something else, or an expression does not hold.
    """
    known: dict[str, Any] = {"__name__": "__main__"}
    for step in steps:
        prepared: dict[str, Any] = {"given": {}}
        for code in step["before"]:
            exec(code, prepared)
        known |= prepared["given"]
        output = _do(known, page, step["language"], step["text"], step["line"])
        helpers = {"Path": Path, "np": np, "os": os, "output": output, "re": re, "there": _there, "torch": torch}
        for expectation in step["then"]:
            if not eval(expectation, helpers | known):
                raise AssertionError(f"{page}, line {step['line']}: this does not hold: {expectation}\n{output}")


def _do(known: dict[str, Any], page: str, language: str, text: str, line: int) -> str:
    """What it prints."""
    match language:
        case "python":
            with redirect_stdout(StringIO()) as printed:
                exec(compile("\n" * (line - 1) + text, page, "exec"), known)
            return printed.getvalue()
        case "toml":  # a file that is called what it says
            Path(f"{tomllib.loads(text)['name']}.toml").write_text(text)
            return ""
        case "console":
            return _compare(text, page, line)
        case _:
            return _run(text, page, line)


def _there(*patterns: str) -> bool:
    return all(any(Path().glob(pattern)) for pattern in patterns)


def _compare(session: str, page: str, line: int) -> str:
    """Run the commands behind `$`; what they print is below them, where abc… is any text."""
    output = ""
    for command, _, expected in (part.partition("\n") for part in re.split(r"^\$ ", session, flags=re.M)[1:]):
        output = _run(f"{command} || true", page, line)
        if not re.fullmatch(re.sub(r"\w*…", ".*", re.escape(expected)), output):
            raise AssertionError(f"{page}, line {line}: {command} prints\n{output}")
    return output


def _run(script: str, page: str, line: int) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(f"{page}, line {line}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
