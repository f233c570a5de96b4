// A mapped file that is truncated reads as zeros and is marked as broken.
#include "boundary/signals/mapped_files.hpp"
#include "platform/linux_signal_handler.hpp"
#include "tests/support/testing.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__

namespace {

constexpr size_t N_BYTES = 64 << 10;

// A file of ones, mapped.
class File {
  public:
    File() {
        char name[] = "/tmp/test_mapped_files-XXXXXX";
        descriptor_ = mkstemp(name);
        path        = name;
        const std::string ones(N_BYTES, 1);
        CHECK(write(descriptor_, ones.data(), ones.size()) == static_cast<ssize_t>(ones.size()));
        data = static_cast<volatile char *>(mmap(nullptr, N_BYTES, PROT_READ, MAP_SHARED, descriptor_, 0));
        CHECK(data != MAP_FAILED);
    }
    ~File() {
        munmap(const_cast<char *>(data), N_BYTES);
        close(descriptor_);
        unlink(path.c_str());
    }
    File(const File &)             = delete;
    File & operator=(const File &) = delete;

    void cut() const { CHECK(ftruncate(descriptor_, N_BYTES / 2) == 0); }

    std::string     path;
    volatile char * data;

  private:
    int descriptor_;
};

void test_what_is_missing_is_zeros() {
    const File            file, other;
    const pyg::MappedFile watched(file.path), whole(other.path);
    CHECK(file.data[N_BYTES - 1] == 1 && !watched.is_broken());
    file.cut();
    CHECK(file.data[0] == 1 && !watched.is_broken());
    CHECK(file.data[N_BYTES / 2 + 5000] == 0 && watched.is_broken());
    CHECK(file.data[N_BYTES / 2] == 0 && file.data[N_BYTES - 1] == 0 && file.data[N_BYTES / 2 - 1] == 1);
    CHECK(other.data[N_BYTES - 1] == 1 && !whole.is_broken());
}

void test_many_threads_at_once() {
    for (int round = 0; round < 50; round++) {
        const File            file;
        const pyg::MappedFile watched(file.path);
        file.cut();
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; i++) {
            threads.emplace_back([&] { CHECK(file.data[N_BYTES - 1] == 0); });
        }
        for (std::thread & thread : threads) {
            thread.join();
        }
        CHECK(watched.is_broken());
    }
}

void test_all_who_watch_a_file_are_told() {
    const File            file;
    const pyg::MappedFile first(file.path), second(file.path);
    file.cut();
    CHECK(file.data[N_BYTES - 1] == 0 && first.is_broken() && second.is_broken());
}

// Signal that ends a child that runs body(); 0 if there is none.
template <class Body>
int end_of(Body body) {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none = {};
        setrlimit(RLIMIT_CORE, &none);
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

void test_files_of_others_are_left_alone() {
    CHECK(end_of([] {
              const File            file, other;
              const pyg::MappedFile watched(file.path);
              other.cut();
              (void) other.data[N_BYTES - 1];
          }) == SIGBUS);
    CHECK(end_of([] {
              const File file;
              { const pyg::MappedFile watched(file.path); }
              file.cut();
              (void) file.data[N_BYTES - 1];
          }) == SIGBUS);
    CHECK(end_of([] {
              const File            file;
              const pyg::MappedFile watched(file.path);
              raise(SIGBUS);
          }) == SIGBUS);
}

void test_the_handler_before_is_called() {
    CHECK(end_of([] {
              signal(SIGBUS, [](int) { _exit(7); });
              const File            file, other;
              const pyg::MappedFile watched(file.path);
              file.cut();
              CHECK(file.data[N_BYTES - 1] == 0);
              other.cut();
              (void) other.data[N_BYTES - 1];
          }) == 7);
}

void test_handlers_are_put_back() {
    struct sigaction before = {}, after = {};
    sigaction(SIGBUS, nullptr, &before);
    const File file;
    { const pyg::MappedFile first(file.path), second(file.path); }
    sigaction(SIGBUS, nullptr, &after);
    CHECK(before.sa_handler == after.sa_handler);
}

void test_a_file_that_is_not_there() {
    const pyg::MappedFile watched("/nowhere/at/all");
    CHECK(!watched.is_broken());
}

void test_parts() {
    CHECK(pyg::watch_parts("model.gguf").size() == 1);
    const pyg::MappedFiles parts = pyg::watch_parts("/a/model-00002-of-00003.gguf");
    CHECK(parts.size() == 3 && parts[0]->path() == "/a/model-00001-of-00003.gguf" &&
          parts[2]->path() == "/a/model-00003-of-00003.gguf");
}

}  // namespace

int main() {
    test_what_is_missing_is_zeros();
    test_many_threads_at_once();
    test_all_who_watch_a_file_are_told();
    test_files_of_others_are_left_alone();
    test_the_handler_before_is_called();
    test_handlers_are_put_back();
    test_a_file_that_is_not_there();
    test_parts();
    return 0;
}

#else

int main() { return 0; }

#endif
