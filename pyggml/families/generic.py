"""Every other model that the engine knows: it ends where its file and the engine say."""

from pyggml.families._family import Family

FAMILY = Family(name="generic", title="of no known family", stop_tokens=())
