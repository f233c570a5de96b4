"""The base class of objects that cannot be copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from pyggml.errors import CopyError


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
