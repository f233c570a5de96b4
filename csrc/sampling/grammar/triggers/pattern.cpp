#include "sampling/grammar/triggers/pattern.hpp"

#include <algorithm>
#include <cctype>

namespace {

using pyg::TriggerProgram;
using pyg::TriggerStep;

constexpr size_t NOWHERE = std::string::npos;

bool is_word_at(const std::string & text, size_t at) {
    const auto byte = at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    return byte < 128 && (std::isalnum(byte) || byte == '_');
}

bool is_word_edge(const std::string & text, size_t at) {
    return (at > 0 && is_word_at(text, at - 1)) != is_word_at(text, at);
}

// Where groups begin and end, and the match itself, as group 0.
using Places = std::vector<size_t>;

// All ways to match a text, followed at once: the steps at which a byte is awaited, the preferred first.
class Ways {
  public:
    Ways(const TriggerProgram & program, const std::string & text)
        : program_(program), text_(text), visited_(program.steps.size(), NOWHERE) {}

    // Begins at the program's step `first`, and at `at` in the text; `reach` bytes from there are looked at.
    bool match_here(uint32_t first, size_t at, size_t reach) {
        const size_t end = at + std::min(reach, text_.size() - at);
        enter(first, at, Places(n_places(), NOWHERE));
        for (size_t i = at; i < end && !matched_ && !ways_.empty(); i++) {
            advance(i);
        }
        return matched_;
    }

    // The first match that begins anywhere.
    bool search(const pyg::ByteSet & first, bool begins_anyhow) {
        for (size_t at = 0; at <= text_.size(); at++) {
            const bool only_began = at > 0 && program_.steps[0].kind == TriggerStep::TEXT_BEGIN;
            const bool may_begin  = begins_anyhow || (at < text_.size() && first[byte(at)]);
            if (!matched_ && may_begin && !only_began) {
                Places places(n_places(), NOWHERE);
                places[0] = at;
                enter(0, at, std::move(places));
            }
            if (at == text_.size() || ((matched_ || only_began) && ways_.empty())) {
                break;
            }
            advance(at);
        }
        return matched_;
    }

    const Places & places() const { return match_; }

  private:
    struct Way {
        uint32_t step;
        Places   places;
    };

    size_t        n_places() const { return 2 * (program_.n_groups + 1); }
    unsigned char byte(size_t at) const { return static_cast<unsigned char>(text_[at]); }

    // Takes a byte. A match makes the ways after it worth nothing: they were preferred less.
    void advance(size_t at) {
        std::vector<Way> before;
        before.swap(ways_);
        for (Way & way : before) {
            const TriggerStep & step = program_.steps[way.step];
            if (step.bytes[byte(at)] && enter(step.next, at + 1, std::move(way.places))) {
                return;
            }
        }
    }

    // Follows what needs no byte from a step on, with a stack of our own. True: a match.
    bool enter(uint32_t first, size_t at, Places first_places) {
        std::vector<Way> pending;
        pending.push_back({first, std::move(first_places)});
        while (!pending.empty()) {
            Way way = std::move(pending.back());
            pending.pop_back();
            if (visited_[way.step] == at) {
                continue;
            }
            visited_[way.step]       = at;
            const TriggerStep & step = program_.steps[way.step];
            switch (step.kind) {
            case TriggerStep::BYTE:
                ways_.push_back(std::move(way));
                continue;
            case TriggerStep::MATCH:
                matched_ = true;
                match_   = std::move(way.places);
                return true;
            case TriggerStep::SPLIT:
                pending.push_back({step.other, way.places});
                break;
            case TriggerStep::SAVE:
                way.places[step.slot] = at;
                break;
            case TriggerStep::JUMP:
                break;
            default:
                if (!holds(step, at)) {
                    continue;
                }
            }
            pending.push_back({step.next, std::move(way.places)});
        }
        return false;
    }

    bool holds(const TriggerStep & step, size_t at) const {
        switch (step.kind) {
        case TriggerStep::TEXT_BEGIN:
            return at == 0;
        case TriggerStep::TEXT_END:
            return at == text_.size();
        case TriggerStep::WORD_EDGE:
            return is_word_edge(text_, at);
        case TriggerStep::NO_WORD_EDGE:
            return !is_word_edge(text_, at);
        case TriggerStep::AHEAD:
            return Ways(program_, text_).match_here(step.other, at, step.reach);
        default:
            return !Ways(program_, text_).match_here(step.other, at, step.reach);
        }
    }

    const TriggerProgram & program_;
    const std::string &    text_;
    std::vector<size_t>    visited_;  // for each step where in the text it was last taken
    std::vector<Way>       ways_;
    Places                 match_;
    bool                   matched_ = false;
};

// The bytes with which a match may begin; false if one may begin without any, or where no byte decides.
bool first_bytes(const TriggerProgram & program, pyg::ByteSet & bytes) {
    std::vector<bool>     seen(program.steps.size());
    std::vector<uint32_t> pending = {0};
    while (!pending.empty()) {
        const uint32_t at = pending.back();
        pending.pop_back();
        if (seen[at]) {
            continue;
        }
        seen[at]                 = true;
        const TriggerStep & step = program.steps[at];
        switch (step.kind) {
        case TriggerStep::BYTE:
            bytes |= step.bytes;
            break;
        case TriggerStep::SPLIT:
            pending.push_back(step.other);
            pending.push_back(step.next);
            break;
        case TriggerStep::JUMP:
        case TriggerStep::SAVE:
            pending.push_back(step.next);
            break;
        default:
            return false;
        }
    }
    return true;
}

}  // namespace

namespace pyg {

TriggerPattern::TriggerPattern(const std::string & pattern) : program_(trigger_program(pattern)) {
    begins_anyhow_ = !first_bytes(program_, first_);
}

size_t TriggerPattern::find(const std::string & text) const {
    Ways ways(program_, text);
    if (!ways.search(first_, begins_anyhow_)) {
        return std::string::npos;
    }
    const auto & places = ways.places();
    for (size_t i = 2; i < places.size(); i += 2) {
        if (places[i] != NOWHERE && places[i + 1] != NOWHERE && places[i + 1] > places[i]) {
            return places[i];
        }
    }
    return places[0];
}

}  // namespace pyg
