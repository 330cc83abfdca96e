"""A Python function as a routine of its own within a kernel's code, compiled without asking for a device."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from numba.cuda import types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature


def as_intrinsic(definition: Callable[..., Any], parameters: Iterable[str]) -> Any:
    """An intrinsic from `definition(typingctx, *argument_types)`; numba must see a name for each argument."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(name, kind) for name in ("typingctx", *parameters)]
    definition.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return intrinsic(definition)


def subroutine(body: Callable[..., Any], returned: tuple[str, ...]) -> Any:
    """`body` for kernels, compiled for the argument types it is called with; `returned` names its results' types."""
    results = [getattr(types, name) for name in returned]
    if len(results) == 1:
        result = results[0]
    else:
        result = types.Tuple(results) if results else types.none

    def call(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            compiled = context.compile_subroutine(builder, body, sig)
            return context.call_internal(builder, compiled.fndesc, sig, args)

        return signature(result, *[types.unliteral(argument) for argument in given]), codegen

    return as_intrinsic(call, inspect.signature(body).parameters)
