"""Which wheels the pinned dependencies have, by Python and system: asks the package index, installs nothing.

    make check-wheels

A package without a wheel has to be compiled by whoever installs it, which may take a compiler that is not there.
"""

import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {
    "Linux x86-64": ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64"),
    "Linux aarch64": ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64"),
    "macOS arm64": ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"),
}
EXTRAS = ("torch", "parquet", "plots", "ray", "remote", "weights")
"""What users install beside the dependencies; the GPU's come with NVIDIA's own limits."""


def pinned() -> dict[str, str]:
    """Package -> version, of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def wanted() -> list[str]:
    """The packages that users install by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    return sorted({canonicalize_name(Requirement(line).name) for line in listed} | {"llvmlite", "pydantic-core"})


def has_wheel(package: str, python: str, tags: tuple[str, ...]) -> bool:
    """Whether the index has a wheel of it that such a Python takes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "-q", "--no-deps", "--ignore-installed"]
        command += [
            "--only-binary=:all:",
            "--python-version",
            python,
            "--target",
            folder,
            "--report",
            f"{folder}/report",
        ]
        command += [word for tag in tags for word in ("--platform", tag)]
        return subprocess.run([*command, package], capture_output=True, timeout=600).returncode == 0


def main() -> None:
    versions = pinned()
    with ThreadPoolExecutor(4) as pool:
        for name in wanted():
            cases = [(python, system) for python in PYTHONS for system in SYSTEMS]
            pinned_name = f"{name}=={versions[name]}"
            found = list(pool.map(lambda case, of=pinned_name: has_wheel(of, case[0], SYSTEMS[case[1]]), cases))
            pairs = zip(cases, found, strict=True)
            lacking = [f"{python} on {system}" for (python, system), there in pairs if not there]
            print(f"{pinned_name:28} {'all' if not lacking else 'not for ' + ', '.join(lacking)}", flush=True)


if __name__ == "__main__":
    main()
