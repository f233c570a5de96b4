// Automata of spellings without a sign and an exponent, (0|[1-9][0-9]*)(\.[0-9]+)?, by their value.
#pragma once

#include "regex/languages.hpp"
#include "regex/numbers/decimal.hpp"

namespace pyg {

// Steps of the spelling, which both automata follow.
enum class NumberPhase : uint8_t {
    START,
    ZERO,      // "0"
    INTEGER,   // a digit from 1 to 9, and more digits
    POINT,     // just after the point
    FRACTION,  // digits after it
};

// False where the spelling does not allow this character.
bool            next_phase(NumberPhase phase, char c, NumberPhase & after);
bool            is_whole_number(NumberPhase phase);
const CharSet & number_alphabet();

enum class Comparison : uint8_t { AT_LEAST, ABOVE, AT_MOST, BELOW };

// Numbers of which the value compares so with a bound. Nothing is below 0: not to be asked for.
std::shared_ptr<const CharAutomaton> comparison_automaton(Comparison comparison, PlainDecimal bound);

// Multiples of divisor * 10^exponent.
std::shared_ptr<const CharAutomaton> multiples_automaton(uint64_t divisor, int64_t exponent);

constexpr uint64_t MOST_DIVISOR = uint64_t{1} << 32;

}  // namespace pyg
