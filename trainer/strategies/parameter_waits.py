"""Fences: whoever reads a parameter first waits for the slices that are still on their way."""

from collections.abc import Callable, ItemsView, ValuesView
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

Await = Callable[[nn.Parameter], None]


class FencedParameters(dict[str, nn.Parameter | None]):
    """A module's `_parameters`: reading one waits for it.

    So a parameter is awaited exactly where it is next used, in whatever order, by whichever module, in or outside of a
    forward pass; and `state_dict`, `parameters()` (EMA), copying and pickling wait for all they read. Copies and
    pickles are plain dicts.
    """

    def __init__(self, parameters: dict[str, nn.Parameter | None]) -> None:
        super().__init__(parameters)
        self.awaits: list[Await] = []
        """One of each strategy that has some of these parameters."""
        self._fixed = {name: parameter for name, parameter in parameters.items() if parameter is not None}

    def _await(self, parameter: nn.Parameter) -> None:
        for await_parameter in self.awaits:
            await_parameter(parameter)

    def __getitem__(self, name: str) -> nn.Parameter | None:
        parameter = super().__getitem__(name)
        if parameter is not None:
            self._await(parameter)
        return parameter

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    def _await_all(self) -> None:
        for parameter in super().values():
            if parameter is not None:
                self._await(parameter)

    def items(self) -> ItemsView[str, nn.Parameter | None]:  # type: ignore[override]
        self._await_all()
        return super().items()

    def values(self) -> ValuesView[nn.Parameter | None]:  # type: ignore[override]
        self._await_all()
        return super().values()

    def copy(self) -> dict[str, nn.Parameter | None]:
        self._await_all()
        return dict(super().items())

    def __setitem__(self, name: str, parameter: nn.Parameter | None) -> None:
        if name in self._fixed and parameter is not self._fixed[name]:
            raise ValueError(
                f"parameter {name} is being replaced by another tensor while lazy owns slices of it: load weights in "
                f"place (without assign=True), or close() the strategy first."
            )
        super().__setitem__(name, parameter)

    def __reduce_ex__(self, protocol: Any) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.copy(),)


def nothing(*_: object) -> None:
    """What a `ForwardFence` is in a copy of its module."""


class ForwardFence:
    """A forward pre-hook that waits for a module's parameters: modules such as LSTM hold their weights in a list
    too."""

    def __init__(self, await_all: Callable[[], None]) -> None:
        # graph capture would leave the wait out of what it captures
        self._await_all = torch.compiler.disable(await_all)  # type: ignore[no-untyped-call]

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        self._await_all()

    def __deepcopy__(self, _memo: object) -> Callable[..., None]:
        return nothing

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _get_nothing, ()


def _get_nothing() -> Callable[..., None]:
    return nothing


class Fences:
    """The fences of one model."""

    def __init__(
        self, model: nn.Module, await_parameter: Await, flush: Callable[[], None], at: Literal["use", "model"]
    ) -> None:
        self._modules = [
            module for module in model.modules() if any(p is not None for p in module._parameters.values())
        ]
        self._handles: list[RemovableHandle] = []
        self._await_parameter = await_parameter
        if at == "model":
            self._handles.append(model.register_forward_pre_hook(ForwardFence(flush), prepend=True))
        for module in self._modules:
            fenced = module._parameters
            if not isinstance(fenced, FencedParameters):
                module._parameters = fenced = FencedParameters(fenced)
            fenced.awaits.append(await_parameter)
            if at == "use":
                self._handles.append(module.register_forward_pre_hook(ForwardFence(fenced._await_all), prepend=True))

    def remove(self) -> None:
        """Leave the modules as they were."""
        for handle in self._handles:
            handle.remove()
        for module in self._modules:
            fenced = module._parameters
            if isinstance(fenced, FencedParameters):
                fenced.awaits.remove(self._await_parameter)
                if not fenced.awaits:
                    module._parameters = dict(fenced.items())
        self._handles.clear()
        self._modules.clear()
