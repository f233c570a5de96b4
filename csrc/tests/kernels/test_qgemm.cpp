// Products of weights in tiles: each type, alone and with other columns, with the vectors that this file is compiled
// for; and the same bits on every instruction set.
#include "kernels/simd/vector.hpp"
#include "tests/support/instruction_sets.hpp"

#include <cstdio>

#ifdef PYG_QGEMM
#    include "kernels/qgemm/block_formats.hpp"
#    include "kernels/qgemm/gemm.hpp"
#    include "kernels/qgemm/superblock_formats.hpp"

#    include <cmath>
#    include <random>
#    include <vector>

namespace {

using namespace pyg::kernels;

constexpr int N_COLUMNS = 27;

int n_failed = 0;

void check(bool good, const char * type, const char * what) {
    if (!good) {
        std::printf("%s: %s\n", type, what);
        ++n_failed;
    }
}

// 16 rows, as in a file, of blocks of arbitrary bytes.
struct Rows {
    ggml_type            type;
    int64_t              k;
    std::vector<uint8_t> bytes, tiles;

    Rows(ggml_type type, int64_t k, std::mt19937 & random, bool with_plain_factors) : type(type), k(k) {
        bytes.resize(GROUP_ROWS * ggml_row_size(type, k));
        for (uint8_t & byte : bytes) {
            byte = static_cast<uint8_t>(random());
        }
        if (with_plain_factors) {
            make_factors_plain();
        }
        tiles.resize(bytes.size());
        pack_rows(type, k / ggml_blck_size(type), GROUP_ROWS, bytes.data(), tiles.data());
    }

    // Row `r` as floats.
    std::vector<float> floats(int r) const {
        std::vector<float> values(k);
        ggml_get_type_traits(type)->to_float(bytes.data() + r * ggml_row_size(type, k), values.data(), k);
        return values;
    }

  private:
    // No factor is infinite, or no number.
    void make_factors_plain() {
        const size_t block = ggml_type_size(type);
        for (size_t first = 0; first < bytes.size(); first += block) {
            if (type == GGML_TYPE_MXFP4) {
                bytes[first] = static_cast<uint8_t>(100 + bytes[first] % 32);
                continue;
            }
            const size_t d = first + (type == GGML_TYPE_Q6_K ? 208 : 0);
            bytes[d + 1] &= 0xBB;
            if (type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1) {
                bytes[d + 3] &= 0xBB;
            }
        }
    }
};

// Columns of activations, as floats and rounded.
template <class Type>
struct Activations {
    int64_t                               k;
    int64_t                               n_tiles;
    std::vector<float>                    values;         // [column][k]
    std::vector<QuantizedColumnFor<Type>> round_nearest;  // [tile][column]

    Activations(int64_t k, std::mt19937 & random)
        : k(k), n_tiles((k + TILE_K - 1) / TILE_K), values(N_COLUMNS * k),
          round_nearest(N_COLUMNS * n_tiles + PADDING_COLUMNS) {
        for (float & value : values) {
            value = static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 512;
            value *= random() % 64 == 0 ? 50.0F : 1.0F;
        }
        for (int64_t n = 0; n < N_COLUMNS; ++n) {
            for (int64_t t = 0; t < n_tiles; ++t) {
                quantize_column<Type>(values.data() + n * k + t * TILE_K,
                                      static_cast<int>(std::min<int64_t>(TILE_K, k - t * TILE_K)),
                                      round_nearest[t * N_COLUMNS + n]);
            }
        }
    }

    // What value `i` of column `n` was rounded to.
    double value(int n, int64_t i) const {
        const QuantizedColumnFor<Type> & tile = round_nearest[i / TILE_K * N_COLUMNS + n];
        return static_cast<double>(tile.q[i % TILE_K]) * tile.d[i % TILE_K / Type::BLOCK];
    }
};

struct Results {
    alignas(64) float values[N_COLUMNS][GROUP_ROWS];
};

template <class Type>
Results multiply(const Rows & rows, const Activations<Type> & x, int first, int n) {
    int32_t which[N_COLUMNS];
    for (int i = 0; i < n; ++i) {
        which[i] = first + i;
    }
    Results results;
    multiply_row_group<Type>(rows.tiles.data(), rows.k, x.round_nearest.data(), N_COLUMNS, which, n, results.values);
    return results;
}

// A float's bits; all that are no number are alike, because compilers choose whose bits they get.
uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return std::isnan(value) ? 0x7FC00000u : bits;
}

bool same(const float (&a)[GROUP_ROWS], const float (&b)[GROUP_ROWS]) {
    return std::equal(a, a + GROUP_ROWS, b, [](float x, float y) { return bits_of(x) == bits_of(y); });
}

// A column's results have the same bits whatever columns are computed with it.
template <class Type>
void test_columns(const char * name, const Rows & rows, const Activations<Type> & x) {
    for (int n = 1; n <= N_COLUMNS; ++n) {
        const int     first   = (N_COLUMNS - n) / 2;
        const Results several = multiply(rows, x, first, n);
        for (int i = 0; i < n; ++i) {
            const Results alone = multiply(rows, x, first + i, 1);
            check(same(several.values[i], alone.values[0]), name, "a column differs with others");
        }
    }
}

// So they are if columns do not follow each other, as in products by expert, and of many.
template <class Type>
void test_scattered_columns(const char * name, const Rows & rows, const Activations<Type> & x) {
    constexpr int N = 75;
    for (const int n : {5, 12, 16, 31, 40, N}) {
        int32_t which[N];
        for (int i = 0; i < n; ++i) {
            which[i] = (i * 5 + 3) % N_COLUMNS;
        }
        alignas(64) float results[N][GROUP_ROWS];
        multiply_row_group<Type>(rows.tiles.data(), rows.k, x.round_nearest.data(), N_COLUMNS, which, n, results);
        for (int i = 0; i < n; ++i) {
            const Results alone = multiply(rows, x, which[i], 1);
            check(same(results[i], alone.values[0]), name, "a column differs among scattered ones");
        }
    }
}

// Results are those of upstream's floats, but for the rounding of sums.
template <class Type>
void test_values(const char * name, const Rows & rows, const Activations<Type> & x) {
    const Results results = multiply(rows, x, 0, N_COLUMNS);
    for (int r = 0; r < GROUP_ROWS; ++r) {
        const std::vector<float> weights = rows.floats(r);
        for (int n = 0; n < N_COLUMNS; ++n) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < rows.k; ++i) {
                sum += weights[i] * x.value(n, i);
                magnitude += std::abs(weights[i] * x.value(n, i));
            }
            check(std::abs(results.values[n][r] - sum) <= 4e-6 * magnitude, name, "a result is wrong");
        }
    }
}

// Of the results' bits.
uint32_t hash(const Results & results) {
    uint32_t hash = 2166136261u;
    for (const auto & column : results.values) {
        for (const float value : column) {
            hash = (hash ^ bits_of(value)) * 16777619u;
        }
    }
    return hash;
}

// Compiling all types under sanitizers takes minutes, so each can be tested by itself: -DPYG_ONLY=GGML_TYPE_Q4_K.
constexpr bool is_tested([[maybe_unused]] ggml_type type) {
#    ifdef PYG_ONLY
    return type == PYG_ONLY;
#    else
    return true;
#    endif
}

template <class Type>
void test_type(ggml_type type, uint32_t expected) {
    const char * const name = ggml_type_name(type);
    std::mt19937       random(static_cast<uint32_t>(type));
    uint32_t           hashes = 0;
    for (const int64_t k : {256, 1024, Type::BLOCK == 32 ? 32 : 512, Type::BLOCK == 32 ? 608 : 768}) {
        const Rows              plain(type, k, random, true), arbitrary(type, k, random, false);
        const Activations<Type> x(k, random);
        test_columns(name, plain, x);
        test_columns(name, arbitrary, x);
        test_scattered_columns(name, plain, x);
        test_scattered_columns(name, arbitrary, x);
        test_values(name, plain, x);
        hashes = hashes * 31 + hash(multiply(plain, x, 0, N_COLUMNS));
        hashes = hashes * 31 + hash(multiply(arbitrary, x, 0, N_COLUMNS));
    }
    if (hashes != expected) {
        std::printf("%s: other bits than on other instruction sets: 0x%08X\n", name, hashes);
        ++n_failed;
    }
}

template <ggml_type TYPE, class Type>
void test_if(uint32_t expected) {
    if constexpr (is_tested(TYPE)) {
        test_type<Type>(TYPE, expected);
    }
}

#    if defined(PYG_NEEDS_AMX) && !defined(PYG_MODELLED_AMX)
amx::Shapes shapes_now() {
    amx::Shapes shapes;
    asm volatile("sttilecfg %0" : "=m"(shapes));
    return shapes;
}

// A library that has set up this thread's registers once, for good, finds them as they were.
void test_registers_of_others() {
    amx::Shapes theirs;
    theirs.rows[0]      = 8;
    theirs.row_bytes[0] = 32;
    asm volatile("ldtilecfg %0" ::"m"(theirs));
    amx::prepare<64>();
    amx::prepare<32>();
    amx::prepare_bf16(16, 3);
    amx::release();
    const amx::Shapes left = shapes_now();
    check(left.palette == 1 && left.rows[0] == 8 && left.row_bytes[0] == 32, "AMX", "others' registers are changed");
    asm volatile("tilerelease");
    amx::prepare<64>();
    amx::release();
    check(shapes_now().palette == 0, "AMX", "registers are kept");
}
#    endif

}  // namespace

int main() {
    if (!can_run()) {
        std::puts("skipped: this processor lacks the instructions");
        return 0;
    }
#    ifdef PYG_AMX
    amx::request_permission();
#    endif
#    ifdef PYG_NEEDS_AMX
    if (!amx::is_available()) {
        std::puts("skipped: this system lacks AMX");
        return 0;
    }
#        ifndef PYG_MODELLED_AMX
    test_registers_of_others();
#        endif
#    endif
    test_if<GGML_TYPE_Q4_0, Q4_0>(0x8BF057B1);
    test_if<GGML_TYPE_Q4_1, Q4_1>(0x45449117);
    test_if<GGML_TYPE_Q5_0, Q5_0>(0x108D1B00);
    test_if<GGML_TYPE_Q5_1, Q5_1>(0xCEB87A3A);
    test_if<GGML_TYPE_Q8_0, Q8_0>(0x922F9C4D);
    test_if<GGML_TYPE_IQ4_NL, IQ4_NL>(0x2A1034FD);
    test_if<GGML_TYPE_MXFP4, MXFP4>(0xE33E6A6D);
    test_if<GGML_TYPE_Q4_K, Q4_K>(0xD47FAC12);
    test_if<GGML_TYPE_Q5_K, Q5_K>(0x001EF6E5);
    test_if<GGML_TYPE_Q6_K, Q6_K>(0x90A2FBD6);
    test_if<GGML_TYPE_IQ4_XS, IQ4_XS>(0x2389105D);
    return n_failed == 0 ? 0 : 1;
}

#else
int main() {
    std::puts("skipped: there are no tiles for this instruction set");
    return 0;
}
#endif
