// Greedy sampling in the graph, here on the CPU backend: equals TokenSampler's. argv[1]: a small generative model.
#include "boundary/handles.hpp"
#include "ggml-cpp.h"
#include "sampling/device_sampler.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace {

constexpr float INF     = std::numeric_limits<float>::infinity();
constexpr float NOT_ONE = std::numeric_limits<float>::quiet_NaN();

using Row = std::vector<float>;

// Results of argmax_first for rows of the same length.
std::vector<float> first_maxima(const std::vector<Row> & rows) {
    const auto             n = static_cast<int64_t>(rows[0].size()), n_rows = static_cast<int64_t>(rows.size());
    const ggml_context_ptr context(ggml_init({1 << 20, nullptr, true}));
    ggml_tensor *          input  = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n, n_rows);
    ggml_tensor *          output = pyg::argmax_first(context.get(), input);
    ggml_cgraph *          graph  = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, output);
    const ggml_backend_ptr        backend(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(context.get(), backend.get()));
    for (size_t i = 0; i < rows.size(); i++) {
        ggml_backend_tensor_set(input, rows[i].data(), i * input->nb[1], input->nb[1]);
    }
    CHECK(ggml_backend_graph_compute(backend.get(), graph) == GGML_STATUS_SUCCESS);
    std::vector<float> result(rows.size());
    ggml_backend_tensor_get(output, result.data(), 0, result.size() * sizeof(float));
    return result;
}

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
        sampler.prepare(true);
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
    uint64_t n_rows = 0;
    for (const auto & step : steps) {
        sampler.prepare(true);
        decode(there.inside().raw, step);
        decode(here.inside().raw, step);
        for (size_t i = 0; i < step.size(); i++) {
            if (step[i].output) {
                const auto index = static_cast<int32_t>(i);
                CHECK(sampler.token(index) == likeliest(here.inside().raw, index, n_vocab));
                CHECK(!llama_get_sampled_logits_ith(there.inside().raw, index));  // no row was copied
                n_rows++;
            }
        }
    }
    CHECK(sampler.n_sampled() == n_rows);

    sampler.prepare(false);
    CHECK(!sampler.is_on());
    const std::vector<Token> last = {{74, 64, 0, true}};
    decode(there.inside().raw, last);
    decode(here.inside().raw, last);
    CHECK(likeliest(there.inside().raw, 0, n_vocab) == likeliest(here.inside().raw, 0, n_vocab));
}

// Mixed requests must not switch the sampler with every request.
void test_patience(const char * path) {
    const Loaded       loaded(path);
    pyg::DeviceSampler sampler(loaded.inside(), true);
    int32_t            before = 0;
    for (int32_t round = 0; round < 4; round++) {
        int32_t n = 0;
        for (; !sampler.is_on(); n++) {
            sampler.prepare(true);
        }
        CHECK(n > 1 && n >= 2 * before - 1);
        before = n;
        sampler.prepare(false);
    }
    sampler.disable();
    pyg::DeviceSampler unwanted(loaded.inside(), false);
    for (int32_t i = 0; i < 10'000; i++) {
        sampler.prepare(true);
        unwanted.prepare(true);
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
    test_in_a_context(argv[1]);
    test_patience(argv[1]);
    return 0;
}
