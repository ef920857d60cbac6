"""What clients may want of the broker, one function for each verb, whatever the door.

A use case begins by asking `AccessControl` whether the caller may; then it applies the rules of the verb, and calls the
rooms below.  Doors translate: from a protocol's request to a call, from what comes back, or is raised, to its answer.
They know use cases, errors and value types, and nothing else of the broker.

A use case returns a handle (a `Topic`, a `Partition`, a subscribed consumer) for which it has checked the caller's
right.  What the caller does with the handle afterwards is the same verb, and is not checked again.
"""
