// The largest logits of rows found in the graph, here on the CPU backend, and sampling from them: equals sampling from
// the rows. argv[1]: a small generative model.
#include "boundary/handles.hpp"
#include "ggml-cpp.h"
#include "sampling/device_sampler.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace {

constexpr float INF     = std::numeric_limits<float>::infinity();
constexpr float NOT_ONE = std::numeric_limits<float>::quiet_NaN();

using Row = std::vector<float>;

// Results of a graph for rows of the same length.
template <class Build>
std::vector<float> compute(const std::vector<Row> & rows, Build && build) {
    const auto             n = static_cast<int64_t>(rows[0].size()), n_rows = static_cast<int64_t>(rows.size());
    const ggml_context_ptr context(ggml_init({1 << 20, nullptr, true}));
    ggml_tensor *          input  = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n, n_rows);
    ggml_tensor *          output = build(context.get(), input);
    ggml_cgraph *          graph  = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, output);
    const ggml_backend_ptr        backend(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(context.get(), backend.get()));
    for (size_t i = 0; i < rows.size(); i++) {
        ggml_backend_tensor_set(input, rows[i].data(), i * input->nb[1], input->nb[1]);
    }
    CHECK(ggml_backend_graph_compute(backend.get(), graph) == GGML_STATUS_SUCCESS);
    std::vector<float> result(static_cast<size_t>(ggml_nelements(output)));
    ggml_backend_tensor_get(output, result.data(), 0, result.size() * sizeof(float));
    return result;
}

std::vector<float> first_maxima(const std::vector<Row> & rows) { return compute(rows, pyg::argmax_first); }

void test_the_first_of_the_largest() {
    CHECK((first_maxima({{1, 3, 3, 2}, {-5, -7, -5, -5}, {0, 0, 0, 0}, {2, -INF, -INF, 2}}) ==
           std::vector<float>{1, 0, 0, 0}));
    const float above = std::nextafter(20.0F, 21.0F);
    CHECK((first_maxima({{20, above, 20, above}, {-above, -20, -above, -20}}) == std::vector<float>{1, 1}));
    CHECK(first_maxima({{7}})[0] == 0);
    for (const float wrong : first_maxima({{NOT_ONE, NOT_ONE}, {-INF, -INF}, {INF, 0}})) {
        CHECK(std::isnan(wrong));
    }
}

// Few different values, so that nearly every row has ties.
void test_many_rows() {
    std::mt19937     random(1);
    std::vector<Row> rows(40, Row(50'000));
    for (size_t i = 0; i < rows.size(); i++) {
        std::uniform_int_distribution<int> value(-200 - 10 * static_cast<int>(i), 300);
        std::generate(rows[i].begin(), rows[i].end(), [&] { return static_cast<float>(value(random)) / 7; });
    }
    const std::vector<float> found = first_maxima(rows);
    for (size_t i = 0; i < rows.size(); i++) {
        const auto first = std::max_element(rows[i].begin(), rows[i].end());
        CHECK(found[i] == static_cast<float>(first - rows[i].begin()));
    }
}

void test_summaries() {
    constexpr size_t                K = 50, WIDTH = 2 * K + 3;
    std::mt19937                    random(2);
    std::normal_distribution<float> normal(0, 3);
    std::vector<Row>                rows(7, Row(20'000));
    for (Row & row : rows) {
        std::generate(row.begin(), row.end(), [&] { return normal(random); });
    }
    rows[3].assign(rows[3].size(), -INF);
    rows[3][77]                       = 1;
    rows[4][100]                      = NOT_ONE;
    const std::vector<float> computed = compute(rows, [](ggml_context * graph, ggml_tensor * input) {
        return pyg::summarize_rows(graph, input, static_cast<int64_t>(K));
    });
    CHECK(computed.size() == rows.size() * WIDTH);
    for (size_t i = 0; i < rows.size(); i++) {
        const float *const ids = computed.data() + i * WIDTH, *const logits = ids + K, *const others = logits + K;
        CHECK(others[2] == static_cast<float>(i));
        if (i == 4) {
            CHECK(std::isnan(others[1]));
            continue;
        }
        Row sorted = rows[i];
        std::sort(sorted.begin(), sorted.end(), std::greater<float>());
        CHECK(rows[i][static_cast<size_t>(others[0])] == sorted[0]);
        Row found(logits, logits + K);
        std::sort(found.begin(), found.end(), std::greater<float>());
        CHECK(std::equal(found.begin(), found.end(), sorted.begin()));
        double sum = 0;
        for (size_t k = 0; k < K; k++) {
            CHECK(rows[i][static_cast<size_t>(ids[k])] == logits[k]);
        }
        for (const float logit : rows[i]) {
            sum += std::exp(static_cast<double>(logit) - sorted[0]);
        }
        CHECK(std::abs(others[1] - sum) < 1e-4 * sum);
    }
}

struct Loaded {
    pyg_model *   model   = nullptr;
    pyg_context * context = nullptr;

    explicit Loaded(const char * path) {
        pyg_error               err;
        const pyg_model_options model_options = pyg_model_default_options();
        CHECK_OK(pyg_model_new(path, &model_options, &model, &err), err);
        pyg_context_options options = pyg_context_default_options();
        options.n_ctx               = 256;
        options.n_batch             = 64;
        options.n_ubatch            = 16;
        options.n_seq_max           = 3;
        options.n_outputs_max       = 32;
        options.n_threads           = 1;
        CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
    }
    ~Loaded() {
        pyg_context_free(context);
        pyg_model_free(model);
    }
    pyg::Context & inside() const { return *context->object; }
};

struct Token {
    int32_t id, pos, seq_id;
    bool    output;
};

void decode(llama_context * context, std::vector<Token> tokens) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    for (const Token & token : tokens) {
        const int32_t i    = batch.n_tokens++;
        batch.token[i]     = token.id;
        batch.pos[i]       = token.pos;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = token.seq_id;
        batch.logits[i]    = token.output;
    }
    CHECK(llama_decode(context, batch) == 0);
    llama_synchronize(context);
    llama_batch_free(batch);
}

int32_t likeliest(llama_context * context, int32_t index, int32_t n_vocab) {
    const float * row = llama_get_logits_ith(context, index);
    CHECK(row);
    return static_cast<int32_t>(std::max_element(row, row + n_vocab) - row);
}

// Two contexts in lockstep, one with sampling in the graph: prompts without output and over several micro-batches,
// sequences that come and go, and rows in another order than the sequences.
void test_in_a_context(const char * path) {
    const Loaded       there(path), here(path);
    const int32_t      n_vocab = there.inside().model->n_vocab();
    pyg::DeviceSampler sampler(there.inside(), true);
    while (!sampler.is_on()) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
    }
    std::vector<Token> prompt;
    for (int32_t i = 0; i < 60; i++) {
        prompt.push_back({5 + i, i, 0, false});
    }
    std::vector<std::vector<Token>> steps = {
        prompt,
        {{70, 60, 0, true}},
        {{9, 0, 2, false}, {10, 1, 2, true}, {71, 61, 0, true}},
        {{11, 2, 2, true}, {72, 62, 0, true}, {20, 0, 1, false}, {21, 1, 1, true}},
        {{22, 2, 1, true}, {12, 3, 2, true}},
        {{23, 3, 1, true}, {13, 4, 2, true}},  // the same graph again
        {{73, 63, 0, true}},
    };
    for (const auto & step : steps) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
        decode(there.inside().raw, step);
        decode(here.inside().raw, step);
        for (size_t i = 0; i < step.size(); i++) {
            if (step[i].output) {
                const auto index = static_cast<int32_t>(i);
                CHECK(sampler.token(sampler.row(index)) == likeliest(here.inside().raw, index, n_vocab));
                CHECK(!llama_get_sampled_logits_ith(there.inside().raw, index));  // no row was copied
            }
        }
    }

    sampler.prepare(pyg::LogitsNeed::ALL);
    CHECK(!sampler.is_on());
    const std::vector<Token> last = {{74, 64, 0, true}};
    decode(there.inside().raw, last);
    decode(here.inside().raw, last);
    CHECK(likeliest(there.inside().raw, 0, n_vocab) == likeliest(here.inside().raw, 0, n_vocab));
}

bool same_row(llama_context * a, llama_context * b, int32_t index, int32_t n_vocab) {
    const float *const one = llama_get_logits_ith(a, index), *const other = llama_get_logits_ith(b, index);
    return std::equal(one, one + n_vocab, other);
}

pyg_sampling sampling_options() {
    pyg_sampling options = pyg_request_default_options().sampling;
    options.temperature  = 0.9F;
    options.top_p        = 0.9F;
    options.seed         = 3;
    return options;
}

// Shortlists from the graph: the same tokens as from rows of another context, or the row on demand.
void test_shortlists_in_a_context(const char * path) {
    const Loaded       there(path), here(path);
    const int32_t      n_vocab = there.inside().model->n_vocab();
    const pyg_sampling options = sampling_options();
    pyg::TokenSampler  short_sampler(*there.inside().model, 256, options, {});
    pyg::TokenSampler  row_sampler(*here.inside().model, 256, options, {});
    CHECK(short_sampler.need() == pyg::LogitsNeed::LIKELIEST);
    pyg::DeviceSampler sampler(there.inside(), true);
    while (!sampler.is_on()) {
        sampler.prepare(short_sampler.need());
    }
    size_t  n_short  = 0;
    int32_t token_id = 5;
    for (int32_t pos = 0; pos < 40; pos++) {
        std::vector<Token> step   = {{token_id, pos, 0, true}, {9 + pos, pos, 2, pos % 3 == 0}, {7, pos, 1, true}};
        const size_t       n_rows = pos % 3 == 0 ? 3 : 2;
        sampler.prepare(short_sampler.need());
        decode(there.inside().raw, step);
        decode(here.inside().raw, step);
        for (const int32_t index : {0, 2}) {
            const pyg::DeviceRow row = sampler.row(index);
            CHECK(sampler.token(row) == likeliest(here.inside().raw, index, n_vocab));
            pyg::Shortlist         shortlist;
            std::optional<int32_t> found;
            if (sampler.shortlist(row, shortlist)) {
                found = short_sampler.sample(shortlist);
            }
            n_short += bool(found);
            CHECK(!sampler.fetch(index, row, n_rows + 1));  // of another micro-batch
            CHECK(sampler.fetch(index, row, n_rows));
            CHECK(same_row(there.inside().raw, here.inside().raw, index, n_vocab));
            if (!found) {
                found = short_sampler.sample(llama_get_logits_ith(there.inside().raw, index), n_vocab);
            }
            token_id = row_sampler.sample(llama_get_logits_ith(here.inside().raw, index), n_vocab);
            CHECK(*found == token_id);
        }
    }
    CHECK(n_short > 40);
}

// A device without the operations for shortlists, or a cache that cannot be rewound, still has the greedy mode.
void test_modes(const char * path) {
    const Loaded       loaded(path);
    pyg::DeviceSampler greedy_only(loaded.inside(), true, /*ranks=*/false);
    for (int32_t i = 0; i < 10'000; i++) {
        greedy_only.prepare(pyg::LogitsNeed::LIKELIEST);
        CHECK(!greedy_only.is_on());
    }
    while (!greedy_only.is_on()) {
        greedy_only.prepare(pyg::LogitsNeed::LARGEST);
    }
    greedy_only.prepare(pyg::LogitsNeed::LIKELIEST);
    CHECK(!greedy_only.is_on());

    // From greedy to shortlists at once, back after a long time only.
    pyg::DeviceSampler sampler(loaded.inside(), true);
    const auto         has_summaries = [&](int32_t pos) {
        decode(loaded.inside().raw, {{5, pos, 0, true}});
        return sampler.row(0).summary != nullptr;
    };
    while (!sampler.is_on()) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
    }
    CHECK(!has_summaries(0));
    sampler.prepare(pyg::LogitsNeed::LIKELIEST);
    CHECK(sampler.is_on() && has_summaries(1));
    for (int32_t i = 0; i < 100; i++) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
    }
    CHECK(has_summaries(2));
    for (int32_t i = 0; i < 1000; i++) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
    }
    CHECK(sampler.is_on() && !has_summaries(3));
}

// What is needed of a row, and shortlists that do not suffice.
void test_needs(const char * path) {
    using Need = pyg::LogitsNeed;
    const Loaded       loaded(path);
    const pyg::Model & model = *loaded.inside().model;
    const auto         need  = [&](const std::function<void(pyg_sampling &)> & change) {
        pyg_sampling options = pyg_request_default_options().sampling;
        change(options);
        return pyg::TokenSampler(model, 256, options, {}).need();
    };
    const int32_t id   = 4;
    const float   less = -1, more = 1;
    const auto    bias = [&](pyg_sampling & options, const float & value) {
        options.n_bias         = 1;
        options.bias_token_ids = &id;
        options.bias_values    = &value;
    };
    CHECK(need([](auto &) {}) == Need::LARGEST);
    CHECK(need([&](auto & options) { bias(options, less); }) == Need::LIKELIEST);
    CHECK(need([&](auto & options) { bias(options, more); }) == Need::ALL);
    CHECK(need([](auto & options) { options.repeat_penalty = 1.2F; }) == Need::LIKELIEST);
    CHECK(need([](auto & options) { options.repeat_penalty = 0.9F; }) == Need::ALL);
    CHECK(need([](auto & options) { options.temperature = 1; }) == Need::ALL);
    CHECK(need([](auto & options) { options.grammar = "root ::= \"a\""; }) == Need::ALL);
    CHECK(need([&](auto & options) {
              options.temperature = 1;
              options.top_p       = 0.9F;
              bias(options, less);
          }) == Need::LIKELIEST);

    // Other tokens may be as likely as the second candidate, or not.
    pyg_sampling two = sampling_options();
    two.top_k        = 2;
    for (const float bound : {8.5F, 8.0F, 7.5F}) {
        pyg::Shortlist candidates = {{{4, 9, 0}, {6, 8, 0}, {7, 3, 0}}, bound, 0};  // the last was lowered
        CHECK(pyg::TokenSampler(model, 256, two, {}).sample(candidates).has_value() == (bound < 8));
    }

    // A forbidden token that is a candidate, or one that is not.
    const float  never  = -INF;
    pyg_sampling likely = sampling_options();
    bias(likely, never);
    pyg::TokenSampler sampler(model, 256, likely, {});
    pyg::Shortlist    unlikely_others = {{{4, 9, 0}, {6, 8, 0}, {7, 1, 0}}, -8, 1.37F};
    CHECK(sampler.sample(unlikely_others) == 6);
    pyg::Shortlist likely_others = {{{5, 9, 0}, {6, 8, 0}, {7, 1, 0}}, 0.5F, 1.37F};
    CHECK(!sampler.sample(likely_others));
    pyg::Shortlist nothing_else = {{{4, 19, 0}, {6, 8, 0}, {7, 1, 0}}, -8, 1};
    CHECK(!sampler.sample(nothing_else));

    pyg_sampling options = pyg_request_default_options().sampling;
    bias(options, less);
    pyg::TokenSampler greedy(model, 256, options, {});
    pyg::Shortlist    shortlist = {{{9, 2.5F, 0}, {4, 3, 0}, {8, 2.5F, 0}}, 2.5F, 0};
    CHECK(!greedy.sample(shortlist));  // another token may have 2.5 as well, and a lower id
    shortlist = {{{9, 2.5F, 0}, {4, 3, 0}, {8, 2.5F, 0}}, 2, 0};
    CHECK(greedy.sample(shortlist) == 8);
}

// Mixed requests must not switch the sampler with every request.
void test_patience(const char * path) {
    const Loaded       loaded(path);
    pyg::DeviceSampler sampler(loaded.inside(), true);
    int32_t            before = 0;
    for (int32_t round = 0; round < 4; round++) {
        int32_t n = 0;
        for (; !sampler.is_on(); n++) {
            sampler.prepare(pyg::LogitsNeed::LARGEST);
        }
        CHECK(n > 1 && n >= 2 * before - 1);
        before = n;
        sampler.prepare(pyg::LogitsNeed::ALL);
    }
    sampler.disable();
    pyg::DeviceSampler unwanted(loaded.inside(), false);
    for (int32_t i = 0; i < 10'000; i++) {
        sampler.prepare(pyg::LogitsNeed::LARGEST);
        unwanted.prepare(pyg::LogitsNeed::LARGEST);
        CHECK(!sampler.is_on() && !unwanted.is_on());
    }
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    test_the_first_of_the_largest();
    test_many_rows();
    test_summaries();
    test_in_a_context(argv[1]);
    test_shortlists_in_a_context(argv[1]);
    test_modes(argv[1]);
    test_needs(argv[1]);
    test_patience(argv[1]);
    return 0;
}
