#include "model/imatrix.hpp"

#include "boundary/handles.hpp"
#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

using pyg::fail;
using Sums = pyg::ImatrixCollector::Sums;

// Fewer rows are a decode step, not a text.
constexpr int64_t LEAST_ROWS = 16;

// Copies of weights on devices are named "CUDA0#blk.0.attn_k.weight#0".
std::string weight_name(const ggml_tensor & weight) {
    const std::string name  = weight.name;
    const size_t      first = name.find('#');
    if (first == std::string::npos) {
        return name;
    }
    return name.substr(first + 1, name.find('#', first + 1) - first - 1);
}

// Data of a tensor: in place, or copied from its device.
const char * data_of(const ggml_tensor & tensor, std::vector<char> & copy) {
    if (ggml_backend_buffer_is_host(tensor.buffer)) {
        return static_cast<const char *>(tensor.data);
    }
    copy.resize(ggml_nbytes(&tensor));
    ggml_backend_tensor_get(&tensor, copy.data(), 0, copy.size());
    return copy.data();
}

void add_row(const float * x, int64_t n, float * squares, float * activations) {
    for (int64_t j = 0; j < n; j++) {
        squares[j] += x[j] * x[j];
        activations[j] += x[j];
    }
}

bool all_finite(const std::vector<float> & values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

namespace pyg {

bool ImatrixCollector::on_node(ggml_tensor * node, bool ask, void * self) {
    auto & collector = *static_cast<ImatrixCollector *>(self);
    if (ask) {
        return collector.wants(*node);
    }
    collector.collect(*node);
    return true;
}

bool ImatrixCollector::wants(const ggml_tensor & node) const {
    if (node.op != GGML_OP_MUL_MAT && node.op != GGML_OP_MUL_MAT_ID) {
        return false;
    }
    if (node.src[1]->type != GGML_TYPE_F32) {
        return false;
    }
    if (node.op == GGML_OP_MUL_MAT_ID) {
        return true;
    }
    const std::string name      = weight_name(*node.src[0]);
    const bool        is_output = name == "output.weight" || name == "token_embd.weight";
    return node.src[1]->ne[1] >= LEAST_ROWS && (name.rfind("blk.", 0) == 0 || (process_output_ && is_output));
}

void ImatrixCollector::collect(const ggml_tensor & node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) {
        return;
    }
    const std::string name = weight_name(*node.src[0]);
    if (node.op == GGML_OP_MUL_MAT_ID) {
        add_experts(name, node);
    } else {
        add_matrices(name, *node.src[0], *node.src[1]);
    }
}

// rows: [n_columns, n_rows, ...]. A single matrix multiplies all of them; of several matrices each multiplies its own.
// The rows of each call are summed separately first, because adding small terms to a large sum loses digits.
void ImatrixCollector::add_matrices(const std::string & name, const ggml_tensor & weight, const ggml_tensor & rows) {
    const int64_t n_columns = rows.ne[0], n_matrices = weight.ne[2] * weight.ne[3];
    Sums *        total = sums_of(name, static_cast<size_t>(n_columns * n_matrices), 1);
    if (!total) {
        return;
    }
    const char * data = data_of(rows, copied_);
    Sums         here;
    here.squares.resize(total->squares.size());
    here.activations.resize(total->squares.size());
    for (int64_t i3 = 0; i3 < rows.ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < rows.ne[2]; i2++) {
            const int64_t matrix = (i3 % weight.ne[3]) * weight.ne[2] + i2 % weight.ne[2];
            for (int64_t i1 = 0; i1 < rows.ne[1]; i1++) {
                const char * row = data + i1 * rows.nb[1] + i2 * rows.nb[2] + i3 * rows.nb[3];
                add_row(reinterpret_cast<const float *>(row), n_columns, &here.squares[matrix * n_columns],
                        &here.activations[matrix * n_columns]);
            }
        }
    }
    if (!all_finite(here.squares)) {
        failure_ = "an activation multiplied by " + name + " is not a finite number";
        return;
    }
    for (size_t j = 0; j < here.squares.size(); j++) {
        total->squares[j] += here.squares[j];
        total->activations[j] += here.activations[j];
    }
    for (int64_t & count : total->counts) {
        count += ggml_nrows(&rows) / n_matrices;
    }
}

// src1: [n_columns, n_experts_used or 1, n_tokens]; ids: [n_experts_used, n_tokens], the selected experts.
void ImatrixCollector::add_experts(const std::string & name, const ggml_tensor & node) {
    const ggml_tensor & rows      = *node.src[1];
    const ggml_tensor & ids       = *node.src[2];
    const int64_t       n_columns = rows.ne[0], n_experts = node.src[0]->ne[2];
    Sums * total = sums_of(name, static_cast<size_t>(n_columns * n_experts), static_cast<size_t>(n_experts));
    if (!total) {
        return;
    }
    const char * data = data_of(rows, copied_);
    ids_.resize(ggml_nbytes(&ids));
    ggml_backend_tensor_get(&ids, ids_.data(), 0, ids_.size());

    for (int64_t used = 0; used < ids.ne[0]; used++) {
        for (int64_t token = 0; token < rows.ne[2]; token++) {
            int32_t expert;
            std::memcpy(&expert, ids_.data() + token * ids.nb[1] + used * ids.nb[0], sizeof(expert));
            if (expert < 0 || expert >= n_experts) {
                failure_ =
                    name + " has no expert " + std::to_string(expert) + " among its " + std::to_string(n_experts);
                return;
            }
            const char * row = data + (used % rows.ne[1]) * rows.nb[1] + token * rows.nb[2];
            add_row(reinterpret_cast<const float *>(row), n_columns, &total->squares[expert * n_columns],
                    &total->activations[expert * n_columns]);
            total->counts[static_cast<size_t>(expert)]++;
        }
    }
    if (!all_finite(total->squares)) {
        failure_ = "an activation multiplied by " + name + " is not a finite number";
    }
}

// Null if the tensor had activations of another shape before. Must not throw: upstream's scheduler calls it.
Sums * ImatrixCollector::sums_of(const std::string & name, size_t n_values, size_t n_counts) {
    auto found = entries_.find(name);
    if (found == entries_.end()) {
        Sums none = {std::vector<float>(n_values), std::vector<float>(n_values), std::vector<int64_t>(n_counts)};
        found     = entries_.emplace(name, std::move(none)).first;
    }
    Sums & sums = found->second;
    if (sums.squares.size() != n_values || (n_counts > 1 && sums.counts.size() != n_counts)) {
        failure_ = name + " was multiplied by activations of two shapes, " + std::to_string(sums.squares.size()) +
                   " and " + std::to_string(n_values) + " values";
        return nullptr;
    }
    return &sums;
}

void ImatrixCollector::require_sound() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) {
        throw fail(PYG_ERR_ENGINE, "cannot compute the importance matrix: %s", failure_.c_str());
    }
}

ImatrixCollector::Sizes ImatrixCollector::next(const std::string & after) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto                        found = entries_.upper_bound(after);
    if (found == entries_.end()) {
        return {};
    }
    return {found->first, found->second.squares.size(), found->second.counts.size()};
}

Sums ImatrixCollector::sums(const std::string & name) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto                        found = entries_.find(name);
    if (found == entries_.end()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there are no sums of %s", name.c_str());
    }
    return found->second;
}

}  // namespace pyg

pyg_status pyg_imatrix_new(bool process_output, pyg_imatrix ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_imatrix(std::make_shared<pyg::ImatrixCollector>(process_output)); });
}

void pyg_imatrix_free(pyg_imatrix * imatrix) { pyg::free_handle(imatrix); }

pyg_status pyg_imatrix_next(pyg_imatrix * imatrix, const char * after, size_t * n_values, size_t * n_counts,
                            char ** name, pyg_error * err) {
    return pyg::with(imatrix, err, [&](const pyg::ImatrixCollector & collector) {
        collector.require_sound();
        const auto found = collector.next(after);
        *n_values        = found.n_values;
        *n_counts        = found.n_counts;
        *name            = found.name.empty() ? nullptr : pyg::owned_copy(found.name);
    });
}

pyg_status pyg_imatrix_copy(pyg_imatrix * imatrix, const char * name, float * squares, float * activations,
                            int64_t * counts, pyg_error * err) {
    return pyg::with(imatrix, err, [&](const pyg::ImatrixCollector & collector) {
        const Sums sums = collector.sums(name);
        std::copy(sums.squares.begin(), sums.squares.end(), squares);
        std::copy(sums.activations.begin(), sums.activations.end(), activations);
        std::copy(sums.counts.begin(), sums.counts.end(), counts);
    });
}
