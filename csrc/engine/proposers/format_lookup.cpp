#include "engine/proposers/format_lookup.hpp"

#include "engine/proposers/prompt_lookup.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace {

constexpr int32_t        END      = -1;
constexpr std::ptrdiff_t N_BEFORE = 8;        // tokens of the prompt before an output
constexpr size_t         MAX_OWN  = 1 << 12;  // tokens of an output that are of interest

}  // namespace

namespace pyg {

void FormatOutputs::add(const std::vector<int32_t> & tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tokens_.size() + tokens.size() > MAX_TOKENS) {
        tokens_.clear();
        index_ = {};
    }
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    tokens_.push_back(END);
    index_.extend(tokens_);
}

void FormatOutputs::propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const NgramIndex::Match           match = index_.find(tokens_, tokens);
    for (size_t i = 0; match.next > 0 && i < n_max && tokens_[match.next + i] != END; i++) {
        proposal.push_back({tokens_[match.next + i], lookup_evidence(match.length + i)});
    }
}

std::shared_ptr<FormatOutputs> FormatMemory::of(uint64_t key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::find_if(formats_.begin(), formats_.end(), [&](const auto & each) { return each.first == key; });
    if (found == formats_.end()) {
        if (formats_.size() == MAX_FORMATS) {
            formats_.erase(formats_.begin());
        }
        formats_.emplace_back(key, std::make_shared<FormatOutputs>());
        found = formats_.end() - 1;
    }
    std::rotate(found, found + 1, formats_.end());
    return formats_.back().second;
}

void FormatMemory::clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    formats_.clear();
}

FormatLookup::FormatLookup(std::shared_ptr<FormatOutputs> outputs, const std::vector<int32_t> & prompt)
    : outputs_(std::move(outputs)),
      own_(prompt.end() - std::min(N_BEFORE, static_cast<std::ptrdiff_t>(prompt.size())), prompt.end()),
      n_of_prompt_(own_.size()) {}

FormatLookup::~FormatLookup() {
    if (own_.size() == n_of_prompt_) {
        return;
    }
    try {
        outputs_->add(own_);
    } catch (const std::bad_alloc &) {}  // a later request guesses less
}

void FormatLookup::sampled(const int32_t * token_ids, size_t n) {
    if (own_.size() < MAX_OWN) {
        own_.insert(own_.end(), token_ids, token_ids + n);
    }
}

}  // namespace pyg
