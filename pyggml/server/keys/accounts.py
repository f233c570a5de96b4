"""Accounts of API keys: who sends a request, and whether its limits allow one more."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers

from pyggml.server.http.access_control import api_key
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.settings.api_keys import ApiKey, KeyLimits

_MINUTE_S = 60.0
# Weight of the last request in the mean number of tokens per request.
_NEWEST = 0.2
# Tokens that a request counts with before any of its account has ended.
_FIRST_TOKENS = 500.0


class Account:
    """The holder of one or several API keys with the same label. For the event loop's thread.

    Running requests count against ``tokens_per_minute`` with the mean of those before them, or an estimate, as their
    tokens are known only at their end; the balance may become negative then.

    Attributes:
        label: its name in logs and metrics.
        limits: its limits.
        n_running: number of its requests in progress.
        mean_tokens: moving average of the tokens of a request; 0: none has ended.
    """

    def __init__(self, label: str, limits: KeyLimits) -> None:
        self.label = label
        self.limits = limits
        self.n_running = 0
        self.mean_tokens = 0.0
        self._balance = float(limits.tokens_per_minute or 0)
        self._refilled_s = time.monotonic()

    @property
    def expected_tokens(self) -> float:
        """Tokens that a running request is expected to take."""
        return self.mean_tokens or _FIRST_TOKENS

    def set_limits(self, limits: KeyLimits) -> None:
        """Replace the limits, as after a change of the configuration."""
        if limits.tokens_per_minute != self.limits.tokens_per_minute:
            self._balance, self._refilled_s = float(limits.tokens_per_minute or 0), time.monotonic()
        self.limits = limits

    def admit(self) -> None:
        """Count a request as running.

        Raises:
            RequestError: 429, a limit is reached.
        """
        most, per_minute = self.limits.max_requests, self.limits.tokens_per_minute
        if most is not None and self.n_running >= most:
            message = f"the API key's {most} concurrent requests are running: wait for the end of one of them"
            raise RequestError(Failure(429, "overloaded", message, "rate_limit_exceeded", retry_after_s=1))
        if per_minute is not None and self._remaining() < 1:
            message = f"the API key's {per_minute} tokens per minute are used up: try again in {self._wait_s()} s"
            raise RequestError(Failure(429, "overloaded", message, "rate_limit_exceeded", retry_after_s=self._wait_s()))
        self.n_running += 1

    def release(self, n_tokens: int) -> None:
        """Count the end of a running request that took ``n_tokens``."""
        self.n_running -= 1
        if n_tokens:
            self.mean_tokens += (n_tokens - self.mean_tokens) * (_NEWEST if self.mean_tokens else 1.0)
            self._refill()
            self._balance -= n_tokens

    def headers(self) -> dict[str, str]:
        """Return the response headers that tell a client its limits, as OpenAI's API does."""
        headers = {}
        if (most := self.limits.max_requests) is not None:
            headers["x-ratelimit-limit-requests"] = str(most)
            headers["x-ratelimit-remaining-requests"] = str(max(0, most - self.n_running))
        if (per_minute := self.limits.tokens_per_minute) is not None:
            remaining = self._remaining()
            headers["x-ratelimit-limit-tokens"] = str(per_minute)
            headers["x-ratelimit-remaining-tokens"] = str(max(0, math.floor(remaining)))
            headers["x-ratelimit-reset-tokens"] = f"{(per_minute - remaining) * _MINUTE_S / per_minute:.3f}s"
        return headers

    def _remaining(self) -> float:
        self._refill()
        return self._balance - self.n_running * self.expected_tokens

    def _wait_s(self) -> int:
        missing = 1 - self._remaining()
        return min(3600, max(1, math.ceil(missing * _MINUTE_S / (self.limits.tokens_per_minute or 1))))

    def _refill(self) -> None:
        now, most = time.monotonic(), float(self.limits.tokens_per_minute or 0)
        self._balance = min(most, self._balance + (now - self._refilled_s) * most / _MINUTE_S)
        self._refilled_s = now


class ApiKeys:
    """The accepted API keys, compared in constant time, and their accounts."""

    def __init__(self, keys: Iterable[ApiKey], defaults: KeyLimits | None = None) -> None:
        """Accept some keys; ``defaults`` are for the limits that an account does not set."""
        self._defaults = defaults or KeyLimits()
        self._accounts: dict[str, Account] = {}
        self._by_digest: list[tuple[bytes, Account]] = []
        self.replace(keys)

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Accept these keys from now on. Accounts that remain keep their counters; running requests go on."""
        accounts: dict[str, Account] = {}
        by_digest = []
        for each in keys:
            limits = self._with_defaults(each.limits)
            account = self._accounts.get(each.label) or accounts.get(each.label) or Account(each.label, limits)
            account.set_limits(limits)
            accounts[each.label] = account
            by_digest.append((_digest(each.key), account))
        self._accounts, self._by_digest = accounts, by_digest

    @property
    def are_required(self) -> bool:
        """True if there are any."""
        return bool(self._by_digest)

    @property
    def accounts(self) -> list[Account]:
        """The accounts, in the order of their keys."""
        return list(self._accounts.values())

    def account_of(self, headers: Headers) -> Account | None:
        """Return the account of a request by its key, in the header of OpenAI's or Anthropic's clients.

        None: the server needs no keys.

        Raises:
            RequestError: 401, the key is missing or wrong.
        """
        if not self._by_digest:
            return None
        given = api_key(headers)
        digest = _digest(given)
        found = [account for known, account in self._by_digest if hmac.compare_digest(digest, known)]
        if not found:
            wrong = "the API key is wrong" if given else "this server needs an API key"
            message = f"{wrong}: send it in the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            raise RequestError(Failure(401, "authentication", message, "invalid_api_key"))
        return found[0]

    def _with_defaults(self, limits: KeyLimits) -> KeyLimits:
        default = self._defaults
        return KeyLimits(
            share=limits.share,
            max_requests=limits.max_requests or default.max_requests,
            tokens_per_minute=limits.tokens_per_minute or default.tokens_per_minute,
        )


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
