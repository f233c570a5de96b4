"""Where the hub is and where its files are kept, by the environment variables that all of its tools obey.

huggingface_hub reads them once, when it is first imported; here they count as they are when a reference is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import constants

from pyggml.errors import InvalidParameterError

# Which variable says where the cache is, and where below that; the first that is set counts.
_CACHES = (("HF_HUB_CACHE", "."), ("HUGGINGFACE_HUB_CACHE", "."), ("HF_HOME", "hub"))
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = ("1", "on", "yes", "true")


@dataclass(frozen=True)
class Environment:
    """What holds for one use of a reference.

    Attributes:
        endpoint: address of the hub, without a slash at its end.
        cache: directory of the downloaded repositories; it need not exist.
        offline: name of the variable that forbids to ask the hub; None: it may be asked.
    """

    endpoint: str
    cache: Path
    offline: str | None


def read_environment() -> Environment:
    """What holds now.

    Raises:
        InvalidParameterError: ``HF_ENDPOINT`` is no address.
    """
    return Environment(_endpoint(), _cache(), _offline())


def _endpoint() -> str:
    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    try:
        address = urlsplit(endpoint)
        is_usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidParameterError(
            f"HF_ENDPOINT is {endpoint!r}; an address such as https://huggingface.co was expected"
        )
    return endpoint.rstrip("/")


def _cache() -> Path:
    for name, below in _CACHES:
        value = os.environ.get(name)
        if value:
            return Path(os.path.expandvars(value)).expanduser().absolute() / below
    return Path(constants.HF_HUB_CACHE).absolute()


def _offline() -> str | None:
    for name in _OFFLINE:
        if os.environ.get(name, "").lower() in _TRUE:
            return name
    return _OFFLINE[0] if constants.HF_HUB_OFFLINE else None
