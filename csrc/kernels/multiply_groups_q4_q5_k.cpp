// Of types with minima of segments.
#include "vector.hpp"

#ifdef PYG_TILES
#    include "multiply_groups.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ4K);
template PYG_MULTIPLY_GROUP(TilesQ5K);

}  // namespace pyg::kernels
#endif
