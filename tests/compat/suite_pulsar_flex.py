"""npm's pulsar-flex produces and consumes: a second opinion, as its codec and its client are its own."""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import brokers
import fetch
import scenarios
from outcomes import Outcome
from task import Task

NAME = "pulsar-flex"
VERSION = "1.1.1"
SHA256 = "9c1215891511b20e16b5fb2b8b9258a3510d29d52612c20f99b1063bdd155c38"
SOURCE = Path(__file__).resolve().parent / NAME / "scenarios.cjs"


def version() -> str:
    return VERSION


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    return scenarios.execute(task, f"{NAME} {VERSION}", prepare, command_of)


def command_of(program: Path, addresses: brokers.Addresses) -> list[str]:
    return ["node", program.name, urlsplit(addresses.pulsar).netloc]


def prepare(work: Path) -> Path:
    """Fetch and install; returns the program, beside the packages that it needs."""
    if missing := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        raise fetch.NotHere(f"{', '.join(missing)} not found: skipped")
    folder = work / f"{NAME}-{VERSION}"
    archive = fetch.npm_package(work, f"{NAME}@{VERSION}", f"{NAME}-{VERSION}.tgz", SHA256)
    if not (folder / "node_modules" / NAME).exists():
        half = folder.with_name(folder.name + ".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", str(archive)]
        fetch.quietly(install, cwd=half)
        shutil.rmtree(folder, ignore_errors=True)
        half.rename(folder)
    shutil.copyfile(SOURCE, folder / SOURCE.name)
    return folder / SOURCE.name
