// Divisions by zero and null pointers inside the engine, as exceptions.
//
// Upstream divides by sizes before it checks them, and takes tensors of which it made the presence optional for
// granted, in a hundred and sixty architectures. Both are signals of the processor, and would end the process. While a
// TrapScope lives on a thread, they are thrown as a failed assert is: upstream's files are compiled so that
// instructions may throw
// (-fnon-call-exceptions in vendor/CMakeLists.txt). On Linux with gcc; elsewhere they end the process as before.
//
// Signals have one handler for all threads, so it is there only while a scope lives; what is not ours goes to the one
// before.
#pragma once

namespace pyg {

// Inside a guard, around the parts of the engine that read sizes and build graphs.
class FaultScope {
  public:
    FaultScope() noexcept;
    ~FaultScope();
    FaultScope(const FaultScope &)             = delete;
    FaultScope & operator=(const FaultScope &) = delete;
};

// Called around fork(): the scopes of other threads do not exist in the child.
void lock_fault_handlers_for_fork();
void unlock_fault_handlers_after_fork();
void reset_fault_handlers_in_child();

}  // namespace pyg
