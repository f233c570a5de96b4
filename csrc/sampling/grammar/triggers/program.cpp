#include "sampling/grammar/triggers/program.hpp"

#include "boundary/guard.hpp"
#include "sampling/grammar/triggers/syntax.hpp"

#include <algorithm>

namespace {

using pyg::fail;
using pyg::TriggerNode;
using pyg::TriggerStep;
using pyg::WITHOUT_END;

constexpr size_t   MAX_PROGRAM = 4000;  // each may be taken for each byte of a text
constexpr uint32_t MAX_REACH   = 1000;  // bytes that a lookahead may need, at each byte of a text

// The most bytes that a part can match, up to WITHOUT_END.
uint32_t longest(const TriggerNode & node) {
    uint64_t n = 0;
    switch (node.kind) {
    case TriggerNode::BYTES:
        return 1;
    case TriggerNode::CHOICE:
        for (const TriggerNode & part : node.parts) {
            n = std::max<uint64_t>(n, longest(part));
        }
        break;
    case TriggerNode::SEQUENCE:
    case TriggerNode::GROUP:
        for (const TriggerNode & part : node.parts) {
            n += longest(part);
        }
        break;
    case TriggerNode::REPEAT:
        n = longest(node.parts[0]);
        n = n && node.most == WITHOUT_END ? WITHOUT_END : n * node.most;
        break;
    case TriggerNode::EMPTY:
    case TriggerNode::ASSERTION:
    case TriggerNode::LOOK:
        break;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(n, WITHOUT_END));
}

class Compiler {
  public:
    explicit Compiler(const std::string & pattern) : pattern_(pattern) {}

    std::vector<TriggerStep> compile(const TriggerNode & root) {
        add(root);
        step(TriggerStep::MATCH);
        return std::move(steps_);
    }

  private:
    // Its index. It goes on with the one after it, if nothing else is said.
    uint32_t step(TriggerStep::Kind kind) {
        if (steps_.size() == MAX_PROGRAM) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" is too long, or repeats too much",
                       pattern_.c_str());
        }
        TriggerStep step{kind};
        step.next = here() + 1;
        steps_.push_back(step);
        return here() - 1;
    }

    uint32_t here() const { return static_cast<uint32_t>(steps_.size()); }

    void add(const TriggerNode & node) {
        switch (node.kind) {
        case TriggerNode::EMPTY:
            break;
        case TriggerNode::BYTES:
            steps_[step(TriggerStep::BYTE)].bytes = node.bytes;
            break;
        case TriggerNode::ASSERTION:
            step(node.assertion);
            break;
        case TriggerNode::LOOK:
            add_look(node);
            break;
        case TriggerNode::GROUP:
            add_group(node);
            break;
        case TriggerNode::SEQUENCE:
            add_all(node.parts);
            break;
        case TriggerNode::CHOICE:
            add_choice(node.parts, 0);
            break;
        case TriggerNode::REPEAT:
            add_repeated(node);
            break;
        }
    }

    void add_all(const std::vector<TriggerNode> & parts) {
        for (const TriggerNode & part : parts) {
            add(part);
        }
    }

    void add_group(const TriggerNode & node) {
        if (node.group == 0) {
            add_all(node.parts);
            return;
        }
        steps_[step(TriggerStep::SAVE)].slot = 2 * node.group;
        add_all(node.parts);
        steps_[step(TriggerStep::SAVE)].slot = 2 * node.group + 1;
    }

    void add_choice(const std::vector<TriggerNode> & parts, size_t first) {
        std::vector<uint32_t> ends;
        for (; first + 1 < parts.size(); first++) {
            const uint32_t split = step(TriggerStep::SPLIT);
            add(parts[first]);
            ends.push_back(step(TriggerStep::JUMP));
            steps_[split].other = here();
        }
        add(parts[first]);
        for (const uint32_t end : ends) {
            steps_[end].next = here();
        }
    }

    void add_look(const TriggerNode & node) {
        const uint32_t reach = longest(node.parts[0]);
        if (reach > MAX_REACH) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead further than %u bytes",
                       pattern_.c_str(), MAX_REACH);
        }
        if (looking_) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead within a lookahead",
                       pattern_.c_str());
        }
        looking_            = true;
        const uint32_t look = step(node.assertion);
        steps_[look].reach  = reach;
        steps_[look].other  = here();
        add_all(node.parts);
        step(TriggerStep::MATCH);
        steps_[look].next = here();
        looking_          = false;
    }

    void add_repeated(const TriggerNode & node) {
        const TriggerNode & part = node.parts[0];
        for (uint32_t i = 0; i < node.least; i++) {
            add(part);
        }
        if (node.most == WITHOUT_END) {
            const uint32_t split = step(TriggerStep::SPLIT);
            add(part);
            steps_[step(TriggerStep::JUMP)].next = split;
            leave(split, here(), node.greedy);
            return;
        }
        std::vector<uint32_t> splits;
        for (uint32_t i = node.least; i < node.most; i++) {
            splits.push_back(step(TriggerStep::SPLIT));
            add(part);
        }
        for (const uint32_t split : splits) {
            leave(split, here(), node.greedy);
        }
    }

    // Where a repetition goes on that ends, which a lazy one prefers.
    void leave(uint32_t split, uint32_t end, bool greedy) {
        steps_[split].other = end;
        if (!greedy) {
            std::swap(steps_[split].next, steps_[split].other);
        }
    }

    const std::string &      pattern_;
    std::vector<TriggerStep> steps_;
    bool                     looking_ = false;
};

}  // namespace

pyg::TriggerProgram pyg::trigger_program(const std::string & pattern) {
    const TriggerSyntax syntax = trigger_syntax(pattern);
    return {Compiler(pattern).compile(syntax.root), syntax.n_groups};
}
