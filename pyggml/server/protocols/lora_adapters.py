"""The adapters of a model, as in llama-server's API: numbered in the order in which they were loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, RootModel
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http import errors
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.models.adapters import adapter_names
from pyggml.server.models.pool import DEFAULT, LoadedModel

_MAX_ADAPTERS = 4096


class AdapterScale(Body):
    """An adapter and its scale.

    Attributes:
        id: its number.
        scale: factor of its low-rank products; 0: it has no effect.
    """

    id: Annotated[int, BodyField(ge=0)]
    scale: float


class AdapterScales(RootModel[Annotated[list[AdapterScale], BodyField(max_length=_MAX_ADAPTERS)]]):
    """Scales of adapters for requests that name none: a body that is a list."""

    terms: ClassVar[Mapping[str, str]] = {}
    may_be_empty: ClassVar[bool] = False

    def require_supported(self) -> None:
        """Accept all fields."""


class AdapterInfo(BaseModel):
    """An adapter.

    Attributes:
        id: its number.
        name: its name in requests.
        path: the name of its file.
        scale: its scale in requests that name no adapter; 0: it has no effect.
    """

    id: int
    name: str
    path: str
    scale: float


class AdapterInfos(RootModel[list[AdapterInfo]]):
    """All adapters of a model."""


class Success(BaseModel):
    """The request succeeded."""

    success: bool


def scales_by_name(model: LoadedModel, scales: Sequence[AdapterScale]) -> dict[str, float]:
    """Return name -> scale of adapters given by number.

    Raises:
        RequestError: 400, there is no adapter of a number, or two scales of one.
    """
    names = adapter_names(model)
    found: dict[str, float] = {}
    for each in scales:
        if each.id >= len(names):
            known = f"they have ids 0 to {len(names) - 1}" if names else "it has none"
            raise errors.invalid(f"the model {model.name!r} has no adapter with id {each.id}: {known}", "lora")
        if names[each.id] in found:
            raise errors.invalid(f"the adapter with id {each.id} was given twice", "lora")
        found[names[each.id]] = each.scale
    return found


def adapters_of(lora: Sequence[AdapterScale] | None, adapter: object, model: LoadedModel) -> dict[str, float] | None:
    """Return the adapters of the field ``lora``. None: it is not given, so the field ``adapter`` counts.

    Raises:
        RequestError: 400, both fields name adapters, or errors of :func:`scales_by_name`.
    """
    if lora is None:
        return None
    if adapter is not None:
        raise errors.invalid("the field 'adapter' names adapters, too: leave one of them out", "lora")
    return scales_by_name(model, lora)


async def lora_adapters(request: ServerRequest) -> Response:
    """List the adapters of a model: the first one, unless the query names another."""
    llm = (await request.lease_model(request.http.query_params.get("model", DEFAULT))).llm
    defaults, adapters = llm.default_adapters, llm.adapters.values()
    return JSONResponse(
        [
            {"id": id, "name": each.name, "path": Path(each.path).name, "scale": defaults.get(each.name, 0.0)}
            for id, each in enumerate(adapters)
        ]
    )


async def set_lora_adapters(request: ServerRequest, body: AdapterScales) -> Response:
    """Set the scales of a model's adapters for requests that name none; adapters left out get 0."""
    model = await request.lease_model(request.http.query_params.get("model", DEFAULT))
    scales = scales_by_name(model, body.root)
    if scales or adapter_names(model):
        model.llm.default_adapters = scales
    return JSONResponse({"success": True})
