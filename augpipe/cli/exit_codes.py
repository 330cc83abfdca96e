"""Exit codes: what each means, and from an exception to one line on stderr and its code."""

import errno
import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

USAGE, FAILURE, INTERRUPTED = 2, 1, 130
CODES = {0: "done", FAILURE: "failed", USAGE: "wrong use", INTERRUPTED: "Ctrl-C"}
"""What the codes of every command mean."""
_OF_IMAGES = {FAILURE: "failed, or an image cannot be used"}
OWN_CODES: dict[str, dict[int, str]] = {
    **dict.fromkeys(("bench", "evaluate", "explain", "prepare", "preview", "replay", "stats"), _OF_IMAGES),
    "demo": {FAILURE: "failed, or training fell short of the stated accuracy"},
    "doctor": {0: "augpipe runs here", FAILURE: "something that it needs is broken"},
    "train": {FAILURE: "failed, or a replay differs", 143: "SIGTERM"},
    "verify": {0: "all is well", FAILURE: "failed, or something is damaged"},
}
"""What they mean of single commands, where that is more."""
_LINE = 240
"""Letters of the longest line that two are joined to: three lines of a terminal."""
ASKED_WRONGLY = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class Failure(Exception):
    """Something went wrong that the user should read one line about."""


class Interrupted(Exception):
    """Ctrl-C; the text is what is said of it."""


class Group(TyperGroup):
    """A group of commands that ends without a traceback."""

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, and keep an interrupt from typer, which makes an exit code of it silently.

        A command that has more to say of it raises `KeyboardInterrupt("stopped. Go on with ...")`.
        """
        try:
            return super().invoke(*args, **kwargs)
        except KeyboardInterrupt as stop:
            raise Interrupted(str(stop) or "interrupted") from stop

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """Run a command and exit; every error that a user can cause is one line."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # Python hides these by default; who passes an old option is the one to read them
                warnings.filterwarnings("always", category=DeprecationWarning, module=r"augpipe\.cli\.")
                code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except (Interrupted, KeyboardInterrupt, typer.Abort) as stop:
            _say(str(stop) or "interrupted")
            code = INTERRUPTED
        except BrokenPipeError:
            # whoever read the output has gone: nothing is left to say, not even when the interpreter flushes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILURE
        except Exception as error:
            said = explain(error)
            if said is None:
                raise
            _say(said[0])
            code = said[1]
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def codes_of(command: str) -> dict[int, str]:
    """Exit code -> what it means of a command."""
    return CODES | OWN_CODES.get(command, {})


def epilog(command: str) -> str:
    """The exit codes in a line, for the end of a command's help."""
    return f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in codes_of(command).items())}."


def explain(error: Exception) -> tuple[str, int] | None:
    """(line, exit code) of an error that a user can cause; None for a bug of ours."""
    from augpipe.errors import DeviceError, SampleError
    from augpipe.validation.models import FieldError

    if hasattr(error, "format_message"):  # typer's own: its class has moved between its versions
        context = getattr(error, "ctx", None)
        hint = f" Try {context.command_path} --help." if context is not None else ""
        if context is not None and context.info_name == "train" and hasattr(error, "option_name"):
            hint = f" A field of the config is set by --set, as --set optim.lr=0.1.{hint}"
        line = _one_line(error.format_message()).replace("Value error, ", "").replace("Input should be", "it must be")
        return line + ("" if line.endswith(("?", ".")) else ".") + hint, getattr(error, "exit_code", USAGE)
    if isinstance(error, SampleError):
        return str(error), FAILURE
    if isinstance(error, OSError):
        code = USAGE if isinstance(error, ASKED_WRONGLY) else FAILURE
        where = f"{error.filename}: " if error.filename is not None else ""
        reason = error.strerror or str(error)
        if error.errno == errno.EACCES:
            reason += ": you may not read or write it"
        return f"{where}{reason}.", code
    if isinstance(error, FieldError):
        return _one_line("\n".join(error.lines)), USAGE
    if isinstance(error, ASKED_WRONGLY):
        return _one_line(str(error)), USAGE
    if isinstance(error, Failure | DeviceError | ImportError | MemoryError):
        return str(error) or "out of memory", FAILURE
    return None


def _one_line(text: str) -> str:
    """Two short lines become one; a list of several problems stays a list."""
    lines = [line.strip() for line in text.strip().splitlines()]
    joined = " ".join(lines)
    return joined if len(lines) <= 2 and len(joined) <= _LINE else text.strip()


def _say(text: str) -> None:
    print(f"augpipe: {text}", file=sys.stderr)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    _say(f"warning: {message}")
