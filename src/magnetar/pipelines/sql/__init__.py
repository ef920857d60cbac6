"""SQL over topics: `magnetar sql`.

A statement goes through `statements` (where it ends), Spark's own parser, `relations` (which tables it names) and
`names` (which of them are topics).  Then it goes through `views` (a topic as a view with decoded columns), Spark, and
`output`.  `engine` connects these, `running` shows progress and cancels, `prompt` reads statements from a user, `shell`
is the command.  No module here writes to a topic.
"""
