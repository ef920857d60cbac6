"""A plain function, which does not know Pulsar."""


def process(input):  # type: ignore[no-untyped-def]
    return f"<{input}>"
