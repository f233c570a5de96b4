// Microseconds of sampling from a row of logits, on one thread: the sampler as the engine uses it, and its chain on the
// whole row. argv[1]: a model with a vocabulary; argv[2]: number of logits in a row (128,256).
#include "boundary/handles.hpp"
#include "sampling/token_sampler.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

namespace {

constexpr int N_ROWS = 8, N_ROUNDS = 25;

using Row = std::vector<float>;

// As a language model's: most logits in a bell, some dozens far above it.
std::vector<Row> make_rows(size_t n_vocab) {
    std::mt19937                    random(5);
    std::normal_distribution<float> bell(0, 2.5F), peaks(14, 4);
    std::vector<Row>                rows(N_ROWS, Row(n_vocab));
    for (Row & row : rows) {
        std::generate(row.begin(), row.end(), [&] { return bell(random); });
        for (int i = 0; i < 60; i++) {
            row[random() % n_vocab] = peaks(random);
        }
    }
    return rows;
}

double median_us(std::vector<Row> & rows, const std::function<void(Row &)> & body) {
    std::vector<double> times;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (Row & row : rows) {
            row[0] = bool(round);  // brings a part of the row into the cache at least
            body(row);             // as after a forward pass, the row is in the cache
            const auto start = std::chrono::steady_clock::now();
            body(row);
            times.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
        }
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

double chain_on_whole_row_us(const pyg::Model & model, const pyg_sampling & options, std::vector<Row> & rows) {
    const pyg::UniqueSampler      chain = pyg::make_sampler_chain(model, 64, options);
    std::vector<llama_token_data> candidates(rows[0].size());
    return median_us(rows, [&](Row & row) {
        CHECK(std::all_of(row.begin(), row.end(), [](float logit) { return logit < INFINITY; }));
        for (size_t id = 0; id < row.size(); id++) {
            candidates[id] = {static_cast<llama_token>(id), row[id], 0};
        }
        llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
        llama_sampler_apply(chain.get(), &array);
        llama_sampler_accept(chain.get(), array.data[array.selected].id);
    });
}

double sampler_us(const pyg::Model & model, const pyg_sampling & options, std::vector<Row> & rows) {
    pyg::TokenSampler sampler(model, 64, options, {});
    return median_us(rows, [&](Row & row) { sampler.sample(row.data(), static_cast<int32_t>(row.size())); });
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 3);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    pyg_model *             handle        = nullptr;
    const pyg_model_options model_options = pyg_model_default_options();
    CHECK_OK(pyg_model_new(argv[1], &model_options, &handle, &err), err);
    const pyg::Model & model = *handle->object;
    std::vector<Row>   rows  = make_rows(static_cast<size_t>(std::atoi(argv[2])));

    pyg_sampling options = pyg_request_default_options().sampling;
    std::printf("%-32s %8s %8s\n", "us per row", "sampler", "chain");
    std::printf("%-32s %8.1f\n", "greedy", sampler_us(model, options, rows));
    options.temperature = 0.8F;
    const auto measure  = [&](const char * name, const std::function<void(pyg_sampling &)> & change) {
        pyg_sampling changed = options;
        change(changed);
        std::printf("%-32s %8.1f %8.1f\n", name, sampler_us(model, changed, rows),
                    chain_on_whole_row_us(model, changed, rows));
    };
    measure("top_k 40", [](auto & each) { each.top_k = 40; });
    measure("top_k 40, top_p 0.95, penalty", [](auto & each) {
        each.top_k          = 40;
        each.top_p          = 0.95F;
        each.repeat_penalty = 1.1F;
    });
    measure("top_p 0.95", [](auto & each) { each.top_p = 0.95F; });
    measure("min_p 0.05", [](auto & each) { each.min_p = 0.05F; });
    measure("greedy, penalty", [](auto & each) {
        each.temperature    = 0;
        each.repeat_penalty = 1.1F;
    });
    measure("temperature", [](auto &) {});
    pyg_model_free(handle);
    return 0;
}
