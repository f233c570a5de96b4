// Preloaded into a process: makes the n-th of certain calls fail, once or from then on, and moves the wall clock.
//
// What is asked for memory, threads or mappings counts if the compiled module asks, or the C++ library (in these
// processes, for the module). What opens, reads or writes counts for files in one folder, and what makes descriptors
// also if the module asks. Controlled through ctypes (faults/__init__.py); all of it is safe from any thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ALLOCATION = 1, THREAD = 2, DESCRIPTOR = 4, READ = 8, WRITE = 16, MAPPING = 32 };

void * __libc_malloc(size_t);
void * __libc_calloc(size_t, size_t);
void * __libc_realloc(void *, size_t);
void * __libc_memalign(size_t, size_t);

#define MAX_RANGES 8
static struct {
    uintptr_t begin, end;
} g_ranges[MAX_RANGES];
static int         g_n_ranges = 0;
static char        g_folder[4096];
static atomic_int  g_kinds  = 0;  // 0: nothing counts
static atomic_long g_nth    = 0;
static atomic_long g_n      = 0;
static atomic_long g_n_hit  = 0;
static int         g_lasts  = 0;
static int         g_error  = 0;  // of reads and writes; 0: they do half
static atomic_long g_wall_s = 0;

void faults_range(uintptr_t begin, uintptr_t end) {
    if (g_n_ranges < MAX_RANGES) {
        g_ranges[g_n_ranges].begin = begin;
        g_ranges[g_n_ranges++].end = end;
    }
}

void faults_arm(const char * folder, int kinds, long nth, int lasts, int error) {
    strncpy(g_folder, folder, sizeof(g_folder) - 1);
    g_n     = 0;
    g_n_hit = 0;
    g_nth   = nth;
    g_lasts = lasts;
    g_error = error;
    g_kinds = kinds;
}

void faults_disarm(void) { g_kinds = 0; }

long faults_counted(void) { return g_n; }

long faults_hit(void) { return g_n_hit; }

void faults_wall_clock(long seconds) { g_wall_s = seconds; }

static bool asked_by_module(const void * caller) {
    for (int i = 0; i < g_n_ranges; i++) {
        if ((uintptr_t) caller - g_ranges[i].begin < g_ranges[i].end - g_ranges[i].begin) {
            return true;
        }
    }
    return false;
}

static bool in_folder(const char * path) { return g_folder[0] && strncmp(path, g_folder, strlen(g_folder)) == 0; }

static bool is_of_folder(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    return in_folder(path);
}

// Counts a call, and says whether it fails.
static bool fails(int kind) {
    if (!(g_kinds & kind)) {
        return false;
    }
    const long n    = ++g_n;
    const bool hits = g_lasts ? n >= g_nth && g_nth > 0 : n == g_nth;
    g_n_hit += hits;
    return hits;
}

#define COUNTS(kind) (g_kinds & (kind))
#define BY_MODULE asked_by_module(__builtin_return_address(0))

void * malloc(size_t size) {
    if (COUNTS(ALLOCATION) && BY_MODULE && fails(ALLOCATION)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

void * calloc(size_t n, size_t size) {
    if (COUNTS(ALLOCATION) && BY_MODULE && fails(ALLOCATION)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, size);
}

void * realloc(void * old, size_t size) {
    if (COUNTS(ALLOCATION) && BY_MODULE && fails(ALLOCATION)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(old, size);
}

int posix_memalign(void ** out, size_t alignment, size_t size) {
    if (COUNTS(ALLOCATION) && BY_MODULE && fails(ALLOCATION)) {
        return ENOMEM;
    }
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

void * aligned_alloc(size_t alignment, size_t size) {
    if (COUNTS(ALLOCATION) && BY_MODULE && fails(ALLOCATION)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_memalign(alignment, size);
}

void * mmap(void * at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (COUNTS(MAPPING) && BY_MODULE && fails(MAPPING)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *) syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

void * mmap64(void * at, size_t size, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

int pthread_create(pthread_t * thread, const pthread_attr_t * attributes, void * (*run)(void *), void * data) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void * (*) (void *), void *);
    if (!next) {
        next = dlsym(RTLD_NEXT, "pthread_create");
    }
    if (COUNTS(THREAD) && BY_MODULE && fails(THREAD)) {
        return EAGAIN;
    }
    return next(thread, attributes, run, data);
}

int eventfd(unsigned int value, int flags) {
    if (COUNTS(DESCRIPTOR) && BY_MODULE && fails(DESCRIPTOR)) {
        errno = EMFILE;
        return -1;
    }
    return (int) syscall(SYS_eventfd2, value, flags);
}

static int opened(const void * caller, int folder, const char * path, int flags, mode_t mode) {
    if (COUNTS(DESCRIPTOR) && (in_folder(path) || asked_by_module(caller)) && fails(DESCRIPTOR)) {
        errno = EMFILE;
        return -1;
    }
    return (int) syscall(SYS_openat, folder, path, flags, mode);
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

int open(const char * path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return opened(__builtin_return_address(0), AT_FDCWD, path, flags, mode);
}

int open64(const char * path, int flags, ...) __attribute__((alias("open")));

int openat(int folder, const char * path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return opened(__builtin_return_address(0), folder, path, flags, mode);
}

int openat64(int folder, const char * path, int flags, ...) __attribute__((alias("openat")));

FILE * fopen(const char * path, const char * mode) {
    static FILE * (*next)(const char *, const char *);
    if (!next) {
        next = dlsym(RTLD_NEXT, "fopen");
    }
    if (COUNTS(DESCRIPTOR) && (in_folder(path) || BY_MODULE) && fails(DESCRIPTOR)) {
        errno = EMFILE;
        return NULL;
    }
    return next(path, mode);
}

FILE * fopen64(const char * path, const char * mode) __attribute__((alias("fopen")));

// Reads and writes: an error, or half of what was asked for.
static bool spoils(int kind, int fd, size_t * n) {
    if (!COUNTS(kind) || !is_of_folder(fd) || !fails(kind)) {
        return false;
    }
    if (g_error == 0) {
        *n = *n > 1 ? *n / 2 : *n;
        return false;
    }
    errno = g_error;
    return true;
}

ssize_t read(int fd, void * to, size_t n) { return spoils(READ, fd, &n) ? -1 : syscall(SYS_read, fd, to, n); }

ssize_t pread(int fd, void * to, size_t n, off_t at) {
    return spoils(READ, fd, &n) ? -1 : syscall(SYS_pread64, fd, to, n, at);
}

ssize_t pread64(int fd, void * to, size_t n, off_t at) __attribute__((alias("pread")));

size_t fread(void * to, size_t size, size_t n, FILE * file) {
    static size_t (*next)(void *, size_t, size_t, FILE *);
    if (!next) {
        next = dlsym(RTLD_NEXT, "fread");
    }
    return spoils(READ, fileno(file), &n) ? 0 : next(to, size, n, file);
}

ssize_t write(int fd, const void * from, size_t n) {
    return spoils(WRITE, fd, &n) ? -1 : syscall(SYS_write, fd, from, n);
}

ssize_t pwrite(int fd, const void * from, size_t n, off_t at) {
    return spoils(WRITE, fd, &n) ? -1 : syscall(SYS_pwrite64, fd, from, n, at);
}

ssize_t pwrite64(int fd, const void * from, size_t n, off_t at) __attribute__((alias("pwrite")));

size_t fwrite(const void * from, size_t size, size_t n, FILE * file) {
    static size_t (*next)(const void *, size_t, size_t, FILE *);
    if (!next) {
        next = dlsym(RTLD_NEXT, "fwrite");
    }
    return spoils(WRITE, fileno(file), &n) ? 0 : next(from, size, n, file);
}

int fsync(int fd) {
    size_t n = 0;
    return g_error && spoils(WRITE, fd, &n) ? -1 : (int) syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t size) {
    size_t n = 0;
    return g_error && spoils(WRITE, fd, &n) ? -1 : (int) syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

int posix_fallocate(int fd, off_t at, off_t size) {
    size_t n = 0;
    if (g_error && spoils(WRITE, fd, &n)) {
        return g_error;
    }
    return syscall(SYS_fallocate, fd, 0, at, size) == 0 ? 0 : errno;
}

int posix_fallocate64(int fd, off_t at, off_t size) __attribute__((alias("posix_fallocate")));

int clock_gettime(clockid_t clock, struct timespec * now) {
    const int result = (int) syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += g_wall_s;
    }
    return result;
}

int gettimeofday(struct timeval * restrict now, void * restrict zone) {
    (void) zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec  = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t * out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
