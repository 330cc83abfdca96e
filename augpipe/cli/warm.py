"""`augpipe warm`: all kernels compiled ahead of the first batch."""

from typing import Annotated

import typer

from augpipe.cli.common import JsonOption, print_json
from augpipe.validation.plural import count


def warm(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    json: JsonOption = False,
) -> None:
    """Compile all kernels for this CPU, as for a Docker image or the nodes of a cluster; takes a minute or two, once.

    They are kept below $AUGPIPE_CACHE_DIR, else in the user's cache
    folder. What a wheel brought with it is not compiled again.
    """
    from augpipe.gpu_ops.compiled.cache import find
    from augpipe.gpu_ops.compiled.declared import overloads
    from augpipe.gpu_ops.compiled.folder import CACHE_VARIABLE, kernels_name, lasting_folder, readable_folder
    from augpipe.gpu_ops.compiled.warm import warm
    from augpipe.native.workers import num_usable_cores
    from augpipe.reports.progress_bar import ProgressBar

    num_before = sum(find(one) is not None for one in overloads())
    is_complete = num_before == len(overloads())
    folder = readable_folder(kernels_name()) if is_complete else lasting_folder()
    if folder is None and not is_complete:
        raise ValueError(f"there is no folder to keep kernels in. Set {CACHE_VARIABLE} to one that can be written.")
    made = []
    with ProgressBar(unit="kernel", shows=not quiet) as bar:
        bar.begin("compiling kernels", len(overloads()), num_before)
        for one in warm(num_usable_cores()):
            made.append(one)
            bar.update(max(num_before, len(made)))
    num_now = len(made) - num_before
    if json:
        kept = None if folder is None else str(folder)
        kernels = {one.name: str(place[0]) if (place := find(one)) else None for one in made}
        print_json({"folder": kept, "num_compiled": num_now, "kernels": kernels})
    elif not quiet:
        num_wheel = sum(place is not None and place[1] == "wheel" for place in map(find, made))
        of_wheel = f", {num_wheel} of them from the wheel" if num_wheel else ""
        print(f"{count(len(made), 'kernel')}: {num_now} compiled now, {num_before} before{of_wheel}")
        if folder is not None:
            print(f"kept in {folder}")
