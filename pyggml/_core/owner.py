"""Base classes of objects that own native memory."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NoReturn, SupportsIndex

from pyggml.errors import CopyError

if TYPE_CHECKING:
    from typing_extensions import Self


class Owner:
    """An object that owns memory of the engine or a running computation: ``copy`` and ``pickle`` refuse it.

    Python would copy the pointer but not the object behind it.
    """

    #: The alternative to a copy, as the end of the message.
    _instead_of_a_copy: ClassVar[str]

    #: True after ``close``, for :func:`repr`; the native object has its own flag.
    _is_closed: bool = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Reject :func:`copy.copy`, :func:`copy.deepcopy` and :mod:`pickle`, which all start here.

        Raises:
            CopyError: always.
        """
        raise CopyError(f"{type(self).__name__} objects cannot be copied or pickled: {self._instead_of_a_copy}")


class ClosableOwner(Owner):
    """An owner with a method ``close``, which the end of a ``with`` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Free the object's memory. Can be called repeatedly."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
