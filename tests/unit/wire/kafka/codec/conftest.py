import sys
from pathlib import Path

# The random messages are shared with the fuzz runner, which is a script of its own.
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fuzz"))
