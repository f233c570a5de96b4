// Attention of each row to its sequence's own cells, in order of position.
//
// First all threads list which cells each row sees (attention_rows.hpp). Then they compute: some rows that share their
// cells, for the queries of one head of keys, a chunk of cells after the other (attention_block.hpp). Chunks begin at
// multiples of their length, counted in places, so they are the same for a row in whatever company. Where there is too
// little work of this kind for all threads, they divide it by chunks as well, and what was seen of each is added up by
// the same arithmetic afterwards.
#include "attention_rows.hpp"
#include "kernel.hpp"

#ifdef PYG_FLOATS8

namespace pyg::kernels {
namespace {

// A piece of work: some heads of rows that share their cells, for all chunks or for one.
struct Item {
    const Rows * rows;
    int64_t      set, end_set;  // of heads
    int64_t      chunk, end_chunk;
    int64_t      part;  // where the results of its first chunk are, if it is not all
};

// Asks the memory for rows of cells, from the first to the last, a share at a time.
class Ahead {
  public:
    Ahead(const char * start, int64_t stride, int64_t n_bytes, const int32_t * cells, int64_t n)
        : start_(start), stride_(stride), n_lines_(divided(n_bytes, 64)), cells_(cells), n_(n) {}

    // Up to share `share` of so many. They get no nearer than the second cache, where they do not stand in the way.
    void go(int64_t share, int64_t of) {
        for (const int64_t end = n_ * n_lines_ * share / of; done_ < end; ++done_) {
            if (line_ == n_lines_) {
                line_ = 0;
                ++cells_;
            }
            __builtin_prefetch(start_ + *cells_ * stride_ + line_++ * 64, 0, 2);
        }
    }

  private:
    const char *    start_;
    int64_t         stride_, n_lines_;
    const int32_t * cells_;
    int64_t         n_, done_ = 0, line_ = 0;
};

class Attention {
  public:
    Attention(ggml_compute_params * params, ggml_tensor * op)
        : params_(params), op_(op), q_(op->src[0]), k_(op->src[1]), v_(op->src[2]), sizes_(op),
          shared_(sizes_, memory(params)),
          scratch_(sizes_, memory(params) + shared_.size + params->ith * Scratch(sizes_, nullptr).size),
          lister_(op, sizes_, shared_, scratch_) {
        std::memcpy(&scores_.scale, op->op_params, sizeof(float));
        std::memcpy(&bias_, op->op_params + 1, sizeof(float));
        std::memcpy(&scores_.softcap, op->op_params + 2, sizeof(float));
        if (scores_.softcap != 0) {
            scores_.scale /= scores_.softcap;
        }
    }

    static size_t work_size(int n_threads, const ggml_tensor * op) {
        const Sizes sizes(op);
        return Shared(sizes, nullptr).size + Scratch(sizes, nullptr).size * n_threads + ALIGNMENT;
    }

    void compute() {
        for (int64_t first = 0; first < sizes_.n_rows; first += sizes_.n_listed) {
            if (first > 0) {
                ggml_barrier(params_->threadpool);
            }
            compute(first, std::min(sizes_.n_listed, sizes_.n_rows - first));
        }
    }

  private:
    static char * memory(const ggml_compute_params * params) {
        const auto start = (reinterpret_cast<uintptr_t>(params->wdata) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        return reinterpret_cast<char *>(start);
    }

    // Rows from `first` on, as many as can be listed at once.
    void compute(int64_t first, int64_t n) {
        if (params_->ith == 0) {
            ggml_threadpool_chunk_set(params_->threadpool, params_->nth);
        }
        n_rows_            = n;
        const int64_t low  = n * params_->ith / params_->nth;
        const int64_t high = n * (params_->ith + 1) / params_->nth;
        lister_.list(first + low, first + high, low,
                     std::clamp<int64_t>(n * sizes_.n_sets / (4 * params_->nth), 1, sizes_.n_joint_rows()));
        ggml_barrier(params_->threadpool);
        divide();
        take_items();
        if (split_) {
            ggml_barrier(params_->threadpool);
            add_parts();
        }
    }

    // Decides how the work is divided: by chunks if there is room for their results, and by sets of heads. Those of the
    // same cells lie side by side, so if there are few queries it is better to read them together.
    void divide() {
        int64_t n_rows = 1, n_lists = 0, n_chunks = 0, n_parts = 0;
        for (int64_t i = 0; i < n_rows_; ++i) {
            const Rows &  rows = shared_.rows[i];
            const int64_t n    = rows.end - rows.first;
            n_rows             = std::max(n_rows, n);
            n_lists += n > 0;
            n_chunks += n > 0 ? rows.n_chunks() : 0;
            n_parts += n * rows.n_chunks() * sizes_.n_heads;
        }
        const int64_t n_wanted = params_->nth > 1 ? 4 * params_->nth : 1;
        n_sets_                = std::clamp<int64_t>(MAX_QUERIES / (n_rows * sizes_.n_joint), 1, sizes_.n_sets);
        split_                 = n_lists * divided(sizes_.n_sets, n_sets_) < n_wanted && n_parts <= sizes_.n_kept;
        const int64_t n_items  = split_ ? n_chunks : n_lists;
        while (n_sets_ > 1 && n_items * divided(sizes_.n_sets, n_sets_) < n_wanted) {
            n_sets_ = divided(n_sets_, 2);
        }
    }

    // Computes what this thread can get hold of. The last rows see most, so they come first.
    void take_items() {
        int64_t next = params_->ith, n_before = 0, part = 0;
        for (int64_t i = n_rows_ - 1; i >= 0; --i) {
            const Rows & rows = shared_.rows[i];
            if (rows.end == rows.first) {
                continue;
            }
            const int64_t n_items = divided(sizes_.n_sets, n_sets_) * (split_ ? rows.n_chunks() : 1);
            for (; next < n_before + n_items; next = ggml_threadpool_chunk_add(params_->threadpool, 1)) {
                attend(item(rows, next - n_before, part));
            }
            n_before += n_items;
            part += (rows.end - rows.first) * rows.n_chunks() * sizes_.n_heads;
        }
    }

    Item item(const Rows & rows, int64_t index, int64_t part) const {
        const int64_t n_chunks = split_ ? rows.n_chunks() : 1, chunk = index % n_chunks;
        Item          item;
        item.rows      = &rows;
        item.set       = index / n_chunks * n_sets_;
        item.end_set   = std::min(item.set + n_sets_, sizes_.n_sets);
        item.chunk     = rows.first_chunk() + chunk;
        item.end_chunk = split_ ? item.chunk + 1 : item.chunk + rows.n_chunks();
        item.part      = part + chunk * (rows.end - rows.first) * sizes_.n_heads;
        return item;
    }

    void attend(const Item & item) {
        begin(item);
        for (int64_t chunk = item.chunk; chunk < item.end_chunk; ++chunk) {
            attend_chunk(item, chunk);
        }
        for (Query * query = scratch_.queries; query < end_; ++query) {
            if (split_) {
                float * const to = part(item.part + query->row * sizes_.n_heads + query->head);
                to[0]            = query->chunk.most;
                to[1]            = query->chunk.total;
            } else {
                finish(query->all, item.rows->first + query->row, query->head);
            }
        }
    }

    float * part(int64_t index) const { return shared_.parts + index * sizes_.n_floats; }

    float slope(int64_t head) const {
        if (bias_ <= 0) {
            return 1;
        }
        const int64_t n_log2 = int64_t(1) << static_cast<int>(std::floor(std::log2(q_->ne[2])));
        const float   even   = std::pow(2.0f, -bias_ / n_log2);
        const float   odd    = std::pow(2.0f, -bias_ / 2.0f / n_log2);
        return head < n_log2 ? std::pow(even, head + 1) : std::pow(odd, 2 * (head - n_log2) + 1);
    }

    void begin(const Item & item) {
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

    void begin(const Item & item, Query & query) {
        const int64_t index = &query - scratch_.queries, row = (item.rows->first + query.row) % q_->ne[1];
        query.q         = reinterpret_cast<const float *>(static_cast<const char *>(q_->data) + row * q_->nb[1] +
                                                          query.head * q_->nb[2] + stream_ * q_->nb[3]);
        query.weights   = scratch_.weights + index * (CHUNK + FOUR);
        query.slope     = slope(query.head);
        query.chunk.sum = scratch_.sums + 2 * index * sizes_.n_values;
        query.all.sum   = query.chunk.sum + sizes_.n_values;
        if (split_) {
            query.chunk.sum = part(item.part + query.row * sizes_.n_heads + query.head) + 16;
        } else {
            query.all.forget(sizes_.n_values);
        }
    }

    const Span & span_of(const Rows & rows, int32_t row) const { return shared_.spans[&rows - shared_.rows + row]; }

    void attend_chunk(const Item & item, int64_t chunk) {
        const Rows &          rows  = *item.rows;
        const int64_t         first = chunk * CHUNK;
        const int64_t         low = std::max(rows.low - first, int64_t(0)), high = std::min(rows.high - first, CHUNK);
        const int32_t * const cells = rows.cells + (first - rows.low);
        for (Query * query = scratch_.queries; query < end_; ++query) {
            const Span &  span = span_of(rows, query->row);
            const int64_t from = std::max(span.low - first, int64_t(0));
            query->low         = static_cast<int32_t>(from);
            query->high        = static_cast<int32_t>(std::clamp(span.high - first, from, std::max(from, CHUNK)));
            query->chunk.forget(sizes_.n_values);
        }
        const int64_t next = chunk + 1 < item.end_chunk ? std::min(high + BLOCK, rows.high - first) : high;
        read(item, k_, cells, low, high, {v_, cells + low, std::min(BLOCK, high - low)},
             [&](auto keys, int64_t from, int64_t to) { score(keys, from, to); });
        weigh(rows, cells);
        read(item, v_, cells, low, high, {k_, cells + high, next - high},
             [&](auto values, int64_t from, int64_t to) { add(values, from, to); });
        for (Query * query = scratch_.queries; query < end_ && !split_; ++query) {
            merge(query->all, query->chunk, sizes_.n_values);
        }
    }

    // Some cells of one cache.
    struct Cells {
        const ggml_tensor * cache;
        const int32_t *     cells;
        int64_t             n;
    };

    // Gives the keys or values of cells `low` up to `high`, some at a time, to `use`, for each set of queries.
    // Meanwhile it asks the memory for what comes next, and at last for `then`.
    template <typename Use>
    void read(const Item & item, const ggml_tensor * cache, const int32_t * cells, int64_t low, int64_t high,
              const Cells & then, const Use & use) {
        for (; low < high; low += BLOCK) {
            const int64_t end  = std::min(low + BLOCK, high);
            const Cells   next = end < high ? Cells{cache, cells + end, std::min(BLOCK, high - end)} : then;
            const char *  from = place_of(next.cache, item.set);
            Ahead ahead(from, next.cache->nb[1],
                        ggml_row_size(next.cache->type, next.cache->ne[0]) * (item.end_set - item.set), next.cells,
                        next.n);
            begin_ = scratch_.queries;
            for (int64_t set = item.set; set < item.end_set; ++set, begin_ = set_end_) {
                set_end_ = begin_ + (item.rows->end - item.rows->first) * sizes_.n_heads_of(set);
                ahead.go((set + 1 - item.set), (item.end_set - item.set));
                read(cache, place_of(cache, set), cells, low, end, use);
            }
        }
    }

    const char * place_of(const ggml_tensor * cache, int64_t set) const {
        return static_cast<const char *>(cache->data) + set / sizes_.n_parts * cache->nb[2] + stream_ * cache->nb[3];
    }

    template <typename Use>
    void read(const ggml_tensor * cache, const char * start, const int32_t * cells, int64_t low, int64_t high,
              const Use & use) {
        const char * found[CHUNK];
        const bool   few = set_end_ - begin_ <= MAX_DIRECT;
        for (int64_t cell = low; cell < high; ++cell) {
            found[cell] = start + cells[cell] * cache->nb[1];
        }
        if (cache->type == GGML_TYPE_F32) {
            use(reinterpret_cast<const float * const *>(found), low, high);
        } else if (cache->type == GGML_TYPE_F16 && few) {
            use(reinterpret_cast<const ggml_fp16_t * const *>(found), low, high);
        } else if (cache->type == GGML_TYPE_BF16 && few) {
            use(reinterpret_cast<const ggml_bf16_t * const *>(found), low, high);
        } else {
            convert(cache, found, low, high);
            use(reinterpret_cast<const float * const *>(found), low, high);
        }
    }

    void convert(const ggml_tensor * cache, const char ** found, int64_t low, int64_t high) {
        const int64_t n        = cache->ne[0];
        const auto    to_float = ggml_get_type_traits(cache->type)->to_float;
        for (int64_t cell = low; cell < high; ++cell) {
            float * const      to   = scratch_.numbers + (cell - low) * n;
            const char * const from = found[cell];
            if (cache->type == GGML_TYPE_F16) {
                for (int64_t d = 0; d < n; d += Floats8::LANES) {
                    Floats8::load(reinterpret_cast<const ggml_fp16_t *>(from) + d).store(to + d);
                }
            } else {
                to_float(from, to, n);
            }
            found[cell] = reinterpret_cast<const char *>(to);
        }
    }

    template <typename Number>
    void score(const Number * const * keys, int64_t low, int64_t high) {
        Query * seeing[MAX_QUERIES];
        int64_t n = 0;
        for (Query * query = begin_; query < set_end_; ++query) {
            if (query->low < high && query->high > low) {
                seeing[n++] = query;
            }
        }
        for (int64_t cell = low; cell < high; cell += FOUR) {
            const Number * four[FOUR];
            for (int64_t i = 0; i < FOUR; ++i) {
                four[i] = keys[std::min(cell + i, high - 1)];
            }
            int64_t i = 0;
            for (; i + AT_ONCE <= n; i += AT_ONCE) {
                score_four<AT_ONCE>(seeing + i, four, sizes_.n_keys, cell);
            }
            switch (n - i) {
            case 3:
                score_four<3>(seeing + i, four, sizes_.n_keys, cell);
                break;
            case 2:
                score_four<2>(seeing + i, four, sizes_.n_keys, cell);
                break;
            case 1:
                score_four<1>(seeing + i, four, sizes_.n_keys, cell);
                break;
            default:
                break;
            }
        }
    }

    void weigh(const Rows & rows, const int32_t * cells) {
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
            kernels::weigh(*query, scores_, biased ? scratch_.mask : nullptr);
        }
    }

    template <typename Number>
    void add(const Number * const * values, int64_t low, int64_t high) {
        Query * query = begin_;
        for (; query + AT_ONCE <= set_end_; query += AT_ONCE) {
            add_some<AT_ONCE>(query, values, low, high);
        }
        switch (set_end_ - query) {
        case 3:
            return add_some<3>(query, values, low, high);
        case 2:
            return add_some<2>(query, values, low, high);
        case 1:
            return add_some<1>(query, values, low, high);
        default:
            return;
        }
    }

    // Cells that all of N queries see are added together, those before and after by each query for itself.
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

    // Adds up what was seen of each chunk.
    void add_parts() {
        int64_t first = 0, query = 0;
        for (int64_t i = n_rows_ - 1; i >= 0; --i) {
            const Rows &  rows = shared_.rows[i];
            const int64_t n    = (rows.end - rows.first) * sizes_.n_heads;
            for (int64_t j = 0; j < n; ++j, ++query) {
                if (query % params_->nth == params_->ith) {
                    add_parts(first + j, n, rows.n_chunks(), rows.first + j / sizes_.n_heads, j % sizes_.n_heads);
                }
            }
            first += n * rows.n_chunks();
        }
    }

    void add_parts(int64_t first, int64_t step, int64_t n_chunks, int64_t row, int64_t head) {
        Seen all{0, 0, scratch_.sums};
        all.forget(sizes_.n_values);
        for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
            float * const one = part(first + chunk * step);
            merge(all, {one[0], one[1], one + 16}, sizes_.n_values);
        }
        finish(all, row, head);
    }

    void finish(Seen & all, int64_t row, int64_t head) const {
        if (const ggml_tensor * const sinks = op_->src[4]) {
            const float sink = static_cast<const float *>(sinks->data)[head];
            if (sink > all.most) {
                const float factor = exp_of(all.most - sink);
                scale(all.sum, factor, all.sum);
                all.total *= factor;
                all.most = sink;
            }
            all.total += exp_of(sink - all.most);
        }
        const int64_t place = row * op_->ne[1] + head;
        scale(all.sum, all.total == 0 ? 0.0f : 1.0f / all.total,
              reinterpret_cast<float *>(static_cast<char *>(op_->data) + place * op_->nb[1]));
    }

    void scale(const float * from, float factor, float * to) const {
        for (int64_t d = 0; d < sizes_.n_values; d += Floats8::LANES) {
            (Floats8::load(from + d) * Floats8::everywhere(factor)).store(to + d);
        }
    }

    static constexpr int     AT_ONCE    = MANY_REGISTERS ? 4 : 3;  // queries
    static constexpr int64_t MAX_DIRECT = 4;  // queries that read a cache themselves, each AT_ONCE of them again

    ggml_compute_params * params_;
    ggml_tensor *         op_;
    const ggml_tensor *   q_, *k_, *v_;
    Sizes                 sizes_;
    Shared                shared_;
    Scratch               scratch_;
    RowLister             lister_;
    Scores                scores_ = {};
    float                 bias_   = 0;
    int64_t               n_rows_ = 0;      // that are listed
    int64_t               n_sets_ = 1;      // of an item
    bool                  split_  = false;  // by chunks
    int64_t               stream_ = 0;
    Query *               end_    = nullptr;                      // of the queries at hand
    Query *               begin_ = nullptr, *set_end_ = nullptr;  // those of a set
};

bool is_readable(const ggml_tensor * rows) {
    return rows->nb[0] == ggml_type_size(rows->type) && rows->ne[0] % Floats8::LANES == 0 &&
           (rows->type == GGML_TYPE_F32 || ggml_get_type_traits(rows->type)->to_float);
}

bool is_covered(const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && is_readable(k) && is_readable(v) &&
           k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && q->ne[2] % k->ne[2] == 0 &&
           k->ne[1] == v->ne[1] && k->ne[1] < INT32_MAX &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->ne[2] == 1 && mask->nb[0] == sizeof(ggml_fp16_t)));
}

class AttentionKernel : public Kernel {
  public:
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = Attention::work_size(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        Attention(params, op).compute();
        return true;
    }
};

}  // namespace

Kernel * attention_for(const ggml_tensor * op) {
    static AttentionKernel kernel;
    return is_covered(op) ? &kernel : nullptr;
}

}  // namespace pyg::kernels
#else
namespace pyg::kernels {

Kernel * attention_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels
#endif
