"""The files below one folder, of which nothing that lies outside is ever opened."""

import os
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from augpipe.datasets.files.image_files import is_hidden
from augpipe.datasets.metadata.names import printable

Kind = Literal["file", "folder", "outside", "other"]


class Tree:
    """Names with "/" between, looked up below `root`; a folder is listed once, however many names in it are asked for.

    Links are followed as long as they stay below `root`.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        # lists go folder by folder, and folders may be many
        self._listing = lru_cache(maxsize=1024)(self._list)
        self._folder_kind = lru_cache(maxsize=1024)(self._kind)

    def is_file(self, name: str) -> bool:
        """Whether there is such a file.

        Raises:
            ValueError: the name leads outside, by itself or through a link.
        """
        return self._kind(name) == "file"

    def is_folder(self, name: str) -> bool:
        """Whether there is such a folder; "" is the root.

        Raises:
            ValueError: the name leads outside, by itself or through a link.
        """
        return name == "" or self._kind(name) == "folder"

    def path(self, name: str) -> str:
        """Where the file `name` lies.

        Raises:
            ValueError: it is not there, or outside.
        """
        if not self.is_file(name):
            raise ValueError(f"{printable(os.path.join(self.root, name))} is not there, or not a file. Restore it.")
        return os.path.join(self.root, name)

    def names(self, folder: str, kind: Literal["file", "folder"]) -> list[str]:
        """What lies in a folder, sorted by bytes, without the hidden; [] where the folder is not there.

        Raises:
            ValueError: the folder lies outside.
        """
        if not self.is_folder(folder):
            return []
        found = self._listing(folder)
        for name in found:
            if found[name] == "outside" and not is_hidden(name):
                self._refuse(_joined(folder, name))
        chosen = [name for name, what in found.items() if what == kind and not is_hidden(name)]
        return sorted(chosen, key=os.fsencode)

    def has(self, need: str) -> bool:
        """Whether what a card needs is there: a file, a folder (`NAME/`), or anything that matches a pattern.

        Raises:
            ValueError: it leads outside.
        """
        kind: Literal["file", "folder"] = "folder" if need.endswith("/") else "file"
        folder, _, pattern = need.rstrip("/").rpartition("/")
        if "*" in pattern:
            return any(fnmatchcase(name, pattern) for name in self.names(folder, kind))
        return self.is_folder(need.rstrip("/")) if kind == "folder" else self.is_file(need)

    def _kind(self, name: str) -> Kind | None:
        folder, _, last = name.rpartition("/")
        if last in ("", ".", "..") or name.startswith("/"):
            raise ValueError(
                f"{printable(name)!r} is not a plain path below the folder {printable(self.root)}: absolute paths and "
                "'..' are refused. Correct it where it is listed."
            )
        if folder and self._folder_kind(folder) != "folder":
            return None
        kind = self._listing(folder).get(last)
        if kind == "outside":
            self._refuse(name)
        return kind

    def _list(self, folder: str) -> dict[str, Kind]:
        with os.scandir(os.path.join(self.root, folder)) as entries:
            return {entry.name: self._kind_of(entry) for entry in entries}

    def _kind_of(self, entry: os.DirEntry[str]) -> Kind:
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if target != self.root and not target.startswith(os.path.join(self.root, "")):
                return "outside"
        if entry.is_dir():
            return "folder"
        return "file" if entry.is_file() else "other"

    def _refuse(self, name: str) -> None:
        here = os.path.join(self.root, name)
        raise ValueError(
            f"{printable(here)} is a link that leaves the folder, to {printable(os.path.realpath(here))}: refused. "
            "Put the files there themselves, or give the folder that holds them all."
        )


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
