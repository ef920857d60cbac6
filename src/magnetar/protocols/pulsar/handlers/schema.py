"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and the schemas in PRODUCER and SUBSCRIBE.

Errors of both commands are inside their responses, because a client that gets an ERROR closes its connection.
"""

from magnetar.base.names import parse_partition
from magnetar.broker.schemas.model import Schema, SchemaNotFound, SchemaType
from magnetar.protocols.pulsar.errors import server_error
from magnetar.protocols.pulsar.registry import Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand


def schema_of(schema: pb.Schema) -> Schema | None:
    """The schema in a client's command; None for the schema of plain bytes.

    Raises:
        InvalidSchema: there is no such type.
    """
    kind = SchemaType(schema.type)
    if kind is SchemaType.NONE:
        return None
    properties = {one.key: one.value for one in schema.properties}
    return Schema(kind, schema.schema_data, properties, schema.name)


def schema_message(schema: Schema) -> pb.Schema:
    """`schema` in the form of responses."""
    return pb.Schema(
        name=schema.name,
        schema_data=schema.data,
        type=pb.Schema.Type.Name(int(schema.type)),
        properties=[pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()],
    )


def get_schema(session: PulsarSession, command: pb.CommandGetSchema) -> BaseCommand:
    name, _ = parse_partition(command.topic)
    cases = session.cases.schemas
    response = pb.CommandGetSchemaResponse(request_id=command.request_id)
    if command.HasField("schema_version"):
        # A message of a producer with plain bytes has an empty version; Go's client asks for that version, too.
        schema, response.schema_version = cases.of_messages(session.caller, name, command.schema_version)
    else:
        schema, response.schema_version = cases.latest(session.caller, name)
    response.schema.CopyFrom(schema_message(schema))
    return BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=response)


def refuse_get_schema(command: pb.CommandGetSchema, error: Exception) -> BaseCommand:
    code = pb.ServerError.TopicNotFound if isinstance(error, SchemaNotFound) else server_error(error)
    response = pb.CommandGetSchemaResponse(
        request_id=command.request_id, error_code=code, error_message=str(error)
    )
    return BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=response)


async def get_or_create_schema(session: PulsarSession, command: pb.CommandGetOrCreateSchema) -> BaseCommand:
    name, _ = parse_partition(command.topic)
    version = await session.cases.schemas.register(session.caller, name, schema_of(command.schema))
    response = pb.CommandGetOrCreateSchemaResponse(request_id=command.request_id, schema_version=version)
    return BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=response)


def refuse_get_or_create_schema(command: pb.CommandGetOrCreateSchema, error: Exception) -> BaseCommand:
    response = pb.CommandGetOrCreateSchemaResponse(
        request_id=command.request_id, error_code=server_error(error), error_message=str(error)
    )
    return BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=response)


COMMANDS = (
    Command(BaseCommand.GET_SCHEMA, get_schema, refuse_get_schema, right="GetSchema"),
    Command(
        BaseCommand.GET_OR_CREATE_SCHEMA,
        get_or_create_schema,
        refuse_get_or_create_schema,
        right="GetOrCreateSchema",
    ),
)
