/* Notes which blocks of instrumented code were reached, for a fuzzer that this guides (tests/fuzz/reached.py).
 *
 * gcc's -fsanitize-coverage=trace-pc calls the function below at the beginning of each block. A byte of the file named
 * by PYGGML_REACHED is set for the block's place, relative to a place in this library, which is the same in every
 * process of a build. Without the file, or as long as it cannot be mapped, nothing is noted. This file itself must not
 * be instrumented. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t * g_places;
static size_t    g_n_places; /* the file's size; some blocks share a place */

__attribute__((constructor)) static void map_places(void) {
    const char * const path = getenv("PYGGML_REACHED");
    const int          file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    struct stat about;
    if (fstat(file, &about) == 0 && about.st_size > 0) {
        g_n_places          = (size_t) about.st_size;
        void * const memory = mmap(NULL, g_n_places, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        g_places            = memory == MAP_FAILED ? NULL : memory;
    }
    close(file);
}

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void) {
    if (g_places) {
        const uintptr_t place = (uintptr_t) __builtin_return_address(0) - (uintptr_t) &map_places;
        g_places[place / 4 % g_n_places] = 1; /* blocks are hardly shorter than four bytes */
    }
}
