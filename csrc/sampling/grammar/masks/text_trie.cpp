#include "sampling/grammar/masks/text_trie.hpp"

#include "sampling/grammar/masks/utf8_prefix.hpp"
#include "sampling/grammar/steps/json_escapes.hpp"

#include <algorithm>

namespace pyg {

TextTrie::TextTrie(const TokenTrie & tokens, Spelling spelling) : n_vocab_(tokens.n_vocab()) {
    std::vector<Spelled> inside, closing, longer;
    for (const auto & [token_id, special] : tokens.entries()) {
        Spelled             spelled = {{}, {token_id, INSIDE, 0, 0}};
        const std::string & bytes   = tokens.text(token_id);
        if (!special &&
            (spelling == PLAIN ? read_plain(bytes, spelled) : read_json(bytes, spelling == TIDY_STRING, spelled))) {
            spelled.entry.length = static_cast<uint32_t>(spelled.text.size()) + (spelled.entry.tail != 0 ? 1 : 0);
            longest_             = std::max(longest_, spelled.entry.length);
            auto & part = spelled.entry.length > SHORT ? longer : spelled.entry.rest == INSIDE ? inside : closing;
            part.push_back(std::move(spelled));
        }
    }
    index_characters(inside);
    build(std::move(inside), inside_);
    build(std::move(closing), closing_);
    build(std::move(longer), long_);
    build_rests();
    sum_up();
}

// The masks of languages that look at no characters.
void TextTrie::sum_up() {
    std::vector<TokenBits> up_to(SHORT + 1, TokenBits(n_vocab_));
    for (const Entry & entry : inside_.entries) {
        up_to[entry.length].add(entry.token_id);
    }
    for (uint32_t n = 0; n <= SHORT; n++) {
        if (n > 0) {
            up_to[n].add_all(up_to[n - 1]);
        }
        up_to_.push_back(std::make_shared<TokenBits>(up_to[n]));
    }
    Draft draft(n_vocab_);
    add_by_length(closing_, 0, UNBOUNDED, draft);
    short_closers_ = finished(draft).closers;
    draft.inside.clear();
    draft.inside.add_all(*up_to_[SHORT]);
    add_by_length(long_, 0, UNBOUNDED, draft);
    any_ = finished(draft);
}

// Decode the token up to the closing quote; false if no string contains it.
bool TextTrie::read_json(const std::string & bytes, bool tidy, Spelled & spelled) {
    JsonEscape escape;
    Utf8Prefix character;
    for (size_t i = 0; i < bytes.size(); i++) {
        if (!character.read(static_cast<uint8_t>(bytes[i]))) {
            return false;
        }
        if (character.missing != 0) {
            continue;
        }
        uint32_t decoded = 0;
        switch (escape.read(character.value, decoded, tidy)) {
        case JsonEscape::INVALID:
            return false;
        case JsonEscape::CLOSES:
            spelled.entry.rest = rest_of(bytes.substr(i + 1));
            return true;
        case JsonEscape::INCOMPLETE:
            break;
        case JsonEscape::COMPLETE:
            spelled.text.push_back(decoded);
        }
    }
    Ranges tail;
    if (character.missing != 0) {
        if (escape.kind != JsonEscape::NONE) {
            return false;
        }
        tail.push_back(character.range());
    } else if (escape.kind != JsonEscape::NONE) {
        escape.may_become(tidy, [&](uint32_t low, uint32_t high) {
            tail.emplace_back(low, high);
            return false;
        });
    }
    const bool is_dead = tail.empty() && escape.kind != JsonEscape::NONE;
    spelled.entry.tail = tail_of(std::move(tail));
    return !is_dead;
}

bool TextTrie::read_plain(const std::string & bytes, Spelled & spelled) {
    Utf8Prefix character;
    for (const char byte : bytes) {
        if (!character.read(static_cast<uint8_t>(byte))) {
            return false;
        }
        if (character.missing == 0) {
            spelled.text.push_back(character.value);
        }
    }
    spelled.entry.tail = character.missing == 0 ? 0 : tail_of({character.range()});
    return true;
}

uint32_t TextTrie::tail_of(Ranges ranges) {
    const auto [known, is_new] = tails_.emplace(std::move(ranges), static_cast<uint32_t>(ranges_.size()));
    if (is_new) {
        ranges_.push_back(known->first);
    }
    return known->second;
}

uint32_t TextTrie::rest_of(const std::string & rest) {
    return rests_.emplace(rest, static_cast<uint32_t>(rests_.size())).first->second;
}

void TextTrie::build_rests() {
    std::vector<std::pair<std::string, uint32_t>> sorted(rests_.begin(), rests_.end());
    std::sort(sorted.begin(), sorted.end());
    rest_has_quote_.resize(sorted.size());
    std::vector<uint32_t> path;  // nodes above the next one
    std::string           before;
    const auto            close = [&](size_t depth) {
        for (; path.size() > depth; path.pop_back()) {
            rest_nodes_[path.back()].after = static_cast<uint32_t>(rest_nodes_.size());
        }
    };
    for (const auto & [text, rest] : sorted) {
        const size_t n    = std::min(before.size(), text.size());
        const auto   end  = text.begin() + static_cast<std::ptrdiff_t>(n);
        const auto shared = static_cast<size_t>(std::mismatch(text.begin(), end, before.begin()).first - text.begin());
        close(shared);
        for (size_t depth = shared; depth < text.size(); depth++) {
            path.push_back(static_cast<uint32_t>(rest_nodes_.size()));
            rest_nodes_.push_back({static_cast<uint8_t>(text[depth]), static_cast<uint16_t>(depth), 0, NO_REST});
        }
        if (!text.empty()) {
            rest_nodes_.back().rest = rest;
        }
        rest_has_quote_[rest] = text.find('"') != std::string::npos;
        longest_rest_         = std::max(longest_rest_, static_cast<uint32_t>(text.size()));
        before                = text;
    }
    close(0);
}

void TextTrie::build(std::vector<Spelled> spelled, Part & part) const {
    std::sort(spelled.begin(), spelled.end(), [](const Spelled & a, const Spelled & b) {
        return a.text != b.text ? a.text < b.text : a.entry.token_id < b.entry.token_id;
    });
    auto & nodes = part.nodes;
    nodes.push_back({0, 0, 0, 0, 0, 0});
    std::vector<uint32_t> path  = {0};  // the node of each depth
    const auto            close = [&](size_t depth) {
        for (; path.size() > depth + 1; path.pop_back()) {
            nodes[path.back()].after      = static_cast<uint32_t>(nodes.size());
            nodes[path.back()].last_entry = static_cast<uint32_t>(part.entries.size());
        }
    };
    std::u32string before;
    for (const Spelled & each : spelled) {
        const size_t n   = std::min(before.size(), each.text.size());
        const auto   end = before.begin() + static_cast<std::ptrdiff_t>(n);
        const auto   shared =
            static_cast<size_t>(std::mismatch(before.begin(), end, each.text.begin()).first - before.begin());
        close(shared);
        for (size_t depth = shared; depth < each.text.size(); depth++) {
            const auto first = static_cast<uint32_t>(part.entries.size());
            path.push_back(static_cast<uint32_t>(nodes.size()));
            nodes.push_back({each.text[depth], 0, first, first, first, static_cast<uint16_t>(depth + 1)});
        }
        part.entries.push_back(each.entry);
        nodes[path.back()].own_end = static_cast<uint32_t>(part.entries.size());
        before                     = each.text;
    }
    close(0);
    nodes[0].after      = static_cast<uint32_t>(nodes.size());
    nodes[0].last_entry = static_cast<uint32_t>(part.entries.size());
}

bool TextTrie::allows(const Entry & entry, Languages & languages, Language language) const {
    if (entry.rest != INSIDE) {
        return languages.contains_empty_text(language);
    }
    const Ranges & ranges = ranges_[entry.tail];
    return entry.tail == 0 || std::any_of(ranges.begin(), ranges.end(), [&](const auto & range) {
               return languages.meets(language, range.first, range.second);
           });
}

void TextTrie::add(const Entry & entry, Draft & draft) const {
    if (entry.rest == INSIDE) {
        draft.inside.add(entry.token_id);
    } else {
        draft.closers.emplace_back(entry.rest, entry.token_id);
    }
}

TextMask TextTrie::finished(Draft & draft) const {
    static const auto none = std::make_shared<const TextMask::Closers>();
    std::sort(draft.closers.begin(), draft.closers.end());
    return {draft.inside.finish(),
            draft.closers.empty() ? none : std::make_shared<const TextMask::Closers>(draft.closers)};
}

// Call visit(first, end, language) for runs of entries: what the language is behind their text. Runs behind NOTHING and
// ANYTHING cover whole subtrees.
template <class Visit>
void TextTrie::walk(const Part & part, Languages & languages, Language language, Visit && visit) const {
    std::vector<Language> path(longest_ + 1u);
    for (uint32_t i = 0; i < part.nodes.size();) {
        const Node &   node  = part.nodes[i];
        const Language now   = i == 0 ? language : languages.after(path[node.depth - 1u], node.code_point);
        const bool     whole = now == Languages::NOTHING || now == Languages::ANYTHING;
        path[node.depth]     = now;
        visit(node.first_entry, whole ? node.last_entry : node.own_end, now);
        i = whole ? node.after : i + 1;
    }
}

void TextTrie::add_allowed(const Part & part, Languages & languages, Language language, Draft & draft) const {
    walk(part, languages, language, [&](uint32_t first, uint32_t end, Language now) {
        for (uint32_t e = first; now != Languages::NOTHING && e < end; e++) {
            if (now == Languages::ANYTHING || allows(part.entries[e], languages, now)) {
                add(part.entries[e], draft);
            }
        }
    });
}

// The same for inside_, of a language that allows most of its tokens.
void TextTrie::add_all_but_forbidden(Languages & languages, Language language, Draft & draft) const {
    auto mask = std::make_shared<TokenBits>(*up_to_[SHORT]);
    walk(inside_, languages, language, [&](uint32_t first, uint32_t end, Language now) {
        for (uint32_t e = first; now != Languages::ANYTHING && e < end; e++) {
            if (now == Languages::NOTHING || !allows(inside_.entries[e], languages, now)) {
                mask->remove(inside_.entries[e].token_id);
            }
        }
    });
    draft.inside.add_shared(std::move(mask));
}

// Patterns have few different sets of characters.
std::shared_ptr<const TokenBits> TextTrie::tokens_of(const CharSet & characters) const {
    if (characters == CharSet::all()) {
        return up_to_[SHORT];
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto                  known = tokens_of_.find(characters.ranges);
    return known != tokens_of_.end()
               ? known->second
               : tokens_of_.emplace(characters.ranges, std::make_shared<TokenBits>(compute_tokens_of(characters)))
                     .first->second;
}

// All tokens without those that contain another character; or, if that are most, a walk.
TokenBits TextTrie::compute_tokens_of(const CharSet & characters) const {
    size_t n_removed = 0;
    for (const auto & [code_point, tokens] : containing_) {
        n_removed += characters.contains(code_point) ? 0 : tokens.size();
    }
    if (n_removed > inside_.entries.size() / 4) {
        return walk_tokens_of(characters);
    }
    TokenBits mask = *up_to_[SHORT];
    for (const auto & [code_point, tokens] : containing_) {
        if (!characters.contains(code_point)) {
            for (const int32_t token_id : tokens) {
                mask.remove(token_id);
            }
        }
    }
    for (const Entry & entry : unfinished_) {
        if (!may_become(entry, characters)) {
            mask.remove(entry.token_id);
        }
    }
    return mask;
}

TokenBits TextTrie::walk_tokens_of(const CharSet & characters) const {
    TokenBits mask(n_vocab_);
    for (uint32_t i = 0; i < inside_.nodes.size();) {
        const Node & node = inside_.nodes[i];
        if (i != 0 && !characters.contains(node.code_point)) {
            i = node.after;
            continue;
        }
        for (uint32_t e = node.first_entry; e < node.own_end; e++) {
            if (may_become(inside_.entries[e], characters)) {
                mask.add(inside_.entries[e].token_id);
            }
        }
        i++;
    }
    return mask;
}

// True if the incomplete character at its end, if there is one, may be one of these.
bool TextTrie::may_become(const Entry & entry, const CharSet & characters) const {
    const Ranges & ranges = ranges_[entry.tail];
    return entry.tail == 0 || std::any_of(ranges.begin(), ranges.end(), [&](const auto & range) {
               return characters.meets(range.first, range.second);
           });
}

void TextTrie::index_characters(const std::vector<Spelled> & inside) {
    for (const Spelled & each : inside) {
        for (const uint32_t code_point : each.text) {
            std::vector<int32_t> & tokens = containing_[code_point];
            if (tokens.empty() || tokens.back() != each.entry.token_id) {
                tokens.push_back(each.entry.token_id);
            }
        }
        if (each.entry.tail != 0) {
            unfinished_.push_back(each.entry);
        }
    }
}

// True if most tokens lead to ANYTHING at once, such as in a language without a few names.
bool TextTrie::is_nearly_free(Languages & languages, Language language) const {
    size_t n_free = 0;
    for (uint32_t i = 1; i < inside_.nodes.size(); i = inside_.nodes[i].after) {
        const Node & node = inside_.nodes[i];
        if (languages.after(language, node.code_point) == Languages::ANYTHING) {
            n_free += node.last_entry - node.first_entry;
        }
    }
    return 2 * n_free > inside_.entries.size();
}

void TextTrie::add_by_length(const Part & part, uint32_t least, uint32_t most, Draft & draft) const {
    for (const Entry & entry : part.entries) {
        if (entry.length > most || (entry.rest != INSIDE && entry.length < least)) {
            continue;
        }
        add(entry, draft);
    }
}

TextMask TextTrie::short_mask(Languages & languages, Language language) const {
    Draft    draft(n_vocab_);
    uint32_t least, most;
    if (languages.is_any_text(language, least, most)) {
        draft.inside.add_shared(up_to_[std::min(most, SHORT)]);
        if (least == 0 && most >= SHORT) {
            return {draft.inside.finish(), short_closers_};
        }
        add_by_length(closing_, least, most, draft);
        return finished(draft);
    }
    CharSet characters;
    if (languages.has_free_beginnings(language, characters)) {
        draft.inside.add_shared(tokens_of(characters));
    } else if (is_nearly_free(languages, language)) {
        add_all_but_forbidden(languages, language, draft);
    } else {
        add_allowed(inside_, languages, language, draft);
    }
    add_allowed(closing_, languages, language, draft);
    return finished(draft);
}

TextMask TextTrie::long_mask(Languages & languages, Language language) const {
    Draft    draft(n_vocab_);
    uint32_t least, most;
    if (languages.is_any_text(language, least, most)) {
        add_by_length(long_, least, most, draft);
    } else {
        add_allowed(long_, languages, language, draft);
    }
    return finished(draft);
}

}  // namespace pyg
