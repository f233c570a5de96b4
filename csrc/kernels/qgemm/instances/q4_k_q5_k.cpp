// Of types with minima of segments.
#include "kernels/simd/vector.hpp"

#ifdef PYG_TILES
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ4K);
template PYG_MULTIPLY_GROUP(TilesQ5K);

}  // namespace pyg::kernels
#endif
