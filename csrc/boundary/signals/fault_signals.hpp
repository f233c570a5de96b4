// Exceptions for divisions by zero and null pointers inside the engine.
//
// Upstream divides by sizes before checking them and dereferences tensors that it declares optional, in many
// architectures. Both raise a signal that would end the process. While a FaultScope lives on a thread, they are thrown
// as EngineAbort instead: upstream's files are compiled with -fnon-call-exceptions (vendor/CMakeLists.txt). On Linux
// with gcc; elsewhere these faults end the process.
//
// Signal handlers are process-wide, so ours are installed only while a scope lives; other signals are forwarded to the
// previous handler.
#pragma once

#include "boundary/non_copyable.hpp"

namespace pyg {

// Use it inside a guard, around the parts of the engine that read sizes and build graphs.
class FaultScope : NonCopyable {
  public:
    FaultScope() noexcept;
    ~FaultScope();
};

// Called around fork(): scopes of other threads do not exist in the child.
void lock_fault_handlers_for_fork();
void unlock_fault_handlers_after_fork();
void reset_fault_handlers_in_child();

}  // namespace pyg
