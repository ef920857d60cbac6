"""Which nodes have the partitions of a topic: assigned by the broker, or by a client.

Everything here raises or returns, and changes nothing.  The errors have Kafka's texts, which its tools show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.broker.cluster.model import PARTITIONS_MAX, Nodes
from magnetar.broker.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor

_DEFAULT: Final = -1  # what clients send to leave a number to the server


@dataclass(frozen=True, slots=True)
class Placement:
    """See the module's text.  The defaults are numbers of a topic's partitions, and of their replicas."""

    nodes: Nodes
    partition_count_default: int
    replication_factor_default: int

    def assigned(self, count: int, factor: int) -> list[list[int]]:
        """The replicas of `count` new partitions, the leader first; -1 stands for a default.

        Raises:
            InvalidPartitions, InvalidReplicationFactor
        """
        if count == _DEFAULT:
            count = self.partition_count_default
        if factor == _DEFAULT:
            factor = self.replication_factor_default
        if count < 1:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        if count > PARTITIONS_MAX:
            raise InvalidPartitions(f"A topic has at most {PARTITIONS_MAX} partitions, not {count}.")
        if factor < 1:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if factor > len(self.nodes):
            raise InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor}"
                f" cannot be reached because only {len(self.nodes)} broker(s) are registered."
            )
        return self.nodes.assign(0, count, factor)

    def checked(self, replicas: Sequence[Sequence[int]], factor: int | None = None) -> list[list[int]]:
        """Check a client's assignment: every node must exist, none is repeated in a list, and all lists are equally
        long.

        Raises:
            InvalidPartitions, InvalidReplicaAssignment
        """
        if not 1 <= len(replicas) <= PARTITIONS_MAX:
            raise InvalidPartitions(f"A topic has 1 to {PARTITIONS_MAX} partitions, not {len(replicas)}.")
        says = "The manual partition assignment includes"
        for one in replicas:
            if not one:
                raise InvalidReplicaAssignment(f"{says} an empty replica list.")
            for node_id in one:
                if node_id not in self.nodes.by_id:
                    raise InvalidReplicaAssignment(
                        f"{says} broker {node_id}, but no such broker is registered."
                    )
                if one.count(node_id) > 1:
                    raise InvalidReplicaAssignment(f"{says} the broker {node_id} more than once.")
            if factor is None:
                factor = len(one)
            elif len(one) != factor:
                raise InvalidReplicaAssignment(
                    f"{says} a partition with {len(one)} replica(s), but this is not consistent with previous"
                    f" partitions, which have {factor} replica(s)."
                )
        return [list(one) for one in replicas]

    def grown(
        self,
        topic: str,
        present: list[list[int]],
        count: int,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> list[list[int]]:
        """The replicas of all partitions after growing from `present` to `count`; `replicas` assigns the new ones.

        Raises:
            InvalidPartitions, InvalidReplicaAssignment
        """
        known = len(present)
        if count == known:
            raise InvalidPartitions(f"Topic already has {known} partition(s).")
        if count < known:
            raise InvalidPartitions(
                f"The topic {topic} currently has {known} partition(s); {count} would not be an increase."
            )
        if count > PARTITIONS_MAX:
            raise InvalidPartitions(f"A topic has at most {PARTITIONS_MAX} partitions, not {count}.")
        added = count - known
        factor = len(present[0])
        if replicas is None:
            new = self.nodes.assign(known, added, factor)
        else:
            if len(replicas) != added:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {added} additional partition(s), but only {len(replicas)} assignment(s) were"
                    " specified."
                )
            new = self.checked(replicas, factor)
        return present + new
