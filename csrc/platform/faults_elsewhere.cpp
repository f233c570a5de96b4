// Systems other than Linux: division by zero, null pointers and missing pages of mapped files end the process.
#include "boundary/signals/fault_signals.hpp"
#include "boundary/signals/mapped_files.hpp"

namespace pyg {

FaultScope::FaultScope() noexcept {}
FaultScope::~FaultScope() {}
void lock_fault_handlers_for_fork() {}
void unlock_fault_handlers_after_fork() {}
void reset_fault_handlers_in_child() {}

struct MappedFile::Watch {};

MappedFile::MappedFile(const std::string & path) : path_(path) {}

MappedFile::~MappedFile() = default;
bool MappedFile::is_broken() const noexcept { return false; }
void lock_mapped_files_for_fork() {}
void unlock_mapped_files_after_fork() {}

}  // namespace pyg
