// Mapped files that may be truncated or become unreadable while in use.
//
// Reading a page that its file no longer has raises SIGBUS, which would end the process. While a file is watched,
// missing pages are replaced with zeros, from the faulting page to the end of the mapping, and the file is marked as
// broken. Readers continue; check is_broken() before using what was read. On Linux; elsewhere the process ends.
//
// Signal handlers are process-wide, so ours is installed only while a file is watched; other signals are forwarded to
// the previous handler.
#pragma once

#include "boundary/non_copyable.hpp"

#include <memory>
#include <string>
#include <vector>

namespace pyg {

class MappedFile : NonCopyable {
  public:
    // Watch the file at this path, for all of its mappings. A file that cannot be opened or mapped is not watched.
    explicit MappedFile(const std::string & path);
    ~MappedFile();

    bool                is_broken() const noexcept;
    const std::string & path() const { return path_; }

    struct Watch;

  private:
    std::string            path_;
    std::unique_ptr<Watch> watch_;
};

using MappedFiles = std::vector<std::unique_ptr<MappedFile>>;

// Watch a model's file, or all parts of a split one.
MappedFiles watch_parts(const std::string & path);

// The files of a model, by the name of one: all of its split set, or itself.
std::vector<std::string> parts_of(const std::string & path);

// The first broken file, or null.
const MappedFile * broken_one(const MappedFiles & files) noexcept;

// Called around fork().
void lock_mapped_files_for_fork();
void unlock_mapped_files_after_fork();

}  // namespace pyg
