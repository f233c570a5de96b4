// Automata of formats: leap seconds, and texts of limited octets.
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

// HH:MM:60[.digits](Z|+HH:MM|-HH:MM), where the local time is 23:59 later (earlier) by the offset. The offset follows
// from the hours and minutes.
class LeapSeconds final : public CharAutomaton {
  public:
    explicit LeapSeconds(bool next_day) : next_day_(next_day) {}

    State start() const override { return 0; }

    bool next(State state, uint32_t code_point, State & after) const override {
        const auto c    = static_cast<char>(code_point);
        Place      here = unpacked(state);
        switch (here.step) {
        case 0:  // hours
            here.local = static_cast<uint32_t>(c - '0') * 600;
            return c >= '0' && c <= '2' && go_to(1, here, after);
        case 1:
            here.local += static_cast<uint32_t>(c - '0') * 60;
            return c >= '0' && c <= '9' && here.local < 1440 && go_to(2, here, after);
        case 3:  // minutes
            here.local += static_cast<uint32_t>(c - '0') * 10;
            return c >= '0' && c <= '5' && go_to(4, here, after);
        case 4:
            here.local += static_cast<uint32_t>(c - '0');
            return c >= '0' && c <= '9' && has_offset(here.local) && go_to(5, here, after);
        case 2:
        case 5:
            return c == ':' && go_to(here.step + 1, here, after);
        case 6:
            return c == '6' && go_to(7, here, after);
        case 7:
            return c == '0' && go_to(AFTER_SECONDS, here, after);
        case AFTER_SECONDS:
            return c == '.' ? go_to(AFTER_POINT, here, after) : sign(c, here, after);
        case AFTER_POINT:
            return c >= '0' && c <= '9' && go_to(IN_FRACTION, here, after);
        case IN_FRACTION:
            return c >= '0' && c <= '9' ? go_to(IN_FRACTION, here, after) : sign(c, here, after);
        case END:
            return false;
        default:
            return c == digit_of_offset(here) && go_to(here.step + 1, here, after);
        }
    }

    bool is_accepting(State state) const override { return unpacked(state).step == END; }

    uint32_t shortest(State state) const override {
        const uint32_t step = unpacked(state).step;
        return step >= OFFSET ? END - step : step >= AFTER_SECONDS ? 1 : AFTER_SECONDS - step + 1;
    }

    const CharSet & alphabet() const override {
        static const CharSet alphabet = CharSet::of({{'+', '+'}, {'-', '.'}, {'0', ':'}, {'Z', 'Z'}, {'z', 'z'}});
        return alphabet;
    }

  private:
    static constexpr uint32_t AFTER_SECONDS = 8, AFTER_POINT = 9, IN_FRACTION = 10;
    static constexpr uint32_t OFFSET = 11, END = 16;  // five characters between them
    static constexpr uint32_t LAST_MINUTE = 1439;

    struct Place {
        uint32_t step;
        uint32_t local;   // minutes of the day
        uint32_t offset;  // minutes
    };

    static Place unpacked(State state) {
        return {static_cast<uint32_t>(state & 0xFF), static_cast<uint32_t>(state >> 8 & 0xFFF),
                static_cast<uint32_t>(state >> 20)};
    }

    static bool go_to(uint32_t step, const Place & place, State & after) {
        after = State{place.offset} << 20 | place.local << 8 | step;
        return true;
    }

    bool has_offset(uint32_t local) const { return !next_day_ || local < LAST_MINUTE; }

    bool sign(char c, Place here, State & after) const {
        const uint32_t local = here.local;
        here.local           = 0;
        if (c == '+') {
            here.offset = next_day_ ? local + 1 : 0;
            return (next_day_ || local == LAST_MINUTE) && go_to(OFFSET, here, after);
        }
        if (c == '-') {
            here.offset = LAST_MINUTE - local;
            return !next_day_ && go_to(OFFSET, here, after);
        }
        return (c == 'Z' || c == 'z') && !next_day_ && local == LAST_MINUTE && go_to(END, here, after);
    }

    static char digit_of_offset(const Place & here) {
        const uint32_t hours = here.offset / 60, minutes = here.offset % 60;
        const uint32_t digits[] = {hours / 10, hours % 10, ':' - '0', minutes / 10, minutes % 10};
        return static_cast<char>('0' + digits[here.step - OFFSET]);
    }

    bool next_day_;
};

class Octets final : public CharAutomaton {
  public:
    explicit Octets(uint32_t most) : most_(most) {}

    State start() const override { return 0; }

    bool next(State state, uint32_t code_point, State & after) const override {
        after = state + (code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4);
        return after <= most_;
    }

    bool is_accepting(State) const override { return true; }

    uint32_t last_alike(State, uint32_t code_point) const override {
        return code_point < 0x80 ? 0x7F : code_point < 0x800 ? 0x7FF : code_point < 0x10000 ? 0xFFFF : LAST_CODE_POINT;
    }

    const CharSet & alphabet() const override {
        static const CharSet alphabet = CharSet::all();
        return alphabet;
    }

  private:
    uint32_t most_;
};

}  // namespace

Language leap_seconds(Languages & languages, bool next_day) {
    return languages.automaton(std::make_shared<LeapSeconds>(next_day));
}

Language at_most_octets(Languages & languages, uint32_t most) {
    return languages.automaton(std::make_shared<Octets>(most));
}

}  // namespace pyg
