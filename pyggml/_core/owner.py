"""The base class of objects that cannot be copied."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NoReturn, SupportsIndex

from pyggml.errors import CopyError

if TYPE_CHECKING:
    from typing_extensions import Self


class Owner:
    """An object that owns memory of the engine or a running computation: ``copy`` and ``pickle`` refuse it.

    Python would copy the pointer but not what it points to.
    """

    #: What to do instead of a copy, as the end of the message.
    _instead_of_a_copy: ClassVar[str]

    #: Whether ``close`` was called, for :func:`repr`; the native side keeps its own account.
    _is_closed: bool = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses :func:`copy.copy`, :func:`copy.deepcopy` and :mod:`pickle`, which all start here.

        Raises:
            CopyError: always.
        """
        raise CopyError(f"{type(self).__name__} objects cannot be copied or pickled: {self._instead_of_a_copy}")


class ClosableOwner(Owner):
    """An owner that is a context manager: leaving it closes it."""

    def close(self) -> None:
        """Free the object's resources. Safe to call again."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
