// Formats of JSON Schema: texts that they allow, and texts that they don't.
#include "boundary/guard.hpp"
#include "regex/formats.hpp"
#include "tests/support/testing.hpp"

namespace {

using pyg::Language;
using pyg::Languages;

struct Case {
    const char *             format;
    std::vector<std::string> valid, invalid;
};

const std::vector<Case> CASES = {
    {"date",
     {"2024-02-29", "2000-02-29", "0400-02-29", "1999-12-31", "2023-04-30"},
     {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-1-01", "23-01-01", "2023-01-01Z",
      ""}},
    {"time",
     {"12:00:00Z", "23:59:60Z", "01:29:60+01:30", "15:59:60.5-08:00", "00:29:60-23:30", "08:30:06.283z",
      "12:34:56-00:00"},
     {"12:00:00", "24:00:00Z", "23:59:60+01:00", "23:58:60Z", "12:00:60Z", "12:00:00+24:00", "12:00:00.Z", "12:00Z"}},
    {"date-time",
     {"1990-12-31T23:59:60Z", "1991-01-01T00:59:60+01:00", "1990-06-30T15:59:60-08:00", "2020-02-29t00:00:00.000001z"},
     {"1990-12-30T23:59:60Z", "1990-12-31T00:59:60+01:00", "2021-02-29T00:00:00Z", "2020-01-01 00:00:00Z",
      "2020-01-01T00:00:00"}},
    {"local-time", {"00:00:00", "23:59:59"}, {"23:59:60", "00:00:00Z", "00:00:00.5"}},
    {"local-date-time", {"2024-02-29T12:00:00"}, {"2023-02-29T12:00:00", "2024-02-29T12:00:00Z"}},
    {"duration",
     {"P1Y2M3DT4H5M6S", "PT36H", "P2W", "P1M2D", "PT0S", "P01D"},
     {"P", "PT", "P1YT", "P1Y2D", "PT1H2S", "P1Y2W", "P2S", "PT0.5S", "1D"}},
    {"email",
     {"a@b", "joe.bloggs@example.com", "\"joe @ bloggs\"@example.com", "j@[127.0.0.1]", "j@[IPv6:::1]",
      std::string(64, 'a') + "@b.c", "a+b@x-y.z"},
     {"a", "@b", "a@", ".a@b", "a.@b", "a..b@c", "a@b_c", "a b@c", "a@-b", "j@[127.0.0.300]",
      std::string(65, 'a') + "@b.c"}},
    {"idn-email",
     {"\xEC\x8B\xA4\xEB\xA1\x80@\xEC\x8B\xA4\xEB\xA1\x80.\xED\x85\x8C", "a@b.c"},
     {"a",
      "user\xEF\xBC\xA0"
      "example.com",
      std::string("\xC3\xA9") + std::string(63, 'a') + "@b.c"}},
    {"hostname",
     {"a", "www.example.com", "1host", "ab--cd.example", std::string(63, 'a') + ".com"},
     {"", ".", "a.", ".a", "-a", "a-", "a_b", std::string(64, 'a'), "a..b",
      "\xE2\x84\xAA"
      "elvin",
      std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." + std::string(63, 'd')}},
    {"idn-hostname",
     {"a", "Example.com", "\xEC\x8B\xA4\xEB\xA1\x80.\xED\x85\x8C",
      "stra\xC3\x9F"
      "e.de"},
     {"", ".", "a b", "-\xC3\xA9", "ab--\xC3\xA9", "xn--a", "\xC3\x89", "a\xC2\xB7l", "\xCC\x80hello",
      "\xD8\xA8\xD9\xA0\xDB\xB0"}},
    {"ipv4",
     {"0.0.0.0", "255.255.255.255", "10.20.30.40"},
     {"256.0.0.0", "1.2.3", "1.2.3.04", "1.2.3.4.5", " 1.2.3.4"}},
    {"ipv6",
     {"::", "::1", "1:2:3:4:5:6:7:8", "1::", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "::ffff:1.2.3.4",
      "1:2:3:4:5:6:1.2.3.4", "1::4:1.2.3.4", "1:2:3::7:8"},
     {"1", ":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "1:2:3:4:5:6:7::8", "::1.2.3",
      "1:2:3:4:5:6:7:1.2.3.4", "::01.2.3.4", "fe80::1%eth0", "[::1]"}},
    {"uri",
     {"http://foo.bar/?q=%20#x", "urn:a:b", "ldap://[2001:db8::7]/c=GB?one", "http://[v1.x]/", "a:", "file:///x",
      "http://a:b@c:80/d;e?f/?", "mailto:a@b"},
     {"", "abc", "/abc", "//a/b", "1a:b", "http://a b", "http://a/%zz", "http://[::1", "http:/[::1]", "http://a:x/",
      "a:b\\c", "http://\xC3\xA9"}},
    {"uri-reference",
     {"", "abc", "/abc", "//a/b", "?q", "#f", "./a:b", "a/b:c", "http://a"},
     {"1:b", "\\", "#a#b", "/%zz"}},
    {"iri", {"http://\xC3\xA9.x/?\xEE\x80\x80"}, {"\xC3\xA9", "http://x/\xEE\x80\x80"}},
    {"iri-reference", {"\xC3\xA9/x", "#\xC3\xA9"}, {"\\"}},
    {"uri-template",
     {"", "a/{b}", "{+a,b*,c:10}", "{a.b}", "{%41}", "x%41y"},
     {"{", "}", "{}", "{a,}", "{a..b}", "{a:0}", "{a:10000}", "a b", "{a=b}"}},
    {"uuid",
     {"2eb8aa08-AA98-11ea-b4aa-73b441d16380", "00000000-0000-0000-0000-000000000000"},
     {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638", "urn:uuid:"}},
    {"uuid4", {"2eb8aa08-aa98-41ea-b4aa-73b441d16380"}, {"2eb8aa08-aa98-11ea-b4aa-73b441d16380"}},
    {"json-pointer", {"", "/", "/a~0b~1/c", "/\n"}, {"a", "/~", "/~2", "#/a"}},
    {"relative-json-pointer", {"0", "1/a", "10#", "0/"}, {"", "/a", "01", "-1", "0##", "1#/a"}},
    {"regex",
     {"", "^a+$", "[abc]", "[^a-z\\d-]{2,5}?", "(?:a|(b))*", "(?=x)\\b", "a{3}", "(?<n>x)", "[\\]]", "\\u0041"},
     {"(", ")", "[", "a**", "*", "^(abc]", "[z-a]", "a{5,2}", "\\", "(?<n>x)(?<n>y)", "(?", "\\01"}},
    {"path", {"a/b c.txt", "/etc"}, {"", "a\\b", "\"", "\n", std::string(201, 'a')}},
};

void test_cases() {
    for (const Case & each : CASES) {
        Languages languages;
        Language  language;
        CHECK(format_language(languages, each.format, language));
        for (const std::string & text : each.valid) {
            if (!languages.contains(language, text)) {
                std::fprintf(stderr, "%s does not allow \"%s\"\n", each.format, text.c_str());
                std::exit(1);
            }
        }
        for (const std::string & text : each.invalid) {
            if (languages.contains(language, text)) {
                std::fprintf(stderr, "%s allows \"%s\"\n", each.format, text.c_str());
                std::exit(1);
            }
        }
        CHECK(languages.some_texts(language, 20).size() == 20);
    }
}

void test_unknown() {
    Languages languages;
    Language  language;
    CHECK(!format_language(languages, "unknown", language) && !format_language(languages, "", language));
}

// Formats and other limits of a text at once.
void test_intersections() {
    Languages languages;
    Language  dates, moments;
    CHECK(format_language(languages, "date", dates) && format_language(languages, "date-time", moments));
    const Language in_2024 =
        languages.all_of({dates, languages.regex("^2024-02", pyg::RegexSyntax::ECMASCRIPT, false)});
    CHECK(languages.is_finite(in_2024, 29) && !languages.is_finite(in_2024, 28));
    CHECK(languages.is_empty(languages.all_of({dates, moments})));
    CHECK(languages.is_empty(languages.all_of({moments, languages.lengths(0, 19)})));
    CHECK(!languages.is_empty(languages.all_of({moments, languages.lengths(0, 20)})));
}

}  // namespace

int main() {
    test_cases();
    test_unknown();
    test_intersections();
    return 0;
}
