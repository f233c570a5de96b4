"""The HTTP server on Ray Serve: one deployment per model, behind an ingress deployment that routes requests.

The prompt is in the request body, which Serve's proxy does not read before it chooses a replica. So the proxy sends
requests to the ingress, which reads the body and forwards it to the replica of the model that has the longest cached
prefix.
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
from pyggml.ray.hosts import STRATEGY, Hosts, RemoteDevices, export_devices
from pyggml.ray.routing import PrefixHash, prefix_hashes
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

AsgiMessages = Sequence[MutableMapping[str, Any]]

# Shutdown timeout if requests have no timeout.
_DAY_S = 86_400.0
# Requests sent to a replica per parallel sequence, so that no sequence is idle.
_QUEUE_FACTOR = 2
# Attempts for a request whose replica is lost before the first byte of the response.
_N_ATTEMPTS = 3


@dataclass(frozen=True)
class ServedModel(ModelSpec):
    """A model of a deployment, with its options for Ray Serve.

    Attributes:
        serve: options of ``ray.serve.deployment`` for its replicas, which override those for all models.
        hosts: hosts that export their devices to each replica; None: those for all models.
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
    """Build the server as an application for ``ray.serve.run``: replicas for each model, behind one address.

    Args:
        serves: the models, as for :func:`pyggml.server.create_app`; :class:`ServedModel` adds options for Ray Serve.
        serve: options of ``ray.serve.deployment`` for the replicas of every model, such as ``num_replicas``,
            ``autoscaling_config`` or ``ray_actor_options``. A replica has one compute thread per CPU.
        hosts: hosts that export their devices to each replica. None: each replica runs on a single host.
        ingress: options of ``ray.serve.deployment`` for the ingress.
        prefix_routing: route by cached prefix and load. False: by load only.
        **options: fields of :class:`pyggml.server.Settings`. Those for connections and for several models in one
            process do not apply, because Serve handles both.

    Raises:
        InvalidParameterError: two models have the same name, an option is invalid, or a model is open in this process.
    """
    settings = replace(settings_of(serves, options), load_all=False)
    specs = settings.models or (ModelSpec(),)
    for spec in specs:
        if isinstance(spec.source, pyggml.LLM):
            raise pyggml.InvalidParameterError(
                f"an open model cannot be sent to other processes: name its file, {spec.source.model.path}"
            )
    names = WorkerProxy(settings, _Ingress(settings, {})._forward).names  # it forwards no request
    replicas = {}
    for index, (name, spec) in enumerate(zip(names, specs, strict=True)):
        own = ServedModel(**{**vars(spec), "name": name})
        # The first model's replicas also answer requests without a model, and list all models.
        listed = (own, *specs[1:]) if index == 0 else (own,)
        model_settings = replace(settings, models=listed)
        replicas[name] = _model_deployment(model_settings, own, serve or {}, own.hosts or hosts, prefix_routing)
    ingress_options = {
        "name": "ingress",
        "ray_actor_options": {"num_cpus": 0},  # it only forwards requests
        "max_ongoing_requests": settings.max_connections,
        "graceful_shutdown_timeout_s": settings.request_timeout or _DAY_S,
        **(ingress or {}),
    }
    return ray.serve.deployment(ray.serve.ingress()(_Ingress)).options(**ingress_options).bind(settings, replicas)


def _model_deployment(
    settings: Settings, model: ServedModel, serve: Mapping[str, Any], hosts: Hosts | None, prefix_routing: bool
) -> ray.serve.Application:
    load = settings.load_options(model)
    n_parallel = load.get("n_parallel", fields_of(LoadOptions)["n_parallel"].default)
    max_queue = load.get("max_queue")
    options: dict[str, Any] = {
        "name": re.sub(r"[^\w.-]", "-", str(model.name)),
        "max_ongoing_requests": _QUEUE_FACTOR * n_parallel,
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
    """Ingress, which reads requests and forwards each to a replica of its model."""

    def __init__(self, settings: Settings, replicas: Mapping[str, Any]) -> None:
        self._settings = settings
        self._replicas = {name: handle.options(stream=True) for name, handle in replicas.items()}

    def __serve_build_asgi_app__(self) -> WorkerProxy:
        return WorkerProxy(self._settings, self._forward)

    async def _forward(
        self, request: ForwardedRequest, fields: Mapping[str, Any]
    ) -> AsyncGenerator[AsgiMessages, None]:
        respond = self._replicas[request.model].respond
        hashes = prefix_hashes(fields)
        for n_left in reversed(range(_N_ATTEMPTS)):
            has_begun = False
            response = respond.remote(request, hashes)
            try:
                async for messages in response:
                    has_begun = True
                    yield messages
                return
            except BackPressureError as error:
                raise pyggml.QueueFullError("too many requests are waiting: try again later") from error
            except (ray.exceptions.RayActorError, DeploymentUnavailableError) as error:
                if has_begun or not n_left:
                    raise pyggml.HostLostError(f"the replica of this request is lost: {error}") from error
            finally:
                response.cancel()  # no effect on a finished response


class _Replica:
    """The server's application with one model, in a Serve replica."""

    async def __init__(self, settings: Settings, hosts: Hosts | None) -> None:  # type: ignore[misc]  # Serve awaits it
        configure_logs(settings)
        self._exit_stack = contextlib.AsyncExitStack()
        self._remote_devices: RemoteDevices | None = None
        try:
            if hosts is not None:
                self._remote_devices = await self._exit_stack.enter_async_context(export_devices(hosts))
                model = settings.models[0]
                model = replace(model, load={**model.load, **self._remote_devices.load})
                settings = replace(settings, models=(model, *settings.models[1:]))
            # Requests reach any replica: one that has not stored a response or a file would not find it.
            self._app = create_app(replace(settings, max_stored_bytes=0))
            await self._exit_stack.enter_async_context(self._app.router.lifespan_context(self._app))
        except BaseException:
            await self._exit_stack.aclose()
            raise

    async def respond(self, request: ForwardedRequest, hashes: tuple[PrefixHash, ...]) -> AsyncIterator[AsgiMessages]:
        """Stream the response to a request; ``hashes`` are for the router, which has chosen this replica."""
        del hashes
        async with contextlib.aclosing(run_forwarded(self._app, request)) as response:
            async for messages in response:
                yield messages

    async def check_health(self) -> None:
        """Check the hosts, so that Serve replaces a replica that has lost one."""
        if self._remote_devices is not None:
            await self._remote_devices.check()

    async def __del__(self) -> None:
        """Close the application when Serve stops the replica."""
        await self._exit_stack.aclose()
