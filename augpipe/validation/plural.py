"""Numbers of things, in messages."""


def count(num: int, noun: str) -> str:
    """`1 image`, `1,000 images`, `2 classes`."""
    plural = f"{noun}es" if noun.endswith(("s", "batch")) else f"{noun}s"
    return f"{num:,} {noun if num == 1 else plural}"
