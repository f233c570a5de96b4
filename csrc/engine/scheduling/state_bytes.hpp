// Bytes of a saved state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace pyg {

// Unlike those of a vector, the bytes are not initialised: states are large, and written at once.
class StateBytes {
  public:
    StateBytes() = default;
    explicit StateBytes(size_t size) : data_(new uint8_t[size]), size_(size) {}
    StateBytes(StateBytes && other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
    StateBytes & operator=(StateBytes && other) noexcept {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    uint8_t *       data() { return data_.get(); }
    const uint8_t * data() const { return data_.get(); }
    size_t          size() const { return size_; }
    bool            empty() const { return size_ == 0; }

  private:
    std::unique_ptr<uint8_t[]> data_;
    size_t                     size_ = 0;
};

}  // namespace pyg
