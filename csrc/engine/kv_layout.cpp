// Layout of the engine's KV cache: unified, or divided into streams.
#include "engine/engine.hpp"
#include "llama-model.h"

#include <algorithm>
#include <numeric>

namespace {

// The KV cache is divided into streams for at least so many requests at once, unless the caller asks for streams.
constexpr size_t MIN_STREAMS = 4;

// Upstream rounds the cells of a stream up to this.
constexpr uint32_t CELL_PAD = 256;

}  // namespace

namespace pyg {

bool Engine::can_divide(const Context & context) {
    const bool has_divided_tensors = context.model->raw->split_mode() == LLAMA_SPLIT_MODE_TENSOR;
    return llama_n_seq_max(context.raw) > 1 && ContextKvCache(context).rewinds() && !has_divided_tensors;
}

uint32_t Engine::n_per_stream(const Context & context, uint32_t n_cells) {
    return n_cells / llama_n_seq_max(context.raw) / CELL_PAD * CELL_PAD;
}

KvLayout Engine::layout_for(const Context & context, const pyg_engine_options & options) {
    const bool on_devices = device_use_of(context.raw).all_on_devices;
    const bool divide     = options.kv_layout == PYG_KV_STREAMS || (options.kv_layout == PYG_KV_AUTO && on_devices);
    if (!divide || !can_divide(context)) {
        return {0, 0};
    }
    return {n_per_stream(context, options.n_ctx), options.kv_layout == PYG_KV_STREAMS ? 1 : MIN_STREAMS};
}

// Change the layout of the KV cache if the requests ask for another.
void Engine::choose_layout() {
    if (layout_.n_per_stream() == 0 && scheduler_.n_per_stream() == 0) {
        return;
    }
    uint32_t n_per_stream;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        sweep();
        n_per_stream = layout_.next(scheduler_.n_per_stream(), layout_load());
        if (n_per_stream == scheduler_.n_per_stream()) {
            return;
        }
        scheduler_.preempt_all();
    }
    change_layout(n_per_stream);
}

KvLayout::Load Engine::layout_load() const {
    const auto & running = scheduler_.running();
    const auto   add     = [](uint64_t n, const auto & task) { return n + task->n_past; };
    return {std::min<size_t>(running.size() + scheduler_.waiting().size(), n_parallel_),
            scheduler_.n_tokens_of_longest(), std::accumulate(running.begin(), running.end(), uint64_t{0}, add)};
}

// Callers may submit requests meanwhile: making another KV cache takes a while.
void Engine::change_layout(uint32_t n_per_stream) {
    const bool unified = n_per_stream == 0;
    device_sampler_.detach();
    adapters_.clear();
    try {
        context_->replace_kv_cache(unified, unified ? n_cells_ : n_per_stream * n_parallel_);
    } catch (const Failure &) {
        llama_set_abort_callback(context_->raw, should_abort, this);
        if (unified) {
            throw;  // a request is too long for the layout that is left
        }
        layout_.disable();
        return;
    }
    llama_set_abort_callback(context_->raw, should_abort, this);
    std::lock_guard<std::mutex> lock(mutex_);
    scheduler_.set_layout(n_per_stream);
    stats_.n_cells      = scheduler_.n_cells();
    stats_.n_kv_streams = unified ? 1 : n_parallel_;
}

}  // namespace pyg
