// BF16 micro-kernel for AMX: rows of weights times columns of activations.
//
// A result is the sum over steps of 32 values from first to last; a step adds the products with the upper parts of the
// activations, then those with the rests. So the bits do not depend on the other rows and columns.
//
// With few columns, weights are read in place. With many, they are copied register by register, for as many steps as
// fit into L2 together with the columns; sums are kept in memory meanwhile.
#pragma once

#include "kernels/gemm/bf16_amx_activations.hpp"

namespace pyg::kernels {

constexpr int64_t BF16_TILE_ROWS      = 16;   // of a register
constexpr int64_t BF16_MAX_ROWS       = 256;  // of a block
constexpr int64_t BF16_MAX_ITEMS      = 16;   // of a block: its rows with as many times 32 columns
constexpr int64_t BF16_STEPS_AT_ONCE  = 16;
constexpr int64_t BF16_REGISTER_BYTES = BF16_TILE_ROWS * amx::ROW_BYTES;

// Sums of 16 rows times the columns of a register.
using Bf16Sums = float[BF16_TILE_ROWS][amx::COLUMNS];

// Addresses of the weights of 16 rows.
struct Bf16Tile {
    const char * first;       // the first step's weights of the first row
    int64_t      row_bytes;   // from a row to the next
    int64_t      step_bytes;  // from a step to the next
};

// Rows of a matrix in tiles of 16. The last tile overlaps the one before if rows are missing, so the matrix needs 16.
class Bf16Rows {
  public:
    static constexpr int64_t COPY_BYTES = BF16_STEPS_AT_ONCE * BF16_REGISTER_BYTES;  // of a tile's

    Bf16Rows(const char * first, size_t stride, int64_t n)
        : first_(first), stride_(static_cast<int64_t>(stride)), n_(n) {}

    static int64_t n_tiles(int64_t n_rows) { return (n_rows + BF16_TILE_ROWS - 1) / BF16_TILE_ROWS; }
    int64_t        n_tiles() const { return n_tiles(n_); }

    // A tile's first row.
    int64_t row(int64_t tile) const { return std::min(tile * BF16_TILE_ROWS, n_ - BF16_TILE_ROWS); }

    // Rows that a tile shares with the one before.
    int64_t n_repeated(int64_t tile) const { return tile * BF16_TILE_ROWS - row(tile); }

    // All steps of a tile.
    Bf16Tile in_file(int64_t tile) const { return {first_ + row(tile) * stride_, stride_, amx::ROW_BYTES}; }

    // Copy steps [begin, end) of a tile as [step][row][32].
    void copy(int64_t tile, int64_t begin, int64_t end, char * out) const {
        for (int64_t r = 0; r < BF16_TILE_ROWS; ++r) {
            const char * const from = first_ + (row(tile) + r) * stride_;
            for (int64_t step = begin; step < end; ++step) {
                std::memcpy(out + (step - begin) * BF16_REGISTER_BYTES + r * amx::ROW_BYTES,
                            from + step * amx::ROW_BYTES, amx::ROW_BYTES);
            }
        }
    }

    static Bf16Tile copied(const char * out) { return {out, amx::ROW_BYTES, BF16_REGISTER_BYTES}; }

  private:
    const char * first_;
    int64_t      stride_, n_;
};

// Add steps [begin, end) of one or two tiles to the sums; step 0 clears them. A tile's address is that of step `begin`.
// N_HALVES is the number of column registers.
template <int N_TILES, int N_HALVES>
PYG_NOINLINE void multiply_tiles(const Bf16Tile (&tiles)[N_TILES], const Bf16Columns (&halves)[2], int64_t begin,
                                 int64_t end, Bf16Sums (&sums)[2][2]) {
    const auto for_each = [](const auto & each) PYG_INLINE {
        unroll<N_TILES>([&](auto t) PYG_INLINE { unroll<N_HALVES>([&](auto h) PYG_INLINE { each(t, h); }); });
    };
    for_each([&](auto t, auto h) PYG_INLINE {
        if (begin == 0) {
            amx::clear<amx::SUMS + 2 * t + h>();
        } else {
            amx::load<amx::SUMS + 2 * t + h>(sums[t][h], amx::ROW_BYTES);
        }
    });
    for (int64_t step = begin; step < end; ++step) {
        unroll<N_TILES>([&](auto t) PYG_INLINE {
            amx::load<amx::LEFT + t>(tiles[t].first + (step - begin) * tiles[t].step_bytes, tiles[t].row_bytes);
        });
        unroll<Bf16Columns::TERMS>([&](auto term) PYG_INLINE {
            unroll<N_HALVES>(
                [&](auto h) PYG_INLINE { amx::load<amx::RIGHT + h>(halves[h].at(step, term), halves[h].stride()); });
            for_each([](auto t, auto h)
                         PYG_INLINE { amx::multiply_bf16<amx::SUMS + 2 * t + h, amx::LEFT + t, amx::RIGHT + h>(); });
        });
    }
    for_each([&](auto t, auto h) PYG_INLINE { amx::store<amx::SUMS + 2 * t + h>(sums[t][h]); });
}

// A block of rows times the packed columns of its work items. `scratch` has bytes() bytes; the caller releases the
// registers.
class Bf16Block {
  public:
    static size_t bytes(int64_t n_rows, int64_t n_items) {
        const int64_t n_tiles = Bf16Rows::n_tiles(std::min(n_rows, BF16_MAX_ROWS));
        return n_tiles * Bf16Rows::COPY_BYTES +
               (n_tiles + 1) / 2 * std::min(n_items, BF16_MAX_ITEMS) * sizeof(Bf16Sums[2][2]);
    }

    Bf16Block(const Bf16Rows & rows, int64_t n_steps, char * scratch)
        : rows_(rows), n_steps_(n_steps), n_pairs_((rows.n_tiles() + 1) / 2), copies_(scratch),
          sums_(reinterpret_cast<Bf16Sums (*)[2][2]>(scratch + rows.n_tiles() * Bf16Rows::COPY_BYTES)) {}

    // columns[p] are the halves of items[p].
    void multiply(const WorkItem * items, const Bf16Columns (*columns)[2], int64_t n_items) const {
        if (n_items == 1) {
            multiply_item(columns[0], 0, n_steps_, sums_, [&](int64_t tile) { return rows_.in_file(tile); });
        } else {
            for (int64_t step = 0; step < n_steps_; step += BF16_STEPS_AT_ONCE) {
                multiply_copies(columns, n_items, step, std::min(step + BF16_STEPS_AT_ONCE, n_steps_));
            }
        }
        for (int64_t p = 0; p < n_items; ++p) {
            store_results(items[p], columns[p], sums_ + p * n_pairs_);
        }
    }

  private:
    // Multiply some steps of all rows with all items.
    void multiply_copies(const Bf16Columns (*columns)[2], int64_t n_items, int64_t begin, int64_t end) const {
        const auto copy_of = [&](int64_t tile) { return copies_ + tile * Bf16Rows::COPY_BYTES; };
        for (int64_t tile = 0; tile < rows_.n_tiles(); ++tile) {
            rows_.copy(tile, begin, end, copy_of(tile));
        }
        for (int64_t p = 0; p < n_items; ++p) {
            multiply_item(columns[p], begin, end, sums_ + p * n_pairs_,
                          [&](int64_t tile) { return Bf16Rows::copied(copy_of(tile)); });
        }
    }

    // Multiply some steps of all rows with one item. A tile's address is that of step `begin`.
    template <class TileOf>
    void multiply_item(const Bf16Columns (&halves)[2], int64_t begin, int64_t end, Bf16Sums (*sums)[2][2],
                       const TileOf & tile_of) const {
        amx::prepare_bf16(static_cast<int>(halves[0].n), static_cast<int>(halves[1].n));
        int64_t tile = 0;
        for (; tile + 1 < rows_.n_tiles(); tile += 2) {
            multiply_halves<2>({tile_of(tile), tile_of(tile + 1)}, halves, begin, end, sums[tile / 2]);
        }
        if (tile < rows_.n_tiles()) {
            multiply_halves<1>({tile_of(tile)}, halves, begin, end, sums[tile / 2]);
        }
    }

    template <int N_TILES>
    static void multiply_halves(const Bf16Tile (&tiles)[N_TILES], const Bf16Columns (&halves)[2], int64_t begin,
                                int64_t end, Bf16Sums (&sums)[2][2]) {
        if (halves[1].n != 0) {
            multiply_tiles<N_TILES, 2>(tiles, halves, begin, end, sums);
        } else {
            multiply_tiles<N_TILES, 1>(tiles, halves, begin, end, sums);
        }
    }

    void store_results(const WorkItem & item, const Bf16Columns (&halves)[2], const Bf16Sums (*sums)[2][2]) const {
        for (int64_t tile = 0; tile < rows_.n_tiles(); ++tile) {
            for (int h = 0; h < 2 && halves[h].n != 0; ++h) {
                store_tile(item, halves[h], tile, sums[tile / 2][tile % 2][h]);
            }
        }
    }

    void store_tile(const WorkItem & item, const Bf16Columns & columns, int64_t tile, const Bf16Sums & sums) const {
        alignas(64) float by_column[amx::COLUMNS][BF16_TILE_ROWS];
        transpose(sums, by_column[0]);
        const int64_t n_repeated = rows_.n_repeated(tile);
        for (int64_t c = 0; c < columns.n; ++c) {
            std::memcpy(item.results[columns.first + c] + rows_.row(tile) + n_repeated, by_column[c] + n_repeated,
                        (BF16_TILE_ROWS - n_repeated) * sizeof(float));
        }
    }

    const Bf16Rows & rows_;
    const int64_t    n_steps_, n_pairs_;
    char * const     copies_;       // [tile] of some steps
    Bf16Sums (*const sums_)[2][2];  // [item][pair of tiles]
};

}  // namespace pyg::kernels
