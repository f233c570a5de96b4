"""What a server is told before it starts: its own options, each declared once with its type, default and range.

To add an option, add a field to :class:`Settings`: the command, the environment and the configuration file have it by
that name. The options of :func:`pyggml.load` and of sampling stay where they are declared.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyggml
from pyggml.options import Field, LoadOptions, check, fields_of, hints, option_class, require_known
from pyggml.sampling import SamplingParams

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

#: Options of :func:`pyggml.load` whose default is another one in a server: more than this many requests had better ask
#: elsewhere.
LOAD_DEFAULTS: Mapping[str, Any] = {"max_queue": 512}

#: The options of :func:`pyggml.load` that a server passes on. It names the models itself, and never waits for room.
LOADING = {
    name: each for name, each in fields_of(LoadOptions).items() if name not in ("source", "progress", "queue_full")
}

#: The sampling parameters for which a server may have defaults.
SAMPLING = {name: each for name, each in fields_of(SamplingParams).items() if not each.hidden}


def _of_another_table(table: str, names: Iterable[str]) -> dict[str, str]:
    """Answers to those who pass options of a table one by one."""
    return {name: f"it is an option of {table}: {table}={{'{name}': ...}}" for name in names}


_SECONDS = Field(0, above_low=True)
_SECONDS_OR_NEVER = Field(0, above_low=True, without="None is no limit")


@dataclass(frozen=True)
class ModelSpec:
    """A model that a server offers.

    Attributes:
        source: its file, directory or reference; None: the model that ships with pyggml. Or an open model, which the
            server neither unloads nor closes; ``load`` does not concern it.
        name: what requests and answers call it; None: after its file or repository.
        aliases: what requests may call it, too.
        load: options of :func:`pyggml.load` for this model, before the server's.
        sampling: fields of SamplingParams for requests for this model that do not set them, before the server's.
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
        _set(self, aliases=_texts("aliases", self.aliases))
        for name in (*self.aliases, *([] if self.name is None else [self.name])):
            if not isinstance(name, str) or not name.strip() or name == "default":
                raise pyggml.InvalidParameterError(
                    f"a model cannot be called {name!r:.200}: a name has characters, and 'default' is the first model"
                )
        check_load(self.load)
        check_sampling(self.sampling)


@option_class
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server serves.

    Attributes:
        models: the models, the first being the default. (): the one that ships with pyggml.
        load: options of :func:`pyggml.load` for every model.
        sampling: fields of SamplingParams for requests that do not set them.
        host: address to listen on. 127.0.0.1 is this machine only, 0.0.0.0 all its networks.
        port: port to listen on; 0: any free one.
        root_path: path under which a proxy offers the server, such as /llm.
        api_keys: the keys of which requests must have one, besides those in ``api_key_file``. (): none is asked for.
        api_key_file: file with the keys of which requests must have one, a line each.
        request_timeout: seconds after which a request ends with what it has; none: never.
        header_timeout: seconds that a client may take to send a request's headers.
        body_timeout: seconds that a client may take to send a body, beyond what 10 kB/s need.
        send_timeout: seconds after which a client that reads nothing of its answer is cut off.
        keep_alive_timeout: seconds after which a connection without requests is closed.
        drain_timeout: seconds that running requests have to end after SIGTERM.
        ping_s: seconds of silence after which a stream gets a comment, so that proxies keep it open.
        max_connections: maximum number of open connections; those without a request make room for new ones.
        max_body_bytes: size of the largest body that is read, such as 8MB.
        max_header_bytes: size of the largest headers that are read.
        max_messages: maximum number of messages in a conversation.
        max_tokens_limit: maximum number of tokens of an answer, whatever its request says. None: no limit.
        max_choices: maximum number of answers that a request may ask for, over all its prompts.
        load_all: load all models at the start, as far as there is room. Otherwise the first; the others when asked for.
        load_timeout: seconds that a request waits for its model to be loaded, and for room for it.
        max_loaded_models: maximum number of models in memory; the least recently used one goes first. None: no limit.
        max_memory: bytes that models may take together, such as 12GB. None: what is free.
        cors_origins: origins whose pages may ask, such as https://example.com, or * for all.
        allowed_hosts: names of this server that requests may use besides those of loopback, or * for all.
        log_level: how much is logged.
        log_format: text for people, or json, an object a line.
        log_prompts: log prompts and answers too.
        page: offer the page for chatting, at /.
    """

    HINTS: ClassVar[Mapping[str, str]] = {
        **_of_another_table("load", LOADING),
        **_of_another_table("sampling", SAMPLING),
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
    load_all: bool = False
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
            _set(self, **{name: _texts(name, getattr(self, name))})
        _check_host(self.host)
        _set(self, models=_models(self.models), root_path=_root_path(self.root_path))
        if self.api_key_file is not None:
            _set(self, api_key_file=Path(self.api_key_file))
        for key in self.api_keys:
            check_key(key, "api_keys")
        for model in self.models or (ModelSpec(),):
            check_load(self.load_options(model))
            check_sampling(self.sampling_options(model))

    def load_options(self, model: ModelSpec) -> dict[str, Any]:
        """The options with which a model is loaded."""
        return {**LOAD_DEFAULTS, **self.load, **model.load}

    def sampling_options(self, model: ModelSpec) -> dict[str, Any]:
        """The fields of SamplingParams for requests for a model that do not set them."""
        return {**self.sampling, **model.sampling}

    def read_api_keys(self) -> tuple[str, ...]:
        """The keys of which requests must have one, with those in the file; (): none is asked for.

        Raises:
            InvalidParameterError: the file cannot be read, has no key, or something in it cannot be one.
        """
        return self.api_keys if self.api_key_file is None else (*self.api_keys, *_keys_in(self.api_key_file))


#: The options that servers have of their own. The others in :class:`Settings` come from tables of theirs.
SERVING = {name: each for name, each in fields_of(Settings).items() if not each.hidden}


def check_load(options: Mapping[str, Any]) -> None:
    """Checks options of :func:`pyggml.load`.

    Raises:
        InvalidParameterError: one is invalid, or there is none of that name.
    """
    require_known(LoadOptions, options, known=LOADING)
    LoadOptions(**options)


def check_sampling(options: Mapping[str, Any]) -> None:
    """Checks defaults for sampling.

    Raises:
        InvalidParameterError: one is invalid, or there is none of that name.
    """
    require_known(SamplingParams, options, known=SAMPLING)
    SamplingParams(**{"temperature": 1.0, **options})  # others ask for one, which the model may bring


def _set(settings: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(settings, name, value)


def _models(given: object) -> tuple[ModelSpec, ...]:
    if isinstance(given, (list, tuple)) and all(isinstance(each, ModelSpec) for each in given):
        return tuple(given)
    raise pyggml.InvalidParameterError(f"models must be a sequence such as [ModelSpec('a.gguf')], not {given!r:.200}")


def _texts(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, (list, tuple)) and all(isinstance(text, str) for text in given):
        return tuple(given)
    raise pyggml.InvalidParameterError(f"{name} must be a sequence of strings, not {given!r:.200}")


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


def _keys_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pyggml.InvalidParameterError(f"the api_key_file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise pyggml.InvalidParameterError(f"the api_key_file {path} is not text: it has a key in each line") from None
    keys = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    if not keys:
        raise pyggml.InvalidParameterError(f"the api_key_file {path} has no key: it needs one in each line")
    for number, key in keys:
        check_key(key, f"line {number} of {path}")
    return [key for _, key in keys]


def check_key(key: str, where: str) -> None:
    """Refuses a key that no header can carry, without showing it: it is a secret.

    Raises:
        InvalidParameterError: it cannot be a key.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise pyggml.InvalidParameterError(f"{where}: a key has printable ASCII characters and no spaces")
