"""Where Python processes that tests start find modules: the audit of unpickling first, then the checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AUDIT = ROOT / "tests/unpickling"


def child_path(*first: Path) -> str:
    """PYTHONPATH for a process that is to import from the checkout, behind `first`; this one's own comes last."""
    return os.pathsep.join([*map(str, [AUDIT, *first, ROOT]), *filter(None, [os.environ.get("PYTHONPATH")])])
