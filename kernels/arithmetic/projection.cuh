// Integers modulo the two primes of random projections (ozaki/schemes/projections.py), p = 2^31 - GAP.
#pragma once
#include "arithmetic/common.cuh"

constexpr int PRIMES = 2;
HD constexpr uint32_t prime_gap(int i) { return i == 0 ? 19 : 61; }
HD constexpr uint32_t prime(int i) { return (1u << 31) - prime_gap(i); }

// A number that is x modulo p, by 2^31 = GAP: below 2^39 for any x, and below 2^32 for x < 2^57.
template <int I> HD uint64_t folded(uint64_t x) { return (x & 0x7fffffffu) + (x >> 31) * prime_gap(I); }

// p - 2^(32 limbs - 1) modulo p.
HD constexpr uint32_t negative_half(int i, int limbs) {
  uint64_t power = 1;
  for (int bit = 0; bit < 32 * limbs - 1; ++bit) power = power * 2 % prime(i);
  return static_cast<uint32_t>(prime(i) - power);
}

// A number below 2^32 that is an integer in two's complement, LENGTH limbs, lowest first, modulo p. With its sign bit
// flipped it is 2^(32 LENGTH - 1) larger, and not negative.
template <int I, int LENGTH> HD uint32_t residue_of_limbs(const uint32_t (&limbs)[LENGTH]) {
  constexpr uint32_t OFFSET = negative_half(I, LENGTH);
  uint64_t x = limbs[LENGTH - 1] ^ 0x80000000u;
#pragma unroll
  for (int w = LENGTH - 2; w >= 0; --w) {
    if ((LENGTH - 1 - w) % 4 == 0) x = folded<I>(x);          // three steps add at most 21 bits to 39
    x = x * (2 * prime_gap(I)) + limbs[w];                    // by 2^32 = 2 GAP
  }
  return static_cast<uint32_t>(folded<I>(folded<I>(x + OFFSET)));
}

// A number below 2^39 that is the product of x < 2^32 and y < 2^31 modulo p.
template <int I> HD uint64_t product_modulo(uint32_t x, uint32_t y) { return folded<I>(static_cast<uint64_t>(x) * y); }
