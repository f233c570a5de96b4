// Checks that hold in every build type and say where they failed.
#pragma once

#include <cstdio>
#include <cstdlib>

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
