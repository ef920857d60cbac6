"""Which broker owns which bundle.  Today only the simulation runs it (docs/internals/cluster.md).

* `records`: what the metadata store holds of it: paths and values;
* `view`: what one broker has heard of that;
* `owner`: what a broker does with what it owns, as a state machine without I/O, clock or coroutines;
* `leader`: what the broker that leads decides, in the same way;
* `assignment`: where bundles without an owner go, and which of the others move;
* `membership`: carries all of it out, over the metadata store.
"""
