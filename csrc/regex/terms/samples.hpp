// Texts of languages, and how many there are.
#pragma once

#include "regex/terms/language_store.hpp"

namespace pyg {

std::vector<std::string> some_texts(LanguageStore & store, Language language, size_t n);  // shortest first
bool                     is_finite(LanguageStore & store, Language language, size_t most_texts);

}  // namespace pyg
