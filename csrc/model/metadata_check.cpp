// Metadata check: errors of a model that the engine can find from its metadata alone.
//
// Only the engine knows the tensors of an architecture, so its own loader runs on the tensors' descriptions without
// their data. It stops at the first tensor that is missing or has the wrong shape, and at the end if tensors are
// unused. Each problem is recorded and repaired (a missing tensor by a placeholder), and the step is repeated until
// none is left.
#include "boundary/engine_messages.hpp"
#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "boundary/signals/fault_signals.hpp"
#include "chat/chat.hpp"
#include "llama-model-loader.h"
#include "llama-model.h"

#include <algorithm>
#include <set>

namespace {

using pyg::FailureCause;

using Json  = common_json;
using Sizes = std::vector<int64_t>;  // of a tensor, innermost first

// If the declared sizes do not match the tensors, every tensor is wrong; the first findings are enough.
constexpr size_t MAX_FINDINGS = 256;

struct Finding {
    std::string name;
    Sizes       expected;
    Sizes       found;  // empty if it is missing
};

// Tensor descriptions for upstream's loader, which reads no data.
class Descriptions {
  public:
    Descriptions(llama_model_loader & loader, const char * path, size_t n_tensors)
        : loader_(loader),
          ctx_(ggml_init({ggml_tensor_overhead() * (n_tensors + 2 * MAX_FINDINGS + 1), nullptr, true})) {
        loader.files.emplace_back(new llama_file(path, "rb"));
        // Upstream creates an entry only if the file contains the tensor's bytes, so all are copies of a one-byte
        // entry.
        ggml_tensor *          byte = ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_I8, 1);
        const gguf_context_ptr gguf(gguf_init_empty());
        gguf_add_tensor(gguf.get(), byte);
        entry_ = std::make_unique<Entry>(loader.files.front().get(), 0, gguf.get(), byte);
    }

    void add_all(const gguf_context * gguf) {
        for (int64_t i = 0; i < gguf_get_n_tensors(gguf); i++) {
            const int64_t * ne = gguf_get_tensor_ne(gguf, i);
            put(gguf_get_tensor_name(gguf, i), gguf_get_tensor_type(gguf, i), {ne, ne + GGML_MAX_DIMS});
        }
    }

    void put(const std::string & name, ggml_type type, const Sizes & ne) {
        Entry entry  = *entry_;
        entry.tensor = ggml_new_tensor(ctx_.get(), type, static_cast<int>(ne.size()), ne.data());
        ggml_set_name(entry.tensor, name.c_str());
        loader_.n_elements += static_cast<uint64_t>(ggml_nelements(entry.tensor));
        loader_.n_bytes += ggml_nbytes(entry.tensor);
        loader_.weights_map.insert_or_assign(name, entry);
    }

  private:
    using Entry = llama_model_loader::llama_tensor_weight;

    llama_model_loader &   loader_;
    ggml_context_ptr       ctx_;
    std::unique_ptr<Entry> entry_;
};

// A load without weights.
class MetadataCheck {
  public:
    MetadataCheck(const std::vector<gguf_context *> & ggufs, const char * path)
        : params_(cpu_.params()),
          loader_(ggufs.front(), nullptr, nullptr, "", splits_, nullptr, LLAMA_LOAD_MODE_NONE, false,
                  /*no_alloc =*/true, false, nullptr, nullptr),
          tensors_(loader_, path, n_tensors(ggufs)) {
        params_.no_alloc  = true;
        params_.load_mode = LLAMA_LOAD_MODE_NONE;
        for (const gguf_context * gguf : ggufs) {
            tensors_.add_all(gguf);
        }
    }

    void run() {
        if (step("architecture", [&] { model_.reset(llama_model_create(loader_, params_)); }) &&
            step("sizes", [&] { load_sizes(); }) && step("vocabulary", [&] { load_vocabulary(); })) {
            load_tensors();
        } else if (failed_ != "vocabulary") {
            discard_model();
            step("vocabulary", [&] { load_vocabulary_alone(); });
        }
    }

    // The model as far as it was loaded, with its vocabulary; null if the vocabulary cannot be read.
    std::unique_ptr<llama_model> take_model() {
        if (!has_vocabulary_) {
            discard_model();
        }
        return std::move(model_);
    }

    Json report() const {
        Json out        = Json::object();
        out["failed"]   = failed_;
        out["message"]  = messages_;
        out["sizes"]    = sizes_;
        out["findings"] = Json::array();
        for (const Finding & each : findings_) {
            out["findings"].push_back({{"name", each.name}, {"expected", each.expected}, {"found", each.found}});
        }
        out["unknown"] = unknown_;
        return out;
    }

  private:
    static size_t n_tensors(const std::vector<gguf_context *> & ggufs) {
        size_t n = 0;
        for (const gguf_context * gguf : ggufs) {
            n += static_cast<size_t>(gguf_get_n_tensors(gguf));
        }
        return n;
    }

    // Run a step. Return upstream's error message, "" on success.
    template <class Body>
    std::string error_of(Body && body) {
        try {
            const pyg::FaultScope fault_scope;
            body();
            return "";
        } catch (const pyg::EngineAbort & abort) {
            aborted_ = true;
            if (pyg::failure_cause(abort.message).kind == FailureCause::NO_MEMORY) {
                discard_model();
                throw;  // not an error of the file
            }
            return abort.message;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            return e.what();
        }
    }

    // Run a step and record the first failure. Return true on success.
    template <class Body>
    bool step(const char * name, Body && body) {
        const std::string messages = error_of(body);
        if (!messages.empty() && failed_.empty()) {
            failed_   = name;
            messages_ = messages;
        }
        return messages.empty();
    }

    void load_sizes() {
        model_->load_hparams(loader_);
        note_sizes();
    }

    void load_vocabulary() {
        const std::string missing = pyg::missing_vocabulary(loader_.metadata);
        if (!missing.empty()) {
            throw std::runtime_error(missing);
        }
        model_->load_vocab(loader_);
        model_->load_stats(loader_);
        has_vocabulary_ = true;
    }

    // The vocabulary can be read under a known architecture even if the model's own is unknown.
    void load_vocabulary_alone() {
        model_.reset(llama_model_create(LLM_ARCH_LLAMA, params_));
        model_->hparams.vocab_only = true;
        model_->load_hparams(loader_);
        load_vocabulary();
    }

    // After a failed assert the model's state is unknown, so it is leaked.
    void discard_model() {
        if (aborted_) {
            (void) model_.release();
        }
        model_.reset();
    }

    void load_tensors() {
        if (loader_.weights_map.empty()) {
            return;  // the file has only a vocabulary
        }
        std::string messages = try_tensors();
        while (!messages.empty() && !aborted_ && findings_.size() < MAX_FINDINGS && repair(messages)) {
            messages = try_tensors();
        }
        if (!messages.empty()) {
            failed_   = "tensors";
            messages_ = messages;
        }
    }

    std::string try_tensors() {
        loader_.ctx_map.clear();
        loader_.n_created = 0;
        loader_.n_tensors = static_cast<int>(loader_.weights_map.size());
        model_->layers.clear();
        return error_of([&] { model_->load_tensors(loader_); });
    }

    bool repair(const std::string & messages) {
        const FailureCause cause = pyg::failure_cause(messages);
        switch (cause.kind) {
        case FailureCause::TENSOR_MISSING:
            if (!restore(cause.tensor)) {
                findings_.push_back({cause.tensor, {}, {}});
                tensors_.put(cause.tensor, GGML_TYPE_F32, {1});
            }
            return true;
        case FailureCause::TENSOR_SHAPE:
            note_shape({cause.tensor, cause.expected, cause.found});
            tensors_.put(cause.tensor, GGML_TYPE_F32, cause.expected);
            return true;
        case FailureCause::TENSORS_LEFT_OVER:
            return drop_unknown();
        default:
            return false;
        }
    }

    // The expected shape of a placeholder belongs to the finding that the tensor is missing.
    void note_shape(const Finding & finding) {
        if (!findings_.empty() && findings_.back().name == finding.name) {
            findings_.back().expected = finding.expected;
        } else {
            findings_.push_back(finding);
        }
    }

    // Drop tensors that the engine did not use.
    bool drop_unknown() {
        const size_t          n_left_over = static_cast<size_t>(loader_.n_tensors - loader_.n_created);
        std::set<std::string> created;
        for (const auto & [key, ctx] : loader_.ctx_map) {
            for (auto * each = ggml_get_first_tensor(ctx.get()); each; each = ggml_get_next_tensor(ctx.get(), each)) {
                created.insert(ggml_get_name(each));
            }
        }
        for (auto it = loader_.weights_map.begin(); it != loader_.weights_map.end();) {
            const auto here = it++;
            if (!created.count(here->first)) {
                unknown_.push_back(here->first);
                dropped_.insert(loader_.weights_map.extract(here));
            }
        }
        if (unknown_.size() > n_left_over) {
            keep_known();
        }
        return n_left_over > 0;
    }

    // Keep tensors that the engine knows but skips, which are not unknown.
    void keep_known() {
        for (const std::string & name : std::vector<std::string>(unknown_)) {
            restore(name);
            if (pyg::failure_cause(try_tensors()).kind == FailureCause::TENSORS_LEFT_OVER) {
                dropped_.insert(loader_.weights_map.extract(name));
                unknown_.push_back(name);
            }
        }
    }

    bool restore(const std::string & name) {
        auto node = dropped_.extract(name);
        if (node.empty()) {
            return false;
        }
        loader_.weights_map.insert(std::move(node));
        unknown_.erase(std::find(unknown_.begin(), unknown_.end(), name));
        return true;
    }

    void note_sizes() {
        const llama_hparams & h       = model_->hparams;
        const auto            of_each = [&](auto && size) {
            std::vector<uint32_t> values;
            for (uint32_t i = 0; i < h.n_layer_all; i++) {
                values.push_back(size(i));
            }
            return values;
        };
        sizes_["n_layer"]        = h.n_layer_all;
        sizes_["n_embd"]         = h.n_embd;
        sizes_["n_ctx_train"]    = h.n_ctx_train;
        sizes_["n_expert"]       = h.n_expert;
        sizes_["n_head"]         = of_each([&](uint32_t i) { return h.n_head(i); });
        sizes_["n_head_kv"]      = of_each([&](uint32_t i) { return h.n_head_kv(i); });
        sizes_["head_dim"]       = of_each([&](uint32_t i) { return h.n_embd_head_k(i); });
        sizes_["n_ff"]           = of_each([&](uint32_t i) { return h.n_ff(i); });
        sizes_["n_ff_expert"]    = of_each([&](uint32_t i) { return h.n_ff_exp(i); });
        sizes_["n_expert_used"]  = of_each([&](uint32_t i) { return h.n_expert_used_arr[i]; });
        sizes_["sliding_window"] = of_each([&](uint32_t i) { return h.is_swa(i) ? h.n_swa : 0; });
        sizes_["rope_type"]      = static_cast<int32_t>(llama_model_rope_type(model_.get()));
        sizes_["rope_scaling"]   = static_cast<int32_t>(h.rope_scaling_type_train);
        sizes_["rope_base"]      = h.rope_freq_base_train;
        sizes_["rope_scale"]     = h.rope_freq_scale_train;
        sizes_["rope_n_dims"]    = h.n_rot_full;
        sizes_["n_ctx_original"] = h.n_ctx_orig_yarn;
    }

    pyg::Placement               cpu_;
    std::vector<std::string>     splits_;
    llama_model_params           params_;
    llama_model_loader           loader_;
    Descriptions                 tensors_;
    std::unique_ptr<llama_model> model_;

    bool        has_vocabulary_ = false;
    bool        aborted_        = false;
    std::string failed_, messages_;
    Json        sizes_ = Json::object();

    std::vector<Finding>          findings_;
    std::vector<std::string>      unknown_;
    decltype(loader_.weights_map) dropped_;
};

// Constructing upstream's loader already reads the architecture.
std::unique_ptr<MetadataCheck> begin(const std::vector<gguf_context *> & ggufs, const char * path) {
    return pyg::read_with_loader(path, [&] { return std::make_unique<MetadataCheck>(ggufs, path); });
}

pyg_model * new_handle(std::unique_ptr<llama_model> raw, const char * path) {
    auto model        = std::make_shared<pyg::Model>();
    model->raw        = raw.release();
    model->vocab      = llama_model_get_vocab(model->raw);
    model->path       = path;
    model->vocab_only = true;
    return new pyg_model(std::move(model));
}

}  // namespace

pyg_status pyg_model_check_metadata(pyg_gguf * const * ggufs, size_t n_ggufs, const char * path, char ** report,
                                    pyg_model ** out, pyg_error * err) {
    *out    = nullptr;
    *report = nullptr;
    return pyg::guard(err, [&] {
        std::vector<gguf_context *> raw;
        for (size_t i = 0; i < n_ggufs; i++) {
            raw.push_back(pyg_gguf_get(ggufs[i]));
        }
        pyg::LogBuffer log;  // problems are reported in the result, not logged
        const auto     survey = begin(raw, path);
        survey->run();
        log.drop();
        *report = pyg::owned_copy(survey->report().dump_safe());
        if (auto model = survey->take_model()) {
            *out = new_handle(std::move(model), path);
        }
    });
}
