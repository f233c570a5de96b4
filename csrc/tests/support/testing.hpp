// Checks that are active in every build type and print where they failed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);                         \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

#define CHECK_OK(call, err)                                                                                            \
    do {                                                                                                               \
        if ((call) != 0) {                                                                                             \
            std::fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #call, (err).message);                  \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

// Hash of the bits of results, which must be the same everywhere (FNV-1a, float by float).
struct Hash {
    uint32_t value = 2166136261u;

    void add(float result) {
        uint32_t bits;
        std::memcpy(&bits, &result, sizeof(bits));
        value = (value ^ bits) * 16777619u;
    }
};
