#include "sampling/grammar/grammar_sampler.hpp"

#include "sampling/grammar/lazy_grammar.hpp"

#include <cmath>

namespace {

using pyg::GrammarConstraint;

struct GrammarSampler {
    size_t                             n_vocab;
    const GrammarConstraint            start;
    std::unique_ptr<GrammarConstraint> now = std::make_unique<GrammarConstraint>(start);
};

llama_sampler * wrapped(std::unique_ptr<GrammarSampler> grammar);

GrammarSampler & grammar_of(const llama_sampler * sampler) { return *static_cast<GrammarSampler *>(sampler->ctx); }

const char * name(const llama_sampler *) { return "grammar"; }

void accept(llama_sampler * sampler, llama_token token_id) { grammar_of(sampler).now->accept(token_id); }

void apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    const auto & [n_vocab, start, now] = grammar_of(sampler);
    if (!now->is_active()) {
        return;
    }
    if (candidates->size == 1) {  // a single candidate does not need the whole mask
        if (!now->allows(candidates->data[0].id)) {
            candidates->data[0].logit = -INFINITY;
        }
        return;
    }
    std::vector<bool> allowed(n_vocab);
    now->for_each_allowed([&](int32_t token_id) { allowed[static_cast<size_t>(token_id)] = true; });
    for (size_t i = 0; i < candidates->size; i++) {
        if (!allowed[static_cast<size_t>(candidates->data[i].id)]) {
            candidates->data[i].logit = -INFINITY;
        }
    }
}

void reset(llama_sampler * sampler) {
    auto & grammar = grammar_of(sampler);
    grammar.now    = std::make_unique<GrammarConstraint>(grammar.start);
}

llama_sampler * clone(const llama_sampler * sampler) {
    const auto & [n_vocab, start, now] = grammar_of(sampler);
    return wrapped(
        std::unique_ptr<GrammarSampler>(new GrammarSampler{n_vocab, start, std::make_unique<GrammarConstraint>(*now)}));
}

void free_grammar(llama_sampler * sampler) { delete &grammar_of(sampler); }

llama_sampler * wrapped(std::unique_ptr<GrammarSampler> grammar) {
    static llama_sampler_i interface = [] {
        llama_sampler_i made = {};
        made.name            = name;
        made.accept          = accept;
        made.apply           = apply;
        made.reset           = reset;
        made.clone           = clone;
        made.free            = free_grammar;
        return made;
    }();
    llama_sampler * sampler = llama_sampler_init(&interface, grammar.get());
    (void) grammar.release();
    return sampler;
}

}  // namespace

llama_sampler * pyg::make_grammar_sampler(const Model & model, const pyg_sampling & options) {
    const auto n_vocab = static_cast<size_t>(model.n_vocab());
    return wrapped(std::unique_ptr<GrammarSampler>(new GrammarSampler{n_vocab, {model, options, {}}}));
}
