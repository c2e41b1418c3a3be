// The packed product beside what bounds it: decoding beside the bandwidth of memory, prefill beside
// kernels::product, by turns in one process. Lines of text; the best of the turns counts.
#include <fmt/format.h>
#include <hwy/aligned_allocator.h>
#include <immintrin.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "bmojo/base/bf16.h"
#include "bmojo/base/thread_pool.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/packed_product.h"
#include "bmojo/kernels/product.h"

namespace bmojo {
namespace {

using kernels::PackedProduct;
using kernels::WeightType;

struct Options {
  int threads = 2, turns = 20;
  int64_t megabytes = 1024, M = 512, N = 2048, K = 2048;
};

template <typename Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

using Bytes = hwy::AlignedFreeUniquePtr<uint8_t[]>;
Bytes bytes(int64_t count) { return hwy::AllocateAligned<uint8_t>(static_cast<size_t>(count)); }

std::vector<float> normal(int64_t count) {
  std::mt19937 engine(1);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<size_t>(count));
  for (auto& x : out) x = draw(engine);
  return out;
}

// What a thread reads in a task, four streams of vectors at once.
constexpr int64_t kPiece = 1 << 20;
__attribute__((target("avx2"))) int64_t read(const uint8_t* data) {
  __m256i sums[4] = {};
  for (int64_t i = 0; i < kPiece / 4; i += 32)
    for (int64_t stream = 0; stream < 4; ++stream) {
      const auto* at = reinterpret_cast<const __m256i*>(data + stream * kPiece / 4 + i);
      sums[stream] = _mm256_xor_si256(sums[stream], _mm256_load_si256(at));
    }
  const auto all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
         _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3);
}

// Matrices [N, K] until memory is full, multiplied with one row each: as decoding reads a model.
struct Decoding {
  WeightType type;
  int64_t rows;
  double best = 1e9;
};

void compare_with_bandwidth(const Options& options, base::ThreadPool& pool) {
  const int64_t size = options.megabytes << 20, N = options.N, K = options.K;
  const auto memory = bytes(size);
  pool.run(size / kPiece, [&](int64_t i) { std::memset(memory.get() + i * kPiece, 0x3C, kPiece); });
  std::atomic<int64_t> sum = 0;
  const auto x = normal(8 * K);
  std::vector<float> out(static_cast<size_t>(8 * N));
  std::vector<Decoding> all;
  for (const auto type : {WeightType::f32, WeightType::bf16})
    for (const int64_t rows : {1, 2, 4, 8}) all.push_back({type, rows});
  double best = 1e9;
  const int64_t pieces = size / kPiece;
  for (int turn = 0; turn < options.turns; ++turn) {
    best = std::min(best, seconds([&] {
                      pool.run(pieces, [&](int64_t i) { sum += read(memory.get() + i * kPiece); });
                    }));
    for (auto& each : all) {
      const int64_t one = kernels::packed_bytes(N, K, each.type), count = size / one;
      const double time = seconds([&] {
        for (int64_t i = 0; i < count; ++i)
          kernels::packed_product(
              {each.rows, {x.data(), K}, {N, K, each.type, memory.get() + i * one}, out.data(), N},
              pool);
      });
      each.best =
          std::min(each.best, time * static_cast<double>(size) / static_cast<double>(count * one));
    }
  }
  const double read_rate = static_cast<double>(size) / best / 1e9;
  fmt::print("read {:.1f} GB/s ({} MiB, {} threads, checksum {})\n", read_rate, options.megabytes,
             options.threads, sum.load());
  for (const auto& each : all) {
    const double rate = static_cast<double>(size) / each.best / 1e9;
    fmt::print("decode {} rows {}: {:.1f} GB/s, {:.3f} of read\n",
               each.type == WeightType::f32 ? "f32 " : "bf16", each.rows, rate, rate / read_rate);
  }
}

void compare_with_product(const Options& options, base::ThreadPool& pool) {
  const auto [M, N, K] = std::array{options.M, options.N, options.K};
  const auto x = normal(M * K), w = normal(N * K);
  std::vector<float> out(static_cast<size_t>(M * N));
  std::vector<Bytes> panels;
  std::vector<PackedProduct> products;
  for (const auto type : {WeightType::f32, WeightType::bf16}) {
    panels.push_back(bytes(kernels::packed_bytes(N, K, type)));
    kernels::pack_rows(w.data(), {N, K, type, 0, N, panels.back().get()}, pool);
    products.push_back({M, {x.data(), K}, {N, K, type, panels.back().get()}, out.data(), N});
  }
  double best[3] = {1e9, 1e9, 1e9};
  std::vector<double> ratios[2];
  for (int turn = 0; turn < options.turns; ++turn) {
    const double product = seconds([&] {
      kernels::product({M, N, K, {x.data(), K, 1}, {w.data(), 1, K}, out.data(), N}, pool);
    });
    best[2] = std::min(best[2], product);
    for (size_t i = 0; i < 2; ++i) {
      const double time = seconds([&] { kernels::packed_product(products[i], pool); });
      best[i] = std::min(best[i], time);
      ratios[i].push_back(product / time);
    }
  }
  const double work = 2e-9 * static_cast<double>(M * N * K);
  fmt::print("product {} x {} x {}: {:.1f} GFLOP/s\n", M, N, K, work / best[2]);
  for (size_t i = 0; i < 2; ++i) {
    std::ranges::sort(ratios[i]);
    fmt::print("packed {}: {:.1f} GFLOP/s, {:.3f} of product (median of turns {:.3f})\n",
               i == 0 ? "f32 " : "bf16", work / best[i], best[2] / best[i],
               ratios[i][ratios[i].size() / 2]);
  }
}

int run(int argc, char** argv) {
  Options options;
  std::string target;
  CLI::App app("The packed product beside memory's bandwidth and kernels::product");
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--turns", options.turns)->capture_default_str();
  app.add_option("--mib", options.megabytes, "memory that decoding reads; 0: no decoding")
      ->capture_default_str();
  app.add_option("-M,--rows", options.M, "of a prefill")->capture_default_str();
  app.add_option("-N", options.N)->capture_default_str();
  app.add_option("-K", options.K)->capture_default_str();
  app.add_option("--simd", target, "the best instruction set used, such as AVX2");
  CLI11_PARSE(app, argc, argv);
  if (!target.empty()) kernels::cap_target(target);
  base::ThreadPool pool(options.threads);
  fmt::print("{}, {} threads, best of {} turns\n", kernels::simd_targets().front(), options.threads,
             options.turns);
  if (options.megabytes > 0) compare_with_bandwidth(options, pool);
  compare_with_product(options, pool);
  return 0;
}

}  // namespace
}  // namespace bmojo

int main(int argc, char** argv) { return bmojo::run(argc, argv); }
