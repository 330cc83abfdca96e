"""The errors that augpipe raises as well as `ValueError`."""


class SampleError(ValueError):
    """One image cannot be used; the message is "<its name>: <reason>", and a remedy where there is one.

    A worker of torch's DataLoader hands on its text only: that is the reason then, and the name is empty.
    """

    def __init__(self, name: str, reason: str = "", remedy: str = "") -> None:
        name, reason = (name, reason) if reason else ("", name)
        told = f"{name}: {reason}" if name else reason
        super().__init__(f"{told.rstrip('.')}. {remedy}" if remedy else told)
        self.name = name
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["SampleError"], tuple[str, str, str]]:
        return type(self), (self.name, self.reason, self.remedy)


class SourceChangedError(ValueError):
    """A file of a source is no longer the one that was opened, so nothing that it gives can be trusted; names it.

    It is not a bad image: nothing skips it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path} has changed since it was opened: {reason}. Open the data set again, and leave its files alone "
            "while it is in use."
        )
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["SourceChangedError"], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class DeviceError(RuntimeError):
    """This machine cannot run augpipe on a CUDA device; the message names what is missing and how to get it."""

    def __init__(self, reason: str, command: str = "") -> None:
        super().__init__(f"{reason}: {command}" if command else reason)
        self.reason = reason
        self.command = command
        """What to type; empty where no single command helps."""

    def __reduce__(self) -> tuple[type["DeviceError"], tuple[str, str]]:
        return type(self), (self.reason, self.command)
