// Saved prefixes: KV cells of prompts that leave the engine as bytes and come back.
#include "context/fingerprint.hpp"
#include "engine/engine.hpp"
#include "engine/scheduling/snapshot_bytes.hpp"

namespace pyg {

Failure no_prefix_cache() {
    return fail(PYG_ERR_INVALID_PARAMETER, "prefixes are saved and restored by the prefix cache, which is off: load "
                                           "with prefix_cache=True");
}

// Copy the cells of a request whose prompt is computed. Called between steps, without the lock.
void Engine::save_prefix(Request & request) {
    const uint64_t fingerprint = require_fingerprint();
    Snapshot       snapshot;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        snapshot = scheduler_.snapshot_of(request);
    }
    require_hosts(model_->hosts);
    if (snapshot.state.empty()) {
        throw fail(PYG_ERR_ENGINE, "the engine could not copy the KV cells of %u tokens: %s", request.n_past,
                   engine_error_text().c_str());
    }
    request.set_saved_prefix(encode(snapshot, fingerprint));
}

uint64_t Engine::fingerprint_of_prefixes() const {
    if (!prefix_cache_) {
        throw no_prefix_cache();
    }
    return require_fingerprint();
}

uint32_t Engine::restore_prefix(std::shared_ptr<Snapshot> snapshot, uint64_t cache_salt) {
    const auto n_tokens = static_cast<uint32_t>(snapshot->tokens.size());
    if (n_tokens > n_ctx_) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the saved prefix has %u tokens, but the context holds only %u: load with a larger n_ctx", n_tokens,
                   n_ctx_);
    }
    for (uint32_t i = 0; i < n_tokens; i++) {
        model_->require_token(snapshot->tokens[i], static_cast<int32_t>(i));
    }
    snapshot->cache_salt = cache_salt;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        restored_.push_back(std::move(snapshot));
    }
    work_.notify_one();
    return n_tokens;
}

// Called by the engine's thread with the lock.
void Engine::add_restored() {
    while (!restored_.empty()) {
        std::shared_ptr<const Snapshot> snapshot = std::move(restored_.back());
        restored_.pop_back();
        if (!snapshot->is_divided || snapshot->tokens.size() <= layout_.n_per_stream()) {
            scheduler_.add_snapshot(std::move(snapshot));
            count_saved_states();
        }
    }
}

std::unique_ptr<SnapshotFiles> Engine::open_files(const pyg_engine_options & options) {
    if (!options.prefix_cache_dir) {
        return nullptr;
    }
    return std::make_unique<SnapshotFiles>(options.prefix_cache_dir, options.prefix_cache_disk_bytes,
                                           require_fingerprint(), &mutex_);
}

// Called by the engine's thread when it ends: the next engine finds them on disk.
void Engine::store_cached_slots() {
    if (!files_) {
        return;
    }
    files_->wait_for_disk();
    std::lock_guard<std::mutex> lock(mutex_);
    pyg_error                   error;
    if (!broken_ && !may_have_leaked_cells_ && guard(&error, [&] { scheduler_.store_cached_slots(); }) != PYG_OK) {
        broken_ = true;  // so that its context is leaked
    }
}

uint64_t Engine::require_fingerprint() const {
    if (!fingerprint_) {
        throw fail(PYG_ERR_ENGINE,
                   "prefixes cannot be saved or restored, because %s could not be read to tell models apart when the "
                   "engine started",
                   model_->path.c_str());
    }
    return *fingerprint_;
}

}  // namespace pyg
