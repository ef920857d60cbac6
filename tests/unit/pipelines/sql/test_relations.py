"""Other names in the place of tables, and the way back to the statement as it was written."""

from magnetar.pipelines.sql.relations import Relation, rewrite

TEXT = "select * from a.b join `c`.d using (x)"
FIRST = Relation(("a", "b"), TEXT.index("a.b"), TEXT.index("a.b") + 3, queried=True)
SECOND = Relation(("c", "d"), TEXT.index("`c`.d"), TEXT.index("`c`.d") + 5, queried=True)


def test_a_queried_table_keeps_its_name_as_alias() -> None:
    rewritten = rewrite(TEXT, [(FIRST, "v1", "b"), (SECOND, "v2", "d")])
    assert rewritten.text == "select * from (`v1` AS `b`) join (`v2` AS `d`) using (x)"


def test_a_name_that_takes_no_alias_gets_none() -> None:
    named = Relation(("a", "b"), 9, 12, queried=False)
    assert rewrite("describe a.b", [(named, "v1", "b")]).text == "describe `v1`"


def test_every_position_finds_its_way_back() -> None:
    rewritten = rewrite(TEXT, [(FIRST, "v1", "b"), (SECOND, "v2", "d")])
    for word in ("select", "from", "join", "using", "x"):
        assert rewritten.original(rewritten.text.index(word)) == TEXT.index(word)
    assert rewritten.original(rewritten.text.index("`v1`") + 2) == FIRST.start
    assert rewritten.original(rewritten.text.index("`v2`")) == SECOND.start


def test_nothing_replaced_is_nothing_moved() -> None:
    rewritten = rewrite(TEXT, [])
    assert rewritten.text == TEXT
    assert rewritten.original(7) == 7
