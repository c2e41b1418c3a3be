#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

// Counts the heap through operator new, which this file replaces for its whole program: only one
// source of a program may include it.

namespace bmojo::test {

inline std::atomic<size_t> in_use{0}, peak{0};

inline void* counted(size_t size) {
  void* start = std::malloc(size);
  if (start == nullptr) throw std::bad_alloc();
  const size_t now = in_use += ::malloc_usable_size(start);
  if (now > peak) peak = now;
  return start;
}

inline void uncounted(void* start) {
  if (start != nullptr) in_use -= ::malloc_usable_size(start);
  std::free(start);
}

// The most that `call` takes at a time, of what it takes itself.
template <typename Call>
size_t heap_of(const Call& call) {
  const size_t before = in_use;
  peak = before;
  call();
  return peak - before;
}

}  // namespace bmojo::test

void* operator new(size_t size) { return bmojo::test::counted(size); }
void* operator new[](size_t size) { return bmojo::test::counted(size); }
void operator delete(void* start) noexcept { bmojo::test::uncounted(start); }
void operator delete[](void* start) noexcept { bmojo::test::uncounted(start); }
void operator delete(void* start, size_t) noexcept { bmojo::test::uncounted(start); }
void operator delete[](void* start, size_t) noexcept { bmojo::test::uncounted(start); }
