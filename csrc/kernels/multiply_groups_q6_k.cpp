// Of types with the most segments.
#include "vector.hpp"

#ifdef PYG_TILES
#    include "multiply_groups.hpp"

namespace pyg::kernels {

template PYG_MULTIPLY_GROUP(TilesQ6K);

}  // namespace pyg::kernels
#endif
