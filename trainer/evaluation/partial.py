"""The answers of an evaluation that is under way: shared by ranks, and kept in files, so that it can go on."""

import hashlib
import json
import secrets
import time
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from augpipe.datasets.files.atomic import write_atomically
from augpipe.errors import SampleError
from augpipe.sources.protocol import Source
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.evaluation.trained_run import TrainedRun
from augpipe.trainer.evaluation.views import Views
from augpipe.trainer.exchange.objects import gather_json

SAVE_S = 30.0
"""Between two saves of a process; so much is computed again after it was killed."""


class Partial:
    """The answers that this process has made, and which images are done, by it, other ranks or an earlier attempt.

    Args:
        num_images: of the source.
        num_outputs: of the network.
        folder: where answers are kept, and those of an earlier attempt looked for; None: nowhere.
        key: of whose answers these are, see `key_of`.
        is_first: whether this process looks for what an earlier attempt left, and hands it on; see `agree`.
    """

    def __init__(self, num_images: int, num_outputs: int, folder: Path | None, key: str, *, is_first: bool) -> None:
        self.done = np.zeros(num_images, bool)
        self.left_out: dict[int, str] = {}
        self._log_probs = np.zeros((num_images, num_outputs), np.float32)
        self._mine = np.zeros(num_images, bool)
        self._found = np.zeros(num_images, bool)
        self._path = None if folder is None else folder / f"{key}-{secrets.token_hex(4)}.npz"
        self._saved_at = time.monotonic()
        if folder is not None and is_first:
            for path in sorted(folder.glob(f"{key}-*.npz")):
                self._take(path)

    def _take(self, path: Path) -> None:
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as kept:
                ids, rows, left_out = kept["ids"], kept["rows"], json.loads(str(kept["left_out"]))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return  # it is damaged, and is made again
        self.done[ids] = self._found[ids] = True
        self._log_probs[ids] = rows
        self.left_out |= {int(sample_id): text for sample_id, text in left_out.items()}

    def agree(self, group: dist.ProcessGroup) -> None:
        """Have all ranks know what an earlier attempt left; called by all of them, before any adds an answer.

        The first one says it. Others may be late, and would find what ranks of this attempt have saved by then; or have
        another folder.
        """
        dist.broadcast(torch.from_numpy(self.done.view(np.uint8)), dist.get_global_rank(group, 0), group=group)

    def add(self, sample_ids: npt.NDArray[np.int64], log_probs: npt.NDArray[np.float32]) -> None:
        """Note the answers to some images, and save now and then."""
        self._log_probs[sample_ids] = log_probs
        self.done[sample_ids] = self._mine[sample_ids] = True
        if time.monotonic() - self._saved_at > SAVE_S:
            self.save()

    def save(self) -> None:
        """Keep what this process has made."""
        self._saved_at = time.monotonic()
        ids = np.flatnonzero(self._mine)
        if self._path is None or not len(ids):
            return
        left_out = {str(key): self.left_out[key] for key in ids.tolist() if key in self.left_out}
        text = BytesIO()
        np.savez(text, ids=ids, rows=self._log_probs[ids], left_out=np.array(json.dumps(left_out)))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(str(self._path), text.getvalue())

    def together(self, group: dist.ProcessGroup) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """(N, C) the answers of all ranks, and the images that were left out; called by all of them."""
        dist.all_reduce(torch.from_numpy(self._log_probs), group=group)  # a row is zeros but on one rank
        everyones = gather_json({str(key): text for key, text in self.left_out.items()}, group)
        left_out = {int(key): text for one in everyones for key, text in one.items()}
        num_answers = (self._mine | self._found).astype(np.uint8)
        dist.all_reduce(torch.from_numpy(num_answers), group=group)
        num_answers[list(left_out)] = 1
        assert num_answers.all(), "some images were answered by no rank"
        return self._log_probs, left_out


def key_of(run: TrainedRun, source: Source, views: Views, *, skips_bad: bool) -> str:
    """Says whose answers, and to which images and views: a change of any of it is another evaluation."""
    digest = hashlib.sha256()
    about = (read_manifest(run.checkpoint.path), str(views), run.recipe.to_toml(), skips_bad, len(source))
    digest.update(json.dumps(about, sort_keys=True, default=str).encode())
    for number in range(len(source)):
        digest.update(f"\0{source.name(number)}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def raise_together(problem: Exception | None, group: dist.ProcessGroup) -> None:
    """Raise what the first of the ranks that has a problem met, on all of them: nobody waits for one that is gone.

    On the others it is a SampleError or a ValueError of the same text.
    """
    about = [problem.name, problem.reason, problem.remedy] if isinstance(problem, SampleError) else [str(problem)]
    everyones = gather_json(None if problem is None else about, group)
    for rank, found in enumerate(everyones):
        if found is not None:
            if problem is not None and rank == dist.get_rank(group):
                raise problem
            raise SampleError(*found) if len(found) == 3 else ValueError(*found) from problem
