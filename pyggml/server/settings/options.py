"""Server options, each declared once with its type, default and range.

To add an option, add a field to :class:`Settings`: the command, the environment and the configuration file accept it
under that name. Options of :func:`pyggml.load` and sampling parameters are declared in :mod:`pyggml.options`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyggml
from pyggml.options import Field, LoadOptions, check, fields_of, hints, option_class, require_known
from pyggml.sampling import SamplingParams
from pyggml.server.settings.api_keys import ApiKey, check_key, read_key_file, with_labels

LogFormat = Literal["text", "json"]
PrefixCacheScope = Literal["all", "key"]
LogLevel = Literal["debug", "info", "warning", "error"]

#: Options of :func:`pyggml.load` that have another default in a server.
LOAD_DEFAULTS: Mapping[str, Any] = {"max_queue": 512}

#: The options of :func:`pyggml.load` that a server passes on. It chooses the models itself, and rejects requests when
#: the queue is full.
LOADING = {
    name: each for name, each in fields_of(LoadOptions).items() if name not in ("source", "progress", "queue_full")
}

#: The sampling parameters that can have defaults in a server.
SAMPLING = {name: each for name, each in fields_of(SamplingParams).items() if not each.hidden}


def _table_hints(table: str, names: Iterable[str]) -> dict[str, str]:
    """Return hints for options of a table that are passed one by one."""
    return {name: f"it is an option of {table}: {table}={{'{name}': ...}}" for name in names}


_SECONDS = Field(0, above_low=True)
_SECONDS_OR_NEVER = Field(0, above_low=True, without="None is no limit")


@dataclass(frozen=True)
class ModelSpec:
    """A model that a server offers.

    Attributes:
        source: its file, directory or reference; None: the model that ships with pyggml. Or a loaded model, which the
            server neither unloads nor closes, and to which ``load`` does not apply.
        name: its name in requests and responses; None: derived from its file or repository.
        aliases: other names that requests may use.
        load: options of :func:`pyggml.load` for this model. They take precedence over the server's.
        sampling: default sampling parameters of requests for this model. They take precedence over the server's.
    """

    source: "str | os.PathLike[str] | pyggml.LLM | None" = None
    name: str | None = None
    aliases: tuple[str, ...] = ()
    load: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.source, (str, os.PathLike, pyggml.LLM, type(None))):
            raise pyggml.InvalidParameterError(
                f"a model's source must be a string, a path or an open model, not {self.source!r:.200}"
            )
        _set(self, aliases=_sequence("aliases", self.aliases))
        for name in (*self.aliases, *([] if self.name is None else [self.name])):
            if not isinstance(name, str) or not name.strip() or name == "default":
                raise pyggml.InvalidParameterError(
                    f"a model cannot be called {name!r:.200}: a name has characters, and 'default' is the first model"
                )
        _check_load(self.load)
        _check_sampling(self.sampling)


@option_class
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a server.

    Attributes:
        models: the models; the first is the default. (): the model that ships with pyggml.
        load: options of :func:`pyggml.load` for every model.
        sampling: default sampling parameters.
        host: address to listen on. 127.0.0.1 accepts connections from this machine only, 0.0.0.0 from all networks.
        port: port to listen on; 0: any free one.
        root_path: path under which a proxy offers the server, such as /llm.
        api_keys: accepted API keys, in addition to those in ``api_key_file``. (): no key is required.
        api_key_file: file of accepted API keys, one per line, each with its label and limits if it has any.
        max_requests_per_key: maximum number of concurrent requests of an API key that has no own limit. None: no limit.
        tokens_per_minute: maximum number of prompt and generated tokens per minute of an API key that has no own limit.
            None: no limit.
        tls_cert: file of the certificate for HTTPS, and of those that certify it, in PEM format. None: plain HTTP.
        tls_key: file of the certificate's private key. None: it is in the same file.
        prefix_cache_scope: all: requests share one prefix cache; key: only requests with the same API key do, so that
            response times reveal nothing about the prompts of other keys.
        warm: file of prefixes to compute into the prefix cache when a model is loaded, before requests: the text of a
            system message, or JSON with messages, tools or prompts.
        slot_save_path: directory for the files of ``POST /slots/{id}?action=save``. None: there are no actions on
            slots.
        request_timeout: seconds after which generation stops and the text so far is returned; none: never.
        header_timeout: timeout in seconds for reading a request's headers.
        body_timeout: timeout in seconds for reading a request's body, in addition to its size at 10 kB/s.
        send_timeout: seconds after which a client that reads nothing of its response is disconnected.
        keep_alive_timeout: seconds after which an idle connection is closed.
        drain_timeout: seconds that running requests have to finish after SIGTERM.
        ping_s: interval in seconds of the comments that keep a silent stream open through proxies.
        max_connections: maximum number of open connections; idle ones are closed to accept new ones.
        max_body_bytes: maximum size of a request's body, such as 8MB.
        max_header_bytes: maximum size of a request's headers.
        max_messages: maximum number of messages in a conversation.
        max_tokens_limit: maximum number of generated tokens, even if a request sets a higher one. None: no limit.
        max_stored_bytes: maximum size of the responses of ``/v1/responses`` that are kept in memory, for requests that
            read or continue them, the least recently used dropped first; and as much again of the files of batches. 0:
            none.
        max_choices: maximum number of choices in a request, over all its prompts.
        load_all: load all models at startup, as far as memory allows. Otherwise the first; the others on demand.
        allow_pull: let requests download models of the Hugging Face Hub, by ollama's ``/api/pull``, which are then
            offered until the server stops.
        idle_unload: seconds after which a model that no request uses is unloaded. None: never.
        allow_unload: let requests unload models, by ollama's ``keep_alive`` and ``POST /models/unload``.
        load_timeout: seconds that a request waits for its model to be loaded, and for the memory it needs.
        max_loaded_models: maximum number of loaded models; the least recently used is unloaded first. None: no limit.
        max_memory: memory budget of all models in bytes, such as 12GB. None: the free memory.
        cors_origins: origins whose pages may send requests, such as https://example.com, or * for all.
        allowed_hosts: accepted Host headers in addition to loopback names, or * for all.
        log_level: minimum level of log messages.
        log_format: text, or json for one object per line.
        log_prompts: log prompts and responses too.
        page: serve the chat page at /.
    """

    HINTS: ClassVar[Mapping[str, str]] = {
        **_table_hints("load", LOADING),
        **_table_hints("sampling", SAMPLING),
        **hints("server"),
    }
    LISTED_BY: ClassVar[str] = "'pyggml serve --help'"

    models: Annotated[tuple[ModelSpec, ...], Field(hidden=True)] = ()
    load: Annotated[Mapping[str, Any], Field(hidden=True)] = field(default_factory=dict)
    sampling: Annotated[Mapping[str, Any], Field(hidden=True)] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: Annotated[int, Field(0, 65535)] = 8080
    root_path: str = ""
    api_keys: Annotated[tuple[str, ...], Field(hidden=True)] = field(default=(), repr=False)
    api_key_file: Path | None = None
    max_requests_per_key: Annotated[int | None, Field(1, 2**31 - 1, without="None is no limit")] = None
    tokens_per_minute: Annotated[int | None, Field(1, 2**31 - 1, without="None is no limit")] = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    prefix_cache_scope: PrefixCacheScope = "all"
    warm: Path | None = None
    slot_save_path: Path | None = None
    request_timeout: Annotated[float | None, _SECONDS_OR_NEVER] = 3600.0
    header_timeout: Annotated[float, _SECONDS] = 10.0
    body_timeout: Annotated[float, _SECONDS] = 30.0
    send_timeout: Annotated[float, _SECONDS] = 30.0
    keep_alive_timeout: Annotated[float, _SECONDS] = 75.0
    drain_timeout: Annotated[float, Field(0)] = 30.0
    ping_s: Annotated[float, _SECONDS] = 15.0
    max_connections: Annotated[int, Field(1, 2**31 - 1)] = 1000
    max_body_bytes: Annotated[int, Field(1024, 2**40, is_size=True)] = 8 * 2**20
    max_header_bytes: Annotated[int, Field(1024, 2**30, is_size=True)] = 64 * 2**10
    max_messages: Annotated[int, Field(1, 2**31 - 1)] = 4096
    max_tokens_limit: Annotated[int | None, Field(1, 2**31 - 1, without="None is no limit but the context's")] = None
    max_choices: Annotated[int, Field(1, 2**31 - 1)] = 128
    max_stored_bytes: Annotated[int, Field(0, 2**40, is_size=True)] = 64 * 2**20
    load_all: bool = False
    allow_pull: bool = False
    idle_unload: Annotated[float | None, Field(0, above_low=True, without="None is never")] = None
    allow_unload: bool = True
    load_timeout: Annotated[float, _SECONDS] = 300.0
    max_loaded_models: Annotated[int | None, Field(1, 2**31 - 1, without="None is no limit")] = None
    max_memory: Annotated[int | None, Field(1, 2**63 - 1, is_size=True, without="None is what is free")] = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    log_prompts: bool = False
    page: bool = True

    def __post_init__(self) -> None:
        check(self)
        for name in ("cors_origins", "allowed_hosts", "api_keys"):
            _set(self, **{name: _sequence(name, getattr(self, name))})
        _check_host(self.host)
        _set(self, models=_sequence("models", self.models, ModelSpec, "such as [ModelSpec('a.gguf')]"))
        _set(self, root_path=_root_path(self.root_path))
        for name in ("api_key_file", "tls_cert", "tls_key", "warm", "slot_save_path"):
            if (path := getattr(self, name)) is not None:
                _set(self, **{name: Path(path)})
        for key in self.api_keys:
            check_key(key, "api_keys")
        if self.tls_key is not None and self.tls_cert is None:
            raise pyggml.InvalidParameterError("tls_key has no effect without tls_cert: set both, or leave it out")
        for model in self.models or (ModelSpec(),):
            _check_load(self.load_options(model))
            _check_sampling(self.sampling_options(model))

    def load_options(self, model: ModelSpec) -> dict[str, Any]:
        """Return the options for loading a model.

        Args:
            model: the model.
        """
        return {**LOAD_DEFAULTS, **self.load, **model.load}

    def sampling_options(self, model: ModelSpec) -> dict[str, Any]:
        """Return the default sampling parameters of requests for a model.

        Args:
            model: the model.
        """
        return {**self.sampling, **model.sampling}

    def read_api_keys(self) -> tuple[ApiKey, ...]:
        """Return the accepted API keys, including those in the file; (): no key is required.

        Raises:
            InvalidParameterError: the file cannot be read, has no keys, or an invalid line.
        """
        keys = [ApiKey(key) for key in self.api_keys]
        return with_labels(keys if self.api_key_file is None else [*keys, *read_key_file(self.api_key_file)])


#: The server's own options, without those of the other tables.
SERVING = {name: each for name, each in fields_of(Settings).items() if not each.hidden}


def _check_load(options: Mapping[str, Any]) -> None:
    require_known(LoadOptions, options, known=LOADING)
    LoadOptions(**options)


def _check_sampling(options: Mapping[str, Any]) -> None:
    require_known(SamplingParams, options, known=SAMPLING)
    SamplingParams(**{"temperature": 1.0, **options})  # other parameters require one, which may be the model's own


def _set(settings: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(settings, name, value)


def _sequence(name: str, given: object, kind: type = str, form: str = "of strings") -> tuple[Any, ...]:
    if isinstance(given, (list, tuple)) and all(isinstance(each, kind) for each in given):
        return tuple(given)
    raise pyggml.InvalidParameterError(f"{name} must be a sequence {form}, not {given!r:.200}")


def _check_host(host: str) -> None:
    has_port = host.count(":") == 1  # an IPv6 address has more
    if not host or has_port or {*host} & {*"/[]"}:
        raise pyggml.InvalidParameterError(
            f"host must be an address or a name alone, such as 0.0.0.0, ::1 or localhost, not {host!r:.200}: "
            "the port is an option of its own"
        )


def _root_path(path: str) -> str:
    path = path.rstrip("/") if isinstance(path, str) else path
    if isinstance(path, str) and (not path or path.startswith("/")):
        return path
    raise pyggml.InvalidParameterError(f"root_path must be a path that begins with a slash, not {path!r:.200}")
