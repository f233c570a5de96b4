#include "schema/keywords/uri.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

namespace pyg {

namespace {

struct Uri {
    std::string scheme, authority, path, query;
    bool        has_authority = false, has_query = false;
};

// Components by RFC 3986, appendix B, without the fragment.
Uri parsed(std::string text) {
    Uri          uri;
    const size_t colon = text.find_first_of(":/?");
    if (colon != std::string::npos && colon > 0 && text[colon] == ':' &&
        std::isalpha(static_cast<unsigned char>(text[0]))) {
        uri.scheme = text.substr(0, colon);
        text.erase(0, colon + 1);
    }
    if (text.compare(0, 2, "//") == 0) {
        const size_t end  = std::min(text.find_first_of("/?", 2), text.size());
        uri.has_authority = true;
        uri.authority     = text.substr(2, end - 2);
        text.erase(0, end);
    }
    const size_t question = text.find('?');
    if (question != std::string::npos) {
        uri.has_query = true;
        uri.query     = text.substr(question + 1);
        text.erase(question);
    }
    uri.path = text;
    return uri;
}

std::string without_dots(const std::string & path) {
    std::vector<std::string> segments;
    const bool               is_absolute = !path.empty() && path[0] == '/';
    size_t                   begin       = is_absolute ? 1 : 0;
    bool                     ends_open   = false;
    while (begin <= path.size()) {
        const size_t      end     = std::min(path.find('/', begin), path.size());
        const std::string segment = path.substr(begin, end - begin);
        ends_open                 = segment == "." || segment == "..";
        if (segment == ".." && !segments.empty()) {
            segments.pop_back();
        } else if (!ends_open) {
            segments.push_back(segment);
        }
        begin = end + 1;
    }
    if (ends_open) {
        segments.emplace_back();
    }
    std::string result = is_absolute ? "/" : "";
    for (size_t i = 0; i < segments.size(); i++) {
        result += (i > 0 ? "/" : "") + segments[i];
    }
    return result;
}

}  // namespace

std::string resolve_uri(const std::string & base_text, const std::string & reference) {
    const size_t      hash     = reference.find('#');
    const std::string fragment = hash == std::string::npos ? "" : reference.substr(hash);
    const std::string body     = reference.substr(0, hash);
    const std::string base_uri = without_fragment(base_text);
    if (body.empty()) {
        return base_uri + fragment;
    }
    Uri       uri  = parsed(body);
    const Uri base = parsed(base_uri);
    if (uri.scheme.empty()) {
        uri.scheme = base.scheme;
        if (!uri.has_authority) {
            uri.has_authority = base.has_authority;
            uri.authority     = base.authority;
            if (uri.path.empty()) {
                uri.path = base.path;
            } else if (uri.path[0] != '/') {
                const size_t slash = base.path.rfind('/');
                const bool   below = slash == std::string::npos && base.has_authority;
                uri.path = (below ? "/" : slash == std::string::npos ? "" : base.path.substr(0, slash + 1)) + uri.path;
            }
        }
    }
    std::string result = uri.scheme.empty() ? "" : uri.scheme + ":";
    result += uri.has_authority ? "//" + uri.authority : "";
    result += uri.path.find('/') == std::string::npos ? uri.path : without_dots(uri.path);
    result += uri.has_query ? "?" + uri.query : "";
    return result + fragment;
}

std::string without_fragment(const std::string & uri) { return uri.substr(0, uri.find('#')); }

std::string fragment_of(const std::string & uri) {
    const size_t hash = uri.find('#');
    std::string  result;
    for (size_t i = hash == std::string::npos ? uri.size() : hash + 1; i < uri.size(); i++) {
        const bool is_encoded = uri[i] == '%' && i + 2 < uri.size() &&
                                std::isxdigit(static_cast<unsigned char>(uri[i + 1])) &&
                                std::isxdigit(static_cast<unsigned char>(uri[i + 2]));
        if (is_encoded) {
            result += static_cast<char>(std::strtol(uri.substr(i + 1, 2).c_str(), nullptr, 16));
            i += 2;
        } else {
            result += uri[i];
        }
    }
    return result;
}

}  // namespace pyg
