"""336,776 real flights through a topic, and a group of two consumers of which one is killed on the way.

`python -m demo` starts a server (or uses the one `--bootstrap` names), replays every flight that left New York in 2013
with confluent-kafka, reads them back, and checks what a user would want to know: did every flight arrive unchanged, in
order per aircraft, and what did the kill cost?

* `flights` turns the data set into keys and values; `consumer` is one member of the group, a process of its own.
* `group` runs the members, kills one and starts it again; `check` judges what they read.  `__main__` tells the story.
"""
