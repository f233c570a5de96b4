// Files that are mapped, and that may be cut short or become unreadable meanwhile.
//
// Whoever touches a page that its file no longer has gets SIGBUS, on whichever thread, which would end the process.
// While a file is watched, zeros take the place of what is missing, from the page that was touched to the end of its
// mapping, and the file counts as broken. Readers go on, and whoever asked for what they read asks require_whole()
// before it is believed. On Linux; elsewhere such files end the process as before.
//
// Signals have one handler for all threads, so it is there only while a file is watched; what is not ours goes to the
// one before.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace pyg {

class MappedFile {
  public:
    // Watches the file that is at this path now, however often and by whomever it is mapped. One that cannot be opened
    // or mapped is not watched.
    explicit MappedFile(const std::string & path);
    ~MappedFile();
    MappedFile(const MappedFile &)             = delete;
    MappedFile & operator=(const MappedFile &) = delete;

    bool                is_broken() const noexcept;
    const std::string & path() const { return path_; }

    struct Watch;

  private:
    std::string            path_;
    std::unique_ptr<Watch> watch_;
};

using MappedFiles = std::vector<std::unique_ptr<MappedFile>>;

// A model's file, and the other parts of one that is split.
MappedFiles watch_parts(const std::string & path);

// The first file that is broken, or null.
const MappedFile * broken_one(const MappedFiles & files) noexcept;

// Called around fork().
void lock_mapped_files_for_fork();
void unlock_mapped_files_after_fork();

}  // namespace pyg
