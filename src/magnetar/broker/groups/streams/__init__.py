"""Groups of Kafka Streams applications (KIP-1071): the server assigns tasks, and creates the topics that they need.

* `topics`: how many partitions and tasks a topology has, and which of its topics are missing;
* `assignor`: which member gets which task, as a function of members, tasks and what was assigned before;
* `group`: one group's books: members, topology, who has each task;
* `reconcile`: how a member gets from what it has to what it is to have;
* `checks`: what a request must say to be looked at;
* `heartbeats`: the state machine over them, with the clock's timers;
* `offsets`: whether a member may commit or fetch;
* `stored`: topologies outlive the process;
* `coordinator`: all streams groups: finds, makes and describes them.
"""
