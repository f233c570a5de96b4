#include "adapters/adapter.hpp"

#include "engine/deadline.hpp"
#include "engine/logits_callback.hpp"
#include "ggml-backend.h"
#include "llama-adapter.h"
#include "llama-model.h"

#include <algorithm>
#include <cstring>

namespace {

// A logits callback that has run for so long may wait for the thread that closes an adapter.
constexpr double LONGEST_CALLBACK_S = 5;
constexpr auto   CALLBACK_CHECK     = std::chrono::milliseconds(500);

// Copy B, (rank, n_outputs) of each expert, to tiles: (PYG_LORA_TILE, rank) of so many outputs, the last padded with
// zeros.
std::vector<uint8_t> tiles_of(const ggml_tensor * b) {
    const size_t  size = ggml_type_size(b->type);
    const int64_t rank = b->ne[0], n_outputs = b->ne[1], n_tiles = (n_outputs + PYG_LORA_TILE - 1) / PYG_LORA_TILE;
    std::vector<uint8_t> tiles(static_cast<size_t>(b->ne[2] * n_tiles * PYG_LORA_TILE * rank) * size, 0);
    const auto *         from = static_cast<const uint8_t *>(b->data);
    for (int64_t e = 0; e < b->ne[2]; e++) {
        uint8_t * const expert = tiles.data() + static_cast<size_t>(e * n_tiles * PYG_LORA_TILE * rank) * size;
        for (int64_t i = 0; i < n_outputs; i++) {
            for (int64_t r = 0; r < rank; r++) {
                const int64_t to = (i / PYG_LORA_TILE * rank + r) * PYG_LORA_TILE + i % PYG_LORA_TILE;
                std::memcpy(expert + static_cast<size_t>(to) * size, from, size);
                from += size;
            }
        }
    }
    return tiles;
}

}  // namespace

namespace pyg {

Adapter::Adapter(std::shared_ptr<Model> model, const std::string & path)
    : model_(std::move(model)), path_(path), raw_(nullptr, Free{model_.get()}) {
    model_->require_weights();
    read(path);
    std::lock_guard<std::shared_mutex> lock(model_->adapters_mutex);
    model_->raw->loras.insert(raw_.get());  // upstream makes its graphs large enough for these
}

Adapter::~Adapter() = default;

void Adapter::Free::operator()(llama_adapter_lora * raw) const {
    std::lock_guard<std::shared_mutex> lock(model->adapters_mutex);
    llama_adapter_lora_free(raw);
}

uint64_t Adapter::n_bytes() const { return n_bytes_ + n_packed_bytes_.load(std::memory_order_relaxed); }

void Adapter::pack() {
    std::call_once(is_packed_, [&] {
        std::vector<std::vector<uint8_t>> tiles;
        uint64_t                          n_packed = 0;
        for (const AdapterTarget & target : targets_) {
            tiles.push_back(tiles_of(target.b));
            n_packed += tiles.back().size();
        }
        tiles_          = std::move(tiles);
        n_packed_bytes_ = n_packed;
    });
}

pyg_lora_term Adapter::term(size_t target, float scale) const {
    const AdapterTarget & at    = targets_[target];
    const auto            rank  = static_cast<int32_t>(at.b->ne[0]);
    const float           alpha = alpha_ != 0 ? alpha_ / static_cast<float>(rank) : 1;
    return {at.a->data, tiles_[target].data(), at.a->type, at.b->type, rank, scale * alpha};
}

void Adapter::begin_use() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_closing_) {
        throw fail(PYG_ERR_CLOSED, "the adapter %s has been closed", path_.c_str());
    }
    n_uses_++;
}

void Adapter::end_use() noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--n_uses_ == 0) {
        unused_.notify_all();
    }
}

bool Adapter::close(double timeout_s) {
    const auto                   deadline = deadline_after(timeout_s);
    std::unique_lock<std::mutex> lock(mutex_);
    const auto                   unused = [&] { return n_uses_ == 0; };
    if (!unused() && RunningCallback::engine()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a logits processor runs while its engine waits for it, so it cannot "
                                              "close an adapter that requests use: close it outside the processor");
    }
    is_closing_ = true;
    while (!unused() && (!deadline || Clock::now() < *deadline)) {
        const auto next = Clock::now() + CALLBACK_CHECK;
        unused_.wait_until(lock, deadline ? std::min(*deadline, next) : next, unused);
        if (!unused() && RunningCallback::seconds_of(*model_) > LONGEST_CALLBACK_S) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "a logits processor has been running for more than %g seconds, and the adapter %s is in use "
                       "until it returns; if it waits for the thread that closes the adapter, neither ends: close the "
                       "adapter outside the processor. No new request can use it",
                       LONGEST_CALLBACK_S, path_.c_str());
        }
    }
    return unused();
}

}  // namespace pyg
