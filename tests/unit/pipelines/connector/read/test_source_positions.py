"""From what a user said to offsets, and from offsets to what Spark keeps."""

import json

import pytest

from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read.admission import Patience, at_most
from magnetar.pipelines.connector.read.errors import TopicError
from magnetar.pipelines.connector.read.positions import (
    EARLIEST,
    LATEST,
    Limits,
    Offsets,
    Position,
    TopicPartition,
    check_complete,
    listed,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    parse_timestamp,
    resolve_end,
    resolve_start,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
LIMITS = {A0: Limits(5, 20), A1: Limits(0, 10)}


def test_start_and_end_of_all_kinds() -> None:
    def start(position: Position) -> Offsets:
        return resolve_start("o", position, LIMITS, latest_when_no_timestamp=False)

    assert start(EARLIEST) == {A0: 5, A1: 0}
    assert start(LATEST) == {A0: 20, A1: 10}
    assert start(parse_offsets("o", '{"a":{"0":-2,"1":7}}')) == {A0: 5, A1: 7}
    assert resolve_end("o", parse_offsets("o", '{"a":{"0":-1,"1":7}}'), LIMITS) == {A0: 20, A1: 7}
    assert resolve_end("o", LATEST, LIMITS) == {A0: 20, A1: 10}


def test_a_start_that_is_gone_is_kept_so_that_the_loss_is_seen() -> None:
    position = parse_offsets("o", '{"a":{"0":2,"1":0}}')
    assert resolve_start("o", position, LIMITS, latest_when_no_timestamp=False)[A0] == 2


def test_an_offset_behind_the_end_is_refused() -> None:
    position = parse_offsets("o", '{"a":{"0":21,"1":0}}')
    with pytest.raises(OptionError, match="option o: a-0 ends at offset 20, before 21"):
        resolve_start("o", position, LIMITS, latest_when_no_timestamp=False)
    with pytest.raises(OptionError, match="option o: a-0 ends at offset 20, before 21"):
        resolve_end("o", position, LIMITS)


def test_times_that_no_record_has() -> None:
    limits = {A0: Limits(5, 20, by_timestamp=11), A1: Limits(0, 10)}
    position = parse_timestamp("startingTimestamp", "99")
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
        resolve_start("startingTimestamp", position, limits, latest_when_no_timestamp=False)
    assert resolve_start("o", position, limits, latest_when_no_timestamp=True) == {A0: 11, A1: 10}
    assert resolve_end("o", position, limits) == {A0: 11, A1: 10}


def test_a_position_by_partition_names_all_and_no_others() -> None:
    position = parse_offsets("startingOffsets", '{"a":{"0":1}}')
    check_complete("startingOffsets", position, [A0])
    with pytest.raises(OptionError, match="option startingOffsets leaves out a-1"):
        check_complete("startingOffsets", position, [A0, A1])
    with pytest.raises(OptionError, match="option startingOffsets names a-0, which this query does not read"):
        check_complete("startingOffsets", position, [])


def test_names_can_be_full_ones_in_an_option() -> None:
    position = parse_offsets("o", '{"persistent://public/default/a":{"0":1}}')
    assert position.renamed({"persistent://public/default/a": "a"}).each == ((A0, 1),)


def test_a_streams_offsets_are_the_same_text_in_any_order() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    text = json.dumps(offsets_to_json(offsets))
    assert text == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert offsets_from_json(json.loads(text)) == offsets
    assert json.dumps(offsets_to_json(dict(reversed(offsets.items())))) == text


@pytest.mark.parametrize("value", [{"a": 3}, {"a": {"x": 3}}, {"a": {"0": None}}])
def test_a_checkpoint_of_something_else_is_told(value: dict[str, object]) -> None:
    with pytest.raises(TopicError, match="use another checkpointLocation"):
        offsets_from_json(value)


def test_long_lists_are_counted() -> None:
    assert listed(TopicPartition("a", number) for number in range(12)).endswith("a-9 and 2 more")


def test_a_limit_is_shared_by_what_waits() -> None:
    start = {A0: 0, A1: 100}
    assert at_most(30, start, {A0: 200, A1: 200}) == {A0: 20, A1: 110}
    assert at_most(300, start, {A0: 200, A1: 200}) == {A0: 200, A1: 200}
    # Every partition gets on, however small its share.
    assert at_most(1, start, {A0: 1000, A1: 101}) == {A0: 1, A1: 101}
    # What was deleted and made again lies before the start: no batch goes back.
    assert at_most(10, start, {A0: 5, A1: 50}) == {A0: 5, A1: 100}


def test_a_minimum_holds_back_until_it_is_met_or_time_is_up() -> None:
    patience = Patience(10, delay_max_s=60, now_s=0)
    assert patience.holds_back(9, 1)
    assert not patience.holds_back(0, 1)
    assert not patience.holds_back(10, 2)
    assert patience.holds_back(9, 61)
    assert not patience.holds_back(9, 62)
    assert patience.holds_back(9, 63)
