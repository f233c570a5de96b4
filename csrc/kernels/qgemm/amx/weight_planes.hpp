// A tile's weights as AMX's registers take them: planes of bytes.
//
// Where segments have integer scales, weights are multiplied with them as they are unpacked, so that a whole block can
// be added up without leaving the registers. Such a product has up to 14 bits and two planes: it is the byte of plane
// 0, without sign, plus the byte of plane 1 times two to the RADIX_BITS.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#include "kernels/simd/amx.hpp"

namespace pyg::kernels {

// How the weights of a type become planes.
template <class Type>
struct PlanesOf {
    static constexpr bool SCALED = Type::SEGMENT != Type::BLOCK;
    static constexpr int  N      = SCALED ? 2 : 1;
    static constexpr int  VALUES = SCALED ? amx::ROW_BYTES : Type::BLOCK;  // of each row, multiplied at once

    // Scales that come with minima have 6 bits and no sign: plane 0 is the weights times the low 3 bits, plane 1 times
    // the high ones. Other products have a sign, and are cut into bytes.
    static constexpr int  RADIX_BITS = Type::MINIMA ? 3 : 8;
    static constexpr bool WITH_SIGN  = !Type::MINIMA;  // has plane 1, or the only one

    static constexpr bool fits() {
        if constexpr (SCALED && Type::MINIMA) {
            return Type::BLOCK == TILE_K && Type::PLUS == 0 && Type::SCALE_BITS <= 6 && 7 * Type::MOST < 256;
        } else if constexpr (SCALED) {
            return Type::BLOCK == TILE_K && Type::SCALE_BITS <= 8;
        }
        return true;
    }
    static_assert(fits());
};

template <class Type>
struct alignas(64) Planes {
    uint8_t values[PlanesOf<Type>::N][TILE_K / 4][amx::ROW_BYTES];  // [plane][k / 4][16 rows][4 values]
    Factors factors;
    bool    finite = true;  // whether all factors d are numbers
};

// Takes the units of a part, as SegmentSums does (gemv.hpp), and writes them as planes.
template <class Type>
class WrittenPlanes {
  public:
    // Of a block whose first segment is `block_segment`.
    PYG_INLINE WrittenPlanes(Planes<Type> & planes, int64_t block_segment, int64_t part)
        : planes_(planes), block_segment_(block_segment), part_(part) {
        if constexpr (PlanesOf<Type>::SCALED) {
            unrolled<SEGMENTS>([&](auto i) PYG_INLINE { read_scale(i); });
        }
    }

    template <int I, int STEP>
    PYG_INLINE void add(const Ints & weights) {
        const int64_t at = segment(I) * (Type::SEGMENT / 4) + STEP;
        if constexpr (!PlanesOf<Type>::SCALED) {
            write<0>(at, add_bytes(weights, -Type::PLUS));
        } else if constexpr (Type::MINIMA) {
            // Two bytes at a time: their products do not run over.
            write<0>(at, multiply_words(weights, scales_[I][0]));
            write<1>(at, multiply_words(weights, scales_[I][1]));
        } else {
            const Ints even = subtract_words(products_of_two(weights, scales_[I][0]), excess_[I]);
            const Ints odd  = subtract_words(products_of_two(weights, scales_[I][1]), excess_[I]);
            write<0>(at, alternating(even, up<8>(odd)));
            write<1>(at, alternating(down<8>(even), odd));
        }
    }

  private:
    static constexpr int SEGMENTS = segments_of_block<Type>() / Type::PARTS;

    PYG_INLINE int64_t segment(int i) const { return block_segment_ + Type::segment_of(part_, i); }

    PYG_INLINE void read_scale(int i) {
        const Ints scale = load(planes_.factors.scales[segment(i)]);
        const Ints words = pairs(scale, scale);
        if constexpr (Type::MINIMA) {
            scales_[i][0] = masked(words, 7);
            scales_[i][1] = down<3>(words);
        } else {  // of which bytes with a sign are meant, beside zeros
            scales_[i][0] = low_bytes(words);
            scales_[i][1] = up<8>(words);
            excess_[i]    = multiply_words(words, everywhere(Type::PLUS * 0x10001));
        }
    }

    template <int PLANE>
    PYG_INLINE void write(int64_t at, const Ints & bytes) {
        store(planes_.values[PLANE][at], bytes);
    }

    Planes<Type> & planes_;
    const int64_t  block_segment_;
    const int64_t  part_;
    Ints           scales_[SEGMENTS][2];  // for plane 0 and 1, or for even and odd values
    Ints           excess_[SEGMENTS];     // PLUS times the scale
};

// Unpacks `n_blocks` of a group.
template <class Type>
PYG_ALONE void write_planes(const uint8_t * block, int n_blocks, Planes<Type> & planes) {
    static_assert(PlanesOf<Type>::SCALED || Type::BLOCK == 32);
    for (int b = 0; b < n_blocks; ++b, block += block_bytes<Type>()) {
        Type::factors(block, planes.factors, b);
        planes.finite = (b == 0 || planes.finite) && are_finite(load_floats(planes.factors.d[b]));
        for (int64_t part = 0; part < Type::PARTS; ++part) {
            ask_ahead<Type>(block, part);
            WrittenPlanes<Type> written(planes, b * segments_of_block<Type>(), part);
            add_units<Type>(block, part, written, std::make_integer_sequence<int, Type::UNITS>());
        }
    }
}

}  // namespace pyg::kernels
