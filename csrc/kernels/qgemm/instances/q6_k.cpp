// Of types with the most segments.
#include "kernels/simd/vector.hpp"

#ifdef PYG_TILES
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ6K);

}  // namespace pyg::kernels
#endif
