"""Topics as tables.

`values` turns columns of bytes into columns of the topic's schema; it knows neither Spark nor the broker.
"""
