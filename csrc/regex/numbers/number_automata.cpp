// Automata of spellings of numbers by their value.
#include "regex/numbers/number_automata.hpp"

namespace pyg {

bool next_phase(NumberPhase phase, char c, NumberPhase & after) {
    const bool is_point = c == '.';
    switch (phase) {
    case NumberPhase::START:
        after = c == '0' ? NumberPhase::ZERO : NumberPhase::INTEGER;
        return !is_point;
    case NumberPhase::ZERO:
        after = NumberPhase::POINT;
        return is_point;
    case NumberPhase::INTEGER:
        after = is_point ? NumberPhase::POINT : NumberPhase::INTEGER;
        return true;
    default:
        after = NumberPhase::FRACTION;
        return !is_point;
    }
}

bool is_whole_number(NumberPhase phase) { return phase != NumberPhase::START && phase != NumberPhase::POINT; }

const CharSet & number_alphabet() {
    static const CharSet alphabet = CharSet::of({{'.', '.'}, {'0', '9'}});
    return alphabet;
}

namespace {

// How digits so far compare with as many of the bound.
enum class Relation : uint8_t { EQUAL, LESS, GREATER };

class ComparisonAutomaton final : public CharAutomaton {
  public:
    ComparisonAutomaton(Comparison comparison, PlainDecimal bound)
        : comparison_(comparison), bound_(std::move(bound)) {}

    State start() const override { return packed({}); }

    bool next(State state, uint32_t code_point, State & after) const override {
        const auto c    = static_cast<char>(code_point);
        Place      here = unpacked(state);
        if (!next_phase(here.phase, c, here.phase)) {
            return false;
        }
        if (here.phase == NumberPhase::POINT) {
            here.relation = relation_of_integer(here);
            here.position = 0;
        } else if (here.phase == NumberPhase::FRACTION) {
            read(here, c, bound_.fraction);
        } else {
            read(here, c, bound_.integer);
        }
        after = packed(here);
        return is_possible(here);
    }

    bool is_accepting(State state) const override {
        const Place here = unpacked(state);
        return is_whole_number(here.phase) && holds(relation_of_value(here));
    }

    const CharSet & alphabet() const override { return number_alphabet(); }

  private:
    struct Place {
        NumberPhase phase    = NumberPhase::START;
        Relation    relation = Relation::EQUAL;
        uint32_t    position = 0;  // digits of the integer or of the fraction
    };

    static State packed(const Place & place) {
        return State{place.position} << 8 | static_cast<uint64_t>(place.phase) << 2 |
               static_cast<uint64_t>(place.relation);
    }

    static Place unpacked(State state) {
        return {static_cast<NumberPhase>(state >> 2 & 0x3F), static_cast<Relation>(state & 3),
                static_cast<uint32_t>(state >> 8)};
    }

    // A fraction is decided by its first different digit; an integer also by the number of its digits.
    void read(Place & place, char c, const std::string & digits) const {
        const bool in_fraction = place.phase == NumberPhase::FRACTION;
        if (in_fraction && place.relation != Relation::EQUAL) {
            return;
        }
        if (place.position >= digits.size()) {
            const bool greater = !in_fraction || c != '0';
            place.relation     = greater ? Relation::GREATER : Relation::EQUAL;
            place.position     = static_cast<uint32_t>(digits.size()) + (in_fraction ? 0 : 1);
            return;
        }
        const char digit = digits[place.position++];
        if (place.relation == Relation::EQUAL && c != digit) {
            place.relation = c < digit ? Relation::LESS : Relation::GREATER;
            place.position = in_fraction ? 0 : place.position;
        }
    }

    Relation relation_of_integer(const Place & place) const {
        return place.position < bound_.integer.size() ? Relation::LESS : place.relation;
    }

    // Of the number that ends here.
    Relation relation_of_value(const Place & place) const {
        const bool     in_fraction = place.phase == NumberPhase::FRACTION || place.phase == NumberPhase::POINT;
        const Relation so_far      = in_fraction ? place.relation : relation_of_integer(place);
        const uint32_t n_compared  = in_fraction ? place.position : 0;
        return so_far == Relation::EQUAL && n_compared < bound_.fraction.size() ? Relation::LESS : so_far;
    }

    bool holds(Relation relation) const {
        switch (comparison_) {
        case Comparison::AT_LEAST:
            return relation != Relation::LESS;
        case Comparison::ABOVE:
            return relation == Relation::GREATER;
        case Comparison::AT_MOST:
            return relation != Relation::GREATER;
        default:
            return relation == Relation::LESS;
        }
    }

    // Can digits still be added so that it holds? Digits make a number larger; only zeros of a fraction do not.
    bool is_possible(const Place & place) const {
        if (holds(relation_of_value(place))) {
            return true;
        }
        if (comparison_ == Comparison::AT_MOST || comparison_ == Comparison::BELOW) {
            return false;
        }
        if (place.phase == NumberPhase::INTEGER) {
            return true;
        }
        const bool in_fraction = place.phase == NumberPhase::FRACTION || place.phase == NumberPhase::POINT;
        return (in_fraction ? place.relation : relation_of_integer(place)) == Relation::EQUAL;
    }

    Comparison   comparison_;
    PlainDecimal bound_;
};

class MultiplesAutomaton final : public CharAutomaton {
  public:
    MultiplesAutomaton(uint64_t divisor, int64_t exponent)
        : divisor_(divisor), n_zeros_(exponent > 0 ? static_cast<uint32_t>(exponent) : 0),
          n_decimals_(exponent < 0 ? static_cast<uint32_t>(-exponent) : 0) {}

    State start() const override { return packed({}); }

    bool next(State state, uint32_t code_point, State & after) const override {
        const auto c    = static_cast<char>(code_point);
        Place      here = unpacked(state);
        if (!next_phase(here.phase, c, here.phase)) {
            return false;
        }
        if (here.phase == NumberPhase::POINT) {
            if (!has_its_zeros(here)) {
                return false;
            }
            here.position = 0;
        } else if (here.phase == NumberPhase::FRACTION) {
            if (here.position == n_decimals_) {
                after = packed(here);
                return c == '0' && here.remainder == 0;
            }
            here.position++;
            append(here, c);
        } else {
            read_of_integer(here, c);
        }
        after = packed(here);
        return here.phase == NumberPhase::INTEGER || here.phase == NumberPhase::ZERO || is_possible(here);
    }

    bool is_accepting(State state) const override {
        const Place here        = unpacked(state);
        const bool  in_fraction = here.phase == NumberPhase::FRACTION;
        if (!is_whole_number(here.phase) || (!in_fraction && !has_its_zeros(here))) {
            return false;
        }
        uint64_t remainder = here.remainder;  // with zeros for the decimals that are left out
        for (uint32_t i = in_fraction ? here.position : 0; i < n_decimals_ && remainder != 0; i++) {
            remainder = remainder * 10 % divisor_;
        }
        return remainder == 0;
    }

    const CharSet & alphabet() const override { return number_alphabet(); }

  private:
    struct Place {
        NumberPhase phase     = NumberPhase::START;
        uint64_t    remainder = 0;  // of the digits, without the zeros at the end that are counted
        uint32_t    position  = 0;  // zeros at the end of the integer, up to n_zeros_, or decimals
    };

    static State packed(const Place & place) {
        return place.remainder << 32 | State{place.position} << 3 | static_cast<uint64_t>(place.phase);
    }

    static Place unpacked(State state) {
        return {static_cast<NumberPhase>(state & 7), state >> 32, static_cast<uint32_t>(state >> 3 & 0x1FFF'FFFF)};
    }

    void append(Place & place, char c) const {
        place.remainder = (place.remainder * 10 + static_cast<uint64_t>(c - '0')) % divisor_;
    }

    // Zeros at the end are counted before they are digits: so many must be there.
    void read_of_integer(Place & place, char c) const {
        if (place.phase == NumberPhase::ZERO) {
            place.position = n_zeros_;
        } else if (c == '0' && place.position < n_zeros_) {
            place.position++;
        } else if (c == '0') {
            append(place, '0');
        } else {
            for (; place.position > 0; place.position--) {
                append(place, '0');
            }
            append(place, c);
        }
    }

    bool has_its_zeros(const Place & place) const { return place.position == n_zeros_; }

    // After the point: some decimals make a multiple of it.
    bool is_possible(const Place & place) const {
        uint64_t remainder = place.remainder, n_numbers = 1;
        for (uint32_t i = place.position; i < n_decimals_; i++) {
            remainder = remainder * 10 % divisor_;
            n_numbers *= 10;
            if (n_numbers >= divisor_) {
                return true;
            }
        }
        return (divisor_ - remainder) % divisor_ < n_numbers;
    }

    uint64_t divisor_;
    uint32_t n_zeros_, n_decimals_;
};

}  // namespace

std::shared_ptr<const CharAutomaton> comparison_automaton(Comparison comparison, PlainDecimal bound) {
    return std::make_shared<ComparisonAutomaton>(comparison, std::move(bound));
}

std::shared_ptr<const CharAutomaton> multiples_automaton(uint64_t divisor, int64_t exponent) {
    return std::make_shared<MultiplesAutomaton>(divisor, exponent);
}

}  // namespace pyg
