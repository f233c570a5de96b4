// Guesses of a draft model, as a proposer of one request. The engine asks the model for several requests at once.
#pragma once

#include "engine/proposers/proposer.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace pyg {

// How often a draft model was right lately, over all requests: what new ones assume. The engine's thread writes, any
// thread reads.
class DraftRecord {
  public:
    ByEvidence probability() const {
        ByEvidence result;
        std::transform(right_.begin(), right_.end(), result.begin(), [](const auto & each) { return each.load(); });
        return result;
    }

    double chance() const { return chance_.load(); }  // of any evidence

    void add(uint8_t evidence, bool is_right) {
        constexpr double RATE = 0.02;
        for (std::atomic<double> * const value : {&right_[evidence], &chance_}) {
            value->store(value->load() + RATE * (is_right - value->load()));
        }
    }

  private:
    std::atomic<double>                         chance_{0.6};
    std::array<std::atomic<double>, N_EVIDENCE> right_ = {0.3, 0.5, 0.75, 0.95};
};

class DraftedTokens : public Proposer {
  public:
    explicit DraftedTokens(std::shared_ptr<DraftRecord> record) : record_(std::move(record)) {}

    void       propose(const std::vector<int32_t> &, size_t, Proposal &) override {}  // Speculator::set_drafted does
    void       restart() override {}  // the draft model's cells follow the tokens
    ByEvidence prior() const override { return record_->probability(); }
    double     prior_chance() const override { return record_->chance(); }
    bool       is_costly() const override { return true; }
    void       learn(uint8_t evidence, bool is_right) override { record_->add(evidence, is_right); }

  private:
    std::shared_ptr<DraftRecord> record_;
};

}  // namespace pyg
