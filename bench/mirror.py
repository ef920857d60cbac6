"""MirrorMaker 2, which copies topics from one cluster of Apache Kafka to another, as `connect-mirror-maker` starts it.

Its jars are fetched once from Maven Central, into `bench/.work`; the others are Kafka's, which the peers' script has.
It runs as it ships, in one process, with these exceptions: it keeps topics' names, has a task for each partition, and
does nothing but copy (no heartbeats, no checkpoints, no synced configurations and rules).
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench import process, servers
from bench.machine import PEER_VERSION
from bench.process import RunFailed

ARTIFACTS = ("connect-mirror", "connect-mirror-client")
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
JAVA_OPTIONS = ("-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # those of Kafka's script
FETCH_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 30.0
_ALONE = {  # one node is enough for the topics in which it keeps how far it is
    f"{name}.replication.factor": "1"
    for name in (
        "checkpoints.topic",
        "config.storage",
        "heartbeats.topic",
        "offset-syncs.topic",
        "offset.storage",
        "status.storage",
    )
}
_ONLY_COPIES = {
    "emit.checkpoints.enabled": "false",
    "emit.heartbeats.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "sync.topic.configs.enabled": "false",
}


class MirrorMaker:
    """`script` is the peers' `kafka`; `work` is where the jars are kept."""

    def __init__(self, script: Path, work: Path) -> None:
        self._script = script
        self._jars = work / f"mirror-{PEER_VERSION}"

    @contextlib.contextmanager
    def running(
        self, source: str, target: str, topic: str, partitions: int, folder: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """It copies this topic for the time of the block; `source` and `target` are for `bootstrap.servers`."""
        self._fetch()
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "mirror.properties"
        properties.write_text(settings(source, target, topic, partitions))
        jars = f"{self._jars}/*:{servers.peers_home() / f'kafka-{PEER_VERSION}' / 'lib'}/*"
        with (
            (folder / "mirror.log").open("ab") as log,
            subprocess.Popen(
                ["java", *JAVA_OPTIONS, "-cp", jars, MAIN, str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as running,
        ):
            try:
                yield running
            finally:
                process.end(running, grace_seconds=STOP_SECONDS_MAX)

    def _fetch(self) -> None:
        """RunFailed when there is no Maven or no Java, or a jar cannot be had."""
        missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
        if missing:
            raise RunFailed(f"MirrorMaker 2 needs {', '.join(missing)} on PATH")
        process.run([self._script, "install"], seconds_max=FETCH_SECONDS_MAX)
        for name in ARTIFACTS:
            if not (self._jars / f"{name}-{PEER_VERSION}.jar").exists():
                artifact = f"-Dartifact=org.apache.kafka:{name}:{PEER_VERSION}"
                to = f"-DoutputDirectory={self._jars}"
                process.run(
                    ["mvn", "-q", "-B", "dependency:copy", artifact, to], seconds_max=FETCH_SECONDS_MAX
                )


def settings(source: str, target: str, topic: str, partitions: int) -> str:
    """Its properties."""
    found = {
        "clusters": "here, there",
        "here.bootstrap.servers": source,
        "there.bootstrap.servers": target,
        "here->there.enabled": "true",
        "here->there.topics": topic,
        "there->here.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "1",
        "tasks.max": str(partitions),
        "offset-syncs.topic.location": "target",
        **_ALONE,
        **_ONLY_COPIES,
    }
    return "".join(f"{name} = {value}\n" for name, value in found.items())
