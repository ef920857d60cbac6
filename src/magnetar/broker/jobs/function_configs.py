"""What the configuration of a function may say, in Pulsar's words (`FunctionConfig`): checked before it is kept.

`checked` gives it the one form that is stored: inputs are `inputSpecs`, and a missing word has its default.  The broker
refuses by name what Magnetar does not do, and keeps no word without an effect.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from magnetar.base.names import NON_PERSISTENT, InvalidTopicName, TopicName
from magnetar.broker.jobs.errors import InvalidFunction

CONFIG_BYTES_MAX: Final = 64 << 10
PARALLELISM_MAX: Final = 16
INPUTS_MAX: Final = 100
RAM_BYTES_MIN: Final = 64 << 20
_RESOURCES: Final[Mapping[str, Any]] = {"cpu": 1.0, "ram": 1 << 30, "disk": 10 << 30}  # Pulsar's defaults
_ATLEAST: Final = "ATLEAST_ONCE"
EFFECTIVELY: Final = "EFFECTIVELY_ONCE"
GUARANTEES: Final = (_ATLEAST, "ATMOST_ONCE", EFFECTIVELY, "MANUAL")
_POSITIONS: Final = ("Latest", "Earliest")
_OF_RECORDS: Final = ("json", "avro")
_SCHEMAS: Final = ("bytes", "string", *_OF_RECORDS)  # in any case
_SUFFIXES: Final = (".py", ".zip", ".whl")
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,150}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=:-]{0,99}")
_CLASS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,299}")

# By the word of the configuration: what Magnetar does not do.
UNSERVED: Final[Mapping[str, str]] = {
    "batchBuilder": "A batch builder of a function's producer",
    "customRuntimeOptions": "Options of a custom runtime",
    "customSchemaOutputs": "Schemas of a function's outputs",
    "externalPulsars": "Other clusters of a function",
    "fqfn": "A function named in one word",
    "go": "Functions in Go",
    "exposePulsarAdminClientEnabled": "An admin client for functions",
    "jar": "Functions in Java",
    "producerConfig": "Settings of a function's producer",
    "runtimeFlags": "Flags of a function's runtime (each instance is a process that the server starts)",
    "windowConfig": "Windows of functions",
}
# Words that Pulsar's tools send, with the one value that is true of Magnetar.
_FIXED: Final[Mapping[str, Any]] = {"maxPendingAsyncRequests": 1000, "skipToLatest": False}
# Words that need no check beyond their type.
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "autoAck": (bool,),
    "cleanupSubscription": (bool,),
    "forwardSourceMessageProperty": (bool,),
    "maxMessageRetries": (int,),
    "retainKeyOrdering": (bool,),
    "retainOrdering": (bool,),
    "timeoutMs": (int,),
}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "autoAck": True,
    "cleanupSubscription": True,
    "forwardSourceMessageProperty": True,
    "parallelism": 1,
    "processingGuarantees": _ATLEAST,
    "retainKeyOrdering": False,
    "retainOrdering": False,
    "runtime": "PYTHON",
    "subscriptionPosition": "Latest",
    "userConfig": {},
}
# Pulsar's words for where a function runs; in a configuration, `runtime` is its language.
_PLACES: Final = ("thread", "process", "kubernetes")
_UNCHANGEABLE: Final[Mapping[str, str]] = {
    "autoAck": "AutoAck",
    "processingGuarantees": "Processing Guarantees",
    "retainKeyOrdering": "Retain Key Ordering",
    "retainOrdering": "Retain Ordering",
    "runtime": "Runtime",
    "subName": "Subscription Name",
}


def check_name(name: str) -> None:
    """Raises InvalidFunction if no function can have this name."""
    if _NAME.fullmatch(name) is None:
        raise InvalidFunction(
            f"the name {name[:100]!r} of a function must have at most 100 ASCII letters, digits and the characters"
            " _ . = : -"
        )


def check_file_name(name: str) -> str:
    """The name of a file of code, which becomes the name of its module.  Raises InvalidFunction."""
    if _FILE.fullmatch(name) is None or not name.endswith(_SUFFIXES):
        raise InvalidFunction(
            f"the code of a function must be a file *.py, *.zip or *.whl with a plain name, and not {name[:100]!r}"
        )
    return name


def merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration after an update, of which null changes nothing.

    Raises:
        InvalidFunction: it would change what an update cannot.
    """
    said = {name: value for name, value in change.items() if value is not None}
    for name, title in _UNCHANGEABLE.items():
        if name in said and said[name] != before.get(name):
            raise InvalidFunction(f"{title} cannot be altered")
    specs = dict(before["inputSpecs"])
    for topic, spec in _input_specs(said).items():
        if topic not in specs:
            raise InvalidFunction("Input Topics cannot be altered")
        specs[topic] = spec
    kept = {name: value for name, value in said.items() if name not in _INPUTS}
    return {**before, **kept, "inputSpecs": specs}


def checked(config: Mapping[str, Any], tenant: str, namespace: str, name: str) -> dict[str, Any]:
    """The configuration as it is stored.  Raises InvalidFunction."""
    said = {word: value for word, value in config.items() if value is not None}
    for word, mine in (("tenant", tenant), ("namespace", namespace), ("name", name)):
        if said.setdefault(word, mine) != mine:
            raise InvalidFunction(f"the function's {word} is {mine}, and its configuration has another one")
    for word in said.keys() & UNSERVED.keys():
        if said[word] not in ({}, "", []):
            raise InvalidFunction(f"{UNSERVED[word]}: not supported by Magnetar.")
    for word in said.keys() - UNSERVED.keys() - _KNOWN:
        raise InvalidFunction(f"Magnetar knows no word {word[:100]!r} of a function's configuration")
    for word, types in _PLAIN.items():
        value = said.get(word)
        if value is not None and (type(value) not in types or (isinstance(value, int) and value < 0)):
            raise InvalidFunction(f"{word} of a function must be a {types[0].__name__}")
    for word, only in _FIXED.items():
        if said.get(word, only) != only:
            raise InvalidFunction(f"{word} other than {json.dumps(only)}: not supported by Magnetar.")
    found = {**_DEFAULTS, **{word: value for word, value in said.items() if word in _KNOWN - _INPUTS}}
    found |= _FIXED
    found["inputSpecs"] = _input_specs(said)
    for word, check in _CHECKS.items():
        if word in found:
            found[word] = check(found[word])
    _check_together(found)
    found["resources"] = _resources(found.get("resources") or {})
    if len(json.dumps(found)) > CONFIG_BYTES_MAX:
        raise InvalidFunction(f"the configuration of a function has more than {CONFIG_BYTES_MAX} bytes")
    return found


# inside


def _input_specs(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All ways to say an input, as one."""
    specs: dict[str, dict[str, Any]] = {}
    inputs = said.get("inputs") or []
    serdes = said.get("customSerdeInputs") or {}
    schemas = said.get("customSchemaInputs") or {}
    given = said.get("inputSpecs") or {}
    objects = (serdes, schemas, given)
    if not isinstance(inputs, list) or not all(isinstance(one, dict) for one in objects):
        raise InvalidFunction("inputs must be a list, and the other words for inputs objects")
    for topic in inputs:
        specs[_topic(topic)] = _spec({})
    pattern = said.get("topicsPattern")
    if pattern:
        specs[_pattern(pattern)] = _spec({"isRegexPattern": True})
    for topic, serde in serdes.items():
        specs[_topic(topic)] = _spec({"serdeClassName": serde})
    for topic, schema in schemas.items():
        specs[_topic(topic)] = _spec(_schema_spec(schema))
    for topic, spec in given.items():
        if not isinstance(spec, dict):
            raise InvalidFunction("a value of inputSpecs must be an object")
        found = _spec(spec)
        specs[_pattern(topic) if found["isRegexPattern"] else _topic(topic)] = found
    if len(specs) > INPUTS_MAX:
        raise InvalidFunction(f"a function has at most {INPUTS_MAX} inputs")
    return specs


def _spec(said: Mapping[str, Any]) -> dict[str, Any]:
    for word in ("schemaProperties", "consumerProperties", "cryptoConfig", "poolMessages"):
        if said.get(word):
            raise InvalidFunction(f"{word} of a function's input: not supported by Magnetar.")
    spec: dict[str, Any] = {"isRegexPattern": bool(said.get("isRegexPattern", said.get("regexPattern")))}
    if said.get("serdeClassName"):
        spec["serdeClassName"] = _class_name(said["serdeClassName"])
    if said.get("schemaType"):
        spec["schemaType"] = _schema(said["schemaType"])
    size = said.get("receiverQueueSize")
    if size is not None:
        if type(size) is not int or not 0 < size <= 10_000:
            raise InvalidFunction("receiverQueueSize of a function's input must be 1 to 10000")
        spec["receiverQueueSize"] = size
    return spec


def _schema_spec(said: object) -> Mapping[str, Any]:
    """A value of customSchemaInputs: the words of an input as JSON in a text, as Pulsar has it, or only a schema."""
    if not isinstance(said, str) or not said.startswith("{"):
        return {"schemaType": said}
    try:
        found = json.loads(said)
        # As of a body of JSON: no answer could carry NaN, nor a half of a character that it escapes.
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidFunction("a value of customSchemaInputs is no JSON") from None
    assert isinstance(found, dict)
    return found


def _schema(text: object) -> str:
    if not isinstance(text, str) or text.lower() not in _SCHEMAS:
        raise InvalidFunction(
            f"the schema {str(text)[:100]} of a function: not supported by Magnetar, which has {', '.join(_SCHEMAS)}."
        )
    return text


def _topic(text: object) -> str:
    try:
        return TopicName.parse(str(text)).full
    except InvalidTopicName as error:
        raise InvalidFunction(str(error)) from None


def _pattern(text: object) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= 500:
        raise InvalidFunction("a pattern of a function's inputs must have 1 to 500 characters")
    return text


def _class_name(text: object) -> str:
    if not isinstance(text, str) or _CLASS.fullmatch(text) is None:
        raise InvalidFunction(f"{str(text)[:100]!r} is no name of a class")
    return text


def _no_or(check: Callable[[object], str]) -> Callable[[object], str]:
    return lambda text: check(text) if text else ""


def _one_of(title: str, values: tuple[str, ...]) -> Callable[[object], str]:
    def check(text: object) -> str:
        if text not in values:
            raise InvalidFunction(
                f"{title} {str(text)[:100]}: not supported by Magnetar, which has {', '.join(values)}."
            )
        return str(text)

    return check


def _runtime(value: object) -> str:
    if str(value).lower() in _PLACES:
        raise InvalidFunction(
            f"The runtime {str(value).lower()}: not supported by Magnetar, which runs each instance in a process of its"
            " own, as a thread of the server could use its keys and files and could not be ended; runtime is the"
            " language, PYTHON."
        )
    return _one_of("The runtime", ("PYTHON",))(value)


def _parallelism(value: object) -> int:
    if type(value) is not int or value < 1:
        raise InvalidFunction("Function parallelism must be a positive number")
    if value > PARALLELISM_MAX:
        raise InvalidFunction(f"a function has at most {PARALLELISM_MAX} instances")
    return value


def _user_config(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidFunction("userConfig must be an object")
    return value


def _secrets(value: object) -> Mapping[str, Any]:
    """No values: `function_secrets.py` has taken them out."""
    specs = value.values() if isinstance(value, dict) else [None]
    if not all(isinstance(one, dict) and one.keys() == {"path"} for one in specs):
        raise InvalidFunction("secrets must be an object")
    assert isinstance(value, dict)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise InvalidFunction("a text of a function's configuration has at most 1000 characters")
    return value


def _resources(said: object) -> dict[str, Any]:
    """Memory is limited; the rest is not, and so only Pulsar's defaults may be said."""
    if not isinstance(said, dict):
        raise InvalidFunction("resources must be an object")
    for word, value in said.items():
        if word != "ram" and value not in (None, _RESOURCES.get(word)):
            raise InvalidFunction(f"{word[:100]} of a function's resources: not supported by Magnetar.")
    ram = said.get("ram") or _RESOURCES["ram"]
    if type(ram) is not int or ram < RAM_BYTES_MIN:
        raise InvalidFunction(f"the memory of a function's instance is at least {RAM_BYTES_MIN} bytes")
    return {**_RESOURCES, "ram": ram}


def _check_together(found: Mapping[str, Any]) -> None:
    if not found["inputSpecs"]:
        raise InvalidFunction("No input topic(s) specified for the function")
    if "className" not in found:
        raise InvalidFunction("Function classname cannot be null")
    if found.get("output") in found["inputSpecs"]:
        raise InvalidFunction(
            f"Output topic {found['output']} is also being used as an input topic (topics must be one or the other)"
        )
    has_retries = found.get("maxMessageRetries") is not None
    if found.get("maxMessageRetries") == 0:  # pulsar-client takes no such policy, and no instance could run
        raise InvalidFunction("maxMessageRetries of a function must be at least 1")
    if has_retries and found["processingGuarantees"] != _ATLEAST:
        raise InvalidFunction(
            "MaxMessageRetries and Effectively once don't gel well: only ATLEAST_ONCE has retries"
        )
    if has_retries and found["retainOrdering"]:
        raise InvalidFunction("a function that retains the order has no maxMessageRetries")
    if found.get("deadLetterTopic") and not has_retries:
        raise InvalidFunction("Dead Letter Topic specified, however max retries is set to infinity")
    _check_schemas(found)
    if found["processingGuarantees"] == EFFECTIVELY:
        _check_effectively_once(found)
    if found["retainOrdering"] and found["retainKeyOrdering"]:
        raise InvalidFunction("Only one of retain ordering or retain key ordering can be set")


def _check_schemas(found: Mapping[str, Any]) -> None:
    inputs = list(found["inputSpecs"].values())
    if any(one.get("serdeClassName") and one.get("schemaType") for one in inputs):
        raise InvalidFunction("Only one of serdeClassName or schemaType should be set")
    if found.get("outputSerdeClassName") and found.get("outputSchemaType"):
        raise InvalidFunction("Only one of outputSerdeClassName or outputSchemaType should be set")
    if found.get("outputSchemaType") and not found.get("output"):
        raise InvalidFunction("outputSchemaType of a function needs an output")
    given = [one.get("schemaType", "") for one in inputs]
    for kinds, word in (
        (given, "inputTypeClassName"),
        ([found.get("outputSchemaType", "")], "outputTypeClassName"),
    ):
        needs = any(kind.lower() in _OF_RECORDS for kind in kinds)
        if needs and not found.get(word):
            raise InvalidFunction(f"a schema json or avro of a function needs {word}, a Record of its code")
        if found.get(word) and not needs:
            raise InvalidFunction(f"{word} of a function needs a schema json or avro")


def _check_effectively_once(found: Mapping[str, Any]) -> None:
    topics = [found.get("output"), *found["inputSpecs"]]
    if any(one is not None and one.startswith(NON_PERSISTENT) for one in topics):
        raise InvalidFunction("EFFECTIVELY_ONCE: the topics of the function must be persistent")
    if found["parallelism"] > 1:  # two instances could send the output of one message, each by its producer
        raise InvalidFunction("EFFECTIVELY_ONCE with a parallelism above 1: not supported by Magnetar.")
    if found["retainKeyOrdering"]:
        raise InvalidFunction("EFFECTIVELY_ONCE retains the order of all messages, not only that of each key")
    if not found["autoAck"]:
        raise InvalidFunction("EFFECTIVELY_ONCE acknowledges by itself: autoAck cannot be false")


_INPUTS: Final = frozenset(
    ("inputs", "customSchemaInputs", "customSerdeInputs", "topicsPattern", "inputSpecs")
)
_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "className": _class_name,
    "inputTypeClassName": _no_or(_class_name),
    "deadLetterTopic": _topic,
    "logTopic": _topic,
    "output": _topic,
    "outputSchemaType": _no_or(_schema),
    "outputSerdeClassName": _no_or(_class_name),
    "outputTypeClassName": _no_or(_class_name),
    "parallelism": _parallelism,
    "processingGuarantees": _one_of("The guarantee", GUARANTEES),
    "runtime": _runtime,
    "secrets": _secrets,
    "subName": _text,
    "subscriptionPosition": _one_of("The position", _POSITIONS),
    "userConfig": _user_config,
}
_OWN: Final = frozenset(("tenant", "namespace", "name", "py", "resources"))
_KNOWN: Final = _OWN | _INPUTS | _PLAIN.keys() | _CHECKS.keys() | _DEFAULTS.keys() | _FIXED.keys()
