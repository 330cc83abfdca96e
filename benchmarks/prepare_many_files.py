"""60,000 small files in one go: CIFAR-10 as JPEGs, unpacked, prepared, and verified with every image decoded.

Takes cifar10_jpg.tar.gz from the folder that AUGPIPE_DATA names.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from common import save

from augpipe.datasets.shards.manifest import Manifest
from augpipe.native.workers import num_usable_cores


def unpack(archive: Path, folder: Path) -> int:
    num = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() and member.name.endswith(".jpg") else None
            if content is None:
                continue
            split, label, name = Path(member.name).parts[-3:]
            (folder / label).mkdir(parents=True, exist_ok=True)
            (folder / label / f"{split}-{name}").write_bytes(content.read())
            num += 1
    return num


def main() -> int:
    data = os.environ.get("AUGPIPE_DATA")
    archive = Path(data or ".") / "cifar10_jpg.tar.gz"
    if not archive.is_file():
        print("prepare_many_files: no cifar10_jpg.tar.gz in $AUGPIPE_DATA: nothing is measured", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        num = unpack(archive, root / "photos")
        augpipe = [sys.executable, "-m", "augpipe"]
        start = time.perf_counter()
        subprocess.run([*augpipe, "prepare", str(root / "photos"), str(root / "out"), "--scales", "32"], check=True)
        prepared = time.perf_counter()
        subprocess.run([*augpipe, "verify", str(root / "out"), "--deep"], check=True)
        verified = time.perf_counter()
        manifest = Manifest.load(root / "out")
        assert manifest.num_samples == num
        save(
            "prepare_many_files",
            {
                "files": num,
                "processes": num_usable_cores(),
                "classes": len(manifest.classes),
                "shards": len(manifest.scales[0].shards),
                "rejected": manifest.num_rejected,
                "prepare_seconds": round(prepared - start, 1),
                "verify_deep_seconds": round(verified - prepared, 1),
                "files_a_second": round(num / (prepared - start)),
                "bytes_of_tar_files": manifest.scales[0].num_bytes,
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
