"""The smallest request of each kind about rights, passwords and delegation tokens, see `authorized_kinds.py`."""

from typing import Final

from magnetar.broker.security.model import Operation
from magnetar.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.describe_acls import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from magnetar.wire.kafka.messages.expire_delegation_token import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.unit.protocols.kafka.authorized_kinds import (
    CLUSTER,
    CLUSTER_DENIED,
    TOKEN,
    TOKEN_DENIED,
    USER,
    Kind,
    right,
)

SECURITY_KINDS: Final = [
    Kind(
        "create_acls",
        3,
        lambda n: CreateAclsRequest([AclCreation(2, n.topic, 3, "User:ann", "*", 3, 3)]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "delete_acls",
        3,
        lambda n: DeleteAclsRequest([DeleteAclsFilter(2, n.topic, 1, None, None, 1, 1)]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_acls",
        3,
        lambda n: DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "alter_user_scram_credentials",
        0,
        lambda n: AlterUserScramCredentialsRequest([], [ScramCredentialUpsertion("u", 1, 4096, b"s", b"p")]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_user_scram_credentials",
        0,
        lambda n: DescribeUserScramCredentialsRequest(None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "create_delegation_token",
        3,
        lambda n: CreateDelegationTokenRequest("User", "bob", [], -1),
        right(Operation.CREATE_TOKENS, USER, TOKEN_DENIED),
    ),
    Kind(
        "describe_delegation_token",
        3,
        lambda n: DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "bob")]),
        {frozenset({(Operation.DESCRIBE, TOKEN), (Operation.DESCRIBE_TOKENS, USER)}): [0]},
    ),
    # A token's owner and its renewers need no rule for these.
    Kind("renew_delegation_token", 2, lambda n: RenewDelegationTokenRequest(n.token_hmac, -1), {}),
    Kind("expire_delegation_token", 2, lambda n: ExpireDelegationTokenRequest(n.token_hmac, -1), {}),
]
