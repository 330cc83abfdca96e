"""Which kernels there are, and for which arguments each is compiled ahead of its first call."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from numba import typeof

Arguments = tuple[Any, ...]

MODULES = {
    "order": ("gpu_ops.random.permutation", "gpu_ops.random.philox"),
    "plan": ("gpu_ops.image.crop_tries", "gpu_ops.image.composition", "gpu_ops.image.filled_rows"),
    "render": (
        "gpu_ops.image.fused",
        "gpu_ops.image.copied_levels",
        "gpu_ops.image.level_tables",
        "gpu_ops.image.pixels",
        "gpu_ops.image.program",
        "gpu_ops.image.pattern_program",
        "gpu_ops.image.filter_program",
        "gpu_ops.image.mix",
    ),
    "targets": (
        "gpu_ops.image.inverse",
        "gpu_ops.image.field_inverse",
        "gpu_ops.image.frame_look",
        "gpu_ops.image.rings",
        "gpu_ops.image.least_rectangles",
        "gpu_ops.image.nearest",
        "gpu_ops.image.paired",
    ),
    "decoder": ("gpu_ops.jpeg.workspace", "gpu_ops.jpeg.walk"),
    "codecs": ("gpu_ops.codec.loops", "gpu_ops.codec.four_bit", "gpu_ops.codec.one_bit"),
    "datasets": ("datasets.stats.channels", "datasets.prepare.lanczos"),
}
"""The modules of `augpipe` that declare kernels, by what these are for."""

_DECLARED: dict[str, tuple[str, Any, Mapping[str, Callable[[], Arguments]]]] = {}
"""Name of a kernel -> the module that declares it, it, and what makes arguments of each variant."""


@dataclass(frozen=True)
class Overload:
    """A kernel for one set of types of arguments."""

    kernel: Any
    types: tuple[Any, ...]
    """numba's types of its arguments."""
    group: str
    """The one of `MODULES` that it belongs to."""
    name: str
    """Its module, function and variant, as "gpu_ops.image.fused.run_slanted:float32"."""

    @property
    def function(self) -> str:
        """The kernel's own name, as "run_slanted"."""
        return self.name.rpartition(":")[0].rpartition(".")[2]

    @property
    def variant(self) -> str:
        """The name that `declare` was given, as "float32"."""
        return self.name.rpartition(":")[2]

    @property
    def is_loaded(self) -> bool:
        """Whether this process has it already, and looks for no file."""
        return self.types in self.kernel.overloads

    def compile(self) -> None:
        """Load it from where compiled kernels are kept, or else compile it and keep it there."""
        self.kernel.compile(self.types)


def declare(module: str, kernel: Any, **variants: Callable[[], Arguments]) -> None:
    """Name the arguments that a kernel is compiled for ahead of its first call.

    Args:
        module: the one that calls this: its `__name__`.
        kernel: of `jit.kernel`.
        variants: for each kind of batch that it is called for ("any" where there is one kind) what makes arguments of
            the types that it is called with.
    """
    _DECLARED[name_of(kernel)] = module.removeprefix("augpipe."), kernel, variants


def is_declared(name: str) -> bool:
    """Whether `declare` has named this kernel."""
    return name in _DECLARED


def name_of(kernel: Any) -> str:
    """The kernel's module, without the package's name, and its own."""
    function = getattr(kernel, "py_func", kernel)
    return f"{function.__module__.removeprefix('augpipe.')}.{function.__qualname__}"


def overloads(groups: Iterable[str] = MODULES, variants: Iterable[str] | None = None) -> list[Overload]:
    """What was declared in groups of `MODULES`, which are imported for it; of all variants, or of those asked for."""
    declaring = {module: group for group in groups for module in MODULES[group]}
    for module in declaring:
        importlib.import_module(f"augpipe.{module}")
    wanted = None if variants is None else {"any", *variants}
    return [
        Overload(kernel, _types_of(arguments), declaring[module], f"{name}:{variant}")
        for name, (module, kernel, made) in _DECLARED.items()
        if module in declaring and hasattr(kernel, "py_func")  # with NUMBA_DISABLE_JIT it is plain Python
        for variant, arguments in made.items()
        if wanted is None or variant in wanted
    ]


@cache
def _types_of(arguments: Callable[[], Arguments]) -> tuple[Any, ...]:
    """The types that a variant is compiled for: numba takes long over those of records, and each loader asks."""
    return tuple(typeof(argument) for argument in arguments())
