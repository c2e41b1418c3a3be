#include "bmojo/nn/ops/product.h"

#include "bmojo/kernels/product.h"

namespace bmojo::nn {
namespace {

kernels::Matrix matrix(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), x.stride(0), x.stride(1)};
}

// Measured by turns with MKL on an AMD EPYC with AVX2, two threads: from here on the kernel is the
// faster one (docs/performance.md). Not measured: AVX-512, and many threads, for which it has few
// tasks.
constexpr int64_t kFewestRows = 256, kFewestColumns = 16, kLeastWork = 1 << 25, kMostThreads = 8;

bool kernel_is_faster(int64_t M, int64_t N, int64_t K) {
  // Of the CPU, not of the kernels' target: BMOJO_SIMD changes no bits.
  static const bool narrow = !__builtin_cpu_supports("avx512f");
  return narrow && M >= kFewestRows && N >= kFewestColumns && M * N * K >= kLeastWork &&
         at::get_num_threads() <= kMostThreads;
}

void check(const at::Tensor& a, const at::Tensor& b) {
  base::require(a.dim() == 2, "product: a must be [M, K], got {}", describe(a));
  base::require(b.dim() == 2 && b.size(0) == a.size(1), "product: b must be [{}, N], got {}",
                a.size(1), describe(b));
}

void multiply(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add) {
  check(a, b);
  const int64_t M = a.size(0), N = b.size(1), K = a.size(1);
  check_shape("product", "out", out, {M, N});
  base::require((N < 2 || out.stride(1) == 1) && (M < 2 || out.stride(0) >= N),
                "product: out must have dense rows, got steps of {}",
                fmt::join(out.strides(), " and "));
  if (use_kernel({out, a, b}) && (EveryProduct::active() || kernel_is_faster(M, N, K)))
    return kernels::product({.M = M,
                             .N = N,
                             .K = K,
                             .a = matrix(a),
                             .b = matrix(b),
                             .out = out.data_ptr<float>(),
                             .out_stride = out.stride(0),
                             .add = add},
                            parallel_for);
  if (add)
    out.addmm_(a, b);
  else
    at::mm_out(out, a, b);
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  check(a, b);
  auto out = at::empty({a.size(0), b.size(1)}, a.options());
  product_into(out, a, b);
  return out;
}

void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  multiply(out, a, b, /*add=*/false);
}

void add_product(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  multiply(out, a, b, /*add=*/true);
}

}  // namespace bmojo::nn
