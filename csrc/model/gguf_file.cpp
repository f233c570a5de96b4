#include "model/gguf_file.hpp"

#include "boundary/engine_messages.hpp"
#include "boundary/guard.hpp"
#include "boundary/log.hpp"
#include "boundary/signals/mapped_files.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace {

using pyg::fail;

constexpr uint32_t OLDEST_VERSION = 2;  // upstream reads 2 and 3

struct FileCloser {
    void operator()(std::FILE * file) const { std::fclose(file); }
};

using UniqueFile = std::unique_ptr<std::FILE, FileCloser>;

// Files that users mistake for models, by their first bytes.
struct Kind {
    std::string  start;
    const char * name;
};

const Kind FOREIGN[] = {
    {"PK\x03\x04", "a zip archive, such as PyTorch's .bin and .pth files: save the model as safetensors"},
    {"\x80\x02", "a pickle of PyTorch: save the model as safetensors"},
    {"lmgg", "a GGML file of before August 2023: convert the original model again"},
    {"fmgg", "a GGML file of before August 2023: convert the original model again"},
    {"tjgg", "a GGML file of before August 2023: convert the original model again"},
    {"\x89HDF", "an HDF5 file: save the model as safetensors"},
    {"\x1f\x8b", "compressed by gzip: decompress it first"},
    {"<", "a web page, such as the error of a download: download the file itself"},
};

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return text;
}

// Return what a file is that does not begin as GGUF does; "" if it is unknown.
std::string kind_of(const std::string & head) {
    for (const Kind & kind : FOREIGN) {
        if (head.compare(0, kind.start.size(), kind.start) == 0) {
            return kind.name;
        }
    }
    // eight bytes of length, then JSON
    if (head.size() > 9 && head.compare(8, 2, "{\"") == 0) {
        return "a safetensors file: pass the directory that holds it and config.json";
    }
    const bool is_text =
        std::all_of(head.begin(), head.end(), [](unsigned char byte) { return std::isspace(byte) || byte >= ' '; });
    return is_text ? "a text file" : "";
}

// Refuse a file that does not begin as a GGUF file does.
void require_gguf(const char * path, std::FILE * file) {
    std::string head(64, '\0');
    head.resize(std::fread(head.data(), 1, head.size(), file));
    std::rewind(file);
    if (lower(head).rfind("version https://git-lfs", 0) == 0) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s only points to the model, as a clone without Git LFS leaves it: run git lfs pull in its "
                   "directory, or download the file",
                   path);
    }
    if (head.compare(0, 4, "GGUF") != 0) {
        const std::string kind = kind_of(head);
        throw fail(PYG_ERR_MODEL_LOAD, "%s is not a GGUF file: it %s%s", path,
                   kind.empty() ? "does not begin with the GGUF header" : "is ", kind.c_str());
    }
    uint32_t version = OLDEST_VERSION;
    std::memcpy(&version, head.data() + 4, std::min(head.size() - 4, sizeof(version)));
    if (version < OLDEST_VERSION || version > GGUF_VERSION) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s says it is GGUF version %u, but only versions %u to %d can be read (a huge number means the "
                   "file has the other byte order)",
                   path, version, OLDEST_VERSION, GGUF_VERSION);
    }
}

// Open a regular file; *size is its length.
UniqueFile open_file(const char * path, uint64_t * size) {
    pyg::platform::FileInfo about;
    UniqueFile              file(pyg::platform::open_file(path, about));
    if (!file && !about.is_directory) {
        if (errno == ENOENT || errno == ENOTDIR) {
            throw fail(PYG_ERR_MODEL_NOT_FOUND, "there is no model file at %s", path);
        }
        throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be read: %s", path, std::strerror(errno));
    }
    if (!about.is_regular) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s is %s; a .gguf file was expected", path,
                   about.is_directory ? "a directory" : "not a regular file");
    }
    if (about.size == 0) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s is empty; a .gguf file was expected", path);
    }
    *size = about.size;
    return file;
}

}  // namespace

namespace pyg {

GgufHeader read_gguf_header(const std::string & path) {
    uint64_t         size = 0;
    const UniqueFile file = open_file(path.c_str(), &size);
    require_gguf(path.c_str(), file.get());
    const LogMute    quietly;
    const GuardScope messages_of_the_header;
    gguf_context_ptr raw(gguf_init_from_file_ptr(file.get(), {/*no_alloc =*/true, /*ctx =*/nullptr}));
    if (!raw) {
        const std::string messages = engine_error_text();
        throw_if_out_of_memory("reading " + path, messages);
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s is damaged or cut short: its header cannot be read: copy or download it again (the engine: %s)",
                   path.c_str(), messages.c_str());
    }
    return {std::move(raw), size};
}

// Upstream has checked that tensors are contiguous and that their sizes do not overflow, but not the file's length.
void require_all_data(const std::string & path, const GgufHeader & header) {
    const gguf_context * raw   = header.raw.get();
    const uint64_t       start = gguf_get_data_offset(raw);
    uint64_t             end   = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(raw); i++) {
        end = std::max<uint64_t>(end, start + gguf_get_tensor_offset(raw, i) + gguf_get_tensor_size(raw, i));
    }
    if (end > header.file_size) {
        throw fail(
            PYG_ERR_MODEL_LOAD,
            "%s is cut short: its tensors end at byte %llu, but the file ends at %llu: copy or download it again",
            path.c_str(), static_cast<unsigned long long>(end), static_cast<unsigned long long>(header.file_size));
    }
}

gguf_context_ptr read_whole_gguf(const std::string & path) {
    GgufHeader first = read_gguf_header(path);
    require_all_data(path, first);
    const int64_t key    = gguf_find_key(first.raw.get(), "split.count");
    const bool    is_set = key >= 0 && gguf_get_kv_type(first.raw.get(), key) == GGUF_TYPE_UINT16 &&
                           gguf_get_val_u16(first.raw.get(), key) > 1;
    for (const std::string & part : is_set ? parts_of(path) : std::vector<std::string>{}) {
        if (part != path) {
            require_all_data(part, read_gguf_header(part));
        }
    }
    return std::move(first.raw);
}

}  // namespace pyg
