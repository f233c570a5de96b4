// Lookup in the outputs of earlier requests with the same format: models spell the keys, the white space and many
// values of a schema in the same tokens each time.
#pragma once

#include "engine/proposers/ngram_index.hpp"
#include "engine/proposers/proposer.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pyg {

// Outputs of one format. Any thread.
class FormatOutputs {
  public:
    // Add an output, after the last tokens of its prompt. The oldest outputs are dropped if there are many.
    void add(const std::vector<int32_t> & tokens);
    // Append at most `n_max` tokens that followed the last ones of `tokens` in an earlier output.
    void propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal);

  private:
    static constexpr size_t MAX_TOKENS = 1 << 14;

    std::mutex           mutex_;
    std::vector<int32_t> tokens_;  // END after each output
    NgramIndex           index_;
};

// Those of the formats that were used last. Any thread.
class FormatMemory {
  public:
    // The outputs of a format, by a hash of it and of all that keeps requests apart.
    std::shared_ptr<FormatOutputs> of(uint64_t key);
    void                           clear();

  private:
    static constexpr size_t MAX_FORMATS = 64;

    std::mutex                                                       mutex_;
    std::vector<std::pair<uint64_t, std::shared_ptr<FormatOutputs>>> formats_;  // last used last
};

class FormatLookup : public Proposer {
  public:
    FormatLookup(std::shared_ptr<FormatOutputs> outputs, const std::vector<int32_t> & prompt);
    ~FormatLookup() override;  // adds the request's output, if it has any

    void propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal) override {
        outputs_->propose(tokens, n_max, proposal);
    }
    void       restart() override {}
    ByEvidence prior() const override { return {0.4, 0.6, 0.75, 0.85}; }
    bool       is_costly() const override { return false; }
    void       sampled(const int32_t * token_ids, size_t n) override;

  private:
    std::shared_ptr<FormatOutputs> outputs_;
    std::vector<int32_t>           own_;  // the end of the prompt, and the output
    const size_t                   n_of_prompt_;
};

}  // namespace pyg
