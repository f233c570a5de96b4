// The public face of languages.
#include "regex/languages.hpp"

#include "boundary/guard.hpp"
#include "regex/syntax/pattern.hpp"
#include "regex/terms/language_store.hpp"
#include "regex/terms/samples.hpp"

#include <algorithm>
#include <unordered_map>

namespace pyg {

namespace {

constexpr size_t MAX_BEGINNINGS = 48;  // states that are looked at

}  // namespace

struct Languages::Impl {
    LanguageStore                         store;
    std::unordered_map<Language, CharSet> free_beginnings;  // their characters; none: not free

    // NOTHING for languages that are known to be empty.
    Language simplest(Language language) const {
        return store.term(language).emptiness == LanguageStore::Emptiness::EMPTY ? NOTHING : language;
    }
};

Languages::Languages() : impl_(std::make_unique<Impl>()) {}

Languages::~Languages() = default;

Language Languages::chars(const CharSet & set) { return impl_->store.chars(set); }

Language Languages::text(const std::string & utf8) { return impl_->store.text(code_points_of(utf8)); }

Language Languages::concat(Language first, Language second) {
    return impl_->store.concat(impl_->simplest(first), impl_->simplest(second));
}

Language Languages::repeat(Language one, uint32_t least, uint32_t most) {
    return impl_->store.repeat(impl_->simplest(one), least, most);
}

Language Languages::any_of(std::vector<Language> languages) {
    for (Language & language : languages) {
        language = impl_->simplest(language);
    }
    return impl_->store.any_of(std::move(languages));
}

Language Languages::all_of(std::vector<Language> languages) {
    for (Language & language : languages) {
        language = impl_->simplest(language);
    }
    languages.push_back(ANYTHING);
    return impl_->store.all_of(std::move(languages));
}

Language Languages::without(Language from, Language removed) { return all_of({from, complement(removed)}); }

Language Languages::complement(Language language) { return impl_->store.complement(impl_->simplest(language)); }

Language Languages::lengths(uint32_t least, uint32_t most) {
    return impl_->store.repeat(impl_->store.chars(CharSet::all()), least, most);
}

Language Languages::automaton(std::shared_ptr<const CharAutomaton> automaton) {
    return impl_->store.automaton(std::move(automaton));
}

Language Languages::regex(const std::string & pattern, RegexSyntax syntax, bool whole) {
    return compile_pattern(impl_->store, parse_pattern(pattern, syntax), whole);
}

bool Languages::contains_empty_text(Language language) { return impl_->store.term(language).nullable; }

bool Languages::is_empty(Language language) { return impl_->store.is_empty(language); }

bool Languages::contains(Language language, const std::string & utf8) {
    for (const uint32_t code_point : code_points_of(utf8)) {
        language = after(language, code_point);
    }
    return contains_empty_text(language);
}

bool Languages::is_finite(Language language, size_t most_texts) {
    return pyg::is_finite(impl_->store, language, most_texts);
}

std::vector<std::string> Languages::some_texts(Language language, size_t n) {
    return pyg::some_texts(impl_->store, language, n);
}

Language Languages::after(Language language, uint32_t code_point) { return impl_->store.after(language, code_point); }

bool Languages::meets(Language language, uint32_t low, uint32_t high) {
    while (true) {
        const auto next = impl_->store.transition(language, low);
        if (next.target != NOTHING) {
            return true;
        }
        if (next.high >= high) {
            return false;
        }
        low = next.high + 1;
    }
}

Language Languages::within(Language language, uint32_t n) { return impl_->store.within(language, n); }

bool Languages::is_any_text(Language language, uint32_t & least, uint32_t & most) const {
    const LanguageStore &       store  = impl_->store;
    const LanguageStore::Term & term   = store.term(language);
    const auto                  is_any = [&](const LanguageStore::Term & one) {
        return one.kind == LanguageStore::Kind::CHARS && store.set_of(one) == CharSet::all();
    };
    const bool is_repeated = term.kind == LanguageStore::Kind::REPEAT && is_any(store.term(term.a));
    least                  = is_repeated ? term.b : language == EMPTY_TEXT ? 0 : 1;
    most                   = is_repeated ? term.c : language == EMPTY_TEXT ? 0 : 1;
    return is_repeated || language == EMPTY_TEXT || is_any(term);
}

// Look at all states that can be reached: do the same characters lead on from each?
bool Languages::has_free_beginnings(Language language, CharSet & characters) {
    auto &     known = impl_->free_beginnings;
    const auto found = known.find(language);
    if (found != known.end()) {
        characters = found->second;
        return !characters.is_empty();
    }
    std::vector<Language> reached = {language};
    CharSet               first;
    bool                  same = true;
    for (size_t i = 0; i < reached.size() && same; i++) {
        std::vector<std::pair<uint32_t, uint32_t>> alive;
        for (uint32_t low = 0; low <= LAST_CODE_POINT;) {
            const auto next = impl_->store.transition(reached[i], low);
            if (next.target != NOTHING) {
                alive.emplace_back(low, next.high);
                if (std::find(reached.begin(), reached.end(), next.target) == reached.end()) {
                    reached.push_back(next.target);
                }
            }
            low = next.high + 1;
        }
        CharSet set = CharSet::of(std::move(alive));
        same        = (i == 0 || set == first) && reached.size() <= MAX_BEGINNINGS;
        if (i == 0) {
            first = std::move(set);
        }
    }
    characters = same ? first : CharSet{};
    if (same) {
        for (const Language each : reached) {
            known[each] = characters;
        }
    }
    known[language] = characters;
    return !characters.is_empty();
}

size_t Languages::n_bytes() const { return impl_->store.n_bytes(); }

std::vector<uint32_t> code_points_of(const std::string & utf8) {
    std::vector<uint32_t> code_points;
    code_points.reserve(utf8.size());
    for (size_t i = 0; i < utf8.size();) {
        const auto   lead       = static_cast<unsigned char>(utf8[i]);
        const size_t n          = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        uint32_t     code_point = n == 1 ? lead : lead & (0x7Fu >> n);
        bool         good       = (lead < 0x80 || lead >= 0xC2) && lead < 0xF5 && i + n <= utf8.size();
        for (size_t k = 1; good && k < n; k++) {
            const auto byte = static_cast<unsigned char>(utf8[i + k]);
            good            = (byte & 0xC0) == 0x80;
            code_point      = code_point << 6 | (byte & 0x3F);
        }
        if (!good || code_point > LAST_CODE_POINT || (n == 3 && code_point < 0x800) ||
            (n == 4 && code_point < 0x10000)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the text is not valid UTF-8 at byte %zu", i);
        }
        code_points.push_back(code_point);
        i += n;
    }
    return code_points;
}

void append_utf8(std::string & text, uint32_t c) {
    if (c < 0x80) {
        text += static_cast<char>(c);
        return;
    }
    const int n_following = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    text += static_cast<char>((0xFF00u >> (n_following + 1) & 0xFF) | c >> (6 * n_following));
    for (int i = n_following - 1; i >= 0; i--) {
        text += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
    }
}

}  // namespace pyg
