"""Other names in the place of tables, and the way back to the statement as it was written."""

from magnetar.pipelines.sql.relations import Relation, rewrite

TEXT = "select * from a.b join `c`.d using (x)"
FIRST = Relation(("a", "b"), TEXT.index("a.b"), TEXT.index("a.b") + 3, queried=True)
SECOND = Relation(("c", "d"), TEXT.index("`c`.d"), TEXT.index("`c`.d") + 5, queried=True)


def test_each_name_is_replaced_in_its_place() -> None:
    assert (
        rewrite(TEXT, [(FIRST, "(v1) AS b"), (SECOND, "v2")]).text
        == "select * from (v1) AS b join v2 using (x)"
    )


def test_every_position_finds_its_way_back() -> None:
    rewritten = rewrite(TEXT, [(FIRST, "((`v1`) AS `b`)"), (SECOND, "v2")])
    for word in ("select", "from", "join", "using", "x"):
        assert rewritten.original(rewritten.text.index(word)) == TEXT.index(word)
    assert rewritten.original(rewritten.text.index("`v1`") + 2) == FIRST.start
    assert rewritten.original(rewritten.text.index("v2")) == SECOND.start


def test_nothing_replaced_is_nothing_moved() -> None:
    rewritten = rewrite(TEXT, [])
    assert rewritten.text == TEXT
    assert rewritten.original(7) == 7
