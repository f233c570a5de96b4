"""The options that change the rotation of positions (RoPE), for contexts beyond a model's training length."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pyggml._core.checks import UINT32_MAX
from pyggml._core.fields import Field, option_class

RopeScaling = Literal["none", "linear", "yarn", "longrope"]
_Number = Annotated[float | None, Field(0)]


@option_class
@dataclass(frozen=True, kw_only=True)
class RopeOptions:
    """Options for RoPE and YaRN by upstream's names, for classes of options to inherit and to check.

    Attributes:
        rope_scaling_type: kind of RoPE scaling. None: the model's own, as for all options of RoPE and YaRN.
        rope_freq_base: base frequency of RoPE.
        rope_freq_scale: RoPE frequency scaling factor: 0.25 allows four times the training length.
        yarn_ext_factor: YaRN's extrapolation mix factor; 0: full interpolation. None: 1 with YaRN.
        yarn_attn_factor: YaRN's factor for the magnitude of attention, which the engine computes by itself unless
            ``yarn_ext_factor`` is 0.
        yarn_beta_fast: YaRN's low correction dimension, beta.
        yarn_beta_slow: YaRN's high correction dimension, alpha.
        yarn_orig_ctx: context size that YaRN extends, in tokens. None: the training length.
    """

    rope_scaling_type: RopeScaling | None = None
    rope_freq_base: _Number = None
    rope_freq_scale: _Number = None
    yarn_ext_factor: _Number = None
    yarn_attn_factor: _Number = None
    yarn_beta_fast: _Number = None
    yarn_beta_slow: _Number = None
    yarn_orig_ctx: Annotated[int | None, Field(1, UINT32_MAX)] = None
