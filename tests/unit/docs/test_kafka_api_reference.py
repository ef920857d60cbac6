import re
import runpy
from pathlib import Path
from typing import Any, Final

from kio.schema.index import api_key_map

from magnetar.protocols.kafka.apis import load_apis

TOOL = Path(__file__).parents[3] / "tools" / "kafka_api_reference.py"
WITHOUT_VERSIONS: Final = {4, 5, 6, 7}  # Kafka 4 keeps their keys, and kio does not list them


def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_the_page_of_kafka_apis_is_what_the_handlers_say() -> None:
    made = tool()
    assert made["FILE"].read_text() == made["render"](), (
        f"run `make generate` ({TOOL.name}) and commit the page"
    )


def test_every_api_of_kafka_is_served_or_has_a_reason_why_not() -> None:
    reasons = tool()["NOT_SERVED"].values()
    not_served = {key: name for apis in reasons for key, name in apis.items()}
    assert len(not_served) == sum(map(len, reasons)), "one reason is enough"
    assert not not_served.keys() & load_apis().keys()
    assert not_served.keys() | load_apis().keys() == api_key_map.keys() | WITHOUT_VERSIONS
    snake = {key: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for key, name in not_served.items()}
    assert {key: name for key, name in snake.items() if key not in WITHOUT_VERSIONS} == {
        key: api_key_map[key] for key in not_served.keys() - WITHOUT_VERSIONS
    }
