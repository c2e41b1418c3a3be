#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace bmojo::kernels {

// Uninitialised numbers, aligned for every vector.
using Scratch = hwy::AlignedFreeUniquePtr<float[]>;
inline Scratch scratch(int64_t count) {
  // The library takes neither 0 for an answer nor throws when memory runs out.
  auto memory = hwy::AllocateAligned<float>(static_cast<size_t>(std::max<int64_t>(1, count)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace bmojo::kernels
