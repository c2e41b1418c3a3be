#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

namespace bmojo::base {

// splitmix64's finaliser: a bijection whose outputs pass as independent draws.
constexpr uint64_t mix_bits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
inline constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

// splitmix64. A generator is made where it is needed, from what its draws shall depend on (a seed,
// a sequence, a step): nothing has to be saved to go on, and the same numbers come on every
// machine.
class Random {
 public:
  explicit Random(std::initializer_list<uint64_t> names) {
    for (const auto name : names) state_ = mix_bits(state_ + kGoldenGamma) ^ mix_bits(name);
  }

  uint64_t bits() { return mix_bits(state_ += kGoldenGamma); }

  // Uniform on 0 … n-1, n > 0, without bias: draws beyond the last multiple of n are repeated.
  uint64_t below(uint64_t n) {
    const uint64_t limit = std::numeric_limits<uint64_t>::max() / n * n;
    while (true)
      if (const uint64_t draw = bits(); draw < limit) return draw % n;
  }

  // Uniform on (0, 1), never either end.
  double uniform() { return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52; }

  // Fisher-Yates; std::shuffle's order is up to the library.
  template <typename Items>
  void shuffle(Items& items) {
    for (uint64_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_ = 0;
};

}  // namespace bmojo::base
