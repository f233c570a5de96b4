#include "sampling/grammar/triggers/program.hpp"

#include "boundary/guard.hpp"
#include "sampling/grammar/triggers/syntax.hpp"

#include <algorithm>

namespace {

using pyg::fail;
using pyg::RegexInstruction;
using pyg::RegexNode;
using pyg::UNBOUNDED;

constexpr size_t   MAX_PROGRAM   = 4000;  // each may run for each byte of a text
constexpr uint32_t MAX_LOOKAHEAD = 1000;  // bytes of a lookahead, which may run at each byte of a text

// The most bytes that a node can match, up to UNBOUNDED.
uint32_t max_length(const RegexNode & node) {
    uint64_t n = 0;
    switch (node.kind) {
    case RegexNode::BYTES:
        return 1;
    case RegexNode::CHOICE:
        for (const RegexNode & atom : node.children) {
            n = std::max<uint64_t>(n, max_length(atom));
        }
        break;
    case RegexNode::SEQUENCE:
    case RegexNode::GROUP:
        for (const RegexNode & atom : node.children) {
            n += max_length(atom);
        }
        break;
    case RegexNode::REPEAT:
        n = max_length(node.children[0]);
        n = n && node.max_count == UNBOUNDED ? UNBOUNDED : n * node.max_count;
        break;
    case RegexNode::EMPTY:
    case RegexNode::ASSERTION:
    case RegexNode::LOOKAHEAD:
        break;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(n, UNBOUNDED));
}

class Compiler {
  public:
    explicit Compiler(const std::string & pattern) : pattern_(pattern) {}

    std::vector<RegexInstruction> compile(const RegexNode & root) {
        add(root);
        instruction(RegexInstruction::MATCH);
        return std::move(instructions_);
    }

  private:
    // Add an instruction, which continues with the one after it by default. Return its index.
    uint32_t instruction(RegexInstruction::Kind kind) {
        if (instructions_.size() == MAX_PROGRAM) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" is too long, or repeats too much",
                       pattern_.c_str());
        }
        RegexInstruction instruction{kind};
        instruction.next = here() + 1;
        instructions_.push_back(instruction);
        return here() - 1;
    }

    uint32_t here() const { return static_cast<uint32_t>(instructions_.size()); }

    void add(const RegexNode & node) {
        switch (node.kind) {
        case RegexNode::EMPTY:
            break;
        case RegexNode::BYTES:
            instructions_[instruction(RegexInstruction::BYTE)].bytes = node.bytes;
            break;
        case RegexNode::ASSERTION:
            instruction(node.assertion);
            break;
        case RegexNode::LOOKAHEAD:
            add_look(node);
            break;
        case RegexNode::GROUP:
            add_group(node);
            break;
        case RegexNode::SEQUENCE:
            add_all(node.children);
            break;
        case RegexNode::CHOICE:
            add_choice(node.children, 0);
            break;
        case RegexNode::REPEAT:
            add_repeated(node);
            break;
        }
    }

    void add_all(const std::vector<RegexNode> & children) {
        for (const RegexNode & atom : children) {
            add(atom);
        }
    }

    void add_group(const RegexNode & node) {
        if (node.group == 0) {
            add_all(node.children);
            return;
        }
        instructions_[instruction(RegexInstruction::SAVE)].slot = 2 * node.group;
        add_all(node.children);
        instructions_[instruction(RegexInstruction::SAVE)].slot = 2 * node.group + 1;
    }

    void add_choice(const std::vector<RegexNode> & children, size_t first) {
        std::vector<uint32_t> ends;
        for (; first + 1 < children.size(); first++) {
            const uint32_t split = instruction(RegexInstruction::SPLIT);
            add(children[first]);
            ends.push_back(instruction(RegexInstruction::JUMP));
            instructions_[split].other = here();
        }
        add(children[first]);
        for (const uint32_t end : ends) {
            instructions_[end].next = here();
        }
    }

    void add_look(const RegexNode & node) {
        const uint32_t max_bytes = max_length(node.children[0]);
        if (max_bytes > MAX_LOOKAHEAD) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead further than %u bytes",
                       pattern_.c_str(), MAX_LOOKAHEAD);
        }
        if (in_lookahead_) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead within a lookahead",
                       pattern_.c_str());
        }
        in_lookahead_                 = true;
        const uint32_t look           = instruction(node.assertion);
        instructions_[look].max_bytes = max_bytes;
        instructions_[look].other     = here();
        add_all(node.children);
        instruction(RegexInstruction::MATCH);
        instructions_[look].next = here();
        in_lookahead_            = false;
    }

    void add_repeated(const RegexNode & node) {
        const RegexNode & atom = node.children[0];
        for (uint32_t i = 0; i < node.min_count; i++) {
            add(atom);
        }
        if (node.max_count == UNBOUNDED) {
            const uint32_t split = instruction(RegexInstruction::SPLIT);
            add(atom);
            instructions_[instruction(RegexInstruction::JUMP)].next = split;
            leave(split, here(), node.greedy);
            return;
        }
        std::vector<uint32_t> splits;
        for (uint32_t i = node.min_count; i < node.max_count; i++) {
            splits.push_back(instruction(RegexInstruction::SPLIT));
            add(atom);
        }
        for (const uint32_t split : splits) {
            leave(split, here(), node.greedy);
        }
    }

    // Set the exit of a repetition; a lazy one prefers it.
    void leave(uint32_t split, uint32_t end, bool greedy) {
        instructions_[split].other = end;
        if (!greedy) {
            std::swap(instructions_[split].next, instructions_[split].other);
        }
    }

    const std::string &           pattern_;
    std::vector<RegexInstruction> instructions_;
    bool                          in_lookahead_ = false;
};

}  // namespace

pyg::RegexProgram pyg::compile_regex(const std::string & pattern) {
    const RegexSyntax syntax = parse_regex(pattern);
    return {Compiler(pattern).compile(syntax.root), syntax.n_groups};
}
