// Chains on shortlists compared, bit by bit, with the same chains on whole rows. argv[1]: a model with a vocabulary.
#include "boundary/handles.hpp"
#include "sampling/sampler_chain.hpp"
#include "sampling/shortlist.hpp"
#include "sampling/token_sampler.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

using Row = std::vector<float>;

std::mt19937 g_random(20);

float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(g_random); }
int   below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(g_random); }

// --- Rows ------------------------------------------------------------------------------------------------

Row bell_row(int n, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    Row                             row(static_cast<size_t>(n));
    std::generate(row.begin(), row.end(), [&] { return normal(g_random); });
    return row;
}

// As a language model's: some dozens of tokens far above all others, most of them with low ids.
Row peaked_row(int n) {
    Row       row  = bell_row(n, 2);
    const int n_up = 5 + below(60);
    for (int i = 0; i < n_up; i++) {
        row[static_cast<size_t>(below(i % 2 ? n : std::min(n, 2000)))] = uniform(8, 24);
    }
    return row;
}

Row tied_row(int n) {
    Row row = bell_row(n, 3);
    for (float & logit : row) {
        logit = std::round(logit * 4) / 4;
    }
    return row;
}

Row row_with_impossible_tokens(int n) {
    Row row = peaked_row(n);
    for (float & logit : row) {
        logit = below(4) ? logit : -INF;
    }
    return row;
}

// Ties among the likeliest only.
Row row_with_tied_peaks(int n) {
    Row row = peaked_row(n);
    for (int i = 0; i < 6; i++) {
        row[static_cast<size_t>(below(n))] = 20;
    }
    return row;
}

Row any_row(int n) {
    switch (below(8)) {
    case 0:
        return bell_row(n, 0.01F);
    case 1:
        return bell_row(n, 3);
    case 2:
        return tied_row(n);
    case 3:
        return row_with_impossible_tokens(n);
    case 4:
        return row_with_tied_peaks(n);
    case 5:
        return Row(static_cast<size_t>(n), 1.5F);
    default:
        return peaked_row(n);
    }
}

// --- Options ---------------------------------------------------------------------------------------------

pyg_sampling plain_options() {
    pyg_sampling options = pyg_request_default_options().sampling;
    options.temperature  = 0.8F;
    options.seed         = static_cast<uint32_t>(g_random());
    return options;
}

struct AnyOptions {
    pyg_sampling              options = plain_options();
    std::vector<const char *> names;

    AnyOptions() {
        const auto maybe = [](auto & member, auto value) {
            if (below(3) == 0) {
                member = value;
            }
        };
        options.temperature = below(8) ? uniform(0.1F, 2) : 0;
        maybe(options.top_k, below(10) ? 1 + below(100) : 400 + below(400));
        maybe(options.top_p, below(10) ? uniform(0.05F, 0.999F) : 0.0F);
        maybe(options.min_p, below(10) ? uniform(0.001F, 0.3F) : 1.0F);
        if (below(4) == 0) {
            maybe(options.typical_p, uniform(0.2F, 0.9F));
            maybe(options.top_n_sigma, uniform(0.5F, 3));
            maybe(options.dynatemp_range, 0.5F);
            maybe(options.mirostat, 2);
            maybe(options.adaptive_target, 0.5F);
        }
        if (below(3) == 0) {
            maybe(options.xtc_probability, 0.6F);
            maybe(options.repeat_penalty, below(4) ? 1.3F : 0.8F);
            maybe(options.frequency_penalty, below(4) ? 0.5F : -0.5F);
            maybe(options.presence_penalty, 0.25F);
            maybe(options.dry_multiplier, 0.8F);
            maybe(options.min_keep, below(20));
        }
        if (below(4) == 0) {
            for (int32_t i = 0; const char * name = pyg_sampler_order(i); i++) {
                names.push_back(name);
            }
            std::shuffle(names.begin(), names.end(), g_random);
            options.samplers   = names.data();
            options.n_samplers = static_cast<int32_t>(names.size());
        }
    }
};

// --- Comparison ------------------------------------------------------------------------------------------

std::vector<llama_token_data> candidates_of(const Row & row) {
    std::vector<llama_token_data> result;
    for (size_t id = 0; id < row.size(); id++) {
        result.push_back({static_cast<llama_token>(id), row[id], 0});
    }
    return result;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

void check_equal(const llama_token_data_array & found, const llama_token_data_array & expected, bool all) {
    const llama_token_data &one = found.data[found.selected], &other = expected.data[expected.selected];
    CHECK(one.id == other.id && same_bits(one.logit, other.logit) && same_bits(one.p, other.p));
    if (!all) {
        return;
    }
    CHECK(found.size == expected.size);
    for (size_t i = 0; i < found.size; i++) {
        CHECK(found.data[i].id == expected.data[i].id);
        CHECK(same_bits(found.data[i].logit, expected.data[i].logit));
        CHECK(same_bits(found.data[i].p, expected.data[i].p));
    }
}

struct Counts {
    int n = 0, n_short = 0;
};

// Each chain accepts the same tokens, most of the likeliest of a row.
void accept_likeliest(const Row & row, std::initializer_list<llama_sampler *> chains) {
    auto       candidates = candidates_of(row);
    const auto n          = static_cast<ptrdiff_t>(std::min<size_t>(static_cast<size_t>(1 + below(60)), row.size()));
    std::partial_sort(candidates.begin(), candidates.begin() + n, candidates.end(),
                      [](const auto & a, const auto & b) { return a.logit > b.logit; });
    for (ptrdiff_t i = 0; i < n; i++) {
        for (llama_sampler * chain : chains) {
            if (candidates[static_cast<size_t>(i)].id % 8 != 0) {
                llama_sampler_accept(chain, candidates[static_cast<size_t>(i)].id);
            }
        }
    }
}

// Two equal chains, one on whole rows, for a sequence of rows: a generator that was drawn from once too often would
// show in the tokens that follow.
Counts compare(const pyg::Model & model, const pyg_sampling & options, const std::function<Row()> & make_row, int n) {
    const pyg::UniqueSampler chain = pyg::make_sampler_chain(model, 64, options);
    const pyg::UniqueSampler other = pyg::make_sampler_chain(model, 64, options);
    Counts                   counts;
    if (!chain) {
        return counts;
    }
    const pyg::Truncation truncation(chain.get(), options);
    pyg::BlockMaxima      maxima;
    pyg::Shortlist        shortlist;
    Row                   row;
    for (; counts.n < n; counts.n++) {
        if (counts.n % 2 == 0) {
            row = make_row();
        } else {
            accept_likeliest(row, {chain.get(), other.get()});  // penalties lower these now
        }
        auto                   all      = candidates_of(row);
        llama_token_data_array expected = {all.data(), all.size(), -1, false};
        llama_sampler_apply(other.get(), &expected);

        auto                   again = candidates_of(row);
        llama_token_data_array found;
        const bool             is_short = maxima.scan(row.data(), static_cast<int32_t>(row.size())) &&
                                          truncation.apply(chain.get(), maxima, shortlist, found);
        if (!is_short) {
            found = {again.data(), again.size(), -1, false};
            llama_sampler_apply(chain.get(), &found);
        }
        check_equal(found, expected, truncation.truncates());
        counts.n_short += is_short;
        llama_sampler_accept(chain.get(), found.data[found.selected].id);
        llama_sampler_accept(other.get(), expected.data[expected.selected].id);
    }
    return counts;
}

void test_random_options(const pyg::Model & model) {
    Counts total;
    for (int round = 0; round < 600; round++) {
        const AnyOptions chosen;
        const int        n_vocab = below(3) ? 1 + below(3000) : model.n_vocab();
        const Counts     counts  = compare(model, chosen.options, [&] { return any_row(n_vocab); }, 4);
        total.n += counts.n;
        total.n_short += counts.n_short;
    }
    std::printf("random options: %d of %d rows with a shortlist\n", total.n_short, total.n);
    CHECK(total.n_short > total.n / 8);
}

// Common options on common rows nearly always take the short way.
void test_common_options(const pyg::Model & model) {
    const auto check = [&](const char * name, const std::function<void(pyg_sampling &)> & change) {
        pyg_sampling options = plain_options();
        change(options);
        const Counts counts = compare(model, options, [&] { return peaked_row(20'000); }, 60);
        std::printf("%s: %d of %d rows with a shortlist\n", name, counts.n_short, counts.n);
        CHECK(counts.n_short > counts.n * (options.repeat_penalty > 1 || options.presence_penalty > 0 ? 4 : 9) / 10);
    };
    check("top_k", [](auto & options) { options.top_k = 40; });
    check("top_p", [](auto & options) { options.top_p = 0.95F; });
    check("min_p", [](auto & options) { options.min_p = 0.05F; });
    check("penalties and top_k", [](auto & options) {
        options.top_k          = 40;
        options.top_p          = 0.9F;
        options.repeat_penalty = 1.1F;
    });
    check("penalties and min_p", [](auto & options) {
        options.min_p            = 0.05F;
        options.presence_penalty = 1;
    });
    check("greedy with penalties", [](auto & options) {
        options.temperature    = 0;
        options.repeat_penalty = 1.1F;
    });
    static const char * const order[] = {"temperature", "top_p"};
    check("temperature first", [](auto & options) {
        options.top_p      = 0.95F;
        options.samplers   = order;
        options.n_samplers = 2;
    });
}

// Penalties that lower the likeliest below what was collected, and change all probabilities.
void test_strong_penalties(const pyg::Model & model) {
    for (const auto & [top_k, top_p, min_p] : {std::tuple(0, 0.9F, 0.0F), {0, 1.0F, 0.05F}, {60, 1.0F, 0.0F}}) {
        pyg_sampling options      = plain_options();
        options.top_k             = top_k;
        options.top_p             = top_p;
        options.min_p             = min_p;
        options.frequency_penalty = 12;
        compare(model, options, [&] { return peaked_row(20'000); }, 40);
    }
}

// Terms that are left out of the sum must not change it, whatever the row.
void test_sums() {
    pyg::BlockMaxima maxima;
    for (int round = 0; round < 400; round++) {
        const Row   row         = any_row(1 + below(20'000));
        const float temperature = below(2) ? 1 : uniform(0.05F, 3);
        CHECK(maxima.scan(row.data(), static_cast<int32_t>(row.size())));
        const float largest = *std::max_element(row.begin(), row.end()) / temperature;
        if (largest == -INF) {
            continue;
        }
        float sum = 0;
        for (const float logit : row) {
            sum += expf(logit / temperature - largest);
        }
        CHECK(same_bits(maxima.sum_of_exp(temperature), sum));
    }
}

void test_thresholds() {
    pyg::BlockMaxima maxima;
    pyg::Shortlist   shortlist;
    for (int round = 0; round < 300; round++) {
        const Row    row = any_row(1 + below(20'000));
        const size_t n   = static_cast<size_t>(below(600));
        CHECK(maxima.scan(row.data(), static_cast<int32_t>(row.size())));
        const float threshold = maxima.threshold(n);
        if (threshold == -INF) {
            continue;
        }
        maxima.collect(threshold, shortlist);
        CHECK(shortlist.candidates.size() >= n && shortlist.bound < threshold);
        auto next = shortlist.candidates.begin();
        for (size_t id = 0; id < row.size(); id++) {
            if (next != shortlist.candidates.end() && next->id == static_cast<llama_token>(id)) {
                CHECK(same_bits(next->logit, row[id]));
                ++next;
            } else {
                CHECK(row[id] <= shortlist.bound);
            }
        }
        CHECK(next == shortlist.candidates.end());
    }
}

void test_first_of_largest() {
    pyg::BlockMaxima maxima;
    for (int round = 0; round < 300; round++) {
        const Row row = any_row(1 + below(20'000));
        CHECK(maxima.scan(row.data(), static_cast<int32_t>(row.size())));
        const auto first = std::max_element(row.begin(), row.end());
        CHECK(maxima.largest() == *first);
        CHECK(maxima.first_of_largest() == (*first == -INF ? -1 : static_cast<int32_t>(first - row.begin())));
    }
}

// Rows that are no rows: refused by the scan, and reported by the sampler as before.
void test_unusable_rows(const pyg::Model & model) {
    pyg::BlockMaxima maxima;
    pyg_sampling     options = plain_options();
    options.top_k            = 40;
    for (const float wrong : {INF, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
        for (const int at : {0, 17, 4000, 4095, 4099}) {
            Row row                      = bell_row(4100, 3);
            row[static_cast<size_t>(at)] = wrong;
            CHECK(!maxima.scan(row.data(), 4100));
            pyg::TokenSampler sampler(model, 64, options, {});
            pyg_error         error;
            CHECK(pyg::guard(&error, [&] { sampler.sample(row.data(), 4100); }) == PYG_ERR_ENGINE);
        }
    }
    Row huge(4100, 2e38F);  // usable, but their sum overflows
    huge[9] = 2.1e38F;
    CHECK(!maxima.scan(huge.data(), 4100));
    CHECK(pyg::TokenSampler(model, 64, options, {}).sample(huge.data(), 4100) == 9);

    Row               nothing(4100, -INF);
    pyg::TokenSampler sampler(model, 64, options, {});
    pyg_error         error;
    CHECK(maxima.scan(nothing.data(), 4100) && maxima.first_of_largest() == -1 && maxima.threshold(1) == -INF);
    CHECK(pyg::guard(&error, [&] { sampler.sample(nothing.data(), 4100); }) == PYG_ERR_INVALID_PARAMETER);
}

// Through the sampler, with biases, and the logprobs of what its chain kept.
void test_the_sampler(const pyg::Model & model) {
    const std::vector<int32_t> ids     = {3, 100, 200};
    const std::vector<float>   values  = {4, -INF, -2};
    pyg_sampling               options = plain_options();
    options.top_k                      = 30;
    options.bias_token_ids             = ids.data();
    options.bias_values                = values.data();
    options.n_bias                     = 3;
    pyg::TokenSampler        sampler(model, 64, options, {});
    const pyg::UniqueSampler chain = pyg::make_sampler_chain(model, 64, options);
    for (int round = 0; round < 50; round++) {
        Row row    = peaked_row(model.n_vocab());
        Row biased = row;
        for (const llama_logit_bias & each : pyg::make_biases(model, options)) {
            biased[static_cast<size_t>(each.token)] += each.bias;
        }
        auto                   all      = candidates_of(biased);
        llama_token_data_array expected = {all.data(), all.size(), -1, false};
        llama_sampler_apply(chain.get(), &expected);
        const Row     before = row;
        pyg::Logprobs processed;
        CHECK(sampler.sample(row.data(), model.n_vocab(), 30, &processed) == expected.data[expected.selected].id);
        CHECK(row == before);
        const float p = expected.data[expected.selected].p;
        CHECK(std::abs(processed.logprob - std::log(p)) < 1e-5F);
        CHECK(std::count(processed.top_ids.begin(), processed.top_ids.end(), -1) == 0);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    pyg_model *             handle        = nullptr;
    const pyg_model_options model_options = pyg_model_default_options();
    CHECK_OK(pyg_model_new(argv[1], &model_options, &handle, &err), err);
    const pyg::Model & model = *handle->object;
    test_sums();
    test_first_of_largest();
    test_thresholds();
    test_common_options(model);
    test_strong_penalties(model);
    test_random_options(model);
    test_unusable_rows(model);
    test_the_sampler(model);
    pyg_model_free(handle);
    return 0;
}
