#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace bmojo::kernels {

// Blocks that a thread is done with and will want again, so that a step allocates nothing: of 2^i
// bytes up to 256 KiB, a few of each.
class Shelf {
 public:
  static constexpr int kSizes = 19;
#ifdef __SANITIZE_ADDRESS__
  static constexpr int kEach = 0;  // it watches the ends of what has memory of its own
#else
  static constexpr int kEach = 4;
#endif
  static int size_of(size_t bytes) {
    const int size = std::bit_width(std::max<size_t>(1, bytes) - 1);
    return size < kSizes && kEach > 0 ? size : -1;
  }

  ~Shelf() {
    for (int size = 0; size < kSizes; ++size)
      while (void* block = take(size)) hwy::FreeAlignedBytes(block, nullptr, nullptr);
  }
  void* take(int size) {
    auto& [blocks, count] = places_[static_cast<size_t>(size)];
    return count > 0 ? blocks[static_cast<size_t>(--count)] : nullptr;
  }
  bool put(int size, void* block) {
    auto& [blocks, count] = places_[static_cast<size_t>(size)];
    if (count == kEach) return false;
    blocks[static_cast<size_t>(count++)] = block;
    return true;
  }

 private:
  struct Place {
    std::array<void*, 4> blocks;
    int count = 0;
  };
  std::array<Place, kSizes> places_ = {};
};
inline Shelf& shelf() {
  thread_local Shelf shelf;
  return shelf;
}

struct GiveBack {
  int size = -1;  // on the shelf; -1: none of its sizes
  void operator()(void* block) const {
    if (size < 0 || !shelf().put(size, block)) hwy::FreeAlignedBytes(block, nullptr, nullptr);
  }
};

// Uninitialised numbers, aligned for every vector, for the time of a call: what outlives a thread's
// calls must not lie in one.
template <typename T>
using ScratchOf = std::unique_ptr<T[], GiveBack>;
using Scratch = ScratchOf<float>;

template <typename T = float>
ScratchOf<T> scratch(int64_t count) {
  // The library does not take 0 for an answer, nor throws when memory runs out.
  const size_t bytes = sizeof(T) * static_cast<size_t>(std::max<int64_t>(1, count));
  const int size = Shelf::size_of(bytes);
  void* block = size < 0 ? nullptr : shelf().take(size);
  if (block == nullptr)
    block = hwy::AllocateAlignedBytes(size < 0 ? bytes : size_t{1} << size, nullptr, nullptr);
  if (block == nullptr) throw std::bad_alloc();
  return ScratchOf<T>(static_cast<T*>(block), GiveBack{size});
}

}  // namespace bmojo::kernels
