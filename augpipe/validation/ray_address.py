"""Whether there is Ray, and a cluster at the address that a user has given."""

import socket
from importlib import import_module
from traceback import format_exception
from typing import Any

_REACHABLE_S = 10.0
"""For a connection to a cluster's head to be made."""


def require_ray(needed_by: str, command: str) -> Any:
    """The module `ray`.

    Args:
        needed_by: what cannot be done without, as the subject of a sentence, and its verb.
        command: installs it.

    Raises:
        ImportError: it is not installed; says how to get it.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError(f"{needed_by} Ray: {command}") from error


def check_reachable(address: str | None, remedy: str) -> None:
    """Fail at once where nobody listens: Ray itself goes on trying for ten minutes.

    Args:
        address: as `ray.init` takes it; a name such as auto is left to Ray, which resolves it.
        remedy: what else a user may do, after "or".

    Raises:
        ValueError: no connection can be made.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACHABLE_S).close()
    except OSError as error:
        raise ValueError(
            f"the Ray cluster at {address} cannot be reached ({error.strerror or error}). Check the address that ray "
            f"start --head printed, or {remedy}."
        ) from error


def join(ray: Any, address: str | None, remedy: str, **settings: Any) -> Any:
    """What `ray.init` returns, for a cluster of this machine alone where no address is given.

    Args:
        address: None does not join whatever cluster runs here, or has left its address.
        remedy: as `check_reachable` has it.
        settings: what else `ray.init` takes.

    Raises:
        ValueError: the cluster does not take this process.
    """
    try:
        return ray.init(address=address or "local", **settings)
    except ConnectionError as error:
        # Ray has the reason in the text of an error behind this one
        if "AuthenticationError" not in "".join(format_exception(error)):
            raise ValueError(
                f"the Ray cluster at {address} cannot be joined: {error}. Start it, or {remedy}."
            ) from error
        raise ValueError(
            f"the Ray cluster at {address} asks for its token. Set RAY_AUTH_MODE=token, and have the token that ray "
            f"get-auth-token prints there in ~/.ray/auth_token, or {remedy}."
        ) from error
