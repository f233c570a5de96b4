// Languages of JSON numbers.
#include "regex/numbers/numbers.hpp"

#include "boundary/guard.hpp"
#include "regex/numbers/number_automata.hpp"

namespace pyg {

namespace {

Language digits(Languages & languages, uint32_t least) {
    return languages.repeat(languages.chars(CharSet::of({{'0', '9'}})), least, UNBOUNDED);
}

Language optional_of(Languages & languages, Language language) { return languages.repeat(language, 0, 1); }

// 0 or digits without a leading zero.
Language naturals(Languages & languages) {
    return languages.any_of(
        {languages.text("0"), languages.concat(languages.chars(CharSet::of({{'1', '9'}})), digits(languages, 0))});
}

Language with_optional_sign(Languages & languages, Language magnitudes) {
    return languages.concat(optional_of(languages, languages.text("-")), magnitudes);
}

Language negative(Languages & languages, Language magnitudes) {
    return languages.concat(languages.text("-"), magnitudes);
}

// Without a sign and an exponent.
Language magnitudes(Languages & languages) {
    const Language fraction = languages.concat(languages.text("."), digits(languages, 1));
    return languages.concat(naturals(languages), optional_of(languages, fraction));
}

Language zeros(Languages & languages) {
    const Language fraction =
        languages.concat(languages.text("."), languages.repeat(languages.text("0"), 1, UNBOUNDED));
    return languages.concat(languages.text("0"), optional_of(languages, fraction));
}

Language compared(Languages & languages, Comparison comparison, const std::string & number) {
    return languages.automaton(comparison_automaton(comparison, without_exponent(number)));
}

// Numbers from a bound on in its direction, away from 0 if they have its sign. `signed_same`: puts the sign of that
// direction before magnitudes; `signed_other`: the other.
template <class Same, class Other>
Language beyond(Languages & languages, const std::string & number, bool strictly, bool against, Same && signed_same,
                Other && signed_other) {
    const bool is_zero = parse_decimal(number).is_zero();
    if (is_zero) {
        const Language same = compared(languages, Comparison::ABOVE, "0");
        return strictly ? signed_same(same)
                        : languages.any_of({signed_same(same), with_optional_sign(languages, zeros(languages))});
    }
    if (!against) {
        return signed_same(compared(languages, strictly ? Comparison::ABOVE : Comparison::AT_LEAST, number));
    }
    const Language nearer = compared(languages, strictly ? Comparison::BELOW : Comparison::AT_MOST, number);
    return languages.any_of({signed_same(magnitudes(languages)), signed_other(nearer)});
}

}  // namespace

Language json_integers(Languages & languages, bool with_fraction) {
    const Language integers = with_optional_sign(languages, naturals(languages));
    const Language fraction =
        languages.concat(languages.text("."), languages.repeat(languages.text("0"), 1, UNBOUNDED));
    return with_fraction ? languages.concat(integers, optional_of(languages, fraction)) : integers;
}

Language json_numbers(Languages & languages) {
    const Language sign     = languages.chars(CharSet::of({{'+', '+'}, {'-', '-'}}));
    const Language e        = languages.chars(CharSet::of({{'E', 'E'}, {'e', 'e'}}));
    const Language exponent = languages.concat(e, languages.concat(optional_of(languages, sign), digits(languages, 1)));
    return languages.concat(with_optional_sign(languages, magnitudes(languages)), optional_of(languages, exponent));
}

Language numbers_from(Languages & languages, const std::string & number, bool above) {
    return beyond(
        languages, number, above, parse_decimal(number).negative, [](Language same) { return same; },
        [&](Language other) { return negative(languages, other); });
}

Language numbers_to(Languages & languages, const std::string & number, bool below) {
    return beyond(
        languages, number, below, !parse_decimal(number).negative,
        [&](Language same) { return negative(languages, same); }, [](Language other) { return other; });
}

Language multiples_of(Languages & languages, const std::string & number) {
    const Decimal divisor = parse_decimal(number);
    if (divisor.is_zero() || divisor.negative) {
        throw fail(PYG_ERR_GRAMMAR, "multiples of %.40s: the number must be positive", number.c_str());
    }
    without_exponent(number);  // refuses exponents that are too large
    uint64_t factor = 0;
    for (const char digit : divisor.digits) {
        factor = factor * 10 + static_cast<uint64_t>(digit - '0');
        if (factor >= MOST_DIVISOR) {
            throw fail(PYG_ERR_GRAMMAR, "multiples of %.40s: the number has too many digits; use at most 9",
                       number.c_str());
        }
    }
    return with_optional_sign(languages, languages.automaton(multiples_automaton(factor, divisor.exponent)));
}

Language numbers_equal_to(Languages & languages, const std::string & number) {
    const Decimal value = parse_decimal(number);
    if (value.is_zero()) {
        return with_optional_sign(languages, zeros(languages));
    }
    const PlainDecimal plain    = without_exponent(number);
    const Language     more     = languages.repeat(languages.text("0"), plain.fraction.empty() ? 1 : 0, UNBOUNDED);
    const Language     fraction = languages.concat(languages.text("." + plain.fraction), more);
    const Language     whole = languages.concat(languages.text((value.negative ? "-" : "") + plain.integer),
                                                plain.fraction.empty() ? optional_of(languages, fraction) : fraction);
    return whole;
}

}  // namespace pyg
