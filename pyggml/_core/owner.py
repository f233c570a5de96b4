"""The base class of objects that cannot be copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from pyggml.errors import CopyError


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
