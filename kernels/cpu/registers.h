// Vectors that are longer than the processor's registers, as so many of these: what GCC compiles from its own vectors
// of that length goes through memory.
#pragma once

#include <cstdint>
#include <cstring>

namespace cpu {

#if defined(__AVXVNNI__)
constexpr int REGISTER = 32;
#else
constexpr int REGISTER = 16;
#endif

template <typename Scalar> struct OfComparison;
template <> struct OfComparison<double> { typedef int64_t Type; };
template <> struct OfComparison<int64_t> { typedef int64_t Type; };
template <> struct OfComparison<uint64_t> { typedef int64_t Type; };
template <> struct OfComparison<float> { typedef int32_t Type; };
template <> struct OfComparison<uint32_t> { typedef int32_t Type; };
template <> struct OfComparison<int32_t> { typedef int32_t Type; };

// BYTES bytes of elements, with the operators that vectors of GCC and Clang have.
template <typename Scalar, int BYTES> struct Registers {
  static constexpr int EACH = BYTES < REGISTER ? BYTES : REGISTER, PARTS = BYTES / EACH;
  typedef Scalar Part __attribute__((vector_size(EACH)));
  Part parts[PARTS];

  template <typename Other> OPERATION_MEMBER explicit operator Registers<Other, BYTES>() const {
    Registers<Other, BYTES> same;
    for (int i = 0; i < PARTS; i++) same.parts[i] = (typename Registers<Other, BYTES>::Part)parts[i];
    return same;
  }

  static constexpr int SCALARS = EACH / (int)sizeof(Scalar);  // of a part
  OPERATION_MEMBER Scalar operator[](int i) const { return parts[i / SCALARS][i % SCALARS]; }
  OPERATION_MEMBER void set(int i, Scalar x) { parts[i / SCALARS][i % SCALARS] = x; }
};

#define OZAKI_OPERATOR(OPERATOR)                                                                                       \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<S, B> operator OPERATOR(const Registers<S, B>& x,                                                \
                                              const Registers<S, B>& y) {                                              \
    Registers<S, B> of;                                                                                                \
    for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] OPERATOR y.parts[i];                     \
    return of;                                                                                                         \
  }                                                                                                                    \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<S, B> operator OPERATOR(const Registers<S, B>& x,                                                \
                                              typename Same<S>::Type y) {                                              \
    return x OPERATOR all<Registers<S, B>>(y);                                                                         \
  }                                                                                                                    \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<S, B> operator OPERATOR(typename Same<S>::Type x,                                                \
                                              const Registers<S, B>& y) {                                              \
    return all<Registers<S, B>>(x) OPERATOR y;                                                                         \
  }                                                                                                                    \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<S, B>& operator OPERATOR##=(Registers<S, B>& x, const Registers<S, B>& y) {                      \
    return x = x OPERATOR y;                                                                                           \
  }

#define OZAKI_COMPARISON(OPERATOR)                                                                                     \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<typename OfComparison<S>::Type, B> operator OPERATOR(const Registers<S, B>& x,                   \
                                                                           const Registers<S, B>& y) {                 \
    Registers<typename OfComparison<S>::Type, B> of;                                                                   \
    for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] OPERATOR y.parts[i];                     \
    return of;                                                                                                         \
  }                                                                                                                    \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<typename OfComparison<S>::Type, B> operator OPERATOR(const Registers<S, B>& x,                   \
                                                                           typename Same<S>::Type y) {                 \
    return x OPERATOR all<Registers<S, B>>(y);                                                                         \
  }                                                                                                                    \
  template <typename S, int B>                                                                                         \
  OPERATION Registers<typename OfComparison<S>::Type, B> operator OPERATOR(typename Same<S>::Type x,                   \
                                                                           const Registers<S, B>& y) {                 \
    return all<Registers<S, B>>(x) OPERATOR y;                                                                         \
  }

// A type that is not deduced from an argument, so that numbers of other types are converted to it.
template <typename S> struct Same { typedef S Type; };

template <typename Vector> OPERATION Vector all(decltype(Vector{}[0]) x) {
  Vector of;
  for (int i = 0; i < Vector::PARTS; i++) of.parts[i] = x - typename Vector::Part{};
  return of;
}

OZAKI_OPERATOR(+)
OZAKI_OPERATOR(-)
OZAKI_OPERATOR(*)
OZAKI_OPERATOR(/)
OZAKI_OPERATOR(&)
OZAKI_OPERATOR(|)
OZAKI_OPERATOR(^)
OZAKI_COMPARISON(<)
OZAKI_COMPARISON(>)
OZAKI_COMPARISON(>=)
OZAKI_COMPARISON(==)
OZAKI_COMPARISON(!=)
#undef OZAKI_OPERATOR
#undef OZAKI_COMPARISON

template <typename S, int B> OPERATION Registers<S, B> operator<<(const Registers<S, B>& x, int bits) {
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] << bits;
  return of;
}

template <typename S, int B> OPERATION Registers<S, B> operator>>(const Registers<S, B>& x, int bits) {
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] >> bits;
  return of;
}

template <typename S, int B> OPERATION Registers<S, B>& operator>>=(Registers<S, B>& x, int bits) {
  return x = x >> bits;
}

template <typename S, int B, typename T>
OPERATION Registers<S, B> operator<<(const Registers<S, B>& x, const Registers<T, B>& bits) {
  typedef typename Registers<S, B>::Part Part;
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] << (Part)bits.parts[i];
  return of;
}

template <typename S, int B, typename T>
OPERATION Registers<S, B> operator>>(const Registers<S, B>& x, const Registers<T, B>& bits) {
  typedef typename Registers<S, B>::Part Part;
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = x.parts[i] >> (Part)bits.parts[i];
  return of;
}

template <typename S, int B> OPERATION Registers<S, B> operator~(const Registers<S, B>& x) {
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = ~x.parts[i];
  return of;
}

template <typename S, int B> OPERATION Registers<S, B> operator-(const Registers<S, B>& x) {
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = -x.parts[i];
  return of;
}

// Where the mask is -1 x, where it is 0 y.
template <typename M, typename S, int B>
OPERATION Registers<S, B> select(const Registers<M, B>& mask, const Registers<S, B>& x, const Registers<S, B>& y) {
  Registers<S, B> of;
  for (int i = 0; i < Registers<S, B>::PARTS; i++) of.parts[i] = mask.parts[i] ? x.parts[i] : y.parts[i];
  return of;
}

}  // namespace cpu
