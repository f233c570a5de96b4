// The vectors of the instruction set that this file is compiled for.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_TILES
#    include "vector_avx2.hpp"
#endif
