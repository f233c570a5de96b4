#include "kernels/lora/low_rank.hpp"

#include "kernels/backend/expert_rows.hpp"
#include "kernels/backend/kernel.hpp"
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/gemm/work_item.hpp"
#include "kernels/lora/graph_rows.hpp"
#include "kernels/simd/vector.hpp"

#include <algorithm>
#include <vector>

#ifdef PYG_FLOATS8
#    include "kernels/simd/unroll.hpp"

namespace pyg::kernels {
namespace {

// Rows of A in a piece of work.
constexpr int64_t PROJECTED_ROWS = 8;

// Tiles of B that are prefetched ahead.
constexpr int64_t PREFETCHED_TILES = 8;

// Prefetch into L2. Rows of A and tiles of B end long before the processor would notice a stream.
void prefetch([[maybe_unused]] const void * from, [[maybe_unused]] size_t n_bytes) {
#    if defined(__GNUC__)
    for (size_t at = 0; at < n_bytes; at += 64) {
        __builtin_prefetch(static_cast<const char *>(from) + at, 0, 2);
    }
#    endif
}

// Rows of a product that one term is added to, of one expert.
struct Run {
    const pyg_lora_term * term;
    int64_t               expert;
    size_t                first;  // of its rows
    int64_t               n;
    int64_t               inner;  // start of A times these rows
};

// A choice of an expert (expert_rows.hpp) by a row with a set of adapters.
struct Choice {
    int32_t set, expert, choice;

    bool operator<(const Choice & other) const {
        return set != other.set         ? set < other.set
               : expert != other.expert ? expert < other.expert
                                        : choice < other.choice;
    }
};

// All runs of a product. Every thread lists them, in the same order.
class LowRankParts {
  public:
    void list(const GraphRows & rows, const ggml_tensor * op) {
        runs_.clear();
        inputs_.clear();
        results_.clear();
        n_inner_ = 0;
        if (!has_terms(rows, op)) {
            return;
        }
        op->op == GGML_OP_MUL_MAT_ID ? list_choices(rows, op) : list_rows(rows, op);
        GGML_ASSERT(n_inner_ <= static_cast<int64_t>(rows.inner.size()));
    }

    bool empty() const { return runs_.empty(); }

    // Multiply A with the rows, this thread's part.
    void project(const ggml_compute_params * params, const ggml_tensor * op, float * inner) const {
        int64_t piece = 0;
        for (const Run & run : runs_) {
            for (int64_t r = 0; r < run.term->rank; r += PROJECTED_ROWS) {
                if (piece++ % params->nth == params->ith) {
                    project_rows(op, run, r, std::min<int64_t>(PROJECTED_ROWS, run.term->rank - r), inner);
                }
            }
        }
    }

    // Add B times that to the results, this thread's part of the outputs.
    void add(const ggml_compute_params * params, const ggml_tensor * op, const float * inner) const {
        const int64_t n_outputs = op->ne[0];
        const auto [begin, end] = share_of(params, n_tiles(n_outputs));
        for (const Run & run : runs_) {
            switch (run.term->type_b) {
            case GGML_TYPE_F32:
                add_tiles<float>(run, n_outputs, begin, end, inner + run.inner);
                break;
            case GGML_TYPE_F16:
                add_tiles<ggml_fp16_t>(run, n_outputs, begin, end, inner + run.inner);
                break;
            default:
                add_tiles<ggml_bf16_t>(run, n_outputs, begin, end, inner + run.inner);
            }
        }
    }

  private:
    static int64_t n_tiles(int64_t n_outputs) { return (n_outputs + PYG_LORA_TILE - 1) / PYG_LORA_TILE; }

    static bool has_terms(const GraphRows & rows, const ggml_tensor * op) {
        const pyg_lora_term * terms = nullptr;
        for (int32_t set = 0; set < rows.adapters->n_sets; ++set) {
            if (rows.terms(op->src[0], set, &terms) > 0) {
                return true;
            }
        }
        return false;
    }

    void list_rows(const GraphRows & all, const ggml_tensor * op) {
        const RowSets & rows = all.rows_of(op);
        for (int32_t set = 0; set < all.adapters->n_sets; ++set) {
            const size_t first = inputs_.size();
            for (int32_t i = rows.first[set]; i < rows.first[set + 1]; ++i) {
                inputs_.push_back(row_at(op->src[1], rows.rows[i]));
                results_.push_back(const_cast<float *>(row_at(op, rows.rows[i])));
            }
            add_runs(all, op, set, 0, first);
        }
    }

    void list_choices(const GraphRows & all, const ggml_tensor * op) {
        const RowSets & rows   = all.rows_of(op);
        const int64_t   n_used = op->src[2]->ne[0];
        choices_.clear();
        for (const int32_t row : rows.rows) {
            for (int64_t choice = row * n_used; choice < (row + 1) * n_used; ++choice) {
                choices_.push_back({rows.set_of[row], expert_of(op, choice), static_cast<int32_t>(choice)});
            }
        }
        std::sort(choices_.begin(), choices_.end());
        for (auto begin = choices_.begin(); begin != choices_.end();) {
            const size_t first = inputs_.size();
            auto         each  = begin;
            for (; each != choices_.end() && each->set == begin->set && each->expert == begin->expert; ++each) {
                const ActivationRow at = row_of(op, each->choice);
                inputs_.push_back(row_at(op->src[1], at.i2 * op->src[1]->ne[1] + at.i1));
                results_.push_back(const_cast<float *>(row_at(op, each->choice)));
            }
            add_runs(all, op, begin->set, begin->expert, first);
            begin = each;
        }
    }

    // Add the terms of a set for the listed rows from `first` on.
    void add_runs(const GraphRows & all, const ggml_tensor * op, int32_t set, int64_t expert, size_t first) {
        const auto            n       = static_cast<int64_t>(inputs_.size() - first);
        const pyg_lora_term * terms   = nullptr;
        const int32_t         n_terms = n ? all.terms(op->src[0], set, &terms) : 0;
        for (int32_t t = 0; t < n_terms; ++t) {
            runs_.push_back({terms + t, expert, first, n, n_inner_});
            n_inner_ += n * terms[t].rank;
        }
    }

    void project_rows(const ggml_tensor * op, const Run & run, int64_t row, int64_t n_rows, float * inner) const {
        const int64_t n_inputs = op->src[1]->ne[0], rank = run.term->rank;
        const auto    type   = static_cast<ggml_type>(run.term->type_a);
        const size_t  stride = ggml_row_size(type, n_inputs);
        WorkItem      item;
        item.weights = static_cast<const char *>(run.term->a) + (run.expert * rank + row) * stride;
        item.n_rows  = n_rows;
        prefetch(item.weights, n_rows * stride);
        for (int64_t c = 0; c < run.n; c += ITEM_COLUMNS) {
            item.n_columns = std::min(ITEM_COLUMNS, run.n - c);
            for (int64_t i = 0; i < item.n_columns; ++i) {
                item.columns[i] = reinterpret_cast<const char *>(inputs_[run.first + c + i]);
                item.results[i] = inner + run.inner + (c + i) * rank + row;
            }
            multiply_floats(type, item, stride, n_inputs);
        }
    }

    // `x` has the rank values of each row.
    template <typename Value>
    void add_tiles(const Run & run, int64_t n_outputs, int64_t begin, int64_t end, const float * x) const {
        const int64_t       rank = run.term->rank, per_tile = PYG_LORA_TILE * rank;
        const Value * const b    = static_cast<const Value *>(run.term->b) + run.expert * n_tiles(n_outputs) * per_tile;
        float * const *     rows = results_.data() + run.first;
        const auto          prefetch_tiles = [&](int64_t from, int64_t to) {
            prefetch(b + from * per_tile, std::max<int64_t>(std::min(to, end) - from, 0) * per_tile * sizeof(Value));
        };
        prefetch_tiles(begin, begin + PREFETCHED_TILES);
        for (int64_t tile = begin; tile < end; ++tile) {
            prefetch_tiles(tile + PREFETCHED_TILES, tile + PREFETCHED_TILES + 1);
            const int64_t first = tile * PYG_LORA_TILE;
            const int     n     = static_cast<int>(std::min<int64_t>(PYG_LORA_TILE, n_outputs - first));
            int64_t       i     = 0;
            for (; MANY_REGISTERS && i + 4 <= run.n; i += 4) {
                add_columns<Value, 4>(b + tile * per_tile, rank, x + i * rank, run.term->scale,
                                      {rows[i] + first, rows[i + 1] + first, rows[i + 2] + first, rows[i + 3] + first},
                                      n);
            }
            for (; i + 2 <= run.n; i += 2) {
                add_columns<Value, 2>(b + tile * per_tile, rank, x + i * rank, run.term->scale,
                                      {rows[i] + first, rows[i + 1] + first}, n);
            }
            if (i < run.n) {
                add_columns<Value, 1>(b + tile * per_tile, rank, x + i * rank, run.term->scale, {rows[i] + first}, n);
            }
        }
    }

    // Add scale * B * x to `n` results of a tile, for some columns, whose `rank` values follow one another in `x`.
    template <typename Value, int n_columns>
    static PYG_NOINLINE void add_columns(const Value * b, int64_t rank, const float * x, float scale,
                                         float * const (&results)[n_columns], int n) {
        constexpr int N = PYG_LORA_TILE / Floats8::LANES;
        Floats8       sums[n_columns][N];
        unroll<n_columns>([&](auto c)
                              PYG_INLINE { unroll<N>([&](auto v) PYG_INLINE { sums[c][v] = Floats8::set1(0); }); });
        for (int64_t r = 0; r < rank; ++r) {
            Floats8 factors[n_columns];
            unroll<n_columns>([&](auto c) PYG_INLINE { factors[c] = Floats8::set1(x[c * rank + r]); });
            unroll<N>([&](auto v) PYG_INLINE {
                const Floats8 values = Floats8::load(b + r * PYG_LORA_TILE + v * Floats8::LANES);
                unroll<n_columns>([&](auto c)
                                      PYG_INLINE { sums[c][v] = multiply_add(values, factors[c], sums[c][v]); });
            });
        }
        unroll<n_columns>([&](auto c) PYG_INLINE { add_scaled<N>(sums[c], scale, results[c], n); });
    }

    template <int N>
    PYG_INLINE static void add_scaled(const Floats8 (&sums)[N], float scale, float * results, int n) {
        float         whole[PYG_LORA_TILE] = {};
        float * const to                   = n == PYG_LORA_TILE ? results : whole;
        if (to == whole) {
            std::copy_n(results, n, whole);
        }
        unroll<N>([&](auto v) PYG_INLINE {
            float * const at = to + v * Floats8::LANES;
            multiply_add(sums[v], Floats8::set1(scale), Floats8::load(at)).store(at);
        });
        if (to == whole) {
            std::copy_n(whole, n, results);
        }
    }

    std::vector<Run>           runs_;
    std::vector<const float *> inputs_;  // rows of activations
    std::vector<float *>       results_;
    std::vector<Choice>        choices_;
    int64_t                    n_inner_ = 0;
};

}  // namespace

void compute_with_adapters(const void * rows, ggml_compute_params * params, ggml_tensor * op,
                           void (*compute)(ggml_compute_params * params, ggml_tensor * op)) {
    thread_local LowRankParts parts;
    const GraphRows &         graph = *static_cast<const GraphRows *>(rows);
    parts.list(graph, op);
    if (parts.empty()) {
        compute(params, op);
        return;
    }
    float * const inner = const_cast<float *>(graph.inner.data());
    parts.project(params, op, inner);
    compute(params, op);
    ggml_barrier(params->threadpool);  // all results are there, and A times all rows
    parts.add(params, op, inner);
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

void compute_with_adapters(const void *, ggml_compute_params * params, ggml_tensor * op,
                           void (*compute)(ggml_compute_params * params, ggml_tensor * op)) {
    compute(params, op);
}

}  // namespace pyg::kernels

#endif
