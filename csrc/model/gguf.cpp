// C entry points for GGUF files. Invalid declarations are rejected before upstream sees them.
#include "boundary/handles.hpp"
#include "model/gguf_file.hpp"

#include <cstring>
#include <memory>
#include <vector>

using pyg::fail;

struct pyg_gguf : pyg::PointerHandle<gguf_context_ptr, PYG_HANDLE_GGUF> {
    using PointerHandle::PointerHandle;
};

namespace {

// Set a metadata value with set(gguf_context *).
template <class Set>
pyg_status set_value(pyg_gguf * gguf, const char * key, pyg_error * err, Set && set) {
    return pyg::with(gguf, err, [&](gguf_context & self) {
        if (!key || key[0] == '\0') {
            throw fail(PYG_ERR_INVALID_PARAMETER, "a metadata value needs a key");
        }
        set(&self);
    });
}

gguf_type number_type(int32_t type) {
    if (type < 0 || type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%d is not the type of a number in metadata", type);
    }
    return static_cast<gguf_type>(type);
}

template <class T>
T number_at(const void * address) {
    T number;
    std::memcpy(&number, address, sizeof(T));
    return number;
}

void set_number(gguf_context * raw, const char * key, gguf_type type, const void * value) {
    switch (type) {
    case GGUF_TYPE_UINT8:
        return gguf_set_val_u8(raw, key, number_at<uint8_t>(value));
    case GGUF_TYPE_INT8:
        return gguf_set_val_i8(raw, key, number_at<int8_t>(value));
    case GGUF_TYPE_UINT16:
        return gguf_set_val_u16(raw, key, number_at<uint16_t>(value));
    case GGUF_TYPE_INT16:
        return gguf_set_val_i16(raw, key, number_at<int16_t>(value));
    case GGUF_TYPE_UINT32:
        return gguf_set_val_u32(raw, key, number_at<uint32_t>(value));
    case GGUF_TYPE_INT32:
        return gguf_set_val_i32(raw, key, number_at<int32_t>(value));
    case GGUF_TYPE_FLOAT32:
        return gguf_set_val_f32(raw, key, number_at<float>(value));
    case GGUF_TYPE_BOOL:
        return gguf_set_val_bool(raw, key, number_at<uint8_t>(value) != 0);
    case GGUF_TYPE_UINT64:
        return gguf_set_val_u64(raw, key, number_at<uint64_t>(value));
    case GGUF_TYPE_INT64:
        return gguf_set_val_i64(raw, key, number_at<int64_t>(value));
    case GGUF_TYPE_FLOAT64:
        return gguf_set_val_f64(raw, key, number_at<double>(value));
    default:
        return;  // excluded by number_type
    }
}

// Upstream lays out data by general.alignment only in files that it has parsed.
void set_alignment(gguf_context_ptr & gguf, uint32_t alignment) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s is %u; it must be a power of 2, such as %d",
                   GGUF_KEY_GENERAL_ALIGNMENT, alignment, GGUF_DEFAULT_ALIGNMENT);
    }
    const bool changes = alignment != gguf_get_alignment(gguf.get());
    if (changes && gguf_get_n_tensors(gguf.get()) > 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be set before the first tensor is added",
                   GGUF_KEY_GENERAL_ALIGNMENT);
    }
    gguf_set_val_u32(gguf.get(), GGUF_KEY_GENERAL_ALIGNMENT, alignment);
    if (!changes) {
        return;
    }
    std::vector<uint8_t> head(gguf_get_meta_size(gguf.get()));
    gguf_get_meta_data(gguf.get(), head.data());
    gguf_context_ptr parsed(gguf_init_from_buffer(head.data(), head.size(), {/*no_alloc =*/true, /*ctx =*/nullptr}));
    if (!parsed) {
        throw fail(PYG_ERR_ENGINE, "the metadata cannot be read back: %s", pyg::engine_error_text().c_str());
    }
    gguf = std::move(parsed);
}

void require_new_name(const gguf_context * raw, const char * name) {
    if (!name || name[0] == '\0') {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a tensor needs a name");
    }
    if (std::strlen(name) >= GGML_MAX_NAME) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the tensor name \"%s\" has %zu bytes; a GGUF file allows at most %d",
                   name, std::strlen(name), GGML_MAX_NAME - 1);
    }
    if (gguf_find_tensor(raw, name) >= 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is already a tensor \"%s\"", name);
    }
}

// The total bytes up to and including this tensor must not overflow.
void require_shape(const gguf_context * raw, const char * name, ggml_type type, const int64_t * ne, int32_t n_dims) {
    if (n_dims < 1 || n_dims > GGML_MAX_DIMS) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "tensor \"%s\" has %d dimensions; it must have 1 to %d", name, n_dims,
                   GGML_MAX_DIMS);
    }
    int64_t size = static_cast<int64_t>(ggml_type_size(type));
    bool    fits = true;
    for (int32_t i = 0; i < n_dims; i++) {
        if (ne[i] < 1) {  // upstream's writer treats trailing zeros as ones
            throw fail(PYG_ERR_INVALID_PARAMETER, "dimension %d of tensor \"%s\" is %lld; it must be 1 or more", i,
                       name, static_cast<long long>(ne[i]));
        }
        fits = fits && !__builtin_mul_overflow(size, ne[i], &size);
    }
    if (ne[0] % ggml_blck_size(type) != 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "rows of tensor \"%s\" have %lld values, which is not a whole number of %s blocks of %lld", name,
                   static_cast<long long>(ne[0]), ggml_type_name(type), static_cast<long long>(ggml_blck_size(type)));
    }
    int64_t end = 0;
    if (const int64_t last = gguf_get_n_tensors(raw) - 1; last >= 0) {
        end = static_cast<int64_t>(gguf_get_tensor_offset(raw, last) + gguf_get_tensor_size(raw, last));
    }
    fits = fits && !__builtin_add_overflow(end, size, &end) && end <= INT64_MAX / 2;  // headroom for padding
    if (!fits) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "tensor \"%s\" is larger than a file can be", name);
    }
}

ggml_tensor describe_tensor(const char * name, ggml_type type, const int64_t * ne, int32_t n_dims) {
    ggml_tensor tensor = {};
    tensor.type        = type;
    for (int32_t i = 0; i < GGML_MAX_DIMS; i++) {
        tensor.ne[i] = i < n_dims ? ne[i] : 1;
    }
    tensor.nb[0] = ggml_type_size(type);
    tensor.nb[1] = ggml_row_size(type, tensor.ne[0]);
    for (int32_t i = 2; i < GGML_MAX_DIMS; i++) {
        tensor.nb[i] = tensor.nb[i - 1] * static_cast<size_t>(tensor.ne[i - 1]);
    }
    ggml_set_name(&tensor, name);
    return tensor;
}

}  // namespace

pyg_status pyg_gguf_open(const char * path, pyg_gguf ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] {
        pyg::GgufHeader header = pyg::read_gguf_header(path);
        pyg::require_all_data(path, header);
        *out = new pyg_gguf(std::move(header.raw));
    });
}

pyg_status pyg_gguf_open_header(const char * path, pyg_gguf ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] { *out = new pyg_gguf(pyg::read_gguf_header(path).raw); });
}

pyg_status pyg_gguf_new(pyg_gguf ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] { *out = new pyg_gguf(gguf_context_ptr(gguf_init_empty())); });
}

void pyg_gguf_free(pyg_gguf * gguf) { pyg::free_handle(gguf); }

struct gguf_context * pyg_gguf_get(pyg_gguf * gguf) { return gguf ? gguf->object.get() : nullptr; }

pyg_status pyg_gguf_set_number(pyg_gguf * gguf, const char * key, int32_t type, const void * value, pyg_error * err) {
    if (key && type == GGUF_TYPE_UINT32 && std::strcmp(key, GGUF_KEY_GENERAL_ALIGNMENT) == 0) {
        return pyg::with(gguf, err, [&](pyg_gguf & self) { set_alignment(self.object, number_at<uint32_t>(value)); });
    }
    return set_value(gguf, key, err, [&](gguf_context * raw) { set_number(raw, key, number_type(type), value); });
}

pyg_status pyg_gguf_set_numbers(pyg_gguf * gguf, const char * key, int32_t type, const void * values, size_t n,
                                pyg_error * err) {
    return set_value(gguf, key, err,
                     [&](gguf_context * raw) { gguf_set_arr_data(raw, key, number_type(type), values, n); });
}

pyg_status pyg_gguf_set_text(pyg_gguf * gguf, const char * key, const char * text, pyg_error * err) {
    return set_value(gguf, key, err, [&](gguf_context * raw) { gguf_set_val_str(raw, key, text); });
}

pyg_status pyg_gguf_set_texts(pyg_gguf * gguf, const char * key, const char ** texts, size_t n, pyg_error * err) {
    return set_value(gguf, key, err, [&](gguf_context * raw) { gguf_set_arr_str(raw, key, texts, n); });
}

pyg_status pyg_gguf_add_tensor(pyg_gguf * gguf, const char * name, int32_t type, const int64_t * ne, int32_t n_dims,
                               pyg_error * err) {
    return pyg::with(gguf, err, [&](gguf_context & self) {
        require_new_name(&self, name);
        const ggml_type known_type = pyg::checked_type(type);
        require_shape(&self, name, known_type, ne, n_dims);
        const ggml_tensor tensor = describe_tensor(name, known_type, ne, n_dims);
        gguf_add_tensor(&self, &tensor);
    });
}

pyg_status pyg_gguf_meta_size(pyg_gguf * gguf, size_t * out, pyg_error * err) {
    *out = 0;
    return pyg::with(gguf, err, [&](gguf_context & self) { *out = gguf_get_meta_size(&self); });
}

pyg_status pyg_gguf_meta_data(pyg_gguf * gguf, void * dst, size_t size, pyg_error * err) {
    return pyg::with(gguf, err, [&](gguf_context & self) {
        const size_t needed = gguf_get_meta_size(&self);
        if (size != needed) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the metadata takes %zu bytes, but the buffer has %zu", needed, size);
        }
        gguf_get_meta_data(&self, dst);
    });
}
