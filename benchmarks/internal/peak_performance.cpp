// Peak performance of a machine's cores, for benchmarks/internal/kernels.py: memory bandwidth, and operations per
// second of the instructions that matrix products use. A multiplication and an addition count as two operations.
//
//     peak_performance N_THREADS SECONDS   prints a line of JSON; each figure is the best of several windows
//
// Compile for the CPU at hand: c++ -std=c++17 -O3 -march=native -pthread
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#    include <immintrin.h>
#    if defined(__AMX_INT8__) && defined(__linux__)
#        include <sys/syscall.h>
#        include <unistd.h>
#        define BYTES_IN_TILES
#    endif
#    define REGISTER "x"
#else
#    include <arm_neon.h>
#    define REGISTER "w"
#endif

namespace {

using Clock = std::chrono::steady_clock;

constexpr int    N_WINDOWS  = 5;
constexpr int    N_SUMS     = 12;          // independent ones, so that none waits for another
constexpr int    N_TURNS    = 4096;        // between two looks at the clock
constexpr size_t BYTES_READ = 256u << 20;  // by each thread: far more than caches hold
constexpr size_t BYTES_PART = 1u << 20;    // between two looks at the clock

std::atomic<uint64_t> g_sink;  // results go here, so that the compiler cannot leave the work out

#if defined(__AVX512F__)
struct FloatProducts {
    static constexpr const char * name  = "AVX-512 fma";
    static constexpr double       n_ops = 32;
    using Vector                        = __m512;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
};
#elif defined(__FMA__)
struct FloatProducts {
    static constexpr const char * name  = "AVX2 fma";
    static constexpr double       n_ops = 16;
    using Vector                        = __m256;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
};
#elif defined(__x86_64__)
struct FloatProducts {
    static constexpr const char * name  = "SSE mul + add";
    static constexpr double       n_ops = 8;
    using Vector                        = __m128;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm_add_ps(sum, _mm_mul_ps(a, b)); }
};
#else
struct FloatProducts {
    static constexpr const char * name  = "NEON fma";
    static constexpr double       n_ops = 8;
    using Vector                        = float32x4_t;
    static Vector step(Vector sum, Vector a, Vector b) { return vfmaq_f32(sum, a, b); }
};
#endif

#if defined(__AVX512BF16__)
struct Bf16Products {
    static constexpr const char * name  = "AVX-512 BF16 dpbf16ps";
    static constexpr double       n_ops = 64;
    using Vector                        = __m512;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
};
#endif

#ifdef BYTES_IN_TILES
// Whether the system gives this process the registers.
bool may_use_tiles() {
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

struct Tiles {
    Tiles() {
        struct alignas(64) {
            uint8_t  palette = 1, rest[15] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t  rows[16]      = {16, 16, 16, 16, 16, 16, 16, 16};
        } const shapes;
        asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
};

struct TileProducts : Tiles {
    static constexpr const char * name = "AMX tdpbssd";

    double operator()() const {
        for (int turn = 0; turn < N_TURNS; turn++) {
            asm volatile(
                "tdpbssd %tmm7, %tmm6, %tmm0\n tdpbssd %tmm7, %tmm6, %tmm1\n"
                "tdpbssd %tmm7, %tmm6, %tmm2\n tdpbssd %tmm7, %tmm6, %tmm3\n");
        }
        return 4.0 * N_TURNS * 2 * 16 * 16 * 64;
    }
};

struct Bf16TileProducts : Tiles {
    static constexpr const char * name = "AMX tdpbf16ps, twice";  // an activation is two numbers

    double operator()() const {
        for (int turn = 0; turn < N_TURNS; turn++) {
            asm volatile(
                "tdpbf16ps %tmm7, %tmm6, %tmm0\n tdpbf16ps %tmm7, %tmm6, %tmm1\n"
                "tdpbf16ps %tmm7, %tmm6, %tmm2\n tdpbf16ps %tmm7, %tmm6, %tmm3\n");
        }
        return 4.0 * N_TURNS * 2 * 16 * 16 * 32 / 2;
    }
};
#endif

#if defined(__AVX512VNNI__)
struct ByteProducts {
    static constexpr const char * name  = "AVX-512 VNNI dpbusd";
    static constexpr double       n_ops = 128;
    using Vector                        = __m512i;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm512_dpbusd_epi32(sum, a, b); }
};
#elif defined(__AVXVNNI__)
struct ByteProducts {
    static constexpr const char * name  = "AVX-VNNI dpbusd";
    static constexpr double       n_ops = 64;
    using Vector                        = __m256i;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
};
#elif defined(__AVX512BW__)
struct ByteProducts {
    static constexpr const char * name  = "AVX-512 maddubs + add";
    static constexpr double       n_ops = 128;
    using Vector                        = __m512i;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b)); }
};
#elif defined(__AVX2__)
struct ByteProducts {
    static constexpr const char * name  = "AVX2 maddubs + add";
    static constexpr double       n_ops = 64;
    using Vector                        = __m256i;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); }
};
#elif defined(__x86_64__)
struct ByteProducts {
    static constexpr const char * name  = "SSE2 madd + add";  // products of 16-bit numbers: bytes have none
    static constexpr double       n_ops = 16;
    using Vector                        = __m128i;
    static Vector step(Vector sum, Vector a, Vector b) { return _mm_add_epi32(sum, _mm_madd_epi16(a, b)); }
};
#elif defined(__ARM_FEATURE_MATMUL_INT8)
struct ByteProducts {
    static constexpr const char * name  = "NEON smmla";
    static constexpr double       n_ops = 64;
    using Vector                        = int32x4_t;
    static Vector step(Vector sum, Vector a, Vector b) {
        return vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
    }
};
#elif defined(__ARM_FEATURE_DOTPROD)
struct ByteProducts {
    static constexpr const char * name  = "NEON sdot";
    static constexpr double       n_ops = 32;
    using Vector                        = int32x4_t;
    static Vector step(Vector sum, Vector a, Vector b) {
        return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
    }
};
#else
struct ByteProducts {
    static constexpr const char * name  = "NEON smlal";
    static constexpr double       n_ops = 8;
    using Vector                        = int32x4_t;
    static Vector step(Vector sum, Vector a, Vector b) {
        return vmlal_s16(sum, vget_low_s16(vreinterpretq_s16_s32(a)), vget_low_s16(vreinterpretq_s16_s32(b)));
    }
};
#endif

// Operations done by one look at the clock's worth of instructions.
template <class Products>
double compute() {
    typename Products::Vector sums[N_SUMS] = {}, a = {}, b = {};
    for (int turn = 0; turn < N_TURNS; turn++) {
        for (auto & sum : sums) {
            sum = Products::step(sum, a, b);
            // As if all had changed: no product serves many sums, and each sum stays in its register.
            asm volatile("" : "+" REGISTER(sum), "+" REGISTER(a), "+" REGISTER(b));
        }
    }
    return Products::n_ops * N_SUMS * N_TURNS;
}

// Bytes read by one look at the clock's worth of sums.
double read(const std::vector<uint64_t> & memory, size_t & at) {
    constexpr size_t n   = BYTES_PART / sizeof(uint64_t);
    uint64_t         sum = 0;
    for (size_t i = at; i < at + n; i++) {
        sum += memory[i];
    }
    at = at + n == memory.size() ? 0 : at + n;
    g_sink += sum;
    return BYTES_PART;
}

// The sum over threads of what `part` returns per second, the best of all windows. `make_part` is called in each
// thread.
template <class MakePart>
double best_rate(int n_threads, double seconds, const MakePart & make_part) {
    std::vector<std::vector<double>> rates(N_WINDOWS, std::vector<double>(n_threads));
    std::atomic<int>                 n_arrived{0};
    auto                             work = [&](int thread) {
        auto part = make_part();
        for (int window = 0; window < N_WINDOWS; window++) {
            n_arrived++;
            while (n_arrived < n_threads * (window + 1)) {
                std::this_thread::yield();
            }
            const auto start   = Clock::now();
            double     done    = 0;
            double     elapsed = 0;
            while (elapsed < seconds) {
                done += part();
                elapsed = std::chrono::duration<double>(Clock::now() - start).count();
            }
            rates[window][thread] = done / elapsed;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; i++) {
        threads.emplace_back(work, i);
    }
    for (auto & thread : threads) {
        thread.join();
    }
    double best = 0;
    for (const auto & window : rates) {
        double sum = 0;
        for (const double rate : window) {
            sum += rate;
        }
        best = std::max(best, sum);
    }
    return best;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 3 || std::atoi(argv[1]) < 1 || std::atof(argv[2]) <= 0) {
        std::fprintf(stderr, "usage: %s N_THREADS SECONDS\n", argv[0]);
        return 2;
    }
    const int    n_threads = std::atoi(argv[1]);
    const double seconds   = std::atof(argv[2]);
    const double bytes     = best_rate(n_threads, seconds, [] {
        return [memory = std::vector<uint64_t>(BYTES_READ / sizeof(uint64_t), 1), at = size_t(0)]() mutable {
            return read(memory, at);
        };
    });
    const char * byte_name = ByteProducts::name;
    double       integers  = best_rate(n_threads, seconds, [] { return compute<ByteProducts>; });
    const double floats    = best_rate(n_threads, seconds, [] { return compute<FloatProducts>; });
    const char * bf16_name = FloatProducts::name;
    double       bf16      = floats;
#ifdef __AVX512BF16__
    bf16_name = Bf16Products::name;
    bf16      = best_rate(n_threads, seconds, [] { return compute<Bf16Products>; });
#endif
#ifdef BYTES_IN_TILES
    if (may_use_tiles()) {
        byte_name = TileProducts::name;
        integers  = best_rate(n_threads, seconds, [] { return TileProducts(); });
        bf16_name = Bf16TileProducts::name;
        bf16      = best_rate(n_threads, seconds, [] { return Bf16TileProducts(); });
    }
#endif
    std::printf("{\"read_bytes_per_s\": %.4g", bytes);
    std::printf(", \"byte_instructions\": \"%s\", \"byte_ops_per_s\": %.4g", byte_name, integers);
    std::printf(", \"float_instructions\": \"%s\", \"float_ops_per_s\": %.4g", FloatProducts::name, floats);
    std::printf(", \"bf16_instructions\": \"%s\", \"bf16_ops_per_s\": %.4g}\n", bf16_name, bf16);
    return 0;
}
