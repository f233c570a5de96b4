// Kernel interface: a kernel computes one kind of node of ggml's graphs, on ggml's own threads.
//
// A node is offered to each kernel in turn before upstream computes it (registration.cpp); a norm and the product that
// upstream fuses with it are offered together (upstream_ggml_cpu.c). Kernels are batch-invariant: the bits of a row
// depend neither on the rest of the batch nor on the number of threads, because integer sums are exact and float sums
// run in an order that depends on the row alone.
#pragma once

#include "ggml-cpu-impl.h"  // ggml_compute_params, ggml_barrier
#include "kernels/lora/low_rank.hpp"
#include "traits.h"

#include <algorithm>

namespace pyg::kernels {

class Kernel final : public ggml::cpu::tensor_traits {
  public:
    using WorkSize = size_t (*)(int n_threads, const ggml_tensor * op);         // bytes of the workspace
    using Compute  = void (*)(ggml_compute_params * params, ggml_tensor * op);  // a thread's part of the node

    Kernel(WorkSize work_size, Compute compute) : work_size_(work_size), compute_(compute) {}

    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = work_size_(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const bool         is_product = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID;
        const void * const adapters   = is_product ? pyg_row_adapters_of(params->threadpool) : nullptr;
        if (adapters) {
            compute_with_adapters(adapters, params, op, compute_);
        } else {
            compute_(params, op);
        }
        return true;
    }

  private:
    const WorkSize work_size_;
    const Compute  compute_;
};

inline size_t no_workspace(int, const ggml_tensor *) { return 0; }

// Each returns the kernel that computes `op`, or null to leave it to upstream.
Kernel * attention_for(const ggml_tensor * op);
Kernel * dry_run_for(const ggml_tensor * op);  // skips products in a dry run
Kernel * gelu_for(const ggml_tensor * op);
Kernel * norm_for(const ggml_tensor * op);
Kernel * packed_mul_mat_for(const ggml_tensor * op);  // of packed weights
Kernel * row_mul_mat_for(const ggml_tensor * op);     // of other weights

// True if nodes are offered to kernels.
bool are_registered();

constexpr int64_t ALIGNMENT = 64;  // of what is in a workspace, which itself may begin anywhere

inline char * aligned(void * workspace) {
    return reinterpret_cast<char *>(GGML_PAD(reinterpret_cast<uintptr_t>(workspace), ALIGNMENT));
}

// A thread's share of `n` pieces of work.
struct Share {
    int64_t begin, end;
};

inline Share share_of(const ggml_compute_params * params, int64_t n) {
    return {n * params->ith / params->nth, n * (params->ith + 1) / params->nth};
}

// A thread's share of `n` rows as in upstream's additions: rows that it has added up are in its own cache.
inline Share rows_as_upstream(const ggml_compute_params * params, int64_t n) {
    const int64_t at_most = (n + params->nth - 1) / params->nth, first = std::min(params->ith * at_most, n);
    return {first, std::min(first + at_most, n)};
}

inline bool has_rows_of_floats(const ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

// Row `i` of a tensor of floats, counted over all dimensions.
inline const float * row_at(const ggml_tensor * tensor, int64_t i) {
    const int64_t i1     = i % tensor->ne[1];
    const int64_t i2     = i / tensor->ne[1] % tensor->ne[2];
    const int64_t i3     = i / tensor->ne[1] / tensor->ne[2];
    const size_t  offset = i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3];
    return reinterpret_cast<const float *>(static_cast<const char *>(tensor->data) + offset);
}

}  // namespace pyg::kernels
