"""Build a network whose split layers are never whole: without memory at first, and filled part by part."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from augpipe.trainer.models.cifar import LocallyConnected2d
from augpipe.trainer.parallel.layers import Part
from augpipe.trainer.parallel.mesh import Mesh
from augpipe.trainer.parallel.split import Split, split
from augpipe.trainer.parallel.split_choice import choose_layers

_CHUNK = 2**18
"""Numbers that are drawn at once, about: a rank has so many of a whole layer in memory."""
_LINE = 16
"""torch draws a tensor's normal numbers so many at a time, and the last of them again where they do not fill a line."""
_DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


def build_split(
    make: Callable[[], nn.Module], mesh: Mesh, *, layers: str | Sequence[str] = "auto", **options: Any
) -> Split:
    """`split(make(), mesh, ...)` with the same first weights, and without a whole split layer in any rank's memory.

    Args:
        make: builds the network on the CPU, drawing its weights from torch's global generator.
        mesh: data × model ranks.
        layers: as for `split`, and so are `options`.

    Raises:
        ValueError: as `split`; or `make` gives such a layer its weights other than by drawing or filling them in place.
    """
    fills = _Fills()
    with fills, _without_memory(nn.Linear), _without_memory(LocallyConnected2d):
        model = make()
    state = torch.get_rng_state()
    try:
        of_names = {
            name: fills.of(name, parameter) for name, parameter in model.named_parameters() if parameter.is_meta
        }
        chosen = {f"{name}." if name else "" for name in choose_layers(model, layers, mesh.model_size)}
        for name in of_names:
            if name[: name.rfind(".") + 1] not in chosen:
                _fill(model, name, of_names[name], None, 0)
        found = split(model, mesh, layers=layers, **options)
        for name, part in found.parts.items():
            _fill(found.model, name, of_names[name], part, mesh.model_rank)
    finally:
        torch.set_rng_state(state)
    return found


@contextmanager
def _without_memory(kind: type[nn.Module]) -> Iterator[None]:
    """Layers of this kind are built on the "meta" device meanwhile."""
    original: Any = kind.__init__

    def build(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        with torch.device("meta"):
            original(self, *args, **kwargs)

    kind.__init__ = build  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.__init__ = original  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Operation:
    """What was done in place to a tensor without memory."""

    function: Any
    arguments: tuple[Any, ...]
    random_state: Tensor
    """The generator's, before it."""


class _Fills(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ without types
    """Notes what is done in place to tensors without memory; the generator goes on as if they had some."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations: dict[int, tuple[Any, torch.Size, list[_Operation]]] = {}
        """By storage, which is kept so that none takes its place."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function._schema.name.endswith("_") and isinstance(args[0], Tensor) and args[0].is_meta:
            whole = args[0]
            storage = whole.untyped_storage()
            operations = self._operations.setdefault(storage._cdata, (storage, whole.shape, []))[2]
            operations.append(_Operation(function, args[1:], torch.get_rng_state()))
            if function in _DRAWS:
                for _ in _chunks(function, args[1:], whole.shape, whole.dtype):
                    pass
        return result

    def of(self, name: str, parameter: nn.Parameter) -> list[_Operation]:
        """What was done to a parameter."""
        _, shape, operations = self._operations.get(parameter.untyped_storage()._cdata, (None, parameter.shape, []))
        if (
            not operations
            or shape != parameter.shape
            or any(isinstance(argument, Tensor) for one in operations for argument in one.arguments)
        ):
            raise ValueError(
                f"{name} is not drawn or filled in place, as a whole, when the network is built: its parts cannot be "
                "made without it. Build the network first, and split it then."
            )
        return operations


def _chunks(
    function: Any, arguments: tuple[Any, ...], shape: torch.Size, dtype: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    """(first row, rows) of a whole tensor that is drawn in place, one after the other: the same numbers as at once."""
    num_rows = shape[0]
    width = shape.numel() // max(num_rows, 1)
    step = max(_CHUNK // max(width, 1) // _LINE, 1) * _LINE
    first = 0
    while first < num_rows:
        stop = min(first + step, num_rows)
        if (num_rows - stop) * width < _LINE:  # fewer numbers than a line are drawn in another way
            stop = num_rows
        yield first, function(torch.empty((stop - first, *shape[1:]), dtype=dtype), *arguments)
        first = stop


def _fill(model: nn.Module, name: str, operations: list[_Operation], part: Part | None, rank: int) -> None:
    """Give a parameter, or a rank's part of it, memory, and do to it what was done to the whole one."""
    owner, _, attribute = name.rpartition(".")
    module = model.get_submodule(owner)
    before = module.get_parameter(attribute)
    whole = before.shape if part is None else torch.Size(part.shape)
    filled = torch.empty(before.shape, dtype=before.dtype)
    for operation in operations:
        if operation.function in _DRAWS:
            torch.set_rng_state(operation.random_state)
            for first, rows in _chunks(operation.function, operation.arguments, whole, filled.dtype):
                _take(filled, rows, first, part, rank)
        else:
            operation.function(filled, *operation.arguments)
    module.register_parameter(attribute, nn.Parameter(filled, requires_grad=before.requires_grad))


def _take(filled: Tensor, rows: Tensor, first: int, part: Part | None, rank: int) -> None:
    """Copy what belongs to a rank's part from some rows of the whole tensor."""
    if part is None or part.dim > 0:
        filled[first : first + len(rows)] = rows if part is None else part.of(rows, rank)
        return
    start, stop = part.range_of(rank)
    low, high = max(start, first), min(stop, first + len(rows))
    if low < high:
        filled[low - start : high - start] = rows[low - first : high - first]
