"""Ray: which one there is, and whether it is new enough for parameter servers and for prepare on a cluster."""

from collections.abc import Callable
from typing import Any

from augpipe.doctor.finding import Finding
from augpipe.validation.ray_address import require_ray

BRINGS = "training through parameter servers ([servers] of a run's config), and augpipe prepare --engine ray"
INSTALL = 'pip install "augpipe[ray]"'
OLDEST = (2, 44)
"""The first Ray that augpipe takes, as pyproject.toml has it."""


def clusters(require: Callable[[], Any] = lambda: require_ray("", INSTALL)) -> list[Finding]:
    """One line; Ray is imported, and no cluster is started.

    Args:
        require: gives the module; raises ImportError where it cannot be imported.
    """
    name = "Ray"
    try:
        module = require()
    except ImportError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == "ray":
            return [Finding(name=name, status="missing", text="not installed", brings=BRINGS, command=INSTALL)]
        reason = str(cause or error).strip().split("\n", 1)[0]
        return [
            Finding(
                name=name,
                status="broken",
                text=f"cannot be imported: {reason}",
                brings=BRINGS,
                command="pip install --force-reinstall ray",
            )
        ]
    version = str(module.__version__)
    data = {"version": version}
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        text = f"{version} is too old: augpipe takes {wanted} or newer"
        return [Finding(name=name, status="broken", text=text, brings=BRINGS, command=f"{INSTALL} -U", data=data)]
    return [Finding(name=name, status="ok", text=f"{version}; a run starts a cluster, or joins one", data=data)]
