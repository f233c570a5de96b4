#include "kernels/qgemm/packed_buffer.hpp"

#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "kernels/backend/c_api.h"
#include "kernels/backend/memory_pages.hpp"
#include "kernels/qgemm/pack.hpp"

#include <memory>

namespace pyg::kernels {

namespace {

const char * name(ggml_backend_buffer_type_t) { return PYG_KERNELS_BUFFER_TYPE; }

int64_t blocks_per_row(const ggml_tensor * tensor) { return tensor->ne[0] / ggml_blck_size(tensor->type); }

// Space for whole groups of rows.
size_t alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    const int64_t n_missing = (GROUP_ROWS - ggml_nrows(tensor) % GROUP_ROWS) % GROUP_ROWS;
    return ggml_nbytes(tensor) + n_missing * ggml_row_size(tensor->type, tensor->ne[0]);
}

void set(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && "weights in tiles are set whole");
    pack_rows(tensor->type, blocks_per_row(tensor), ggml_nrows(tensor), data, tensor->data);
    release_mapped_pages(data, size);
}

void get(ggml_backend_buffer_t, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && "weights in tiles are read whole");
    unpack_rows(tensor->type, blocks_per_row(tensor), ggml_nrows(tensor), tensor->data, data);
}

void free(ggml_backend_buffer_t buffer) { free_pages(buffer->context, buffer->size); }

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    const auto                                   free_memory = [size](void * begin) { free_pages(begin, size); };
    std::unique_ptr<void, decltype(free_memory)> pages(allocate_pages(size), free_memory);
    if (!pages) {
        GGML_LOG_ERROR("%s: failed to allocate buffer of size %zu\n", PYG_KERNELS_BUFFER_TYPE, size);
        return nullptr;
    }
    ggml_backend_buffer_t const buffer = ggml_backend_cpu_buffer_from_ptr(pages.get(), size);
    buffer->buft                       = type;
    buffer->iface.free_buffer          = free;
    buffer->iface.set_tensor           = set;
    buffer->iface.get_tensor           = get;
    buffer->iface.cpy_tensor           = nullptr;
    (void) pages.release();
    return buffer;
}

}  // namespace

bool is_packed(const ggml_tensor * weights) {
    return weights->buffer && weights->buffer->buft->iface.get_name == name && can_pack(weights);
}

bool supports_packed_op(const ggml_tensor * op) {
    const ggml_tensor * const weights = op->src[0];
    const ggml_tensor * const x       = op->src[1];
    const int                 n_dims  = ggml_n_dims(weights);
    const bool is_product = (op->op == GGML_OP_MUL_MAT && n_dims <= 2) || (op->op == GGML_OP_MUL_MAT_ID && n_dims == 3);
    return is_product && can_pack(weights) && x->type == GGML_TYPE_F32 &&
           (!x->buffer || ggml_backend_buft_is_host(x->buffer->buft));
}

ggml_backend_buffer_type_t packed_buffer_type(void * context) {
    static ggml_backend_buffer_type type = [&] {
        ggml_backend_buffer_type made = *ggml_backend_cpu_buffer_type();
        made.device                   = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        made.iface.get_name           = name;
        made.iface.alloc_buffer       = allocate;
        made.iface.get_alloc_size     = alloc_size;
        made.iface.is_host            = nullptr;
        made.context                  = context;
        return made;
    }();
    return &type;
}

}  // namespace pyg::kernels
