// Detection of a generation that repeats itself endlessly.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyg {

// Return true if the tokens end with copies of one block: at least four of them, with at least 1,024 tokens together,
// more than tables, rulers, rows of zeros, code and refrains have. Looks back 8,192 tokens, so a block has 2,048 at
// most. Takes time linear in that; is_repetition_due says after which tokens to call it.
bool ends_in_repetition(const int32_t * tokens, size_t n_tokens);
bool is_repetition_due(size_t n_tokens);

}  // namespace pyg
