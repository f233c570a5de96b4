/* Included before upstream's code for AMX (ggml-cpu/amx/mmq.cpp), which computes where our kernels are turned off.
 *
 * gcc's function that loads the registers' shapes says that it reads 8 of their 64 bytes. The others are then left out,
 * and the next instruction ends the process (llama.cpp's pull request 26954). Its function that loads a register does not
 * say that it reads memory at all, so that what was just written there may come too late. */
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__AMX_TILE__)
#    include <immintrin.h>

static inline void pyg_load_tile_shapes(const void * shapes) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])shapes));
}
#    define _tile_loadconfig pyg_load_tile_shapes

#    ifdef _tile_loadd_internal
#        undef _tile_loadd_internal
#        define _tile_loadd_internal(number, rows, stride)                                                             \
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #number ::"r"((const void *)(rows)), "r"((long)(stride))     \
                             : "memory")
#    endif
#endif
