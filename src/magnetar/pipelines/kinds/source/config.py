"""The configuration of a pipeline of the kind `source`, checked.  The reference is docs/reference/connectors.md.

Only options that are listed here reach Spark: others move or delete files (`cleanSource`), read files that were not
checked (`paths`), or name classes.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.config_values import check_keys, options_at, text_at, trigger_at
from magnetar.pipelines.kinds.database_tables import check_column, database_values

_KEYS: Final = {
    "format": True,
    "topic": True,
    "path": False,
    "schema": False,
    "options": False,
    "trigger": False,
}
_OF_DATABASES: Final = {"database": True, "table": True, "column": True, "user": False, "password": False}
_OF_FILES: Final = (
    "fileNameOnly",
    "latestFirst",
    "maxBytesPerTrigger",
    "maxFileAge",
    "maxFilesPerTrigger",
    "pathGlobFilter",
    "recursiveFileLookup",
)
_OF_TEXTS: Final = (
    "columnNameOfCorruptRecord",
    "dateFormat",
    "encoding",
    "lineSep",
    "locale",
    "mode",
    "multiLine",
    "samplingRatio",
    "timeZone",
    "timestampFormat",
    "timestampNTZFormat",
)
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": (
        *_OF_FILES,
        *_OF_TEXTS,
        "charToEscapeQuoteEscaping",
        "comment",
        "emptyValue",
        "enforceSchema",
        "escape",
        "header",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
        "inferSchema",
        "maxCharsPerColumn",
        "maxColumns",
        "nanValue",
        "negativeInf",
        "nullValue",
        "positiveInf",
        "quote",
        "sep",
        "unescapedQuoteHandling",
    ),
    "json": (
        *_OF_FILES,
        *_OF_TEXTS,
        "allowBackslashEscapingAnyCharacter",
        "allowComments",
        "allowNonNumericNumbers",
        "allowNumericLeadingZeros",
        "allowSingleQuotes",
        "allowUnquotedControlChars",
        "allowUnquotedFieldNames",
        "dropFieldIfAllNull",
        "prefersDecimal",
        "primitivesAsString",
    ),
    "orc": (*_OF_FILES, "mergeSchema"),
    "parquet": (*_OF_FILES, "datetimeRebaseMode", "int96RebaseMode", "mergeSchema"),
    "text": (*_OF_FILES, "lineSep", "wholetext"),
}
"""The options of each format of files."""

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
TABLES: Final = (DELTA, ICEBERG)
"""Formats with versions, each of which has rows that earlier ones had not."""

SOCKET: Final = "socket"
JDBC: Final = "jdbc"
_OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "rate": ("numPartitions", "rampUpTime", "rowsPerSecond"),
    SOCKET: ("host", "includeTimestamp", "port"),
    DELTA: (),
    ICEBERG: (),
    JDBC: (),
}
_OPTIONS: Final = {**FILES, **_OTHERS}
_RESERVED: Final = {
    "checkpointlocation": "the worker keeps the checkpoint",
    "cleansource": "a source leaves files as they are",
    "path": "name the folder in path",
    "paths": "name the folder in path",
}
# Spark takes a path with these characters for a pattern, which could mean other folders than the one that was checked.
_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
# Without quotes: a default value in it could call any function.
_SCHEMA: Final = re.compile(r"[\w\s,<>:()]{1,20000}", re.ASCII)


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults; a configuration that was checked before does not change.

    Raises ConfigError: one sentence that names the key.
    """
    form = text_at(config, "format")
    check_keys(config, _KEYS | (_OF_DATABASES if form == JDBC else {}))
    if form not in _OPTIONS:
        raise ConfigError(f"format must be one of {', '.join(_OPTIONS)}, not {form[:100]!r}")
    path, schema = _of_files(config, "path", form), _of_files(config, "schema", form)
    options = options_at({"options": {}, **config}, "options", _RESERVED)
    for name in options:
        _check_option(form, name)
    if form in FILES or form in TABLES:
        if path is None:
            raise ConfigError(f"config needs the key path: the folder of the {form} files")
        check_folder(path)
    if schema is not None and _SCHEMA.fullmatch(schema) is None:
        raise ConfigError("schema must be names and types, such as 'id BIGINT, tags ARRAY<STRING>'")
    more = {}
    if form == JDBC:
        check_column(text_at(config, "column"))
        more = {**database_values(config), "column": config["column"]}
    return {
        **more,
        "format": form,
        "topic": text_at(config, "topic"),
        "path": path,
        "schema": schema,
        "options": options,
        "trigger": trigger_at(config),
    }


def check_folder(path: str) -> None:
    """Raises ConfigError if Spark would not take `path` for one folder of this machine."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme.lower() != "file":
        raise ConfigError(f"path must be a folder: files at {scheme[:20]}:// cannot be read as a stream here")
    if _PATTERN.search(path):
        raise ConfigError(
            "path must be one folder, without any of * ? [ ] { } \\: the option pathGlobFilter chooses its files"
        )


def _of_files(config: Mapping[str, Any], key: str, form: str) -> str | None:
    """A text that only files have; a table has a path, and columns of its own.  Raises ConfigError."""
    if config.get(key) is None:
        return None
    if form not in FILES and not (form in TABLES and key == "path"):
        raise ConfigError(f"{key} is for files, and the format {form} reads none: leave it out")
    return text_at(config, key)


def _check_option(form: str, name: str) -> None:
    known = _OPTIONS[form]
    if name.lower() not in {one.lower() for one in known}:
        meant = closest(name, known)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known) or 'none'}"
        raise ConfigError(f"the format {form} has no option {name[:100]!r} here: {hint}")
