// A hash of 64 bits that is the same on every machine: the identity of an adapter's content.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace pyg {

class ContentHash {
  public:
    void add(uint64_t word) {
        state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u;
        state_ ^= state_ >> 32;
    }

    void add(const void * data, size_t n_bytes) {
        const auto * bytes = static_cast<const uint8_t *>(data);
        for (; n_bytes >= sizeof(uint64_t); n_bytes -= sizeof(uint64_t), bytes += sizeof(uint64_t)) {
            uint64_t word;
            std::memcpy(&word, bytes, sizeof(word));
            add(word);
        }
        uint64_t rest = 0;
        std::memcpy(&rest, bytes, n_bytes);
        add(rest);
        add(static_cast<uint64_t>(n_bytes));
    }

    void add(const std::string & text) { add(text.data(), text.size()); }

    void add(float value) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        add(static_cast<uint64_t>(bits));
    }

    uint64_t value() const { return state_; }

  private:
    uint64_t state_ = 0x51A7E5C0FFEE1234u;
};

}  // namespace pyg
