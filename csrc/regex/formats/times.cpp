// Dates, times and durations, by RFC 3339.
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

const std::string DAYS_OF_MONTHS = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
                                   "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
                                   "|02-(?:0[1-9]|1[0-9]|2[0-8]))";
// Of the last two digits, or of the first two before "00".
const std::string MULTIPLES_OF_4 = "(?:[02468][048]|[13579][26])";
const std::string LEAP_YEARS     = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|" + MULTIPLES_OF_4 + "00)";
const std::string DATES          = "(?:[0-9]{4}-" + DAYS_OF_MONTHS + "|" + LEAP_YEARS + "-02-29)";
const std::string HOURS          = "(?:[01][0-9]|2[0-3])";
const std::string LOCAL_TIMES    = HOURS + ":[0-5][0-9]:[0-5][0-9]";
const std::string OFFSETS        = "(?:[Zz]|[+-]" + HOURS + ":[0-5][0-9])";
const std::string TIMES          = LOCAL_TIMES + "(?:\\.[0-9]+)?" + OFFSETS;
// Larger units may be followed by the next smaller one only.
const std::string DURATION_TIMES = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
const std::string DURATION_DATES = "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)";
const std::string DURATIONS = "P(?:" + DURATION_DATES + "(?:" + DURATION_TIMES + ")?|" + DURATION_TIMES + "|[0-9]+W)";

// Leap seconds are the last of June and December, in UTC.
Language date_times(Languages & languages) {
    const auto leap = [&](const std::string & days, bool next_day) {
        return languages.concat(matched_by(languages, "[0-9]{4}-(?:" + days + ")[Tt]"),
                                leap_seconds(languages, next_day));
    };
    return languages.any_of(
        {matched_by(languages, DATES + "[Tt]" + TIMES), leap("06-30|12-31", false), leap("07-01|01-01", true)});
}

}  // namespace

bool time_format(Languages & languages, const std::string & name, Language & result) {
    if (name == "date") {
        result = matched_by(languages, DATES);
    } else if (name == "time") {
        result = languages.any_of(
            {matched_by(languages, TIMES), leap_seconds(languages, false), leap_seconds(languages, true)});
    } else if (name == "date-time") {
        result = date_times(languages);
    } else if (name == "duration") {
        result = matched_by(languages, DURATIONS);
    } else if (name == "local-time") {
        result = matched_by(languages, LOCAL_TIMES);
    } else if (name == "local-date-time") {
        result = matched_by(languages, DATES + "T" + LOCAL_TIMES);
    } else {
        return false;
    }
    return true;
}

}  // namespace pyg
