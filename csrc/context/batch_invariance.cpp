// Operations of a context whose results may depend on the other rows of a batch.
//
// Walks the graphs of small and large batches, as upstream's scheduler would compute them.
//
// Upstream computes most nodes row by row, in an order that depends on the row alone. Sums over more than a row are
// batch-invariant if one of our kernels computes the node; all others are reported.
#include "boundary/backend_loader.hpp"
#include "boundary/handles.hpp"
#include "ggml-backend.h"
#include "llama-context.h"
#include "llama-memory.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

namespace {

// Rows that the sums of a node extend over. Activations have a row for each token.
enum class Reach {
    ROW,     // none: each row of the result depends only on the same row of the sources
    STATE,   // tokens of one sequence in order: batch-invariant in upstream's CPU code
    FACTOR,  // values of a row, multiplied by weights
    OTHERS,  // any rows
};

constexpr ggml_op ROW_BY_ROW[] = {
    GGML_OP_DUP,      GGML_OP_CPY,      GGML_OP_CONT,   GGML_OP_CONCAT,  GGML_OP_PAD,      GGML_OP_REPEAT,
    GGML_OP_GET_ROWS, GGML_OP_SET_ROWS, GGML_OP_ARANGE, GGML_OP_FILL,    GGML_OP_ADD,      GGML_OP_ADD1,
    GGML_OP_ADD_ID,   GGML_OP_SUB,      GGML_OP_MUL,    GGML_OP_DIV,     GGML_OP_SQR,      GGML_OP_SQRT,
    GGML_OP_LOG,      GGML_OP_SIN,      GGML_OP_COS,    GGML_OP_SCALE,   GGML_OP_CLAMP,    GGML_OP_LEAKY_RELU,
    GGML_OP_UNARY,    GGML_OP_GLU,      GGML_OP_ROPE,   GGML_OP_NORM,    GGML_OP_RMS_NORM, GGML_OP_L2_NORM,
    GGML_OP_SUM_ROWS, GGML_OP_MEAN,     GGML_OP_ARGMAX, GGML_OP_ARGSORT, GGML_OP_TOP_K,
};

Reach reach(const ggml_tensor * node) {
    if (std::find(std::begin(ROW_BY_ROW), std::end(ROW_BY_ROW), node->op) != std::end(ROW_BY_ROW)) {
        return Reach::ROW;
    }
    switch (node->op) {
    case GGML_OP_SOFT_MAX:  // with a mask: over the cells of a KV cache
        return node->src[1] ? Reach::OTHERS : Reach::ROW;
    case GGML_OP_SSM_CONV:
    case GGML_OP_SSM_SCAN:
    case GGML_OP_GATED_DELTA_NET:
        return Reach::STATE;
    case GGML_OP_MUL_MAT:
        return node->op_params[1] == GGML_HINT_SRC0_IS_HADAMARD ? Reach::ROW : Reach::FACTOR;
    case GGML_OP_MUL_MAT_ID:
        return Reach::FACTOR;
    default:
        return Reach::OTHERS;
    }
}

bool is_view(const ggml_tensor * node) {
    return node->op == GGML_OP_NONE || node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

// Return true for tensors of the model, false for results of a computation.
bool is_weights(const ggml_tensor * tensor) {
    const ggml_tensor * const whole = tensor->view_src ? tensor->view_src : tensor;
    return whole->op == GGML_OP_NONE && whole->buffer &&
           ggml_backend_buffer_get_usage(whole->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

bool runs_on_cpu(ggml_backend_dev_t device) {
    return !device || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

bool is_covered(const ggml_tensor * node, ggml_backend_dev_t device) {
    switch (reach(node)) {
    case Reach::ROW:
        return true;
    case Reach::STATE:
        return runs_on_cpu(device);
    case Reach::FACTOR:
        return runs_on_cpu(device) && is_weights(node->src[0]) && pyg::has_batch_invariant_kernel(node);
    default:
        return runs_on_cpu(device) && pyg::has_batch_invariant_kernel(node);
    }
}

std::string name_of(const ggml_tensor * node, ggml_backend_dev_t device) {
    const ggml_tensor * const keys = node->op == GGML_OP_FLASH_ATTN_EXT ? node->src[1] : node->src[0];
    std::string               name = ggml_op_name(node->op);
    if (keys) {
        name += std::string(" ") + ggml_type_name(keys->type);
    }
    return runs_on_cpu(device) ? name : name + " on " + ggml_backend_dev_name(device);
}

void add_uncovered(ggml_backend_sched_t scheduler, ggml_cgraph * graph, std::set<std::string> & names) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor * const      node    = ggml_graph_node(graph, i);
        const ggml_backend_t     backend = ggml_backend_sched_get_tensor_backend(scheduler, node);
        const ggml_backend_dev_t device  = backend ? ggml_backend_get_device(backend) : nullptr;
        if (!is_view(node) && !is_covered(node, device)) {
            names.insert(name_of(node, device));
        }
    }
}

// Names of such operations, with the types they read and devices other than the CPU: "MUL_MAT q4_K on CUDA0".
std::set<std::string> not_batch_invariant(const pyg::Context & context) {
    llama_context &       raw     = *context.raw;
    const llama_cparams & options = raw.get_cparams();
    const llama_memory_t  memory  = raw.get_memory();
    const auto            full    = memory ? memory->init_full() : nullptr;
    const uint32_t        n_seqs  = options.n_seq_max;
    const uint32_t        n_most  = std::max(std::min(options.n_ctx, options.n_ubatch), n_seqs);
    std::set<std::string> names;
    // Without shared cells, a graph always covers all sequences.
    const uint32_t n_least = options.kv_unified ? 1 : n_seqs;
    for (const auto & [n_tokens, n_seq] :
         {std::pair{n_least, n_least}, {n_most, n_least}, {n_seqs, n_seqs}, {n_most, n_seqs}}) {
        const uint32_t n_outputs = std::max(1u, std::min(n_tokens, options.n_outputs_max));
        if (ggml_cgraph * const graph = raw.graph_reserve(n_tokens, n_seq, n_outputs, full.get(), true)) {
            add_uncovered(raw.get_sched(), graph, names);
        }
    }
    return names;
}

}  // namespace

pyg_status pyg_context_not_batch_invariant(pyg_context * ctx, char ** names, pyg_error * err) {
    return pyg::with(ctx, err, [&](const pyg::Context & context) {
        const auto  names_found = not_batch_invariant(context);
        std::string joined;
        if (!names_found.empty() && pyg::no_kernels()) {
            joined = std::string(pyg::no_kernels()) + '\n';
        }
        for (const std::string & name : names_found) {
            joined += name + '\n';
        }
        *names = pyg::owned_copy(joined);
    });
}
