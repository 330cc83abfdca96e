"""What augmentations of kornia say of themselves: their names, settings, ranges and borders."""

from typing import Any

OF_GEOMETRY = "kornia.geometry"
"""Where functions of geometry are modules, too: one that is an augmentation's namesake may differ from it."""
OF_FUNCTIONS = OF_GEOMETRY, "kornia.filters"
"""Where such modules are."""
BORDERS = {
    "zeros": "constant",
    "constant": "constant",
    "border": "edge",
    "replicate": "edge",
    "reflection": "reflect",
    "reflect": "reflect_101",
    "circular": "wrap",
}
"""What kornia calls a border: `reflection` where it looks images up, the next two where it pads them."""


def name_of(module: Any) -> str:
    """What an augmentation is called; a function of geometry by its package, too."""
    kind = type(module)
    is_geometry = str(getattr(kind, "__module__", "")).startswith(OF_GEOMETRY)
    return f"{OF_GEOMETRY}.{kind.__name__}" if is_geometry else kind.__name__


def read(module: Any, name: str) -> Any:
    """A setting of an augmentation.

    Raises:
        ValueError: it is `p`, and a whole batch has a chance, too.
    """
    if name == "p" and getattr(module, "p_batch", 1.0) != 1.0:
        raise ValueError(f"p_batch={module.p_batch} applies it to whole batches; give p")
    return getattr(module, name)


def range_of(one: Any, name: str) -> tuple[float, float]:
    """Smallest and largest of what is sampled under a name; its numbers are float32."""
    sampled = one._param_generator
    sampler = getattr(sampled, f"{name}_sampler", None) or sampled.sampler_dict[name]
    return round(float(sampler.low), 6), round(float(sampler.high), 6)


def rounded(low: float, high: float) -> list[tuple[int, float]]:
    """The whole numbers that one of an even range is rounded to, and how likely: those at its ends half as much."""
    whole = range(round(low), round(high) + 1)
    return [(one, min(high, one + 0.5) - max(low, one - 0.5) if high > low else 1.0) for one in whole]


def border_name(mode: Any) -> str:
    """A padding mode as the border of a recipe.

    Raises:
        ValueError: none is like it.
    """
    name = str(getattr(mode, "name", mode)).lower()
    if name not in BORDERS:
        raise ValueError(f"padding_mode={name} is not mapped")
    return BORDERS[name]
