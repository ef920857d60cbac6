"""SQL over topics: `magnetar sql`.

One statement goes through `statements` (where it ends), Spark's own parser, `relations` (which tables it names),
`names` (which of them are topics), `views` (a topic as a view with decoded columns), Spark, and `output`.  `engine`
holds these together, `running` shows progress and cancels, `prompt` reads statements from a person, `shell` is the
command.  Nothing here writes to a topic.
"""
