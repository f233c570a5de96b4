// Log-probabilities compared with a plain computation in doubles, and their table.
#include "boundary/guard.hpp"
#include "sampling/logprobs.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

std::vector<double> log_softmax(const std::vector<float> & row) {
    const double largest = *std::max_element(row.begin(), row.end());
    double       sum     = 0;
    for (const float logit : row) {
        sum += std::exp(logit - largest);
    }
    std::vector<double> result;
    for (const float logit : row) {
        result.push_back(logit - largest - std::log(sum));
    }
    return result;
}

std::vector<int32_t> order(const std::vector<float> & row) {
    std::vector<int32_t> ids(row.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    return ids;
}

bool close(double a, double b) { return a == b || std::abs(a - b) < 2e-6 * std::max(1.0, std::abs(b)); }

void check(const std::vector<float> & row, int32_t n_top) {
    const auto    n_vocab  = static_cast<int32_t>(row.size());
    const auto    expected = log_softmax(row);
    const auto    ids      = order(row);
    const int32_t token_id = n_vocab / 2;
    pyg::Logprobs out;
    pyg::logprobs_of(row.data(), n_vocab, token_id, n_top, out);
    CHECK(close(out.logprob, expected[token_id]));
    CHECK(out.top_ids.size() == static_cast<size_t>(std::min(n_top, n_vocab)));
    CHECK(out.top.size() == out.top_ids.size());
    for (size_t i = 0; i < out.top.size(); i++) {
        CHECK(out.top_ids[i] == ids[i]);
        CHECK(close(out.top[i], expected[ids[i]]));
    }
}

void test_rows_of_every_length() {
    std::mt19937                    random(1);
    std::normal_distribution<float> normal(0, 3);
    for (const int32_t n_vocab : {1, 2, 15, 16, 17, 31, 261, 511, 512, 513, 1000, 1025, 4096, 49152}) {
        std::vector<float> row(n_vocab);
        std::generate(row.begin(), row.end(), [&] { return normal(random); });
        for (const int32_t n_top : {1, 2, 5, 20, 1000}) {
            check(row, n_top);
        }
    }
}

void test_rows_in_every_order() {
    std::vector<float> row(5000);
    std::iota(row.begin(), row.end(), -2500.0f);  // the largest last, and most too small to matter
    check(row, 7);
    std::reverse(row.begin(), row.end());
    check(row, 7);
    std::fill(row.begin(), row.end(), -3.5f);  // all alike: the lowest ids
    check(row, 7);
    std::fill(row.begin(), row.end(), 1e30f);
    check(row, 7);
}

void test_what_is_forbidden() {
    std::vector<float> row(600, -INF);
    row[300] = 2;
    row[599] = 1;
    check(row, 5);
    pyg::Logprobs out;
    pyg::logprobs_of(row.data(), 600, 0, 3, out);
    CHECK(out.logprob == -INF);
    CHECK(out.top_ids == std::vector<int32_t>({300, 599, 0}));
}

template <class Call>
int32_t code_of(Call && call) {
    pyg_error err;
    return pyg::guard(&err, call);
}

void test_what_is_no_number() {
    const float   nan = std::numeric_limits<float>::quiet_NaN();
    pyg::Logprobs out;
    for (const float value : {nan, INF, -INF}) {
        const std::vector<float> row(100, value);
        CHECK(code_of([&] { pyg::logprobs_of(row.data(), 100, 1, 5, out); }) == PYG_ERR_ENGINE);
    }
    std::vector<float> row = {nan, 1, nan, 2};
    pyg::logprobs_of(row.data(), 4, 3, 2, out);
    CHECK(out.top_ids == std::vector<int32_t>({3, 1}));
    CHECK(close(out.logprob, -std::log1p(std::exp(-1.0))));
}

void test_table() {
    CHECK(code_of([] { pyg::LogprobTable("logprobs", -1, 10); }) == PYG_ERR_INVALID_PARAMETER);
    CHECK(code_of([] { pyg::LogprobTable("logprobs", 1001, 5000); }) == PYG_ERR_INVALID_PARAMETER);
    CHECK(pyg::LogprobTable("logprobs", 1000, 10).n_top() == 10);
    CHECK(!pyg::LogprobTable("logprobs", 0, 10).wanted());

    pyg::LogprobTable table("logprobs", 2, 10);
    table.append({-1, {4, 5}, {-1, -2}});
    table.append({-3, {6, 7}, {-0.5f, -3}});
    float   logprobs[2], top[4];
    int32_t top_ids[4];
    table.copy(1, 1, logprobs, top_ids, top);
    CHECK(logprobs[0] == -3 && top_ids[0] == 6 && top_ids[1] == 7 && top[0] == -0.5f && top[1] == -3);
    table.copy(0, 2, logprobs, top_ids, top);
    CHECK(logprobs[0] == -1 && top_ids[3] == 7 && top[1] == -2);
    table.copy(2, 0, logprobs, top_ids, top);
    for (const auto & [first, n] : {std::pair(0, 3), std::pair(-1, 1), std::pair(1, -1), std::pair(2, 1)}) {
        CHECK(code_of([&, first = first, n = n] { table.copy(first, n, logprobs, top_ids, top); }) ==
              PYG_ERR_INVALID_PARAMETER);
    }
}

}  // namespace

int main() {
    test_rows_of_every_length();
    test_rows_in_every_order();
    test_what_is_forbidden();
    test_what_is_no_number();
    test_table();
}
