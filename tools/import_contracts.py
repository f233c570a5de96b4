"""Contracts that import-linter lacks; `pyproject.toml` refers to them."""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class PrivateModules(Contract):
    """A module whose name begins with an underscore is imported only from within its own package."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        broken = sorted(_trespasses(graph))
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}, which is private to {_owner(imported)}")


class FrontEnds(Contract):
    """A front end imports only the package itself and its public modules, like any other program."""

    front_ends: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]
    public_modules: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        broken = sorted(
            (importer, imported)
            for front_end in self.front_ends
            for importer in {front_end} | graph.find_descendants(front_end)
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported not in self.public_modules and not f"{imported}.".startswith(f"{front_end}.")
        )
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}, which is not public")


def _trespasses(graph: ImportGraph) -> Iterator[tuple[str, str]]:
    for module in graph.modules:
        owner = _owner(module)
        if owner is not None:
            for importer in graph.find_modules_that_directly_import(module):
                if importer != owner and not importer.startswith(f"{owner}."):
                    yield importer, module


def _owner(module: str) -> str | None:
    """The package that a private module, or a module inside one, belongs to; None if it is not private."""
    parts = module.split(".")
    private = next((i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")), None)
    return None if private is None else ".".join(parts[:private])
