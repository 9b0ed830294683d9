// The Chinese remainder theorem in float64: from accumulators c_t, sums of products of bytes that are below 2^24, to
// RN(Cbar 2^exponent), with no residue of a single modulus in between.
//
// Moduli are combined in groups of three, in order; the last group may have fewer. P_g is the product of a group.
//
//   z_g = sum over the group of c_t P_g / m_t - P_g RN(sum of c_t / m_t),     abs(z_g) little above P_g / 2 < 2^23
//   Cbar = sum_g z_g W_g - Q M,  Q = RN(sum_g z_g W_g / M)
//
// where W_g is congruent to 1 / (P_g / m_t) modulo the m_t of its group, and to 0 modulo all others: z_g W_g has the
// residues of c_t, whatever multiple of P_g is left out of z_g. So its quotient need not be right, only near.
//
// W_g and M are cut into DIGITS balanced digits at the places PLACE[i], about 28 bits apart, so that each digit of the
// sum, s_i = sum_g z_g W_gi - Q M_i, is an exact float64 integer (ozaki/schemes/grouped.py proves it for each count).
// They are added by error-free transformations and rounded once: two instructions a digit and group, and some 20 more,
// or 40 of more than four digits. Near over- and underflow the limbs of Cbar are put together and rounded as such.
#pragma once
#include "arithmetic/fixed_point.cuh"
#include "arithmetic/rounding.cuh"

HD constexpr int groups_of(int moduli) { return (moduli + 2) / 3; }

// Constants, filled by the host. fraction[t] = RN(2^127 / m_t) and, below, f 2^-149 is the number whose bits are f:
// their product is f / m_t in units of 2^-22, the unit of float32 numbers from 2 to 4.
template <int N, int DIGITS> struct GroupedConstants {
  double weight[groups_of(N)][DIGITS];
  double minus_modulus[DIGITS];        // digits of -M
  double ratio;                        // RN(2^PLACE[DIGITS - 2] / M)
  uint32_t factor[N];                  // P_g / m_t
  float fraction[N];
  uint32_t minus_group[groups_of(N)];  // -P_g
  uint32_t start[groups_of(N)];        // 2^31, and takes back the bits of 3 times P_g
};

// RN(x y) and RN(x y + z) of float32 numbers of which x may be subnormal; asm: never flushed, whatever the options.
HD float small_product(float x, float y) {
#ifdef __CUDA_ARCH__
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
  return product;
#else
  return x * y;
#endif
}
HD float small_product(float x, float y, float z) {
#ifdef __CUDA_ARCH__
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(x), "f"(y), "f"(z));
  return sum;
#else
  return __builtin_fmaf(x, y, z);
#endif
}

// z_g + 2^31 of an entry, for all g: accumulators are added in the order of their moduli.
template <int N> struct GroupSums {
  uint32_t z[groups_of(N)];
  float fraction;

  // t: a compile-time constant.
  template <typename Constants> HD void add(int t, uint32_t accumulator, const Constants& c) {
    const int g = t / 3;
    const bool first = t % 3 == 0;
    const float f = float_of_bits(accumulator);
    fraction = first ? small_product(f, c.fraction[t]) : small_product(f, c.fraction[t], fraction);
    z[g] = accumulator * c.factor[t] + (first ? c.start[g] : z[g]);
    if (t % 3 == 2 || t == N - 1) z[g] += bits_of(fraction + 3.0f) * c.minus_group[g];
  }
};

// RZ(a + b), and b + a rounded to odd: if it is no float64, that neighbour whose last bit is one; abs(b) <= abs(a), or
// a is a multiple of the unit of b.
HD double sum_toward_zero(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rz(a, b);
#else
  return fused_toward(FE_TOWARDZERO, a, 1.0, b);
#endif
}
HD double sum_to_odd(double a, double b) {
  const double sum = sum_toward_zero(a, b), lost = (a - sum) + b;
  const uint64_t bits = bits_of(sum), rest = bits_of(lost);
  return double_of_limbs(high_limb(bits), low_limb(bits) | not_zero(high_limb(rest) | low_limb(rest)));
}

HD double number_of(uint64_t bits) { return double_of(bits); }
HD float number_of(uint32_t bits) { return float_of_bits(bits); }
HD double power_of_two(int e) { return double_of_limbs(static_cast<uint32_t>(e + 1023) << 20, 0); }

// RN((sum + tail) power), tail rounded to odd, if that is a normal number; power: of two.
HD void round_sum(double sum, double tail, double power, double& rounded) { rounded = (sum + tail) * power; }
HD void round_sum(double sum, double tail, double power, float& rounded) {
  rounded = static_cast<float>(sum_to_odd(sum, tail) * power);
}
// Exponents for which that holds, of integers below 2^BITS that are 0 or at least 1.
template <typename T, int BITS> HD bool is_usual(int exponent) {
  constexpr int LEAST = sizeof(T) == 8 ? -1022 : -126, MOST = sizeof(T) == 8 ? 1023 - BITS : 127 - BITS;
  return exponent >= LEAST && exponent <= MOST;
}

// The limbs of sum_i s_i 2^PLACE[i], for integers abs(s_i) <= 2^53.
template <int DIGITS, int LENGTH>
HD void limbs_of_digits(const double (&s)[DIGITS], const int (&place)[DIGITS], uint32_t (&limbs)[LENGTH]) {
  int64_t column[LENGTH + 3];
#pragma unroll
  for (int w = 0; w < LENGTH + 3; ++w) column[w] = 0;
#pragma unroll
  for (int i = 0; i < DIGITS; ++i) {
    const int w = place[i] / 32, bit = place[i] % 32;
    const int64_t digit = nearest_integer(s[i]);
    const uint64_t low = static_cast<uint64_t>(low_limb(static_cast<uint64_t>(digit))) << bit;
    const int64_t high = (digit >> 32) * (1ll << bit);
    column[w] += low_limb(low);
    column[w + 1] += static_cast<int64_t>(high_limb(low)) + low_limb(static_cast<uint64_t>(high));
    column[w + 2] += high >> 32;
  }
  int64_t carry = 0;
#pragma unroll
  for (int w = 0; w < LENGTH; ++w) {
    carry += column[w];
    limbs[w] = low_limb(static_cast<uint64_t>(carry));
    carry >>= 32;
  }
}

// The digits s_i of Cbar, whose sum with their places it is. The upper two tell Q: abs(Cbar) < M (1/2 - 2^-10) leaves
// room for what the others are (ozaki/schemes/grouped.py).
template <int N, typename Places, int DIGITS>
HD void digit_sums(const uint32_t (&z)[groups_of(N)], const GroupedConstants<N, DIGITS>& c, double (&s)[DIGITS]) {
  constexpr int GROUPS = groups_of(N), UPPER = DIGITS - 2;
  double v[GROUPS];
#pragma unroll
  for (int g = 0; g < GROUPS; ++g)  // 2^52 + 2^31 + z_g less 2^52 + 2^31
    v[g] = double_of_limbs(0x43300000u, z[g]) - double_of_limbs(0x43300000u, 0x80000000u);
#pragma unroll
  for (int i = UPPER; i < DIGITS; ++i) {
    s[i] = 0.0;  // not -0: an exact zero is +0
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) s[i] = fused(v[g], c.weight[g][i], s[i]);
  }
  const double upper = fused(s[DIGITS - 1], power_of_two(Places::at[DIGITS - 1] - Places::at[UPPER]), s[UPPER]);
  const double quotient = fused(upper, c.ratio, 0x1.8p52) - 0x1.8p52;
#pragma unroll
  for (int i = 0; i < DIGITS; ++i) {
    s[i] = fused(quotient, c.minus_modulus[i], i < UPPER ? 0.0 : s[i]);
    if (i >= UPPER) continue;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) s[i] = fused(v[g], c.weight[g][i], s[i]);
  }
}

// Makes s a digit: abs(s) <= 2^(WIDTH - 1). The rest goes to the next one.
template <int WIDTH> HD void carry(double& s, double& next) {
  const double upper = fused(s, power_of_two(-WIDTH), 0x1.8p52) - 0x1.8p52;
  s = fused(upper, -power_of_two(WIDTH), s);
  next += upper;
}

// RN(Cbar power) from digits, if `is_usual` says so of the exponent of that power of two. Places: a struct with `static
// constexpr int at[DIGITS]`. More than four: as digits of WIDTH bits any two of them, 53 bits, are a float64; the upper
// one of three such numbers is rounded with the middle one, and what that loses is a multiple of the unit of the lower
// one.
template <typename T, typename Places, int DIGITS> HD T round_more_digits(double (&s)[DIGITS], double power) {
  static_assert(DIGITS == 5 || DIGITS == 6, "");
  carry<Places::at[1]>(s[0], s[1]);
  carry<Places::at[2] - Places::at[1]>(s[1], s[2]);
  carry<Places::at[3] - Places::at[2]>(s[2], s[3]);
  carry<Places::at[4] - Places::at[3]>(s[3], s[4]);
  const double low = fused(s[1], power_of_two(Places::at[1]), s[0]);
  const double middle = fused(s[3], power_of_two(Places::at[3]), s[2] * power_of_two(Places::at[2]));
  constexpr int LAST = DIGITS - 1;
  const double upper = LAST > 4 ? fused(s[LAST], power_of_two(Places::at[LAST] - Places::at[4]), s[4]) : s[4];
  const double of_upper = power_of_two(Places::at[4]);
  const double sum = fused(upper, of_upper, middle), lost = fused(upper, of_upper, -sum) + middle;
  T rounded;
  round_sum(sum, sum_to_odd(lost, low), power, rounded);
  return rounded;
}
template <typename T, typename Places, int DIGITS> HD T round_few_digits(const double (&s)[DIGITS], double power) {
  static_assert(DIGITS <= 4, "");
  constexpr int LAST = DIGITS - 1, HIGH = smaller(2, LAST);
  const double unit = power_of_two(Places::at[1]);
  // The lower two digits, and what their sum loses; then the upper two, whose sum is exact.
  double sum = fused(s[1], unit, s[0]), tail = fused(s[1], unit, -sum) + s[0];
  if constexpr (DIGITS > 2) {
    constexpr int APART = Places::at[LAST] - Places::at[HIGH];
    const double upper = DIGITS == 4 ? fused(s[LAST], power_of_two(APART), s[HIGH]) : s[HIGH];
    const double of_upper = power_of_two(Places::at[HIGH]), lower = sum;
    sum = fused(upper, of_upper, lower);
    tail = sum_to_odd(fused(upper, of_upper, -sum) + lower, tail);
  }
  T rounded;
  round_sum(sum, tail, power, rounded);
  return rounded;
}

// RN(Cbar 2^exponent) from any digits, for any exponent.
template <typename T, typename Places, int BITS, int DIGITS>
HD T round_digits(const double (&s)[DIGITS], int exponent) {
  constexpr int LENGTH = larger((BITS + 32) / 32, 3);
  uint32_t limbs[LENGTH];
  limbs_of_digits<DIGITS, LENGTH>(s, Places::at, limbs);
  return number_of(Rounding<T>::bits(limbs, exponent));
}
