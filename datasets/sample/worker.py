"""What one worker process of the sample dataset runs: a job as JSON on stdin, a line on stdout for each picture."""

import json
import sys
from pathlib import Path

from augpipe.datasets.sample.generate import Settings, write_pictures


def main() -> None:
    """Write the pictures that the job names."""
    job = json.load(sys.stdin)
    for index in write_pictures(Path(job["root"]), Settings(**job["settings"]), job["indices"]):
        print(index, flush=True)


if __name__ == "__main__":
    main()
