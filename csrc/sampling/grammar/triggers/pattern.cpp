#include "sampling/grammar/triggers/pattern.hpp"

#include <algorithm>
#include <cctype>

namespace {

using pyg::RegexInstruction;
using pyg::RegexProgram;

constexpr size_t UNSET = std::string::npos;

bool is_word_at(const std::string & text, size_t at) {
    const auto byte = at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    return byte < 128 && (std::isalnum(byte) || byte == '_');
}

bool is_word_boundary(const std::string & text, size_t at) {
    return (at > 0 && is_word_at(text, at - 1)) != is_word_at(text, at);
}

// Start and end of each group; group 0 is the whole match.
using Captures = std::vector<size_t>;

// Pike VM: runs all threads of the program in lockstep over the text, in order of preference, so that the time is
// linear in the length of the text.
class PikeVm {
  public:
    PikeVm(const RegexProgram & program, const std::string & text)
        : program_(program), text_(text), visited_(program.instructions.size(), UNSET) {}

    // Match from instruction `first` at offset `at`, looking at up to `max_bytes` bytes.
    bool match_at(uint32_t first, size_t at, size_t max_bytes) {
        const size_t end = at + std::min(max_bytes, text_.size() - at);
        enter(first, at, Captures(n_captures(), UNSET));
        for (size_t i = at; i < end && !matched_ && !threads_.empty(); i++) {
            advance(i);
        }
        return matched_;
    }

    // Find the first match.
    bool search(const pyg::ByteSet & first, bool may_start_anywhere) {
        for (size_t at = 0; at <= text_.size(); at++) {
            const bool only_began = at > 0 && program_.instructions[0].kind == RegexInstruction::TEXT_BEGIN;
            const bool may_begin  = may_start_anywhere || (at < text_.size() && first[byte(at)]);
            if (!matched_ && may_begin && !only_began) {
                Captures captures(n_captures(), UNSET);
                captures[0] = at;
                enter(0, at, std::move(captures));
            }
            if (at == text_.size() || ((matched_ || only_began) && threads_.empty())) {
                break;
            }
            advance(at);
        }
        return matched_;
    }

    const Captures & captures() const { return match_; }

  private:
    struct VmThread {
        uint32_t instruction;
        Captures captures;
    };

    size_t        n_captures() const { return 2 * (program_.n_groups + 1); }
    unsigned char byte(size_t at) const { return static_cast<unsigned char>(text_[at]); }

    // Advance all threads by one byte. A match ends the threads after it, which have lower preference.
    void advance(size_t at) {
        std::vector<VmThread> before;
        before.swap(threads_);
        for (VmThread & thread : before) {
            const RegexInstruction & instruction = program_.instructions[thread.instruction];
            if (instruction.bytes[byte(at)] && enter(instruction.next, at + 1, std::move(thread.captures))) {
                return;
            }
        }
    }

    // Add the threads that are reachable from an instruction without a byte. Return true for a match.
    bool enter(uint32_t first, size_t at, Captures first_captures) {
        std::vector<VmThread> pending;
        pending.push_back({first, std::move(first_captures)});
        while (!pending.empty()) {
            VmThread thread = std::move(pending.back());
            pending.pop_back();
            if (visited_[thread.instruction] == at) {
                continue;
            }
            visited_[thread.instruction]         = at;
            const RegexInstruction & instruction = program_.instructions[thread.instruction];
            switch (instruction.kind) {
            case RegexInstruction::BYTE:
                threads_.push_back(std::move(thread));
                continue;
            case RegexInstruction::MATCH:
                matched_ = true;
                match_   = std::move(thread.captures);
                return true;
            case RegexInstruction::SPLIT:
                pending.push_back({instruction.other, thread.captures});
                break;
            case RegexInstruction::SAVE:
                thread.captures[instruction.slot] = at;
                break;
            case RegexInstruction::JUMP:
                break;
            default:
                if (!holds(instruction, at)) {
                    continue;
                }
            }
            pending.push_back({instruction.next, std::move(thread.captures)});
        }
        return false;
    }

    bool holds(const RegexInstruction & instruction, size_t at) const {
        switch (instruction.kind) {
        case RegexInstruction::TEXT_BEGIN:
            return at == 0;
        case RegexInstruction::TEXT_END:
            return at == text_.size();
        case RegexInstruction::WORD_BOUNDARY:
            return is_word_boundary(text_, at);
        case RegexInstruction::NOT_WORD_BOUNDARY:
            return !is_word_boundary(text_, at);
        case RegexInstruction::LOOKAHEAD:
            return PikeVm(program_, text_).match_at(instruction.other, at, instruction.max_bytes);
        default:
            return !PikeVm(program_, text_).match_at(instruction.other, at, instruction.max_bytes);
        }
    }

    const RegexProgram &  program_;
    const std::string &   text_;
    std::vector<size_t>   visited_;  // by instruction: the offset at which it was last visited
    std::vector<VmThread> threads_;
    Captures              match_;
    bool                  matched_ = false;
};

// Compute the bytes a match may start with. Return false if a match may be empty or start with an assertion.
bool first_bytes(const RegexProgram & program, pyg::ByteSet & bytes) {
    std::vector<bool>     seen(program.instructions.size());
    std::vector<uint32_t> pending = {0};
    while (!pending.empty()) {
        const uint32_t at = pending.back();
        pending.pop_back();
        if (seen[at]) {
            continue;
        }
        seen[at]                             = true;
        const RegexInstruction & instruction = program.instructions[at];
        switch (instruction.kind) {
        case RegexInstruction::BYTE:
            bytes |= instruction.bytes;
            break;
        case RegexInstruction::SPLIT:
            pending.push_back(instruction.other);
            pending.push_back(instruction.next);
            break;
        case RegexInstruction::JUMP:
        case RegexInstruction::SAVE:
            pending.push_back(instruction.next);
            break;
        default:
            return false;
        }
    }
    return true;
}

}  // namespace

namespace pyg {

TriggerPattern::TriggerPattern(const std::string & pattern) : program_(compile_regex(pattern)) {
    may_start_anywhere_ = !first_bytes(program_, first_);
}

size_t TriggerPattern::find(const std::string & text) const {
    PikeVm vm(program_, text);
    if (!vm.search(first_, may_start_anywhere_)) {
        return std::string::npos;
    }
    const auto & captures = vm.captures();
    for (size_t i = 2; i < captures.size(); i += 2) {
        if (captures[i] != UNSET && captures[i + 1] != UNSET && captures[i + 1] > captures[i]) {
            return captures[i];
        }
    }
    return captures[0];
}

}  // namespace pyg
