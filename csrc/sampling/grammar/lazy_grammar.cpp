#include "sampling/grammar/lazy_grammar.hpp"

#include "sampling/grammar/forced_tokens.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>

namespace {

using pyg::fail;

// Literal text of a pattern without special characters; else "".
std::string literal_of(const std::string & pattern) {
    std::string text;
    for (size_t i = 0; i < pattern.size(); i++) {
        const bool escaped = pattern[i] == '\\' && i + 1 < pattern.size();
        i += escaped;
        const bool is_plain = escaped ? std::ispunct(static_cast<unsigned char>(pattern[i])) != 0
                                      : std::strchr("^$.*+?()[]{}|\\", pattern[i]) == nullptr;
        if (!is_plain) {
            return "";
        }
        text += pattern[i];
    }
    return text;
}

std::vector<int32_t> sorted_union(const std::vector<int32_t> & a, const std::vector<int32_t> & b) {
    std::vector<int32_t> both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    both.erase(std::unique(both.begin(), both.end()), both.end());
    return both;
}

}  // namespace

namespace pyg {

GrammarConstraint::GrammarConstraint(const Model & model, const pyg_sampling & options,
                                     const std::vector<int32_t> & stop_token_ids)
    : grammar_(model.grammars.get(model.vocab, options.grammar, options.grammar_root)), matcher_(grammar_),
      stop_ids_(sorted_union(grammar_->trie().ends(), stop_token_ids)), waiting_(options.grammar_lazy),
      trigger_token_ids_(options.trigger_token_ids, options.trigger_token_ids + options.n_trigger_tokens) {
    if (options.grammar_prefix && !matcher_.accept_text(options.grammar_prefix)) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar does not match its prefix: \"%s\"", options.grammar_prefix);
    }
    for (int32_t i = 0; i < options.n_trigger_patterns; i++) {
        const std::string pattern = options.trigger_patterns[i];
        triggers_.push_back({literal_of(pattern), TriggerPattern(pattern)});
    }
    for (int32_t i = 0; i < options.n_trigger_tokens; i++) {
        model.require_token(options.trigger_token_ids[i], i);
    }
}

bool GrammarConstraint::allows(int32_t token_id) {
    return is_end(token_id) ? matcher_.is_complete() : matcher_.allows(token_id);
}

std::vector<int32_t> GrammarConstraint::forced_tokens(size_t n_max) {
    return waiting_ ? std::vector<int32_t>() : forced_text_tokens(*grammar_, matcher_, n_max);
}

void GrammarConstraint::accept(int32_t token_id) {
    if (is_end(token_id)) {
        return;
    }
    if (waiting_) {
        check_triggers(token_id);
    } else if (!matcher_.accept(token_id)) {
        throw fail(PYG_ERR_ENGINE, "token %d was sampled, but the grammar does not allow it", token_id);
    }
}

void GrammarConstraint::check_triggers(int32_t token_id) {
    const std::string & piece = grammar_->trie().text(token_id);
    tokens_.emplace_back(text_.size(), token_id);
    text_ += piece;
    const auto & named = trigger_token_ids_;
    if (std::find(named.begin(), named.end(), token_id) != named.end()) {
        activate_at(text_.size() - piece.size());
        return;
    }
    for (const Trigger & trigger : triggers_) {
        const size_t start = trigger.find(text_, piece.size());
        if (start != std::string::npos) {
            activate_at(start);
            return;
        }
    }
}

// Activate the grammar and feed it the text from `start` on: the rest of the token it lies in, then whole tokens.
void GrammarConstraint::activate_at(size_t start) {
    waiting_ = false;
    for (size_t i = 0; i < tokens_.size(); i++) {
        const auto [begin, token_id] = tokens_[i];
        const size_t end             = i + 1 < tokens_.size() ? tokens_[i + 1].first : text_.size();
        const bool   is_whole        = begin >= start;
        const bool   is_inside       = !is_whole && end > start;
        if ((is_whole && !matcher_.accept(token_id)) ||
            (is_inside && !matcher_.accept_text(text_.substr(start, end - start)))) {
            throw fail(PYG_ERR_GRAMMAR, "the text that triggered the lazy grammar does not match it: \"%s\"",
                       text_.substr(start).c_str());
        }
    }
    text_   = {};
    tokens_ = {};
}

size_t GrammarConstraint::Trigger::find(const std::string & text, size_t n_new) const {
    if (!literal.empty()) {
        const size_t reach = n_new + literal.size();
        return text.find(literal, text.size() - std::min(text.size(), reach));
    }
    return pattern.find(text);
}

}  // namespace pyg
