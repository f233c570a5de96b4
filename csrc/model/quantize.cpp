// Quantisation of plain arrays.
#include "../ggml/src/ggml-threading.h"
#include "boundary/handles.hpp"
#include "ggml.h"

#include <array>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace {

using pyg::fail;

constexpr float LARGEST_IMPORTANCE = 1e20f;  // keeps its products with values finite

// A type that arrays can be encoded to and decoded from: those that upstream decodes to floats, and F32.
const ggml_type_traits & require_convertible(int32_t type) {
    const ggml_type_traits * traits = ggml_get_type_traits(pyg::checked_type(type));
    if (traits->to_float || type == GGML_TYPE_F32) {
        return *traits;
    }
    if (traits->is_quantized) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "%s is an intermediate type of the engine's matrix products: it cannot be stored or decoded",
                   traits->type_name);
    }
    throw fail(PYG_ERR_INVALID_PARAMETER,
               "%s holds plain numbers, so there is nothing to convert: use the array itself", traits->type_name);
}

// Size of `n` values in bytes. PYG_ERR_INVALID_PARAMETER unless they are whole blocks.
size_t require_whole_blocks(const ggml_type_traits & traits, int64_t n) {
    if (n < 0 || n % traits.blck_size != 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s stores blocks of %lld values, and %lld is not a multiple of that",
                   traits.type_name, static_cast<long long>(traits.blck_size), static_cast<long long>(n));
    }
    size_t size = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(n / traits.blck_size), traits.type_size, &size)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%lld values are more than memory can address",
                   static_cast<long long>(n));
    }
    return size;
}

void require_size(const ggml_type_traits & traits, int64_t n, size_t expected, size_t given) {
    if (expected != given) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%lld values of type %s take %zu bytes, but %zu were given",
                   static_cast<long long>(n), traits.type_name, expected, given);
    }
}

// The largest magnitude a type can hold.
//
// Blocks store their scale (and offset) as F16, and upstream's search for the best scale may exceed the values
// themselves. Larger values work for some types, become infinite in others, and finally fail asserts of the search.
float largest_value(int32_t type) {
    switch (type) {
    case GGML_TYPE_F32:
        return INFINITY;
    case GGML_TYPE_F16:
        return 65504.0f;
    case GGML_TYPE_BF16:
        return 3.38953139e38f;
    case GGML_TYPE_MXFP4:
        return FLT_MAX;  // the scale is a power of two
    case GGML_TYPE_NVFP4:
        return 448.0f * 6.0f;  // E4M3 scale times E2M1 value
    default:
        return 32768.0f;
    }
}

// Plain floats may be infinite or NaN; finite ones must stay finite.
void require_encodable(int32_t type, const ggml_type_traits & traits, const float * values, int64_t n) {
    const float largest = largest_value(type);
    for (int64_t i = 0; i < n; i++) {
        const bool fits = std::fabs(values[i]) <= largest || (!traits.is_quantized && !std::isfinite(values[i]));
        if (!fits) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "value %lld is %.9g, but %s holds only finite values up to %.9g in magnitude",
                       static_cast<long long>(i), static_cast<double>(values[i]), traits.type_name,
                       static_cast<double>(largest));
        }
    }
}

void require_imatrix(ggml_type type, const float * imatrix, int64_t n) {
    if (!imatrix) {
        if (ggml_quantize_requires_imatrix(type)) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "%s needs an importance matrix: one weight per column, such as the mean square of the "
                       "activations it multiplies",
                       ggml_type_name(type));
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(imatrix[i] >= 0 && imatrix[i] <= LARGEST_IMPORTANCE)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "importance %lld is %g; importances are 0 to %g",
                       static_cast<long long>(i), static_cast<double>(imatrix[i]),
                       static_cast<double>(LARGEST_IMPORTANCE));
        }
    }
}

void require_finite(const ggml_type_traits & traits, const float * values, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!std::isfinite(values[i])) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "these bytes are not %s data: value %lld decodes to %g",
                       traits.type_name, static_cast<long long>(i), static_cast<double>(values[i]));
        }
    }
}

// Upstream builds the tables of some types on first use, under a lock that a failure would not release. A type whose
// tables are incomplete cannot be used any more.
void require_tables(ggml_type type) {
    static std::array<std::atomic<bool>, GGML_TYPE_COUNT> broken{};
    const auto                                            require_whole = [&] {
        if (broken[type]) {
            throw fail(PYG_ERR_ENGINE,
                       "memory ran out while the tables of %s were built: this process cannot "
                       "quantise to it any more",
                       ggml_type_name(type));
        }
    };
    require_whole();
    try {
        ggml_quantize_init(type);
    } catch (...) {
        broken[type] = true;
        ggml_critical_section_end();
        throw;
    }
    require_whole();
}

}  // namespace

ggml_type pyg::checked_type(int32_t type) {
    if (type < 0 || type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) == 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%d is not the number of a ggml type", type);
    }
    return static_cast<ggml_type>(type);
}

pyg_status pyg_quantize(int32_t type, const float * src, int64_t n_rows, int64_t n_per_row, const float * imatrix,
                        void * dst, size_t dst_size, pyg_error * err) {
    return pyg::guard(err, [&] {
        const ggml_type_traits & traits = require_convertible(type);
        require_whole_blocks(traits, n_per_row);
        int64_t n = 0;
        if (n_rows < 0 || __builtin_mul_overflow(n_rows, n_per_row, &n)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "%lld rows of %lld values are not a possible shape",
                       static_cast<long long>(n_rows), static_cast<long long>(n_per_row));
        }
        require_size(traits, n, require_whole_blocks(traits, n), dst_size);
        if (n == 0) {
            return;
        }
        require_imatrix(static_cast<ggml_type>(type), imatrix, n_per_row);
        require_encodable(type, traits, src, n);
        require_tables(static_cast<ggml_type>(type));
        ggml_quantize_chunk(static_cast<ggml_type>(type), src, dst, 0, n_rows, n_per_row, imatrix);
    });
}

pyg_status pyg_dequantize(int32_t type, const void * src, size_t src_size, int64_t n, float * dst, pyg_error * err) {
    return pyg::guard(err, [&] {
        const ggml_type_traits & traits = require_convertible(type);
        require_size(traits, n, require_whole_blocks(traits, n), src_size);
        if (n == 0) {
            return;
        }
        if (type == GGML_TYPE_F32) {
            std::memcpy(dst, src, src_size);
            return;
        }
        traits.to_float(src, dst, n);
        if (traits.is_quantized) {
            require_finite(traits, dst, n);
        }
    });
}
