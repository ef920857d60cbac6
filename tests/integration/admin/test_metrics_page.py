"""A running server shows the metrics that are known, and no others."""

import json
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from magnetar.testing.server import MagnetarProcess

NAMES = Path(__file__).parents[2] / "metrics.txt"


def asked(server: MagnetarProcess, method: str, path: str, body: object = None) -> bytes:
    request = urllib.request.Request(
        server.http_url + path,
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        content: bytes = response.read()
        return content


def test_the_page_has_the_known_names_types_and_labels() -> None:
    with MagnetarProcess() as server:
        asked(server, "PUT", "/admin/v2/persistent/public/default/t")
        asked(server, "POST", "/magnetar/v1/offsets", {"partitions": [{"topic": "t", "partition": 0}]})
        held = {"subscription": "s", "positions": [{"topic": "t", "partition": 0, "offset": 0}]}
        asked(server, "POST", "/magnetar/v1/positions", held)
        page = asked(server, "GET", "/metrics").decode()
    known = [line.split(" ") for line in NAMES.read_text().splitlines()]
    types = [line.split(" ")[2:] for line in page.splitlines() if line.startswith("# TYPE ")]
    assert sorted(types) == [columns[:2] for columns in known]
    labels = {columns[0]: tuple(columns[2].split(",")) if columns[2:] else () for columns in known}
    shown = set()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = next(one for one in (sample.name, family.name) if one in labels)
            assert sample.labels.keys() - {"le"} == set(labels[name]), sample
            shown.add(labels[name])
    assert ("namespace", "topic") in shown
    assert ("group", "topic", "partition") in shown
