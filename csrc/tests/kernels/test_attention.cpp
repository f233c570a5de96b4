// The vectors and the arithmetic of attention against plain computations in doubles. It needs no engine, so it can be
// compiled for another processor and run in an emulator.
#include "kernels/simd/vector.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/testing.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/attention/attention_micro_kernel.hpp"
#    ifdef PYG_AVX512
#        include "kernels/attention/scores_avx512.hpp"
#    endif

#    include <random>
#    include <vector>

namespace {

using namespace pyg::kernels;

using Numbers = std::vector<float>;

Numbers drawn(int64_t n, float spread, int seed) {
    std::mt19937                    random(static_cast<uint32_t>(seed));
    std::normal_distribution<float> normal(0, spread);
    Numbers                         numbers(n);
    std::generate(numbers.begin(), numbers.end(), [&] { return normal(random); });
    return numbers;
}

bool same(const float * a, const float * b, int64_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

template <typename Vector>
Numbers each(const Numbers & x, Vector (*function)(Vector)) {
    Numbers y(x.size());
    for (size_t i = 0; i < x.size(); i += Vector::LANES) {
        function(Vector::load(&x[i])).store(&y[i]);
    }
    return y;
}

// In units of the last place of the true result, down to the least normal number.
double most_ulps(const Numbers & y, const Numbers & x, double (*truth)(double)) {
    double most = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double expected = truth(x[i]);
        const float  size     = std::max(std::abs(static_cast<float>(expected)), 1.17549435e-38f);
        most                  = std::max(most, std::abs(y[i] - expected) / (std::nextafter(size, INFINITY) - size));
    }
    return most;
}

void test_exp() {
    Numbers x;
    for (int i = 0; i < 16 * 5000; ++i) {
        x.push_back(-86.9f * static_cast<float>(i) / (16 * 5000));
    }
    const Numbers y = each(x, exp_approx<Floats8>);
    CHECK(y[0] == 1);
    CHECK(most_ulps(y, x, std::exp) < 1.5);
    CHECK(each(x, exp_approx<WideFloats>) == y);
    CHECK(exp_approx(-INFINITY) == 0 && exp_approx(-1000.0f) == 0 && std::isnan(exp_approx(NAN)));
}

void test_tanh() {
    Numbers x;
    for (int i = 0; i < 16 * 5000; ++i) {
        x.push_back(20.0f * static_cast<float>(i - 8 * 5000) / (8 * 5000));
        x.push_back(std::ldexp(1.9f, -static_cast<int>(i % 120)));
    }
    const Numbers y = each(x, tanh_approx<Floats8>);
    CHECK(most_ulps(y, x, std::tanh) < 3);
    CHECK(each(x, tanh_approx<WideFloats>) == y);
    const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e-30f, -100, 0.625f, -0.625f};
    float       result[8];
    tanh_approx(Floats8::load(odd)).store(result);
    CHECK(result[0] == 0 && std::signbit(result[1]) && result[2] == 1 && result[3] == -1 && result[4] == 1e-30f);
    CHECK(result[5] == -1 && result[6] == -result[7]);
}

double true_gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

double true_gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

void test_gelu(Floats8 (*gelu)(Floats8), WideFloats (*wide)(WideFloats), double (*truth)(double)) {
    Numbers x;
    for (int i = 0; i < 16 * 5000; ++i) {
        x.push_back(12.0f * static_cast<float>(i - 8 * 5000) / (8 * 5000));
    }
    const Numbers y = each(x, gelu);
    for (size_t i = 0; i < x.size(); ++i) {
        CHECK(std::abs(y[i] - truth(x[i])) < 3e-7 * std::max(1.0, std::abs(double(x[i]))));
    }
    CHECK(each(x, wide) == y);
}

float sum_in_order(const float * x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

void test_lanes() {
    const Numbers x = drawn(32, 1, 1);
    Floats8       v[4];
    float         sums[4], some[8];
    for (int i = 0; i < 4; ++i) {
        v[i] = Floats8::load(&x[8 * i]);
        CHECK(reduce_add(v[i]) == sum_in_order(&x[8 * i]));
        CHECK(reduce_max(v[i]) == *std::max_element(&x[8 * i], &x[8 * i] + 8));
    }
    store_reduced(sums, v[0], v[1], v[2], v[3]);
    for (int i = 0; i < 4; ++i) {
        CHECK(sums[i] == reduce_add(v[i]));
    }
    for (int low = -2; low < 9; ++low) {
        for (int high = low; high < 10; ++high) {
            keep_lanes(v[0], low, high).store(some);
            for (int i = 0; i < 8; ++i) {
                CHECK(some[i] == (i >= low && i < high ? x[i] : -INFINITY));
            }
        }
    }
    select_less(v[0], v[1], v[2], v[3]).store(some);
    for (int i = 0; i < 8; ++i) {
        CHECK(some[i] == (x[i] < x[8 + i] ? x[16 + i] : x[24 + i]));
    }
}

void test_half_floats() {
    const uint16_t    halves[8] = {0x3C00, 0xBC00, 0x0001, 0x7BFF, 0x8000, 0x3555, 0x7C00, 0x0400};
    const float       as_f16[8] = {1, -1, 0x1p-24f, 65504, -0.0f, 0x1.554p-2f, INFINITY, 0x1p-14f};
    const ggml_bf16_t brains[8] = {{0x3F80}, {0xBF80}, {0x0001}, {0x7F7F}, {0x8000}, {0x3EAB}, {0x7F80}, {0x0080}};
    float             result[8];
    Floats8::load(static_cast<const ggml_fp16_t *>(halves)).store(result);
    CHECK(same(result, as_f16, 8));
    Floats8::load(brains).store(result);
    for (int i = 0; i < 8; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &result[i], sizeof(bits));
        CHECK(bits == uint32_t(brains[i].bits) << 16);
        CHECK(to_float(halves[i]) == as_f16[i]);
    }
    uint16_t mask[32];
    for (const uint32_t bits : {0u, 0xFFFFFFFFu, 0x80000001u, 0x12345678u, 0x00FF8001u}) {
        for (int i = 0; i < 32; ++i) {
            mask[i] = bits >> i & 1 ? 0xFC00 : static_cast<uint16_t>(i);
        }
        CHECK(equal_mask(mask, 0xFC00) == bits);
    }
}

constexpr int N_QUERIES = 4;

// Queries that see some cells of a chunk.
struct Bench {
    int64_t                    n;
    Numbers                    q, keys, values, weights, sums;
    std::vector<const float *> key, value;
    Query                      queries[N_QUERIES] = {};
    Query *                    all[N_QUERIES];

    Bench(int64_t n_dimensions, int low, int high)
        : n(n_dimensions), q(drawn(N_QUERIES * n, 1, 1)), keys(drawn(CHUNK * n, 1, 2)), values(drawn(CHUNK * n, 1, 3)),
          weights(N_QUERIES * (CHUNK + BLOCK)), sums(N_QUERIES * n) {
        for (int64_t i = 0; i < CHUNK; ++i) {
            key.push_back(&keys[i * n]);
            value.push_back(&values[i * n]);
        }
        for (int i = 0; i < N_QUERIES; ++i) {
            all[i]               = &queries[i];
            queries[i].q         = &q[i * n];
            queries[i].weights   = &weights[i * (CHUNK + BLOCK)];
            queries[i].chunk.sum = &sums[i * n];
            queries[i].slope     = 0.5f;
            queries[i].low       = low;
            queries[i].high      = high;
            queries[i].chunk.reset(n);
        }
    }

    template <int N>
    void attend(const Scores & scores, const float * mask) {
        const int low = queries[0].low, high = queries[0].high;
        for (int first = 0; first < N_QUERIES; first += N) {
            for (int cell = low; cell < high; cell += FOUR) {
                const float * four[FOUR];
                for (int i = 0; i < FOUR; ++i) {
                    four[i] = key[std::min(cell + i, high - 1)];
                }
                score_four<N>(all + first, four, n, cell);
            }
            for (int i = first; i < first + N; ++i) {
                softmax_chunk(queries[i], scores, mask);
            }
            add_values<N>(all + first, value.data(), n, low, high);
        }
    }

    // The difference of a query's result from the true one.
    double error(int i, const Scores & scores, const float * mask) const {
        const Query &       query = queries[i];
        std::vector<double> score;
        for (int cell = query.low; cell < query.high; ++cell) {
            double sum = 0;
            for (int64_t d = 0; d < n; ++d) {
                sum += double(query.q[d]) * key[cell][d];
            }
            sum *= scores.scale;
            sum = scores.softcap != 0 ? scores.softcap * std::tanh(sum) : sum;
            score.push_back(sum + (mask ? query.slope * double(mask[cell]) : 0));
        }
        const double most  = *std::max_element(score.begin(), score.end());
        double       total = 0, worst = 0;
        for (const double x : score) {
            total += std::exp(x - most);
        }
        for (int64_t d = 0; d < n; ++d) {
            double sum = 0;
            for (int cell = query.low; cell < query.high; ++cell) {
                sum += std::exp(score[cell - query.low] - most) * value[cell][d];
            }
            worst = std::max(worst, std::abs(sum / total - query.chunk.sum[d] / query.chunk.total));
        }
        return worst;
    }
};

void test_chunk(int64_t n, int low, int high, const Scores & scores, bool masked) {
    const Numbers       numbers = drawn(CHUNK, 1, 4);
    const float * const mask    = masked ? numbers.data() : nullptr;
    Bench               one(n, low, high), two(n, low, high), four(n, low, high);
    one.attend<1>(scores, mask);
    two.attend<2>(scores, mask);
    four.attend<4>(scores, mask);
    for (int i = 0; i < N_QUERIES; ++i) {
        CHECK(one.error(i, scores, mask) < 1e-6);
        CHECK(one.queries[i].chunk.total == four.queries[i].chunk.total);
    }
    CHECK(same(one.sums.data(), two.sums.data(), N_QUERIES * n));
    CHECK(same(one.sums.data(), four.sums.data(), N_QUERIES * n));
}

#    ifdef PYG_AVX512
void test_columns(int64_t n, int64_t n_cells) {
    Bench   one(n, 0, static_cast<int>(n_cells)), many(n, 0, static_cast<int>(n_cells));
    Numbers columns(BLOCK * n);
    transpose_keys(many.key.data(), n_cells, n, columns.data());
    score_columns(many.all, columns.data(), n, 0);
    for (int64_t cell = 0; cell < n_cells; cell += FOUR) {
        score_four<3>(one.all, &one.key[cell], n, cell);
    }
    for (int i = 0; i < 3; ++i) {
        CHECK(same(one.queries[i].weights, many.queries[i].weights, n_cells));
    }
}
#    endif

void test_merging() {
    Numbers      a = drawn(40, 1, 5), b = drawn(40, 1, 6);
    SoftmaxState all{-INFINITY, 0, a.data()}, next{3, 2, b.data()};
    all.reset(40);
    merge(all, next, 40);
    CHECK(all.most == 3 && all.total == 2 && same(all.sum, next.sum, 40));
    const SoftmaxState nothing{-INFINITY, 0, b.data()};
    merge(all, nothing, 40);
    CHECK(all.total == 2);
    next.most = 4;
    merge(all, next, 40);
    CHECK(all.most == 4 && std::abs(all.total - (2 + 2 * std::exp(-1.0))) < 1e-6);
    CHECK(std::abs(all.sum[7] - b[7] * (1 + std::exp(-1.0))) < 1e-6);
}

}  // namespace

int main() {
    if (!can_run()) {
        std::puts("skipped: this processor lacks the instructions");
        return 0;
    }
    test_exp();
    test_tanh();
    test_gelu(gelu_tanh<Floats8>, gelu_tanh<WideFloats>, true_gelu_tanh);
    test_gelu(gelu_erf<Floats8>, gelu_erf<WideFloats>, true_gelu_erf);
    test_lanes();
    test_half_floats();
    for (const int64_t n : {8, 40, 64, 80, 128, 576}) {
        const float scale = 1 / std::sqrt(static_cast<float>(n));
        test_chunk(n, 0, CHUNK, {scale, 0}, false);
        test_chunk(n, 5, 6, {scale, 0}, true);
        test_chunk(n, 13, 110, {scale / 2, 2}, true);
#    ifdef PYG_AVX512
        test_columns(n, BLOCK);
        test_columns(n, 17);
#    endif
    }
    test_merging();
}
#else
int main() {}
#endif
