// Escapes in JSON strings, decoded character by character.
#pragma once

#include <cstdint>

namespace pyg {

// The part of an escape read so far, packed into a number; NONE between characters.
class JsonEscape {
  public:
    enum Kind : uint32_t {
        NONE,
        BACKSLASH,      // after it
        HEX,            // after \u and `n_digits` digits
        LOW_BACKSLASH,  // after the first half of a surrogate pair: the backslash of the second
        LOW_U,          // its u
        LOW_HEX,        // its digits
    };

    JsonEscape() = default;
    explicit JsonEscape(uint32_t packed)
        : kind(static_cast<Kind>(packed & 7)), n_digits(packed >> 3 & 3), value(packed >> 5 & 0xFFFF),
          high(packed >> 21 & 0x3FF) {}
    uint32_t packed() const { return kind | n_digits << 3 | value << 5 | high << 21; }

    // What one more character of the string's spelling is.
    enum Result { INVALID, CLOSES, INCOMPLETE, COMPLETE };

    // Read a character. COMPLETE: `code_point` is the decoded character, and the escape is NONE again. `tidy`:
    // printable ASCII characters have no escapes but those that JSON needs.
    Result read(uint32_t character, uint32_t & code_point, bool tidy);

    // Call any(low, high) for the ranges of characters that this can still become, until it returns true.
    template <class Any>
    bool may_become(bool tidy, Any && any) const {
        if (!tidy || kind == NONE) {
            return may_become_any(any);
        }
        return may_become_any([&](uint32_t low, uint32_t high) {
            for (const auto & [first, last] : TIDY) {
                const uint32_t from = low > first ? low : first;
                const uint32_t to   = high < last ? high : last;
                if (from <= to && any(from, to)) {
                    return true;
                }
            }
            return false;
        });
    }

    static bool needs_escape(uint32_t code_point) {
        return code_point < 0x20 || code_point == '"' || code_point == '\\';
    }

    Kind     kind     = NONE;
    uint32_t n_digits = 0;
    uint32_t value    = 0;  // of the digits
    uint32_t high     = 0;  // ten bits of the first half

  private:
    // Characters with tidy escapes.
    static constexpr uint32_t TIDY[][2] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x80, 0x10FFFF}};

    template <class Any>
    bool may_become_any(Any && any) const {
        switch (kind) {
        case NONE:
        case BACKSLASH:
            return any(0, 0x10FFFF);
        case HEX: {
            const uint32_t shift = 4 * (4 - n_digits);
            const uint32_t low   = value << shift;
            const uint32_t last  = low + (1u << shift) - 1;
            return (low < 0xD800 && any(low, last < 0xD800 ? last : 0xD7FF)) ||
                   (last > 0xDFFF && any(low > 0xDFFF ? low : 0xE000, last)) || meets_pairs(low, last, any);
        }
        case LOW_BACKSLASH:
        case LOW_U:
            return any(0x10000 + (high << 10), 0x10000 + (high << 10) + 0x3FF);
        case LOW_HEX: {
            const uint32_t shift = 4 * (4 - n_digits);
            const uint32_t low   = value << shift;
            const uint32_t last  = low + (1u << shift) - 1;
            const uint32_t from  = low > 0xDC00 ? low : 0xDC00;
            const uint32_t to    = last < 0xDFFF ? last : 0xDFFF;
            const uint32_t base  = 0x10000 + (high << 10);
            return from <= to && any(base + from - 0xDC00, base + to - 0xDC00);
        }
        }
        return false;
    }

    template <class Any>
    static bool meets_pairs(uint32_t low, uint32_t last, Any && any) {
        const uint32_t from = low > 0xD800 ? low : 0xD800;
        const uint32_t to   = last < 0xDBFF ? last : 0xDBFF;
        return from <= to && any(0x10000 + ((from - 0xD800) << 10), 0x10000 + ((to - 0xD800) << 10) + 0x3FF);
    }

    Result complete(uint32_t decoded, uint32_t & code_point);
    Result read_any(uint32_t character, uint32_t & code_point);
    Result read_digit(uint32_t character, uint32_t & code_point);
};

}  // namespace pyg
