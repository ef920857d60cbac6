"""A column that a statement does not mention cannot be used by it."""

import pytest

from magnetar.pipelines.sql.mentions import Mentions


@pytest.mark.parametrize(
    ("text", "used", "unused"),
    [
        ("select count(*) from t", (), ("value", "__key")),
        ("SELECT Count ( * ) FROM t", (), ("value", "__key")),
        ("select max(__offset) from t order by 1 desc", ("__offset",), ("value", "__key")),
        ("select `Delay` from t where ORIGIN = 'x'", ("delay", "origin", "Origin"), ("carrier",)),
        ("select `a``b` from t", ("a`b",), ("a``b",)),
        # One too many is no harm.
        ("select 'value' from t where 'x__keys' = ''", ("value", "__key"), ("__headers",)),
    ],
)
def test_what_is_named(text: str, used: tuple[str, ...], unused: tuple[str, ...]) -> None:
    mentions = Mentions(text)
    assert all(map(mentions.has, used))
    assert not any(map(mentions.has, unused))
    assert not mentions.all


@pytest.mark.parametrize(
    "text",
    [
        "select * from t",
        "select t.* from t",
        "select count(distinct *) from t",
        "select count(*) from (select *, 1 from t)",
        "select a * b from t",  # a star is a star
        "from t",
        "  FROM t |> select a",
        "with c as (from t) select 1 from c",
        "select 1 union all from t",
        "select a from t |> where a > 1",
        "select 1 from t natural join u",
        "select 1 from (table t)",
        "select 1 from t unpivot (v for n in (a, b))",
        "select 1 from t pivot (sum(a) for b in (1))",
        "select identifier('val' || 'ue') from t",
        "execute immediate 'select val' || 'ue from t'",
        "select 1 -- \nfrom t",
        "select \u017ftate from t",
    ],
)
def test_what_may_use_columns_without_their_names(text: str) -> None:
    assert Mentions(text).all
    assert Mentions(text).has("anything")
