// Decimal numbers of any length.
#pragma once

#include <cstdint>
#include <string>

namespace pyg {

// digits * 10^exponent. Digits have zeros neither first nor last; zero has none, and exponent 0.
struct Decimal {
    bool        negative = false;
    std::string digits;
    int64_t     exponent = 0;  // exponents beyond +-10^17 are cut off there

    bool is_zero() const { return digits.empty(); }
};

// Of a JSON number; PYG_ERR_GRAMMAR for other texts.
Decimal parse_decimal(const std::string & number);

// -1, 0, 1
int compare_magnitudes(const Decimal & a, const Decimal & b);

// The magnitude without an exponent: "12" and "5" for 12.5, "0" and "" for 0.
struct PlainDecimal {
    std::string integer;   // without leading zeros, but not empty
    std::string fraction;  // without trailing zeros
};

// PYG_ERR_GRAMMAR if the exponent makes thousands of digits of it.
PlainDecimal without_exponent(const std::string & number);

}  // namespace pyg
