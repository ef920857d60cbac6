"""What clients may want of the broker, one function for each verb, whatever the door.

A use case begins by asking `AccessControl` whether the caller may; then it applies the rules of the verb, and calls the
rooms below.  Doors translate: from a protocol's request to a call, from what comes back, or is raised, to its answer.
They know use cases, errors and value types, and nothing else of the broker.

What a use case returns (a `Topic`, a `Partition`, a subscribed consumer) is a handle that the caller was found to have
the right to; what it goes on to do with the handle is the same verb, and is not asked about again.
"""
