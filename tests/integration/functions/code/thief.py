"""Does what a message says, to reach what its owner may not."""

import base64
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from pulsar import Function

# What a process does that has left its function's process group: it reads the owner's topic as the function.
DAEMON = """
import os, pulsar, sys, time
url, token, topic, notes = sys.argv[1:]
def note(text):
    with open(notes, "a") as file:
        file.write(text + chr(10))
def read():
    client = pulsar.Client(url, pulsar.AuthenticationToken(token), operation_timeout_seconds=30,
                           logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "daemon")
    note("subscribed")
    return consumer
try:
    consumer = read()
    ends = time.monotonic() + 60
    while time.monotonic() < ends and os.path.exists(notes):
        try:
            note("read " + consumer.receive(500).data().decode())
        except pulsar.Timeout:
            pass
except BaseException as error:
    note("failed " + type(error).__name__)
"""


class Thief(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        try:
            return self.tried(input, context)  # type: ignore[no-untyped-call]
        except PermissionError:
            return "no permission"

    def tried(self, input, context):  # type: ignore[no-untyped-def]
        what, _, argument = input.partition(" ")
        if what == "publish":
            context.publish(argument, "from the thief")
            return "done"
        if what == "environment":
            return " ".join(sorted(os.environ)) + " " + " ".join(sys.argv)
        if what == "token":
            return base64.b64encode(context._orders["token"].encode()).decode()
        if what == "daemon":
            topic, notes = argument.split()
            script = pathlib.Path("daemon.script")
            script.write_text(DAEMON)
            orders = context._orders
            subprocess.Popen(
                [sys.executable, str(script), orders["service_url"], orders["token"], topic, notes],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return "started"
        if what == "open":
            with open(argument, "rb") as file:
                return f"opened {len(file.read(1 << 20))}"
        if what == "change":
            with open(argument, "ab") as file:
                file.write(b"stolen")
            return "changed"
        if what == "link":
            os.symlink(argument, "../log.1")
            return "linked"
        if what == "end":
            os.kill(int(argument), signal.SIGTERM)
            return "ended"
        if what == "shell":
            return subprocess.run(argument, shell=True, capture_output=True, text=True).stdout + "."
        if what == "temporary":
            with tempfile.NamedTemporaryFile() as file:
                return os.path.relpath(file.name, os.getcwd()).count("/") * "elsewhere" or "in its folder"
        raise ValueError(what)
