// Tokenization of many texts on several threads. Upstream's tokenizer is thread-safe.
#include "boundary/handles.hpp"
#include "llama-vocab.h"
#include "model/tokenize.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

namespace {

using pyg::fail;
using pyg::Model;
using Ids = std::vector<llama_token>;

// Texts that a thread takes at a time, and bytes of text for which another thread is worth starting.
constexpr int32_t TEXTS_AT_ONCE    = 16;
constexpr int64_t BYTES_PER_THREAD = 32 << 10;

// The special tokens around a text.
struct Around {
    Ids before;
    Ids after;

    // Return the text's tokens between them. A text that has them already, as templates write BOS, gets no second ones.
    Ids operator()(const Ids & ids) const {
        const auto n_before = static_cast<std::ptrdiff_t>(before.size());
        const auto n_after  = static_cast<std::ptrdiff_t>(after.size());
        const auto n        = static_cast<std::ptrdiff_t>(ids.size());
        const bool begins   = n >= n_before && std::equal(before.begin(), before.end(), ids.begin());
        const auto start    = begins ? n_before : 0;
        const bool ends     = n - start >= n_after && std::equal(after.begin(), after.end(), ids.end() - n_after);
        Ids        result   = before;
        result.insert(result.end(), ids.begin() + start, ids.end() - (ends ? n_after : 0));
        result.insert(result.end(), after.begin(), after.end());
        return result;
    }
};

// Texts, shared by the threads that tokenize them.
class Texts {
  public:
    Texts(const Model & model, const pyg_texts & given, Around around)
        : model_(model), given_(given), around_(std::move(around)), ids_(static_cast<size_t>(given.n_texts)) {}

    // Tokenize texts until none is left or a thread has failed. Any thread may call it.
    void work() {
        pyg_error        error;
        const pyg_status status = pyg::guard(&error, [this] {
            for (int32_t first; !failed_ && (first = next_.fetch_add(TEXTS_AT_ONCE)) < given_.n_texts;) {
                for (int32_t i = first; i < std::min(first + TEXTS_AT_ONCE, given_.n_texts); i++) {
                    tokenize(i);
                }
            }
        });
        if (status != PYG_OK && !failed_.exchange(true)) {
            error_ = error;
        }
    }

    // Throws the failure of the first thread that failed.
    std::vector<Ids> take() {
        if (failed_) {
            throw pyg::Failure{static_cast<pyg_code>(error_.code), error_.message, error_.required_bytes,
                               error_.available_bytes};
        }
        return std::move(ids_);
    }

  private:
    void tokenize(int32_t i) {
        const int64_t start          = i ? given_.ends[i - 1] : 0;
        const auto    size           = static_cast<size_t>(given_.ends[i] - start);
        ids_[static_cast<size_t>(i)] = around_(pyg::tokenize(model_, given_.bytes + start, size, given_.parse_special));
    }

    const Model &        model_;
    const pyg_texts &    given_;
    const Around         around_;
    std::vector<Ids>     ids_;
    std::atomic<int32_t> next_{0};
    std::atomic<bool>    failed_{false};
    pyg_error            error_{};  // written by the thread that sets failed_, read after all have ended
};

void require_texts(const pyg_texts & texts) {
    int64_t end = 0;
    for (int32_t i = 0; i < texts.n_texts; i++) {
        if (texts.ends[i] < end) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the end of text %d is before its beginning", i);
        }
        end = texts.ends[i];
    }
}

// Run on this thread and on others that the amount of text is worth, as far as they can be started.
void on_threads(Texts & texts, int64_t n_bytes) {
    const int64_t            n_threads = std::min<int64_t>(pyg_cpu_count(), 1 + n_bytes / BYTES_PER_THREAD);
    std::vector<std::thread> others;
    try {
        const pyg::platform::SignalsBlocked signals_go_to_the_callers_threads;
        others.reserve(static_cast<size_t>(n_threads));
        while (static_cast<int64_t>(others.size()) < n_threads - 1) {
            others.emplace_back([&texts] { texts.work(); });
        }
    } catch (const std::exception &) {  // fewer threads take longer
    }
    texts.work();
    for (std::thread & other : others) {
        other.join();
    }
}

int32_t * joined(const std::vector<Ids> & texts, int32_t * lengths, int64_t * n_ids) {
    *n_ids = 0;
    for (size_t i = 0; i < texts.size(); i++) {
        lengths[i] = static_cast<int32_t>(texts[i].size());
        *n_ids += lengths[i];
    }
    auto * const ids = static_cast<int32_t *>(std::malloc(static_cast<size_t>(*n_ids + 1) * sizeof(int32_t)));
    if (!ids) {
        throw std::bad_alloc();
    }
    int32_t * end = ids;
    for (const Ids & text : texts) {
        end = std::copy(text.begin(), text.end(), end);
    }
    return ids;
}

}  // namespace

pyg_status pyg_vocab_tokenize_batch(pyg_model * model, const pyg_texts * texts, int32_t * lengths, char ** ids,
                                    int64_t * n_ids, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_with_vocabulary(model);
        require_texts(*texts);
        Texts batch(*shared, *texts,
                    {{texts->before, texts->before + texts->n_before}, {texts->after, texts->after + texts->n_after}});
        on_threads(batch, texts->n_texts ? texts->ends[texts->n_texts - 1] : 0);
        *ids = reinterpret_cast<char *>(joined(batch.take(), lengths, n_ids));
    });
}
