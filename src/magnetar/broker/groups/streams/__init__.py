"""Groups of Kafka Streams applications (KIP-1071): the server assigns tasks, and creates the topics that they need.

* `topics`: how many partitions and tasks a topology has, and which of its topics are missing;
* `assignor`: which member gets which task, as a function of members, tasks and what was assigned before;
* `group`: the state of one group: its members, its topology, and the holder of each task;
* `reconcile`: how a member gets from its present tasks to its target;
* `checks`: what every heartbeat must pass;
* `heartbeats`: the state machine, with the clock's timers;
* `offsets`: whether a member may commit or fetch;
* `stored`: the topologies, which outlive the process;
* `coordinator`: finds, creates and describes streams groups.
"""
