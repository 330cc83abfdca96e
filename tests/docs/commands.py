"""The `augpipe` of a page's shell: a command that a process which has imported all of augpipe forks, and waits for.

Started anew, each would spend seconds on imports. What a fresh process does is tested in tests/augpipe/cli.
"""

import json
import os
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import NoReturn

IMPORTED = (
    "augpipe.cli.app",
    "augpipe.loader",
    "augpipe.datasets.prepare.prepare",
    "augpipe.datasets.stats",
    "augpipe.trainer.evaluation",
    "augpipe.trainer.launch",
    "augpipe.trainer.loop",
    "augpipe.trainer.simulate",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
)
SHIM = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    job = json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]).encode()
    socket.send_fds(asked, [len(job).to_bytes(4, "big")], [0, 1, 2])
    asked.sendall(job)
    code = asked.recv(1)
sys.exit(code[0] if code else "the command died")
"""


def serve_in_background() -> None:
    """Fork the process that forks the commands, and put `augpipe` first on this one's PATH."""
    folder = mkdtemp()
    address = f"{folder}/asked"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    shim = Path(folder) / "augpipe"
    shim.write_text(SHIM.format(python=sys.executable, address=address))
    shim.chmod(0o755)
    parent = os.getpid()
    if os.fork() == 0:
        for module in IMPORTED:
            import_module(module)
        _serve(listening, parent)
        os._exit(0)
    listening.close()
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def _serve(listening: socket.socket, parent: int) -> None:
    """Fork a process for each command, until the parent ends."""
    listening.settimeout(1)
    while os.getppid() == parent:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # there is none
            pass
        try:
            asked, _ = listening.accept()
        except TimeoutError:
            continue
        with asked:
            if os.fork() == 0:
                asked.settimeout(None)
                _run(asked)


def _run(asked: socket.socket) -> NoReturn:
    """Be the command: its folder, environment, arguments and files, and its exit code to who asked."""
    from augpipe.__main__ import main

    code = 1
    try:
        length, outputs, _, _ = socket.recv_fds(asked, 4, 3)
        with asked.makefile("rb") as file:
            folder, environment, arguments = json.loads(file.read(int.from_bytes(length, "big")))
        for number, output in enumerate(outputs):
            os.dup2(output, number)
            os.close(output)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["augpipe", *arguments]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.sendall(bytes([code]))
        os._exit(code)
