"""What a member of a group gets whose right to the group is taken while its request waits."""

from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.security.model import Caller, Operation, Resource, ResourceType
from magnetar.testing.groups import GroupDriver
from magnetar.wire.kafka.error_codes import ErrorCode
from tests.unit.protocols.kafka.test_group_handlers import Door, sync_request


class Taken:
    """Rights that are there until they are taken."""

    tells_hosts_apart = False

    def __init__(self) -> None:
        self.is_taken = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return not self.is_taken

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return not self.is_taken


def test_who_loses_the_right_while_it_waits_learns_nothing_of_the_group() -> None:
    with GroupDriver(GroupSettings()) as driver:
        rights = Taken()
        leader, door = Door(driver), Door(driver, authorizer=rights)
        joined = leader.stable()
        (known,) = door.join(9)
        joining = door.join(9, known.member_id)
        again = leader.join(9, joined.member_id)
        driver.advance(3.0)
        (follower,) = joining
        syncing = door.start("sync_group", 5, sync_request(5, follower))
        assert (follower.error_code, syncing) == (ErrorCode.NONE, [])
        rights.is_taken = True
        leader.ask("sync_group", 5, sync_request(5, again[0]))
        (synced,) = syncing
        assert (synced.error_code, synced.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")

        rights.is_taken = False
        (known,) = door.join(9)
        joining = door.join(9, known.member_id)
        assert joining == []
        rights.is_taken = True
        leader.join(9, joined.member_id)
        driver.advance(60.0)
        (refused,) = joining
        assert (refused.error_code, refused.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
