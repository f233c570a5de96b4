// Sampler chains of the raw API. On unexpected input upstream asserts, sorts NaNs or reads past its buffers, so
// candidates and grammar steps are validated first.
#include "boundary/handles.hpp"

#include <climits>
#include <cmath>
#include <cstring>

namespace {

using pyg::fail;

llama_sampler * at(const pyg_sampler & sampler, int32_t index) {
    llama_sampler * found = index < 0 ? nullptr : llama_sampler_chain_get(sampler.chain.get(), index);
    if (!found) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no sampler %d: the chain has %d", index,
                   llama_sampler_chain_n(sampler.chain.get()));
    }
    return found;
}

template <class Body>
void for_each_named(const pyg_sampler & sampler, const char * name, Body && body) {
    for (int32_t i = 0; i < llama_sampler_chain_n(sampler.chain.get()); i++) {
        llama_sampler * one = llama_sampler_chain_get(sampler.chain.get(), i);
        if (std::strcmp(llama_sampler_name(one), name) == 0) {
            body(one);
        }
    }
}

void require_token(const pyg_sampler & sampler, int32_t token_id, int32_t index) {
    if (sampler.model) {
        sampler.model->require_token(token_id, index);
    } else if (token_id < 0) {  // the only check possible without a vocabulary
        throw fail(PYG_ERR_INVALID_PARAMETER, "%d is not a token id", token_id);
    }
}

void require_not_stuck(const pyg_sampler & sampler) {
    if (sampler.stuck) {
        throw fail(PYG_ERR_ENGINE, "an earlier token broke this sampler's grammar: reset the sampler");
    }
}

// Check all grammars first, so that the whole chain accepts a token or nothing does.
void require_allowed_by_grammars(const pyg_sampler & sampler, int32_t token_id) {
    for_each_named(sampler, "grammar", [&](llama_sampler * grammar) {
        llama_token_data       token  = {token_id, 0, 0};
        llama_token_data_array single = {&token, 1, -1, false};
        llama_sampler_apply(grammar, &single);
        if (token.logit < 0) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the grammar does not allow token %d here", token_id);
        }
    });
}

void accept(pyg_sampler & sampler, int32_t token_id) {
    require_allowed_by_grammars(sampler, token_id);
    try {
        llama_sampler_accept(sampler.chain.get(), token_id);
    } catch (const pyg::Failure & failure) {  // a lazy grammar rejected the text that triggered it
        sampler.stuck = true;
        throw fail(PYG_ERR_ENGINE, "the grammar cannot continue after token %d: %s", token_id, failure.message.c_str());
    }
}

// Copy one row of logits; the context is locked only for that.
void read_candidates(pyg_sampler & sampler, pyg_context * ctx, int32_t row) {
    pyg::with_lock(ctx, [&](const pyg::Context & context) {
        const int32_t n = context.has_logits ? context.n_outputs : 0;
        if (row >= n || row < -n) {
            throw fail(PYG_ERR_ENGINE, "there is no row %d of logits to sample from: the last decode left %d", row, n);
        }
        const int32_t n_vocab = context.model->n_vocab();
        if (sampler.model && sampler.model->n_vocab() != n_vocab) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the sampler's vocabulary has %d tokens, but the context's has %d",
                       sampler.model->n_vocab(), n_vocab);
        }
        const float * logits = llama_get_logits_ith(context.raw, row < 0 ? row : row - n);
        sampler.candidates.resize(static_cast<size_t>(n_vocab));
        for (int32_t id = 0; id < n_vocab; id++) {
            sampler.candidates[static_cast<size_t>(id)] = {id, logits[id], 0};
            if (std::isnan(logits[id]) || logits[id] == INFINITY) {
                throw fail(PYG_ERR_ENGINE,
                           "the logit of token %d is %f: the weights are damaged, or the computation overflowed", id,
                           logits[id]);
            }
        }
    });
}

int32_t selected(const llama_token_data_array & candidates) {
    if (candidates.selected < 0 || candidates.selected >= static_cast<int64_t>(candidates.size)) {
        throw fail(PYG_ERR_ENGINE, "this chain only filters candidates: end it with greedy, dist or another sampler "
                                   "that chooses one");
    }
    const llama_token_data & chosen = candidates.data[candidates.selected];
    if (std::isnan(chosen.logit) || chosen.logit == -INFINITY) {
        throw fail(PYG_ERR_ENGINE, "the chain has ruled out every token");
    }
    return chosen.id;
}

}  // namespace

pyg_status pyg_sampler_new(pyg_model * model, pyg_sampler ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        auto handle = std::make_unique<pyg_sampler>();
        if (model) {
            handle->model = pyg::shared_object(model);
        }
        handle->chain = pyg::new_sampler_chain();
        *out          = handle.release();
    });
}

pyg_status pyg_sampler_clone(pyg_sampler * sampler, pyg_sampler ** out, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        auto clone   = std::make_unique<pyg_sampler>();
        clone->model = handle.model;
        clone->stuck = handle.stuck;
        clone->chain.reset(llama_sampler_clone(handle.chain.get()));
        // Upstream copies the token this sampler expects to be accepted, but not the table it then looks up; accepting
        // an impossible token resets it.
        for_each_named(*clone, "adaptive-p", [](llama_sampler * one) { llama_sampler_accept(one, INT_MAX); });
        *out = clone.release();
    });
}

pyg_status pyg_sampler_close(pyg_sampler * sampler, pyg_error * err) { return pyg::close(sampler, err); }
void       pyg_sampler_free(pyg_sampler * sampler) { pyg::free_handle(sampler); }

pyg_status pyg_sampler_count(pyg_sampler * sampler, int32_t * out, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) { *out = llama_sampler_chain_n(handle.chain.get()); });
}

pyg_status pyg_sampler_name(pyg_sampler * sampler, int32_t index, char ** out, pyg_error * err) {
    return pyg::with(sampler, err,
                     [&](pyg_sampler & handle) { *out = pyg::owned_copy(llama_sampler_name(at(handle, index))); });
}

pyg_status pyg_sampler_remove(pyg_sampler * sampler, int32_t index, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        at(handle, index);
        llama_sampler_free(llama_sampler_chain_remove(handle.chain.get(), index));
    });
}

pyg_status pyg_sampler_seed(pyg_sampler * sampler, uint32_t * out, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) { *out = llama_sampler_get_seed(handle.chain.get()); });
}

pyg_status pyg_sampler_reset(pyg_sampler * sampler, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        llama_sampler_reset(handle.chain.get());
        handle.stuck = false;
    });
}

pyg_status pyg_sampler_accept(pyg_sampler * sampler, int32_t token_id, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        require_not_stuck(handle);
        require_token(handle, token_id, 0);
        accept(handle, token_id);
    });
}

pyg_status pyg_sampler_sample(pyg_sampler * sampler, pyg_context * ctx, int32_t row, int32_t * token_id,
                              pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        require_not_stuck(handle);
        read_candidates(handle, ctx, row);
        llama_token_data_array candidates = {handle.candidates.data(), handle.candidates.size(), -1, false};
        llama_sampler_apply(handle.chain.get(), &candidates);
        const int32_t chosen = selected(candidates);
        accept(handle, chosen);
        *token_id = chosen;
    });
}

pyg_status pyg_sampler_apply(pyg_sampler * sampler, int32_t * token_ids, float * logits, float * probs, int32_t n,
                             int32_t * n_out, int32_t * selected, pyg_error * err) {
    return pyg::with(sampler, err, [&](pyg_sampler & handle) {
        require_not_stuck(handle);
        if (n < 1) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "a chain needs at least one candidate, not %d", n);
        }
        handle.candidates.resize(static_cast<size_t>(n));
        for (int32_t i = 0; i < n; i++) {
            require_token(handle, token_ids[i], i);
            if (std::isnan(logits[i]) || logits[i] == INFINITY) {
                throw fail(PYG_ERR_INVALID_PARAMETER, "the logit at index %d is %f: a number or -inf was expected", i,
                           logits[i]);
            }
            handle.candidates[static_cast<size_t>(i)] = {token_ids[i], logits[i], probs[i]};
        }
        llama_token_data_array candidates = {handle.candidates.data(), handle.candidates.size(), -1, false};
        llama_sampler_apply(handle.chain.get(), &candidates);
        for (size_t i = 0; i < candidates.size; i++) {
            token_ids[i] = candidates.data[i].id;
            logits[i]    = candidates.data[i].logit;
            probs[i]     = candidates.data[i].p;
        }
        *n_out    = static_cast<int32_t>(candidates.size);
        *selected = static_cast<int32_t>(candidates.selected);
    });
}
