"""TensorBoard files, where TensorBoard is installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Board:
    """Writes scalars; does nothing where TensorBoard is not installed or not wanted."""

    def __init__(self, folder: Path, *, wanted: bool, step: int) -> None:
        self._writer: Any = _writer(folder, step) if wanted else None

    def write(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.csv."""
        if self._writer is None:
            return
        for name, value in row.items():
            if name not in ("step", "seconds") and isinstance(value, int | float):
                group = "eval" if name.startswith("eval_") else "train"
                self._writer.add_scalar(f"{group}/{name.removeprefix('eval_')}", value, row["step"])

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an extra beside metrics.csv, which is always written
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # it hides that step and all later ones
