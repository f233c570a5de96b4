// Planes of bytes: a tile's weights in the layout of AMX registers.
//
// Where sub-blocks have integer scales, weights are multiplied with them as they are unpacked, so that a whole block
// can be added up without leaving the registers. Such a product has up to 14 bits and two planes: it is the byte of
// plane 0, without sign, plus the byte of plane 1 times two to the RADIX_BITS.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#include "kernels/simd/amx.hpp"

namespace pyg::kernels {

// Layout of a weight type's planes.
template <class Type>
struct PlanesOf {
    static constexpr bool SCALED = Type::SUB_BLOCK != Type::BLOCK;
    static constexpr int  N      = SCALED ? 2 : 1;
    static constexpr int  VALUES = SCALED ? amx::ROW_BYTES : Type::BLOCK;  // of each row, multiplied at once

    // Scales that come with minima have 6 bits and no sign: plane 0 is the weights times the low 3 bits, plane 1 times
    // the high ones. Other products have a sign, and are cut into bytes.
    static constexpr int  RADIX_BITS = Type::HAS_MIN ? 3 : 8;
    static constexpr bool WITH_SIGN  = !Type::HAS_MIN;  // has plane 1, or the only one

    static constexpr bool fits() {
        if constexpr (SCALED && Type::HAS_MIN) {
            return Type::BLOCK == TILE_K && Type::ZERO_POINT == 0 && Type::SCALE_BITS <= 6 && 7 * Type::MAX_VALUE < 256;
        } else if constexpr (SCALED) {
            return Type::BLOCK == TILE_K && Type::SCALE_BITS <= 8;
        }
        return true;
    }
    static_assert(fits());
};

template <class Type>
struct alignas(64) Planes {
    uint8_t     values[PlanesOf<Type>::N][TILE_K / 4][amx::ROW_BYTES];  // [plane][k / 4][16 rows][4 values]
    BlockScales scales;
    bool        finite = true;  // whether all factors d are numbers
};

// Takes the units of a part, as SubBlockSums does (gemv.hpp), and writes them as planes.
template <class Type>
class PlaneWriter {
  public:
    // Of a block whose first sub-block is `first_sub_block`.
    PYG_INLINE PlaneWriter(Planes<Type> & planes, int64_t first_sub_block, int64_t part)
        : planes_(planes), first_sub_block_(first_sub_block), part_(part) {
        if constexpr (PlanesOf<Type>::SCALED) {
            unroll<SUB_BLOCKS>([&](auto i) PYG_INLINE { read_scale(i); });
        }
    }

    template <int I, int STEP>
    PYG_INLINE void add(const Ints & weights) {
        const int64_t at = sub_block(I) * (Type::SUB_BLOCK / 4) + STEP;
        if constexpr (!PlanesOf<Type>::SCALED) {
            write<0>(at, add_bytes(weights, -Type::ZERO_POINT));
        } else if constexpr (Type::HAS_MIN) {
            // Two bytes at a time: their products do not run over.
            write<0>(at, mullo_words(weights, scales_[I][0]));
            write<1>(at, mullo_words(weights, scales_[I][1]));
        } else {
            const Ints even = sub_words(maddubs(weights, scales_[I][0]), excess_[I]);
            const Ints odd  = sub_words(maddubs(weights, scales_[I][1]), excess_[I]);
            write<0>(at, blend_bytes(even, shift_left<8>(odd)));
            write<1>(at, blend_bytes(shift_right<8>(even), odd));
        }
    }

  private:
    static constexpr int SUB_BLOCKS = sub_blocks_per_block<Type>() / Type::PARTS;

    PYG_INLINE int64_t sub_block(int i) const { return first_sub_block_ + Type::sub_block_of(part_, i); }

    PYG_INLINE void read_scale(int i) {
        const Ints scale = Ints::load_bits(planes_.scales.sub_scales[sub_block(i)]);
        const Ints words = pack_words(scale, scale);
        if constexpr (Type::HAS_MIN) {
            scales_[i][0] = and_mask(words, 7);
            scales_[i][1] = shift_right<3>(words);
        } else {  // of which signed bytes are meant, next to zeros
            scales_[i][0] = low_bytes(words);
            scales_[i][1] = shift_left<8>(words);
            excess_[i]    = mullo_words(words, Ints::set1(Type::ZERO_POINT * 0x10001));
        }
    }

    template <int PLANE>
    PYG_INLINE void write(int64_t at, const Ints & bytes) {
        bytes.store(planes_.values[PLANE][at]);
    }

    Planes<Type> & planes_;
    const int64_t  first_sub_block_;
    const int64_t  part_;
    Ints           scales_[SUB_BLOCKS][2];  // for plane 0 and 1, or for even and odd values
    Ints           excess_[SUB_BLOCKS];     // ZERO_POINT times the scale
};

// Unpacks `n_blocks` of a group.
template <class Type>
PYG_NOINLINE void write_planes(const uint8_t * block, int n_blocks, Planes<Type> & planes) {
    static_assert(PlanesOf<Type>::SCALED || Type::BLOCK == 32);
    for (int b = 0; b < n_blocks; ++b, block += block_bytes<Type>()) {
        Type::unpack_scales(block, planes.scales, b);
        planes.finite = (b == 0 || planes.finite) && are_finite(Floats::load(planes.scales.d[b]));
        for (int64_t part = 0; part < Type::PARTS; ++part) {
            prefetch_weights<Type>(block, part);
            PlaneWriter<Type> written(planes, b * sub_blocks_per_block<Type>(), part);
            unpack_units<Type>(block, part, written, std::make_integer_sequence<int, Type::LOADS_PER_PART>());
        }
    }
}

}  // namespace pyg::kernels
