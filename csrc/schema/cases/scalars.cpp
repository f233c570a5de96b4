#include "schema/cases/scalars.hpp"

#include "regex/formats.hpp"
#include "regex/numbers/numbers.hpp"

#include <algorithm>

namespace pyg {

namespace {

// Add the place to what a function of languages says.
template <class Build>
Language at_place(const Schema & schema, const char * keyword, Build && build) {
    try {
        return build();
    } catch (const Failure & failure) {
        throw fail(failure.code, "%s%s: %s", schema.json->pointer().c_str(), keyword, failure.message.c_str());
    }
}

// JSON numbers without an exponent, with at most so many decimals.
Language plain_numbers(Languages & languages, uint32_t most_decimals) {
    const Language digit = languages.chars(CharSet{{{'0', '9'}}});
    const Language whole =
        languages.any_of({languages.text("0"), languages.concat(languages.chars(CharSet{{{'1', '9'}}}),
                                                                languages.repeat(digit, 0, UNBOUNDED))});
    const Language fraction = most_decimals == 0
                                  ? Languages::NOTHING
                                  : languages.concat(languages.text("."), languages.repeat(digit, 1, most_decimals));
    return languages.concat(languages.repeat(languages.text("-"), 0, 1),
                            languages.concat(whole, languages.repeat(fraction, 0, 1)));
}

}  // namespace

ScalarSets::ScalarSets(Terms & terms, Languages & languages, const SchemaOptions & options,
                       std::vector<std::string> & notes)
    : terms_(terms), languages_(languages), options_(options), notes_(notes) {
    plain_            = plain_numbers(languages, UNBOUNDED);
    with_exponent_    = languages.without(json_numbers(languages), plain_);
    integers_         = json_integers(languages, true);
    spelled_integers_ = json_integers(languages, false);
    all_              = {true, true, true, Languages::ANYTHING, Languages::ANYTHING, plain_, Exponents::ALL};
}

// --- sets -----------------------------------------------------------------------------------------------------------

Language ScalarSets::meet(Language a, Language b) {
    if (a == b || a == Languages::NOTHING || b == Languages::ANYTHING || (b == plain_)) {
        return a;
    }
    if (b == Languages::NOTHING || a == Languages::ANYTHING || a == plain_) {
        return b;
    }
    return languages_.all_of({a, b});
}

Language ScalarSets::join(Language a, Language b) {
    if (a == b || b == Languages::NOTHING || a == Languages::ANYTHING || a == plain_) {
        return a;
    }
    if (a == Languages::NOTHING || b == Languages::ANYTHING || b == plain_) {
        return b;
    }
    return languages_.any_of({a, b});
}

Scalars ScalarSets::both(const Scalars & a, const Scalars & b) {
    return {a.null && b.null,
            a.yes && b.yes,
            a.no && b.no,
            meet(a.string, b.string),
            meet(a.possible, b.possible),
            meet(a.number, b.number),
            std::min(a.exponents, b.exponents)};
}

Scalars ScalarSets::either(const Scalars & a, const Scalars & b) {
    return {a.null || b.null,
            a.yes || b.yes,
            a.no || b.no,
            join(a.string, b.string),
            join(a.possible, b.possible),
            join(a.number, b.number),
            std::max(a.exponents, b.exponents)};
}

Language ScalarSets::all_but(Language language) {
    return language == Languages::NOTHING    ? Languages::ANYTHING
           : language == Languages::ANYTHING ? Languages::NOTHING
                                             : languages_.complement(language);
}

Scalars ScalarSets::without(const Scalars & a) {
    Scalars result;
    result.null      = !a.null;
    result.yes       = !a.yes;
    result.no        = !a.no;
    result.exponents = Exponents::SOME;
    result.string    = all_but(a.possible);
    result.possible  = a.possible == a.string ? result.string : all_but(a.string);
    result.number    = a.number == Languages::NOTHING ? plain_
                       : a.number == plain_           ? Languages::NOTHING
                                                      : languages_.without(plain_, a.number);
    if (a.exponents != Exponents::SOME) {
        result.exponents = a.exponents == Exponents::ALL ? Exponents::NONE : Exponents::ALL;
    }
    return result;
}

bool ScalarSets::is_empty(const Scalars & a) {
    return !a.null && !a.yes && !a.no && a.exponents != Exponents::ALL && languages_.is_empty(a.possible) &&
           languages_.is_empty(a.number);
}

Language ScalarSets::numbers(const Scalars & a) {
    if (a.exponents == Exponents::ALL) {
        return a.number == plain_ ? json_numbers(languages_) : languages_.any_of({a.number, with_exponent_});
    }
    if (!options_.plain_values || a.number == Languages::NOTHING || a.number == plain_ ||
        !languages_.is_empty(languages_.without(a.number, integers_))) {
        return a.number;
    }
    return languages_.all_of({a.number, spelled_integers_});
}

// --- schemas --------------------------------------------------------------------------------------------------------

Scalars ScalarSets::of_goal(Goal goal) {
    Scalars result = all_;
    for (const Literal literal : terms_.literals(goal)) {
        result = both(result, of(literal));
    }
    return result;
}

const Scalars & ScalarSets::of(Literal literal) {
    if (known_.size() <= literal) {
        known_.resize(literal * 2 + 64);
        is_known_.resize(literal * 2 + 64);
    }
    if (is_known_[literal] != 0) {
        return known_[literal];
    }
    Scalars result;
    if (literal == ALWAYS) {
        result = all_;
    } else if (literal == NEVER) {
        result = {};
    } else if (is_negated(literal)) {
        result = without(of(opposite(literal)));
    } else {
        const OpenTerm open(terms_, literal);
        result = of_schema(terms_.term(literal));
    }
    known_[literal]    = result;
    is_known_[literal] = 1;
    return known_[literal];
}

Scalars ScalarSets::of_schema(const Term & given) {
    const Term     term   = given;  // terms may move
    const Schema & schema = *term.schema;
    Scalars        result = of_types(schema);
    if (schema.has_values) {
        result = both(result, of_values(schema));
    }
    if (result.string != Languages::NOTHING) {
        restrict_strings(schema, result);
    }
    if (result.number != Languages::NOTHING) {
        restrict_numbers(schema, result);
    }
    const auto sub = [&](const Schema & each) { return of(terms_.alongside(term, each)); };
    for (const Schema * each : schema.all_of) {
        result = both(result, sub(*each));
    }
    if (schema.ref != nullptr) {
        result = both(result, sub(*schema.ref));
    }
    if (schema.dynamic_ref != nullptr) {
        result = both(result, sub(terms_.dynamic_target(term)));
    }
    if (schema.has_any_of) {
        Scalars any;
        for (const Schema * each : schema.any_of) {
            any = either(any, sub(*each));
        }
        result = both(result, any);
    }
    if (schema.has_one_of) {
        result = both(result, exactly_one(term));
    }
    if (schema.negated != nullptr) {
        result = both(result, without(sub(*schema.negated)));
    }
    if (schema.condition != nullptr && (schema.then != nullptr || schema.otherwise != nullptr)) {
        const Scalars condition = sub(*schema.condition);
        const Scalars then      = schema.then == nullptr ? all_ : sub(*schema.then);
        const Scalars otherwise = schema.otherwise == nullptr ? all_ : sub(*schema.otherwise);
        result                  = both(result, either(both(condition, then), both(without(condition), otherwise)));
    }
    return result;
}

// Values that exactly one alternative of a oneOf allows.
Scalars ScalarSets::exactly_one(const Term & term) {
    Scalars some, several;
    for (const Schema * each : term.schema->one_of) {
        const Scalars one    = of(terms_.alongside(term, *each));
        Scalars       common = both(some, one);
        if (common.string != Languages::NOTHING && languages_.is_empty(common.string)) {
            common.string = Languages::NOTHING;
        }
        if (common.possible != Languages::NOTHING && languages_.is_empty(common.possible)) {
            common.possible = Languages::NOTHING;
        }
        if (common.number != Languages::NOTHING && languages_.is_empty(common.number)) {
            common.number = Languages::NOTHING;
        }
        several = either(several, common);
        some    = either(some, one);
    }
    return both(some, without(several));
}

Scalars ScalarSets::of_types(const Schema & schema) {
    const uint8_t types = schema.types;
    Scalars       result;
    result.null = (types & TYPE_NULL) != 0;
    result.yes = result.no = (types & TYPE_BOOLEAN) != 0;
    if ((types & TYPE_STRING) != 0) {
        result.string = result.possible = Languages::ANYTHING;
    }
    if ((types & TYPE_NUMBER) != 0) {
        result.number    = plain_;
        result.exponents = Exponents::ALL;
    } else if ((types & TYPE_INTEGER) != 0) {
        const bool is_spelled = schema.draft == Draft::DRAFT_4;  // there, 2.0 and 1e3 are no integers
        result.number         = is_spelled ? spelled_integers_ : integers_;
        result.exponents      = is_spelled ? Exponents::NONE : Exponents::SOME;
    }
    return result;
}

Scalars ScalarSets::of_values(const Schema & schema) {
    Scalars               result;
    std::vector<Language> texts, numbers;
    for (const JsonValue * value : schema.values) {
        switch (value->kind) {
        case JsonKind::NIL:
            result.null = true;
            break;
        case JsonKind::YES:
            result.yes = true;
            break;
        case JsonKind::NO:
            result.no = true;
            break;
        case JsonKind::STRING:
            texts.push_back(languages_.text(value->text));
            break;
        case JsonKind::NUMBER:
            numbers.push_back(at_place(schema, "", [&] { return numbers_equal_to(languages_, value->text); }));
            break;
        case JsonKind::ARRAY:
        case JsonKind::OBJECT:
            break;
        }
    }
    if (!texts.empty()) {
        result.string = result.possible = texts.size() == 1 ? texts[0] : languages_.any_of(texts);
    }
    if (!numbers.empty()) {
        result.number    = numbers.size() == 1 ? numbers[0] : languages_.any_of(numbers);
        result.exponents = Exponents::SOME;
    }
    return result;
}

void ScalarSets::restrict_strings(const Schema & schema, Scalars & scalars) {
    const auto restrict_to = [&](Language language) {
        scalars.string   = meet(scalars.string, language);
        scalars.possible = meet(scalars.possible, language);
    };
    if (schema.min_length > 0 || schema.max_length != UNBOUNDED) {
        restrict_to(schema.min_length > schema.max_length ? Languages::NOTHING
                                                          : languages_.lengths(schema.min_length, schema.max_length));
    }
    if (schema.pattern != nullptr) {
        restrict_to(at_place(schema, "/pattern",
                             [&] { return languages_.regex(*schema.pattern, RegexSyntax::ECMASCRIPT, false); }));
    }
    if (schema.format != nullptr) {
        restrict_to_format(schema, scalars);
    }
}

void ScalarSets::restrict_to_format(const Schema & schema, Scalars & scalars) {
    Language format = Languages::ANYTHING;
    if (!options_.assert_formats || !format_language(languages_, *schema.format, format)) {
        notes_.push_back(schema.json->pointer() + "/format: '" + schema.format->substr(0, 100) + "' is ignored");
        return;
    }
    const bool has_leap_seconds = *schema.format == "time" || *schema.format == "date-time";
    scalars.possible            = meet(scalars.possible, possible_format(languages_, *schema.format, format));
    if (options_.plain_values && has_leap_seconds) {
        format = languages_.without(format, languages_.regex(":60", RegexSyntax::ECMASCRIPT, false));
    }
    scalars.string = meet(scalars.string, format);
}

template <class Build>
Language ScalarSets::bound(const std::string & number, int kind, Build && build) {
    const auto found = bounds_.find({number, kind});
    if (found != bounds_.end()) {
        return found->second;
    }
    const Language result = build();
    bounds_.emplace(std::make_pair(number, kind), result);
    return result;
}

void ScalarSets::restrict_numbers(const Schema & schema, Scalars & scalars) {
    const auto restrict_to = [&](Language language) {
        scalars.number    = meet(scalars.number, language);
        scalars.exponents = std::min(scalars.exponents, Exponents::SOME);
    };
    const auto number = [&](const std::string * value, const char * keyword, int kind, auto && build) {
        if (value != nullptr) {
            restrict_to(at_place(schema, keyword, [&] { return bound(*value, kind, [&] { return build(*value); }); }));
        }
    };
    number(schema.minimum, "/minimum", 0, [&](const std::string & n) { return numbers_from(languages_, n, false); });
    number(schema.above, "/exclusiveMinimum", 1,
           [&](const std::string & n) { return numbers_from(languages_, n, true); });
    number(schema.maximum, "/maximum", 2, [&](const std::string & n) { return numbers_to(languages_, n, false); });
    number(schema.below, "/exclusiveMaximum", 3,
           [&](const std::string & n) { return numbers_to(languages_, n, true); });
    number(schema.multiple_of, "/multipleOf", 4, [&](const std::string & n) { return multiples_of(languages_, n); });
    if (schema.decimal_places != UNBOUNDED) {
        restrict_to(plain_numbers(languages_, schema.decimal_places));
    }
}

}  // namespace pyg
