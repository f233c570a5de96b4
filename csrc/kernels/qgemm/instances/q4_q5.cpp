// Of types with 32 values in a block and 4 or 5 bits.
#include "kernels/simd/vector.hpp"

#ifdef PYG_TILES
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ40);
template PYG_MULTIPLY_GROUP(TilesQ41);
template PYG_MULTIPLY_GROUP(TilesQ50);
template PYG_MULTIPLY_GROUP(TilesQ51);

}  // namespace pyg::kernels
#endif
