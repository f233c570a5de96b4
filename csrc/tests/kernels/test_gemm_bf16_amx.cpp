// Products of weights of BF16 in AMX's registers: against sums in doubles, the same bits from every block and from
// every set of columns, and from registers that are modelled. It needs no engine.
#include "kernels/simd/vector.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/testing.hpp"

#ifdef PYG_AMX
#    include "kernels/gemm/bf16_amx_micro_kernel.hpp"

#    include <cmath>
#    include <limits>
#    include <memory>
#    include <random>
#    include <vector>

namespace {

using namespace pyg::kernels;

// Any that is finite and not huge, some of them too small for AMX.
ggml_bf16_t drawn(std::mt19937 & random) { return {static_cast<uint16_t>(random() >> 8 & 0xBFFF)}; }

// Weights and activations in memory that ends with them.
struct Operands {
    int64_t                         n, n_rows;
    std::vector<ggml_bf16_t>        weights;  // [row][n]
    std::vector<std::vector<float>> columns;  // [column][n]

    Operands(int64_t n, int64_t n_rows, int64_t n_columns, std::mt19937 & random)
        : n(n), n_rows(n_rows), columns(n_columns) {
        for (int64_t i = 0; i < n_rows * n; ++i) {
            weights.push_back(drawn(random));
        }
        for (std::vector<float> & column : columns) {
            for (int64_t i = 0; i < n; ++i) {
                column.push_back(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 777);
            }
        }
    }

    // Some rows and columns, as one block; [column][row].
    std::vector<float> multiply(int64_t row, int64_t n_some, int64_t column, int64_t n_columns) const {
        std::vector<float>    results(n_some * n_columns);
        std::vector<WorkItem> items;
        const int64_t         n_steps = n / BF16_STEP;
        const int64_t         n_sets  = (n_columns + ITEM_COLUMNS - 1) / ITEM_COLUMNS;
        Bf16Columns           halves[BF16_MAX_ITEMS][2];
        std::vector<char>     packed(n_columns * Bf16Columns::column_bytes(n_steps));
        for (int64_t set = 0; set < n_sets; ++set) {
            const int64_t first = set * ITEM_COLUMNS;
            items.push_back({reinterpret_cast<const char *>(&weights[row * n]),
                             n_some,
                             std::min(n_columns - first, ITEM_COLUMNS),
                             {},
                             {}});
            for (int64_t c = 0; c < items.back().n_columns; ++c) {
                items.back().columns[c] = reinterpret_cast<const char *>(columns[column + first + c].data());
                items.back().results[c] = &results[(first + c) * n_some];
            }
            for (const int half : {0, 1}) {
                halves[set][half] = {items.back(), half, n_steps, &packed[first * Bf16Columns::column_bytes(n_steps)]};
                pack_columns(items.back(), halves[set][half], 0, n_steps / 2);
                pack_columns(items.back(), halves[set][half], n_steps / 2, n_steps);
            }
        }
        const Bf16Rows                                    rows(items[0].weights, n * sizeof(ggml_bf16_t), n_some);
        const size_t                                      size = Bf16Block::bytes(n_some, n_sets);
        const std::unique_ptr<char, decltype(&std::free)> scratch(static_cast<char *>(std::aligned_alloc(64, size)),
                                                                  std::free);
        Bf16Block(rows, n_steps, scratch.get()).multiply(items.data(), halves, n_sets);
        amx::release();
        return results;
    }
};

void test_values(const Operands & x, const std::vector<float> & all) {
    for (size_t c = 0; c < x.columns.size(); ++c) {
        for (int64_t r = 0; r < x.n_rows; ++r) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < x.n; ++i) {
                const double product = double(to_float(x.weights[r * x.n + i])) * x.columns[c][i];
                sum += product;
                magnitude += std::abs(product);
            }
            // 2^-17 of each activation, and rounding of sums.
            CHECK(std::abs(all[c * x.n_rows + r] - sum) <= 8.5e-6 * magnitude);
        }
    }
}

// Whatever rows and columns a block has.
void test_blocks(const Operands & x, const std::vector<float> & all) {
    const int64_t n_columns = x.columns.size();
    for (const int64_t n_some : {int64_t(1), int64_t(2), int64_t(15), int64_t(16), int64_t(17), int64_t(32),
                                 int64_t(33), int64_t(48), int64_t(65), n_columns}) {
        // The last tile reads back to rows before it, so a block of fewer than 16 has some.
        for (const int64_t row : {int64_t(16), int64_t(33)}) {
            for (const int64_t n_rows : {int64_t(1), int64_t(16), int64_t(17), int64_t(40), x.n_rows - row}) {
                if (n_some > n_columns || row + n_rows > x.n_rows) {
                    continue;
                }
                const int64_t            column = (n_columns - n_some) / 2;
                const std::vector<float> some   = x.multiply(row, n_rows, column, n_some);
                for (int64_t c = 0; c < n_some; ++c) {
                    const float * const expected = &all[(column + c) * x.n_rows + row];
                    CHECK(std::memcmp(&some[c * n_rows], expected, n_rows * sizeof(float)) == 0);
                }
            }
        }
    }
}

void test_products(uint32_t expected) {
    std::mt19937 random(1);
    Hash         hash;
    for (const int64_t n : {32, 96, 544, 1120}) {
        const Operands           x(n, 90, 100, random);
        const std::vector<float> all = x.multiply(0, x.n_rows, 0, x.columns.size());
        test_values(x, all);
        test_blocks(x, all);
        for (const float value : all) {
            hash.add(value);
        }
    }
    if (hash.value != expected) {
        std::printf("other bits than from registers that are modelled: 0x%08X\n", hash.value);
        std::exit(1);
    }
}

// Odd values, too: a NaN stays one, and what is finite does not become infinite.
void test_split() {
    constexpr float INFINITE = std::numeric_limits<float>::infinity();
    constexpr float LARGEST  = std::numeric_limits<float>::max();
    float           x[32]    = {0,        -0.0f,     1,      1.00390625f, -3.14159274f, LARGEST, -LARGEST,  3.395e38f,
                                INFINITE, -INFINITE, 1e-38f, 1e-45f,      65504,        1e-20f,  12345.678f};
    const uint32_t  nans[]   = {0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF};
    std::memcpy(x + 20, nans, sizeof(nans));
    x[31] = -LARGEST;
    const SplitFloats split(Floats16::load(x), Floats16::load(x + 16));
    uint16_t          upper[32], rest[32];
    _mm512_storeu_si512(upper, split.upper);
    _mm512_storeu_si512(rest, split.rest);
    for (int i = 0; i < 32; ++i) {
        const float first = to_float(ggml_bf16_t{upper[i]}), second = to_float(ggml_bf16_t{rest[i]});
        if (std::isnan(x[i])) {
            CHECK(std::isnan(first) && second == 0);
        } else if (std::isinf(x[i])) {
            CHECK(first == x[i] && second == 0);
        } else {
            CHECK(std::isfinite(first) && std::isfinite(second));
            CHECK(std::abs((double(first) + second) - x[i]) <= std::ldexp(std::abs(x[i]), -17) + 1e-40);
        }
    }
}

}  // namespace

int main() {
    if (!can_run()) {
        std::puts("skipped: this processor lacks the instructions");
        return 0;
    }
    amx::request_permission();
    if (!amx::multiplies_bf16()) {
        std::puts("skipped: this system lacks AMX for BF16");
        return 0;
    }
    test_split();
    test_products(0x1471BB9D);
}
#else
int main() { std::puts("skipped: there is no AMX for this instruction set"); }
#endif
