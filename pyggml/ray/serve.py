"""The HTTP worker on Ray Serve: one deployment for each model, and one before them that sends requests on.

A request's prompt is in its body, which Serve's proxy does not read before it chooses a replica. So the proxy sends
requests to an ingress, and the ingress, having read the body, to the replica of the model that has computed the
beginning of the prompt.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import ray.serve
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

import pyggml
from pyggml.options import LoadOptions, fields_of
from pyggml.ray.hosts import STRATEGY, Hosts, Lent, lent_by
from pyggml.ray.routing import Mark, marks
from pyggml.server import (
    ForwardedRequest,
    ModelSpec,
    Settings,
    WorkerProxy,
    configure_logs,
    create_app,
    run_forwarded,
    settings_of,
)

Pieces = Sequence[MutableMapping[str, Any]]

# Streams may take as long as requests may; without a limit, a day.
_DAY_S = 86_400.0
# A replica has as many requests waiting as it computes, so that none of its sequences is idle.
_FULL = 2
# A request whose replica is lost before it has said anything goes to another, this often.
_N_TRIES = 3


@dataclass(frozen=True)
class ServedModel(ModelSpec):
    """A model that a deployment offers, and how Ray serves it.

    Attributes:
        serve: options of ``ray.serve.deployment`` for its replicas, before those for all models.
        hosts: hosts that lend their devices to each replica; None: those for all models.
    """

    serve: Mapping[str, Any] = field(default_factory=dict)
    hosts: Hosts | None = None


def deployment(
    serves: Settings | str | os.PathLike[str] | ModelSpec | Sequence[str | os.PathLike[str] | ModelSpec] | None = None,
    *,
    serve: Mapping[str, Any] | None = None,
    hosts: Hosts | None = None,
    ingress: Mapping[str, Any] | None = None,
    prefix_routing: bool = True,
    **options: Any,
) -> ray.serve.Application:
    """The server as an application for ``ray.serve.run``: each model with replicas of its own, behind one address.

    Args:
        serves: what it serves, as for :func:`pyggml.server.create_app`; :class:`ServedModel` also says how.
        serve: options of ``ray.serve.deployment`` for the replicas of every model, such as ``num_replicas``,
            ``autoscaling_config`` or ``ray_actor_options``. A replica computes with as many threads as it has CPUs.
        hosts: hosts that lend their devices to each replica. None: each replica is on one.
        ingress: options of ``ray.serve.deployment`` for what stands before the replicas.
        prefix_routing: send requests to the replica that has computed their beginning. False: to any, by load.
        **options: fields of :class:`pyggml.server.Settings`. Those on connections and on several models in one process
            do not apply: those are Serve's business here.

    Raises:
        InvalidParameterError: two models have the same name, an option is invalid, or a model is open in this process.
    """
    settings = replace(settings_of(serves, options), load_all=False)
    specs = settings.models or (ModelSpec(),)
    for spec in specs:
        if isinstance(spec.source, pyggml.LLM):
            raise pyggml.InvalidParameterError(
                f"an open model cannot go to other processes: name its file, {spec.source.model.path}"
            )
    names = WorkerProxy(settings, _to_nobody).names
    replicas = {}
    for index, (name, spec) in enumerate(zip(names, specs, strict=True)):
        own = ServedModel(**{**vars(spec), "name": name})
        # The first lists all models, and answers what names none. It is asked for no model but its own.
        offered = (own, *specs[1:]) if index == 0 else (own,)
        offering = replace(settings, models=offered)
        replicas[name] = _replicas(offering, own, serve or {}, own.hosts or hosts, prefix_routing)
    drains_s = settings.request_timeout or _DAY_S
    front = {
        "name": "ingress",
        "ray_actor_options": {"num_cpus": 0},  # it only sends on
        "max_ongoing_requests": settings.max_connections,
        "graceful_shutdown_timeout_s": drains_s,
        **(ingress or {}),
    }
    return ray.serve.deployment(ray.serve.ingress()(_Ingress)).options(**front).bind(settings, replicas)


def _replicas(
    settings: Settings, model: ServedModel, serve: Mapping[str, Any], hosts: Hosts | None, prefix_routing: bool
) -> ray.serve.Application:
    """The deployment of one model."""
    load = settings.load_options(model)
    n_parallel = load.get("n_parallel", fields_of(LoadOptions)["n_parallel"].default)
    max_queue = load.get("max_queue")
    options: dict[str, Any] = {
        "name": re.sub(r"[^\w.-]", "-", str(model.name)),
        "max_ongoing_requests": _FULL * n_parallel,
        "max_queued_requests": -1 if max_queue is None else max_queue,
        "graceful_shutdown_timeout_s": settings.request_timeout or _DAY_S,
        **serve,
        **model.serve,
    }
    if isinstance(options.get("autoscaling_config"), Mapping):
        options["autoscaling_config"] = {"target_ongoing_requests": n_parallel, **options["autoscaling_config"]}
    actor = options["ray_actor_options"] = {"num_cpus": 1, **options.get("ray_actor_options", {})}
    if hosts is not None:
        own = {"CPU": actor["num_cpus"], "GPU": actor.get("num_gpus", 0), **actor.get("resources", {})}
        options.setdefault("placement_group_bundles", [{k: v for k, v in own.items() if v}, *hosts.bundles])
        options.setdefault("placement_group_strategy", STRATEGY)
    if prefix_routing:
        options.setdefault(
            "request_router_config",
            RequestRouterConfig(
                request_router_class="pyggml.ray.router.PrefixRouter", request_router_kwargs={"slack": n_parallel}
            ),
        )
    n_threads = {} if actor.get("num_gpus") else {"n_threads": max(1, int(actor["num_cpus"]))}
    own_model = replace(model, load={**n_threads, **settings.load, **model.load})
    settings = replace(settings, models=(own_model, *settings.models[1:]))
    return ray.serve.deployment(_Replica).options(**options).bind(settings, hosts)


class _Ingress:
    """Reads requests, and sends each to a replica of its model."""

    def __init__(self, settings: Settings, replicas: Mapping[str, Any]) -> None:
        self._settings = settings
        self._replicas = {name: handle.options(stream=True) for name, handle in replicas.items()}

    def __serve_build_asgi_app__(self) -> WorkerProxy:
        return WorkerProxy(self._settings, self._send_on)

    async def _send_on(self, request: ForwardedRequest, fields: Mapping[str, Any]) -> AsyncGenerator[Pieces, None]:
        answer = self._replicas[request.model].answer
        beginning = marks(fields)
        for n_left in reversed(range(_N_TRIES)):
            has_begun = False
            pieces = answer.remote(request, beginning)
            try:
                async for piece in pieces:
                    has_begun = True
                    yield piece
                return
            except BackPressureError as error:
                raise pyggml.QueueFullError("too many requests are waiting: try again later") from error
            except (ray.exceptions.RayActorError, DeploymentUnavailableError) as error:
                if has_begun or not n_left:
                    raise pyggml.HostLostError(f"the replica that answered is lost: {error}") from error
            finally:
                pieces.cancel()  # of what has ended, nothing


async def _to_nobody(request: ForwardedRequest, fields: Mapping[str, Any]) -> AsyncGenerator[Pieces, None]:
    """Stands for replicas where only the models' names are asked for."""
    del request, fields
    raise pyggml.ClosedError("there is no replica")
    yield ()


class _Replica:
    """A model in a process of its own, with the server's application around it."""

    async def __init__(self, settings: Settings, hosts: Hosts | None) -> None:  # type: ignore[misc]  # Serve awaits it
        configure_logs(settings)
        self._open = contextlib.AsyncExitStack()
        self._lent: Lent | None = None
        try:
            if hosts is not None:
                self._lent = await self._open.enter_async_context(lent_by(hosts))
                model = settings.models[0]
                model = replace(model, load={**model.load, **self._lent.load})
                settings = replace(settings, models=(model, *settings.models[1:]))
            self._app = create_app(settings)
            await self._open.enter_async_context(self._app.router.lifespan_context(self._app))
        except BaseException:
            await self._open.aclose()
            raise

    async def answer(self, request: ForwardedRequest, beginning: tuple[Mark, ...]) -> AsyncIterator[Pieces]:
        """Answers a request; ``beginning`` is for the router that has chosen this replica."""
        del beginning
        async with contextlib.aclosing(run_forwarded(self._app, request)) as pieces:
            async for piece in pieces:
                yield piece

    async def check_health(self) -> None:
        """What Serve calls now and then: a replica whose hosts are gone is replaced."""
        if self._lent is not None:
            await self._lent.check()

    async def __del__(self) -> None:
        """What Serve calls at the end."""
        await self._open.aclose()
