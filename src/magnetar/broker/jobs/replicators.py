"""Replicators: which topics are replicated, where to, and the pipeline and the subscription of each.

A namespace has configurations, one for each type and region of targets (`policy/model.py`).  A replicator is one
mapped topic of one configuration.  It is registered if its pipeline is declared; the worker runs that as any other one.

* A configuration that is added registers its topics as they are then: their subscriptions begin at the end.
* A topic that is made later is registered before its maker may use it, and from its first message on.
* A user may take a topic out, and put it in again.  A configuration that is removed takes out all of its topics.
* A topic's replicators go in the transaction that deletes it (`Pipelines.deletion_of`).

The subscription is stored first and the pipeline after it, so a pipeline always has its place.  The configuration is
stored before both, and a removal is noted before it begins: whatever a crash leaves undone, `load` does.

Changes take turns.  A change asks a key store outside of its turn, with a time limit, because the key store may be
another package's code.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, kept
from magnetar.base.names import TopicName
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.errors import (
    InvalidReplicator,
    ReplicatorBusy,
    ReplicatorExists,
    ReplicatorNotFound,
)
from magnetar.broker.jobs.model import Desired, Pipeline
from magnetar.broker.jobs.pipelines import PIPELINES_MAX, Pipelines
from magnetar.broker.jobs.plugin_calls import refusing
from magnetar.broker.jobs.replicator_keys import Credentials, ReplicatorKeys
from magnetar.broker.policy.model import Region, ReplicatorConfig
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.replicators.naming import KIND, named, pipeline_name, subscription_name
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatorProvider

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Replicator(NamedTuple):
    """A replicator that is registered.  `target` is empty if its configuration has just been removed."""

    region: Region
    topic: TopicName
    target: str
    subscription: str
    pipeline: Pipeline


class Replicators:
    """See the module's text.  `find_provider` raises ConfigError for a type that does not exist.

    All changes raise MetadataError, and are finished even if the caller gives up waiting.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        topics: TopicRegistry,
        pipelines: Pipelines,
        admin: SubscriptionAdmin,
        keys: ReplicatorKeys,
        clock: Clock,
        find_provider: Callable[[str], ReplicatorProvider],
    ) -> None:
        self._namespaces = namespaces
        self._topics = topics
        self._pipelines = pipelines
        self._admin = admin
        self._keys = keys
        self._clock = clock
        self._find_provider = find_provider
        self._changing = asyncio.Lock()
        self._tasks = Tasks(log)
        topics.made.hear(self._topics_made)

    # --- start and stop ----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Make ready what is stored, and begin to do what the last stop has left undone."""
        await self._keys.load()
        if any(self._namespaces.replicators(name) for name in self._namespaces.names) or self._declared():
            self._tasks.spawn("bring replicators up to date", self._bring_up_to_date())

    async def ended(self) -> None:
        """Return when no change is in progress."""
        await self._tasks.ended()

    async def _bring_up_to_date(self) -> None:
        configs = [
            (name, config)
            for name in self._namespaces.names
            for config in self._namespaces.replicators(name).values()
        ]
        for namespace, config in configs:
            try:
                await self._keys.of(namespace, config)
            except InvalidReplicator as error:
                log.warning("replicators of %s stay as they are: %s", namespace, error)
        async with self._changing:
            for namespace, config in configs:
                if self._namespaces.replicators(namespace).get(config.region) is not config:
                    continue  # a user has changed it meanwhile, and with it its replicators
                try:
                    if config.is_removed:
                        await self._finish_removal(namespace, config)
                    elif self._keys.knows(namespace, config):
                        for topic in self._of(namespace):
                            await self._align(config, topic, at_end=topic.created_ms < config.created_ms)
                except BrokerError as error:
                    log.warning("replicators of %s stay as they are: %s", namespace, error)
            for pipeline in self._declared():
                if pipeline.desired is not Desired.DELETED and not self._is_wanted(pipeline):
                    await self._pipelines.delete(pipeline.name)

    def _declared(self) -> list[Pipeline]:
        return [one for one in self._pipelines.all() if named(one.name) is not None]

    def _is_wanted(self, pipeline: Pipeline) -> bool:
        """Whether a configuration still means the topic of this pipeline; one that cannot be opened names none."""
        if pipeline.trouble:
            return True
        topic = self._topics.find(TopicName.parse(pipeline.config["topic"]))
        region = Region(pipeline.config["type"], pipeline.config["region"])
        if topic is None:
            return False
        config = self._namespaces.replicators(topic.name.namespace_name).get(region)
        return config is not None and _target(config, topic) is not None

    # --- configurations ----------------------------------------------------------------------------------------------

    async def add(
        self, namespace: str, wanted: ReplicatorConfig, auth_param: Mapping[str, Any] | None
    ) -> None:
        """Add a configuration, or replace the one of its type and region, and register all of its topics.

        Raises:
            NamespaceNotFound
            InvalidReplicator: the configuration cannot be used; nothing has changed.
            ReplicatorBusy: what was removed before has not ended yet.
        """
        await self._whole("add replicators", self._add(namespace, wanted, auth_param or {}))

    async def remove(self, namespace: str, region: Region) -> None:
        """Remove a configuration with its credentials, and take out all of its topics.

        Raises:
            NamespaceNotFound, ReplicatorNotFound
            InvalidReplicator: the key store does not delete the credentials; the replicators have gone.
        """
        await self._whole("remove replicators", self._remove(namespace, region))

    async def forget_namespace(self, namespace: str) -> None:
        """Delete all credentials of a namespace that is about to be deleted; its topics have gone.

        Raises:
            InvalidReplicator: a key store does not.
        """
        for config in self._namespaces.replicators(namespace).values():
            await self._keys.delete(namespace, config)

    async def _add(self, namespace: str, wanted: ReplicatorConfig, auth_param: Mapping[str, Any]) -> None:
        self._namespaces.require(namespace)
        keys = randomness.hex_token(8) if auth_param else ""
        key_store = self._keys.store_name(wanted.key_store)
        config = replace(wanted, keys=keys, key_store=key_store, created_ms=self._clock.now_ms())
        try:
            await self._check(namespace, config, auth_param)
            async with self._changing:
                before = self._namespaces.replicators(namespace).get(config.region)
                self._check_free(namespace, config)
                await self._store(namespace, config)
                await self._align_all(namespace, config)
        except BaseException:
            if self._namespaces.replicators(namespace).get(config.region) is not config:
                await self._keys.delete_unused(namespace, config)
            raise
        if before is not None:
            await self._keys.delete_unused(namespace, before)

    async def _check(self, namespace: str, config: ReplicatorConfig, auth_param: Mapping[str, Any]) -> None:
        """Give the key store what is to be kept, and let the provider look at what comes back."""
        find = partial(self._find_provider, config.region.type)
        provider = await refusing(asyncio.to_thread(find))
        await self._keys.keep(namespace, config, auth_param)
        credentials = await self._keys.of(namespace, config)
        check = partial(provider.validate_properties, namespace, _policies(config, credentials))
        await refusing(asyncio.to_thread(check), credentials)

    async def _align_all(self, namespace: str, config: ReplicatorConfig) -> None:
        problem: BrokerError | None = None
        for topic in self._of(namespace):
            try:
                await self._align(config, topic, at_end=True)
            except BrokerError as error:
                log.warning(
                    "the server does not replicate the topic %s to %s: %s", topic.name, config.region, error
                )
                problem = problem or kept(error)
        if problem is not None:
            raise InvalidReplicator(
                f"the configuration is stored, and not all topics are replicated: {problem}"
            )

    def _check_free(self, namespace: str, config: ReplicatorConfig) -> None:
        more = 0
        for topic in self._of(namespace):
            if _target(config, topic) is not None:
                found = self._pipelines.find(pipeline_name(*config.region, topic.name.full))
                if found is not None and found.desired is Desired.DELETED:
                    raise _busy(config.region, topic.name)
                more += found is None
        if len(self._pipelines) + more > PIPELINES_MAX:
            raise InvalidReplicator(
                f"the mapping means {more} more topics, and each takes one of {PIPELINES_MAX} pipelines: there are"
                f" {len(self._pipelines)}"
            )

    async def _remove(self, namespace: str, region: Region) -> None:
        async with self._changing:
            self._namespaces.require(namespace)
            config = self._namespaces.replicators(namespace).get(region)
            if config is None:
                raise ReplicatorNotFound(f"{namespace} has no configuration of {_words(*region)}")
            removed = replace(config, is_removed=True)
            await self._store(namespace, removed)
            await self._finish_removal(namespace, removed)

    async def _finish_removal(self, namespace: str, config: ReplicatorConfig) -> None:
        for topic in self._of(namespace):
            await self._align(config, topic, at_end=True)
        await self._keys.delete(namespace, config)
        await self._namespaces.set_replicator(namespace, config.region, None)

    # --- replicators of a topic --------------------------------------------------------------------------------------

    def of_topic(self, topic: TopicName) -> Sequence[Replicator]:
        """The replicators of a topic, in the order of their pipelines' names; none if there is no such topic."""
        found = self._topics.find(topic)
        if found is None:
            return []
        replicators = []
        for pipeline in self._pipelines.replicators_of(topic.full):
            at = named(pipeline.name)
            assert at is not None, pipeline.name
            region = Region(*at)
            config = self._namespaces.replicators(topic.namespace_name).get(region)
            target = None if config is None else _target(config, found)
            replicators.append(Replicator(region, topic, target or "", subscription_name(*region), pipeline))
        return replicators

    async def register(self, topic: Topic, kind: str, region: str | None) -> None:
        """Have a mapped topic replicated that was taken out; its subscriptions begin at the end.

        Raises:
            ReplicatorNotFound: no configuration of the type (and the region) means the topic.
            ReplicatorExists: the topic has all of these replicators.
            ReplicatorBusy: such a replicator is still being stopped.
            InvalidReplicator: there are no credentials, or too many pipelines.
        """
        await self._whole("register a replicator", self._register(topic, kind, region))

    async def deregister(self, topic: Topic, kind: str, region: str | None) -> None:
        """Take a topic out: its replicators of the type (and the region) are stopped, and their subscriptions dropped.

        Raises ReplicatorNotFound.
        """
        await self._whole("deregister a replicator", self._deregister(topic, kind, region))

    async def start(self, topic: TopicName, kind: str, region: str | None) -> None:
        """Let replicators run, with the credentials that the key store has now.

        Raises:
            ReplicatorNotFound
            InvalidReplicator: there are no credentials.
        """
        for one in await self._refreshed(topic, kind, region):
            await self._pipelines.start(one.pipeline.name)

    async def stop(self, topic: TopicName, kind: str, region: str | None) -> None:
        """Stop replicators where they are.  Raises ReplicatorNotFound."""
        for one in self._registered(topic, kind, region):
            await self._pipelines.stop(one.pipeline.name)

    async def restart(self, topic: TopicName, kind: str, region: str | None) -> None:
        """Stop replicators, and let them run as `start` does.  Raises as `start`."""
        for one in await self._refreshed(topic, kind, region):
            await self._pipelines.restart(one.pipeline.name)

    async def _topics_made(self, topics: Iterable[Topic]) -> None:
        """Register new topics, or new partitions of topics, that a configuration means.  Nothing is raised: a topic is
        there, replicated or not.
        """
        for topic in topics:
            for config in self._namespaces.replicators(topic.name.namespace_name).values():
                if _target(config, topic) is not None:
                    try:
                        await self._whole("register a new topic", self._topic_made(config.region, topic))
                    except BrokerError as error:
                        log.warning(
                            "the server does not replicate the topic %s to %s: %s",
                            topic.name,
                            config.region,
                            error,
                        )

    async def _topic_made(self, region: Region, topic: Topic) -> None:
        async with self._changing:
            config = self._namespaces.replicators(topic.name.namespace_name).get(region)
            if config is not None:
                await self._align(config, topic, at_end=False)

    async def _register(self, topic: Topic, kind: str, region: str | None) -> None:
        async with self._changing:
            namespace = topic.name.namespace_name
            meant = self._configs(namespace, kind, region)
            mapped = [one for one in meant if _target(_with_all(one), topic) is not None]
            if not mapped:
                raise ReplicatorNotFound(
                    f"no configuration of {_words(kind, region)} in {namespace} means the topic {topic.name.local}"
                )
            free = []
            for config in mapped:
                found = self._pipelines.find(pipeline_name(*config.region, topic.name.full))
                if found is None:
                    free.append(config)
                elif found.desired is Desired.DELETED:
                    raise _busy(config.region, topic.name)
            if not free:
                raise ReplicatorExists(
                    f"the topic {topic.name} has its replicator {_words(kind, region)} already"
                )
            for config in free:
                again = replace(config, deregistered=config.deregistered - {topic.topic_id.hex()})
                await self._store(namespace, again)
                await self._align(again, topic, at_end=True)

    async def _deregister(self, topic: Topic, kind: str, region: str | None) -> None:
        async with self._changing:
            for one in self._registered(topic.name, kind, region):
                config = self._namespaces.replicators(topic.name.namespace_name).get(one.region)
                if config is not None:
                    there = {other.topic_id.hex() for other in self._of(topic.name.namespace_name)}
                    out = config.deregistered & there | {topic.topic_id.hex()}
                    await self._store(topic.name.namespace_name, replace(config, deregistered=out))
                await self._pipelines.delete(one.pipeline.name)

    def _registered(self, topic: TopicName, kind: str, region: str | None) -> list[Replicator]:
        """The replicators of a topic that are not being taken out.  Raises ReplicatorNotFound if there is none."""
        found = [
            one
            for one in self.of_topic(topic)
            if one.region.type == kind
            and region in (None, one.region.name)
            and one.pipeline.desired is not Desired.DELETED
        ]
        if not found:
            raise ReplicatorNotFound(f"the topic {topic} has no replicator {_words(kind, region)}")
        return found

    async def _refreshed(self, topic: TopicName, kind: str, region: str | None) -> list[Replicator]:
        """As `_registered`, with the credentials that the key store has now."""
        namespace = topic.namespace_name
        for one in self._registered(topic, kind, region):
            config = self._namespaces.replicators(namespace).get(one.region)
            if config is not None:
                await self._keys.ask(namespace, config)
                await self._whole(
                    "bring a replicator up to date", self._topic_made(one.region, self._topics.get(topic))
                )
        return self._registered(topic, kind, region)

    def _configs(self, namespace: str, kind: str, region: str | None) -> list[ReplicatorConfig]:
        return [
            one
            for one in self._namespaces.replicators(namespace).values()
            if one.region.type == kind and region in (None, one.region.name) and not one.is_removed
        ]

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _align(self, config: ReplicatorConfig, topic: Topic, *, at_end: bool) -> None:
        """Register a topic, bring its replicator up to date, or take it out, as the configuration says.

        A subscription that is missing begins `at_end`; one of a new partition at its beginning.
        """
        name = pipeline_name(*config.region, topic.name.full)
        found = self._pipelines.find(name)
        target = _target(config, topic)
        if found is not None and found.desired is Desired.DELETED:
            return
        if target is None:
            if found is not None:
                await self._pipelines.delete(name)
            return
        credentials = await self._keys.of(topic.name.namespace_name, config)
        wanted = {
            "topic": topic.name.full,
            "type": config.region.type,
            "region": config.region.name,
            "target": target,
            "properties": dict(config.properties),
            "auth_plugin": config.key_store if config.keys else None,
            "credentials": None if credentials is None else dict(credentials),
        }
        await self._hold(topic, subscription_name(*config.region), at_end=at_end and found is None)
        if found is None:
            try:
                await self._pipelines.create(name, KIND, wanted, config.owner)
            except BrokerError as error:
                raise InvalidReplicator(str(error)) from None
            if topic.is_deleted:  # its transaction began before there was this pipeline
                await self._pipelines.delete(name, force=True)
        elif (found.config, found.owner) != (wanted, config.owner):
            await self._pipelines.redeclare(name, wanted, config.owner)

    async def _hold(self, topic: Topic, subscription: str, *, at_end: bool) -> None:
        missing = {}
        for index in range(topic.partition_count):
            partition = topic.partition(index)
            try:
                self._admin.cursor(partition, subscription)
            except SubscriptionNotFound:
                missing[partition] = partition.log.high_watermark if at_end else partition.log.log_start
        if missing:
            await self._admin.hold(subscription, missing)

    def _of(self, namespace: str) -> list[Topic]:
        return [one for one in self._topics if one.name.namespace_name == namespace]

    async def _store(self, namespace: str, config: ReplicatorConfig) -> None:
        await self._namespaces.set_replicator(namespace, config.region, config)

    async def _whole(self, name: str, work: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.shield(self._tasks.begin(name, work))


def _target(config: ReplicatorConfig, topic: Topic) -> str | None:
    """Where a topic goes; None if the configuration does not mean it, or no longer.  A topic that stores nothing has
    no place that a subscription could keep.
    """
    if config.is_removed or not topic.name.persistent or topic.topic_id.hex() in config.deregistered:
        return None
    return _policies(config, None).target_of(topic.name.local)


def _with_all(config: ReplicatorConfig) -> ReplicatorConfig:
    return replace(config, deregistered=frozenset())


def _policies(config: ReplicatorConfig, credentials: Credentials) -> ReplicatorPolicies:
    return ReplicatorPolicies(
        config.region.name, config.properties, config.topic_names, config.key_store, credentials
    )


def _busy(region: Region, topic: TopicName) -> ReplicatorBusy:
    return ReplicatorBusy(
        f"the replicator {_words(*region)} of {topic} is still being stopped: try again in a moment"
    )


def _words(kind: str, region: str | None) -> str:
    return kind if region is None else f"{kind} {region}"
