"""A server's settings: their sources, precedence, and the errors of wrong ones."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import pyggml
from pyggml.options import LoadOptions, fields_of
from pyggml.sampling import SamplingParams
from pyggml.server import LOADING, SERVING, ModelSpec, PartialSettings, Settings, foreign_variable_hints, read_settings
from pyggml.units import parse_bytes

SERVER = Path(pyggml.__file__).parent / "server"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file that says something in every table."""
    path = tmp_path / "server.toml"
    path.write_text(
        """
        [server]
        port = 9000
        drain_timeout = 5
        request_timeout = "none"
        max_body_bytes = "16MB"
        max_memory = 12_000_000_000
        cors_origins = ["https://a.example", "https://b.example"]
        log_prompts = true

        [load]
        n_ctx = "auto"
        n_parallel = 8
        cache_type = "q8_0"

        [sampling]
        temperature = 0.5
        stop = ["User:"]
        logit_bias = { 42 = -inf }
        json_schema = { type = "object" }

        [[models]]
        source = "small.gguf"
        name = "small"
        aliases = ["gpt-4o-mini"]
        load = { n_ctx = 4096, n_parallel = 2 }
        [models.sampling]
        top_k = 5

        [[models]]
        source = "hf:org/repo"
        """
    )
    return path


def read(command_line: PartialSettings | None = None, config: Path | None = None, **variables: str) -> Settings:
    return read_settings(command_line or PartialSettings(), variables, config)


def refusal(*, config: Path | None = None, given: PartialSettings | None = None, **variables: str) -> str:
    with pytest.raises(pyggml.InvalidParameterError) as refused:
        read(given, config, **variables)
    return str(refused.value)


# --- the table --------------------------------------------------------------------------------------------------


def test_names_are_unique() -> None:
    """They are all variables of one environment."""
    assert not {*SERVING} & {*LOADING}
    assert not ({*SERVING} | {*LOADING}) & {
        name for name, field in fields_of(SamplingParams).items() if not field.hidden
    }


@pytest.mark.parametrize("name", SERVING)
def test_an_option_is_explained(name: str) -> None:
    assert SERVING[name].help.endswith(".")


def test_the_options_of_loading_are_all_there() -> None:
    assert {*fields_of(LoadOptions)} - {*LOADING} == {"source", "progress", "queue_full"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 65536}, "port must be between 0 and 65535, not 65536"),
        ({"port": "80"}, "port must be an integer"),
        ({"prot": 80}, "did you mean 'port'"),
        ({"api_prefix": "/x"}, "it is 'root_path' here"),
        ({"n_ctx": 4096}, "load={'n_ctx': ...}"),
        ({"temperature": 0.5}, "sampling={'temperature': ...}"),
        ({"header_timeout": 0}, "header_timeout must be a finite number above 0"),
        ({"log_format": "xml"}, "log_format must be one of 'text', 'json', not 'xml'"),
        ({"root_path": "llm"}, "begins with a slash"),
        ({"cors_origins": "https://a.example"}, "cors_origins must be a sequence of strings"),
        ({"models": ["a.gguf"]}, "[ModelSpec('a.gguf')]"),
        ({"api_keys": ("",)}, "printable ASCII"),
        ({"api_keys": ("a b",)}, "printable ASCII"),
        ({"load": {"n_ctxx": 5}}, "did you mean 'n_ctx'"),
        ({"load": {"queue_full": "wait"}}, "there is no parameter 'queue_full'"),
        ({"load": {"n_batch": 2}}, "n_batch must be at least n_parallel"),
        ({"sampling": {"temp": 1}}, "it is 'temperature' here"),
        ({"sampling": {"grammar": "a", "json_schema": {}}}, "choose one"),
        (
            {"models": (ModelSpec("a", load={"n_batch": 6}),), "load": {"n_parallel": 7}},
            "n_batch is 6 and n_parallel is 7",
        ),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=re.escape(message)):
        Settings(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"name": ""}, {"name": "default"}, {"aliases": ("a", "default")}, {"aliases": "a"}, {"source": 5}]
)
def test_wrong_models_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(pyggml.InvalidParameterError):
        ModelSpec(**options)  # type: ignore[arg-type]


def test_a_repr_shows_no_keys() -> None:
    assert "sk-secret" not in repr(Settings(api_keys=("sk-secret",)))


def test_what_servers_load_differently_can_be_undone() -> None:
    assert Settings().load_options(ModelSpec())["max_queue"] == 512
    assert Settings(load={"max_queue": 9}).load_options(ModelSpec())["max_queue"] == 9
    assert Settings(load={"max_queue": 9}).load_options(ModelSpec(load={"max_queue": None}))["max_queue"] is None


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("512", 512), ("8MB", 8_000_000), ("1.5 GB", 1_500_000_000), ("1GiB", 2**30), ("2k", 2000)]
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "MB", "5x", "-1MB", "1,5 GB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_bytes(text)


# --- keys -------------------------------------------------------------------------------------------------------


def keys_of(settings: Settings) -> list[str]:
    return [each.key for each in settings.read_api_keys()]


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the phone\nsk-1\n\n  sk-2  \n")
    assert keys_of(Settings(api_key_file=path)) == ["sk-1", "sk-2"]
    both = read(PYGGML_API_KEY_FILE=str(path), PYGGML_API_KEY="sk-3")
    assert keys_of(both) == ["sk-3", "sk-1", "sk-2"]
    assert Settings().read_api_keys() == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no key"),
        (b"# nothing\n", "has no key"),
        (b"\xff\xfe", "is not text"),
        (b"ok\nsk secret", "line 2 of"),
        ("schlüssel".encode(), "line 1 of"),
        (b"ok\nsecret share=0", "line 2 of .*: share must be a number above 0"),
        (b"secret max_requests=1.5", "max_requests must be a whole number"),
        (b"secret label=a/b", "a label has up to 64"),
        (b"secret label=key-1", "does not begin with key-"),
        (b"secret label=a share=1\nother label=a share=2", "have different limits"),
        (b"secret label=a\nsecret label=b", "with the labels 'a' and 'b'"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value[:20],
)
def test_a_wrong_key_file(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(pyggml.InvalidParameterError, match=message) as refused:
        Settings(api_key_file=path).read_api_keys()
    assert "secret" not in str(refused.value)


def test_keys_have_labels_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-1\nsk-2 label=alice share=2.5 max_requests=4 tokens_per_minute=1000\nsk-3\n")
    first, second, third = Settings(api_key_file=path).read_api_keys()
    assert (first.limits.share, first.limits.max_requests) == (1, None)
    assert (second.key, second.label) == ("sk-2", "alice")
    # Neither depends on the other lines, nor shows the key.
    path.write_text("sk-3\nsk-3\nsk-2\n")
    again, labelled = Settings(api_key_file=path, api_keys=("sk-3",)).read_api_keys()
    assert again.label == third.label != first.label
    assert again.label.startswith("key-")
    assert "sk-3" not in again.label
    assert labelled.label != "alice"
    path.write_text("sk-2 label=alice\n")
    assert [each.label for each in Settings(api_key_file=path, api_keys=("sk-2",)).read_api_keys()] == ["alice"]
    assert dataclasses.astuple(second.limits) == (2.5, 4, 1000)
    assert "sk-2" not in repr(second)


def test_a_missing_key_file(tmp_path: Path) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="cannot be read: No such file"):
        Settings(api_key_file=tmp_path / "no").read_api_keys()


def test_an_empty_key_is_not_no_key() -> None:
    assert "PYGGML_API_KEY is empty" in refusal(PYGGML_API_KEY="")
    assert "PYGGML_API_KEY: a key has" in refusal(PYGGML_API_KEY="a secret")
    assert "secret" not in refusal(PYGGML_API_KEY="a secret")


def test_a_file_has_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('[server]\napi_key = "sk-secret"')
    assert "set PYGGML_API_KEY" in refusal(config=path)
    assert "sk-secret" not in refusal(config=path)


# --- precedence -------------------------------------------------------------------------------------------------


def test_a_file_is_read(config: Path) -> None:
    settings = read(config=config)
    assert (settings.port, settings.drain_timeout, settings.request_timeout) == (9000, 5.0, None)
    assert (settings.max_body_bytes, settings.max_memory) == (16_000_000, 12_000_000_000)
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert settings.log_prompts
    assert settings.load == {"n_ctx": "auto", "n_parallel": 8, "cache_type": "q8_0"}
    assert settings.sampling["logit_bias"] == {42: float("-inf")}
    assert settings.sampling["stop"] == ("User:",)
    first, second = settings.models
    assert first == ModelSpec("small.gguf", "small", ("gpt-4o-mini",), {"n_ctx": 4096, "n_parallel": 2}, {"top_k": 5})
    assert second == ModelSpec("hf:org/repo")
    assert settings.load_options(first) == {"n_ctx": 4096, "n_parallel": 2, "cache_type": "q8_0", "max_queue": 512}
    assert settings.sampling_options(first)["top_k"] == 5


def test_the_environment_goes_before_the_file(config: Path) -> None:
    settings = read(config=config, PYGGML_PORT="9001", PYGGML_N_PARALLEL="3", PYGGML_TOP_K="7")
    assert (settings.port, settings.drain_timeout) == (9001, 5.0)
    first, second = settings.models
    assert settings.load_options(first)["n_parallel"] == 3  # also before what the file says of one model
    assert settings.load_options(first)["n_ctx"] == 4096
    assert settings.load_options(second)["n_ctx"] == "auto"
    assert settings.sampling_options(first)["top_k"] == 7


def test_the_command_line_goes_before_both(config: Path) -> None:
    given = PartialSettings(
        server={"port": 9002, "request_timeout": 7.0}, load={"n_ctx": 512}, sampling={"temperature": 0.0}
    )
    settings = read(given, config, PYGGML_PORT="9001", PYGGML_TEMPERATURE="0.9", PYGGML_DRAIN_TIMEOUT="6")
    assert (settings.port, settings.request_timeout, settings.drain_timeout) == (9002, 7.0, 6.0)
    assert settings.sampling["temperature"] == 0.0
    assert settings.load_options(settings.models[0])["n_ctx"] == 512


def test_the_strongest_place_names_the_models(config: Path) -> None:
    assert [each.source for each in read(config=config).models] == ["small.gguf", "hf:org/repo"]
    assert [each.source for each in read(config=config, PYGGML_MODEL="a.gguf, b.gguf").models] == ["a.gguf", "b.gguf"]
    given = PartialSettings(models=[ModelSpec("c.gguf")])
    assert [each.source for each in read(given, config, PYGGML_MODEL="a.gguf").models] == ["c.gguf"]


def test_aliases_name_the_models_in_their_order() -> None:
    models = [ModelSpec("a.gguf"), ModelSpec("b.gguf")]
    named = read(PartialSettings(models=models, names=[["x", "y"], ["z"]])).models
    assert [(each.name, each.aliases) for each in named] == [("x", ("y",)), ("z", ())]
    assert read(PartialSettings(names=[["x"]])).models == (ModelSpec(name="x"),)
    assert read(PYGGML_ALIAS="x,y", PYGGML_MODEL="a.gguf").models == (ModelSpec("a.gguf", "x", ("y",)),)
    assert "aliases for 2 models, but 1" in refusal(given=PartialSettings(names=[["x"], ["y"]]))


def test_the_environment_names_the_file(config: Path) -> None:
    assert read(PYGGML_CONFIG=str(config)).port == 9000


def test_paths_begin_in_the_folder_of_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config.parent / "small.gguf").touch()
    (config.parent / "keys").write_text("sk-1\n")
    config.write_text(config.read_text().replace("port = 9000", 'api_key_file = "keys"'))
    settings = read(config=config)
    assert settings.models[0].source == str(config.parent / "small.gguf")
    assert keys_of(settings) == ["sk-1"]
    monkeypatch.setenv("HOME", "/home/user")
    config.write_text('[[models]]\nsource = "~/m.gguf"')
    assert read(config=config).models[0].source == "/home/user/m.gguf"


# --- the environment --------------------------------------------------------------------------------------------


def test_variables_are_texts() -> None:
    settings = read(
        PYGGML_MAX_BODY_BYTES="1MiB",
        PYGGML_CORS_ORIGINS="https://a.example, https://b.example",
        PYGGML_ALLOWED_HOSTS='["a.example", "b.example"]',  # as vLLM has lists
        PYGGML_LOG_PROMPTS="yes",
        PYGGML_PAGE="0",
        PYGGML_REQUEST_TIMEOUT="none",
        PYGGML_N_CTX="auto",
        PYGGML_MAX_QUEUE="none",
        PYGGML_SAMPLERS="top_k,temperature",
        PYGGML_STOP_TOKEN_IDS="1,2",
        PYGGML_LOGIT_BIAS="42=-inf,7=1.5",
        PYGGML_JSON_SCHEMA='{"type": "object"}',
        PYGGML_SEED="5",
        PYGGML_HOST="",
    )
    assert settings.max_body_bytes == 2**20
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert (settings.log_prompts, settings.page, settings.request_timeout) == (True, False, None)
    assert settings.load == {"n_ctx": "auto", "max_queue": None}
    assert settings.host == "127.0.0.1"
    assert settings.sampling == {
        "samplers": ("top_k", "temperature"),
        "stop_token_ids": (1, 2),
        "logit_bias": {42: float("-inf"), 7: 1.5},
        "json_schema": '{"type": "object"}',
        "seed": 5,
    }


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PYGGML_PORT", "x", "PYGGML_PORT: port must be an integer, not 'x'"),
        ("PYGGML_PORT", "99999", "PYGGML_PORT: port must be between 0 and 65535"),
        ("PYGGML_PROT", "80", "PYGGML_PROT: there is no parameter 'prot': did you mean 'port'"),
        ("PYGGML_CTX_SIZE", "80", "PYGGML_CTX_SIZE: there is no parameter 'ctx_size': it is 'n_ctx' here"),
        ("PYGGML_MODELS", "a", "did you mean PYGGML_MODEL?"),
        ("PYGGML_API_KEYS", "a", "did you mean PYGGML_API_KEY?"),
        ("PYGGML_ANYTHING", "a", "'pyggml serve --help' lists them"),
        ("PYGGML_LOG_LEVEL", "loud", "PYGGML_LOG_LEVEL: log_level must be one of 'debug'"),
        ("PYGGML_LOG_PROMPTS", "perhaps", "PYGGML_LOG_PROMPTS: log_prompts must be True or False"),
        ("PYGGML_MAX_MEMORY", "much", "PYGGML_MAX_MEMORY: max_memory must be a number of bytes, such as"),
        ("PYGGML_N_BATCH", "2", "the environment: n_batch is 2"),
        ("PYGGML_SAMPLERS", "top_q", "the environment: unknown sampler 'top_q'"),
    ],
)
def test_a_wrong_variable_is_refused(variable: str, value: str, message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=re.escape(message)):
        read_settings(PartialSettings(), {variable: value})


def test_variables_of_others_are_left_alone() -> None:
    settings = read(
        PYGGML_CACHE="/x",
        PYGGML_CACHE_GB="5",
        PYGGML_TEST_MODELS="/x",
        # Variables that Kubernetes sets for a service called pyggml.
        PYGGML_SERVICE_HOST="10.0.0.1",
        PYGGML_SERVICE_PORT="80",
        PYGGML_PORT="tcp://10.0.0.1:80",
        PYGGML_PORT_80_TCP_ADDR="10.0.0.1",
    )
    assert settings == Settings()


def test_variables_of_other_servers_are_answered() -> None:
    hints = foreign_variable_hints
    assert hints({"OLLAMA_HOST": "0.0.0.0"}) == ["OLLAMA_HOST is not read here; set PYGGML_HOST and PYGGML_PORT"]
    assert hints({"LLAMA_ARG_CTX_SIZE": "5"}) == ["LLAMA_ARG_CTX_SIZE is not read here; set PYGGML_N_CTX"]
    assert hints({"LLAMA_ARG_PORT": "5"}) == ["LLAMA_ARG_PORT is not read here; set PYGGML_PORT"]
    assert hints({"LLAMA_ARG_MODEL": "a.gguf"}) == ["LLAMA_ARG_MODEL is not read here; set PYGGML_MODEL"]
    assert hints({"VLLM_API_KEY": "x"}) == ["VLLM_API_KEY is not read here; set PYGGML_API_KEY"]
    assert hints({"PATH": "/bin", "PYGGML_PORT": "5"}) == []


# --- the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port 80", "server.toml: this is not TOML: "),
        ("port = 80", "server.toml: port belongs in the table [server]"),
        ("[serve]", "server.toml: there is no table [serve]; there are [server], [load], [sampling] and [[models]]"),
        ("server = 5", "server.toml: [server] must be a table, not 5"),
        ("[server]\nport = '80'", "server.toml, [server]: port must be an integer, not '80'"),
        ("[server]\nport = 99999", "server.toml, [server]: port must be between 0 and 65535"),
        ("[server]\nprot = 80", "server.toml, [server]: there is no parameter 'prot': did you mean 'port'"),
        ("[server]\nn_ctx = 80", "server.toml, [server]: n_ctx belongs in the table [load]"),
        ("[server]\nhost = 5", "server.toml, [server]: host must be a string, not 5"),
        ("[server]\nlog_prompts = 'yes'", "server.toml, [server]: log_prompts must be True or False"),
        ("[server]\ncors_origins = 5", "server.toml, [server]: cors_origins must be a list, not 5"),
        ("[server]\ncors_origins = [5]", "server.toml: cors_origins must be a sequence of strings"),
        ("[load]\nn_ctx = -1", "server.toml, [load]: n_ctx must be between 1 and"),
        ("[load]\nn_batch = 2", "server.toml: n_batch is 2 and n_parallel is 4"),
        ("[sampling]\ntemp = 1", "server.toml, [sampling]: there is no parameter 'temp': it is 'temperature' here"),
        ("[sampling]\nlogit_bias = { x = 1 }", "server.toml: a token id of logit_bias must be an integer"),
        ("[models]", "a model is a table [[models]]"),
        ("models = ['a.gguf']", "a model is a table [[models]], not 'a.gguf'"),
        ("[[models]]\nsorce = 'a'", "server.toml, [[models]]: there is no parameter 'sorce': did you mean 'source'"),
        ("[[models]]\nname = 'a'\nn_ctx = 5", "server.toml, [[models]] a: n_ctx belongs in the table [models.load]"),
        ("[[models]]\nname = 'a'\nload = {n_ctx = -1}", "server.toml, [[models]] a, load: n_ctx must be between"),
        ("[[models]]\nname = 'default'", "server.toml, [[models]] default: a model cannot be called 'default'"),
        ("[[models]]\nsource = 5", "server.toml, [[models]] 5: a model's source must be a string"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    assert message in refusal(config=path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "the configuration cannot be read: No such file" in refusal(config=tmp_path / "no.toml")


# --- what becomes of them ---------------------------------------------------------------------------------------


def test_every_setting_is_used() -> None:
    of_methods = {"load", "sampling"}  # load_options, sampling_options
    text = "".join(path.read_text() for path in SERVER.rglob("*.py") if path.name != "settings.py")
    unused = {each.name for each in dataclasses.fields(Settings)} - {*re.findall(r"settings\.(\w+)", text)}
    assert unused == of_methods
