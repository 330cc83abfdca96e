"""From the members of a WebDataset tar file to samples: those whose names agree up to the first dot belong together."""

import json
import re
from array import array
from collections.abc import Sequence
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from augpipe.datasets.files.image_files import EXTENSIONS
from augpipe.datasets.formats.tar.headers import Member, read_members
from augpipe.datasets.metadata.label_names import label_like
from augpipe.datasets.metadata.label_rows import AnyLabels, Numbers
from augpipe.datasets.metadata.names import NameTable, printable

MAX_IMAGE_BYTES = 2**31 - 1
_MAX_LABEL_BYTES = 4096
_MAX_JSON_BYTES = 1 << 24
_LISTS = ("csv", "tsv", "jsonl")
_NAME = re.compile(rb"((?:.*/)?[^./][^./]*)\.([^/]*)", re.DOTALL)
_META = re.compile(rb"__[^/]*__(/.*)?", re.DOTALL)


class _Group(NamedTuple):
    key: bytes
    members: dict[str, Member]
    """Extension, in small letters and without its dot -> member."""


class TarIndexer:
    """Adds up the samples of one tar file after another, in about 20 bytes each in addition to the image's name.

    Args:
        extension: which member of a sample is its image, e.g. "jpg" or "left.png"; found by its last part if None.
        label: the member, by its extension, or else the field of the JSON member that holds the label; if None, "cls"
            or "label". False reads none.
    """

    def __init__(self, extension: str | None, label: str | Literal[False] | None) -> None:
        self.offsets = array("Q")
        self.lengths = array("I")
        self.names = NameTable()
        self.labels = AnyLabels()
        self.ends: list[int] = []
        """How many samples there are up to each tar file's end."""
        self.num_without_image = 0
        """Samples that were passed over, as they hold no image."""
        self.found_extensions: set[str] = set()
        """The names of a few samples that were passed over."""
        self.num_labelled = 0
        self.extensions: set[str] = set()
        """The extensions of a few members that lie next to images."""
        self.fields: set[str] = set()
        """The fields of JSON members that look like labels, and were not read."""
        self.lists: list[str] = []
        """A few members that may list labels."""
        self._extension = None if extension is None else extension.lower().lstrip(".")
        self._label = label

    def add(self, path: str, file: BinaryIO) -> None:
        """Index one tar file.

        Args:
            path: its name, for messages.
            file: buffered and seekable.

        Raises:
            ValueError: it is not a tar file, damaged, hostile, or no WebDataset; names file and member.
            OSError: it cannot be read.
        """
        hashes, apart = array("q"), array("q")
        first = len(self.offsets)
        group: _Group | None = None
        try:
            for member in read_members(file):
                match = _NAME.fullmatch(member.name)
                if match is None or _META.match(member.name):
                    continue
                key, extension = match[1], match[2].decode("utf-8", "backslashreplace").lower()
                if group is None or key != group.key:
                    self._close(file, group, hashes, apart)
                    group = _Group(key, {})
                if extension in group.members:
                    raise ValueError(f"its member {_shown(member.name)!r} is there twice. Pack it again")
                group.members[extension] = member
            self._close(file, group, hashes, apart)
            self._check_apart(hashes, apart, first)
            self._check_keys(hashes, first)
        except ValueError as error:
            raise ValueError(f"{printable(path)}: {error}.") from error
        self.ends.append(len(self.offsets))

    def _close(self, file: BinaryIO, group: _Group | None, hashes: "array[int]", apart: "array[int]") -> None:
        """Take a sample whose members are all there."""
        if group is None:
            return
        chosen = self._image(group)
        if chosen is None:
            self.num_without_image += 1
            if len(self.found_extensions) < 20:
                self.found_extensions.update(group.members)
            if not group.members.keys().isdisjoint((self._label or "cls", "json")):
                apart.append(hash(group.key))
            if len(self.lists) < 3 and not group.members.keys().isdisjoint(_LISTS):
                self.lists += [_shown(member.name) for member in group.members.values()]
            return
        member = group.members[chosen]
        if member.num_bytes > MAX_IMAGE_BYTES:
            raise ValueError(
                f"its member {_shown(member.name)!r} has {member.num_bytes} bytes, and an image of more than "
                f"{MAX_IMAGE_BYTES} is not read. Take it out"
            )
        try:
            label = self._label_of(file, group)
            self.labels.append(label)
        except ValueError as error:
            raise ValueError(f"sample {_shown(group.key)!r}: {error}") from error
        self.num_labelled += label is not None
        if len(self.extensions) < 20:
            self.extensions.update(extension for extension in group.members if extension != chosen)
        self.offsets.append(member.offset)
        self.lengths.append(member.num_bytes)
        self.names.extend([member.name])
        hashes.append(hash(group.key))

    def _image(self, group: _Group) -> str | None:
        """The extension of the image among a sample's members."""
        if self._extension is not None:
            return self._extension if self._extension in group.members else None
        plain = [extension for extension in group.members if f".{extension}" in EXTENSIONS]
        found = plain or [e for e in group.members if f".{e.rpartition('.')[2]}" in EXTENSIONS]
        if len(found) > 1:
            raise ValueError(
                f"sample {_shown(group.key)!r} holds {len(found)} images ({', '.join(sorted(found))}): a key ends at "
                f"the first dot of a name. Pass extension={sorted(found)[0]!r} to choose, or rename the files"
            )
        return found[0] if found else None

    def _label_of(self, file: BinaryIO, group: _Group) -> str | Numbers | None:
        if self._label is False:
            return None
        if (member := group.members.get(self._label or "cls")) is not None:
            text = _text(file, member, _MAX_LABEL_BYTES).strip()
            if not text:
                raise ValueError(
                    f"its member {_shown(member.name)!r} is empty, and holds a label. Write it, or leave it out"
                )
            if text != "-1" or "json" not in group.members:  # our shards have labels of several numbers in both
                return text
            label = self._label_in_json(file, group.members["json"])
            return label if isinstance(label, list) else text
        if (member := group.members.get("json")) is None:
            return None
        return self._label_in_json(file, member)

    def _label_in_json(self, file: BinaryIO, member: Member) -> str | Numbers | None:
        text = _text(file, member, _MAX_JSON_BYTES)
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"its member {_shown(member.name)!r} is not JSON: {str(error) or 'nested too deep'}"
            ) from error
        name = self._label or "label"
        if not isinstance(fields, dict):
            return None
        if name not in fields and self._label is None:
            self.fields.update(label_like(list(fields)))
        label = fields.get(name)
        if label is None or isinstance(label, list):
            return label
        is_float = isinstance(label, float)
        if isinstance(label, bool) or not isinstance(label, (int, str, float)) or (is_float and self._label is None):
            remedy = f"Pass label={name!r} to read it as numbers," if is_float else "Pass"
            raise ValueError(
                f"its member {_shown(member.name)!r} gives {name}={label!r:.60}, and a class is an integer or a name. "
                f"{remedy} label= another field, or label=False to read none"
            )
        return str(label)

    def _check_apart(self, hashes: Sequence[int], apart: Sequence[int], first: int) -> None:
        """Refuse labels whose images stand elsewhere in the file: neither knows of the other."""
        lost = np.flatnonzero(np.isin(np.array(hashes, np.int64), np.array(apart, np.int64)))
        if len(lost) and self._label is not False:
            key = printable(_key_of(self.names[first + int(lost[0])]))
            raise ValueError(
                f"the label of sample {key!r} lies apart from its image: a sample's files must follow one another. "
                "Pack them again: tar --sort=name; or pass label=False to TarSource to read no labels"
            )

    def _check_keys(self, hashes: Sequence[int], first: int) -> None:
        """Refuse a key that comes again after another one: its sample would be two, each with a part of the members."""
        values = np.array(hashes, dtype=np.int64)
        order = np.argsort(values, kind="stable")
        for place in np.flatnonzero(values[order][1:] == values[order][:-1]):
            one, other = (_key_of(self.names[first + int(order[at])]) for at in (place, place + 1))
            if one == other:
                raise ValueError(
                    f"key {printable(one)!r} is there twice, with others between: a sample's files must follow one "
                    "another, and keys differ. Pack them again: tar --sort=name"
                )


def _key_of(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _text(file: BinaryIO, member: Member, most: int) -> str:
    if member.num_bytes > most:
        raise ValueError(
            f"its member {_shown(member.name)!r} has {member.num_bytes} bytes, and at most {most} are read"
        )
    file.seek(member.offset)
    try:
        return file.read(member.num_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"its member {_shown(member.name)!r} is not UTF-8. Save it as UTF-8") from error


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
