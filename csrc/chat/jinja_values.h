// Included before every file of llama-common (see vendor/CMakeLists.txt): upstream compares the interpreter's values in
// inline functions of jinja/value.h. Comparing a tuple visits each element; a tuple that holds one twice, which holds
// another twice, and so on, would take exponential time.
#pragma once

#ifdef __cplusplus

#    include <algorithm>

// As pyg_jinja_step in jinja_limits.h; also limits the number of comparisons.
void pyg_jinja_compares();

namespace std {

template <class Iterator, class Condition>
bool pyg_all_of(Iterator first, Iterator last, Condition condition) {
    pyg_jinja_compares();
    return find_if_not(first, last, condition) == last;
}

}  // namespace std

#    define all_of pyg_all_of

#endif
