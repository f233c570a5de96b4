#include "boundary/signals/mapped_files.hpp"

#include "boundary/guard.hpp"
#include "llama.h"

#include <algorithm>
#include <cstdio>

namespace pyg {

// Parses names that end in "-00002-of-00005.gguf", as upstream does.
std::vector<std::string> parts_of(const std::string & path) {
    constexpr size_t ENDING = sizeof("-00002-of-00005.gguf") - 1;
    const size_t     n      = path.size() - std::min(path.size(), ENDING);
    int              number = 0, n_parts = 0;
    if (n == 0 || std::sscanf(path.c_str() + n, "-%5d-of-%5d.gguf", &number, &n_parts) != 2 || n_parts < 2) {
        return {path};
    }
    std::vector<std::string> parts;
    for (int i = 0; i < n_parts; i++) {
        std::string part(n + 32, '\0');
        part.resize(
            static_cast<size_t>(llama_split_path(part.data(), part.size(), path.substr(0, n).c_str(), i, n_parts)));
        parts.push_back(part);
    }
    return parts;
}

MappedFiles watch_parts(const std::string & path) {
    MappedFiles files;
    for (const std::string & part : parts_of(path)) {
        files.push_back(std::make_unique<MappedFile>(part));
    }
    return files;
}

const MappedFile * broken_one(const MappedFiles & files) noexcept {
    const auto found = std::find_if(files.begin(), files.end(), [](const auto & file) { return file->is_broken(); });
    return found == files.end() ? nullptr : found->get();
}

}  // namespace pyg

struct pyg_mapped_file : pyg::Handle {
    pyg::MappedFile file;

    explicit pyg_mapped_file(const char * path) : Handle(PYG_HANDLE_MAPPED_FILE), file(path) {}
    void release() {}
    void leak() {}
};

pyg_status pyg_mapped_file_watch(const char * path, pyg_mapped_file ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] { *out = new pyg_mapped_file(path); });
}

pyg_status pyg_mapped_file_require_whole(pyg_mapped_file * file, pyg_error * err) {
    return pyg::guard(err, [&] {
        if (file->file.is_broken()) {
            throw pyg::fail(PYG_ERR_MODEL_LOAD, "%s was truncated or became unreadable while it was in use",
                            file->file.path().c_str());
        }
    });
}

void pyg_mapped_file_free(pyg_mapped_file * file) { pyg::free_handle(file); }
