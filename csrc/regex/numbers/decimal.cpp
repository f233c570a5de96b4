// Decimal numbers of any length.
#include "regex/numbers/decimal.hpp"

#include "boundary/guard.hpp"
#include "regex/numbers/numbers.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr int64_t MOST_EXPONENT = 100'000'000'000'000'000;
constexpr size_t  MOST_ZEROS    = 2'000;  // that an exponent adds

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Skip digits; false if there are none.
bool skip_digits(const std::string & text, size_t & i) {
    const size_t start = i;
    while (i < text.size() && is_digit(text[i])) {
        i++;
    }
    return i > start;
}

bool skip_char(const std::string & text, size_t & i, const char * chars) {
    if (i < text.size() && std::string(chars).find(text[i]) != std::string::npos) {
        i++;
        return true;
    }
    return false;
}

}  // namespace

bool is_json_number(const std::string & text) {
    size_t i = 0;
    skip_char(text, i, "-");
    if (!skip_char(text, i, "0") && !skip_digits(text, i)) {
        return false;
    }
    if (skip_char(text, i, ".") && !skip_digits(text, i)) {
        return false;
    }
    if (skip_char(text, i, "eE")) {
        skip_char(text, i, "+-");
        if (!skip_digits(text, i)) {
            return false;
        }
    }
    return i == text.size();
}

Decimal parse_decimal(const std::string & number) {
    if (!is_json_number(number)) {
        throw fail(PYG_ERR_GRAMMAR, "\"%.40s\" is not a number of JSON", number.c_str());
    }
    Decimal result;
    size_t  i       = 0;
    result.negative = skip_char(number, i, "-");
    for (bool in_fraction = false; i < number.size() && (is_digit(number[i]) || number[i] == '.'); i++) {
        if (number[i] == '.') {
            in_fraction = true;
        } else {
            result.digits += number[i];
            result.exponent -= in_fraction;
        }
    }
    if (i < number.size()) {
        const bool negative = number[i + 1] == '-';
        int64_t    exponent = 0;
        for (i++; i < number.size(); i++) {
            if (is_digit(number[i])) {
                exponent = std::min(exponent * 10 + (number[i] - '0'), MOST_EXPONENT);
            }
        }
        result.exponent += negative ? -exponent : exponent;
    }
    result.digits.erase(0, std::min(result.digits.find_first_not_of('0'), result.digits.size()));
    const size_t n_kept = result.digits.find_last_not_of('0') + 1;  // 0 if there are none
    result.exponent += static_cast<int64_t>(result.digits.size() - n_kept);
    result.digits.resize(n_kept);
    if (result.is_zero()) {
        result.exponent = 0;
    }
    return result;
}

int compare_magnitudes(const Decimal & a, const Decimal & b) {
    if (a.is_zero() || b.is_zero()) {
        return a.is_zero() ? b.is_zero() ? 0 : -1 : 1;
    }
    const int64_t a_order = a.exponent + static_cast<int64_t>(a.digits.size());
    const int64_t b_order = b.exponent + static_cast<int64_t>(b.digits.size());
    if (a_order != b_order) {
        return a_order < b_order ? -1 : 1;
    }
    const int order = a.digits.compare(b.digits);
    return order < 0 ? -1 : order > 0;
}

int compare_numbers(const std::string & a, const std::string & b) {
    const Decimal left = parse_decimal(a), right = parse_decimal(b);
    const bool    left_negative = left.negative && !left.is_zero(), right_negative = right.negative && !right.is_zero();
    if (left_negative != right_negative) {
        return left_negative ? -1 : 1;
    }
    const int order = compare_magnitudes(left, right);
    return left_negative ? -order : order;
}

bool is_integer(const std::string & number) { return parse_decimal(number).exponent >= 0; }

PlainDecimal without_exponent(const std::string & number) {
    const Decimal value = parse_decimal(number);
    const auto    n     = static_cast<int64_t>(value.digits.size());
    const auto    most  = static_cast<int64_t>(number.size() + MOST_ZEROS);
    if (value.exponent > most || -value.exponent > most) {
        throw fail(PYG_ERR_GRAMMAR,
                   "the number %.40s has too many digits without its exponent: at most %zu zeros may be "
                   "added",
                   number.c_str(), MOST_ZEROS);
    }
    PlainDecimal result{value.digits, ""};
    if (value.exponent >= 0) {
        result.integer.append(static_cast<size_t>(value.exponent), '0');
    } else if (n + value.exponent > 0) {
        result.fraction = value.digits.substr(static_cast<size_t>(n + value.exponent));
        result.integer.resize(static_cast<size_t>(n + value.exponent));
    } else {
        result.fraction = std::string(static_cast<size_t>(-value.exponent - n), '0') + value.digits;
        result.integer.clear();
    }
    if (result.integer.empty()) {
        result.integer = "0";
    }
    return result;
}

}  // namespace pyg
