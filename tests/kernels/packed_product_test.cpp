// The packed product against kernels::product, bit by bit; arrays end where the data ends, so that
// under the sanitizers every step beyond shows. Without them, this file counts the program's calls
// of malloc.
#include "bmojo/kernels/packed_product.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "bmojo/base/bf16.h"
#include "bmojo/base/thread_pool.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/product.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BMOJO_COUNTS_MALLOC
static std::atomic<int64_t> allocations = 0;
extern "C" void* __libc_malloc(size_t size);
extern "C" void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
#endif

namespace bmojo::kernels {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

std::vector<float> normal(int64_t count, std::mt19937& engine) {
  std::normal_distribution<float> draw;
  std::vector<float> out(at(count));
  for (auto& x : out) x = draw(engine);
  return out;
}

std::vector<uint16_t> rounded(const std::vector<float>& x) {
  std::vector<uint16_t> out;
  for (const auto value : x) out.push_back(base::bf16_of_float(value));
  return out;
}

std::vector<float> widened(const std::vector<uint16_t>& x) {
  std::vector<float> out;
  for (const auto bits : x) out.push_back(base::float_of_bf16(bits));
  return out;
}

// W in panels. What is not written stays NaN.
struct Packed {
  hwy::AlignedFreeUniquePtr<uint8_t[]> bytes;
  PackedMatrix matrix;
};
Packed nothing_packed(int64_t N, int64_t K, WeightType type) {
  const auto size = at(packed_bytes(N, K, type));
  Packed out = {hwy::AllocateAligned<uint8_t>(std::max<size_t>(1, size)), {}};
  std::memset(out.bytes.get(), 0xFF, size);
  out.matrix = {N, K, type, out.bytes.get()};
  return out;
}

// In parts that begin anywhere, the last one first.
template <typename Source>
Packed packed(const std::vector<Source>& w, int64_t N, int64_t K, WeightType type,
              const std::vector<int64_t>& begins, const ParallelFor& parallel) {
  auto out = nothing_packed(N, K, type);
  int64_t end = N;
  for (auto first = begins.rbegin(); first != begins.rend(); end = *first++) {
    const std::vector<Source> part(w.begin() + *first * K, w.begin() + end * K);
    pack_rows(part.data(), {N, K, type, *first, end - *first, out.bytes.get()}, parallel);
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0);
}

// The last task first: what a task writes into another's place stays.
void backward_for(int64_t n, const Task& task) {
  for (int64_t i = n - 1; i >= 0; --i) task(i);
}

class Packing : public testing::TestWithParam<std::string> {
 protected:
  Packing() { use_target(GetParam()); }
  ~Packing() override { use_target(""); }
};

struct Shape {
  int64_t M, N, K;
};

// Rows of x and of out apart from each other; what lies between them stays as it is.
void expect_products(const Shape& shape, std::mt19937& engine, base::ThreadPool& pool) {
  const auto [M, N, K] = shape;
  const int64_t x_stride = K + 5, stride = N + 3;
  const auto x = normal(M > 0 ? (M - 1) * x_stride + K : 0, engine), w = normal(N * K, engine);
  const auto narrow = rounded(w);
  const std::vector<float> before(at(M > 0 ? (M - 1) * stride + N : 0), 7);
  const std::vector<int64_t> begins = {0, N / 3, N / 2};
  for (const auto type : {WeightType::f32, WeightType::bf16}) {
    const auto weights = type == WeightType::f32 ? w : widened(narrow);
    auto expected = before;
    product({M, N, K, {x.data(), x_stride, 1}, {weights.data(), 1, K}, expected.data(), stride},
            serial_for);
    for (const bool from_bf16 : {false, true}) {
      if (from_bf16 && type == WeightType::f32) continue;
      const auto right = from_bf16 ? packed(narrow, N, K, type, begins, pool)
                                   : packed(w, N, K, type, begins, pool);
      auto alone = before, backward = before, shared = before;
      PackedProduct in = {M, {x.data(), x_stride}, right.matrix, alone.data(), stride};
      packed_product(in, serial_for);
      in.out = backward.data();
      packed_product(in, backward_for);
      in.out = shared.data();
      packed_product(in, pool);
      EXPECT_TRUE(same_bits(alone, expected))
          << M << " " << N << " " << K << (type == WeightType::f32 ? " f32" : " bf16");
      EXPECT_TRUE(same_bits(backward, expected)) << M << " " << N << " " << K << " backward";
      EXPECT_TRUE(same_bits(shared, expected)) << M << " " << N << " " << K << " on two threads";
    }
  }
}

// Panels have 32 columns, strips 6 or 8 rows, blocks of k 512; up to 8 rows go another way than
// more, 192 rows are one task, 768 are laid out at a time, and the last 8 panels are tasks each.
TEST_P(Packing, ProductHasTheBitsOfTheOther) {
  std::mt19937 engine(1);
  base::ThreadPool pool(2);
  for (const auto& shape : {Shape{1, 1, 1},
                            {1, 31, 7},
                            {1, 64, 512},
                            {1, 65, 513},
                            {2, 33, 1024},
                            {8, 100, 1600},
                            {9, 100, 1600},
                            {16, 32, 3},
                            {5, 40, 0},
                            {20, 40, 0},
                            {0, 3, 4},
                            {3, 0, 4},
                            {12, 0, 4},
                            {200, 70, 530},
                            {801, 40, 20},
                            {13, 530, 520},
                            {1, 3000, 2},
                            {70, 5, 1030}})
    expect_products(shape, engine, pool);
  for (int64_t M = 1; M <= 70; ++M)
    expect_products({M, std::uniform_int_distribution<int64_t>(1, 80)(engine),
                     std::uniform_int_distribution<int64_t>(1, 1200)(engine)},
                    engine, pool);
}

TEST_P(Packing, ARowIsTheSameInAnyCompany) {
  std::mt19937 engine(2);
  const int64_t M = 30, N = 70, K = 700;
  const auto x = normal(M * K, engine), w = normal(N * K, engine);
  const auto right = packed(w, N, K, WeightType::bf16, {0}, serial_for);
  std::vector<float> all(at(M * N)), one(at(N));
  packed_product({M, {x.data(), K}, right.matrix, all.data(), N}, serial_for);
  for (int64_t m = 0; m < M; ++m) {
    packed_product({1, {x.data() + m * K, K}, right.matrix, one.data(), N}, serial_for);
    ASSERT_TRUE(same_bits(one, {all.begin() + m * N, all.begin() + (m + 1) * N})) << m;
  }
}

#ifdef BMOJO_COUNTS_MALLOC
TEST_P(Packing, FewRowsAllocateNothing) {
  std::mt19937 engine(3);
  const int64_t N = 100, K = 700;
  const auto x = normal(9 * K, engine), w = normal(N * K, engine);
  std::vector<float> out(at(9 * N));
  base::ThreadPool pool(2);
  for (const auto type : {WeightType::f32, WeightType::bf16}) {
    const auto right = packed(w, N, K, type, {0}, pool);
    const int64_t before = allocations;
    for (int64_t M = 1; M <= 8; ++M)
      packed_product({M, {x.data(), K}, right.matrix, out.data(), N}, pool);
    EXPECT_EQ(allocations, before);
    void* volatile one = std::malloc(1);
    std::free(one);
    EXPECT_EQ(allocations, before + 1);  // so it does count
  }
}
#endif

TEST(Packed, LayoutIsPanelsOf32WithZerosBehindTheLastRow) {
  const int64_t N = 35, K = 3;
  std::vector<float> w(at(N * K));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  for (const auto& begins : {std::vector<int64_t>{0}, {0, 7, 33}, {0, 32}, {0, 34}}) {
    const auto right = packed(w, N, K, WeightType::f32, begins, serial_for);
    ASSERT_EQ(packed_bytes(N, K, WeightType::f32), 2 * K * 32 * 4);
    const auto* panels = static_cast<const float*>(right.matrix.panels);
    for (int64_t n = 0; n < 64; ++n)
      for (int64_t k = 0; k < K; ++k)
        ASSERT_EQ(panels[(n / 32 * K + k) * 32 + n % 32], n < N ? w[at(n * K + k)] : 0) << n;
  }
}

TEST(Packed, FloatsAreRoundedToTheNearestBf16AndNanStaysNan) {
  const std::vector<float> w = {1.0f, 1.00390625f, 1.01171875f, 1.00390637f, -3.4e38f, NAN, 1e-40f};
  const std::vector<uint16_t> expected = {0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xFF80, 0x7FC0, 0x0001};
  const auto N = std::ssize(w);
  const auto right = packed(w, N, 1, WeightType::bf16, {0}, serial_for);
  const auto* panel = static_cast<const uint16_t*>(right.matrix.panels);
  EXPECT_EQ(packed_bytes(N, 1, WeightType::bf16), 64);
  EXPECT_EQ(std::vector<uint16_t>(panel, panel + N), expected);
  const auto wide = packed(rounded(w), N, 1, WeightType::f32, {0}, serial_for);
  EXPECT_EQ(static_cast<const float*>(wide.matrix.panels)[2], 1.015625f);
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Packing, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace bmojo::kernels
