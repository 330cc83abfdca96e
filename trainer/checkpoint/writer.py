"""torch's checkpoint writer, made atomic: files, then sums, then the folder gets its name."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult

from augpipe.datasets.shards.atomic import sync_folder
from augpipe.trainer.checkpoint.folder import finished_path, remove_older, replaced_path, unfinished_path
from augpipe.trainer.checkpoint.manifest import write_manifest

logger = logging.getLogger("augpipe.trainer")


class AtomicWriter(FileSystemWriter):
    """Writes step-N.tmp; rank 0 alone calls `finish`, after every rank's files are on the disk, and renames it there.

    `finish` runs in the thread that writes in the background.
    """

    def __init__(self, folder: Path, step: int, about: dict[str, Any], keep: int) -> None:
        self._temporary = unfinished_path(folder, step)
        super().__init__(self._temporary, single_file_per_rank=True, sync_files=True)
        self._folder = folder
        self._step = step
        self._about = about
        self._keep = keep

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the table of contents and the sums, and give the folder its name."""
        super().finish(metadata, results)
        write_manifest(self._temporary, self._about)
        sync_folder(str(self._temporary))
        final = finished_path(self._folder, self._step)
        replaced = replaced_path(self._folder, self._step)
        if final.exists():  # the end of an epoch is saved after the step was, and a resumed run comes by a damaged one
            os.rename(final, replaced)
        os.rename(self._temporary, final)
        sync_folder(str(self._folder))
        try:
            if replaced.exists():
                shutil.rmtree(replaced)
            remove_older(self._folder, self._keep)
        except OSError as error:
            logger.warning("an old checkpoint could not be removed: %s", error)
