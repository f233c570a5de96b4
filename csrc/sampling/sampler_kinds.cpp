// The samplers of a chain. Each validates its arguments, because upstream does not.
#include "boundary/handles.hpp"
#include "sampling/grammar/grammar_sampler.hpp"
#include "sampling/sampler_chain.hpp"

#include <cfloat>
#include <climits>
#include <cmath>
#include <initializer_list>

namespace {

using pyg::fail;
using pyg::Model;
using pyg::require_in;
using pyg::SMALLEST_TEMPERATURE;

constexpr int32_t MAX_LAST_N = 1 << 20;  // samplers that look back allocate a buffer of this many tokens

// An argument and its range.
struct Argument {
    template <class Number>
    Argument(const char * name, Number value, double low = 0, double high = FLT_MAX)
        : name(name), value(value), low(low), high(high) {}

    const char * name;
    double       value, low, high;
};

const Model & require_model(const pyg_sampler & sampler, const char * who) {
    if (!sampler.model) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s needs a vocabulary: make the sampler with a model", who);
    }
    if (llama_vocab_type(sampler.model->vocab) == LLAMA_VOCAB_TYPE_NONE) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s needs a vocabulary, but %s has none", who,
                   sampler.model->path.c_str());
    }
    return *sampler.model;
}

float temperature(float t) { return t < SMALLEST_TEMPERATURE ? 0 : t; }

// Create a sampler with `make` and add it to the chain, which owns it. PYG_ERR_INVALID_PARAMETER for arguments out of
// range.
template <class Make>
pyg_status add(pyg_sampler * sampler, pyg_error * err, std::initializer_list<Argument> arguments, Make && make) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        for (const Argument & argument : arguments) {
            require_in(argument.name, argument.value, argument.low, argument.high);
        }
        llama_sampler_chain_add(handle.chain.get(), make(handle));
    });
}

// Options of a grammar in a chain.
pyg_sampling grammar_options(const char * grammar, const char * root) {
    pyg_sampling options = {};
    options.grammar      = grammar;
    options.grammar_root = root;
    return options;
}

}  // namespace

pyg_status pyg_sampler_add_greedy(pyg_sampler * sampler, pyg_error * err) {
    return add(sampler, err, {}, [](auto &) { return llama_sampler_init_greedy(); });
}

pyg_status pyg_sampler_add_dist(pyg_sampler * sampler, uint32_t seed, pyg_error * err) {
    return add(sampler, err, {}, [&](auto &) { return llama_sampler_init_dist(seed); });
}

pyg_status pyg_sampler_add_top_k(pyg_sampler * sampler, int32_t k, pyg_error * err) {
    return add(sampler, err, {{"k", k}}, [&](auto &) { return llama_sampler_init_top_k(k); });
}

pyg_status pyg_sampler_add_top_p(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err) {
    return add(sampler, err, {{"p", p, 0, 1}}, [&](auto &) { return llama_sampler_init_top_p(p, min_keep); });
}

pyg_status pyg_sampler_add_min_p(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err) {
    return add(sampler, err, {{"p", p, 0, 1}}, [&](auto &) { return llama_sampler_init_min_p(p, min_keep); });
}

pyg_status pyg_sampler_add_typical(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err) {
    return add(sampler, err, {{"p", p, 0, 1}}, [&](auto &) { return llama_sampler_init_typical(p, min_keep); });
}

pyg_status pyg_sampler_add_temp(pyg_sampler * sampler, float t, pyg_error * err) {
    return add(sampler, err, {{"t", t}}, [&](auto &) { return llama_sampler_init_temp(temperature(t)); });
}

pyg_status pyg_sampler_add_temp_ext(pyg_sampler * sampler, float t, float delta, float exponent, pyg_error * err) {
    return add(sampler, err, {{"t", t}, {"delta", delta}, {"exponent", exponent}},
               [&](auto &) { return llama_sampler_init_temp_ext(temperature(t), delta, exponent); });
}

pyg_status pyg_sampler_add_xtc(pyg_sampler * sampler, float p, float t, size_t min_keep, uint32_t seed,
                               pyg_error * err) {
    return add(sampler, err, {{"p", p, 0, 1}, {"t", t, 0, 1}},
               [&](auto &) { return llama_sampler_init_xtc(p, t, min_keep, seed); });
}

pyg_status pyg_sampler_add_top_n_sigma(pyg_sampler * sampler, float n, pyg_error * err) {
    return add(sampler, err, {{"n", n}}, [&](auto &) { return llama_sampler_init_top_n_sigma(n); });
}

pyg_status pyg_sampler_add_mirostat(pyg_sampler * sampler, uint32_t seed, float tau, float eta, int32_t m,
                                    pyg_error * err) {
    return add(sampler, err, {{"tau", tau}, {"eta", eta}, {"m", m, 1, INT_MAX}}, [&](const pyg_sampler & handle) {
        return llama_sampler_init_mirostat(require_model(handle, "mirostat").n_vocab(), seed, tau, eta, m);
    });
}

pyg_status pyg_sampler_add_mirostat_v2(pyg_sampler * sampler, uint32_t seed, float tau, float eta, pyg_error * err) {
    return add(sampler, err, {{"tau", tau}, {"eta", eta}},
               [&](auto &) { return llama_sampler_init_mirostat_v2(seed, tau, eta); });
}

pyg_status pyg_sampler_add_grammar(pyg_sampler * sampler, const char * grammar, const char * root, pyg_error * err) {
    return add(sampler, err, {}, [&](const pyg_sampler & handle) {
        return pyg::make_grammar_sampler(require_model(handle, "a grammar"), grammar_options(grammar, root));
    });
}

pyg_status pyg_sampler_add_grammar_lazy(pyg_sampler * sampler, const char * grammar, const char * root,
                                        const char ** trigger_patterns, size_t n_patterns,
                                        const int32_t * trigger_tokens, size_t n_tokens, pyg_error * err) {
    return add(sampler, err, {}, [&](const pyg_sampler & handle) {
        const Model & model = require_model(handle, "a grammar");
        if (n_patterns + n_tokens == 0) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "a lazy grammar needs a pattern or a token to trigger it");
        }
        require_in("the number of triggers", static_cast<double>(n_patterns + n_tokens), 1, INT_MAX);
        pyg_sampling options       = grammar_options(grammar, root);
        options.grammar_lazy       = true;
        options.trigger_patterns   = trigger_patterns;
        options.n_trigger_patterns = static_cast<int32_t>(n_patterns);
        options.trigger_token_ids  = trigger_tokens;
        options.n_trigger_tokens   = static_cast<int32_t>(n_tokens);
        return pyg::make_grammar_sampler(model, options);
    });
}

pyg_status pyg_sampler_add_penalties(pyg_sampler * sampler, int32_t last_n, float repeat, float frequency,
                                     float presence, pyg_error * err) {
    return add(sampler, err,
               {{"last_n", last_n, 0, MAX_LAST_N},
                {"repeat", repeat, FLT_MIN},
                {"frequency", frequency, -FLT_MAX},
                {"presence", presence, -FLT_MAX}},
               [&](const pyg_sampler & handle) {
                   // Upstream uses the size only on a GPU, where our chains never run.
                   const int32_t n_vocab = handle.model ? handle.model->n_vocab() : 0;
                   return llama_sampler_init_penalties(n_vocab, last_n, repeat, frequency, presence);
               });
}

pyg_status pyg_sampler_add_dry(pyg_sampler * sampler, float multiplier, float base, int32_t allowed_length,
                               int32_t last_n, const char ** breakers, size_t n_breakers, pyg_error * err) {
    const std::initializer_list<Argument> arguments = {{"multiplier", multiplier},
                                                       {"base", base, 1},
                                                       {"allowed_length", allowed_length, 0, INT_MAX},
                                                       {"last_n", last_n, 0, MAX_LAST_N}};
    return add(sampler, err, arguments, [&](const pyg_sampler & handle) {
        const llama_vocab * vocab = require_model(handle, "dry").vocab;
        for (size_t i = 0; i < n_breakers; i++) {
            pyg::require_breaker("a sequence breaker", breakers[i]);
        }
        return llama_sampler_init_dry(vocab, multiplier, base, allowed_length, last_n, breakers, n_breakers);
    });
}

pyg_status pyg_sampler_add_adaptive_p(pyg_sampler * sampler, float target, float decay, uint32_t seed,
                                      pyg_error * err) {
    return add(sampler, err, {{"target", target, -1, 1}, {"decay", decay, 0, 0.99f}},
               [&](auto &) { return llama_sampler_init_adaptive_p(target, decay, seed); });
}

pyg_status pyg_sampler_add_logit_bias(pyg_sampler * sampler, const int32_t * token_ids, const float * biases, int32_t n,
                                      pyg_error * err) {
    return add(sampler, err, {{"the number of biases", n, 0, INT_MAX}}, [&](const pyg_sampler & handle) {
        std::vector<llama_logit_bias> pairs;
        for (int32_t i = 0; i < n; i++) {
            if (handle.model) {
                handle.model->require_token(token_ids[i], i);
            }
            if (std::isnan(biases[i]) || biases[i] == INFINITY) {
                throw fail(PYG_ERR_INVALID_PARAMETER, "the bias of token %d is %f: a number or -inf was expected",
                           token_ids[i], biases[i]);
            }
            pairs.push_back({token_ids[i], biases[i]});
        }
        return llama_sampler_init_logit_bias(handle.model ? handle.model->n_vocab() : 0, n, pairs.data());
    });
}

pyg_status pyg_sampler_add_infill(pyg_sampler * sampler, pyg_error * err) {
    return add(sampler, err, {}, [&](const pyg_sampler & handle) {
        const llama_vocab * vocab = require_model(handle, "infill").vocab;
        if (llama_vocab_eot(vocab) == LLAMA_TOKEN_NULL && llama_vocab_eos(vocab) == LLAMA_TOKEN_NULL) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "infill needs an end-of-text token, but this vocabulary has none");
        }
        return llama_sampler_init_infill(vocab);
    });
}
