// Of types whose values become bytes.
#include "kernels/simd/vector.hpp"

#ifdef PYG_TILES
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ80);
template PYG_MULTIPLY_GROUP(TilesIQ4NL);
template PYG_MULTIPLY_GROUP(TilesMXFP4);
template PYG_MULTIPLY_GROUP(TilesIQ4XS);

}  // namespace pyg::kernels
#endif
