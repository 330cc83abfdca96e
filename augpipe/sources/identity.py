"""What a source is known by: its samples' names and labels, so that another source is not taken for it."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from augpipe.sources.protocol import Source, content_digest_of, has_stored_names, labels_of
from augpipe.validation.plural import count

_CHUNK = 65_536
"""Samples that are looked up at once."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """Digests of what a source lists; two sources of equal identity give the same samples under the same ids.

    It says nothing of pixels but what the source knows without reading them (`content`).
    """

    num_samples: int
    names: str
    """Digest of all samples' names, in order; see `stored_names`."""
    labels: str
    """Digest of all labels, in order."""
    classes: str
    """Digest of the class names, in order."""
    content: str = ""
    """Digest of what the source knows of its files without reading them, such as their lengths; empty where nothing."""

    def to_json(self) -> dict[str, Any]:
        """For a state, a checkpoint or a manifest."""
        return asdict(self)

    @staticmethod
    def from_json(noted: Any) -> "SourceIdentity":
        """What `to_json` gave.

        Raises:
            ValueError: it is nothing of the kind.
        """
        wanted = {field.name: int if field.name == "num_samples" else str for field in fields(SourceIdentity)}
        if not isinstance(noted, Mapping) or noted.keys() != wanted.keys():
            raise ValueError(f"a source's identity holds {', '.join(wanted)}, and this is {noted!r:.200}.")
        for name, kind in wanted.items():
            if type(noted[name]) is not kind:
                raise ValueError(
                    f"a source's identity has {name}={noted[name]!r:.200}, which is not a {kind.__name__}."
                )
        return SourceIdentity(**noted)

    def differences(self, now: "SourceIdentity") -> list[str]:
        """In words, what of the source that was known by this identity is otherwise in one that is there now."""
        found = []
        if self.num_samples != now.num_samples:
            found.append(f"{count(self.num_samples, 'photograph')} then, {now.num_samples} now")
        elif self.names != now.names:
            found.append("other names, or the same in another order")
        if self.classes != now.classes:
            found.append("other classes, or the same in another order")
        if self.labels != now.labels and self.num_samples == now.num_samples:
            found.append("other labels")
        if self.content and now.content and self.content != now.content and not found:
            found.append("the same names and labels, but files of other content")
        return found


def identity_of(source: Source) -> SourceIdentity:
    """Go through names and labels of a source once; nothing is read or decoded.

    It takes 2 to 3 seconds for a million samples, so whoever needs it several times keeps it.
    """
    return SourceIdentity(
        num_samples=len(source),
        names=_digest("\0".join(names).encode(errors="surrogateescape") for names in _in_chunks(stored_names(source))),
        labels=_digest(_label_bytes(source)),
        classes=_digest("\0".join(names).encode(errors="surrogateescape") for names in _in_chunks(source.classes)),
        content=content_digest_of(source),
    )


def stored_names(source: Source) -> Iterator[str]:
    """Each sample's name within its source, in order: it stays the same when the source is moved.

    Of a `NamedSource` its own; of others `name` without the folder that all names begin with.
    """
    if has_stored_names(source):
        return (source.stored_name(sample_id) for sample_id in range(len(source)))
    folders = {os.path.dirname(source.name(sample_id)) for sample_id in {0, len(source) - 1}} if len(source) else {""}
    folder = os.path.join(os.path.commonpath(folders), "") if len({os.path.isabs(one) for one in folders}) == 1 else ""
    return (source.name(sample_id).removeprefix(folder) for sample_id in range(len(source)))


def _label_bytes(source: Source) -> Iterator[bytes]:
    for first in range(0, len(source), _CHUNK):
        ids = np.arange(first, min(first + _CHUNK, len(source)), dtype=np.int64)
        try:
            yield np.ascontiguousarray(labels_of(source, ids)).data.tobytes()
        except ValueError:  # damaged ones among them: reading those samples says so
            for sample_id in ids.tolist():
                try:
                    yield np.asarray(source.label(sample_id)).tobytes()
                except ValueError:
                    yield b"damaged"


def _in_chunks(names: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for name in names:
        chunk.append(name)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _digest(parts: Iterable[bytes]) -> str:
    made = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()
