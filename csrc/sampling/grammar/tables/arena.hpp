// Memory for many small arrays that are freed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace pyg {

// Arrays of T, which stay where they are until the arena is destroyed. Their content is undefined at first.
template <class T>
class Arena {
  public:
    T * allocate(size_t n) {
        if (n > n_left_) {
            const size_t n_chunk = std::max(n, next_chunk_);
            chunks_.push_back(std::unique_ptr<T[]>(new T[n_chunk]));
            next_       = chunks_.back().get();
            n_left_     = n_chunk;
            next_chunk_ = std::min(2 * next_chunk_, LARGEST_CHUNK);
        }
        T * const result = next_;
        next_ += n;
        n_left_ -= n;
        return result;
    }

  private:
    static constexpr size_t LARGEST_CHUNK = (64 << 10) / sizeof(T);  // the heap keeps chunks of this size for reuse

    std::vector<std::unique_ptr<T[]>> chunks_;
    T *                               next_       = nullptr;
    size_t                            n_left_     = 0;
    size_t                            next_chunk_ = LARGEST_CHUNK / 16;
};

}  // namespace pyg
