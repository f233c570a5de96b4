// Work item of attention: some heads of rows that share their cells.
#pragma once

#include "kernels/attention/prefetch.hpp"
#include "kernels/attention/visible_cells.hpp"
#ifdef PYG_AVX512
#    include "kernels/attention/scores_avx512.hpp"
#endif

#include <type_traits>

namespace pyg::kernels {

// Chunks of cells for some sets of heads of some rows.
struct AttentionItem {
    const RowGroup * rows;
    int64_t          set, end_set;
    int64_t          chunk, end_chunk;
    bool             is_all;  // all chunks: the result is complete
    int64_t          part;    // otherwise the index of its first partial result
};

class AttentionWorker {
  public:
    AttentionWorker(ggml_tensor * op, const Sizes & sizes, const Shared & shared, const Scratch & scratch,
                    const VisibleCellLister & lister)
        : op_(op), q_(op->src[0]), k_(op->src[1]), v_(op->src[2]), sizes_(sizes), shared_(shared), scratch_(scratch),
          lister_(lister) {
        std::memcpy(&scores_.scale, op->op_params, sizeof(float));
        std::memcpy(&bias_, op->op_params + 1, sizeof(float));
        std::memcpy(&scores_.softcap, op->op_params + 2, sizeof(float));
        if (scores_.softcap != 0) {
            scores_.scale /= scores_.softcap;
        }
    }

    // Compute an item: results, or partial results.
    void attend(const AttentionItem & item) {
        begin(item);
        for (int64_t chunk = item.chunk; chunk < item.end_chunk; ++chunk) {
            attend_chunk(item, chunk);
        }
        for (Query * query = scratch_.queries; query < end_; ++query) {
            if (!item.is_all) {
                float * const to = shared_.part(item.part + query->row * sizes_.n_heads + query->head);
                to[0]            = query->chunk.most;
                to[1]            = query->chunk.total;
            } else {
                finish(query->all, item.rows->first + query->row, query->head);
            }
        }
    }

    // Write the result of one head of a row.
    void finish(SoftmaxState & all, int64_t row, int64_t head) const {
        if (const ggml_tensor * const sinks = op_->src[4]) {
            const float sink = static_cast<const float *>(sinks->data)[head];
            if (sink > all.most) {
                const float factor = exp_approx(all.most - sink);
                scale(all.sum, factor, all.sum);
                all.total *= factor;
                all.most = sink;
            }
            all.total += exp_approx(sink - all.most);
        }
        const int64_t place = row * op_->ne[1] + head;
        scale(all.sum, all.total == 0 ? 0.0f : 1.0f / all.total,
              reinterpret_cast<float *>(static_cast<char *>(op_->data) + place * op_->nb[1]));
    }

  private:
    void scale(const float * from, float factor, float * to) const {
        for (int64_t d = 0; d < sizes_.n_values; d += Floats8::LANES) {
            (Floats8::load(from + d) * Floats8::set1(factor)).store(to + d);
        }
    }

    float slope(int64_t head) const {
        if (bias_ <= 0) {
            return 1;
        }
        const int64_t n_log2 = int64_t(1) << static_cast<int>(std::floor(std::log2(q_->ne[2])));
        const float   even   = std::pow(2.0f, -bias_ / n_log2);
        const float   odd    = std::pow(2.0f, -bias_ / 2.0f / n_log2);
        return head < n_log2 ? std::pow(even, head + 1) : std::pow(odd, 2 * (head - n_log2) + 1);
    }

    void begin(const AttentionItem & item) {
        stream_       = item.rows->first / q_->ne[1];
        Query * query = scratch_.queries;
        for (int64_t set = item.set; set < item.end_set; ++set) {
            for (int64_t row = item.rows->first; row < item.rows->end; ++row) {
                for (int64_t h = 0; h < sizes_.n_heads_of(set); ++h, ++query) {
                    query->row  = static_cast<int32_t>(row - item.rows->first);
                    query->head = static_cast<int32_t>(sizes_.first_head_of(set) + h);
                    begin(item, *query);
                }
            }
        }
        end_ = query;
    }

    void begin(const AttentionItem & item, Query & query) {
        const int64_t index = &query - scratch_.queries, row = (item.rows->first + query.row) % q_->ne[1];
        query.q         = reinterpret_cast<const float *>(static_cast<const char *>(q_->data) + row * q_->nb[1] +
                                                          query.head * q_->nb[2] + stream_ * q_->nb[3]);
        query.weights   = scratch_.weights + index * (CHUNK + BLOCK);
        query.slope     = slope(query.head);
        query.chunk.sum = scratch_.sums + 2 * index * sizes_.n_values;
        query.all.sum   = query.chunk.sum + sizes_.n_values;
        if (!item.is_all) {
            query.chunk.sum = shared_.part(item.part + query.row * sizes_.n_heads + query.head) + 16;
        } else {
            query.all.reset(sizes_.n_values);
        }
    }

    const Span & span_of(const RowGroup & rows, int32_t row) const { return shared_.spans[&rows - shared_.rows + row]; }

    void attend_chunk(const AttentionItem & item, int64_t chunk) {
        const RowGroup &      rows  = *item.rows;
        const int64_t         first = chunk * CHUNK;
        const int64_t         low = std::max(rows.low - first, int64_t(0)), high = std::min(rows.high - first, CHUNK);
        const int32_t * const cells = rows.cells + (first - rows.low);
        for (Query * query = scratch_.queries; query < end_; ++query) {
            const Span &  span = span_of(rows, query->row);
            const int64_t from = std::max(span.low - first, int64_t(0));
            query->low         = static_cast<int32_t>(from);
            query->high        = static_cast<int32_t>(std::clamp(span.high - first, from, std::max(from, CHUNK)));
            query->chunk.reset(sizes_.n_values);
        }
        const int64_t next = chunk + 1 < item.end_chunk ? std::min(high + BLOCK, rows.high - first) : high;
        read(item, k_, cells, low, high, {v_, cells + low, std::min(BLOCK, high - low)},
             [&](auto keys, int64_t from, int64_t to) { score(keys, from, to); });
        softmax_chunk(rows, cells);
        read(item, v_, cells, low, high, {k_, cells + high, next - high},
             [&](auto values, int64_t from, int64_t to) { add(values, from, to); });
        for (Query * query = scratch_.queries; query < end_ && item.is_all; ++query) {
            merge(query->all, query->chunk, sizes_.n_values);
        }
    }

    // Cells of one cache.
    struct Cells {
        const ggml_tensor * cache;
        const int32_t *     cells;
        int64_t             n;
    };

    // Pass the keys or values of cells [low, high) to `use`, BLOCK at a time, for each set of queries, and prefetch the
    // next ones, at last `then`.
    template <typename Use>
    void read(const AttentionItem & item, const ggml_tensor * cache, const int32_t * cells, int64_t low, int64_t high,
              const Cells & then, const Use & use) {
        for (; low < high; low += BLOCK) {
            const int64_t end     = std::min(low + BLOCK, high);
            const Cells   next    = end < high ? Cells{cache, cells + end, std::min(BLOCK, high - end)} : then;
            const char *  from    = head_data(next.cache, item.set);
            const size_t  n_bytes = ggml_row_size(next.cache->type, next.cache->ne[0]) * (item.end_set - item.set);
            Prefetcher    ahead(from, next.cache->nb[1], n_bytes, next.cells, next.n);
            begin_ = scratch_.queries;
            for (int64_t set = item.set; set < item.end_set; ++set, begin_ = set_end_) {
                set_end_ = begin_ + (item.rows->end - item.rows->first) * sizes_.n_heads_of(set);
                ahead.prefetch_share(set + 1 - item.set, item.end_set - item.set);
                read(cache, head_data(cache, set), cells, low, end, use);
            }
        }
    }

    const char * head_data(const ggml_tensor * cache, int64_t set) const {
        return static_cast<const char *>(cache->data) + set / sizes_.n_parts * cache->nb[2] + stream_ * cache->nb[3];
    }

    template <typename Use>
    void read(const ggml_tensor * cache, const char * start, const int32_t * cells, int64_t low, int64_t high,
              const Use & use) {
        const char ** const pointers = scratch_.pointers;
        const bool          few      = set_end_ - begin_ <= MAX_DIRECT;
        for (int64_t cell = low; cell < high; ++cell) {
            pointers[cell] = start + cells[cell] * cache->nb[1];
        }
        if (cache->type == GGML_TYPE_F32) {
            use(reinterpret_cast<const float * const *>(pointers), low, high);
        } else if (cache->type == GGML_TYPE_F16 && few) {
            use(reinterpret_cast<const ggml_fp16_t * const *>(pointers), low, high);
        } else if (cache->type == GGML_TYPE_BF16 && few) {
            use(reinterpret_cast<const ggml_bf16_t * const *>(pointers), low, high);
        } else {
            convert(cache, pointers, low, high);
            use(reinterpret_cast<const float * const *>(pointers), low, high);
        }
    }

    void convert(const ggml_tensor * cache, const char ** pointers, int64_t low, int64_t high) {
        const int64_t n        = cache->ne[0];
        const auto    to_float = ggml_get_type_traits(cache->type)->to_float;
        for (int64_t cell = low; cell < high; ++cell) {
            float * const      to   = scratch_.numbers + (cell - low) * n;
            const char * const from = pointers[cell];
            if (cache->type == GGML_TYPE_F16) {
                for (int64_t d = 0; d < n; d += Floats8::LANES) {
                    Floats8::load(reinterpret_cast<const ggml_fp16_t *>(from) + d).store(to + d);
                }
            } else {
                to_float(from, to, n);
            }
            pointers[cell] = reinterpret_cast<const char *>(to);
        }
    }

    template <typename Number>
    void score(const Number * const * keys, int64_t low, int64_t high) {
        Query * visible[MAX_QUERIES];
        int64_t n = 0;
        for (Query * query = begin_; query < set_end_; ++query) {
            if (query->low < high && query->high > low) {
                visible[n++] = query;
            }
        }
#ifdef PYG_AVX512
        if constexpr (std::is_same_v<Number, float>) {
            if (n > MAX_DIRECT && high - low > BLOCK / 2) {
                return score_block(visible, n, keys + low, low, high - low);
            }
        }
#endif
        for (int64_t cell = low; cell < high; cell += FOUR) {
            const Number * four[FOUR];
            for (int64_t i = 0; i < FOUR; ++i) {
                four[i] = keys[std::min(cell + i, high - 1)];
            }
            for_each_few(n, [&](auto n_few, int64_t i) { score_four<n_few>(visible + i, four, sizes_.n_keys, cell); });
        }
    }

#ifdef PYG_AVX512
    void score_block(Query * const * queries, int64_t n, const float * const * keys, int64_t cell, int64_t n_cells) {
        transpose_keys(keys, n_cells, sizes_.n_keys, scratch_.columns);
        for (int64_t i = 0; i < n; i += 3) {
            score_columns(queries + std::min(i, n - 3), scratch_.columns, sizes_.n_keys, cell);
        }
    }
#endif

    void softmax_chunk(const RowGroup & rows, const int32_t * cells) {
        int32_t row = -1;
        for (Query * query = scratch_.queries; query < end_; ++query) {
            if (query->low == query->high) {
                continue;
            }
            const bool biased = span_of(rows, query->row).biased;
            if (biased && row != query->row) {
                row                         = query->row;
                const uint16_t * const mask = lister_.mask_of(rows.first + row);
                for (int32_t cell = query->low; cell < query->high; ++cell) {
                    scratch_.mask[cell] = to_float(mask[cells[cell]]);
                }
            }
            kernels::softmax_chunk(*query, scores_, biased ? scratch_.mask : nullptr);
        }
    }

    template <typename Number>
    void add(const Number * const * values, int64_t low, int64_t high) {
        for_each_few(set_end_ - begin_, [&](auto n_few, int64_t i) { add_some<n_few>(begin_ + i, values, low, high); });
    }

    // Call use(N, i) for queries [i, i + N), QUERIES_AT_ONCE at a time; N is a constant.
    template <typename Use>
    static void for_each_few(int64_t n, const Use & use) {
        int64_t i = 0;
        for (; i + QUERIES_AT_ONCE <= n; i += QUERIES_AT_ONCE) {
            use(std::integral_constant<int, QUERIES_AT_ONCE>(), i);
        }
        unroll<QUERIES_AT_ONCE>([&](auto n_left) {
            if constexpr (n_left > 0) {
                if (n - i == n_left) {
                    use(n_left, i);
                }
            }
        });
    }

    // Add cells that all N queries see together, those before and after for each query alone.
    template <int N, typename Number>
    void add_some(Query * first, const Number * const * values, int64_t low, int64_t high) {
        Query *    queries[N];
        int64_t    begin = low, end = high;
        const auto own = [&](Query * query, int64_t from, int64_t to) {
            from = std::max<int64_t>(from, query->low);
            to   = std::min<int64_t>(to, query->high);
            add_values<1>(&query, values, sizes_.n_values, from, to);
        };
        for (int i = 0; i < N; ++i) {
            queries[i] = first + i;
            begin      = std::max<int64_t>(begin, queries[i]->low);
            end        = std::min<int64_t>(end, queries[i]->high);
        }
        if (begin >= end) {
            begin = end = high;
        }
        for (Query * const query : queries) {
            own(query, low, begin);
        }
        add_values<N>(queries, values, sizes_.n_values, begin, end);
        for (Query * const query : queries) {
            own(query, end, high);
        }
    }

    static constexpr int QUERIES_AT_ONCE = MANY_REGISTERS ? 4 : 3;
    // Queries that read a cache themselves, each QUERIES_AT_ONCE of them again.
    static constexpr int64_t MAX_DIRECT = 4;

    ggml_tensor *             op_;
    const ggml_tensor *       q_, *k_, *v_;
    const Sizes &             sizes_;
    const Shared &            shared_;
    const Scratch &           scratch_;
    const VisibleCellLister & lister_;
    Scores                    scores_ = {};
    float                     bias_   = 0;
    int64_t                   stream_ = 0;
    Query *                   end_    = nullptr;                      // of the queries at hand
    Query *                   begin_ = nullptr, *set_end_ = nullptr;  // those of a set
};

}  // namespace pyg::kernels
