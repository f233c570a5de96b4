#include "boundary/owned_string.hpp"

#include "pyggml.h"

#include <cstdlib>
#include <cstring>
#include <new>

char * pyg::owned_copy(const std::string & text) {
    char * copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (!copy) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

void pyg_string_free(char * string) { std::free(string); }
