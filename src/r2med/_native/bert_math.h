/* Arithmetic of bert.c on sixteen floats at once, in an order that no processor changes.
 *
 * Every function is a fixed sequence of additions, products, quotients and comparisons of 32-bit floats, each rounded
 * once as IEEE 754 says. So it gives the same bits whatever vectors the compiler makes of it, and in plain C too. */
#ifndef R2MED_BERT_MATH_H
#define R2MED_BERT_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"

#if defined(PARTS)
#include "bert_parts.h"
#elif defined(__GNUC__) && !defined(R2_PORTABLE)

typedef int32_t Whole __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(32)));

#define FOUR(v) v, v, v, v
INLINE Lanes splat(float value) { return (Lanes){FOUR(value), FOUR(value), FOUR(value), FOUR(value)}; }
#undef FOUR
INLINE Lanes minus(Lanes a, Lanes b) { return a - b; }
INLINE Lanes divide(Lanes a, Lanes b) { return a / b; }
INLINE Lanes choose(Whole first, Lanes a, Lanes b) { return (Lanes)(((Whole)a & first) | ((Whole)b & ~first)); }
INLINE Whole below(Lanes a, Lanes b) { return a < b; }
INLINE Lanes from_whole(Whole a) { return __builtin_convertvector(a, Lanes); }
INLINE Lanes magnitude(Lanes a) { return (Lanes)((Whole)a & 0x7fffffff); }
INLINE Lanes scaled(Lanes a, Lanes power) { return (Lanes)((Bits)a + ((Bits)power << 23)); }
INLINE Whole either(Whole a, Whole b) { return a | b; }
INLINE Whole nothing(void) { return (Whole){0}; }
INLINE Whole difference(Whole a, Whole b) { return a - b; }
INLINE Whole larger(Whole a, Whole b) {
#ifdef LARGER
    return LARGER(a, b);
#else
    const Whole first = a > b;
    return (a & first) | (b & ~first);
#endif
}
INLINE void put_bytes(Lanes a, uint8_t *out) {
    const Bytes bytes = __builtin_convertvector((Bits)a & 255, Bytes);
    memcpy(out, &bytes, sizeof bytes);
}
INLINE void put_shorts(Lanes a, int16_t *out) {
    const Shorts shorts = __builtin_convertvector((Whole)a, Shorts);
    memcpy(out, &shorts, sizeof shorts);
}

#else

typedef struct {
    int32_t lane[LANES];
} Whole;

#define EACH for (int i = 0; i < LANES; i++)
INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
INLINE float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
INLINE Lanes splat(float value) {
    Lanes made;
    EACH made.lane[i] = value;
    return made;
}
INLINE Lanes minus(Lanes a, Lanes b) {
    EACH a.lane[i] -= b.lane[i];
    return a;
}
INLINE Lanes divide(Lanes a, Lanes b) {
    EACH a.lane[i] /= b.lane[i];
    return a;
}
INLINE Lanes choose(Whole first, Lanes a, Lanes b) {
    EACH a.lane[i] = first.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
INLINE Whole below(Lanes a, Lanes b) {
    Whole made;
    EACH made.lane[i] = a.lane[i] < b.lane[i] ? -1 : 0;
    return made;
}
INLINE Lanes from_whole(Whole a) {
    Lanes made;
    EACH made.lane[i] = (float)a.lane[i];
    return made;
}
INLINE Lanes magnitude(Lanes a) {
    EACH a.lane[i] = of_bits(bits_of(a.lane[i]) & 0x7fffffff);
    return a;
}
INLINE Lanes scaled(Lanes a, Lanes power) {
    EACH a.lane[i] = of_bits(bits_of(a.lane[i]) + (bits_of(power.lane[i]) << 23));
    return a;
}
INLINE Whole either(Whole a, Whole b) {
    EACH a.lane[i] |= b.lane[i];
    return a;
}
INLINE Whole nothing(void) {
    Whole made = {{0}};
    return made;
}
INLINE Whole difference(Whole a, Whole b) {
    EACH a.lane[i] -= b.lane[i];
    return a;
}
INLINE Whole larger(Whole a, Whole b) {
    EACH a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
INLINE void put_bytes(Lanes a, uint8_t *out) { EACH out[i] = (uint8_t)(bits_of(a.lane[i]) & 255); }
INLINE void put_shorts(Lanes a, int16_t *out) {
    EACH {
        const uint16_t low = (uint16_t)bits_of(a.lane[i]);
        memcpy(out + i, &low, sizeof low);
    }
}
#undef EACH

#endif

/* Added to a number below 2^22, it rounds it to a whole one, half to even, which then stands in the lowest bits. */
#define ROUNDER 12582912.0f
enum { CHUNK = 4 * LANES };

typedef struct {
    Lanes low, high;
} Range;

#ifndef PARTS
INLINE void put(Lanes a, float *out) { memcpy(out, &a, sizeof a); }
INLINE Whole wholes_at(const int32_t *values) {
    Whole whole;
    memcpy(&whole, values, sizeof whole);
    return whole;
}
INLINE void put_whole(Whole whole, int32_t *out) { memcpy(out, &whole, sizeof whole); }
#endif
#ifndef LOWER /* as the instructions of x86, too: b where one of both is no number */
#define LOWER(a, b) choose(below(a, b), a, b)
#define HIGHER(a, b) choose(below(b, a), a, b)
#endif
INLINE Lanes lower(Lanes a, Lanes b) { return LOWER(a, b); }
INLINE Lanes higher(Lanes a, Lanes b) { return HIGHER(a, b); }
INLINE Lanes within(Lanes a, float most) { return lower(higher(a, splat(-most)), splat(most)); }
INLINE Lanes plus_product(Lanes a, Lanes b, float c) { return add(multiply(a, b), splat(c)); }

INLINE int any(Whole whole) {
    uint64_t parts[LANES / 2], found = 0;
    memcpy(parts, &whole, sizeof parts);
    for (int i = 0; i < LANES / 2; i++) found |= parts[i];
    return found != 0;
}

/* Sixteen numbers joined: both halves, then both halves of these, and so on, in the order of `total`. */
#if defined(__GNUC__) && !defined(R2_PORTABLE) && !defined(PARTS)
#ifdef __clang__
#define TURNED(a, ...) __builtin_shufflevector(a, a, __VA_ARGS__)
#else
#define TURNED(a, ...) __builtin_shuffle(a, (Whole){__VA_ARGS__})
#endif
#define FOLDED(name, type, join) \
    INLINE type name(type a) { \
        a = join(a, TURNED(a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)); \
        a = join(a, TURNED(a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)); \
        a = join(a, TURNED(a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)); \
        return join(a, TURNED(a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)); \
    }
FOLDED(all_added, Lanes, add)
FOLDED(all_higher, Lanes, higher)
FOLDED(all_larger, Whole, larger)
#undef TURNED
#undef FOLDED
INLINE float sum_of(Lanes lanes) { return all_added(lanes)[0]; }
INLINE float highest(Lanes lanes) { return all_higher(lanes)[0]; }
INLINE int32_t largest_of(Whole whole) { return all_larger(whole)[0]; }
#else
#define HALVING(name, type, number, store, join) \
    INLINE number name(type lanes) { \
        number parts[LANES]; \
        store(lanes, parts); \
        for (int half = LANES / 2; half; half /= 2) \
            for (int lane = 0; lane < half; lane++) parts[lane] = join(parts[lane], parts[lane + half]); \
        return parts[0]; \
    }
#define PLUS(a, b) ((a) + (b))
#define MOST(a, b) ((b) > (a) ? (b) : (a))
HALVING(sum_of, Lanes, float, put, PLUS)
HALVING(highest, Lanes, float, put, MOST)
HALVING(largest_of, Whole, int32_t, put_whole, MOST)
#endif

/* Zero is always in the range: the quantization of the graph wants it so. */
INLINE Range empty_range(void) { return (Range){zeros(), zeros()}; }
INLINE void widen(Range *range, Lanes a) {
    range->low = lower(a, range->low), range->high = higher(a, range->high);
}

/* 2^x for x up to 0, to 3 in a million; what is no number counts as the lowest. */
INLINE Lanes power_of_two(Lanes x) {
    x = higher(x, splat(-126.0f));
    const Lanes power = add(x, splat(ROUNDER)), rest = minus(x, minus(power, splat(ROUNDER)));
    Lanes sum = splat(0.009560510516166687f);
    sum = plus_product(sum, rest, 0.05591703951358795f);
    sum = plus_product(sum, rest, 0.24024981260299683f);
    sum = plus_product(sum, rest, 0.6931219696998596f);
    sum = plus_product(sum, rest, 0.9999991655349731f);
    return scaled(sum, power);
}

/* x (1 + erf(x / sqrt 2)) / 2 to 0.0000013: the error function is odd, and its polynomial in a number from -1 to 1 is
 * the best one in the sense of least squares. Even and odd powers take turns, so that neither waits for the other. */
INLINE Lanes gelu(Lanes x) {
    const Lanes near = within(x, 5.0f), t = plus_product(multiply(near, near), splat(0.08f), -1.0f);
    const Lanes square = multiply(t, t);
    Lanes even = splat(0.0005948293837718666f), odd = splat(-0.0016115553444251418f);
    even = plus_product(even, square, 0.0017659978475421667f), odd = plus_product(odd, square, -0.0026921012904495f);
    even = plus_product(even, square, 0.006361238192766905f), odd = plus_product(odd, square, -0.011156444437801838f);
    even = plus_product(even, square, 0.016427546739578247f), odd = plus_product(odd, square, -0.023272506892681122f);
    even = plus_product(even, square, 0.03143639117479324f), odd = plus_product(odd, square, -0.040441881865262985f);
    even = plus_product(even, square, 0.05152099207043648f), odd = plus_product(odd, square, -0.07029631733894348f);
    even = plus_product(even, square, 0.14136378467082977f);
    const Lanes half = multiply(near, add(even, multiply(odd, t)));
    return multiply(x, add(half, splat(0.5f)));
}

/* How the floats of one tensor become bytes, as ONNX's DynamicQuantizeLinear has it. */
typedef struct {
    float scale, inverse;
    int32_t zero;
} Step;

INLINE Step step_of(Range range) {
    const float low = -highest(minus(zeros(), range.low)), high = highest(range.high);
    Step step = {high > low ? (high - low) / 255.0f : 1.0f, 0, 0};
    if (!(step.scale > 0)) step.scale = 1.0f; /* numbers too small to be told apart, or none */
    step.inverse = 1.0f / step.scale;
    float zero = (0.0f - low) / step.scale;
    zero = zero > 0 ? zero < 255 ? zero : 255 : 0;
    step.zero = (int32_t)((zero + ROUNDER) - ROUNDER);
    return step;
}

/* A product with the inverse is off by less than 0.00005 from the quotient that is meant, and takes a third of the
 * time. Where that may change what is rounded to, the quotient is taken. */
INLINE Lanes to_bytes(Lanes quotient, Lanes zero) {
    const Lanes moved = add(minus(add(quotient, splat(ROUNDER)), splat(ROUNDER)), zero);
    return add(lower(higher(moved, zeros()), splat(255.0f)), splat(ROUNDER));
}

INLINE void quantize(const float *in, int64_t count, Step step, uint8_t *out) {
    const Lanes inverse = splat(step.inverse), zero = splat((float)step.zero);
    for (int64_t begin = 0; begin < count; begin += CHUNK) {
        const int64_t end = begin + CHUNK < count ? begin + CHUNK : count;
        Whole close = nothing();
        for (int64_t i = begin; i < end; i += LANES) {
            const Lanes about = multiply(at(in + i), inverse);
            const Lanes rounded = minus(add(about, splat(ROUNDER)), splat(ROUNDER));
            close = either(close, below(splat(0.4999f), magnitude(minus(about, rounded))));
            put_bytes(to_bytes(about, zero), out + i);
        }
        if (any(close))
            for (int64_t i = begin; i < end; i += LANES)
                put_bytes(to_bytes(divide(at(in + i), splat(step.scale)), zero), out + i);
    }
}

INLINE void layer_norm(const float *in, int64_t count, const float *weight, const float *bias, float epsilon,
                       float *out, Range *range) {
    Lanes sum = zeros();
    for (int64_t i = 0; i < count; i += LANES) sum = add(sum, at(in + i));
    const Lanes mean = splat(sum_of(sum) / (float)count);
    sum = zeros();
    for (int64_t i = 0; i < count; i += LANES) {
        const Lanes rest = minus(at(in + i), mean);
        sum = add(sum, multiply(rest, rest));
    }
    const Lanes deviation = splat(sqrtf(sum_of(sum) / (float)count + epsilon));
    for (int64_t i = 0; i < count; i += LANES) {
        const Lanes made = add(multiply(divide(minus(at(in + i), mean), deviation), at(weight + i)), at(bias + i));
        widen(range, made);
        put(made, out + i);
    }
}

#endif
