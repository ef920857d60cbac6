"""What a process has given up is out of its reach, and of its children's; each case is a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.base import landlock

pytestmark = pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")

CONFINED = """
import errno, os, subprocess, sys
from pathlib import Path
from magnetar.base.landlock import confine
tree, own, parent = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
assert confine([tree, Path("/usr"), Path("/proc"), Path("/lib64"), tree / "none"], [own], tree / "hidden")
def tried(name, call):
    try:
        call()
        print(name, "yes")
    except OSError as error:
        print(name, "no" if error.errno in (errno.EACCES, errno.EPERM, errno.EXDEV) else error)
tried("read beside", (tree / "beside").read_text)
tried("list beside", lambda: os.listdir(tree / "folder"))
tried("read hidden", (tree / "hidden" / "secret").read_text)
tried("read by a link", (tree / "link").read_text)
tried("read own", (own / "mine").read_text)
tried("write own", lambda: (own / "new").write_text("x"))
tried("write beside", lambda: (tree / "beside").write_text("x"))
tried("make beside", lambda: (tree / "folder" / "new").write_text("x"))
tried("cut hidden", lambda: os.truncate(tree / "hidden" / "secret", 0))
tried("remove beside", (tree / "beside").unlink)
tried("link out", lambda: os.link(tree / "beside", own / "linked"))
tried("environment", Path(f"/proc/{parent}/environ").read_bytes)
tried("memory", lambda: open(f"/proc/{parent}/mem", "rb"))
tried("signal", lambda: os.kill(int(parent), 0))
tried("device", lambda: os.mknod(own / "disk", 0o60600, os.makedev(8, 0)))
tried("run", lambda: subprocess.run(["/usr/bin/env", "true"], check=True))
tried("child", lambda: subprocess.run(["/usr/bin/env", "cat", tree / "hidden" / "secret"], check=False))
"""


def test_only_what_is_named_can_be_opened(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    own = tree / "hidden" / "own"
    own.mkdir(parents=True)
    (tree / "folder").mkdir()
    (tree / "beside").write_text("beside")
    (tree / "hidden" / "secret").write_text("hidden words")
    (own / "mine").write_text("mine")
    (tree / "link").symlink_to(tree / "hidden" / "secret")
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    command = [sys.executable, "-c", CONFINED, str(tree), str(own), str(other.pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        other.communicate()
    assert done.returncode == 0, done.stderr
    answers = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    allowed = {"read beside", "list beside", "read own", "write own", "run", "child"}
    newer = {"cut hidden": 3, "signal": 6}
    for name, answer in answers.items():
        if landlock.version() >= newer.get(name, 1):
            assert answer == ("yes" if name in allowed else "no"), (name, done.stdout)
    assert len(answers) == 17
    assert "hidden words" not in done.stdout
    assert (tree / "hidden" / "secret").read_text() == "hidden words"


def test_all_of_a_hidden_folder_can_be_hidden(tmp_path: Path) -> None:
    """The folder itself is named as one that is readable."""
    (tmp_path / "secret").write_text("x")
    program = (
        "import sys; from pathlib import Path; from magnetar.base.landlock import confine;"
        "here = Path(sys.argv[1]); confine([here], [], here); (here / 'secret').read_text()"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert "PermissionError" in done.stderr
