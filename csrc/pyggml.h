// pyggml's C API: the engine behind a guard.
//
// Read by both C++ and cffi, so it has only plain declarations: no macros except the include guard, constants as enums,
// upstream's types by name only.
//
// Rules for every function below, unless it says otherwise:
//
//   Status      Returns 0, or a negative pyg_code and fills *err (never NULL), which the caller owns.
//               No C++ exception escapes, and a failed GGML_ASSERT on the calling thread returns
//               PYG_ERR_ENGINE. An object in use when that happens is poisoned: every later use returns
//               PYG_ERR_ENGINE, and its engine memory is leaked, because its state is unknown.
//   Ownership   *owned*: the caller frees it with the matching pyg_*_free. *borrowed until X*: never freed by
//               the caller, valid until X. A child (context, engine, sampler with a grammar) keeps its model's
//               weights alive, so handles may be freed in any order.
//   Closing     pyg_*_close releases what the object holds but keeps the handle: later calls return
//               PYG_ERR_CLOSED. It waits for a call in flight on another thread and may be called again.
//               pyg_*_free closes, then frees the handle; no other call may be in flight. NULL is allowed.
//   Threads     Any thread may call any function. Calls on one object are serialised; calls on different
//               objects do not block each other. No function needs the GIL.
//   Fork        A handle created before fork() returns PYG_ERR_ENGINE in the child; freeing it there leaks it.
//   Strings     const char * arguments are NUL-terminated UTF-8 unless a length is passed as well. A char * that is
//               returned through an argument is *owned*: pyg_string_free.
//   Raw API     pyg_*_get returns the upstream object, *borrowed until close*, for use with the raw API.

#ifndef PYGGML_H
#define PYGGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- Status and errors -----------------------------------------------------------------------------------

typedef int32_t pyg_status;

// One code for each exception in pyggml/errors.py.
enum pyg_code {
    PYG_OK                    = 0,
    PYG_ERR_MODEL_NOT_FOUND   = -1,
    PYG_ERR_MODEL_LOAD        = -2,
    PYG_ERR_UNSUPPORTED_ARCH  = -3,
    PYG_ERR_ARCH_MISMATCH     = -4,
    PYG_ERR_TOKENIZER         = -5,
    PYG_ERR_INVALID_PARAMETER = -6,
    PYG_ERR_EMPTY_PROMPT      = -7,
    PYG_ERR_CONTEXT_OVERFLOW  = -8,
    PYG_ERR_GRAMMAR           = -9,
    PYG_ERR_DEVICE            = -10,
    PYG_ERR_OUT_OF_MEMORY     = -11,
    PYG_ERR_TIMEOUT           = -12,
    PYG_ERR_CLOSED            = -13,
    PYG_ERR_ENGINE            = -14,
    PYG_ERR_QUEUE_FULL        = -15,
    PYG_ERR_HOST_LOST         = -16,
    PYG_ERR_ENGINE_LOST       = -17,
};

typedef struct pyg_error {
    int32_t  code;
    uint64_t required_bytes;   // with PYG_ERR_OUT_OF_MEMORY, else 0
    uint64_t available_bytes;  // with PYG_ERR_OUT_OF_MEMORY, else 0
    char     message[2048];    // NUL-terminated UTF-8; truncated between characters if too long
} pyg_error;

// --- Process: start-up, versions, live handles, logs -----------------------------------------------------

// Start the engine once per process: log and abort callbacks, fork detection, CPU backends. Later calls do nothing.
// `module_dir` is the folder of the compiled module, which is searched for loadable backends. `search_path` lists
// folders of Python packages, separated by colons, which are searched for NVIDIA's libraries if a backend lacks them.
pyg_status pyg_init(const char * module_dir, const char * search_path, pyg_error * err);

const char * pyg_version(void);       // the package version; static
const char * pyg_engine_build(void);  // upstream's build, such as "b11549"; static

// Build information, as lines "name=value": compiler, build type, enabled engine options. Static.
const char * pyg_build_info(void);

// Build options that a backend, such as "CPU" or "CUDA", reports, as lines "name=value"; empty if it is not loaded.
pyg_status pyg_backend_features(const char * backend, char ** out, pyg_error * err);

enum pyg_handle_kind {
    PYG_HANDLE_MODEL,
    PYG_HANDLE_CONTEXT,
    PYG_HANDLE_SAMPLER,
    PYG_HANDLE_ENGINE,
    PYG_HANDLE_REQUEST,
    PYG_HANDLE_BACKEND,
    PYG_HANDLE_GGUF,
    PYG_HANDLE_WAKER,
    PYG_HANDLE_CHAT_TEMPLATES,
    PYG_HANDLE_CHAT_PARSER,
    PYG_HANDLE_IMATRIX,
    PYG_HANDLE_REMOTE,
    PYG_HANDLE_MAPPED_FILE,
    PYG_HANDLE_ENGINE_CLIENT,
    PYG_HANDLE_GRAMMAR,
    PYG_HANDLE_MATCHER,
    PYG_HANDLE_ADAPTER,
    PYG_HANDLE_KINDS,
};

// Number of handles of a kind that are not freed yet; closed ones count.
int64_t pyg_live_handles(enum pyg_handle_kind kind);

enum pyg_log_level {
    PYG_LOG_DEBUG = 10,  // levels of Python's logging
    PYG_LOG_WARN  = 30,
    PYG_LOG_ERROR = 40,
    PYG_LOG_OFF   = 100,
};

// Engine messages below `level` are dropped at once. The others wait in a bounded queue until they are read, so that no
// engine thread waits for Python. PYG_LOG_OFF by default.
void    pyg_log_set_level(int32_t level);
int32_t pyg_log_get_level(void);

// Move the oldest queued line into `line` (NUL-terminated, truncated to `size`). Returns its level, or 0 if there is
// none. Cheap when the queue is empty.
int32_t pyg_log_read(char * line, size_t size);

// --- Devices and raw backends ----------------------------------------------------------------------------

typedef struct pyg_device {
    char     name[128];         // upstream's name: "CPU", "CUDA0", "Vulkan0" ...
    char     backend[64];       // upstream's name of its backend: "CPU", "CUDA", "RPC" ...
    char     device_id[64];     // bus id, the same for every backend of the device; "" if unknown
    char     description[256];  // "AMD EPYC ...", "NVIDIA H200" ...
    int32_t  type;              // enum ggml_backend_dev_type
    uint64_t memory_total;      // bytes
    uint64_t memory_free;       // bytes; for the CPU, limited by the cgroups
} pyg_device;

// Backend module of a GPU. In a build with loadable backends (PYGGML_PORTABLE), GPU modules are loaded once, on first
// use: by the functions below, or by a model that is not for the CPU alone.
typedef struct pyg_gpu_module {
    char name[128];  // file name: "libggml-cuda.so"
    // error of the system's loader or of the backend, if it was not loaded or found no device; or ""
    char    reason[1024];
    bool    is_loaded;
    int32_t n_devices;
} pyg_gpu_module;

int32_t    pyg_gpu_module_count(void);  // 0 in builds without modules
pyg_status pyg_gpu_module_get(int32_t index, pyg_gpu_module * out, pyg_error * err);

int32_t    pyg_device_count(void);
pyg_status pyg_device_get(int32_t index, pyg_device * out, pyg_error * err);

// Main memory available to this process in bytes: the minimum of the machine's available memory, the limits of the
// cgroups above the process, and its address space limit (ulimit -v).
uint64_t pyg_memory_available(void);

// The same limits one by one, in bytes; UINT64_MAX for none.
typedef struct pyg_memory_limits {
    uint64_t machine;        // available memory of the machine
    uint64_t groups;         // left by the cgroups above the process
    uint64_t address_space;  // left by ulimit -v
} pyg_memory_limits;

void pyg_memory_get_limits(pyg_memory_limits * out);

// Number of cores to compute on: physical cores, limited by the process's CPU affinity and its cgroups' quotas, rounded
// down; at least 1.
int32_t pyg_cpu_count(void);

// The limits behind pyg_cpu_count.
typedef struct pyg_cpu_limits {
    int32_t n_processors;  // allowed by the CPU affinity; 0 if unknown
    int32_t n_cores;       // physical cores among them
    int32_t n_quota;       // quotas of the cgroups, rounded down; INT32_MAX for none
} pyg_cpu_limits;

void pyg_cpu_get_limits(pyg_cpu_limits * out);

typedef struct pyg_backend pyg_backend;
struct ggml_backend;
struct ggml_cgraph;

// Open a device for raw ggml graphs. `n_threads` is for devices that compute on the CPU; 0: pyg_cpu_count().
// PYG_ERR_DEVICE if upstream has no device of this name.
pyg_status pyg_backend_new(const char * device_name, int32_t n_threads, pyg_backend ** out, pyg_error * err);
pyg_status pyg_backend_close(pyg_backend * backend, pyg_error * err);
void       pyg_backend_free(pyg_backend * backend);
pyg_status pyg_backend_get(pyg_backend * backend, struct ggml_backend ** out, pyg_error * err);

// Compute a graph and wait for it. PYG_ERR_INVALID_PARAMETER when a tensor is not allocated in memory that the device
// can access, or the device does not support one of the operations.
pyg_status pyg_backend_compute(pyg_backend * backend, struct ggml_cgraph * graph, pyg_error * err);

// --- Remote hosts ----------------------------------------------------------------------------------------

// Hosts export their devices over a socket. Both ends must have the same engine build, and must have authenticated each
// other before the socket is passed to these functions (pyggml/remote).

typedef struct pyg_remote pyg_remote;

// Connect to a host through an authenticated socket, whose ownership is taken even on failure. `name` is the host's
// name in messages. The host is lost if it sends no heartbeat for `heartbeat_timeout_s` seconds while this process
// waits for it; then computations with it fail with PYG_ERR_HOST_LOST. A pyg_placement may name its devices until the
// handle is closed. Models on them keep the connection open.
pyg_status pyg_remote_connect(int32_t socket, const char * name, double heartbeat_timeout_s, pyg_remote ** out,
                              pyg_error * err);
pyg_status pyg_remote_close(pyg_remote * remote, pyg_error * err);
void       pyg_remote_free(pyg_remote * remote);

// The host's devices, by their names in this process, with the host's name as description. Queries their memory.
pyg_status pyg_remote_device_count(pyg_remote * remote, int32_t * out, pyg_error * err);
pyg_status pyg_remote_device_get(pyg_remote * remote, int32_t index, pyg_device * out, pyg_error * err);

// PYG_ERR_HOST_LOST if the connection is known to be broken. Does not wait.
pyg_status pyg_remote_require(pyg_remote * remote, pyg_error * err);

// Compute on devices of this process (indices of pyg_device_get) for the client at the other end of the socket, whose
// ownership is taken; return when it disconnects. `n_threads`: for devices that compute on the CPU; 0: pyg_cpu_count().
// The client may allocate `max_bytes` on each device. Once per process, in a separate process: a malformed request may
// crash it.
pyg_status pyg_remote_serve(int32_t socket, const char * name, const int32_t * devices, int32_t n_devices,
                            int32_t n_threads, uint64_t max_bytes, pyg_error * err);

// --- Quantisation of plain arrays ------------------------------------------------------------------------

// Quantise `n_rows` rows of `n_per_row` floats to `type` (enum ggml_type) into `dst`, which has exactly `dst_size`
// bytes. `imatrix` is NULL or n_per_row importance weights, none negative; some types require one. `n_per_row` must be
// a multiple of the type's block size. PYG_ERR_INVALID_PARAMETER for types of plain numbers (integers, F64) and of
// intermediate results (Q8_1, Q8_K), and for values a type cannot represent: NaN and infinities outside of F32, F16 and
// BF16, magnitudes above 32768 (F16: 65504; BF16, MXFP4: as F32; NVFP4: 2688).
pyg_status pyg_quantize(int32_t type, const float * src, int64_t n_rows, int64_t n_per_row, const float * imatrix,
                        void * dst, size_t dst_size, pyg_error * err);

// Dequantise `n` values of `type` from `src` (exactly `src_size` bytes) into `dst`. PYG_ERR_INVALID_PARAMETER for the
// types pyg_quantize refuses, and when a value is not finite: then the bytes are not data of that type, and the
// contents of `dst` are undefined.
pyg_status pyg_dequantize(int32_t type, const void * src, size_t src_size, int64_t n, float * dst, pyg_error * err);

// Sizes of a model that its quantization mix depends on.
typedef struct pyg_quantization_mix_model {
    const char * architecture;  // as in a GGUF file
    uint32_t     n_embd;
    uint32_t     n_ff;
    uint32_t     n_layer;
    uint32_t     n_head;
    uint32_t     n_head_kv;
    uint32_t     n_expert;
    uint32_t     n_embd_head;
} pyg_quantization_mix_model;

// A tensor to quantise.
typedef struct pyg_quantization_mix_tensor {
    const char * name;
    int64_t      ne[4];          // innermost first; 1 for missing dimensions
    int32_t      type;           // enum ggml_type; in: current type, out: the mix's choice
    int32_t      wanted;         // type to use instead of the mix's choice, if it is mixed; -1: none
    bool         is_mixed;       // out: false for vectors and other tensors that keep their type
    bool         needs_imatrix;  // out: unusable without an importance matrix
    bool         is_fallback;  // out: its rows are not whole blocks of the type that was meant, so it gets another one
} pyg_quantization_mix_tensor;

// Choose the types of a model's tensors as upstream's quantiser does. `tensors` must be all of them, in the order they
// are stored. `ftype` is an enum llama_ftype; some mixes spend fewer bits with an importance matrix.
// PYG_ERR_UNSUPPORTED_ARCH for an architecture unknown to the engine, PYG_ERR_INVALID_PARAMETER for other values
// without rules.
pyg_status pyg_quantization_mix_types(const pyg_quantization_mix_model * model, int32_t ftype, bool has_imatrix,
                                      pyg_quantization_mix_tensor * tensors, size_t n_tensors, pyg_error * err);

// The same for the model in a GGUF file (the first of a split set), whose metadata is read. PYG_ERR_MODEL_LOAD.
pyg_status pyg_quantization_mix_types_of_file(const char * path, int32_t ftype, bool has_imatrix,
                                              pyg_quantization_mix_tensor * tensors, size_t n_tensors, pyg_error * err);

// --- Mapped files ----------------------------------------------------------------------------------------

typedef struct pyg_mapped_file pyg_mapped_file;

// Watch the file at `path`, which the caller maps. While it is watched, pages missing because the file was truncated
// read as zeros instead of raising SIGBUS (boundary/signals/mapped_files.hpp). Models do this for themselves.
pyg_status pyg_mapped_file_watch(const char * path, pyg_mapped_file ** out, pyg_error * err);

// PYG_ERR_MODEL_LOAD if a missing page was read: discard the results.
pyg_status pyg_mapped_file_require_whole(pyg_mapped_file * file, pyg_error * err);

void pyg_mapped_file_free(pyg_mapped_file * file);

// --- GGUF files ------------------------------------------------------------------------------------------

typedef struct pyg_gguf pyg_gguf;
struct gguf_context;

// Read a file's metadata. Tensor data is not read, but must be complete. PYG_ERR_MODEL_NOT_FOUND, PYG_ERR_MODEL_LOAD.
pyg_status pyg_gguf_open(const char * path, pyg_gguf ** out, pyg_error * err);

// The same for a file whose tensor data may be missing.
pyg_status pyg_gguf_open_header(const char * path, pyg_gguf ** out, pyg_error * err);

// Create an empty GGUF to fill and write.
pyg_status pyg_gguf_new(pyg_gguf ** out, pyg_error * err);
void       pyg_gguf_free(pyg_gguf * gguf);

// The upstream object, *borrowed until free*. Its getters abort on a wrong type, its setters on an empty key and
// without memory, and it has no lock: check first, or use pyggml.gguf, which does both.
struct gguf_context * pyg_gguf_get(pyg_gguf * gguf);

// Set a metadata value, replacing the key's current one, which is lost even if an allocation fails. `type` is the enum
// gguf_type of the value or of an array's elements, neither text nor array; values are in native byte order, bools are
// bytes, texts end with a NUL. "general.alignment" must be set before the first tensor, to a UINT32 (PYG_ERR_ENGINE
// otherwise, which poisons the object) that is a power of 2; setting it invalidates pyg_gguf_get's object.
pyg_status pyg_gguf_set_number(pyg_gguf * gguf, const char * key, int32_t type, const void * value, pyg_error * err);
pyg_status pyg_gguf_set_numbers(pyg_gguf * gguf, const char * key, int32_t type, const void * values, size_t n,
                                pyg_error * err);
pyg_status pyg_gguf_set_text(pyg_gguf * gguf, const char * key, const char * text, pyg_error * err);
pyg_status pyg_gguf_set_texts(pyg_gguf * gguf, const char * key, const char ** texts, size_t n, pyg_error * err);

// Declare a tensor of `n_dims` dimensions `ne` (innermost first) at the end of the file. The name must be new and
// shorter than GGML_MAX_NAME.
pyg_status pyg_gguf_add_tensor(pyg_gguf * gguf, const char * name, int32_t type, const int64_t * ne, int32_t n_dims,
                               pyg_error * err);

// The complete metadata block, padded to the start of the tensor data. `size` must be the one returned by
// pyg_gguf_meta_size.
pyg_status pyg_gguf_meta_size(pyg_gguf * gguf, size_t * out, pyg_error * err);
pyg_status pyg_gguf_meta_data(pyg_gguf * gguf, void * dst, size_t size, pyg_error * err);

// --- Models and vocabularies -----------------------------------------------------------------------------

typedef struct pyg_model pyg_model;
struct llama_model;
struct llama_vocab;

// Progress callback, called on the loading thread with a fraction 0..1; return false to stop the load with
// PYG_ERR_MODEL_LOAD.
typedef bool (*pyg_progress_fn)(float fraction, void * user_data);

// Placement of tensors by name: a regular expression (std::regex), searched for in the names, and upstream's name of
// the device; "CPU" is main memory.
typedef struct pyg_override {
    const char * pattern;
    const char * device;
} pyg_override;

// Placement of a model's weights. Read only during the call it is passed to.
typedef struct pyg_placement {
    const char * const * devices;       // upstream's names, (n_devices,)
    int32_t              n_devices;     // at most PYG_MAX_GPUS; 0: CPU only
    int32_t              split_mode;    // enum llama_split_mode
    const float *        tensor_split;  // (n_devices,), share of each; NULL: upstream divides by free memory
    int32_t              n_gpu_layers;  // on the devices, counted from the last; negative: all
    int32_t              n_cpu_moe;  // layers whose experts stay in main memory, counted from the first; negative: all
    const pyg_override * overrides;  // (n_overrides,), the first match applies
    int32_t              n_overrides;
} pyg_placement;

typedef struct pyg_model_options {
    const pyg_placement * placement;  // NULL: the CPU
    bool                  use_mmap;
    bool                  use_mlock;
    bool                  vocab_only;     // vocabulary and metadata, no weights
    bool                  shape_only;     // metadata and shapes of the weights, for pyg_context_estimate; fast
    bool                  check_tensors;  // validate every block of the weights while loading
    pyg_progress_fn       progress;       // or NULL
    void *                progress_data;
} pyg_model_options;

pyg_model_options pyg_model_default_options(void);

// Load a GGUF file (given the first of a split set, all of them). `path` is checked before the engine opens it.
// PYG_ERR_MODEL_NOT_FOUND, PYG_ERR_MODEL_LOAD, PYG_ERR_UNSUPPORTED_ARCH, PYG_ERR_DEVICE; PYG_ERR_INVALID_PARAMETER when
// a device does not support the placement, or an override matches nothing; PYG_ERR_OUT_OF_MEMORY when an allocation
// fails, or when the weights would not fit without mmap.
pyg_status pyg_model_new(const char * path, const pyg_model_options * options, pyg_model ** out, pyg_error * err);

// Check a model's metadata: load it without weights and continue past errors. `ggufs` are the model's files in order;
// only the tensors of the later ones are used. `path` is any existing file. *out is the model with its vocabulary and
// without weights, or NULL if the vocabulary cannot be read. *report is a JSON object:
//   failed    the step that failed: "architecture", "sizes", "vocabulary" or "tensors"; or ""
//   message   the engine's error message
//   sizes     the model's sizes as the engine reads them; empty if it does not get that far
//   findings  tensors that are missing (no "found") or have the wrong shape: {"name", "expected", "found"}, shapes
//             innermost first; the first 256
//   unknown   names of tensors that this architecture does not have
// Files without tensors are treated as vocabularies: nothing counts as missing.
pyg_status pyg_model_check_metadata(pyg_gguf * const * ggufs, size_t n_ggufs, const char * path, char ** report,
                                    pyg_model ** out, pyg_error * err);
pyg_status pyg_model_close(pyg_model * model, pyg_error * err);
void       pyg_model_free(pyg_model * model);
pyg_status pyg_model_get(pyg_model * model, struct llama_model ** out, pyg_error * err);
pyg_status pyg_model_get_vocab(pyg_model * model, const struct llama_vocab ** out, pyg_error * err);

typedef struct pyg_model_info {
    int32_t  n_ctx_train;
    int32_t  n_embd;
    int32_t  n_embd_out;
    int32_t  n_layer;
    int32_t  n_head;
    int32_t  n_head_kv;
    int32_t  n_swa;      // sliding-window size; 0: full attention
    int32_t  rope_type;  // enum llama_rope_type
    int32_t  ftype;      // enum llama_ftype
    uint32_t n_cls_out;  // classifier outputs; 0 without a classifier head
    uint64_t n_params;
    uint64_t size_bytes;  // of all tensors
    bool     has_encoder;
    bool     has_decoder;
    bool     is_recurrent;
    bool     is_hybrid;
    bool     is_diffusion;
    bool     is_causal;  // each token attends only to those before it
    char     desc[128];  // such as "llama 1B Q4_K - Medium"; upstream guesses the size from the layers
    char     arch[64];   // general.architecture
} pyg_model_info;

pyg_status pyg_model_get_info(pyg_model * model, pyg_model_info * out, pyg_error * err);

// Metadata pair `index` as strings. The lengths returned are the full ones, without the NUL; the strings are truncated
// to `key_size` and `value_size`. PYG_ERR_INVALID_PARAMETER past the end. Upstream abbreviates arrays; pyggml.gguf
// reads them completely.
pyg_status pyg_model_meta_count(pyg_model * model, int32_t * out, pyg_error * err);
pyg_status pyg_model_meta_get(pyg_model * model, int32_t index, char * key, size_t key_size, size_t * key_len,
                              char * value, size_t value_size, size_t * value_len, pyg_error * err);

// The Jinja chat template named `name` (NULL: the default one); NULL if there is none.
pyg_status pyg_model_chat_template(pyg_model * model, const char * name, char ** out, pyg_error * err);

// Vocabularies are immutable, so calls on one run in parallel.

typedef struct pyg_vocab_info {
    int32_t type;  // enum llama_vocab_type
    int32_t n_tokens;
    int32_t bos;  // special tokens: -1 if there is none
    int32_t eos;
    int32_t eot;
    int32_t sep;
    int32_t nl;
    int32_t pad;
    int32_t mask;
    int32_t fim_pre;
    int32_t fim_suf;
    int32_t fim_mid;
    int32_t fim_pad;
    int32_t fim_rep;
    int32_t fim_sep;
    bool    add_bos;
    bool    add_eos;
    bool    add_sep;
} pyg_vocab_info;

typedef struct pyg_token_info {
    float   score;
    int32_t attr;  // bits of enum llama_token_attr
    bool    is_eog;
    bool    is_control;
} pyg_token_info;

pyg_status pyg_vocab_get_info(pyg_model * model, pyg_vocab_info * out, pyg_error * err);
pyg_status pyg_vocab_token(pyg_model * model, int32_t token_id, pyg_token_info * out, pyg_error * err);

// Text of a token as stored in the vocabulary. *len_out is its length in bytes. If that exceeds `size`, nothing is
// written: call again with a larger buffer.
pyg_status pyg_vocab_text(pyg_model * model, int32_t token_id, char * buf, size_t size, size_t * len_out,
                          pyg_error * err);

// All end-of-generation tokens, ascending. *n_out is their number. If that exceeds `n_max`, nothing is written: call
// again with a larger buffer.
pyg_status pyg_vocab_eog_ids(pyg_model * model, int32_t * token_ids, int32_t n_max, int32_t * n_out, pyg_error * err);

// All tokens that are recognised in text only with `parse_special`, ascending. *n_out as above.
pyg_status pyg_vocab_special_ids(pyg_model * model, int32_t * token_ids, int32_t n_max, int32_t * n_out,
                                 pyg_error * err);
// The token stored as `text`, or -1.
pyg_status pyg_vocab_find(pyg_model * model, const char * text, size_t text_len, int32_t * out, pyg_error * err);

// Tokenize text. *n_out as above. `text` may contain any bytes, including NUL.
pyg_status pyg_vocab_tokenize(pyg_model * model, const char * text, size_t text_len, bool add_special,
                              bool parse_special, int32_t * token_ids, int32_t n_max, int32_t * n_out, pyg_error * err);

// Texts to tokenize together, one after the other in `bytes`.
typedef struct pyg_texts {
    const char *    bytes;  // may contain any bytes, including NUL
    const int64_t * ends;   // (n_texts,): the index after the last byte of each, ascending
    int32_t         n_texts;
    bool            parse_special;  // as for pyg_vocab_tokenize
    const int32_t * before;         // (n_before,): special tokens put before each text, unless it begins with them
    int32_t         n_before;
    const int32_t * after;  // (n_after,): likewise after it
    int32_t         n_after;
} pyg_texts;

// Tokenize texts on as many threads as that is worth. lengths: (n_texts,), the number of tokens of each. *ids:
// (*n_ids,) int32, the tokens of all texts, *owned*: pyg_string_free.
pyg_status pyg_vocab_tokenize_batch(pyg_model * model, const pyg_texts * texts, int32_t * lengths, char ** ids,
                                    int64_t * n_ids, pyg_error * err);

// The bytes of one token, which may be part of a UTF-8 character. Special tokens have none unless `special` is set.
// *len_out as n_out above.
pyg_status pyg_vocab_piece(pyg_model * model, int32_t token_id, bool special, char * buf, size_t size, size_t * len_out,
                           pyg_error * err);

// Detokenize: the inverse of pyg_vocab_tokenize. *len_out as n_out above.
pyg_status pyg_vocab_detokenize(pyg_model * model, const int32_t * token_ids, int32_t n, bool remove_special,
                                bool unparse_special, char * buf, size_t size, size_t * len_out, pyg_error * err);

// --- Contexts --------------------------------------------------------------------------------------------

typedef struct pyg_context pyg_context;
typedef struct pyg_sampler pyg_sampler;
typedef struct pyg_imatrix pyg_imatrix;
struct llama_context;

typedef struct pyg_context_options {
    uint32_t n_ctx;     // KV cells, rounded up to a multiple of 256; 0: the model's training length
    uint32_t n_batch;   // most tokens in one decode call
    uint32_t n_ubatch;  // tokens of a micro-batch
    uint32_t n_seq_max;
    uint32_t n_outputs_max;      // most rows of logits in one decode call; 0: n_batch
    int32_t  n_threads;          // 0: pyg_cpu_count()
    int32_t  n_threads_batch;    // 0: same as n_threads
    int32_t  type_k;             // enum ggml_type of the K cache
    int32_t  type_v;             // enum ggml_type of the V cache
    int32_t  flash_attn;         // enum llama_flash_attn_type
    int32_t  pooling;            // enum llama_pooling_type
    int32_t  attention;          // enum llama_attention_type
    int32_t  rope_scaling_type;  // enum llama_rope_scaling_type
    float    rope_freq_base;     // 0: from the model
    float    rope_freq_scale;    // 0: from the model
    float    yarn_ext_factor;    // negative: from the model, as for the next three
    float    yarn_attn_factor;
    float    yarn_beta_fast;
    float    yarn_beta_slow;
    uint32_t yarn_orig_ctx;  // 0: from the model
    bool     embeddings;     // compute embeddings of every token as well: n_outputs_max is treated as 0, and
                             // n_ubatch is rounded down to a multiple of n_seq_max
    bool     offload_kqv;    // keep the KV cache on the GPU with the layers
    bool     op_offload;
    bool     swa_full;    // full-size cache for sliding-window layers
    bool     kv_unified;  // one buffer of KV cells shared by all sequences

    // Collects an importance matrix during decodes, or NULL. The context keeps it alive.
    pyg_imatrix * imatrix;
} pyg_context_options;

pyg_context_options pyg_context_default_options(void);

enum { PYG_MAX_GPUS = 16 };  // per model; upstream's limit

// Memory used, or planned, on one device or in main memory.
typedef struct pyg_memory_share {
    char     name[128];         // upstream's name of the device: "CPU" for main memory
    uint64_t weights_bytes;     // all weights, including those mapped from the file
    uint64_t repacked_bytes;    // of these, copies in a faster layout
    uint64_t originals_bytes;   // originals of such copies, where they stay mapped until the system needs the
                                // memory: with upstream's layouts; ours release them
    uint64_t vocabulary_bytes;  // vocabulary, in addition to the weights
    uint64_t context_bytes;     // KV cache, recurrent states and the engine's bookkeeping of cells
    uint64_t compute_bytes;     // scratch buffers and rows of output
    uint64_t available_bytes;   // pyg_memory_available(), or the device's free memory
} pyg_memory_share;

typedef struct pyg_memory {
    int32_t          n_shares;
    pyg_memory_share shares[PYG_MAX_GPUS + 1];  // main memory first
} pyg_memory;

// Memory that the model and a context with `options` would use, computed by the engine's own planner without allocating
// it. The model may be loaded with weights or with shape_only.
pyg_status pyg_context_estimate(pyg_model * model, const pyg_context_options * options, pyg_memory * out,
                                pyg_error * err);

// Estimates the memory first, and returns PYG_ERR_OUT_OF_MEMORY, with required and available bytes, before the kernel
// would kill the process.
pyg_status pyg_context_new(pyg_model * model, const pyg_context_options * options, pyg_context ** out, pyg_error * err);
pyg_status pyg_context_close(pyg_context * ctx, pyg_error * err);
void       pyg_context_free(pyg_context * ctx);

// Memory used by the model and the context in the engine's buffers; for mapped weights, the part of the file that stays
// mapped.
pyg_status pyg_context_memory(pyg_context * ctx, pyg_memory * out, pyg_error * err);
pyg_status pyg_context_get(pyg_context * ctx, struct llama_context ** out, pyg_error * err);

typedef struct pyg_context_info {
    uint32_t n_ctx;
    uint32_t n_ctx_seq;  // KV cells that one sequence can use
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t n_outputs_max;
    int32_t  n_threads;
    int32_t  n_threads_batch;
    int32_t  n_vocab;
    int32_t  n_embd_out;
    int32_t  pooling;    // enum llama_pooling_type
    int32_t  n_outputs;  // rows of output of the last decode
    bool     can_shift;  // seq_add and seq_div can shift positions
} pyg_context_info;

pyg_status pyg_context_get_info(pyg_context * ctx, pyg_context_info * out, pyg_error * err);

// Operations of the context's model that are not batch-invariant, one per line; the first line says why our kernels are
// not in use, if so. Empty if every operation is batch-invariant. Not while another thread decodes.
pyg_status pyg_context_not_batch_invariant(pyg_context * ctx, char ** names, pyg_error * err);
pyg_status pyg_context_set_threads(pyg_context * ctx, int32_t n_threads, int32_t n_threads_batch, pyg_error * err);

typedef struct pyg_batch {
    int32_t         n_tokens;
    const int32_t * token_ids;  // (n_tokens,)
    const int32_t * pos;        // (n_tokens,) or NULL: each sequence continues where it ended
    const int32_t * seq_ids;    // (n_tokens,) or NULL: sequence 0
    const int8_t *  output;     // (n_tokens,), nonzero where logits or embeddings are wanted; NULL: the last token. A
                                // context with embeddings and an encoder always output every token.
} pyg_batch;

// Decode a batch. *n_outputs is the number of rows of output. PYG_ERR_INVALID_PARAMETER when a value is out of range
// and PYG_ERR_CONTEXT_OVERFLOW when there are too few free cells: nothing has changed then. PYG_ERR_ENGINE when it
// failed or pyg_context_cancel stopped it.
pyg_status pyg_context_decode(pyg_context * ctx, const pyg_batch * batch, int32_t * n_outputs, pyg_error * err);
pyg_status pyg_context_encode(pyg_context * ctx, const pyg_batch * batch, int32_t * n_outputs, pyg_error * err);

// Make a decode or encode that is running on another thread return early; otherwise does nothing. Does not wait. Only
// CPU work can be interrupted, and not a decode that applies pending sequence edits.
void pyg_context_cancel(pyg_context * ctx);

// Copy output of the last decode. Row i belongs to the i-th token of the batch for which output was requested. dst:
// (n_rows, n_vocab) or (n_rows, n_embd_out), rows [first, first + n_rows). PYG_ERR_ENGINE when there is no output.
pyg_status pyg_context_logits(pyg_context * ctx, int32_t first, int32_t n_rows, float * dst, pyg_error * err);
pyg_status pyg_context_embeddings(pyg_context * ctx, int32_t first, int32_t n_rows, float * dst, pyg_error * err);

// Log-probability (log-softmax of the logits) of one token in each of those rows. dst, token_ids: (n_rows,).
pyg_status pyg_context_logprobs(pyg_context * ctx, int32_t first, int32_t n_rows, const int32_t * token_ids,
                                float * dst, pyg_error * err);

// The same for tokens of any of these rows, which may repeat, and whether each is the likeliest of its row (of equal
// ones the first). All: (n,).
pyg_status pyg_context_scores(pyg_context * ctx, int32_t n, const int32_t * rows, const int32_t * token_ids,
                              float * logprobs, bool * is_likeliest, pyg_error * err);

// Pooled embedding of a sequence of the last batch. dst: (n_embd_out,), or (n_cls_out,) for rank pooling.
pyg_status pyg_context_embeddings_seq(pyg_context * ctx, int32_t seq_id, float * dst, int32_t n, pyg_error * err);

// Keep the hidden states that these layers read, of every token, from the next batch on: layer i reads those after i
// layers, layer 0 the embeddings of the tokens. PYG_ERR_INVALID_PARAMETER for a context without embeddings, and for
// layers that the model does not have; PYG_ERR_UNSUPPORTED_ARCH, after which the context cannot be used, for models
// whose graphs do not tell.
pyg_status pyg_context_keep_layers(pyg_context * ctx, const int32_t * layers, int32_t n, pyg_error * err);

// The hidden states of tokens [first, first + n_rows) of the last batch. dst: (n_rows, n_embd).
pyg_status pyg_context_layer(pyg_context * ctx, int32_t layer, int32_t first, int32_t n_rows, float * dst,
                             pyg_error * err);

// How vectors of a text's tokens become one vector.
typedef enum pyg_pooling {
    PYG_POOLING_CLS           = 0,  // the first
    PYG_POOLING_LAST          = 1,  // the last
    PYG_POOLING_MEAN          = 2,  // their mean
    PYG_POOLING_MAX           = 3,  // the largest value of each column
    PYG_POOLING_MEAN_SQRT_LEN = 4,  // their sum, divided by the root of their number
    PYG_POOLING_WEIGHTED_MEAN = 5,  // their mean, weighted by position: 1, 2, 3 ...
} pyg_pooling;

// Pool the token vectors of texts; the result of each depends on its own vectors only. rows: (sum of lengths,
// n_columns), those of all texts, one after the other. Of each text, the first n_skipped rows are left out, but not its
// last one. Writes text i to dst + i * dst_stride. PYG_ERR_INVALID_PARAMETER for a length below 1, or another number.
pyg_status pyg_pool(const float * rows, int32_t n_columns, const int32_t * lengths, int32_t n_texts, int32_t n_skipped,
                    int32_t pooling, float * dst, int64_t dst_stride, pyg_error * err);

// Scale each of `n_rows` rows of `n_columns` to length 1; rows of zeros stay.
void pyg_normalize_rows(float * rows, int64_t n_rows, int64_t n_columns);

// Edits of sequences. Positions are half-open [p0, p1); a negative end is open. seq_id -1 matches every sequence where
// noted. seq_add, seq_div and, without kv_unified, seq_cp are applied by the next decode. PYG_ERR_INVALID_PARAMETER for
// models without a memory (encoders) and for unsupported edits: copying part of a sequence without kv_unified or with a
// recurrent state, shifting positions if can_shift is false.
pyg_status pyg_context_memory_clear(pyg_context * ctx, bool data, pyg_error * err);
pyg_status pyg_context_seq_rm(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, bool * removed,
                              pyg_error * err);  // -1 allowed; *removed false: not supported by this memory
pyg_status pyg_context_seq_cp(pyg_context * ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1, pyg_error * err);
pyg_status pyg_context_seq_keep(pyg_context * ctx, int32_t seq_id, pyg_error * err);
pyg_status pyg_context_seq_add(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t delta,
                               pyg_error * err);
pyg_status pyg_context_seq_div(pyg_context * ctx, int32_t seq_id, int32_t p0, int32_t p1, int32_t d, pyg_error * err);
pyg_status pyg_context_seq_pos(pyg_context * ctx, int32_t seq_id, int32_t * pos_min, int32_t * pos_max,
                               pyg_error * err);  // both -1 when the sequence is empty

// State of the whole context (seq_id -1) or of one sequence: its memory, without its last output. It can be restored
// only with the same model on the same kind of machine, and has a checksum. PYG_ERR_INVALID_PARAMETER for bytes that
// are not such a state (nothing has changed then) or do not fit the shape of this context (what was to be restored is
// then empty), and while sequence edits are pending.
pyg_status pyg_context_state_size(pyg_context * ctx, int32_t seq_id, size_t * out, pyg_error * err);
pyg_status pyg_context_state_get(pyg_context * ctx, int32_t seq_id, void * dst, size_t size, size_t * written,
                                 pyg_error * err);
pyg_status pyg_context_state_set(pyg_context * ctx, int32_t seq_id, const void * src, size_t size, pyg_error * err);

// --- Importance matrices: sums over the activations that the weights multiply, collected during decodes ---

// Create an empty one. `process_output`: include the output matrix, where every token has output.
pyg_status pyg_imatrix_new(bool process_output, pyg_imatrix ** out, pyg_error * err);
void       pyg_imatrix_free(pyg_imatrix * imatrix);

// The tensor that follows `after` by name, or NULL, and the sizes of its sums, which do not change:
// (n_counts, n_values / n_counts). PYG_ERR_ENGINE after an activation that was not finite.
pyg_status pyg_imatrix_next(pyg_imatrix * imatrix, const char * after, size_t * n_values, size_t * n_counts,
                            char ** name, pyg_error * err);

// Copy a tensor's sums: of the squared activations of each column and of the activations themselves, n_values each, and
// the number of rows, n_counts: one number, or one for each expert.
pyg_status pyg_imatrix_copy(pyg_imatrix * imatrix, const char * name, float * squares, float * activations,
                            int64_t * counts, pyg_error * err);

// --- Adapters: LoRA, applied to single requests ----------------------------------------------------------

// An adapter of one model. It keeps the model's weights alive, and requests keep the adapter alive.
typedef struct pyg_adapter pyg_adapter;

typedef struct pyg_scaled_adapter {
    pyg_adapter * adapter;
    float         scale;  // factor of its low-rank products; 0: no effect
} pyg_scaled_adapter;

typedef struct pyg_adapter_info {
    uint64_t content;    // hash of its tensors and alpha: equal for files with the same content
    uint64_t n_bytes;    // of its tensors in memory; about twice as many once our kernels have used it
    float    alpha;      // scale of its products times their rank; 0: the file has none
    int32_t  rank;       // the largest of its products
    int32_t  n_targets;  // weights that it changes
} pyg_adapter_info;

// Read a GGUF file for a model. PYG_ERR_MODEL_NOT_FOUND; PYG_ERR_MODEL_LOAD: it is not a LoRA adapter, is damaged, or
// has tensors that are not supported; PYG_ERR_ARCH_MISMATCH: it belongs to another model; PYG_ERR_OUT_OF_MEMORY.
pyg_status pyg_adapter_load(pyg_model * model, const char * path, pyg_adapter ** out, pyg_error * err);
pyg_status pyg_adapter_info_get(pyg_adapter * adapter, pyg_adapter_info * out, pyg_error * err);

// Refuse new requests with the adapter, wait until none uses it, up to `timeout_s` (negative: no limit), and free its
// memory. *closed is false after a timeout: call it again. Does not hold the handle's lock while it waits.
// PYG_ERR_INVALID_PARAMETER: requests use it, and this thread runs a logits callback, so it stays open; or an engine of
// its model has been running one for some seconds, which may wait for this thread: call it again when that has ended.
pyg_status pyg_adapter_close(pyg_adapter * adapter, double timeout_s, bool * closed, pyg_error * err);
// Use adapters for all sequences of a context, from the next decode on, until it is closed or this is called again:
// what is in the KV cache stays as it was computed. An engine refuses such a context.
pyg_status pyg_context_set_adapters(pyg_context * ctx, const pyg_scaled_adapter * adapters, int32_t n_adapters,
                                    pyg_error * err);
// The salt of the prefix cache for requests with these adapters and this cache_salt: what functions of slots take.
pyg_status pyg_adapters_salt(pyg_model * model, const pyg_scaled_adapter * adapters, int32_t n_adapters,
                             uint64_t cache_salt, uint64_t * out, pyg_error * err);
// Does not wait: requests that use the adapter keep it.
void pyg_adapter_free(pyg_adapter * adapter);

// --- Samplers: chains of upstream's samplers -------------------------------------------------------------

// Create an empty chain. `model` provides the vocabulary that some samplers need, or is NULL.
pyg_status pyg_sampler_new(pyg_model * model, pyg_sampler ** out, pyg_error * err);
pyg_status pyg_sampler_clone(pyg_sampler * sampler, pyg_sampler ** out, pyg_error * err);
pyg_status pyg_sampler_close(pyg_sampler * sampler, pyg_error * err);
void       pyg_sampler_free(pyg_sampler * sampler);

// Add a sampler to the end of the chain. Those that need a vocabulary return PYG_ERR_INVALID_PARAMETER on a chain
// created without a model. So do values out of range, including NaN and whatever upstream would assert on.
pyg_status pyg_sampler_add_greedy(pyg_sampler * sampler, pyg_error * err);
pyg_status pyg_sampler_add_dist(pyg_sampler * sampler, uint32_t seed, pyg_error * err);
pyg_status pyg_sampler_add_top_k(pyg_sampler * sampler, int32_t k, pyg_error * err);
pyg_status pyg_sampler_add_top_p(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err);
pyg_status pyg_sampler_add_min_p(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err);
pyg_status pyg_sampler_add_typical(pyg_sampler * sampler, float p, size_t min_keep, pyg_error * err);
pyg_status pyg_sampler_add_temp(pyg_sampler * sampler, float t, pyg_error * err);
pyg_status pyg_sampler_add_temp_ext(pyg_sampler * sampler, float t, float delta, float exponent, pyg_error * err);
pyg_status pyg_sampler_add_xtc(pyg_sampler * sampler, float p, float t, size_t min_keep, uint32_t seed,
                               pyg_error * err);
pyg_status pyg_sampler_add_top_n_sigma(pyg_sampler * sampler, float n, pyg_error * err);
pyg_status pyg_sampler_add_mirostat(pyg_sampler * sampler, uint32_t seed, float tau, float eta, int32_t m,
                                    pyg_error * err);
pyg_status pyg_sampler_add_mirostat_v2(pyg_sampler * sampler, uint32_t seed, float tau, float eta, pyg_error * err);
pyg_status pyg_sampler_add_grammar(pyg_sampler * sampler, const char * grammar, const char * root, pyg_error * err);
pyg_status pyg_sampler_add_grammar_lazy(pyg_sampler * sampler, const char * grammar, const char * root,
                                        const char ** trigger_patterns, size_t n_patterns,
                                        const int32_t * trigger_tokens, size_t n_tokens, pyg_error * err);
pyg_status pyg_sampler_add_penalties(pyg_sampler * sampler, int32_t last_n, float repeat, float frequency,
                                     float presence, pyg_error * err);
pyg_status pyg_sampler_add_dry(pyg_sampler * sampler, float multiplier, float base, int32_t allowed_length,
                               int32_t last_n, const char ** breakers, size_t n_breakers, pyg_error * err);
pyg_status pyg_sampler_add_adaptive_p(pyg_sampler * sampler, float target, float decay, uint32_t seed, pyg_error * err);
pyg_status pyg_sampler_add_logit_bias(pyg_sampler * sampler, const int32_t * token_ids, const float * biases, int32_t n,
                                      pyg_error * err);
pyg_status pyg_sampler_add_infill(pyg_sampler * sampler, pyg_error * err);

pyg_status pyg_sampler_count(pyg_sampler * sampler, int32_t * out, pyg_error * err);
pyg_status pyg_sampler_name(pyg_sampler * sampler, int32_t index, char ** out, pyg_error * err);
pyg_status pyg_sampler_remove(pyg_sampler * sampler, int32_t index, pyg_error * err);
pyg_status pyg_sampler_seed(pyg_sampler * sampler, uint32_t * out, pyg_error * err);
pyg_status pyg_sampler_reset(pyg_sampler * sampler, pyg_error * err);
pyg_status pyg_sampler_accept(pyg_sampler * sampler, int32_t token_id, pyg_error * err);

// Sample from output row `row` of the context's last decode (negative counts from the end) and accept the token.
// PYG_ERR_ENGINE if the context has no such row or the chain selects nothing.
pyg_status pyg_sampler_sample(pyg_sampler * sampler, pyg_context * ctx, int32_t row, int32_t * token_id,
                              pyg_error * err);

// Run the chain over `n` candidates in place, without accepting. token_ids, logits, probs: (n,), overwritten in the
// chain's order. *n_out is how many remain, *selected the index of the selected one or -1.
pyg_status pyg_sampler_apply(pyg_sampler * sampler, int32_t * token_ids, float * logits, float * probs, int32_t n,
                             int32_t * n_out, int32_t * selected, pyg_error * err);

// --- Grammars and matchers, for programs with a sampling loop of their own -------------------------------

typedef struct pyg_grammar pyg_grammar;
typedef struct pyg_matcher pyg_matcher;

// Return PYG_OK if `text` is a grammar with a rule `root`. Tokens that it names are not looked up. PYG_ERR_GRAMMAR with
// the place and the reason.
pyg_status pyg_grammar_check(const char * text, const char * root, pyg_error * err);

// Compile a grammar for a model's vocabulary, or find it in the model's cache, which requests use, too. The grammar
// keeps the vocabulary alive. The texts of its matchers start after `prefix` (may be NULL).
//   stop_token_ids  (n,) tokens that end a text, in addition to the vocabulary's end-of-generation tokens
// PYG_ERR_GRAMMAR; PYG_ERR_TOKENIZER for a model without a vocabulary; PYG_ERR_INVALID_PARAMETER.
pyg_status pyg_grammar_compile(pyg_model * model, const char * text, const char * root, const char * prefix,
                               const int32_t * stop_token_ids, size_t n_stop_tokens, pyg_grammar ** out,
                               pyg_error * err);
pyg_status pyg_grammar_close(pyg_grammar * grammar, pyg_error * err);
void       pyg_grammar_free(pyg_grammar * grammar);
pyg_status pyg_grammar_vocab_size(pyg_grammar * grammar, int32_t * out, pyg_error * err);

// Create a matcher: the position of one text in a grammar, at its start. It keeps the grammar's data alive. Matchers of
// one grammar share what they compute, under a short lock.
pyg_status pyg_matcher_new(pyg_grammar * grammar, pyg_matcher ** out, pyg_error * err);
pyg_status pyg_matcher_copy(pyg_matcher * matcher, pyg_matcher ** out, pyg_error * err);
pyg_status pyg_matcher_close(pyg_matcher * matcher, pyg_error * err);
void       pyg_matcher_free(pyg_matcher * matcher);

// Write the tokens that are allowed next: bit i % 32 of words[i / 32] is token i. `n_words` must be
// ceil(n_vocab / 32); unused bits are 0. Where the text may end, that includes the tokens that end it, and after one of
// them it is only those. PYG_ERR_GRAMMAR when the grammar is too ambiguous to follow; the matcher is still usable.
pyg_status pyg_matcher_mask(pyg_matcher * matcher, uint32_t * words, size_t n_words, pyg_error * err);

// Advance by tokens, up to the first that is not allowed, and return how many were. PYG_ERR_INVALID_PARAMETER, and no
// change, if one is not in the vocabulary. PYG_ERR_GRAMMAR as for the mask, with the tokens before accepted.
pyg_status pyg_matcher_accept(pyg_matcher * matcher, const int32_t * token_ids, size_t n, size_t * n_accepted,
                              pyg_error * err);

// Take back the last `n` accepted tokens. PYG_ERR_INVALID_PARAMETER if there are fewer.
pyg_status pyg_matcher_rollback(pyg_matcher * matcher, size_t n, pyg_error * err);
pyg_status pyg_matcher_reset(pyg_matcher * matcher, pyg_error * err);

// Tokens that must follow, at most `n_max`: see GrammarMatcher.forced in Python. The matcher does not advance.
// PYG_ERR_GRAMMAR as for the mask.
pyg_status pyg_matcher_forced(pyg_matcher * matcher, int32_t * token_ids, size_t n_max, size_t * n_forced,
                              pyg_error * err);

typedef struct pyg_matcher_state {
    size_t n_accepted;     // tokens
    bool   is_complete;    // the text may end here
    bool   is_terminated;  // a token has ended it
} pyg_matcher_state;

pyg_status pyg_matcher_get_state(pyg_matcher * matcher, pyg_matcher_state * out, pyg_error * err);

// --- Chat templates, rendered and parsed by upstream's code ----------------------------------------------

typedef struct pyg_chat_templates pyg_chat_templates;
typedef struct pyg_chat_parser    pyg_chat_parser;

// Read and analyse the model's chat templates (the default one, and "tool_use" for prompts with tools), or
// `chat_template`, Jinja text, if not NULL. The object is immutable. PYG_ERR_INVALID_PARAMETER, with the reason, when
// there is no template or it is invalid.
pyg_status pyg_chat_templates_new(pyg_model * model, const char * chat_template, pyg_chat_templates ** out,
                                  pyg_error * err);
// Create another handle to the same object: closing one leaves the other open.
pyg_status pyg_chat_templates_share(pyg_chat_templates * templates, pyg_chat_templates ** out, pyg_error * err);
pyg_status pyg_chat_templates_close(pyg_chat_templates * templates, pyg_error * err);
void       pyg_chat_templates_free(pyg_chat_templates * templates);

// Information about a template, a JSON object: "source"; "abilities", an object of bools; "arguments", the format of a
// tool call's arguments: "as one" JSON object, "one by one", or "" if it has no format that follows a schema.
pyg_status pyg_chat_templates_info(pyg_chat_templates * templates, char ** out, pyg_error * err);

// Render a conversation. `request_json` is an object:
//   messages                array of {"role", "content", ...} as in OpenAI's chat API
//   tools                   array of {"type": "function", "function": {...}}; may be missing
//   generic_tools           like tools, but the template does not see them, for formats that upstream does not parse
//   call_format             the template's own format of calls to generic_tools; see pyggml/chat/call_format.py
//   tool_choice             "auto", "none" or "required"
//   parallel_tool_calls     bool
//   add_generation_prompt   bool
//   enable_thinking         bool
//   continue_final_message  bool: the output continues the last message
//   reasoning_format        "auto": separates reasoning from content; "none": leaves it in
//   json_schema             schema, as text, that content must match; may be missing. Here and in tools, constants
//                           replace the real schemas (pyggml/chat/fallback_schemas.py)
//   grammar                 GBNF that the output must match; may be missing
//   template_kwargs         object of extra variables for the template; may be missing
//   prompt_end              the end of the real prompt, if its answer has begun; may be missing
// *prompt_json is an object:
//   text                    the prompt, without the BOS and EOS that tokenizing adds
//   generation_prompt       the end of this prompt, where the assistant's turn starts
//   grammar                 GBNF that the output must match, or ""
//   grammar_lazy            the grammar applies only from a trigger on
//   grammar_prefix          text that the grammar reads before the output: the end of the prompt, or ""
//   triggers                {"patterns": regular expressions, "token_ids"}, for a lazy grammar
//   preserved_tokens        special tokens whose text the parser needs in the output
//   stop                    stop strings
//   thinking_start, thinking_ends    the text around reasoning
// *parser is *owned* and parses one output for this prompt. PYG_ERR_INVALID_PARAMETER when the messages are malformed
// or the template rejects them.
pyg_status pyg_chat_templates_render(pyg_chat_templates * templates, const char * request_json, char ** prompt_json,
                                     pyg_chat_parser ** parser, pyg_error * err);

// Create a parser for another output of the same prompt.
pyg_status pyg_chat_parser_clone(pyg_chat_parser * parser, pyg_chat_parser ** out, pyg_error * err);
pyg_status pyg_chat_parser_close(pyg_chat_parser * parser, pyg_error * err);
void       pyg_chat_parser_free(pyg_chat_parser * parser);

// Parse more of the output; `last`: this is its end, so nothing is held back any longer. *delta_json is the delta of
// the message, an object {"content", "reasoning_content", "tool_calls": [{"index", "id", "name", "arguments"}]} of
// texts to append; a tool call's id and name come once, in its first delta, when the name is complete. Deltas are never
// retracted, and add up to the same message however the text is split into chunks; in a long text, a few characters are
// held back until the next call. Text that does not match the template's format is content, or dropped if it follows
// tool calls.
pyg_status pyg_chat_parser_feed(pyg_chat_parser * parser, const char * text, size_t n_bytes, bool last,
                                char ** delta_json, pyg_error * err);

// Free a string that was returned as *owned*.
void pyg_string_free(char * string);

// --- Thread tuners: the number of compute threads that is fastest while other programs run ---------------

// Tuner for the number of compute threads of a caller's own passes, as the engine has one: it measures them. Not
// thread-safe, and nothing blocks.
typedef struct pyg_thread_tuner pyg_thread_tuner;

pyg_status pyg_thread_tuner_new(pyg_thread_tuner ** out, pyg_error * err);
void       pyg_thread_tuner_free(pyg_thread_tuner * tuner);

// Number of threads for the next pass, of `n_tokens` tokens. Each must be followed by one of the other two.
int32_t pyg_thread_tuner_begin(pyg_thread_tuner * tuner, uint32_t n_tokens);
// `own_seconds`: CPU time of the calling thread, which is one of the compute threads.
void pyg_thread_tuner_measured(pyg_thread_tuner * tuner, uint32_t n_tokens, double seconds, double own_seconds);
void pyg_thread_tuner_abandoned(pyg_thread_tuner * tuner);

// --- Wakers: notify an event loop, or one thread with many requests, which requests are ready ------------

typedef struct pyg_waker pyg_waker;

// A request is submitted with a waker and a tag. Whenever pyg_request_wait finds the request not ready, the waker
// receives the tag once: when the tokens are available or the request has ended. One waker serves any number of
// requests and engines.
pyg_status pyg_waker_new(pyg_waker ** out, pyg_error * err);

// A file descriptor that is readable while tags are queued. *borrowed until the waker is freed*
pyg_status pyg_waker_fd(pyg_waker * waker, int32_t * out, pyg_error * err);

// Take up to `max_tags` tags in order of arrival. Waits until there is one or `timeout_s` has passed (0: does not wait;
// negative: no limit). *n_out may be 0. Only one thread at a time may call it.
pyg_status pyg_waker_take(pyg_waker * waker, double timeout_s, uint64_t * tags, int32_t max_tags, int32_t * n_out,
                          pyg_error * err);

// Requests that still refer to it no longer wake anything.
void pyg_waker_free(pyg_waker * waker);

// --- The engine: one context, one native thread, continuous batching of any number of requests -----------

typedef struct pyg_engine  pyg_engine;
typedef struct pyg_request pyg_request;

// Layout of an engine's KV cache.
typedef enum pyg_kv_layout {
    PYG_KV_AUTO    = 0,  // streams on devices while many requests run, else unified
    PYG_KV_UNIFIED = 1,  // a sequence can use all cells
    PYG_KV_STREAMS = 2,  // a stream of cells for each sequence; unified while a request is longer than its stream
} pyg_kv_layout;

// Guessed tokens of a request: computed together with its last token, several in one forward pass, and kept if they
// equal what is sampled. The tokens and logprobs are those without guesses, bit for bit.
typedef enum pyg_speculative {
    PYG_SPECULATIVE_DEFAULT = 0,  // as the engine's option; of the engine: PYG_SPECULATIVE_AUTO
    PYG_SPECULATIVE_AUTO    = 1,  // all below, where guesses can be checked exactly and dropped; else none
    PYG_SPECULATIVE_FORCED  = 2,  // text that the grammar forces. PYG_ERR_INVALID_PARAMETER if that is not so
    PYG_SPECULATIVE_LOOKUP  = 3,  // how prompt and output went on after the same tokens. PYG_ERR_INVALID_PARAMETER, too
    PYG_SPECULATIVE_DRAFT   = 4,  // the engine's draft model. PYG_ERR_INVALID_PARAMETER if it has none, too
    PYG_SPECULATIVE_OFF     = 5,
} pyg_speculative;

// Guessed tokens that were computed, and those of them that were kept, by what proposed them.
typedef struct pyg_guess_counts {
    uint64_t n_drafted_forced;
    uint64_t n_accepted_forced;
    uint64_t n_drafted_lookup;
    uint64_t n_accepted_lookup;
    uint64_t n_drafted_model;
    uint64_t n_accepted_model;
} pyg_guess_counts;

typedef struct pyg_engine_options {
    uint32_t n_ctx;          // KV cells that requests share; 0: all of the context (upstream rounds cells up)
    uint32_t max_queue;      // most requests waiting in the queue; 0: no limit
    bool     prefix_cache;   // keep finished sequences cached until they are evicted, and reuse their common prefixes
    bool     adapt_threads;  // tune the number of compute threads; otherwise use the context's
    bool     backend_sampling;  // find the likeliest tokens on the device that computes the logits, if it can
    int32_t  kv_layout;         // pyg_kv_layout. PYG_KV_STREAMS: PYG_ERR_INVALID_PARAMETER if the KV cache cannot be
                                // divided, or if a stream had fewer than 256 cells
    // Most bytes of main memory for what the KV cache lost: snapshots of evicted sequences, and checkpoints, from which
    // prompts continue where the KV cache cannot be rewound (recurrent layers and sliding windows). 0: none.
    uint64_t prefix_cache_bytes;
    // Directory for snapshots as files, which processes share and which outlive them, or NULL; and most bytes of them.
    const char * prefix_cache_dir;
    uint64_t     prefix_cache_disk_bytes;
    int32_t      speculative;      // pyg_speculative, of requests with PYG_SPECULATIVE_DEFAULT
    bool         batch_invariant;  // pyg_context_not_batch_invariant named no operation: guesses can be checked exactly
    // Context of a model that guesses tokens, with at least as many sequences, or NULL; taken over as well.
    // PYG_ERR_INVALID_PARAMETER if guesses are not possible, if its KV cache cannot be cut back to any length, or if
    // its vocabulary has too few of the texts of the model's tokens.
    pyg_context * draft;
} pyg_engine_options;

pyg_engine_options pyg_engine_default_options(void);

// Take over the context: from now on only the engine's thread uses it, and the caller's handle is closed. There are as
// many slots as the context has sequences. The thread sleeps when idle.
pyg_status pyg_engine_new(pyg_context * ctx, const pyg_engine_options * options, pyg_engine ** out, pyg_error * err);

// Cancel every request, wait for the thread to end, and release the context. Unfinished requests end with
// PYG_FINISH_CLOSED.
pyg_status pyg_engine_close(pyg_engine * engine, pyg_error * err);
void       pyg_engine_free(pyg_engine * engine);

typedef struct pyg_sampling {
    float                temperature;        // 0: greedy
    int32_t              top_k;              // 0: off
    float                top_p;              // 1: off
    float                min_p;              // 0: off
    float                typical_p;          // 1: off
    float                repeat_penalty;     // 1: off
    float                frequency_penalty;  // 0: off
    float                presence_penalty;   // 0: off
    int32_t              penalty_last_n;     // how many tokens the penalties look back; 0: off
    float                dynatemp_range;     // largest change of the temperature by entropy; 0: off
    float                dynatemp_exponent;
    float                top_n_sigma;      // 0: off
    float                xtc_probability;  // 0: off
    float                xtc_threshold;
    float                dry_multiplier;  // 0: off
    float                dry_base;
    int32_t              dry_allowed_length;
    int32_t              dry_penalty_last_n;
    int32_t              mirostat;  // 0: off, 1 or 2
    float                mirostat_tau;
    float                mirostat_eta;
    float                adaptive_target;  // negative: off
    float                adaptive_decay;
    int32_t              min_keep;    // fewest tokens that every filtering sampler leaves; 0: no minimum
    int32_t              min_tokens;  // no stop token among the first ones, unless the grammar allows nothing else
    uint32_t             seed;
    const char * const * dry_breakers;  // (n_dry_breakers,) or NULL
    const char * const * samplers;      // (n_samplers,) or NULL for the default order, pyg_sampler_order
    int32_t              n_dry_breakers;
    int32_t              n_samplers;
    const int32_t *      bias_token_ids;  // (n_bias,) or NULL
    const float *        bias_values;     // (n_bias,)
    int32_t              n_bias;
    const int32_t *      allowed_token_ids;  // (n_allowed,) or NULL: all; with a grammar, stop tokens are allowed, too
    int32_t              n_allowed;
    const int32_t *      bad_token_ids;  // sequences that are never generated, one after the other, or NULL
    const int32_t *      bad_lengths;    // (n_bad,) their lengths, at least 1
    int32_t              n_bad;
    const char *         grammar;         // GBNF, or NULL
    const char *         grammar_root;    // name of the start rule
    const char *         grammar_prefix;  // text that it reads before the first token, or NULL; not with grammar_lazy
    // A lazy grammar applies from a trigger on: a token, or text that matches an ECMAScript regular expression. It
    // starts at the first non-empty group of the match, or else at the whole match.
    bool                 grammar_lazy;
    const char * const * trigger_patterns;   // (n_trigger_patterns,) or NULL
    const int32_t *      trigger_token_ids;  // (n_trigger_tokens,) or NULL
    int32_t              n_trigger_patterns;
    int32_t              n_trigger_tokens;
    // Most tokens of reasoning; then `reasoning_forced` follows, as far as the grammar allows. Negative: no limit.
    int32_t         reasoning_budget;
    bool            reasoning_begun;        // by the prompt
    const int32_t * reasoning_start;        // (n_reasoning_start,): tokens that begin it
    const int32_t * reasoning_end_ids;      // token sequences that end it, one after the other
    const int32_t * reasoning_end_lengths;  // (n_reasoning_ends,) their lengths
    const int32_t * reasoning_forced;       // (n_reasoning_forced,): tokens that end with one of these sequences
    int32_t         n_reasoning_start;
    int32_t         n_reasoning_ends;
    int32_t         n_reasoning_forced;
} pyg_sampling;

// Range of a numeric parameter of pyg_sampling, both ends included.
typedef struct pyg_sampling_range {
    const char * name;  // static
    double       min;
    double       max;
} pyg_sampling_range;

// The ranges, which pyg_engine_submit checks, by index. Returns false past the end.
bool pyg_sampling_range_get(int32_t index, pyg_sampling_range * out);
// The samplers in their default order, by index; static. NULL past the end.
const char * pyg_sampler_order(int32_t index);

// The logits of one request's next token, for a pyg_logits_callback.
typedef struct pyg_logits_row {
    uint64_t        processor;  // pyg_request_options.processor
    const int32_t * token_ids;  // (n_tokens,): prompt and output so far
    int32_t         n_tokens;
    int32_t         n_vocab;
    const float *   logits;     // (n_vocab,): the model's
    float *         processed;  // (n_vocab,): to write; the token is sampled from these
    int32_t         token_id;   // to write: the token, which is not sampled then; else -1
    bool            is_done;    // to write: true; otherwise the request ends with PYG_ERR_INVALID_PARAMETER
} pyg_logits_row;

// Called once per step, with the rows of all requests that have it. It runs on the engine's thread, which holds no lock
// and waits for it. It must not throw. Calls that would wait for this thread fail with PYG_ERR_INVALID_PARAMETER:
// pyg_engine_submit, pyg_engine_close, pyg_request_wait.
typedef void (*pyg_logits_callback)(pyg_logits_row * rows, int32_t n_rows);

typedef struct pyg_request_options {
    pyg_sampling    sampling;
    int32_t         max_tokens;      // -1: no limit but the context's
    const int32_t * stop_token_ids;  // (n_stop,) or NULL: stop tokens, which are not returned
    int32_t         n_stop;
    double          timeout_s;  // from submission; negative: none
    pyg_waker *     waker;      // notified when there is something to read, or NULL
    uint64_t        tag;        // passed to the waker
    // Number of likeliest alternatives to report for each new token and for each prompt token, up to 1,000; 0: no
    // logprobs. With n_prompt_logprobs the whole prompt is computed, without the prefix cache.
    int32_t n_logprobs;
    int32_t n_prompt_logprobs;
    // Logprobs of new tokens are those that they were sampled with: after bias, grammar and samplers, over the tokens
    // that are left. Otherwise, and for the prompt, they are the log-softmax of the model's logits.
    bool processed_logprobs;
    // Tokens may be delivered late and many at once if that finishes all requests sooner.
    bool prefer_throughput;
    // Requests reuse the cached prefixes only of requests with the same value.
    uint64_t cache_salt;
    // With max_tokens 0: copy the prompt's KV cells when they are computed, for pyg_request_saved_prefix.
    // PYG_ERR_INVALID_PARAMETER with adapters: a saved prefix is restored as one of the model alone.
    bool save_prefix;
    // End a generation that repeats itself endlessly (engine/repetition.hpp), with PYG_FINISH_REPETITION.
    bool repetition_guard;
    // When the context is full, drop the older half of the tokens after the prompt's first n_keep, and compute the
    // others again, instead of ending with PYG_FINISH_LENGTH. n_keep: -1: the whole prompt; at most half the context.
    // PYG_ERR_INVALID_PARAMETER without a limit of max_tokens.
    bool    shifts;
    int32_t n_keep;
    // Guessed tokens: pyg_speculative, and their number in each step, at most 15, whether they pay or not. 0: as many
    // as pay, by the engine's measurements.
    int32_t speculative;
    int32_t n_guesses;
    // Changes the logits before each token is sampled, or chooses the token; or NULL. Logprobs without
    // processed_logprobs are of the model's own logits.
    pyg_logits_callback logits_callback;
    uint64_t            processor;  // passed to it
    // The request's adapters. It reuses only prefixes that were computed with the same content and scales.
    const pyg_scaled_adapter * adapters;  // (n_adapters,) or NULL
    int32_t                    n_adapters;
} pyg_request_options;

// Greedy, up to 256 tokens; every sampler off, with default parameters for when it is switched on.
pyg_request_options pyg_request_default_options(void);

// Submit a request; copies everything `options` and `prompt` point to. On failure nothing is queued:
// PYG_ERR_EMPTY_PROMPT, PYG_ERR_CONTEXT_OVERFLOW when the prompt is too long, PYG_ERR_INVALID_PARAMETER,
// PYG_ERR_GRAMMAR, PYG_ERR_QUEUE_FULL.
pyg_status pyg_engine_submit(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                             const pyg_request_options * options, pyg_request ** out, pyg_error * err);

// Submit a request for the logits at every position of a prompt, with `n_adapters` adapters. dst: (n_prompt, n_vocab).
// Wait with pyg_request_wait; dst must stay valid until the request has ended.
pyg_status pyg_engine_submit_logits(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                                    const pyg_scaled_adapter * adapters, int32_t n_adapters, float * dst,
                                    pyg_request ** out, pyg_error * err);

// Send `tag` to the waker once the queue has capacity, perhaps at once, or when the engine closes. Nothing is reserved:
// submit again, and if the queue is full once more, call this again.
pyg_status pyg_engine_notify_when_queue_has_capacity(pyg_engine * engine, pyg_waker * waker, uint64_t tag,
                                                     pyg_error * err);

// Evict all cached sequences, and drop all snapshots. Does not affect running requests and does not wait.
pyg_status pyg_engine_reset(pyg_engine * engine, pyg_error * err);

// Bring a saved prefix into the prefix cache, for requests with this salt. Copies the bytes and does not wait: requests
// submitted later start from it. It is kept in main memory, whatever prefix_cache_bytes is, until a request has used
// it. Best effort: a prefix that was saved from a KV cache of streams (kv_layout) is used only while this one has
// streams, any other only while it is unified; one for a layout that this engine never has is dropped. *n_tokens: its
// length. PYG_ERR_INVALID_PARAMETER if the bytes are damaged, or of another model, other options or another build, if
// the prefix is longer than the context, or without prefix_cache.
pyg_status pyg_engine_restore_prefix(pyg_engine * engine, const void * data, size_t size, uint64_t cache_salt,
                                     int32_t * n_tokens, pyg_error * err);

enum pyg_finish {
    PYG_FINISH_NONE,    // still queued or running
    PYG_FINISH_STOP,    // sampled a stop token
    PYG_FINISH_LENGTH,  // max_tokens reached, or the context is full
    PYG_FINISH_CANCELLED,
    PYG_FINISH_TIMEOUT,
    PYG_FINISH_REPETITION,
    PYG_FINISH_CLOSED,  // the engine was closed first
    PYG_FINISH_ERROR,   // pyg_request_wait returns the error
};

typedef struct pyg_request_state {
    int32_t finish;         // enum pyg_finish
    int32_t stop_token_id;  // with PYG_FINISH_STOP, else -1
    int32_t n_prompt;
    int32_t n_cached;       // prompt tokens found in the prefix cache
    int32_t n_prefilled;    // prompt tokens computed so far, counted again after a preemption
    int32_t n_generated;    // generated tokens, read or not, without the stop token
    int32_t n_read;         // tokens read
    int32_t n_preemptions;  // times it was preempted
    double  queue_s;        // from submission to start
    double  prefill_s;      // from start to the first token
    double  decode_s;       // from the first token to the last
    // Prompt tokens, from the second on, that have logprobs so far.
    int32_t          n_prompt_logprobs;
    pyg_guess_counts guesses;
} pyg_request_state;

// Wait until there are at least `min_tokens` unread tokens, the request has ended, or `timeout_s` has passed (0: does
// not wait; negative: no limit), then move up to `max_tokens` of them into `token_ids`. *n_out may be fewer than
// min_tokens, even 0. Once the request has ended and every token is read, state->finish is set; with PYG_FINISH_ERROR
// the function returns the request's error. Only one thread at a time may call it.
pyg_status pyg_request_wait(pyg_request * request, int32_t min_tokens, double timeout_s, int32_t * token_ids,
                            int32_t max_tokens, int32_t * n_out, pyg_request_state * state, pyg_error * err);

// Log-probabilities of tokens [first, first + n): of the generated ones that pyg_request_wait has returned or, with
// `of_prompt`, of the prompt's (`first` 0 is its second token). logprobs: (n,), of the tokens themselves. top_ids, top:
// (n, k), the k likeliest tokens and their log-probabilities, likeliest first; k is the requested number, at most the
// vocabulary's size. Where processed_logprobs leave fewer tokens, the rest is -1 and -infinity.
// PYG_ERR_INVALID_PARAMETER when there are fewer, or none were requested.
pyg_status pyg_request_logprobs(pyg_request * request, bool of_prompt, int32_t first, int32_t n, float * logprobs,
                                int32_t * top_ids, float * top, pyg_error * err);

// The KV cells of a prompt submitted with save_prefix, after its end: bytes for pyg_engine_restore_prefix, with a
// checksum. *borrowed until the request is freed* PYG_ERR_INVALID_PARAMETER if there are none.
pyg_status pyg_request_saved_prefix(pyg_request * request, const void ** data, size_t * size, pyg_error * err);

// End the request as soon as possible, even during prefill. Does not wait; may be called again.
void pyg_request_cancel(pyg_request * request);

// Cancel the request if it has not ended, and free it. Allowed at any time, even after the engine is freed. For a
// request of logits it waits until the engine no longer uses dst.
void pyg_request_free(pyg_request * request);

typedef struct pyg_engine_stats {
    int32_t          n_queued;
    int32_t          n_running;
    int32_t          n_parallel;       // slots: requests that can run at once
    int32_t          n_threads;        // current compute threads, for steps of one token
    int32_t          n_threads_batch;  // the same for prefill
    uint32_t         n_cells;          // in total
    uint32_t         n_kv_streams;     // parts of the KV cache: 1 if it is unified, else n_parallel
    uint32_t         n_cells_running;  // used by running requests
    uint32_t         n_cells_cached;   // used by cached sequences, evicted when needed
    uint64_t         n_requests;       // submitted so far
    uint64_t         n_finished;       // ended so far, for any reason
    uint64_t         n_prompt_tokens;  // computed
    uint64_t         n_cached_tokens;  // found in the prefix cache
    uint64_t         n_generated_tokens;
    uint64_t         n_sampled_on_device;  // sampled on the device of the logits, stop tokens included
    uint64_t         n_decode_steps;       // forward passes
    uint64_t         n_preemptions;
    uint64_t         n_grammars;     // compiled for the model, by this or another engine
    uint64_t         n_checkpoints;  // kept now
    uint64_t         checkpoint_bytes;
    uint64_t         n_snapshots;  // of evicted sequences, kept now
    uint64_t         snapshot_bytes;
    uint64_t         n_snapshot_hits;    // requests that started from one
    uint64_t         n_snapshot_tokens;  // tokens found in them, of n_cached_tokens
    uint64_t         n_disk_snapshots;   // files that this engine can use, as of the last look
    uint64_t         disk_snapshot_bytes;
    uint64_t         n_disk_hits;    // requests that started from one
    uint64_t         n_disk_tokens;  // tokens found in them, of n_cached_tokens
    double           prefill_s;      // in forward passes that include prompt tokens
    double           decode_s;       // in forward passes without prompt tokens
    double           sample_s;       // choosing tokens and publishing them
    double           schedule_s;     // choosing the requests of a step and building its batch
    pyg_guess_counts guesses;
} pyg_engine_stats;

pyg_status pyg_engine_get_stats(pyg_engine * engine, pyg_engine_stats * out, pyg_error * err);

// A slot of the KV cache.
typedef struct pyg_slot {
    bool     is_running;  // a request runs in it
    uint32_t n_tokens;    // tokens that have cells in it, those of a running request or cached ones
} pyg_slot;

// The first n_slots slots; an engine has n_parallel. Does not wait for a step.
pyg_status pyg_engine_get_slots(pyg_engine * engine, pyg_slot * out, int32_t n_slots, pyg_error * err);

// Up to max_tokens of the tokens that a slot has cached for requests with this cache_salt; *n_out: how many there are.
// They may be evicted at any time. PYG_ERR_INVALID_PARAMETER: there is no such slot, or a request runs in it.
pyg_status pyg_engine_slot_tokens(pyg_engine * engine, uint32_t slot, uint64_t cache_salt, int32_t * token_ids,
                                  int32_t max_tokens, int32_t * n_out, pyg_error * err);

// Evict them, before the next request starts. Does not wait. *n_out: how many there are. Errors as
// pyg_engine_slot_tokens.
pyg_status pyg_engine_erase_slot(pyg_engine * engine, uint32_t slot, uint64_t cache_salt, int32_t * n_out,
                                 pyg_error * err);

// --- An engine in a separate process, so that a crash there does not take the caller down ----------------

// The caller's side. Requests are sent to the process through a socket, and updates come back through shared memory, to
// requests like those of a local engine: pyg_request_wait, pyg_request_logprobs, pyg_request_cancel and wakers work on
// them. Data from the process is validated.
typedef struct pyg_engine_client pyg_engine_client;

// `memory` and `socket` are descriptors for the process to inherit, *owned*: close them after it has started.
// `max_queue` as in pyg_engine_options, for an engine with `n_parallel` slots and no limit of its own.
pyg_status pyg_engine_client_new(uint32_t n_parallel, uint32_t max_queue, int32_t * memory, int32_t * socket,
                                 pyg_engine_client ** out, pyg_error * err);

// Receive updates until the process exits or pyg_engine_client_close. Call it once, on its own thread. PYG_ERR_ENGINE
// for malformed data: kill the process then.
pyg_status pyg_engine_client_run(pyg_engine_client * client, pyg_error * err);

// As pyg_engine_submit. `model` validates the request here and needs only a vocabulary; `bytes` are the options as the
// process reads them. PYG_ERR_ENGINE when the process has exited.
pyg_status pyg_engine_client_submit(pyg_engine_client * client, pyg_model * model, uint32_t n_ctx,
                                    const int32_t * prompt, int32_t n_prompt, const pyg_request_options * options,
                                    const char * bytes, size_t n_bytes, pyg_request ** out, pyg_error * err);

// As pyg_engine_notify_when_queue_has_capacity; also notified when the process exits.
pyg_status pyg_engine_client_notify_when_queue_has_capacity(pyg_engine_client * client, pyg_waker * waker, uint64_t tag,
                                                            pyg_error * err);

// Send another call to the process. Its response is one or more messages, of which at most `max_bytes` may wait to be
// read. PYG_ERR_ENGINE when the process has exited.
pyg_status pyg_engine_client_call(pyg_engine_client * client, const int32_t * numbers, uint32_t n_numbers,
                                  const char * bytes, size_t n_bytes, size_t max_bytes, uint64_t * id, pyg_error * err);

// The next message of a response. NULL if none arrives within `timeout_s` (negative: no limit).
pyg_status pyg_engine_client_reply(pyg_engine_client * client, uint64_t id, double timeout_s, char ** data,
                                   size_t * n_bytes, bool * last, pyg_error * err);

// Discard the rest of a response.
void pyg_engine_client_discard(pyg_engine_client * client, uint64_t id);

pyg_status pyg_engine_client_has_exited(pyg_engine_client * client, bool * out, pyg_error * err);

// Fail all requests and calls with PYG_ERR_ENGINE and this reason, because the process has exited.
pyg_status pyg_engine_client_fail(pyg_engine_client * client, const char * why, pyg_error * err);

// End all requests and calls as pyg_engine_close does. Does not wait: pyg_engine_client_run returns soon after.
pyg_status pyg_engine_client_close(pyg_engine_client * client, pyg_error * err);
void       pyg_engine_client_free(pyg_engine_client * client);

// The side of the engine's process; never freed.
typedef struct pyg_engine_server pyg_engine_server;

enum pyg_frame_kind {
    PYG_FRAME_NONE,    // the parent has exited
    PYG_FRAME_SUBMIT,  // of pyg_engine_client_submit; the numbers are the prompt
    PYG_FRAME_CALL,    // of pyg_engine_client_call
};

typedef struct pyg_frame {
    int32_t  kind;  // enum pyg_frame_kind
    uint32_t n_numbers;
    uint64_t id;
    char *   data;     // n_numbers int32, then n_bytes bytes. *owned*: pyg_string_free
    size_t   n_bytes;  // after the numbers
} pyg_frame;

// Takes ownership of the descriptors of pyg_engine_client_new.
pyg_status pyg_engine_server_new(int32_t memory, int32_t socket, pyg_engine_server ** out, pyg_error * err);

// Send updates of the requests. Never returns; call it on its own thread.
void pyg_engine_server_run(pyg_engine_server * server);

// Wait for the next frame. Only one thread may call it.
pyg_status pyg_engine_server_next(pyg_engine_server * server, pyg_frame * out, pyg_error * err);

// Submit the request of a frame. Errors go to its mirror.
pyg_status pyg_engine_server_submit(pyg_engine_server * server, pyg_engine * engine, uint64_t id,
                                    const int32_t * prompt, int32_t n_prompt, const pyg_request_options * options,
                                    pyg_error * err);
// Fail it instead, with this code and message.
pyg_status pyg_engine_server_refuse(pyg_engine_server * server, uint64_t id, int32_t code, const char * why,
                                    pyg_error * err);

// Send a message of the response to a call; `last`: it ends the response.
pyg_status pyg_engine_server_reply(pyg_engine_server * server, uint64_t id, const char * data, size_t n_bytes,
                                   bool last, pyg_error * err);

// Make this process exit when the thread that started it does (Linux), and at once if process `parent` is no longer its
// parent.
void pyg_end_with_parent(int32_t parent);

#ifdef __cplusplus
}
#endif

#endif  // PYGGML_H
