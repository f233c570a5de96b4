// ggml.h of the vendored engine: tensors, the operations on them, graphs, quantisation.
//
// Rules for the declarations in this folder (read by cffi, not by a C compiler):
//   - one file per upstream header, under its name and in its order; every public name is declared, or listed
//     in left_out.txt with the reason;
//   - enums end with `...` and constants are `...`: the compiler fills in the values;
//   - structs end with `...;`: the compiler fills in the layout, and rejects a renamed or retyped field;
//     `[...]` is an array whose length it fills in;
//   - GGML_API, restrict, noreturn and other keywords unknown to cffi are dropped.
// tests/distribution/test_bindings_complete.py compares each declaration with the header's.

// Constants

#define GGML_FILE_MAGIC ...
#define GGML_FILE_VERSION ...
#define GGML_QNT_VERSION ...
#define GGML_QNT_VERSION_FACTOR ...
#define GGML_MAX_DIMS ...
#define GGML_MAX_PARAMS ...
#define GGML_MAX_SRC ...
#define GGML_MAX_N_THREADS ...
#define GGML_MAX_OP_PARAMS ...
#define GGML_MAX_NAME ...
#define GGML_DEFAULT_N_THREADS ...
#define GGML_DEFAULT_GRAPH_SIZE ...
#define GGML_MEM_ALIGN ...
#define GGML_EXIT_SUCCESS ...
#define GGML_EXIT_ABORTED ...
#define GGML_ROPE_TYPE_NORMAL ...
#define GGML_ROPE_TYPE_NEOX ...
#define GGML_ROPE_TYPE_MROPE ...
#define GGML_ROPE_TYPE_VISION ...
#define GGML_ROPE_TYPE_IMROPE ...
#define GGML_MROPE_SECTIONS ...

// Failure

typedef void (*ggml_abort_callback_t)(const char *error_message);
ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback);
void ggml_abort(const char *file, int line, const char *fmt, ...);

enum ggml_status {
    GGML_STATUS_ALLOC_FAILED,
    GGML_STATUS_FAILED,
    GGML_STATUS_SUCCESS,
    GGML_STATUS_ABORTED,
    ...
};

const char *ggml_status_to_string(enum ggml_status status);

// Half-precision floats

typedef uint16_t ggml_fp16_t;
float ggml_fp16_to_fp32(ggml_fp16_t x);
ggml_fp16_t ggml_fp32_to_fp16(float x);
void ggml_fp16_to_fp32_row(const ggml_fp16_t *x, float *y, int64_t n);
void ggml_fp32_to_fp16_row(const float *x, ggml_fp16_t *y, int64_t n);

typedef struct {
    uint16_t bits;
    ...;
} ggml_bf16_t;

ggml_bf16_t ggml_fp32_to_bf16(float x);
float ggml_bf16_to_fp32(ggml_bf16_t x);
void ggml_bf16_to_fp32_row(const ggml_bf16_t *x, float *y, int64_t n);
void ggml_fp32_to_bf16_row_ref(const float *x, ggml_bf16_t *y, int64_t n);
void ggml_fp32_to_bf16_row(const float *x, ggml_bf16_t *y, int64_t n);

// Types

struct ggml_object;
struct ggml_context;
struct ggml_cgraph;

enum ggml_type {
    GGML_TYPE_F32,
    GGML_TYPE_F16,
    GGML_TYPE_Q4_0,
    GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,
    GGML_TYPE_Q5_1,
    GGML_TYPE_Q8_0,
    GGML_TYPE_Q8_1,
    GGML_TYPE_Q2_K,
    GGML_TYPE_Q3_K,
    GGML_TYPE_Q4_K,
    GGML_TYPE_Q5_K,
    GGML_TYPE_Q6_K,
    GGML_TYPE_Q8_K,
    GGML_TYPE_IQ2_XXS,
    GGML_TYPE_IQ2_XS,
    GGML_TYPE_IQ3_XXS,
    GGML_TYPE_IQ1_S,
    GGML_TYPE_IQ4_NL,
    GGML_TYPE_IQ3_S,
    GGML_TYPE_IQ2_S,
    GGML_TYPE_IQ4_XS,
    GGML_TYPE_I8,
    GGML_TYPE_I16,
    GGML_TYPE_I32,
    GGML_TYPE_I64,
    GGML_TYPE_F64,
    GGML_TYPE_IQ1_M,
    GGML_TYPE_BF16,
    GGML_TYPE_TQ1_0,
    GGML_TYPE_TQ2_0,
    GGML_TYPE_MXFP4,
    GGML_TYPE_NVFP4,
    GGML_TYPE_Q1_0,
    GGML_TYPE_Q2_0,
    GGML_TYPE_COUNT,
    ...
};

enum ggml_prec {
    GGML_PREC_UNDEFINED,
    GGML_PREC_DEFAULT,
    GGML_PREC_F32,
    GGML_PREC_BF16,
    GGML_PREC_F16,
    GGML_PREC_Q8,
    GGML_PREC_Q4,
    ...
};

enum ggml_op_hint {
    GGML_HINT_NONE,
    GGML_HINT_SRC0_IS_HADAMARD,
    ...
};

enum ggml_ftype {
    GGML_FTYPE_UNKNOWN,
    GGML_FTYPE_ALL_F32,
    GGML_FTYPE_MOSTLY_F16,
    GGML_FTYPE_MOSTLY_Q4_0,
    GGML_FTYPE_MOSTLY_Q4_1,
    GGML_FTYPE_MOSTLY_Q4_1_SOME_F16,
    GGML_FTYPE_MOSTLY_Q8_0,
    GGML_FTYPE_MOSTLY_Q5_0,
    GGML_FTYPE_MOSTLY_Q5_1,
    GGML_FTYPE_MOSTLY_Q2_K,
    GGML_FTYPE_MOSTLY_Q3_K,
    GGML_FTYPE_MOSTLY_Q4_K,
    GGML_FTYPE_MOSTLY_Q5_K,
    GGML_FTYPE_MOSTLY_Q6_K,
    GGML_FTYPE_MOSTLY_IQ2_XXS,
    GGML_FTYPE_MOSTLY_IQ2_XS,
    GGML_FTYPE_MOSTLY_IQ3_XXS,
    GGML_FTYPE_MOSTLY_IQ1_S,
    GGML_FTYPE_MOSTLY_IQ4_NL,
    GGML_FTYPE_MOSTLY_IQ3_S,
    GGML_FTYPE_MOSTLY_IQ2_S,
    GGML_FTYPE_MOSTLY_IQ4_XS,
    GGML_FTYPE_MOSTLY_IQ1_M,
    GGML_FTYPE_MOSTLY_BF16,
    GGML_FTYPE_MOSTLY_MXFP4,
    GGML_FTYPE_MOSTLY_NVFP4,
    GGML_FTYPE_MOSTLY_Q1_0,
    GGML_FTYPE_MOSTLY_Q2_0,
    ...
};

enum ggml_op {
    GGML_OP_NONE,
    GGML_OP_DUP,
    GGML_OP_ADD,
    GGML_OP_ADD_ID,
    GGML_OP_ADD1,
    GGML_OP_ACC,
    GGML_OP_SUB,
    GGML_OP_MUL,
    GGML_OP_DIV,
    GGML_OP_SQR,
    GGML_OP_SQRT,
    GGML_OP_LOG,
    GGML_OP_SIN,
    GGML_OP_COS,
    GGML_OP_SUM,
    GGML_OP_SUM_ROWS,
    GGML_OP_CUMSUM,
    GGML_OP_MEAN,
    GGML_OP_ARGMAX,
    GGML_OP_COUNT_EQUAL,
    GGML_OP_REPEAT,
    GGML_OP_REPEAT_BACK,
    GGML_OP_CONCAT,
    GGML_OP_SILU_BACK,
    GGML_OP_NORM,
    GGML_OP_RMS_NORM,
    GGML_OP_RMS_NORM_BACK,
    GGML_OP_GROUP_NORM,
    GGML_OP_L2_NORM,
    GGML_OP_MUL_MAT,
    GGML_OP_MUL_MAT_ID,
    GGML_OP_OUT_PROD,
    GGML_OP_SCALE,
    GGML_OP_SET,
    GGML_OP_CPY,
    GGML_OP_CONT,
    GGML_OP_RESHAPE,
    GGML_OP_VIEW,
    GGML_OP_PERMUTE,
    GGML_OP_TRANSPOSE,
    GGML_OP_GET_ROWS,
    GGML_OP_GET_ROWS_BACK,
    GGML_OP_SET_ROWS,
    GGML_OP_DIAG,
    GGML_OP_DIAG_MASK_INF,
    GGML_OP_DIAG_MASK_ZERO,
    GGML_OP_SOFT_MAX,
    GGML_OP_SOFT_MAX_BACK,
    GGML_OP_ROPE,
    GGML_OP_ROPE_BACK,
    GGML_OP_CLAMP,
    GGML_OP_CONV_TRANSPOSE_1D,
    GGML_OP_IM2COL,
    GGML_OP_IM2COL_BACK,
    GGML_OP_IM2COL_3D,
    GGML_OP_COL2IM_1D,
    GGML_OP_CONV_2D,
    GGML_OP_CONV_3D,
    GGML_OP_CONV_2D_DW,
    GGML_OP_CONV_TRANSPOSE_2D,
    GGML_OP_POOL_1D,
    GGML_OP_POOL_2D,
    GGML_OP_POOL_2D_BACK,
    GGML_OP_UPSCALE,
    GGML_OP_PAD,
    GGML_OP_PAD_REFLECT_1D,
    GGML_OP_ROLL,
    GGML_OP_ARANGE,
    GGML_OP_TIMESTEP_EMBEDDING,
    GGML_OP_ARGSORT,
    GGML_OP_TOP_K,
    GGML_OP_LEAKY_RELU,
    GGML_OP_TRI,
    GGML_OP_FILL,
    GGML_OP_FLASH_ATTN_EXT,
    GGML_OP_FLASH_ATTN_BACK,
    GGML_OP_SSM_CONV,
    GGML_OP_SSM_SCAN,
    GGML_OP_WIN_PART,
    GGML_OP_WIN_UNPART,
    GGML_OP_GET_REL_POS,
    GGML_OP_ADD_REL_POS,
    GGML_OP_RWKV_WKV6,
    GGML_OP_GATED_LINEAR_ATTN,
    GGML_OP_RWKV_WKV7,
    GGML_OP_SOLVE_TRI,
    GGML_OP_GATED_DELTA_NET,
    GGML_OP_LIGHTNING_INDEXER,
    GGML_OP_DSV4_HC_COMB,
    GGML_OP_DSV4_HC_PRE,
    GGML_OP_DSV4_HC_POST,
    GGML_OP_UNARY,
    GGML_OP_MAP_CUSTOM1,
    GGML_OP_MAP_CUSTOM2,
    GGML_OP_MAP_CUSTOM3,
    GGML_OP_CUSTOM,
    GGML_OP_CROSS_ENTROPY_LOSS,
    GGML_OP_CROSS_ENTROPY_LOSS_BACK,
    GGML_OP_OPT_STEP_ADAMW,
    GGML_OP_OPT_STEP_SGD,
    GGML_OP_GLU,
    GGML_OP_COUNT,
    ...
};

enum ggml_unary_op {
    GGML_UNARY_OP_ABS,
    GGML_UNARY_OP_SGN,
    GGML_UNARY_OP_NEG,
    GGML_UNARY_OP_STEP,
    GGML_UNARY_OP_TANH,
    GGML_UNARY_OP_ELU,
    GGML_UNARY_OP_RELU,
    GGML_UNARY_OP_SIGMOID,
    GGML_UNARY_OP_GELU,
    GGML_UNARY_OP_GELU_QUICK,
    GGML_UNARY_OP_SILU,
    GGML_UNARY_OP_HARDSWISH,
    GGML_UNARY_OP_HARDSIGMOID,
    GGML_UNARY_OP_EXP,
    GGML_UNARY_OP_EXPM1,
    GGML_UNARY_OP_SOFTPLUS,
    GGML_UNARY_OP_GELU_ERF,
    GGML_UNARY_OP_XIELU,
    GGML_UNARY_OP_FLOOR,
    GGML_UNARY_OP_CEIL,
    GGML_UNARY_OP_ROUND,
    GGML_UNARY_OP_TRUNC,
    GGML_UNARY_OP_COUNT,
    ...
};

enum ggml_glu_op {
    GGML_GLU_OP_REGLU,
    GGML_GLU_OP_GEGLU,
    GGML_GLU_OP_SWIGLU,
    GGML_GLU_OP_SWIGLU_OAI,
    GGML_GLU_OP_GEGLU_ERF,
    GGML_GLU_OP_GEGLU_QUICK,
    GGML_GLU_OP_SWIGLU_CLAMP,
    GGML_GLU_OP_COUNT,
    ...
};

enum ggml_object_type {
    GGML_OBJECT_TYPE_TENSOR,
    GGML_OBJECT_TYPE_GRAPH,
    GGML_OBJECT_TYPE_WORK_BUFFER,
    ...
};

enum ggml_log_level {
    GGML_LOG_LEVEL_NONE,
    GGML_LOG_LEVEL_DEBUG,
    GGML_LOG_LEVEL_INFO,
    GGML_LOG_LEVEL_WARN,
    GGML_LOG_LEVEL_ERROR,
    GGML_LOG_LEVEL_CONT,
    ...
};

enum ggml_tensor_flag {
    GGML_TENSOR_FLAG_INPUT,
    GGML_TENSOR_FLAG_OUTPUT,
    GGML_TENSOR_FLAG_PARAM,
    GGML_TENSOR_FLAG_LOSS,
    GGML_TENSOR_FLAG_COMPUTE,
    ...
};

enum ggml_tri_type {
    GGML_TRI_TYPE_UPPER_DIAG,
    GGML_TRI_TYPE_UPPER,
    GGML_TRI_TYPE_LOWER_DIAG,
    GGML_TRI_TYPE_LOWER,
    ...
};

struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
    ...;
};

struct ggml_tensor {
    enum ggml_type type;
    struct ggml_backend_buffer *buffer;
    int64_t ne[...];
    size_t nb[...];
    enum ggml_op op;
    int32_t op_params[...];
    int32_t flags;
    struct ggml_tensor *src[...];
    struct ggml_tensor *view_src;
    size_t view_offs;
    void *data;
    char name[...];
    void *extra;
    char padding[8];
    ...;
};

static const size_t GGML_TENSOR_SIZE;

typedef bool (*ggml_abort_callback)(void *data);

// GUIDs

typedef uint8_t ggml_guid[16];
typedef ggml_guid *ggml_guid_t;
bool ggml_guid_matches(ggml_guid_t guid_a, ggml_guid_t guid_b);

// Version and time

const char *ggml_version(void);
const char *ggml_commit(void);
void ggml_time_init(void);
int64_t ggml_time_ms(void);
int64_t ggml_time_us(void);
int64_t ggml_cycles(void);
int64_t ggml_cycles_per_ms(void);

// Files and printing

FILE *ggml_fopen(const char *fname, const char *mode);
void ggml_print_object(const struct ggml_object *obj);
void ggml_print_objects(const struct ggml_context *ctx);

// Sizes and names of tensors and types

int64_t ggml_nelements(const struct ggml_tensor *tensor);
int64_t ggml_nrows(const struct ggml_tensor *tensor);
size_t ggml_nbytes(const struct ggml_tensor *tensor);
size_t ggml_nbytes_pad(const struct ggml_tensor *tensor);
int64_t ggml_blck_size(enum ggml_type type);
size_t ggml_type_size(enum ggml_type type);
size_t ggml_row_size(enum ggml_type type, int64_t ne);
const char *ggml_type_name(enum ggml_type type);
const char *ggml_op_name(enum ggml_op op);
const char *ggml_op_symbol(enum ggml_op op);
const char *ggml_unary_op_name(enum ggml_unary_op op);
const char *ggml_glu_op_name(enum ggml_glu_op op);
const char *ggml_op_desc(const struct ggml_tensor *t);
size_t ggml_element_size(const struct ggml_tensor *tensor);
bool ggml_is_quantized(enum ggml_type type);
enum ggml_type ggml_ftype_to_ggml_type(enum ggml_ftype ftype);

// Shape queries

bool ggml_is_transposed(const struct ggml_tensor *tensor);
bool ggml_is_permuted(const struct ggml_tensor *tensor);
bool ggml_is_empty(const struct ggml_tensor *tensor);
bool ggml_is_view(const struct ggml_tensor *tensor);
bool ggml_is_scalar(const struct ggml_tensor *tensor);
bool ggml_is_vector(const struct ggml_tensor *tensor);
bool ggml_is_matrix(const struct ggml_tensor *tensor);
bool ggml_is_3d(const struct ggml_tensor *tensor);
int ggml_n_dims(const struct ggml_tensor *tensor);
bool ggml_is_contiguous(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_0(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_1(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_2(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_to_1(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_to_2(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_to_3(const struct ggml_tensor *tensor);
bool ggml_is_contiguously_allocated(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_channels(const struct ggml_tensor *tensor);
bool ggml_is_contiguous_rows(const struct ggml_tensor *tensor);
bool ggml_are_same_shape(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
bool ggml_are_same_stride(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
bool ggml_can_repeat(const struct ggml_tensor *t0, const struct ggml_tensor *t1);
size_t ggml_tensor_overhead(void);
bool ggml_validate_row_data(enum ggml_type type, const void *data, size_t nbytes);

// Contexts

struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_reset(struct ggml_context *ctx);
void ggml_free(struct ggml_context *ctx);
size_t ggml_used_mem(const struct ggml_context *ctx);
bool ggml_get_no_alloc(struct ggml_context *ctx);
void ggml_set_no_alloc(struct ggml_context *ctx, bool no_alloc);
void *ggml_get_mem_buffer(const struct ggml_context *ctx);
size_t ggml_get_mem_size(const struct ggml_context *ctx);
size_t ggml_get_max_tensor_size(const struct ggml_context *ctx);

// Creating and finding tensors

struct ggml_tensor *ggml_new_tensor(struct ggml_context *ctx, enum ggml_type type, int n_dims, const int64_t *ne);
struct ggml_tensor *ggml_new_tensor_1d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0);
struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_new_tensor_3d(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2);
struct ggml_tensor *ggml_new_tensor_4d(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
void *ggml_new_buffer(struct ggml_context *ctx, size_t nbytes);
struct ggml_tensor *ggml_dup_tensor(struct ggml_context *ctx, const struct ggml_tensor *src);
struct ggml_tensor *ggml_view_tensor(struct ggml_context *ctx, struct ggml_tensor *src);
struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx);
struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *tensor);
struct ggml_tensor *ggml_get_tensor(struct ggml_context *ctx, const char *name);
void ggml_unravel_index(
    const struct ggml_tensor *tensor, int64_t i, int64_t *i0, int64_t *i1, int64_t *i2, int64_t *i3);
enum ggml_unary_op ggml_get_unary_op(const struct ggml_tensor *tensor);
enum ggml_glu_op ggml_get_glu_op(const struct ggml_tensor *tensor);

// Data, names and flags of a tensor

void *ggml_get_data(const struct ggml_tensor *tensor);
float *ggml_get_data_f32(const struct ggml_tensor *tensor);
const char *ggml_get_name(const struct ggml_tensor *tensor);
struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name);
struct ggml_tensor *ggml_format_name(struct ggml_tensor *tensor, const char *fmt, ...);
void ggml_set_input(struct ggml_tensor *tensor);
void ggml_set_output(struct ggml_tensor *tensor);
void ggml_set_param(struct ggml_tensor *tensor);
void ggml_set_loss(struct ggml_tensor *tensor);

// Operations on tensors with backpropagation

struct ggml_tensor *ggml_dup(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_dup_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_add(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_add_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_add_cast(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_type type);
struct ggml_tensor *ggml_add_id(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *ids);
struct ggml_tensor *ggml_acc(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1,
    size_t nb2, size_t nb3, size_t offset);
struct ggml_tensor *ggml_acc_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1,
    size_t nb2, size_t nb3, size_t offset);
struct ggml_tensor *ggml_sub(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_sub_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_mul(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_mul_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_div(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_div_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_sqr(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sqr_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sqrt(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sqrt_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_log(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_log_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_expm1(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_expm1_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_softplus(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_softplus_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sin(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sin_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_cos(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_cos_inplace(struct ggml_context *ctx, struct ggml_tensor *a);

// Reductions and repeats

struct ggml_tensor *ggml_sum(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sum_rows(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_cumsum(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_mean(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_argmax(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_count_equal(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_repeat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_repeat_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
struct ggml_tensor *ggml_repeat_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_concat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int dim);

// Activations and rounding

struct ggml_tensor *ggml_abs(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_abs_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sgn(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sgn_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_neg(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_neg_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_step(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_step_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_tanh(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_tanh_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_elu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_elu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_relu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_leaky_relu(
    struct ggml_context *ctx, struct ggml_tensor *a, float negative_slope, bool inplace);
struct ggml_tensor *ggml_relu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sigmoid(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_sigmoid_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu_erf(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu_erf_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu_quick(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_gelu_quick_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_silu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_silu_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_silu_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_hardswish(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_hardsigmoid(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_exp(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_exp_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_floor(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_floor_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_ceil(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_ceil_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_round(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_round_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_trunc(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_trunc_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_xielu(
    struct ggml_context *ctx, struct ggml_tensor *a, float alpha_n, float alpha_p, float beta, float eps);

// Gated linear units

struct ggml_tensor *ggml_glu(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_glu_op op, bool swapped);
struct ggml_tensor *ggml_reglu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_reglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_swiglu(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_swiglu_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu_erf(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu_erf_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu_quick(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_geglu_quick_swapped(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_glu_split(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_glu_op op);
struct ggml_tensor *ggml_reglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_geglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_swiglu_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_geglu_erf_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_geglu_quick_split(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_swiglu_oai(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float alpha, float limit);
struct ggml_tensor *ggml_swiglu_clamp(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float limit);

// Norms

struct ggml_tensor *ggml_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_rms_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_rms_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps);
struct ggml_tensor *ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps);
struct ggml_tensor *ggml_l2_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_l2_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps);
struct ggml_tensor *ggml_rms_norm_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float eps);

// Matrix products

bool ggml_prec_set_acc(struct ggml_tensor *a, enum ggml_prec prec);
bool ggml_prec_set_src(struct ggml_tensor *a, enum ggml_prec prec, int idx);
struct ggml_tensor *ggml_mul_mat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
void ggml_mul_mat_set_hint(struct ggml_tensor *a, enum ggml_op_hint hint);
struct ggml_tensor *ggml_mul_mat_id(
    struct ggml_context *ctx, struct ggml_tensor *as, struct ggml_tensor *b, struct ggml_tensor *ids);
struct ggml_tensor *ggml_out_prod(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);

// Operations on tensors without backpropagation

struct ggml_tensor *ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, float s);
struct ggml_tensor *ggml_scale_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s);
struct ggml_tensor *ggml_scale_bias(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b);
struct ggml_tensor *ggml_scale_bias_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b);

// Copies

struct ggml_tensor *ggml_set(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1,
    size_t nb2, size_t nb3, size_t offset);
struct ggml_tensor *ggml_set_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1,
    size_t nb2, size_t nb3, size_t offset);
struct ggml_tensor *ggml_set_1d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t offset);
struct ggml_tensor *ggml_set_1d_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t offset);
struct ggml_tensor *ggml_set_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t offset);
struct ggml_tensor *ggml_set_2d_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t offset);
struct ggml_tensor *ggml_cpy(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_cast(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_type type);
struct ggml_tensor *ggml_cont(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_cont_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0);
struct ggml_tensor *ggml_cont_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_cont_3d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2);
struct ggml_tensor *ggml_cont_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);

// Reshapes and views

struct ggml_tensor *ggml_reshape(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_reshape_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0);
struct ggml_tensor *ggml_reshape_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_reshape_3d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2);
struct ggml_tensor *ggml_reshape_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
struct ggml_tensor *ggml_view_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, size_t offset);
struct ggml_tensor *ggml_view_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, size_t nb1, size_t offset);
struct ggml_tensor *ggml_view_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    size_t nb1, size_t nb2, size_t offset);
struct ggml_tensor *ggml_view_4d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, size_t nb1, size_t nb2, size_t nb3, size_t offset);
struct ggml_tensor *ggml_permute(
    struct ggml_context *ctx, struct ggml_tensor *a, int axis0, int axis1, int axis2, int axis3);
struct ggml_tensor *ggml_transpose(struct ggml_context *ctx, struct ggml_tensor *a);

// Rows and diagonals

struct ggml_tensor *ggml_get_rows(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_get_rows_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);

struct ggml_tensor *ggml_set_rows(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);
struct ggml_tensor *ggml_diag(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_diag_mask_inf(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
struct ggml_tensor *ggml_diag_mask_inf_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
struct ggml_tensor *ggml_diag_mask_zero(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);
struct ggml_tensor *ggml_diag_mask_zero_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past);

// Clamp and softmax

struct ggml_tensor *ggml_clamp(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max);
struct ggml_tensor *ggml_clamp_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max);
struct ggml_tensor *ggml_soft_max(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_soft_max_inplace(struct ggml_context *ctx, struct ggml_tensor *a);
struct ggml_tensor *ggml_soft_max_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias);
struct ggml_tensor *ggml_soft_max_ext_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias);
void ggml_soft_max_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks);
struct ggml_tensor *ggml_soft_max_ext_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias);
struct ggml_tensor *ggml_soft_max_ext_back_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias);

// Rotary position embedding

struct ggml_tensor *ggml_rope(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode);
struct ggml_tensor *ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode);
struct ggml_tensor *ggml_rope_ext(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
struct ggml_tensor *ggml_rope_multi(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int sections[4], int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
struct ggml_tensor *ggml_rope_ext_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
struct ggml_tensor *ggml_rope_multi_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int sections[4], int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
void ggml_rope_yarn_corr_dims(
    int n_dims, int n_ctx_orig, float freq_base, float beta_fast, float beta_slow, float dims[2]);
struct ggml_tensor *ggml_rope_ext_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow);
struct ggml_tensor *ggml_rope_multi_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int sections[4], int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow);
struct ggml_tensor *ggml_rope_set_offset(struct ggml_tensor *a, int n_offs);

// Convolution

struct ggml_tensor *ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1,
    int p0, int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type);
struct ggml_tensor *ggml_im2col_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int64_t *ne, int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D);
struct ggml_tensor *ggml_col2im_1d(struct ggml_context *ctx, struct ggml_tensor *a, int s0, int oc, int p0);
struct ggml_tensor *ggml_conv_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
struct ggml_tensor *ggml_conv_1d_ph(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s, int d);
struct ggml_tensor *ggml_conv_1d_dw(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
struct ggml_tensor *ggml_conv_1d_dw_ph(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int d0);
struct ggml_tensor *ggml_conv_transpose_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int p0, int d0);
struct ggml_tensor *ggml_conv_2d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1,
    int p0, int p1, int d0, int d1);
struct ggml_tensor *ggml_im2col_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC,
    int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2, enum ggml_type dst_type);
struct ggml_tensor *ggml_conv_3d(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int64_t IC,
    int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2);
struct ggml_tensor *ggml_conv_2d_sk_p0(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_conv_2d_s1_ph(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_conv_2d_dw(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0,
    int s1, int p0, int p1, int d0, int d1);
struct ggml_tensor *ggml_conv_2d_dw_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int stride0, int stride1, int pad0, int pad1, int dilation0, int dilation1);
struct ggml_tensor *ggml_conv_transpose_2d_p0(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int stride);
struct ggml_tensor *ggml_conv_2d_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0,
    int s1, int p0, int p1, int d0, int d1);
struct ggml_tensor *ggml_conv_3d_direct(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0,
    int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2, int n_channels, int n_batch, int n_channels_out);

// Pooling

enum ggml_op_pool {
    GGML_OP_POOL_MAX,
    GGML_OP_POOL_AVG,
    GGML_OP_POOL_COUNT,
    ...
};

struct ggml_tensor *ggml_pool_1d(
    struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int s0, int p0);
struct ggml_tensor *ggml_pool_2d(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int k1,
    int s0, int s1, float p0, float p1);
struct ggml_tensor *ggml_pool_2d_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *af,
    enum ggml_op_pool op, int k0, int k1, int s0, int s1, float p0, float p1);

// Scaling, padding, filling

enum ggml_scale_mode {
    GGML_SCALE_MODE_NEAREST,
    GGML_SCALE_MODE_BILINEAR,
    GGML_SCALE_MODE_BICUBIC,
    GGML_SCALE_MODE_COUNT,
    ...
};

enum ggml_scale_flag {
    GGML_SCALE_FLAG_ALIGN_CORNERS,
    GGML_SCALE_FLAG_ANTIALIAS,
    ...
};

struct ggml_tensor *ggml_upscale(
    struct ggml_context *ctx, struct ggml_tensor *a, int scale_factor, enum ggml_scale_mode mode);
struct ggml_tensor *ggml_interpolate(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, uint32_t mode);
struct ggml_tensor *ggml_pad(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3);
struct ggml_tensor *ggml_pad_circular(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3);
struct ggml_tensor *ggml_pad_ext(struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1, int rp1,
    int lp2, int rp2, int lp3, int rp3);
struct ggml_tensor *ggml_pad_ext_circular(struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1,
    int rp1, int lp2, int rp2, int lp3, int rp3);
struct ggml_tensor *ggml_pad_reflect_1d(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1);
struct ggml_tensor *ggml_roll(
    struct ggml_context *ctx, struct ggml_tensor *a, int shift0, int shift1, int shift2, int shift3);
struct ggml_tensor *ggml_tri(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_tri_type type);
struct ggml_tensor *ggml_fill(struct ggml_context *ctx, struct ggml_tensor *a, float c);
struct ggml_tensor *ggml_fill_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float c);
struct ggml_tensor *ggml_timestep_embedding(
    struct ggml_context *ctx, struct ggml_tensor *timesteps, int dim, int max_period);

// Sorting

enum ggml_sort_order {
    GGML_SORT_ORDER_ASC,
    GGML_SORT_ORDER_DESC,
    ...
};

struct ggml_tensor *ggml_argsort(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_sort_order order);
struct ggml_tensor *ggml_argsort_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k);
struct ggml_tensor *ggml_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k);
struct ggml_tensor *ggml_arange(struct ggml_context *ctx, float start, float stop, float step);

// Attention and recurrent layers

struct ggml_tensor *ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *mask, float scale, float max_bias, float logit_softcap);
enum ggml_prec ggml_flash_attn_ext_get_prec(const struct ggml_tensor *a);
void ggml_flash_attn_ext_set_n_kv_max(struct ggml_tensor *a, int32_t n_kv_max);
void ggml_flash_attn_ext_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks);
struct ggml_tensor *ggml_flash_attn_back(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *d, bool masked);
struct ggml_tensor *ggml_ssm_conv(struct ggml_context *ctx, struct ggml_tensor *sx, struct ggml_tensor *c);
struct ggml_tensor *ggml_ssm_scan(
    struct ggml_context *ctx, struct ggml_tensor *s, struct ggml_tensor *x, struct ggml_tensor *dt,
    struct ggml_tensor *A, struct ggml_tensor *B, struct ggml_tensor *C, struct ggml_tensor *ids, int64_t K);
struct ggml_tensor *ggml_win_part(struct ggml_context *ctx, struct ggml_tensor *a, int w);
struct ggml_tensor *ggml_win_unpart(struct ggml_context *ctx, struct ggml_tensor *a, int w0, int h0, int w);
struct ggml_tensor *ggml_unary(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op);
struct ggml_tensor *ggml_unary_inplace(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_unary_op op);
struct ggml_tensor *ggml_get_rel_pos(struct ggml_context *ctx, struct ggml_tensor *a, int qh, int kh);
struct ggml_tensor *ggml_add_rel_pos(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph);
struct ggml_tensor *ggml_add_rel_pos_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph);
struct ggml_tensor *ggml_rwkv_wkv6(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v,
    struct ggml_tensor *r, struct ggml_tensor *tf, struct ggml_tensor *td, struct ggml_tensor *state);
struct ggml_tensor *ggml_gated_linear_attn(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v,
    struct ggml_tensor *q, struct ggml_tensor *g, struct ggml_tensor *state, float scale);
struct ggml_tensor *ggml_rwkv_wkv7(
    struct ggml_context *ctx, struct ggml_tensor *r, struct ggml_tensor *w, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *state);
struct ggml_tensor *ggml_solve_tri(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, bool left, bool lower, bool uni);
struct ggml_tensor *ggml_gated_delta_net(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *g, struct ggml_tensor *beta, struct ggml_tensor *state, int64_t K);
struct ggml_tensor *ggml_lightning_indexer(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *weights, struct ggml_tensor *mask);
struct ggml_tensor *ggml_dsv4_hc_comb(struct ggml_context *ctx, struct ggml_tensor *mixes, struct ggml_tensor *scale,
    struct ggml_tensor *base, float eps, int32_t n_iter);
struct ggml_tensor *ggml_dsv4_hc_pre(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *weights);
struct ggml_tensor *ggml_dsv4_hc_pre_gated(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *gate, float scale);
struct ggml_tensor *ggml_dsv4_hc_post(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *residual,
    struct ggml_tensor *post, struct ggml_tensor *comb);

// Custom operators

typedef void (
    *ggml_custom1_op_t)(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata);
typedef void (*ggml_custom2_op_t)(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    int ith, int nth, void *userdata);
typedef void (*ggml_custom3_op_t)(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *userdata);
#define GGML_N_TASKS_MAX ...
struct ggml_tensor *ggml_map_custom1(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_map_custom1_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_map_custom2(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    ggml_custom2_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_map_custom2_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    ggml_custom2_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_map_custom3(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_map_custom3_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata);
typedef void (*ggml_custom_op_t)(struct ggml_tensor *dst, int ith, int nth, void *userdata);
struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks, void *userdata);
struct ggml_tensor *ggml_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor **args,
    int n_args, ggml_custom_op_t fun, int n_tasks, void *userdata);

// Loss and optimizer steps

struct ggml_tensor *ggml_cross_entropy_loss(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_cross_entropy_loss_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c);
struct ggml_tensor *ggml_opt_step_adamw(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad,
    struct ggml_tensor *m, struct ggml_tensor *v, struct ggml_tensor *adamw_params);
struct ggml_tensor *ggml_opt_step_sgd(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad, struct ggml_tensor *sgd_params);

// Graphs

struct ggml_tensor *ggml_build_forward_select(
    struct ggml_cgraph *cgraph, struct ggml_tensor **tensors, int n_tensors, int idx);
void ggml_build_forward_expand(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
void ggml_build_forward_order(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
void ggml_build_backward_expand(struct ggml_context *ctx, struct ggml_cgraph *cgraph, struct ggml_tensor **grad_accs);
struct ggml_cgraph *ggml_new_graph(struct ggml_context *ctx);
struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t size, bool grads);
struct ggml_cgraph *ggml_graph_dup(struct ggml_context *ctx, struct ggml_cgraph *cgraph, bool force_grads);
void ggml_graph_cpy(struct ggml_cgraph *src, struct ggml_cgraph *dst);
void ggml_graph_reset(struct ggml_cgraph *cgraph);
void ggml_graph_clear(struct ggml_cgraph *cgraph);
int ggml_graph_size(struct ggml_cgraph *cgraph);
struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *cgraph, int i);
struct ggml_tensor **ggml_graph_nodes(struct ggml_cgraph *cgraph);
int ggml_graph_n_nodes(struct ggml_cgraph *cgraph);
void ggml_graph_add_node(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor);
size_t ggml_graph_overhead(void);
size_t ggml_graph_overhead_custom(size_t size, bool grads);
struct ggml_tensor *ggml_graph_get_tensor(const struct ggml_cgraph *cgraph, const char *name);
struct ggml_tensor *ggml_graph_get_grad(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node);
struct ggml_tensor *ggml_graph_get_grad_acc(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node);
void ggml_graph_print(const struct ggml_cgraph *cgraph);
void ggml_graph_dump_dot(const struct ggml_cgraph *gb, const struct ggml_cgraph *cgraph, const char *filename);

// Logging

typedef void (*ggml_log_callback)(enum ggml_log_level level, const char *text, void *user_data);
void ggml_log_get(ggml_log_callback *log_callback, void **user_data);
void ggml_log_set(ggml_log_callback log_callback, void *user_data);
struct ggml_tensor *ggml_set_zero(struct ggml_tensor *tensor);

// Quantisation

void ggml_quantize_init(enum ggml_type type);
void ggml_quantize_free(void);
bool ggml_quantize_requires_imatrix(enum ggml_type type);
size_t ggml_quantize_chunk(enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows,
    int64_t n_per_row, const float *imatrix);

// Type traits

typedef void (*ggml_to_float_t)(const void *x, float *y, int64_t k);
typedef void (*ggml_from_float_t)(const float *x, void *y, int64_t k);

struct ggml_type_traits {
    const char *type_name;
    int64_t blck_size;
    int64_t blck_size_interleave;
    size_t type_size;
    bool is_quantized;
    ggml_to_float_t to_float;
    ggml_from_float_t from_float_ref;
    ...;
};

const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type);

// Thread pools

enum ggml_sched_priority {
    GGML_SCHED_PRIO_LOW,
    GGML_SCHED_PRIO_NORMAL,
    GGML_SCHED_PRIO_MEDIUM,
    GGML_SCHED_PRIO_HIGH,
    GGML_SCHED_PRIO_REALTIME,
    ...
};

struct ggml_threadpool_params {
    bool cpumask[...];
    int n_threads;
    enum ggml_sched_priority prio;
    uint32_t poll;
    bool strict_cpu;
    bool paused;
    ...;
};

struct ggml_threadpool;
typedef struct ggml_threadpool *ggml_threadpool_t;
struct ggml_threadpool_params ggml_threadpool_params_default(int n_threads);
void ggml_threadpool_params_init(struct ggml_threadpool_params *p, int n_threads);
bool ggml_threadpool_params_match(const struct ggml_threadpool_params *p0, const struct ggml_threadpool_params *p1);
