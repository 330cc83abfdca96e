"""The errors that augpipe raises beside `ValueError`."""


class SampleError(ValueError):
    """One photograph cannot be used; the message is "<its name>: <reason>"."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type["SampleError"], tuple[str, str]]:
        return type(self), (self.name, self.reason)
