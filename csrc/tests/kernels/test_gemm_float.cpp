// Products of weights that are floats: against sums in doubles, in every shape of block, and the same bits on every
// instruction set. It needs no engine, so it can be compiled for another processor and run in an emulator.
#include "kernels/simd/vector.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/testing.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/gemm/float_micro_kernel.hpp"

#    include <cstring>
#    include <random>
#    include <vector>

namespace {

using namespace pyg::kernels;

constexpr int64_t N_ROWS    = ITEM_ROWS;
constexpr int64_t N_COLUMNS = 8 + 4 + 3;  // as many as blocks have, from the largest one on

// A value of weights from 16 random bits: any that is finite and not huge.
void draw(float & value, uint32_t bits) { value = static_cast<float>(static_cast<int>(bits % 4001) - 2000) / 777; }
void draw(ggml_fp16_t & value, uint32_t bits) { value = static_cast<ggml_fp16_t>(bits & 0xBFFF); }
void draw(ggml_bf16_t & value, uint32_t bits) { value.bits = static_cast<uint16_t>(bits & 0xBFFF); }

void                  convert(float from, float & to) { to = from; }
[[maybe_unused]] void convert(float from, ggml_bf16_t & to) {
    uint32_t bits;
    std::memcpy(&bits, &from, sizeof(bits));
    to.bits = static_cast<uint16_t>(bits >> 16);
}

// Weights and activations, each row by itself in memory that ends with it: to read on is an error that sanitizers see.
template <typename Value, class Rows>
struct Operands {
    using Activation = typename Rows::Activation;

    int64_t                              n;
    std::vector<Value>                   weights;  // [row][n]
    std::vector<std::vector<Activation>> columns;  // [column][n]

    Operands(int64_t n, std::mt19937 & random) : n(n), weights(N_ROWS * n), columns(N_COLUMNS) {
        for (Value & value : weights) {
            draw(value, random() >> 8);
        }
        for (std::vector<Activation> & column : columns) {
            for (int64_t i = 0; i < n; ++i) {
                convert(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 512, column.emplace_back());
            }
        }
    }

    // Rows and columns from `row` and `column` on, as one item; [column][row].
    std::vector<float> multiply(int64_t row, int64_t n_rows, int64_t column, int64_t n_columns) const {
        std::vector<float> results(n_rows * n_columns);
        WorkItem           item{reinterpret_cast<const char *>(&weights[row * n]), n_rows, n_columns, {}, {}};
        for (int64_t c = 0; c < n_columns; ++c) {
            item.columns[c] = reinterpret_cast<const char *>(columns[column + c].data());
            item.results[c] = &results[c * n_rows];
        }
        compute_item<Value, Rows>(item, n * sizeof(Value), n);
        return results;
    }
};

template <typename Value, class Rows>
void test_values(const Operands<Value, Rows> & x, const std::vector<float> & all) {
    for (int64_t c = 0; c < N_COLUMNS; ++c) {
        for (int64_t r = 0; r < N_ROWS; ++r) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < x.n; ++i) {
                const double product = double(to_float(x.weights[r * x.n + i])) * to_float(x.columns[c][i]);
                sum += product;
                magnitude += std::abs(product);
            }
            CHECK(std::abs(all[c * N_ROWS + r] - sum) <= 1e-6 * magnitude);
        }
    }
}

// Whatever rows and columns a item has.
template <typename Value, class Rows>
void test_pieces(const Operands<Value, Rows> & x, const std::vector<float> & all) {
    for (int64_t n_columns = 1; n_columns <= N_COLUMNS; ++n_columns) {
        for (int64_t n_rows = 1; n_rows <= N_ROWS; n_rows += n_rows < 9 ? 1 : 5) {
            const int64_t            row = (N_ROWS - n_rows) / 2, column = (N_COLUMNS - n_columns) / 2;
            const std::vector<float> some = x.multiply(row, n_rows, column, n_columns);
            for (int64_t c = 0; c < n_columns; ++c) {
                const float * const expected = &all[(column + c) * N_ROWS + row];
                CHECK(std::memcmp(&some[c * n_rows], expected, n_rows * sizeof(float)) == 0);
            }
        }
    }
}

template <typename Value, class Rows = WidestRows>
void test_type(const char * name, uint32_t expected) {
    std::mt19937 random(1);
    Hash         hash;
    for (const int64_t n : {1, 7, 8, 40, 101, 768}) {
        const Operands<Value, Rows> x(n, random);
        const std::vector<float>    all = x.multiply(0, N_ROWS, 0, N_COLUMNS);
        test_values(x, all);
        test_pieces(x, all);
        for (const float value : all) {
            hash.add(value);
        }
    }
    if (hash.value != expected) {
        std::printf("%s: other bits than they should be: 0x%08X\n", name, hash.value);
        std::exit(1);
    }
}

}  // namespace

int main() {
    if (!can_run()) {
        std::puts("skipped: this processor lacks the instructions");
        return 0;
    }
    test_type<float>("f32", 0x94152B99);
    test_type<ggml_fp16_t>("f16", 0xC2F92951);
    test_type<ggml_bf16_t>("bf16", 0x3865A7D8);
#    ifdef PYG_BF16_PAIRS
    test_type<ggml_bf16_t, RowOfPairs>("bf16 in pairs", 0x56E76AAA);
#    endif
}
#else
int main() { std::puts("skipped: there are no vectors of floats for this instruction set"); }
#endif
