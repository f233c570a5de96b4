// The pyg_adapter_* functions.
#include "adapters/adapter_set.hpp"
#include "adapters/applied_weights.hpp"

namespace {

// Let a context compute with these adapters; null: with none.
void use(pyg::Context & context, std::shared_ptr<const pyg::AdapterSet> adapters) {
    std::vector<llama_adapter_lora *> raw;
    std::vector<float>                scales;
    for (const auto & entry : adapters ? adapters->entries() : std::vector<pyg::AdapterSet::Entry>()) {
        raw.push_back(entry.adapter->raw());
        scales.push_back(entry.scale);
    }
    llama_set_adapters_lora(context.raw, raw.data(), raw.size(), scales.data());
    context.adapters = std::move(adapters);
}

}  // namespace

pyg_status pyg_adapter_load(pyg_model * model, const char * path, pyg_adapter ** out, pyg_error * err) {
    return pyg::guard(err,
                      [&] { *out = new pyg_adapter(std::make_shared<pyg::Adapter>(pyg::shared_object(model), path)); });
}

pyg_status pyg_adapter_info_get(pyg_adapter * adapter, pyg_adapter_info * out, pyg_error * err) {
    return pyg::with(adapter, err, [&](const pyg::Adapter & self) {
        *out           = {};
        out->content   = self.content();
        out->n_bytes   = self.n_bytes();
        out->alpha     = self.alpha();
        out->rank      = self.rank();
        out->n_targets = static_cast<int32_t>(self.targets().size());
    });
}

pyg_status pyg_adapter_close(pyg_adapter * adapter, double timeout_s, bool * closed, pyg_error * err) {
    return pyg::guard(err, [&] {
        std::shared_ptr<pyg::Adapter> object;
        if (adapter && !adapter->inherited()) {
            std::lock_guard<std::mutex> lock(adapter->mutex);
            object = adapter->object;  // null once it is closed
        }
        *closed = !object || object->close(timeout_s);  // without the handle's lock, so that others can ask meanwhile
        if (*closed && object) {
            pyg_error ignored;
            object.reset();
            pyg::close(adapter, &ignored);
        }
    });
}

pyg_status pyg_context_set_adapters(pyg_context * ctx, const pyg_scaled_adapter * adapters, int32_t n_adapters,
                                    pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg::Context & context) {
        const auto set        = pyg::adapters_of_request(*context.model, adapters, n_adapters);
        const auto before     = context.adapters;
        const bool is_checked = !set || pyg::are_applied(context, *set);
        use(context, set);
        if (!is_checked) {
            try {
                pyg::require_applied(context, *set);
            } catch (const pyg::Failure &) {
                use(context, before);
                throw;
            }
        }
    });
}

pyg_status pyg_adapters_salt(pyg_model * model, const pyg_scaled_adapter * adapters, int32_t n_adapters,
                             uint64_t cache_salt, uint64_t * out, pyg_error * err) {
    return pyg::with(model, err, [&](pyg::Model & self) {
        *out = pyg::salted(cache_salt, pyg::adapters_of_request(self, adapters, n_adapters).get());
    });
}

void pyg_adapter_free(pyg_adapter * adapter) { pyg::free_handle(adapter); }
